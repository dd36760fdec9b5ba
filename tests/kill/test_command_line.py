"""The same through the real command line: killed, or asked to stop, and gone on with by the
command that is printed.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.specification import to_plain_spec
from tests.kill import judging
from tests.kill.moments import Moment
from tests.kill.process import Outcome
from tests.kill.scenario import Scenario, scenario, tree

ROOT = Path(__file__).resolve().parents[2]
POINTS = {"quick": 4, "default": 5, "full": 15}


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.out)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def place() -> Iterator[Scenario]:
    with scenario("full") as found:
        (found.root.parent / "spec.json").write_text(json.dumps(to_plain_spec(found.spec)))
        yield found


def stateshift(
    place: Scenario, *arguments: str, at: Moment | None = None, gets: int = signal.SIGKILL
) -> Ended:
    """In a process of its own, which gets a signal at a moment."""
    label, times = at or ("", 1)
    command = [
        sys.executable,
        "-m",
        "tests.kill.entry",
        str(place.root.parent),
        label,
        str(times),
        str(int(gets)),
    ]
    done = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def apply(place: Scenario, at: Moment | None = None, gets: int = signal.SIGKILL) -> Ended:
    spec = str(place.root.parent / "spec.json")
    return stateshift(
        place, "apply", spec, "--yes", "--json", "--workdir", place.workdir, at=at, gets=gets
    )


@pytest.fixture(scope="module")
def points(how: str, place: Scenario, seed: int) -> list[Moment]:
    """Moments spread over a run that nobody kills: others with another seed, the most delicate
    ones always.
    """
    place.restore()
    run = apply(place).told["run"]
    lines = (place.root.parent / "moments").read_text().splitlines()
    moments = [Moment(label, int(times)) for label, times in (line.split("\t") for line in lines)]
    begun = moments.index(
        Moment("open workdir/journal", 2)
    )  # before that there is nothing to resume
    delicate = [
        next(m for m in moments if m.label.endswith(label))
        for label in ("os.remove there.stateshift-lock", " there/aggregate/commits/1", "run submit")
    ]
    last = moments.index(delicate[0])
    every = (last - begun) // (POINTS[how] - len(delicate))
    first = begun + seed % every
    # A moment has to come again in the next run, which has another name.
    spread = [
        m
        for m in moments[first:last:every]
        if m.label not in ("run find", "flock") and run not in m.label
    ]
    return spread + delicate


def fenced_by(place: Scenario) -> bytes:
    return (place.root / "flow/aggregate/commits/2").read_bytes()


@pytest.mark.long
def test_a_killed_apply_is_finished_by_resume(place: Scenario, points: list[Moment]) -> None:
    expected = tree(place.root)
    wrong = []
    for moment in points:
        place.restore()
        killed = apply(place, moment)
        assert killed.code == -signal.SIGKILL, f"{moment}: {killed}"
        assert killed.out == "", "nothing but a result goes to stdout"
        assert f"stateshift resume {shlex.quote(place.workdir)}" in killed.err, (
            "told before anything began"
        )
        resumed = stateshift(place, "resume", place.workdir, "--json")
        if resumed.code != 0 or resumed.told["state"] != "finished":
            wrong.append(f"{moment}: {resumed}")
            continue
        fence = fenced_by(place)  # each run has a name of its own, which its fences tell
        now = {
            path: content if content != fence else b"fence"
            for path, content in tree(place.root).items()
        }
        then = {
            p: b"fence" if (c or b"").startswith(b"stateshift fence") else c
            for p, c in expected.items()
        }
        wrong += [
            f"{moment}: {path} differs"
            for path in now.keys() | then.keys()
            if now.get(path) != then.get(path)
        ]
        wrong += [] if place.submitted("there") == 1 else [f"{moment}: {place.events()}"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_a_killed_apply_is_taken_back_by_rollback(place: Scenario, points: list[Moment]) -> None:
    wrong = []
    for moment in points[-3:]:
        place.restore()
        assert apply(place, moment).code == -signal.SIGKILL
        back = stateshift(place, "rollback", place.workdir, "--json", "--yes", "--discard-progress")
        assert back.code == 0, back.err
        wrong += [f"{moment}: {line}" for line in judging.as_before(place, Outcome())]
    assert not wrong, "\n".join(wrong)


@pytest.mark.sample(1)
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_the_write_and_ends_with_130_and_can_be_resumed(
    place: Scenario, points: list[Moment], asked: signal.Signals
) -> None:
    place.restore()
    stopped = apply(place, Moment("os.rename to there/aggregate/state/0/0/1.delta", 1), asked)
    assert stopped.code == 130
    assert stopped.told["state"] == "interrupted"
    assert "aggregate/state/0/0/1.delta" in tree(place.root / "there"), (
        "the current write was finished"
    )
    assert "aggregate/commits/1" not in tree(place.root / "there")
    assert f"stateshift resume {shlex.quote(place.workdir)}" in stopped.err
    resumed = stateshift(place, "resume", place.workdir, "--json")
    assert (resumed.code, resumed.told["state"], place.submitted("there")) == (0, "finished", 1)
