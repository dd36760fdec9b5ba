"""What a standby costs a running Flink job, what a failover loses, and how long it takes.

The job and its state are those of `downtime-flink`. A round is:

    alone     the job runs; how long its checkpoints take
    followed  the same, with `apply --continuous` beside it
    lost      SIGKILL of its Flink at a random moment, and its checkpoints are taken away
    failover  on the other Flink, until the command ends, and until the job's first output

Flink's own history of its checkpoints, asked at the moment of the loss, says what really was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts" / "bench" / "flink.d"), str(ROOT / "scripts" / "bench")]

from ground import CHECKPOINT_MS, PAYLOAD, PER_SECOND, Ground, keys_of  # noqa: E402
from pages import put_down, told, wrapped  # noqa: E402
from stages import stages_of  # noqa: E402

from tests.servers.standby import following  # noqa: E402
from tests.support.flink import cluster_of  # noqa: E402
from tests.support.servers import Servers, group  # noqa: E402

PAGE = ROOT / "scripts" / "bench" / "results" / "failover-flink.md"
NAMES = ("flink-a", "flink-b")
WATCHED_SECONDS = 30.0


@dataclass(frozen=True)
class Round:
    """`checkpoint_*` is the median time that a checkpoint takes. `told` and `really` are seconds
    of data that are lost, at the moment of the loss.
    """

    mb: int
    first_image: float
    checkpoint_alone: float
    checkpoint_followed: float
    told: float
    really: float
    checkpoints_lost: int
    rto_told: float
    until_output: float
    load: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--megabytes", default="200,2000")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of loss")
    options = parser.parse_args()
    dice, rounds = random.Random(options.seed), list[Round]()
    folder = Path(tempfile.mkdtemp(prefix="stateshift-failover-"))
    try:
        with group(folder / "servers", *NAMES) as servers:
            for size in (int(text) for text in options.megabytes.split(",")):
                place = folder / str(size)
                place.mkdir()
                at_work = Ground(place, clusters(servers), keys_of(size))
                print(f"{size} MB: filling the state", file=sys.stderr, flush=True)
                at_work.fill()
                for number in range(options.rounds):
                    rounds.append(play(at_work, servers, size, number, dice))
                    print(f"  {rounds[-1]}", file=sys.stderr, flush=True)
                at_work.here.cancelled(at_work.job)
                shutil.rmtree(place, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    write_page(rounds)


def clusters(servers: Servers) -> tuple[Any, Any]:
    return cluster_of(servers, NAMES[0]), cluster_of(servers, NAMES[1])


def play(at_work: Ground, servers: Servers, size: int, number: int, dice: random.Random) -> Round:
    at_work.settle()
    load = os.getloadavg()[0]
    alone = watch(at_work)
    here = at_work.place
    target, spec = at_work.folder / f"standby-{number}", at_work.folder / f"standby-{number}.json"
    spec.write_text(json.dumps(standby_of(at_work, target)))
    runs = at_work.folder / f"runs-{number}"
    runs.mkdir()
    begun = time.time()
    with following(runs, spec, target) as feeder:
        feeder.says("can be started from")
        first_image = time.time() - begun
        followed = watch(at_work)
        time.sleep(dice.uniform(0.0, CHECKPOINT_MS / 1000))
        checkpoints = at_work.folder / f"checkpoints-{here}"
        committed = {
            one["id"]: one["latest_ack_timestamp"] / 1000
            for one in history(at_work)
            if one["status"] == "COMPLETED"
        }
        for role in servers.state(NAMES[here]).pids:
            servers.kill(NAMES[here], role)
        lost = time.time()
        checkpoints.rename(at_work.folder / f"lost-{number}")
        words = ("failover", str(target), "--primary-is-down", "--yes", "--json")
        with at_work.watched():
            done = feeder.asked(*words, "--workdir", str(runs / "failover"))
            if done.returncode:
                raise SystemExit(done.stderr[-4000:])
            time.sleep(2.0)
        if feeder.process.wait(120) != 4:
            raise SystemExit(feeder.told.read_text()[-4000:])
    (job,) = json.loads(done.stdout)["report"]["jobs"]
    failover = job["failover"]
    newest, epoch = max(committed), failover["epoch"]
    servers.up(NAMES[here])
    at_work.clusters, at_work.place = clusters(servers), 1 - here
    (at_work.job,) = (one["jid"] for one in at_work.here.running() if one["name"] == at_work.name)
    claimed = stages_of(runs / "failover", lost)["claimed_at"]
    return Round(
        mb=size,
        first_image=round(first_image, 2),
        checkpoint_alone=round(median(alone), 3),
        checkpoint_followed=round(median(followed), 3),
        told=round(failover["rpo"]["seconds"] - (claimed - lost), 2),
        really=round(lost - committed[epoch], 2),
        checkpoints_lost=sum(1 for one in committed if epoch < one <= newest),
        rto_told=failover["rto_seconds"],
        until_output=round(at_work.seen[2] - lost, 2),
        load=round(load, 2),
    )


def standby_of(at_work: Ground, target: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(at_work.spec("warm").read_text())
    (job,) = told["jobs"]
    del job["until"]
    job |= {"cutover": "never", "new_savepoint_path": str(target)}
    return told


def watch(at_work: Ground) -> list[float]:
    """How many seconds each checkpoint takes of those that are begun meanwhile."""
    began = time.time()
    time.sleep(WATCHED_SECONDS)
    return [
        one["end_to_end_duration"] / 1000
        for one in history(at_work)
        if one["status"] == "COMPLETED" and one["trigger_timestamp"] / 1000 >= began
    ]


def history(at_work: Ground) -> list[dict[str, Any]]:
    """The last checkpoints, as Flink tells of them."""
    told: list[dict[str, Any]] = at_work.here.ask(f"/jobs/{at_work.job}/checkpoints")["history"]
    return told


def write_page(rounds: Sequence[Round]) -> None:
    lines = ["# What a standby of a Flink job costs, and what a failover loses", ""]
    lines += wrapped(
        f"`./scripts/bench/failover-flink` on {os.cpu_count()} cores and 24 GB, Linux: Flink 2.3, "
        f"two subtasks that keep {PAYLOAD} bytes and a count for each key in RocksDB, {PER_SECOND} "
        f"records a second, incremental checkpoints every {CHECKPOINT_MS / 1000:g} s on a local "
        "disk. `apply --continuous` keeps a standby. Flink is killed with SIGKILL at a random "
        "moment, its checkpoints are taken away, and `failover` is called at once on the other "
        "Flink. Median (least / most) of the rounds."
    )
    lines += [
        "",
        "| state | first image, s | time of a checkpoint, with ÷ without | lost, told, s | lost, "
        "really, s | checkpoints lost | failover, s | until output, s | rounds | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for mb in sorted({one.mb for one in rounds}):
        of = [one for one in rounds if one.mb == mb]
        cells = [
            f"{mb} MB",
            told([one.first_image for one in of]),
            told([one.checkpoint_followed / one.checkpoint_alone for one in of]),
            told([one.told for one in of]),
            told([one.really for one in of]),
            told([float(one.checkpoints_lost) for one in of]),
            told([one.rto_told for one in of]),
            told([one.until_output for one in of]),
            str(len(of)),
            f"{max(one.load for one in of):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    worst = max(abs(one.told - one.really) for one in rounds)
    lines += ["", f"The loss that is told differs from the real one by {worst:.2f} s at most."]
    put_down(PAGE, lines)


if __name__ == "__main__":
    main()
