"""A standby beside a real job, with something wrong every minute. See `soak`.

Each thing that is measured is a line of soak.jsonl in $STATESHIFT_BENCH_DIR, or the user's cache:

    sample   what the standby takes: memory, journal, plans, files and bytes at the target
    fault    something that was wrong, for how long, and how long the standby took to catch up
    run      how it was begun; end: how it has ended
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for folder in ("bench/state.d", "servers.d", "bench"):
    sys.path.insert(0, str(ROOT / "scripts" / folder))
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(HERE))

from faults import OF_SOURCE, OF_TARGET, Fault  # noqa: E402
from measure import bench_directory  # noqa: E402
from page import write_page  # noqa: E402
from pages import figures_in  # noqa: E402
from region import Region, region  # noqa: E402

MINUTE = 60.0
HELD_SECONDS = (10.0, 35.0)
SAMPLE_SECONDS = 5.0
CATCH_UP_SECONDS_MAX = 240.0


@dataclass
class Soak:
    """The course of it. What was measured goes to a file at once."""

    region: Region
    kept: Path
    tag: str
    ends: float
    target_from: float
    violations: int = 0

    def run(self) -> None:
        self.begin()
        deck: list[Fault] = []
        possible = OF_SOURCE
        while time.time() < self.ends:
            if time.time() > self.target_from and possible == OF_SOURCE:
                deck, possible = [], (*OF_TARGET, *OF_SOURCE)
            deck = deck or self.region.dice.sample(possible, len(possible))
            until = time.time() + MINUTE
            self.let_happen(deck.pop())
            self.watch(until)

    def begin(self) -> None:
        """Start the job and its standby, and wait for the first image."""
        self.region.start_job()
        self.watch_for(0, time.time() + CATCH_UP_SECONDS_MAX)
        self.judge("the first image")

    def let_happen(self, fault: Fault) -> None:
        region = self.region
        held = region.dice.uniform(*HELD_SECONDS)
        rounds, starts = region.standby.rounds, len(region.standby.starts)
        region.is_target_hidden = fault.hides_target
        began = time.time()
        fault.begin(region)
        try:
            self.watch(time.time() + held / 2)
            if fault.side == "source" and fault.name != "frozen":
                self.judge(f"while {fault.name}")
            self.watch(began + held)
        finally:
            fault.end(region)
            region.is_target_hidden = False
        over = time.time()
        newest = region.source_epoch()
        is_level = self.watch_for(newest, over + CATCH_UP_SECONDS_MAX)
        caught_up = time.time() - over
        verdict = self.judge(f"after {fault.side} {fault.name}")
        if not is_level:
            self.violated(f"{fault.side} {fault.name}: it has not caught up with batch {newest}")
        self.write(
            "fault",
            name=fault.name,
            side=fault.side,
            began=began,
            held=round(over - began, 1),
            caught_up=round(caught_up, 1),
            epoch=verdict,
            rounds=region.standby.rounds - rounds,
            restarts=len(region.standby.starts) - starts,
        )

    def judge(self, when: str) -> int:
        verdict = self.region.judge()
        if verdict.fault:
            self.violated(f"{when}: {verdict.fault}")
        return verdict.epoch

    def violated(self, fact: str) -> None:
        self.violations += 1
        print(f"VIOLATED: {fact}", file=sys.stderr, flush=True)
        self.write("violation", fact=fact, at=time.time())

    def watch(self, until: float) -> None:
        """Keep the standby going, and take samples."""
        while time.time() < until:
            self.region.standby.keep()
            self.write("sample", **self.region.sample())
            time.sleep(max(0.0, min(SAMPLE_SECONDS, until - time.time())))

    def watch_for(self, epoch: int, until: float) -> bool:
        """Watch until the standby has this epoch; whether it came in time."""
        while time.time() < until:
            self.region.standby.keep()
            sample = self.region.sample()
            self.write("sample", **sample)
            if sample["kept"] >= epoch:
                return True
            time.sleep(1.0)
        return False

    def write(self, kind: str, **figures: Any) -> None:
        with self.kept.open("a") as file:
            file.write(json.dumps({"tag": self.tag, "kind": kind, **figures}) + "\n")

    def end(self) -> None:
        """The job is lost, and goes on from its standby; its rows are counted once more."""
        region = self.region
        starts, ends = region.standby.starts, region.standby.ends
        rounds, images = region.standby.rounds, region.standby.images
        newest = region.source_epoch()
        region.kill_jobs()
        failover = region.fail_over()
        code = None if region.standby.process is None else region.standby.process.wait(120)
        verdict = region.judge()
        if isinstance(failover, str):
            self.violated(failover)
            failover = None
        elif verdict.fault or verdict.epoch <= failover["epoch"]:
            self.violated(f"after the failover: at {verdict.epoch}; {verdict.fault}")
        self.write(
            "end",
            at=time.time(),
            rounds=rounds,
            images=images,
            starts=starts,
            ends=ends,
            violations=self.violations,
            newest=newest,
            failover=failover,
            feeder=code,
            load=os.getloadavg()[0],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--target-minutes", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--tag", default=time.strftime("%Y-%m-%d %H:%M"), help="name of this run")
    parser.add_argument("--page", action="store_true", help="write the page and end")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kept = bench_directory() / "soak.jsonl"
    if options.page:
        write_page(figures_in(kept))
        return
    folder = Path(tempfile.mkdtemp(prefix="stateshift-soak-"))
    print(f"seed {options.seed}; in {folder}", file=sys.stderr, flush=True)
    with region(folder, random.Random(options.seed)) as at_work:
        ends = time.time() + options.minutes * MINUTE
        target_from = ends - options.target_minutes * MINUTE
        soak = Soak(at_work, kept, options.tag, ends, target_from)
        soak.write("run", at=time.time(), seed=options.seed, minutes=options.minutes)
        soak.run()
        soak.end()
    write_page(figures_in(kept))
    sys.exit(1 if soak.violations else 0)


if __name__ == "__main__":
    main()
