"""The newest exception in what a Spark job said: which one it is, and what it means for a run."""

from __future__ import annotations

import pytest

from stateshift.clusters.protocol import Remedy
from stateshift.clusters.spark_causes import FACT_MAX, failure_of

QUERY = "0f6a2b1e-6c53-4b0e-9d59-0d4c3a4b5c6d"
RUN = "11111111-2222-4333-8444-555555555555"
FRAMES = (
    "\tat org.apache.spark.sql.execution.X.y(X.scala:12)\n\tat "
    "java.base/java.lang.Thread.run(Thread.java:840)\n"
)


def logged(text: str, level: str = "ERROR", by: str = "MicroBatchExecution") -> str:
    return f"26/11/25 14:00:00 {level} {by}: {text}\n"


def began(query: str = QUERY) -> str:
    return logged(
        f"Starting orders [id = {query}, runId = {RUN}]. Use file:/cp to store the checkpoint.",
        "INFO",
    )


def ended(stack: str, query: str = QUERY, run: str = RUN) -> str:
    return logged(f"Query orders [id = {query}, runId = {run}] terminated with error") + stack


# As Spark 4.0 says it (HDFSBackedStateStoreProvider.loadMap).
STATE = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage "
    "3.0 failed 1 times, most "
    "recent failure: Lost task 1.0 in stage 3.0 (TID 5) (10.0.0.7 executor driver): "
    "org.apache.spark.SparkException: "
    "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred "
    "during loading state. Error "
    "reading delta file file:/cp/state/0/1/5.delta of HDFSStateStoreProvider[id = "
    "(op=0,part=1)]: file:/cp/state/0/1/"
    f"5.delta does not exist. SQLSTATE: 58030\n{FRAMES}Caused by: "
    "java.io.FileNotFoundException: File "
    f"file:/cp/state/0/1/5.delta does not exist\n{FRAMES}\t... 23 more\n\nDriver "
    f"stacktrace:\n{FRAMES}"
)
SCHEMA = (
    "org.apache.spark.sql.execution.streaming.state.StateStoreValueSchemaNotCompatible: "
    "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match "
    "existing state value schema.\n"
)
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/jobs/orders.py", line 5, in <module>\n '
    "   main()\n"
)
USERS = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/jobs/orders.py", line 9, in bad\n    raise RuntimeError("no such customer")\n'
    f"RuntimeError: no such customer\n\n{FRAMES}"
)
OF_DRIVER = (
    f"{TRACEBACK}pyspark.errors.exceptions.captured.StreamingQueryException: "
    f"[STREAM_FAILED] Query [id = {QUERY}, "
    f"runId = {RUN}] terminated with exception: Job aborted due to stage failure: Task 1 "
    "in stage 3.0 failed 1 times\n"
)


def failed(log: str) -> tuple[str, Remedy]:
    failure = failure_of(log, alive=False)
    assert failure is not None
    return failure.fact, failure.remedy


def test_the_cause_stands_at_the_bottom_of_a_stack_and_the_newest_stack_at_the_end() -> None:
    old = ended("java.io.IOException: an old one\n" + FRAMES, run="another")
    root = f"Caused by: java.lang.IllegalStateException: no stock\n{FRAMES}"
    stack = f"org.shop.OrderFailed: cannot go on\n{FRAMES}{root}"
    noise = logged("Shutdown hook called", "INFO") + logged("Deleting directory /tmp/x", "INFO")
    assert failed(old + ended(stack) + noise) == ("no stock", Remedy.UNKNOWN)


def test_state_that_cannot_be_loaded_is_told_once_and_nothing_but_a_rollback_helps() -> None:
    fact, remedy = failed(began() + ended(STATE) + OF_DRIVER)
    assert fact.startswith(
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] An error occurred"
    )
    assert (
        fact.count("does not exist") == 1
        and "\n" not in fact
        and "\tat " not in fact
        and "SQLSTATE" not in fact
    )
    assert remedy is Remedy.ROLLBACK


@pytest.mark.parametrize(
    ("log", "fact"),
    [
        ("java.lang.IllegalStateException: batch 6 doesn't exist\n", "batch 6 doesn't exist"),
        (
            "java.lang.IllegalStateException: batch 3 not found in offset log\n",
            "batch 3 not found in offset log",
        ),
        (
            "java.lang.IllegalStateException: Incomplete log file in the offset log\n",
            "Incomplete log file in the",
        ),
        (
            "java.lang.IllegalStateException: Error reading delta file a/1.delta of X\n",
            "Error reading delta file a/1",
        ),
    ],
)
def test_a_log_that_cannot_be_read_is_the_images_matter(log: str, fact: str) -> None:
    told, remedy = failed(ended(log + FRAMES))
    assert told.startswith(fact) and remedy is Remedy.ROLLBACK


@pytest.mark.parametrize(
    "log", [ended(SCHEMA + FRAMES), logged("Exception in task 0.0") + SCHEMA + FRAMES]
)
def test_state_of_another_schema_wants_another_application(log: str) -> None:
    fact, remedy = failed(log)
    assert "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE]" in fact
    assert remedy is Remedy.OTHER_JOB


@pytest.mark.parametrize(
    ("log", "fact"),
    [
        (
            "Error: Failed to load class no.such.Main.\n",
            "Error: Failed to load class no.such.Main.",
        ),
        (
            f"{TRACEBACK}ModuleNotFoundError: No module named 'orders'\n",
            "ModuleNotFoundError: No module named",
        ),
        (
            "python3: can't open file '/jobs/o.py': [Errno 2] No such file\n",
            "python3: can't open file '/jobs/o.py'",
        ),
        (
            'Exception in thread "main" org.apache.spark.SparkClassNotFoundException: '
            "[DATA_SOURCE_NOT_FOUND] Failed "
            f"to find the data source: kafka.\n{FRAMES}Caused by: "
            f"java.lang.ClassNotFoundException: kafka\n{FRAMES}",
            "ClassNotFoundException: kafka",
        ),
    ],
)
def test_what_the_submission_lacks_is_corrected_there(log: str, fact: str) -> None:
    told, remedy = failed(log)
    assert told.startswith(fact) and remedy is Remedy.OTHER_SUBMIT


def test_an_exception_of_the_users_own_function_is_told_as_python_says_it() -> None:
    assert failed(began() + ended(USERS))[0] == "RuntimeError: no such customer"
    assert failed(f"{TRACEBACK}ValueError: no table\n")[0] == "ValueError: no table"


def test_an_application_in_cluster_mode_is_told_of_by_its_launcher() -> None:
    log = (
        "26/11/25 14:00:00 INFO Client: \n\t client token: N/A\n\t diagnostics: User class "
        "threw exception: "
        f"java.lang.ArithmeticException: / by zero\n{FRAMES}\n\t ApplicationMaster host: 10.0.0.7\n"
        'Exception in thread "main" org.apache.spark.SparkException: Application '
        "application_1_2 finished with failed "
        f"status\n{FRAMES}"
    )
    assert failed(log)[0].startswith("ArithmeticException: / by zero")


def test_the_echo_of_a_jvm_that_went_down_is_no_cause() -> None:
    log = "java.lang.OutOfMemoryError: Java heap space\n" + FRAMES
    log += f"{TRACEBACK}py4j.protocol.Py4JNetworkError: Answer from Java side is empty\n"
    assert failed(log)[0] == "OutOfMemoryError: Java heap space"


def test_a_fact_is_one_safe_line_without_secrets() -> None:
    log = f"{TRACEBACK}ValueError: a\x1b[31m --password hunter22 {'x' * 2000}\nerror: not ours\n"
    fact, _ = failed(log)
    assert fact.isprintable() and len(fact) <= FACT_MAX
    assert "hunter22" not in fact


def test_a_log_without_an_exception_says_nothing() -> None:
    for log in ("", began(), logged("Added broadcast_0", "INFO"), "one\ntwo: three\n"):
        assert failure_of(log, alive=False) is None
        assert failure_of(log, alive=True) is None


def test_a_query_that_ended_is_over_until_it_is_started_again() -> None:
    dead = began() + ended("java.io.IOException: no route to host\n" + FRAMES)
    failure = failure_of(dead, alive=True)
    assert failure is not None and failure.query == QUERY and not failure.final
    assert failure_of(dead + began(), alive=True) is None
    assert failure_of(dead + began("another"), alive=True) == failure


def test_where_starts_are_not_logged_only_what_lasts_is_the_end() -> None:
    """A job may start its query again itself: at level WARN Spark does not say so."""
    outage = ended("java.io.IOException: no route to host\n" + FRAMES)
    assert failure_of(outage, alive=True) is None
    assert failure_of(outage * 2, alive=True) is None
    for log in (outage * 3, ended(STATE)):
        failure = failure_of(log, alive=True)
        assert failure is not None and failure.final


def test_an_error_of_a_task_is_not_the_end_of_a_job_that_is_alive() -> None:
    assert failure_of(logged("Exception in task 0.0") + STATE, alive=True) is None


def test_a_main_thread_that_ended_is_the_end_of_a_driver_that_hangs() -> None:
    failure = failure_of(
        'Exception in thread "main" java.lang.IllegalStateException: no stock\n' + FRAMES,
        alive=True,
    )
    assert failure is not None and failure.fact == "no stock"


@pytest.mark.parametrize(
    "printed",
    [
        "Error: metrics endpoint not reachable, going on\n",
        TRACEBACK + "ValueError: bad gauge\n",
        TRACEBACK + "ImportError: No module named foo\n",
    ],
)
def test_what_a_job_prints_of_an_error_that_it_caught_is_not_its_end(printed: str) -> None:
    for log in (began() + printed, printed + began()):
        assert failure_of(log, alive=True) is None
        assert failure_of(log, alive=False) is not None


@pytest.mark.parametrize("count", [30, 1_000, 100_000])
def test_exceptions_told_inside_each_other_end_in_no_bug(count: int) -> None:
    log = began() + ended("a.B: z terminated with exception: " * count)
    for alive in (True, False):
        failure = failure_of(log, alive)
        assert failure is None or len(failure.fact) <= 500


def test_a_message_of_many_lines_costs_no_more_than_its_beginning() -> None:
    log = began() + ended("a.B: z\n" + "a line of a message\n" * 200_000)
    failure = failure_of(log, alive=True)
    assert failure is not None and failure.fact.startswith("B: z a line")
