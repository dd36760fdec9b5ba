"""The ways to go on elsewhere, or where it is, each from a job that runs until its next output.

restart  stopped by the marker and started on the same checkpoint, by the same cluster: the least
         there can be
move     `apply` of a move: stopped, copied, compared, published, started
warm     the same with "mode": "warm"
prepare  the same with "prepare": true, too: the application is up before the old one is stopped
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ground import SECONDS_MAX, Ground, removed

UNTIL = "remaining < 3s"
BRINGING = ("copy", "transform", "publish")


@dataclass(frozen=True)
class Moved:
    """`stopped` and `published` are moments; `steps` what the run did in between and around, by the
    journal: (name, seconds after the stop, how long it took). `brought` is how many bytes it wrote,
    all rounds together.
    """

    begun: float
    stopped: float
    copied: float
    published: float
    phases: Mapping[str, float]
    steps: tuple[tuple[str, float, float], ...] = ()
    brought: int = 0


Way = Callable[[Ground], Moved]


def restart(ground: Ground) -> Moved:
    begun = time.time()
    ground.stop()
    stopped = time.time()
    ground.start()
    return Moved(begun, stopped, stopped, stopped, {})


def move(ground: Ground) -> Moved:
    return _applied(ground, {}, {})


def warm(ground: Ground) -> Moved:
    return _applied(ground, {"mode": "warm", "until": UNTIL}, {})


def prepare(ground: Ground) -> Moved:
    return _applied(ground, {"mode": "warm", "until": UNTIL}, {"prepare": True})


WAYS: Mapping[str, Way] = {"restart": restart, "move": move, "warm": warm, "prepare": prepare}


def _applied(ground: Ground, keys: Mapping[str, Any], submit: Mapping[str, Any]) -> Moved:
    """To the other HDFS; the first is empty afterwards."""
    here, there = ground.place, ground.other
    job = {
        "name": "downtime",
        "checkpoint_location": ground.location,
        "remote_location": ground.location_at(there),
        "source_cluster": here,
        "target_cluster": there,
        "stop": {"seconds_max": SECONDS_MAX},
        "submit": {**ground.submission, **submit},
        "waive": ["paths-stay"],
        **keys,
    }
    clusters = {place: ground.cluster_spec(place) for place in (here, there)}
    spec = {"version": 1, "engine": "spark", "clusters": clusters, "jobs": [job]}
    folder = ground.folder / "runs" / f"{time.time():.0f}"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(spec, indent=1))
    words = [
        sys.executable,
        "-m",
        "stateshift",
        "apply",
        str(folder / "spec.json"),
        "--yes",
        "--workdir",
        str(folder / "run"),
    ]
    begun = time.time()
    with (folder / "apply.log").open("w") as log:
        done = subprocess.run(
            words, stdout=log, stderr=log, check=False, env={**os.environ, **ground.environment}
        )
    if done.returncode:
        said = (folder / "apply.log").read_text()[-3000:]
        raise SystemExit(
            f"{ground.case.told}: apply ended with {done.returncode}, see {folder}:\n{said}"
        )
    removed(ground, here)
    ground.place = there
    return _told(begun, folder / "run")


def _told(begun: float, workdir: Path) -> Moved:
    """By the run's journal."""
    from stateshift.journal import decode_records, fold

    records, _ = decode_records((workdir / "journal").read_bytes())
    progress = fold(iter(records))
    steps = {
        (plan.purpose, name): step
        for plan in progress.plans
        if plan.purpose != "warm"
        for name, step in plan.steps.items()
    }
    halted = steps["halt", "halt/stop"]
    stopped = halted.at + halted.seconds
    publishing = [step for step in steps.values() if step.phase == "publish"]
    copied = min(step.at for step in publishing)
    published = max(step.at + step.seconds for step in publishing)
    told = tuple(
        (name, round(step.at - stopped, 3), round(step.seconds, 3))
        for (purpose, name), step in steps.items()
    )
    report = json.loads((workdir / "report.json").read_text())
    phases = {phase["name"]: round(phase["seconds"], 3) for phase in report["jobs"][0]["phases"]}
    brought = sum(
        step.bytes
        for plan in progress.plans
        for step in plan.steps.values()
        if step.phase in BRINGING
    )
    return Moved(begun, stopped, copied, published, phases, told, brought)
