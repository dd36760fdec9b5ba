"""One line and a way out, of stacks as Flink 2.3.0 and 1.20.5 were seen to tell them."""

from __future__ import annotations

from typing import Any

import pytest

from stateshift.clusters.flink.causes import cause_of, hopeless, without_frames
from tests.clusters.fake_flink import errors, server_error, stack

COULD_NOT_RUN = (
    "org.apache.flink.runtime.rest.handler.RestHandlerException: Could not execute application."
)
INVOKED = "org.apache.flink.client.program.ProgramInvocationException"
MAIN = f"{INVOKED}: The main method caused an error: Failed to execute job."
COMPLETED = "java.util.concurrent.CompletionException"
JOB_MASTER = (
    "org.apache.flink.runtime.client.JobInitializationException: Could not start the JobMaster."
)
SCHEME = (
    "org.apache.flink.core.fs.UnsupportedFileSystemSchemeException: Could not find a "
    "file system implementation for "
    "scheme 's4'. The scheme is not directly supported."
)
RESTORING = (
    "org.apache.flink.util.FlinkException: Could not restore keyed state backend for "
    "Count_b71_(1/2) from any"
)


@pytest.mark.parametrize(
    ("told", "fact", "hint"),
    [
        (
            errors(
                COULD_NOT_RUN,
                f"{COMPLETED}: {MAIN}",
                MAIN,
                JOB_MASTER,
                f"{COMPLETED}: java.lang.IllegalStateException: Max parallelism mismatch.",
                "java.lang.IllegalStateException: Max parallelism mismatch.",
            ),
            "Max parallelism mismatch.",
            "repartition",
        ),
        (
            errors(
                MAIN,
                JOB_MASTER,
                "java.lang.RuntimeException: java.io.EOFException",
                "java.io.EOFException",
            ),
            "Could not start the JobMaster. (EOFException)",
            "verify",
        ),
        (
            server_error(
                f"{INVOKED}: The program's entry point class 'X' was not found in the jar file.",
                "java.lang.ClassNotFoundException: X",
            ),
            "The program's entry point class 'X' was not found in the jar file.",
            "entry_class",
        ),
        (
            stack(
                f"{COMPLETED}: org.apache.flink.runtime.checkpoint.CheckpointException: IO",
                SCHEME,
                (
                    "org.apache.flink.core.fs.UnsupportedFileSystemSchemeException: Hadoop is "
                    "not in the classpath"
                ),
            ),
            "UnsupportedFileSystemSchemeException: Could not find a file system "
            "implementation for scheme 's4'. The "
            "scheme is not directly supported.",
            "plugin",
        ),
        (
            stack(
                "java.lang.Exception: Exception while creating StreamOperatorStateContext.",
                RESTORING,
                (
                    "org.apache.flink.runtime.state.BackendBuildingException: Caught "
                    "unexpected exception."
                ),
                "java.io.EOFException",
            ),
            "Could not restore keyed state backend for Count_b71_(1/2) from any: EOFException",
            "a native savepoint",
        ),
        (
            stack(
                RESTORING,
                (
                    "org.apache.flink.util.StateMigrationException: The new key serializer is "
                    "incompatible."
                ),
            ),
            "Could not restore keyed state backend for Count_b71_(1/2) from any: "
            "StateMigrationException: The new key "
            "serializer is incompatible.",
            "a native savepoint",
        ),
        (
            {
                "errors": [
                    "org.apache.flink.runtime.rest.handler.RestHandlerException: The newly "
                    "requested parallelism 9 "
                    "exceeds its maximum parallelism 8.\nThe request is incomplete.\n\tat "
                    "x.Y.z(Y.java:1)\n"
                ]
            },
            (
                "The newly requested parallelism 9 exceeds its maximum parallelism 8. The "
                "request is incomplete."
            ),
            "repartition",
        ),
        (
            stack(
                "x.y.StopWithSavepointStoppingException: A savepoint has been created at: "
                "file:/s/1, but the "
                "corresponding job failed during stopping.",
                "java.io.IOException: no broker",
            ),
            "StopWithSavepointStoppingException: A savepoint has been created at: "
            "file:/s/1, but the corresponding "
            "job failed during stopping: no broker",
            "its savepoint is whole",
        ),
        (
            stack("x.y.OrdersAreClosedException: password=hunter22"),
            "OrdersAreClosedException: password=***",
            None,
        ),
        ({"errors": ["Not found: /jars"]}, "Not found: /jars", None),
    ],
)
def test_the_line_that_says_it_is_told_with_the_way_out(
    told: Any, fact: str, hint: str | None
) -> None:
    cause = cause_of(told)
    assert cause is not None
    assert cause.fact == fact
    assert (hint is None and cause.hint is None) or str(hint) in str(cause.hint)


def test_what_may_still_happen_is_not_taken_for_a_refusal() -> None:
    late = (
        "org.apache.pekko.pattern.AskTimeoutException: Ask timed out on [Actor] after [10000 ms]."
    )
    uncertain = cause_of(server_error("java.util.concurrent.CompletionException", late))
    certain = cause_of(server_error(MAIN))
    assert uncertain is not None and certain is not None
    assert (uncertain.certain, certain.certain) == (False, True)


@pytest.mark.parametrize(
    "nothing",
    [None, "", {}, {"errors": []}, {"errors": ["Internal server error."]}, "\tat x.y(Z:1)"],
)
def test_of_nothing_there_is_no_cause(nothing: Any) -> None:
    assert cause_of(nothing) is None


def test_a_stack_without_its_frames_keeps_its_causes() -> None:
    assert without_frames(stack("a.B: one", "c.D: token=hunter22")) == [
        "a.B: one",
        "Caused by: c.D: token=***",
    ]


RESTORING = (
    "java.lang.Exception: Could not restore keyed state backend from any of the provided options."
)
MIGRATED = (
    "org.apache.flink.util.StateMigrationException: The new key serializer must be compatible"
)
POISONED = (
    "java.io.IOException: Failed to deserialize consumer record ConsumerRecord(topic = "
    "orders, offset = {})."
)
OUTAGE = "java.net.ConnectException: Connection refused"


@pytest.mark.parametrize(
    ("stacks", "ends"),
    [
        ([stack(RESTORING, MIGRATED)] * 3, True),
        ([stack(POISONED.format(7))] * 3, True),
        ([stack(RESTORING, MIGRATED)] * 2, False),
        ([stack(POISONED.format(n)) for n in (9, 8, 7)], False),
        ([stack(RESTORING, OUTAGE)] * 9, False),
        ([stack(OUTAGE), *[stack(RESTORING, MIGRATED)] * 3], False),
        ([], False),
    ],
)
def test_a_job_that_meets_the_same_each_time_is_waited_for_no_longer(
    stacks: list[str], ends: bool
) -> None:
    """An outage passes, and a record is passed over; state that does not fit stays as it is."""
    assert (hopeless(stacks) is not None) == ends
