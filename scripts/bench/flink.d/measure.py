"""What scripts/bench/flink measures: whole processes, each round one of each, in turn.

    metadata  100 operators of 256 subtasks and 128 key groups: parsed and written, by ours and by
              Flink's own classes
    copies    a savepoint relocated, and two of half its size merged: beside `cp -r`, and
              `sha256sum` of the copy
    programs  the same beside programs of the State Processor API, JVM and all: one that keeps the
              operators (copies
              their files), one that reads and writes them, which is the only way that it can
              merge two savepoints
    rows      all entries exported, and made state again: beside the program that reads and writes
              them
    dealing   keys dealt into other key groups, for another max parallelism: entry by entry, as it
              was and still is for what several images hold, and as columns. CPU seconds of the
              rescaler alone

A ratio is of one round; told are medians over rounds, and (least / most). Everything has been read
once before, and so is in the machine's memory: what is measured is work, not a disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "servers.d")]

from dealing import KINDS  # noqa: E402
from making import large_metadata, once  # noqa: E402
from servers import downloads  # noqa: E402
from servers.flink import MODULES  # noqa: E402

RESULTS = ROOT / "scripts" / "bench" / "results" / "flink.md"
FLINK, POM = "2.3.0", HERE / "pom.xml"
WHAT, SIZES = ("metadata", "copies", "programs", "rows", "dealing"), (10, 200, 2000)
ROWS = 50  # megabytes of small keys, whose entries are exported and imported
DEALT = 100_000  # entries of each kind of key
PROGRAMS_MAX = 200  # megabytes; and copies of so few are measured with a program's rounds
# What a key holds beside its count, and what Flink writes of it all: large ones are kind to who
# decodes each.
PAYLOAD, SMALL = 1024, 40
BESIDE = 60
SECTION = "\n## "
TO = "TO"  # in a command: a place of its own, empty before and removed after it

Times = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--what", nargs="+", choices=WHAT, default=list(WHAT))
    options = parser.parse_args()
    few = [size for size in options.megabytes if size <= PROGRAMS_MAX]
    tables: dict[str, Callable[[], str]] = {
        "metadata": lambda: metadata(options.rounds),
        "copies": lambda: copies(options.megabytes, options.rounds),
        "programs": lambda: programs(few, options.rounds),
        "rows": lambda: as_rows(options.rounds),
        "dealing": lambda: dealing(options.rounds),
    }
    for what in (one for one in WHAT if one in options.what):
        table = (
            f"{tables[what]()}\n{datetime.now():%Y-%m-%d %H:%M}, the load "
            f"{os.getloadavg()[0]:.1f}.\n"
        )
        print(table, flush=True)
        if set(options.megabytes) == set(SIZES):
            RESULTS.write_text(with_section(page(), table), encoding="utf-8")


def page() -> str:
    """Return the page as it is, under a head of this machine."""
    if not RESULTS.exists():
        return head()
    _, *sections = RESULTS.read_text(encoding="utf-8").split(SECTION)
    return SECTION.join((head(), *sections))


def with_section(page: str, table: str) -> str:
    """Return a page with a section in the place of that of the same heading, or at its end."""
    head_, *sections = page.split(SECTION)
    new = table.removeprefix(SECTION[1:])
    headings = [section.partition("\n")[0] for section in sections]
    heading = new.partition("\n")[0]
    if heading in headings:
        sections[headings.index(heading)] = new
    else:
        sections.append(new)
    return "\n".join([head_.rstrip("\n") + "\n", *(f"## {one.rstrip()}\n" for one in sections)])


def head() -> str:
    return f"""# Flink's savepoints, beside cp, Flink and its State Processor API

`./scripts/bench/flink` on {os.cpu_count()} cores, Linux, Python {platform.python_version()}, Flink {FLINK}. Seconds of
whole processes, taken in turn: medians of the rounds and (least / most). Ratios are of one round, ours by the other's:
below 1 ours is faster.
"""


def metadata(rounds: int) -> str:
    place = large_metadata(folder() / "metadata")
    jobs = _jobs_jar(downloads.flink(FLINK))
    ours = [sys.executable, str(HERE / "rewrite.py"), str(place), TO]
    theirs = [
        downloads.java(),
        "-cp",
        f"{downloads.flink(FLINK)}/*:{jobs}",
        "jobs.Metadata",
        str(place),
        TO,
    ]
    written = {name: _written(command) for name, command in (("ours", ours), ("theirs", theirs))}
    assert written["ours"] == written["theirs"] == (place / "_metadata").read_bytes(), (
        "bytes differ"
    )
    times = measured({"ours": [ours], "theirs": [theirs]}, rounds)
    size = (place / "_metadata").stat().st_size / 1e6
    return f"""## Large metadata

100 operators of 256 subtasks with 128 key groups each, {size:.0f} MB, parsed and written: by `decode_metadata` and
`encode_metadata`, and by Flink's `Checkpoints.loadCheckpointMetadata` and `storeCheckpointMetadata`. Both write the
same bytes. Goal: within 3 times.

| ours, s | Flink, s | ours by Flink | rounds |
|---|---|---|---|
| {told(times["ours"])} | {told(times["theirs"])} | {told(ratios(times["ours"], times["theirs"]))} | {rounds} |
"""


def copies(sizes: Sequence[int], rounds: int) -> str:
    rows = [row for size in sizes for row in _copies(size, rounds)]
    return "\n".join(
        [
            """## Relocate and merge, beside a copy

`stateshift apply` of a spec with one savepoint, or with two of half the size: survey, plan, journal, copy, comparison
of both sides, publish. Beside it `cp -r` of the same files and `sha256sum` of the copies. *Without start* subtracts the
same command on a savepoint of a few KiB, of the same round. Goal at 2000 MB: at most 1.0 without start.

| MB | command | ours, s | start, s | cp, s | and sha256sum | by these | without start | without start, by cp | rounds |
|---|---|---|---|---|---|---|---|---|---|""",
            *rows,
            "",
        ]
    )


def _copies(size: int, rounds: int) -> list[str]:
    found = []
    for name, sources in commands(size).items():
        tiny = _tiny(name)
        copy = ["cp", "-r", *map(str, sources), TO]
        ways = {
            "ours": [apply(sources, f"{name}-{size}")],
            "start": [apply(tiny, f"{name}-tiny")],
            "cp": [copy],
            "sum": [copy, ["sh", "-c", f"find {TO} -type f | xargs sha256sum"]],
        }
        times = measured(ways, rounds)
        busy = [one - start for one, start in zip(times["ours"], times["start"], strict=True)]
        cells = (
            times["ours"],
            times["start"],
            times["cp"],
            times["sum"],
            ratios(times["ours"], times["sum"]),
            ratios(busy, times["sum"]),
            ratios(busy, times["cp"]),
        )
        found.append(f"| {size} | {name} | {' | '.join(map(told, cells))} | {rounds} |")
    return found


def programs(sizes: Sequence[int], rounds: int) -> str:
    rows = [
        row
        for size in sizes
        for payload in (PAYLOAD, SMALL)
        for row in _programs(size, payload, rounds)
    ]
    return "\n".join(
        [
            """## Relocate and merge, beside the State Processor API

The program is `scripts/bench/flink.d/Savepoints.java`, in one JVM with a parallelism of four. *keep* is
`SavepointWriter.fromExistingSavepoint`: metadata is read, files are copied, nothing is compared. *rewrite* reads every
key and writes it again, which is the only way in which it merges. A key holds a count and so many bytes: what a program
that decodes each takes is a matter of their number. Goal at 200 MB: 20 times faster, a ratio of 0.05.

| MB | bytes a key | command | ours, s | program | its s | ours by it | it by ours | rounds |
|---|---|---|---|---|---|---|---|---|""",
            *rows,
            "",
        ]
    )


def _programs(size: int, payload: int, rounds: int) -> list[str]:
    found = []
    for name, sources in commands(size, payload).items():
        read = [
            word
            for source in sources
            for word in (str(source), f"{source.name.partition('-')[0]}-count")
        ]
        ways = {
            "ours": [apply(sources, f"{name}-{size}-{payload}")],
            "rewrite": [program("rewrite", TO, *read)],
        }
        if name == "relocate":
            ways["keep"] = [program("keep", TO, str(sources[0]))]
        times = measured(ways, rounds, untold=0)  # a JVM each time: nothing to warm
        for other in ways.keys() - {"ours"}:
            cells = (
                told(times["ours"]),
                other,
                told(times[other]),
                told(ratios(times["ours"], times[other])),
                told(ratios(times[other], times["ours"])),
                str(rounds),
            )
            found.append(f"| {size} | {payload} | {name} | {' | '.join(cells)} |")
    return sorted(found)


def as_rows(rounds: int) -> str:
    entries = 2 * (ROWS * 1_000_000 // (SMALL + BESIDE))
    source = savepoint(f"orders-{ROWS}-of-{SMALL}", "orders-count", entries // 2, SMALL)
    file, command = str(folder() / "rows.parquet"), [sys.executable, "-m", "stateshift"]
    run = ["--workdir", str(folder() / "run"), "--yes"]
    ways = {
        "export": [[*command, "export", str(source), "--to", file, "--overwrite"]],
        "import": [[*command, "import", file, "--template", str(source), "--to", TO, *run]],
        "rewrite": [program("rewrite", TO, str(source), "orders-count")],
    }
    times = measured(ways, rounds, untold=0)
    lines = [
        f"""## State as rows, beside the State Processor API

{entries:,} entries: a count and {SMALL} bytes for each key, which is a text. `export` writes them as Parquet, `import`
makes the state of a new savepoint of that file and reads it again to compare it. *rewrite* is the program's: it reads
every key and writes it again, in one JVM with a parallelism of four.

| command | ours, s | entries a second | rewrite, s | rewrite by ours | rounds |
|---|---|---|---|---|---|""",
    ]
    for name in ("export", "import"):
        factor = told(ratios(times["rewrite"], times[name]))
        rate = f"{entries / median(times[name]):,.0f}"
        cells = (told(times[name]), rate, told(times["rewrite"]), factor, str(rounds))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def dealing(rounds: int) -> str:
    lines = [
        f"""## Keys dealt into other key groups

{DEALT:,} entries with values of 32 bytes, in four files, from 128 key groups into 256: entry by entry, as it was before
and still is for what several images hold, and as columns. Both write the same bytes. CPU seconds of the rescaler alone,
in turn, so rates are those of one core: where the machine has much else to do, both are lower, and only the factor
counts. Goals: 700,000 strings and 1,500,000 longs a second.

| keys | one by one, s | as columns, s | entries a second before | and now | times | rounds |
|---|---|---|---|---|---|---|""",
    ]
    for kind in KINDS:
        words = [sys.executable, str(HERE / "dealing.py"), kind, str(DEALT), str(rounds)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        before, after = (list(column) for column in zip(*json.loads(done.stdout), strict=True))
        cells = (
            told(before),
            told(after),
            f"{DEALT / median(before):,.0f}",
            f"{DEALT / median(after):,.0f}",
            told(ratios(before, after)),
            str(rounds),
        )
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def measured(ways: Mapping[str, list[list[str]]], rounds: int, untold: int = 1) -> Times:
    """Seconds of each way, round by round, after so many that are not counted."""
    times: Times = {name: [] for name in ways}
    for number in range(untold + rounds):
        for name, commands_ in ways.items():
            seconds = _timed(commands_)
            if number >= untold:
                times[name].append(seconds)
    return times


def _timed(commands_: list[list[str]]) -> float:
    place = folder() / "to"
    _removed(place, folder() / "run")
    os.sync()
    began = time.perf_counter()
    for command in commands_:
        if command[0] == "cp":
            place.mkdir()
        words = [word.replace(TO, str(place)) if TO in word else word for word in command]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, cwd=folder(), env=environment()
        )
        if done.returncode:
            raise SystemExit(
                f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-4000:]}"
            )
    seconds = time.perf_counter() - began
    _removed(place, folder() / "run")
    return seconds


def _written(command: list[str]) -> bytes:
    place = folder() / "to"
    _removed(place)
    subprocess.run(
        [str(place) if word == TO else word for word in command], check=True, env=environment()
    )
    return place.read_bytes()


def _removed(*places: Path) -> None:
    for place in places:
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def apply(sources: Sequence[Path], name: str) -> list[str]:
    """Our command line; what it is told stands in a file."""
    job = {
        "name": "orders",
        "existing_savepoint_paths": [source.as_uri() for source in sources],
        "new_savepoint_path": (folder() / "to").as_uri(),
    }
    spec = folder() / f"{name}.json"
    spec.write_text(json.dumps({"version": 1, "engine": "flink", "jobs": [job]}))
    return [
        sys.executable,
        "-m",
        "stateshift",
        "apply",
        str(spec),
        "--yes",
        "--workdir",
        str(folder() / "run"),
    ]


def commands(size: int, payload: int = PAYLOAD) -> dict[str, list[Path]]:
    entries = size * 1_000_000 // (payload + BESIDE)
    what = f"{size}-of-{payload}"
    halves = ("orders", "payments")
    return {
        "relocate": [savepoint(f"orders-{what}", "orders-count", entries, payload)],
        "merge": [
            savepoint(f"{one}-half-{what}", f"{one}-count", entries // 2, payload) for one in halves
        ],
    }


def _tiny(name: str) -> list[Path]:
    wanted = ("orders",) if name == "relocate" else ("orders", "payments")
    return [savepoint(f"{one}-tiny", f"{one}-count", 4, PAYLOAD) for one in wanted]


def savepoint(name: str, uid: str, entries: int, payload: int) -> Path:
    """Written by Flink: a count and noise for each key."""

    def make(place: Path) -> None:
        print(f"making {name}: {entries} keys, this once", file=sys.stderr, flush=True)
        place.rmdir()
        subprocess.run(
            program("make", str(place), uid, str(entries), str(payload)),
            check=True,
            capture_output=True,
        )

    return once(folder() / name, make)


def program(*words: str) -> list[str]:
    path = f"{downloads.flink(FLINK)}/*:{_processor()}/*:{_classes()}"
    return [downloads.java(), *MODULES, "-Xmx3g", "-cp", path, "bench.Savepoints", *words]


@cache
def _classes() -> Path:
    def make(place: Path) -> None:
        javac = Path(downloads.java()).resolve().with_name("javac")
        words = [
            str(javac),
            "--release",
            "11",
            "-proc:none",
            "-nowarn",
            "-cp",
            f"{downloads.flink(FLINK)}/*:{_processor()}/*",
            "-d",
            str(place),
        ]
        subprocess.run([*words, str(HERE / "Savepoints.java")], check=True)

    shutil.rmtree(folder() / "classes", ignore_errors=True)
    return once(folder() / "classes", make)


@cache
def _processor() -> Path:
    """flink-state-processor-api, by Maven."""

    def make(place: Path) -> None:
        words = [
            "mvn",
            "-B",
            "-q",
            downloads.COPY,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={place}",
        ]
        subprocess.run([*words, "-f", str(POM)], check=True, stdout=subprocess.DEVNULL)

    return once(folder() / "processor", make)


def _jobs_jar(lib: Path) -> Path:
    from tests.support.flink import jar

    return jar(lib)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def told(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} / {max(values):.2f})"


@cache
def folder() -> Path:
    kept = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "stateshift"
        / "bench-flink"
    )
    place = Path(os.environ.get("STATESHIFT_BENCH_DIR") or kept).absolute()
    place.mkdir(parents=True, exist_ok=True)
    return place


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    main()
