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


def test_a_trial_installs_nothing_where_something_is_missing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    before = sorted(
        path for path in (tmp_path / "venv").rglob("*") if "__pycache__" not in str(path)
    )
    done = released("--trial", str(tmp_path / "dist"), STATESHIFT_VENV=str(tmp_path / "venv"))
    assert done.returncode == 1
    assert "hatchling" in done.stderr and "./scripts/setup" in done.stderr
    assert before == sorted(
        path for path in (tmp_path / "venv").rglob("*") if "__pycache__" not in str(path)
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


def commands_of(job: str) -> list[str]:
    return [step["run"] for step in workflow()["jobs"][job]["steps"] if "run" in step]


def test_what_is_published_was_tried_and_is_what_was_attested() -> None:
    jobs = workflow()["jobs"]
    assert workflow()["permissions"] == {}
    assert set(jobs["attest"]["needs"]) == {"build", "image"}
    assert jobs["publish"]["needs"] == ["attest"]
    assert {"run": "./scripts/release dist"} in jobs["build"]["steps"]
    (attested,) = [step for step in steps() if "attest" in step.get("uses", "")]
    assert attested["with"] == {"subject-checksums": "dist/SHA256SUMS"}
    assert "secrets." not in WORKFLOW.read_text("utf-8"), "PyPI trusts the workflow: no password"


def test_no_code_of_the_project_runs_beside_an_identity() -> None:
    trusted = {name for name, job in workflow()["jobs"].items() if "id-token" in job["permissions"]}
    assert trusted == {"attest", "publish"}
    for job in trusted:
        assert not [line for line in commands_of(job) if "./" in line.replace("/.github/", "")]
    (installed,) = [line for line in commands_of("publish") if "pip install" in line]
    assert "--require-hashes" in installed and "scripts/pins.d/upload.txt" in installed


def test_a_job_that_failed_halfway_publishes_when_it_is_run_again() -> None:
    commands = commands_of("publish")
    order = ["sha256sum --check", "attestation verify", "--draft --verify-tag", "twine upload"]
    places = [at for part in order for at, line in enumerate(commands) if part in line]
    assert places == sorted(places) and len(places) == len(order)
    assert "--skip-existing" in commands[places[-1]]
    assert "gh release view" in commands[places[2]] and "--clobber" in commands[places[2]]
    assert "--draft=false" in commands[-1]


def test_what_uploads_knows_trusted_publishing() -> None:
    (version,) = pins_of("upload.txt")["twine"]
    assert release(version) >= (6, 1, 0)
