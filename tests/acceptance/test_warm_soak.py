"""The demo's job wanders from place to place while it runs, and everything happens to whoever moves
it: killed, told to stop, paused, throttled, taken back, cut over early. For a minute; for thirty
with --full. Record for record, what comes out is what an unmoved job would have written.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.shop import Shop
from tests.acceptance.support import ROOT, end_jobs, environment, stateshift, wait_until
from tests.acceptance.test_move import committed
from tests.support.examples import example

pytestmark = pytest.mark.spark
SECONDS, SECONDS_FULL = 60.0, 1800.0
# So long things happen to a run, and then it has to come to its end: through a throttle, where one
# was left on.
TRIP_SECONDS, TRIP_SECONDS_MAX = 120.0, 600.0
ACTS = ("kill", "interrupt", "pause", "throttle", "back", "cutover", "now", "look")


@dataclass
class Wandering:
    """The job is at `place`; one run after the other takes it to the next."""

    folder: Path
    dice: random.Random
    place: int = 0
    trips: int = 0
    did: Counter[str] = field(default_factory=Counter)
    process: subprocess.Popen[bytes] | None = None

    def at(self, place: int) -> Path:
        return self.folder / f"place-{place}"

    def said(self, *words: str | Path, code: int | None = 0) -> Any:
        return stateshift(
            *words,
            "--json",
            cwd=ROOT,
            env={"DEMO_DIR": str(self.folder)},
            code=code,
            seconds=int(TRIP_SECONDS_MAX),
        ).json

    def spec(self, name: str, source: Path, target: Path, **keys: Any) -> Path:
        path = example(name, self.folder)
        plain = json.loads(path.read_text())
        job = plain["jobs"][0]
        job |= {"checkpoint_location": str(source), **keys}
        if "remote_location" in job:
            job["remote_location"] = str(target)
        path.write_text(json.dumps(plain))
        return path

    def begin(self) -> None:
        path = self.spec("first.json", self.at(0), self.at(0))
        self.said("apply", path, "--yes", "--workdir", self.folder / "runs" / "first")
        wait_until(
            lambda: committed(self.at(0)), "the job has not started", 180, logs=self.folder / "jobs"
        )

    def start(self, *words: str | Path) -> None:
        with (self.folder / "runs.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stateshift", *map(str, words)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                env={**environment(), "DEMO_DIR": str(self.folder)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def trip(self, acting_until: float) -> None:
        """One run, until it is finished or taken back."""
        self.trips += 1
        workdir, target = self.folder / "runs" / f"trip-{self.trips}", self.at(self.place + 1)
        early = self.dice.random() < 0.5
        path = self.spec(
            "warm.json", self.at(self.place), target, cutover=self.dice.choice(["manual", "ready"])
        )
        plain = json.loads(path.read_text())
        plain["jobs"][0]["submit"]["prepare"] = early
        path.write_text(json.dumps(plain))
        self.start("apply", path, "--yes", "--workdir", workdir)
        last, acting_until = (
            time.monotonic() + TRIP_SECONDS_MAX,
            min(acting_until, time.monotonic() + TRIP_SECONDS),
        )
        while (state := self.state(workdir)) not in ("finished", "rolled-back"):
            assert time.monotonic() < last, self.logs()
            if self.process is None or self.process.poll() is not None:
                if (workdir / "journal").exists():
                    self.start("resume", workdir)
                else:
                    self.start("apply", path, "--yes", "--workdir", workdir)
            time.sleep(self.dice.uniform(0.3, 2.0))
            self.act(
                workdir, self.dice.choice(ACTS) if time.monotonic() < acting_until else "cutover"
            )
        self.ended()
        if state == "finished":
            self.place += 1
            held = self.said("verify", workdir, code=None)
            assert held["holds"], held
        else:
            assert not target.exists(), self.left_behind(target, workdir)

    def state(self, workdir: Path) -> str:
        if not (workdir / "journal").exists():
            return "new"
        told: str = self.said("status", workdir)["state"]
        return told

    def act(self, workdir: Path, what: str) -> None:
        """Each may come too early, or too late: then it is refused, and that is all."""
        if not (workdir / "journal").exists() or self.process is None:
            return
        self.did[what] += 1
        if what in ("kill", "interrupt"):
            self.process.send_signal(signal.SIGKILL if what == "kill" else signal.SIGINT)
            self.ended()
        elif what == "pause":
            self.said("pause", workdir, code=None)
            time.sleep(self.dice.uniform(0.2, 1.5))
            self.said("pause", workdir, "--off", code=None)
        elif what == "throttle":
            self.said(
                "throttle", workdir, self.dice.choice(["none", "200KB", "2MB", "50MB"]), code=None
            )
        elif what == "back":
            if self.dice.random() < 0.3:
                self.said("rollback", workdir, "--yes", code=None)
        elif what in ("cutover", "now"):
            self.said("cutover", workdir, *(["--now"] if what == "now" else []), code=None)
        else:
            self.said("status", workdir)

    def ended(self) -> None:
        if self.process is not None:
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def left_behind(self, target: Path, workdir: Path) -> str:
        """What an aborted move has left behind, and how it came to that."""
        report = self.said("status", workdir)["report"]
        return "\n".join(
            [
                "an aborted move leaves nothing behind:",
                *listing(target),
                "it said of that:",
                *report["left"],
                *(line for job in report["jobs"] for line in job["left"]),
                "its journal:",
                (workdir / "journal").read_text(errors="replace"),
                f"what happened to all runs: {self.did}; the runs said last:",
                self.logs(),
            ]
        )

    def logs(self) -> str:
        return (self.folder / "runs.log").read_text(errors="replace")[-6000:]


def listing(folder: Path) -> list[str]:
    """Everything below a folder, with how each file begins."""
    lines = [f"{folder}/"]
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            lines.append(f"{path}/")
        else:
            with path.open("rb") as file:
                lines.append(f"{path} ({path.stat().st_size} bytes): {file.read(80)!r}")
    return lines


@pytest.fixture
def wandering(tmp_path: Path, seed: int) -> Iterator[Wandering]:
    made = Wandering(tmp_path, random.Random(seed))
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()
    end_jobs(tmp_path, tuple(f"place-{number}" for number in range(made.place + 2)))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_FULL + 2 * TRIP_SECONDS_MAX)
@pytest.mark.row("T-1", "T-3", "T-5", "IS-16", "IS-17", "IS-18")
def test_whatever_happens_on_the_way_every_record_is_counted_once(
    wandering: Wandering, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seconds = SECONDS_FULL if request.config.getoption("--full") else SECONDS
    shop, over = Shop(tmp_path, "moved"), threading.Event()
    fed = [10]
    shop.feed(0, fed[0])
    wandering.begin()

    def feed() -> None:
        while not over.wait(0.5):
            shop.feed(fed[0], fed[0] + 1)
            fed[0] += 1

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until or wandering.place == 0:
            wandering.trip(until)
    finally:
        over.set()
        feeder.join()
    shop.finish(fed[0])
    wait_until(
        lambda: shop.complete(fed[0]),
        f"the results are not complete: {wandering.did}",
        120,
        logs=tmp_path / "jobs",
    )
    assert shop.recognise() == shop.expected(fed[0]), wandering.did
    assert wandering.place >= 1 and wandering.did.total() > 5
    print(f"{wandering.trips} runs, {wandering.place} of them to the end, {dict(wandering.did)}")
