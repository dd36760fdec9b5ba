"""Make the golden images of Flink, with what is known of them.

    python scripts/golden/flink_make.py [VERSION [PREFIX...]]

    tests/golden/flink-<version>/<case>/image/       as Flink left it: a savepoint's folder, or a
                                                     job's folder of
                                                     checkpoints, and the changelog's files
                                       /told.json
      {"flink": "2.3.0", "case": {...}, "arguments": [...],
       "image": "image/savepoint-1-2", where _metadata is,
       "written_at": {"/tmp/golden-flink/x": "image", ...}, what absolute paths in it begin with
       "job": the job's id, "uids": {UID: NAME}, "vertices": [{"id", "name", "parallelism", "maxParallelism"}],
       "checkpoint": {"id", "state_size"} as the REST API tells it,
       "metadata": what Flink reads in _metadata (tests/flink/jobs/Metadata.java says how it looks),
       "numbers": 60, so many were counted, "held": {OPERATOR: {STATE: {KEY: VALUE}}}, from the job's own output}

`held` is of the operators whose uids are its keys; keys and values are as Java prints them. It is
missing where the image was taken in flight or is of SQL. A timer's key is in KEY, its time in
STATE; a window's start, too.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flink_cases import (
    CASES,
    CLUSTERS,
    KINDS,
    SQL,
    TABLES,
    TYPED,
    VERSIONS,
    WORK,
    Case,
    case_of,
    parts,
)

from tests.support.flink import Cluster, Refused, changes, cluster_of, has_seen, jar, lines, until
from tests.support.servers import downloads, group

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
CLUSTER = f"{WORK}-cluster"  # is in the options of each RocksDB
MINUTE = 60_000
KEYS = {"jobs.Count": 10, KINDS: 6, SQL: 5, TYPED: 6, TABLES: 5}
TYPED_UIDS = ("numbers", "pojos", "plain", "mixed", "lines")
QUERIES = ("group", "window", "session", "join", "interval", "latest", "top", "over")
AT_ONCE = {"group", "join", "latest", "top"}  # whose changes do not wait for time
KINDS_UIDS = (
    "numbers",
    "values",
    "collections",
    "timers",
    "ttl",
    "windows",
    "lists",
    "sessions",
    "tens",
    "rules",
    "shares",
    "lines",
)


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster is stopped
    prefixes = tuple(arguments[1:])
    for version in arguments[:1] or VERSIONS:
        for kind, conf in CLUSTERS.items():
            names = [name for name in wanted(version, prefixes) if CASES[name].cluster == kind]
            if names:
                make_all(version, names, conf)


def wanted(version: str, prefixes: tuple[str, ...]) -> list[str]:
    fit = [name for name, case in CASES.items() if parts(version) >= case.since]
    if prefixes:
        return [name for name in fit if name.startswith(prefixes)]
    return [name for name in fit if not (GOLDEN / f"flink-{version}" / name / "told.json").exists()]


def make_all(version: str, names: list[str], conf: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        more = Path(folder) / "more"
        more.write_text("".join(f"{key}: {value}\n" for key, value in conf.items()))
        asked = {"STATESHIFT_FLINK_VERSION_A": version, "STATESHIFT_FLINK_CONF": str(more)}
        with group(Path(CLUSTER), "flink-a", **asked) as servers:
            for name in names:
                try:
                    make(cluster_of(servers, "flink-a"), version, name)
                except (AssertionError, Refused) as error:  # the others are made all the same
                    print(f"{version} {name} failed: {str(error)[:3000]}", flush=True)
                    servers.down("flink-a")
                    servers.up("flink-a")


def make(cluster: Cluster, version: str, name: str) -> None:
    case, work = case_of(name, version), Path(WORK) / name
    shutil.rmtree(WORK, ignore_errors=True)
    arguments = words(case, work)
    job = cluster.run(case.job, *arguments, parallelism=case.parallelism)
    if case.in_flight:
        until(lambda: list((work / "out").rglob("*.txt")) or case.job == SQL)
        cluster.checkpointed(job) if case.image == "checkpoint" else None
    else:
        until(lambda: done(case, cluster, work / "out", job))
    told = taken(cluster, case, job, work)
    told |= {
        "flink": version,
        "case": asdict(case),
        "arguments": list(arguments),
        "uids": uids(case),
    }
    told["metadata"] = read(cluster.lib, work / told["image"])
    if not case.in_flight and case.job not in (SQL, TABLES):
        told |= {"numbers": case.numbers, "held": held(case, work / "out")}
    keep(GOLDEN / f"flink-{version}" / name, work, told)


def words(case: Case, work: Path) -> tuple[str, ...]:
    checkpoints = (work / "image" / "checkpoints").as_uri()
    conf = {
        "state.backend.type": case.backend,
        "state.backend": case.backend,
        **case.conf,
        "execution.checkpointing.dir": checkpoints,
        "state.checkpoints.dir": checkpoints,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    told = {
        "output": str(work / "out"),
        "keys": KEYS[case.job],
        "per-second": 100,
        "max-parallelism": case.max_parallelism,
        **({} if case.in_flight else {"hold": case.numbers}),
        **({"last": case.numbers - 1} if "--finishing" in case.words else {}),
        **(
            {"checkpoint-ms": 500}
            if case.image == "checkpoint" or "--finishing" in case.words
            else {}
        ),
        **{f"flink.{key}": value for key, value in conf.items()},
    }
    return (
        *(word for key, value in told.items() for word in (f"--{key}", str(value))),
        *case.words,
    )


def done(case: Case, cluster: Cluster, output: Path, job: str) -> bool:
    """Whether all numbers have come to where they go, and time after the last one."""
    if case.job == "jobs.Count":
        counters = counted(case)
        finished = [
            one for one in cluster.ask(f"/jobs/{job}")["vertices"] if one["status"] == "FINISHED"
        ]
        if (
            "--finishing" in case.words and len(finished) < 2
        ):  # the source, and count and lines in a chain
            return False
        return all(len(lines(output / one)) >= case.numbers for one in counters)
    if case.job == SQL:
        return len(changes(output)) >= 2 * KEYS[SQL] and passed(cluster, job) >= case.numbers
    if case.job == TYPED:
        counted_ones = [line for line in changes(output) if line[1] == "count"]
        return len(counted_ones) >= 3 * case.numbers
    if case.job == TABLES:
        return has_all_changes(output, case.numbers - 1)
    return has_seen(output, case.numbers)


def has_all_changes(output: Path, last: int) -> bool:
    """Whether the last number has come to all queries, and no more changes come."""
    before = changes(output)
    told_last = {query for query, row in before if f" {last}," in f" {row}," or f"[{last}," in row}
    if not told_last >= AT_ONCE:
        return False
    time.sleep(3)
    return len(changes(output)) == len(before)


def counted(case: Case) -> list[str]:
    return (
        case.words[case.words.index("--counters") + 1].split(",")
        if "--counters" in case.words
        else ["orders"]
    )


def passed(cluster: Cluster, job: str) -> int:
    """How many records its first operator has given to others; of a join, each number twice."""
    vertex = cluster.ask(f"/jobs/{job}")["vertices"][0]
    return int(vertex["metrics"]["write-records"]) // 2


def taken(cluster: Cluster, case: Case, job: str, work: Path) -> dict[str, Any]:
    vertices = [
        {key: one.get(key) for key in ("id", "name", "parallelism", "maxParallelism")}
        for one in cluster.ask(f"/jobs/{job}")["vertices"]
    ]
    if case.image == "checkpoint":
        completed = cluster.ask(f"/jobs/{job}/checkpoints")["counts"]["completed"]
        cluster.checkpointed(job, after=0 if case.in_flight else completed + 2)
        cluster.cancelled(job)
        (place,) = (work / "image" / "checkpoints" / job).glob("chk-*")
        latest = latest_of(cluster, job, "completed")
    elif case.image == "saved":
        place = cluster.saved(job, work / "image")
        latest = latest_of(cluster, job, "savepoint")
        cluster.cancelled(job)
    else:
        kind = "NATIVE" if case.image == "native" else "CANONICAL"
        place = cluster.stopped(job, work / "image", kind, drain=case.image == "drained")
        latest = latest_of(cluster, job, "savepoint")
    return {
        "job": job,
        "image": str(place.relative_to(work)),
        "vertices": vertices,
        "checkpoint": {key: latest[key] for key in ("id", "state_size")},
    }


def latest_of(cluster: Cluster, job: str, kind: str) -> dict[str, Any]:
    """What is told of a job is a moment old."""
    return dict(until(lambda: cluster.ask(f"/jobs/{job}/checkpoints")["latest"][kind]))


def uids(case: Case) -> dict[str, str]:
    if case.job == KINDS:
        only = (
            case.words[case.words.index("--only") + 1].split(",")
            if "--only" in case.words
            else KINDS_UIDS
        )
        return {uid: uid for uid in KINDS_UIDS if uid in (*only, "numbers", "lines")}
    if case.job == TYPED:
        return {uid: uid for uid in TYPED_UIDS}
    if case.job == TABLES:
        told = {f"told-{query}": "Map" for query in QUERIES}
        return {"numbers": "numbers", "rows": "Map", "lines": "Process", **told}
    if case.job == SQL:
        return (
            {}
            if "--plan" in case.words
            else {"numbers": "numbers", "told": "Map", "lines": "Process"}
        )
    if "--uids" in case.words:
        return {}
    return {
        f"{name}-{part}": f"{name} {part}"
        for name in counted(case)
        for part in ("source", "count", "lines")
    }


def read(lib: Path, place: Path) -> Any:
    """What Flink's own classes read in it."""
    java = [downloads.java(), "-Xmx256m", "-cp", f"{lib}/*:{jar(lib)}", "jobs.Metadata", str(place)]
    return json.loads(subprocess.run(java, check=True, capture_output=True, text=True).stdout)


def held(case: Case, output: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What each state of each key holds: what was told of it last. See above."""
    if case.job == "jobs.Count":
        return {
            f"{name}-count": {
                "count": {line.key: line.count for line in sorted(lines(output / name))}
            }
            for name in counted(case)
        }
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for operator, state, key, value in changes(output):
        if state.startswith("event") and value == "fired":
            found[operator][state].pop(key)
        elif not state.startswith("window"):
            found.setdefault(operator, {}).setdefault(state, {})[key] = value
    if case.job == TYPED:
        return found
    found["timers"] = {state: keys for state, keys in found["timers"].items() if keys}
    for operator, state, key, value in windows(case):
        found.setdefault(operator, {}).setdefault(state, {})[key] = value
    return found


def windows(case: Case) -> Iterator[tuple[str, str, str, Any]]:
    """Those that are open when second `numbers` - 1 has passed, of one hour, one minute, and the
    sessions' gap of one: a key's numbers are so close that it has one session, and that is open.
    """
    for rest in range(KEYS[KINDS]) if "--only" not in case.words else ():
        whole = rest if rest % 2 == 0 else -rest * 4_294_967_311
        key = f"(key-{rest}{('', 'é', '☃', '𝄞', 'x')[rest % 5]},{whole})"  # as Keys.java has them
        own = range(rest, case.numbers, KEYS[KINDS])
        yield "windows", "window 0", key, sum(own)
        yield "sessions", f"window {own[0] * 1000}", key, sum(own)
        for start in range(0, case.numbers * 1000, MINUTE):
            within = [number for number in own if start <= number * 1000 < start + MINUTE]
            if within and start + MINUTE - 1 > (case.numbers - 1) * 1000 - 1:
                yield "lists", f"window {start}", key, str(within)


def keep(place: Path, work: Path, told: dict[str, Any]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    image = Path(told["image"])
    shutil.copytree(work / image, place / image)
    if image.name.startswith("chk-"):
        for part in ("shared", "taskowned"):
            if any(one.is_file() for one in (work / image.parent / part).rglob("*")):
                shutil.copytree(work / image.parent / part, place / image.parent / part)
    told["written_at"] = {str(work / "image"): "image"}
    changelog = Path(WORK) / "changelog"
    if any(one.is_file() for one in changelog.rglob("*")):
        shutil.copytree(changelog, place / "image" / "changelog")
        told["written_at"][str(changelog)] = "image/changelog"
    (place / "told.json").write_text(json.dumps(told, ensure_ascii=False) + "\n")
    size = sum(one.stat().st_size for one in place.rglob("*") if one.is_file())
    print(f"{place.parent.name} {place.name}: {size} bytes", flush=True)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main(sys.argv[1:])
