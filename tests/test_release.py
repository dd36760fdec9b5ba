"""A release: the wheel does what the front page says where nothing else is, and a workflow publishes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import stateshift
from tests.test_pins import pins_of, release

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def released(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/release with this environment of Python, and without a tag of CI's own."""
    environment = {
        **os.environ,
        "STATESHIFT_VENV": sys.prefix,
        "GITHUB_REF_TYPE": "branch",
        **variables,
    }
    return subprocess.run(
        [str(ROOT / "scripts" / "release"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.row("W-29")
def test_a_wheel_is_the_same_when_built_again_and_moves_a_job_where_nothing_else_is(
    tmp_path: Path,
) -> None:
    done = released("--trial", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for part in ("the same bytes", "trial: a move, its verification", "stateshift[spark]"):
        assert part in done.stderr
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    listed = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    wheel = f"stateshift-{stateshift.__version__}-py3-none-any.whl"
    assert {line.partition(":")[0] for line in listed.splitlines()} | {"SHA256SUMS"} == {
        path.name for path in tmp_path.iterdir()
    }
    assert wheel in listed
    with zipfile.ZipFile(tmp_path / wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA")))
    assert b"Requires-Dist: pyspark>=3.3; extra == 'spark'" in metadata
    licences = (tmp_path / "licences.txt").read_text()
    assert re.search(r"^stateshift +\S+ +Apache-2\.0$", licences, re.MULTILINE)
    assert "pyspark" not in licences


def test_a_tag_that_is_not_the_version_is_refused(tmp_path: Path) -> None:
    done = released("--trial", str(tmp_path), GITHUB_REF_TYPE="tag", GITHUB_REF_NAME="v99.0.0")
    assert done.returncode == 1
    assert f"the tag is v99.0.0, and stateshift/__init__.py says {stateshift.__version__}" in (
        done.stderr
    )


def test_a_folder_that_holds_a_release_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").touch()
    done = released("--trial", str(tmp_path))
    assert (done.returncode, f"{tmp_path} is not empty" in done.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.row("W-29")
def test_a_release_has_all_that_somebody_needs_to_check_it(tmp_path: Path) -> None:
    done = released(str(tmp_path))
    if "not committed" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept >= {"sbom.json", "requirements.txt", "licences.txt", "changes.md", "SHA256SUMS"}
    described = json.loads((tmp_path / "sbom.json").read_text())["metadata"]["component"]
    assert (described["name"], described["version"]) == ("stateshift", stateshift.__version__)


# ------------------------------------------------------------------------------- the workflow


def workflow() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    return loaded


def steps() -> list[dict[str, Any]]:
    return [step for job in workflow()["jobs"].values() for step in job["steps"]]


def test_every_action_is_named_by_a_commit_and_its_version() -> None:
    lines = [line for line in WORKFLOW.read_text("utf-8").splitlines() if "uses:" in line]
    assert len(lines) == len([step for step in steps() if "uses" in step]) > 0
    for line in lines:
        assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line), line


def test_what_is_published_was_tried_and_is_what_was_attested() -> None:
    jobs = workflow()["jobs"]
    assert workflow()["permissions"] == {}
    assert set(jobs["publish"]["needs"]) == {"build", "image"}
    assert {"run": "./scripts/release dist"} in jobs["build"]["steps"]
    (attested,) = [step for step in steps() if "attest" in step.get("uses", "")]
    assert attested["with"] == {"subject-checksums": "dist/SHA256SUMS"}
    commands = [step["run"] for step in jobs["publish"]["steps"] if "run" in step]
    (checked,) = [at for at, line in enumerate(commands) if "sha256sum --check" in line]
    (uploaded,) = [at for at, line in enumerate(commands) if "twine upload" in line]
    assert checked < uploaded
    assert "secrets." not in WORKFLOW.read_text("utf-8"), "PyPI trusts the workflow: no password"


def test_what_uploads_knows_trusted_publishing() -> None:
    (version,) = pins_of("tools.txt")["twine"]
    assert release(version) >= (6, 1, 0)
