"""What is told before anything starts, and how an end of Spark's is told; our package as
executors get it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

import stateshift
from stateshift.errors import ClusterError, PlanError, SpecError
from stateshift.fleet import check_places, kind_of
from stateshift.fleet.masters import hopeless, reason_of, refuse_unreachable
from stateshift.fleet.spark import open_carrier, write_package
from stateshift.world import Unwatched

# As Spark 4.3 and 3.5 wrote them.
LOST = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage "
    "3.0 failed 1 times, most "
    "recent failure: Lost task 0.0 in stage 3.0 (TID 3) (127.0.0.1 executor 0): "
    "ExecutorLostFailure (executor 0 exited "
    "caused by one of the running tasks) Reason: Command exited with code 137\nDriver "
    "stacktrace:\n\tat org.apache.x"
)
VERSIONS = (
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] "
    "Python in worker has different "
    "version: 3.10 than that in driver: 3.12, PySpark cannot run with different minor versions.",
    "RuntimeError: Python in worker has different version 3.10 than that in driver 3.12, "
    "PySpark cannot run with "
    "different minor versions.",
)
NO_PROGRAM = (
    "Job aborted due to stage failure: Lost task 0.0 in stage 0.0: java.io.IOException: "
    'Cannot run program "python9": '
    "error=2, No such file or directory"
)


@pytest.mark.parametrize(
    ("master", "kind"),
    [
        ("local", "local"),
        ("local[2]", "local"),
        ("local[*]", "local"),
        ("local[4,2]", "local"),
        ("spark://m:7077", "standalone"),
        ("spark://a:7077,b:7077", "standalone"),
        ("yarn", "yarn"),
        ("k8s://https://10.0.0.1:6443", "kubernetes"),
    ],
)
def test_a_master_is_of_a_kind(master: str, kind: str) -> None:
    assert kind_of(master) == kind


@pytest.mark.parametrize(
    "master", ["", "spark://m", "mesos://m:5050", "sc://m:15002", "local[a]", "m:7077", "yarn "]
)
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(SpecError, match="is no master of a Spark"):
        kind_of(master)


def test_local_disks_of_a_far_fleet_are_said_and_those_of_a_near_one_are_not() -> None:
    places = ["/data/a", "hdfs://nn:8020/a", "/data/b"]
    (line,) = check_places("spark://m:7077", places)
    assert "same disk at file:///data/a (and 1 more)" in line
    assert list(check_places("local[2]", places)) == []


def test_what_is_in_memory_is_refused() -> None:
    with pytest.raises(PlanError, match="memory of this process"):
        list(check_places("local[2]", ["memory://a/b"]))


def test_a_master_that_is_not_there_is_refused_without_waiting() -> None:
    with pytest.raises(
        ClusterError, match=r"no master answers at spark://127\.0\.0\.1:1 .*refused"
    ):
        refuse_unreachable("spark://127.0.0.1:1")


@pytest.mark.parametrize("home", ["/nowhere", ""])
def test_where_there_is_no_java_that_is_said(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="there is no Java") as caught:
        open_carrier("local[2]", tmp_path / "log", Unwatched(), threading.Event())
    assert "without --fleet none is needed" in (caught.value.hint or "")


def test_a_lost_executor_is_worth_another_attempt_and_says_why() -> None:
    assert hopeless(LOST, "spark://m:7077") is None
    assert reason_of(LOST) == "Command exited with code 137"


@pytest.mark.parametrize("message", VERSIONS)
def test_two_versions_of_python_are_told_apart(message: str) -> None:
    found = hopeless(message, "spark://m:7077")
    assert found is not None
    assert found.fact == "the executors run Python 3.10, and the driver Python 3.12"
    assert "PYSPARK_PYTHON" in (found.hint or "")


@pytest.mark.parametrize(
    ("message", "fact"),
    [
        (NO_PROGRAM, "the executors have no Python at python9"),
        (
            "x: No module named 'pyspark.daemon'",
            "the executors' Python does not find Spark's own package 'pyspark'",
        ),
        (
            "Job 3 cancelled because SparkContext was shut down",
            "has ended: Job 3 cancelled because SparkContext was",
        ),
    ],
)
def test_what_no_attempt_can_mend_is_told_by_name(message: str, fact: str) -> None:
    found = hopeless(message, "spark://m:7077")
    assert found is not None and fact in found.fact


def test_a_long_reason_is_one_line_that_ends() -> None:
    assert len(reason_of("x" * 1000 + "\nmore")) <= 160
    assert reason_of("") == "no reason given"


@pytest.mark.long
def test_the_package_that_executors_get_is_all_of_ours_and_imports_compiled(tmp_path: Path) -> None:
    path = write_package(tmp_path)
    root = Path(stateshift.__file__).parent
    ours = {str(file.relative_to(root.parent)) for file in root.rglob("*.py")}
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    assert ours <= names
    assert {name + "c" for name in ours} <= names
    program = (
        f"import sys; sys.path.insert(0, {str(path)!r}); import stateshift.fleet.task as "
        "e, stateshift.plain as p; "
        "print(e.__file__); print(p.__spec__.loader.get_code('stateshift.plain').co_filename)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    file, compiled_as = done.stdout.split()
    assert file.startswith(str(path))
    assert compiled_as == str(root / "plain.py"), "compiled here, not there"
