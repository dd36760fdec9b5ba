"""`stateshift resume WORKDIR --spec FILE`: a run whose job did not start goes on with another
`submit`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.protocol import JobState, Submission
from tests.cli.support import Outside, spec_of, with_checkpoint

JOB = {"target_cluster": "b", "submit": {"command": "start", "seconds_max": 5}}
CLUSTERS = {"b": {"kind": "command", "submit": "x", "find": "x", "stop": "x"}}
MENDED = {
    "command": "start",
    "application": "mended.py",
    "environment": {"A": "1"},
    "seconds_max": 60,
}
LOG = "ModuleNotFoundError: No module named 'orders'"


def written(path: Path, **job: Any) -> str:
    path.write_text(json.dumps(spec_of(**{**JOB, **job}) | {"clusters": CLUSTERS}))
    return str(path)


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    """A run that has failed since its job did: what is submitted without an application does."""
    outside = with_checkpoint()
    commits = outside.cluster._on_start
    assert commits is not None

    def start(submission: Submission) -> None:
        if "application" in submission.options:
            commits(submission)
        else:
            outside.cluster.set_state(
                submission.tag, JobState.FAILED, f"Traceback (most recent call last):\n{LOG}"
            )

    outside.cluster._on_start = start
    failed = outside.run(
        "apply", written(tmp_path / "spec.json"), "--yes", "--workdir", str(tmp_path / "run")
    )
    assert failed.code == 7 and f"before it committed a batch: {LOG}" in failed.err
    assert f"stateshift resume {tmp_path / 'run'} --spec FILE" in failed.err
    return outside


def resumed(outside: Outside, tmp_path: Path, spec: str, *more: str) -> Any:
    return outside.run("resume", str(tmp_path / "run"), "--spec", spec, *more)


def test_a_run_goes_on_with_a_corrected_submit(outside: Outside, tmp_path: Path) -> None:
    corrected = written(tmp_path / "corrected.json", submit=MENDED)
    assert resumed(outside, tmp_path, corrected, "--json").document["state"] == "finished"
    first, second = outside.cluster.submissions
    assert second.options == {
        "command": "start",
        "application": "mended.py",
    } and second.environment == {"A": "1"}
    assert second.tag == f"{first.tag}.again2" and first.location == second.location
    assert outside.run("verify", str(tmp_path / "run")).code == 0
    again = resumed(outside, tmp_path, corrected)
    assert (
        again.code == 0
        and f"nothing is left to do: the run is finished; {corrected} changes nothing" in again.err
    )
    assert len(outside.cluster.submissions) == 2


def test_the_correction_stays_for_later_commands_of_the_run(
    outside: Outside, tmp_path: Path
) -> None:
    outside.cluster.fail()
    assert resumed(outside, tmp_path, written(tmp_path / "corrected.json", submit=MENDED)).code == 7
    (tmp_path / "corrected.json").unlink()
    assert outside.run("resume", str(tmp_path / "run")).code == 0
    assert outside.cluster.submissions[-1].environment == {"A": "1"}


@pytest.mark.parametrize(
    ("job", "pointer"),
    [
        ({"remote_location": "hdfs://there:8020/ck/other"}, "/jobs/0/remote_location"),
        ({"verify": "none"}, "/jobs/0/verify"),
        ({"job_name": "another"}, "/jobs/0/job_name"),
        ({"submit": MENDED, "planned_batch": "drop"}, "/jobs/0/planned_batch"),
    ],
)
def test_what_is_more_than_another_submit_is_refused_by_name(
    outside: Outside, tmp_path: Path, job: dict[str, Any], pointer: str
) -> None:
    refused = resumed(
        outside, tmp_path, written(tmp_path / "corrected.json", **{"submit": MENDED, **job})
    )
    assert refused.code == 2 and pointer.rpartition("/")[0] in refused.err, refused.err
    assert "differs from the spec that the run was begun with" in refused.err
    assert f"stateshift rollback {tmp_path / 'run'}" in refused.err
    assert (
        not (tmp_path / "run" / "corrected.json").exists() and len(outside.cluster.submissions) == 1
    )
    assert "/submit" not in refused.err


def test_a_spec_of_another_number_of_jobs_is_refused(outside: Outside, tmp_path: Path) -> None:
    spec = json.loads(Path(written(tmp_path / "corrected.json", submit=MENDED)).read_text())
    other = {
        "job_name": "payments",
        "checkpoint_location": "hdfs://here:8020/p",
        "remote_location": "hdfs://there:8020/p",
    }
    (tmp_path / "corrected.json").write_text(json.dumps(spec | {"jobs": [*spec["jobs"], other]}))
    refused = resumed(outside, tmp_path, str(tmp_path / "corrected.json"))
    assert refused.code == 2 and "/jobs" in refused.err


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b'{"version": 1,', "not JSON"),
        (b'{"version": 1, "engine": "spark"}', "jobs"),
        (b'{"stateshift_plan": 1}', ""),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused_and_changes_nothing(
    outside: Outside, tmp_path: Path, content: bytes | None, fact: str
) -> None:
    if content is not None:
        (tmp_path / "corrected.json").write_bytes(content)
    refused = resumed(outside, tmp_path, str(tmp_path / "corrected.json"))
    assert refused.code in (2, 4) and fact in refused.err and "error: " in refused.err, refused.err
    assert "Traceback" not in refused.err and len(outside.cluster.submissions) == 1
    assert not (tmp_path / "run" / "corrected.json").exists()


def test_a_run_that_is_not_there_is_refused(outside: Outside, tmp_path: Path) -> None:
    corrected = written(tmp_path / "corrected.json", submit=MENDED)
    refused = outside.run("resume", str(tmp_path / "nowhere"), "--spec", corrected)
    assert refused.code == 4 and "nowhere" in refused.err
    assert not (tmp_path / "nowhere").exists()


def test_a_submit_that_the_cluster_does_not_know_is_refused(
    outside: Outside, tmp_path: Path
) -> None:
    corrected = written(
        tmp_path / "corrected.json", submit=MENDED | {"environment": {"DB_PASSWORD": "hunter22"}}
    )
    refused = resumed(outside, tmp_path, corrected)
    assert refused.code == 2 and "hunter22" not in refused.err


def test_a_run_that_was_taken_back_is_not_corrected(outside: Outside, tmp_path: Path) -> None:
    assert outside.run("rollback", str(tmp_path / "run"), "--yes").code == 0
    said = resumed(outside, tmp_path, written(tmp_path / "corrected.json", submit=MENDED))
    assert said.code == 0 and "was rolled back; " in said.err and "changes nothing" in said.err
    assert not (tmp_path / "run" / "corrected.json").exists()
