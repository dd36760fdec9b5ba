"""Where a job's checkpoint is, under one spec and the next."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import job
from stateshift.errors import PlanError, SpecError
from stateshift.formats import marks, uid
from stateshift.job import places
from stateshift.specification.model import HashProfile, JobSpec, OperatorSpec, Spec

NAME = "Aggregate (5)"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No variable of ours around, and nothing asked for yet in this process."""
    for name in ("CHECKPOINT", "JOB", "SPEC", "TAG", "PRODUCTION"):
        monkeypatch.delenv(f"STATESHIFT_{name}", raising=False)
    yield monkeypatch
    places._asked.clear()


def _spec(*jobs: JobSpec, restart: bool = True, **more: object) -> Spec:
    return Spec("spark", jobs, restart, **more)  # type: ignore[arg-type]


@pytest.mark.row("IS-3")
def test_only_the_entry_of_this_name_applies() -> None:
    spec = _spec(JobSpec("orders", "/a", "/b"), JobSpec("clicks", "/c", "/d"))
    assert job.location("orders", spec) == "/b"
    assert job.location("clicks", spec) == "/d"


@pytest.mark.row("IS-1")
def test_a_first_deployment_starts_at_the_checkpoint_location_a_restart_at_the_remote_one() -> None:
    entry = JobSpec("orders", "/a", "/b")
    assert job.location(spec=_spec(entry)) == "/b"
    assert job.location(spec=_spec(entry, restart=False)) == "/a"
    assert job.location(spec=_spec(replace(entry, target=None))) == "/a"


@pytest.mark.row("IS-6")
def test_what_is_handed_over_at_submission_comes_before_the_spec(alone: pytest.MonkeyPatch) -> None:
    alone.setenv("STATESHIFT_CHECKPOINT", "/handed")
    spec = _spec(JobSpec("orders", "/a", "/b"))
    assert job.location(spec=spec) == job.location("orders", spec) == "/handed"
    alone.setenv("STATESHIFT_JOB", "clicks")
    assert job.location("orders", spec) == "/b"


def test_the_name_comes_from_the_environment(alone: pytest.MonkeyPatch) -> None:
    alone.setenv("STATESHIFT_JOB", "clicks")
    assert job.location(spec=_spec(JobSpec("orders", "/a"), JobSpec("clicks", "/c"))) == "/c"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "which of orders, clicks is this job"),
        ("ordrs", "no job is called 'ordrs' .did you mean 'orders'"),
    ],
)
def test_a_name_that_does_not_decide_is_refused(name: str | None, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        job.location(name, _spec(JobSpec("orders", "/a"), JobSpec("clicks", "/c")))


def test_no_spec_and_nothing_handed_over_is_an_error_with_a_way_out(
    alone: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="neither STATESHIFT_CHECKPOINT nor a spec") as raised:
        job.location()
    assert raised.value.hint is not None and "export STATESHIFT_SPEC=" in raised.value.hint
    alone.setenv("STATESHIFT_SPEC", "/no/such/spec.json")
    with pytest.raises(SpecError, match="cannot read the spec"):
        job.location()
    (tmp_path / "spec.json").write_bytes(b"\xff\xfe{")
    alone.setenv("STATESHIFT_SPEC", str(tmp_path / "spec.json"))
    with pytest.raises(SpecError, match="cannot read the spec"):
        job.location()


@pytest.mark.row("IS-3")
def test_the_spec_of_the_environment_is_read_from_its_file(
    alone: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remote = {"remote": True, "remote_connection": "h:7077", "remote_location": "/b"}
    entry = {"job_name": "orders", "checkpoint_location": "/a", **remote}
    (tmp_path / "spec.json").write_text(json.dumps({"restart": True, "jobs": [entry]}))
    alone.setenv("STATESHIFT_SPEC", str(tmp_path / "spec.json"))
    assert Path(job.location().removeprefix("file://")) == Path("/b")


def test_a_spec_that_needs_its_profile_says_what_to_write(
    alone: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = {"name": "orders", "checkpoint_location": "dr:/orders"}
    (tmp_path / "spec.json").write_text(json.dumps({"version": 1, "jobs": [entry]}))
    alone.setenv("STATESHIFT_SPEC", str(tmp_path / "spec.json"))
    with pytest.raises(SpecError) as raised:
        job.location()
    assert "write the location out" in str(raised.value.hint)


@pytest.mark.row("IS-7")
def test_an_operator_lies_under_the_hash_of_its_name(tmp_path: Path) -> None:
    spec = _spec(JobSpec("orders", str(tmp_path)))
    assert job.checkpoint(NAME, spec=spec) == f"{tmp_path}/{uid.directory_name(NAME)}"
    index = marks.decode_index((tmp_path / marks.INDEX).read_bytes())
    assert index == {NAME: uid.directory_name(NAME)}
    assert [path.name for path in tmp_path.iterdir()] == [marks.FOLDER]


@pytest.mark.row("IS-10")
def test_results_lie_beside_the_state_in_production_and_nowhere_else(
    alone: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = JobSpec("orders", str(tmp_path))
    there = f"{tmp_path}/{uid.directory_name(NAME)}_RES"
    assert job.results(NAME, spec=_spec(entry, production=True)) == there
    assert job.results(NAME, spec=_spec(entry)) is None
    alone.setenv("STATESHIFT_CHECKPOINT", str(tmp_path))
    assert job.results(NAME) is None
    alone.setenv("STATESHIFT_PRODUCTION", "true")
    assert job.results(NAME) == there
    assert job.results(NAME, spec=_spec(entry)) is None, "the spec knows better"


@pytest.mark.row("IS-7")
def test_a_directory_of_the_spec_comes_before_index_and_hash(tmp_path: Path) -> None:
    entry = JobSpec(
        "orders", str(tmp_path), operators=(OperatorSpec(NAME, "adopted"), OperatorSpec("b"))
    )
    spec = _spec(entry, uid_hash=HashProfile(p=53))
    assert job.checkpoint(NAME, spec=spec) == f"{tmp_path}/adopted"
    assert job.checkpoint("b", spec=spec) == f"{tmp_path}/{uid.directory_name('b', p=53)}"


def test_what_the_index_knows_is_found_again_under_another_profile(tmp_path: Path) -> None:
    """The job that is submitted does not see the spec: what is there must not be taken for new."""
    entry = JobSpec("orders", str(tmp_path))
    first = job.checkpoint(NAME, spec=_spec(entry, uid_hash=HashProfile(p=53)))
    assert job.checkpoint(NAME, spec=_spec(entry)) == first


@pytest.mark.row("IS-7")
def test_two_names_with_one_directory_are_refused_naming_both(tmp_path: Path) -> None:
    entry = JobSpec(
        "orders", str(tmp_path), operators=(OperatorSpec("a", "x"), OperatorSpec("b", "x"))
    )
    job.checkpoint("a", spec=_spec(entry))
    job.checkpoint("a", spec=_spec(entry))
    with pytest.raises(PlanError, match="'b' and 'a' both have the directory x"):
        job.checkpoint("b", spec=_spec(entry))


def test_a_location_that_cannot_be_reached_from_here_gets_no_index_and_still_has_operators() -> (
    None
):
    spec = _spec(JobSpec("orders", "hdfs://nn:8020/orders"))
    assert job.checkpoint(NAME, spec=spec) == f"hdfs://nn:8020/orders/{uid.directory_name(NAME)}"


def test_a_request_to_stop_is_seen_if_it_means_this_job(
    alone: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone.setenv("STATESHIFT_CHECKPOINT", str(tmp_path))
    alone.setenv("STATESHIFT_JOB", "orders")
    alone.setenv("STATESHIFT_TAG", "run-2")
    assert not job.stop_requested()
    (tmp_path / marks.FOLDER).mkdir()
    (tmp_path / marks.STOP).write_bytes(marks.encode_stop("orders", "run-1", 1e12))
    assert not job.stop_requested()
    (tmp_path / marks.STOP).write_bytes(marks.encode_stop("orders", "run-2", 1e12))
    assert job.stop_requested()


def test_importing_it_brings_no_spark_and_no_storage() -> None:
    script = (
        "import sys; from stateshift import job;"
        "print([m for m in ('pyspark', 'py4j', 'fsspec', 'typer', 'rich', 'subprocess') if "
        "m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_job_needs_none_of_our_packages_in_its_cluster() -> None:
    """Only pyspark, which is there, and what Python brings along."""
    script = (
        "import stateshift.job, sys; print(*sorted({name.partition('.')[0] for name in "
        "sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours = {"stateshift", "__main__", "sitecustomize", "usercustomize", "_distutils_hack", "site"}
    plain = {
        name
        for name in run.stdout.split()
        if not name.startswith(("__editable__", "_virtualenv", "a1_coverage"))
    }
    assert plain - set(sys.stdlib_module_names) <= ours
