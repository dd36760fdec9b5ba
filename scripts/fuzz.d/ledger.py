"""What was fuzzed, for how long, on which code: one file per format beside its corpus, and the
table made of all.

    Session  one process: the commit, the sign of the code it ran on, CPU seconds, executions, edges
             reached before and
             after, what broke, slowest input, largest growth and peak of memory

Minutes count for the code they were spent on: `sign` is over the sources a target names, so that a
decoder that was rewritten has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.fuzz.targets import Target

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Session:
    commit: str
    sign: str
    cpu_seconds: float
    executions: int
    broken: int
    slowest_ms: int
    largest_growth_mib: int
    peak_mib: int
    edges_before: int = 0
    edges_after: int = 0
    inputs: int = 0
    ended: str = "time"


def sign_of(target: Target) -> str:
    digest = hashlib.sha256()
    for module in sorted(target.modules):
        digest.update((ROOT / "stateshift" / module).read_bytes())
    return digest.hexdigest()[:12]


def read(folder: Path) -> list[Session]:
    place = folder / "sessions.jsonl"
    return (
        [Session(**json.loads(line)) for line in place.read_text().splitlines()]
        if place.exists()
        else []
    )


def add(folder: Path, session: Session) -> None:
    with (folder / "sessions.jsonl").open("a") as file:
        file.write(json.dumps(asdict(session)) + "\n")


def minutes(sessions: Iterable[Session], sign: str | None = None) -> float:
    return sum(s.cpu_seconds for s in sessions if sign in (None, s.sign)) / 60


HEAD = """# Fuzzing

Every reader of ours is fed bytes that nobody wrote: `scripts/fuzz` (coverage-guided, with atheris) for as long as you
like, the tests beside this page for a moment in every run. What must hold is in `oracles.py`: nothing comes out of a
decoder but an error that says where, or a value that goes there and back; every way to read the same bytes gives the
same; time and memory stay within what the size of the input may ask for. Inputs that broke something are kept in
`found/` and run with every test run; what they broke is in `found/README.md`.

The table is written by `scripts/fuzz --table`, from what was run on that machine; the other rows stay as they are, and
their "now" as it was then. Minutes are of CPU; "now" counts those on the code as it is at this
commit. Edges are what libFuzzer calls coverage, at the first start and now; of the slowest input the time is that of
instrumented code.

| format | minutes | now | executions | edges | inputs kept | found and mended | slowest | peak memory | last commit |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|
"""


def table(targets: Iterable[Target], top: Path, before: str = "") -> str:
    """`before` is the page as it was: what was run on another machine stands there, and nowhere
    else.
    """
    rows = {
        line.split("|")[1].strip(): f"{line}\n"
        for line in before.splitlines()
        if line.startswith("| ")
    }
    return HEAD + "".join(
        _row(target, read(top / target.name), rows.get(target.name)) for target in targets
    )


def _row(target: Target, sessions: list[Session], before: str | None) -> str:
    if not sessions and before is not None:
        return before
    found = len(list((ROOT / "tests" / "fuzz" / "found" / target.name).glob("*")))
    if not sessions:
        return f"| {target.name} | 0 | 0 | | | | {found} | | | |\n"
    now, last = sign_of(target), sessions[-1]
    cells = (
        target.name,
        f"{minutes(sessions):.1f}",
        f"{minutes(sessions, now):.1f}",
        f"{sum(s.executions for s in sessions):,}",
        f"{sessions[0].edges_before:,} → {last.edges_after:,}",
        f"{last.inputs:,}",
        str(found),
        f"{max(s.slowest_ms for s in sessions if s.sign == last.sign)} ms",
        f"{max(s.peak_mib for s in sessions if s.sign == last.sign)} MiB",
        f"`{last.commit}`",
    )
    return f"| {' | '.join(cells)} |\n"
