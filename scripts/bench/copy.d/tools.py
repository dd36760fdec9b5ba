"""The ways to copy, each as somebody would use it who knows the tool. Each is called with (ground,
source, target) and gives seconds: of the whole command, or, of ours, from the first request on.

    ours             every file, by our copy engine, in a process of its own (engine.py)
    ours, read back  the same, then each file's digest is read from the target
    ours, needed     `apply` of a spec, nothing compared: from the begin of the copy to the end of
                     publish
    ours, compacted  the same with {"kind": "compact"}
    ... compared     both with the comparison of both sides, which is the default
    ... not synced   without waiting for the disk. All others on disks and HDFS do: the tools by a
                     `sync` behind them, ours on HDFS by how its client writes
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = "ours"
NOT_SYNCED = ", not synced"
ROUTES = ("local-local", "hdfs-hdfs", "hdfs-s3")
AT_ONCE = 64
SLOW = ("distcp",)  # minutes: once is enough to see that
FIRST_PHASES = ("copy", "transform")
COUNTED = (
    "import sys; from stateshift.storage.opening import *; "
    "print(len(list(open_storage(sys.argv[1]).list())))"
)


@dataclass(frozen=True)
class Ground:
    scratch: Path
    environment: Mapping[str, str]
    hadoop: Path

    def target(self, route: str, name: str) -> str:
        places = {
            "local": str(self.scratch / "there"),
            "hdfs": "hdfs://hdfs-b/there",
            "s3": "s3://stateshift/there",
        }
        return f"{places[route.rpartition('-')[2]]}/{name}"

    def files_at(self, location: str) -> int:
        """Without what a run of ours keeps for itself."""
        if location.startswith("hdfs:"):
            words = [str(self.hadoop / "hadoop"), "fs", "-count", location]
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, env=self._environment
            )
            return int(done.stdout.split()[1]) if done.returncode == 0 else 0
        if location.startswith("s3:"):
            words = [sys.executable, "-c", COUNTED, location]
            return int(
                subprocess.run(
                    words, capture_output=True, text=True, check=True, env=self._environment
                ).stdout
            )
        return sum(len(files) for _, _, files in os.walk(location))

    def remove(self, location: str) -> None:
        if location.startswith("hdfs:"):
            run(
                [str(self.hadoop / "hadoop"), "fs", "-rm", "-r", "-f", "-skipTrash", location],
                self.environment,
            )
            time.sleep(5)  # the DataNode deletes blocks at its next heartbeat, three seconds apart
        elif not location.startswith(
            "s3:"
        ):  # what lies there is in nobody's way, and deleting it takes minutes
            shutil.rmtree(location, ignore_errors=True)

    @property
    def _environment(self) -> dict[str, str]:
        return _with(self.environment)


Way = Callable[[Ground, str, str], float]


def ways_of(route: str, name: str) -> dict[str, Way]:
    """Whatever can be had here for this route."""
    found: dict[str, Way] = {
        "ours": partial(_engine, ()),
        "ours, read back": partial(_engine, ("--verify",)),
    }
    if route == "local-local":
        found[f"{OURS}{NOT_SYNCED}"] = partial(_engine, ("--no-sync",))
    if name == "many":
        found |= {
            "ours, needed": partial(_applied, "none", ()),
            "ours, compacted": partial(_applied, "none", ("compact",)),
            "ours, needed, compared": partial(_applied, "entries", ()),
            "ours, compacted, compared": partial(_applied, "entries", ("compact",)),
        }
    missing = unavailable()
    return found | {
        way: how
        for way, how in _others(route).items()
        if way.removesuffix(NOT_SYNCED) not in missing
    }


def _both(ways: Mapping[str, Way]) -> dict[str, Way]:
    """Each as it is, and with what it has written on the disk: ours is not done before that."""
    as_they_are = {f"{way}{NOT_SYNCED}": how for way, how in ways.items()}
    return as_they_are | {way: partial(_synced, how) for way, how in ways.items()}


def _synced(how: Way, here: Ground, source: str, target: str) -> float:
    seconds, began = how(here, source, target), time.perf_counter()
    run(["sync", "-f", str(here.scratch)], here.environment)
    return seconds + time.perf_counter() - began


def _others(route: str) -> Mapping[str, Way]:
    others: Mapping[str, Mapping[str, Way]] = {
        "local-local": _both({"cp -r": _cp, "rclone": _rclone}),
        "hdfs-hdfs": _both({"fs -cp": _fs_cp, "rclone": _rclone}) | {"distcp": _distcp},
        "hdfs-s3": {"rclone": _rclone, "s5cmd": _by_disk_s5cmd, "s3 sync": _by_disk_aws},
    }
    return others[route]


def left_out(routes: Sequence[str]) -> dict[str, str]:
    """What somebody would use on these routes and is not there, and why."""
    return {
        way: reason
        for way, reason in unavailable().items()
        if any(way in _others(route) for route in routes)
    }


def unavailable() -> dict[str, str]:
    """What is not on the PATH."""
    programs = {"rclone": "rclone", "s5cmd": "s5cmd", "s3 sync": "aws"}
    return {
        way: f"no {program} on the PATH"
        for way, program in programs.items()
        if shutil.which(program) is None
    }


def run(words: list[str], environment: Mapping[str, str], folder: Path | None = None) -> float:
    """Seconds of a command; one that fails ends the program with what it said."""
    began = time.perf_counter()
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=_with(environment), cwd=folder
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(
            f"{' '.join(words[:3])} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return seconds


def _with(environment: Mapping[str, str]) -> dict[str, str]:
    """Without a bundle of certificates: rclone of 2022 refuses to start with one, and nothing
    here speaks TLS.
    """
    return {
        key: value for key, value in {**os.environ, **environment}.items() if key != "AWS_CA_BUNDLE"
    }


def _engine(options: Sequence[str], here: Ground, source: str, target: str) -> float:
    words = [sys.executable, str(HERE / "engine.py"), source, target, *options]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=_with(here.environment)
    )
    if done.returncode:
        raise SystemExit(f"the engine ended with {done.returncode}:\n{done.stderr[-3000:]}")
    told = json.loads(done.stdout)
    return float(told["seconds"] + told.get("verify_seconds", 0.0))


def _applied(
    verify: str, transforms: tuple[str, ...], here: Ground, source: str, target: str
) -> float:
    """A fork: its source is not fenced, and need not be taken back."""
    folder = here.scratch / f"run-{time.monotonic_ns()}"
    folder.mkdir()
    job: dict[str, Any] = {
        "name": "bench",
        "checkpoint_location": source,
        "remote_location": target,
        "mode": "fork",
        "verify": verify,
        "waive": ["paths-stay"],
    }
    if transforms:
        job["transform"] = [{"kind": kind} for kind in transforms]
    (folder / "spec.json").write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
    words = [sys.executable, "-m", "stateshift", "apply", str(folder / "spec.json"), "--yes"]
    run([*words, "--workdir", str(folder / "run")], here.environment)
    report = json.loads((folder / "run" / "report.json").read_text())
    phases = {phase["name"]: phase for phase in report["jobs"][0]["phases"]}
    first = min(phases[name]["start"] for name in FIRST_PHASES if name in phases)
    return float(phases["publish"]["start"] + phases["publish"]["seconds"] - first)


def _cp(here: Ground, source: str, target: str) -> float:
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    return run(["cp", "-r", source, target], here.environment)


def _rclone(here: Ground, source: str, target: str) -> float:
    words = ["rclone", "copy", "--transfers", str(AT_ONCE), "--checkers", str(AT_ONCE)]
    return run(
        [*words, _remote(source), _remote(target)],
        {**here.environment, **_remotes(here.environment)},
    )


def _fs_cp(here: Ground, source: str, target: str) -> float:
    above = target.rpartition("/")[0]
    run([str(here.hadoop / "hadoop"), "fs", "-mkdir", "-p", above], here.environment)
    words = [str(here.hadoop / "hadoop"), "fs", "-cp", "-d", "-t", str(AT_ONCE), "-q", "2000"]
    return run([*words, source, target], here.environment)


def _distcp(here: Ground, source: str, target: str) -> float:
    local = [
        "-Dmapreduce.framework.name=local",
        f"-Dmapreduce.local.map.tasks.maximum={AT_ONCE}",
        f"-Dhadoop.tmp.dir={here.scratch / 'mapreduce'}",
    ]
    words = [str(here.hadoop / "hadoop"), "distcp", *local, "-m", str(AT_ONCE), "-direct"]
    return run([*words, source, target], here.environment)


def _by_disk_s5cmd(here: Ground, source: str, target: str) -> float:
    """It reads no HDFS: to this machine's disk first, by HDFS's own client."""
    words = [
        "s5cmd",
        "--endpoint-url",
        here.environment["AWS_ENDPOINT_URL_S3"],
        "--numworkers",
        str(AT_ONCE),
        "cp",
    ]
    return _by_disk(here, source, lambda between: [*words, f"{between}/", f"{target}/"])


def _by_disk_aws(here: Ground, source: str, target: str) -> float:
    words = ["aws", "s3", "sync", "--only-show-errors"]
    return _by_disk(here, source, lambda between: [*words, str(between), target])


def _by_disk(here: Ground, source: str, words: Callable[[Path], list[str]]) -> float:
    between = here.scratch / f"between-{time.monotonic_ns()}"
    try:
        get = [
            str(here.hadoop / "hadoop"),
            "fs",
            "-get",
            "-t",
            "32",
            "-q",
            "2000",
            source,
            str(between),
        ]
        down = run(get, here.environment)
        return down + run(words(between), here.environment)
    finally:
        shutil.rmtree(between, ignore_errors=True)


def _remote(location: str) -> str:
    for start, name in (("hdfs://hdfs-a", "A:"), ("hdfs://hdfs-b", "B:"), ("s3://", "S:")):
        if location.startswith(start):
            return name + location.removeprefix(start)
    return location


def _remotes(environment: Mapping[str, str]) -> dict[str, str]:
    """As rclone takes them from its environment. It asks the first NameNode it is given, standby
    or not.
    """
    found = {"RCLONE_CONFIG": os.devnull}
    for name in ("A", "B"):
        if rpc := environment.get(f"STATESHIFT_HDFS_{name}_RPC"):
            key = f"RCLONE_CONFIG_{name}"
            found |= {f"{key}_TYPE": "hdfs", f"{key}_NAMENODE": rpc.partition(";")[0]}
            found[f"{key}_USERNAME"] = environment["HADOOP_USER_NAME"]
    if endpoint := environment.get("AWS_ENDPOINT_URL_S3"):
        found |= {
            "RCLONE_CONFIG_S_TYPE": "s3",
            "RCLONE_CONFIG_S_PROVIDER": "Other",
            "RCLONE_CONFIG_S_ENV_AUTH": "true",
            "RCLONE_CONFIG_S_ENDPOINT": endpoint,
            "RCLONE_CONFIG_S_FORCE_PATH_STYLE": "true",
            "RCLONE_CONFIG_S_NO_CHECK_BUCKET": "true",
        }
    return found
