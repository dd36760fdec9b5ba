"""The ways to bring a checkpoint from one HDFS to another, each as somebody on call would use it
who knows the tool.

    stateshift  `apply`: the job's stop, a look at what it left, the fence, what a restart needs
                copied, both sides
                compared entry by entry, published
    distcp      `hadoop distcp`, MapReduce's local runner with several maps, straight to the final
                names
    rclone      `rclone copy` from one HDFS to the other, with as many transfers
    hdfscli     `hdfscli download` to this machine's disk, then `hdfscli upload`, with as many
                threads
    fs -cp      `hadoop fs -cp` with as many threads, which few know of: one process, of Hadoop 3.4
                or later

All but ours copy the whole checkpoint, because nothing tells them what of it is needed, and look at
nothing afterwards. Each gets a target that is not there, and a job that has already stopped: what a
job takes to stop is the same for all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RCLONE = "github.com/rclone/rclone@v1.76.0"
AT_ONCE = 64  # maps, threads, transfers: as ours has; distcp was no faster with 16
OURS = "stateshift"
ENDED_PHASE = "publish"


@dataclass(frozen=True)
class Ground:
    """Both file systems, with the whole checkpoint at `source` in one of them, and a folder for
    whoever needs one.
    """

    scratch: Path
    environment: Mapping[str, str]
    hadoop: Path  # the commands `hdfs` and `hadoop` for both
    aliases: Path  # of the `hdfs` package, for both
    source: str
    directory: Path  # what is kept from run to run

    @property
    def source_path(self) -> str:
        return self.source.removeprefix("hdfs://hdfs-a")


@dataclass(frozen=True)
class Taken:
    """Seconds from the stop until the checkpoint is there, and those of the whole command;
    `phases` of ours.
    """

    seconds: float
    process_seconds: float
    phases: Mapping[str, float]


# (ground, the target's name on the other HDFS) -> what it took
Way = Callable[[Ground, str], Taken]


def stateshift(ground: Ground, name: str) -> Taken:
    """From the end of the job, which is a file here, until everything that a restart reads is
    published.
    """
    folder = ground.scratch / name
    folder.mkdir(parents=True)
    (folder / "running").touch()
    (folder / "spec.json").write_text(
        json.dumps(_spec(ground.source, f"hdfs://hdfs-b/{name}", folder))
    )
    words = [*_ours("apply"), str(folder / "spec.json"), "--yes", "--workdir", str(folder / "run")]
    seconds = run(words, ground.environment)
    return Taken(
        *_until_published(json.loads((folder / "run" / "report.json").read_text()), seconds)
    )


def taken_back(ground: Ground, name: str) -> None:
    """The source as it was, without the fence; nothing of it on the target."""
    run([*_ours("rollback"), str(ground.scratch / name / "run"), "--yes"], ground.environment)


def distcp(ground: Ground, name: str) -> Taken:
    local = [
        "-Dmapreduce.framework.name=local",
        f"-Dmapreduce.local.map.tasks.maximum={AT_ONCE}",
        f"-Dhadoop.tmp.dir={ground.scratch / 'mapreduce'}",
    ]
    words = [str(ground.hadoop / "hadoop"), "distcp", *local, "-m", str(AT_ONCE), "-direct"]
    return _whole(run([*words, ground.source, f"hdfs://hdfs-b/{name}"], ground.environment))


def fs_cp(ground: Ground, name: str) -> Taken:
    words = [str(ground.hadoop / "hadoop"), "fs", "-cp", "-d", "-t", str(AT_ONCE), "-q", "2000"]
    return _whole(run([*words, ground.source, f"hdfs://hdfs-b/{name}"], ground.environment))


def rclone(ground: Ground, name: str) -> Taken:
    words = [
        str(rclone_program(ground.directory)),
        "copy",
        "--transfers",
        str(AT_ONCE),
        "--checkers",
        str(AT_ONCE),
    ]
    remotes = {"RCLONE_CONFIG": os.devnull, **_remote("A", ground), **_remote("B", ground)}
    return _whole(
        run([*words, f"A:{ground.source_path}", f"B:/{name}"], {**ground.environment, **remotes})
    )


def hdfscli(ground: Ground, name: str) -> Taken:
    environment = {**ground.environment, "HDFSCLI_CONFIG": str(ground.aliases)}
    client, between = [sys.executable, "-m", "hdfs"], ground.scratch / "between"
    options = ["-s", "-t", str(AT_ONCE)]
    try:
        down = run(
            [*client, "download", *options, "-a", "hdfs-a-web", ground.source_path, str(between)],
            environment,
        )
        up = run(
            [*client, "upload", *options, "-a", "hdfs-b-web", str(between), f"/{name}"], environment
        )
    finally:
        shutil.rmtree(between, ignore_errors=True)
    return _whole(down + up)


WAYS: Mapping[str, Way] = {
    "stateshift": stateshift,
    "distcp": distcp,
    "rclone": rclone,
    "hdfscli": hdfscli,
    "fs -cp": fs_cp,
}


def unavailable(directory: Path) -> dict[str, str]:
    """Which of the ways cannot be had here, and why."""
    try:
        rclone_program(directory)
    except OSError as error:
        return {"rclone": str(error)}
    return {}


def rclone_program(directory: Path) -> Path:
    """That of the PATH, which somebody has chosen; else built from its released source, once."""
    found = shutil.which("rclone")
    made = directory / "rclone" / "rclone"
    if found or made.exists():
        return Path(found or made)
    if shutil.which("go") is None:
        raise FileNotFoundError("no rclone on the PATH, and no Go to build one")
    making = directory / "rclone.making"
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(HERE / "rclone", making)
    print("building rclone, this once (two minutes)", file=sys.stderr, flush=True)
    for words in (["mod", "init", "bench"], ["get", RCLONE], ["build", "-o", "rclone", "."]):
        environment = {**os.environ, "GOFLAGS": "-mod=mod"}
        done = subprocess.run(
            ["go", *words], cwd=making, capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode:
            raise OSError(f"go {words[0]} does not build it: {done.stderr.strip()[-500:]}")
    shutil.rmtree(made.parent, ignore_errors=True)
    making.rename(made.parent)
    return made


def run(words: list[str], environment: Mapping[str, str]) -> float:
    """Seconds of a command; one that fails ends the program with what it said."""
    began = time.perf_counter()
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(
            f"{' '.join(words[:3])} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return seconds


def _whole(seconds: float) -> Taken:
    return Taken(seconds, seconds, {})


def _until_published(
    report: Mapping[str, Any], process_seconds: float
) -> tuple[float, float, dict[str, float]]:
    """From the begin of the halt. What lies between two phases belongs to the first: the halt's is
    the look at what the job has left.
    """
    phases = {phase["name"]: phase for phase in report["jobs"][0]["phases"]}
    published = phases[ENDED_PHASE]["start"] + phases[ENDED_PHASE]["seconds"]
    starts = [phase["start"] for phase in phases.values()] + [published]
    seconds = {
        name: after - phase["start"]
        for (name, phase), after in zip(phases.items(), starts[1:], strict=True)
    }
    return published - phases["halt"]["start"], process_seconds, seconds


def _ours(command: str) -> list[str]:
    return [sys.executable, "-m", "stateshift", command]


def _spec(source: str, target: str, folder: Path) -> dict[str, Any]:
    """A job that runs until it is told to stop, as far as can be asked."""
    running = folder / "running"
    cluster = {
        "kind": "command",
        "find": f"test -e '{running}' && echo running || echo absent",
        "stop": f"rm -f '{running}'",
        "submit": f"touch '{running}'",
    }
    job = {
        "name": "bench",
        "checkpoint_location": source,
        "remote_location": target,
        "source_cluster": "here",
        "waive": ["paths-stay"],
    }
    return {"version": 1, "engine": "spark", "clusters": {"here": cluster}, "jobs": [job]}


def _remote(name: str, ground: Ground) -> dict[str, str]:
    """Every NameNode of it, as rclone takes them."""
    key, rpc = f"RCLONE_CONFIG_{name}", ground.environment[f"STATESHIFT_HDFS_{name}_RPC"]
    user = ground.environment["HADOOP_USER_NAME"]
    return {
        f"{key}_TYPE": "hdfs",
        f"{key}_NAMENODE": rpc.replace(";", ","),
        f"{key}_USERNAME": user,
    }
