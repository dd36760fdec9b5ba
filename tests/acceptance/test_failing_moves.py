"""Moves of a real Spark job that cannot succeed, one after the other, some with a SIGKILL of ours on
top: after each the old job runs again, or the first word says that it is down. What comes out in the
end is what an undisturbed job would have written.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.shop import Shop
from tests.acceptance.support import ROOT, Ran, end_jobs, stateshift
from tests.acceptance.test_move import committed
from tests.acceptance.test_warm import Fed, finished, said, until
from tests.support.examples import example
from tests.support.moving import killed_at

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.row("W-26", on="Spark")]
DOWN = "error: down since "


@dataclass(frozen=True)
class Kind:
    """A way to fail: what the spec's job says otherwise; whether the old job never stops."""

    name: str
    never_stops: bool
    change: Callable[[dict[str, Any], Path], None]
    kill: str = ""  # the step in which stateshift is killed


def missing(job: dict[str, Any], folder: Path) -> None:
    job["submit"]["application"] = str(folder / "nowhere.py")


def refused(job: dict[str, Any], folder: Path) -> None:
    job["submit"]["submit_check"] = "echo no such flag; exit 2"


def flagged(job: dict[str, Any], folder: Path) -> None:
    job["submit"]["arguments"].append("--no-such-flag")


def blocked(job: dict[str, Any], folder: Path) -> None:
    (folder / "file").write_text("a file, and no folder")
    job["remote_location"] = str(folder / "file" / "there")


def without_output(job: dict[str, Any], folder: Path) -> None:
    """It starts its first query, and ends at its sink."""
    (folder / "file").write_text("a file, and no folder")
    job["submit"]["arguments"][-1] = str(folder / "file" / "out")


def unknown_source(job: dict[str, Any], folder: Path) -> None:
    """The same, and nothing but the cluster's own word says how the old one was started."""
    without_output(job, folder)
    del job["source_submit"]


KINDS = (
    Kind("no application", True, missing),
    Kind("submit_check refuses", True, refused),
    Kind("a flag that the job refuses", False, flagged),
    Kind("the target cannot be written", False, blocked),
    Kind("the job ends at its sink", False, without_output),
    Kind("the same, without source_submit", False, unknown_source),
    Kind("a flag, killed in its copy", False, flagged, "copy/"),
    Kind("a flag, killed in its halt", False, flagged, "halt/"),
    Kind("its sink, killed at the start", False, without_output, "submit/"),
    Kind("its sink, killed as it waits", False, without_output, "confirm/"),
)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    yield Shop(tmp_path, "moved")
    end_jobs(tmp_path, ("here", "there"))


def spec_of(folder: Path, kind: Kind, mode: str) -> Path:
    path = example("warm.json", folder)
    plain = json.loads(path.read_text())
    (job,) = plain["jobs"]
    job["mode"] = mode
    job["submit"] |= {"prepare": False, "seconds_max": 60}
    if mode == "move":
        del job["until"]
    kind.change(job, folder)
    path.write_text(json.dumps(plain))
    return path


def asked(folder: Path, *words: str | Path) -> Ran:
    return stateshift(*words, cwd=ROOT, env={"DEMO_DIR": str(folder)}, code=None)


def test_whatever_fails_the_old_job_runs_again_and_nothing_is_lost(
    shop: Shop, tmp_path: Path
) -> None:
    shop.feed(0, 10)
    first = example("first.json", tmp_path)
    said(tmp_path, "apply", first, "--yes", "--workdir", tmp_path / "runs" / "first")
    until(lambda: committed(tmp_path / "here"), tmp_path)
    fed, dice, told = Fed(shop, 10), random.Random(51), []
    for number, kind in enumerate(dice.sample(KINDS, len(KINDS))):
        workdir = tmp_path / "runs" / f"move-{number}"
        path = spec_of(tmp_path, kind, dice.choice(("move", "warm")))
        words: tuple[str | Path, ...] = ("apply", path, "--yes", "--workdir", workdir)
        if kind.kill:
            environment = {"DEMO_DIR": str(tmp_path)}
            killed_at(kind.kill, tuple(map(str, words)), workdir, environment)
            words = ("resume", workdir)
        ended = asked(tmp_path, *words)
        told.append((kind.name, ended.code, ended.err.strip().splitlines()[-3:]))
        assert ended.code != 0, told[-1]
        assert "error: " in ended.err, told[-1]
        runs = DOWN not in ended.err
        assert runs or not kind.never_stops, told
        if not runs:
            back = asked(tmp_path, "rollback", workdir, "--yes")
            assert back.code == 0, (told[-1], back.err)
        before = newest(tmp_path)
        shop.feed(fed.next, fed.next + 2)
        fed.next += 2
        until(lambda before=before: newest(tmp_path) > before, tmp_path)
        asked(tmp_path, "rollback", workdir, "--yes")
        shutil.rmtree(tmp_path / "there", ignore_errors=True)
    print(*told, sep="\n")
    finished(shop, fed)


def newest(folder: Path) -> int:
    """The newest batch that any query of the old job has committed."""
    found = [int(path.name) for path in (folder / "here").rglob("commits/*") if path.name.isdecimal()
             and b"stateshift fence" not in path.read_bytes()]  # fmt: skip
    return max(found, default=-1)
