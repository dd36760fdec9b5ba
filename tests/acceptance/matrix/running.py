"""The whole matrix on real Sparks, as far as it has not been run yet.

    python -m tests.acceptance.matrix.running SPARKS [--state DIRECTORY] [--restart] [--version V] [--only TEXT]
                                              [--minutes N] [--table FILE]

SPARKS has an environment for each version (scripts/sparks makes them). Everything is kept below the state directory
(.matrix, or STATESHIFT_MATRIX), so that a run that was interrupted or killed goes on where it was:

    <version>-<jobs>/       what a Spark of the version made of the jobs as they are: the bases, and what carried on
        input, <base>/...   see `ground`
        ran                 which orders have ended, and how: a line of JSON each
        evidence            what Spark made of a changed checkpoint, by the digest of its bytes
    outcomes                what became of each cell with the code as it is: a line of JSON each

An outcome counts for the code that it was found with (a digest of the package and of this). When the code changes,
every cell is changed anew, which takes a moment; Spark is asked again only where other bytes come out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.matrix import damaging, table
from tests.acceptance.matrix.damage import Damage
from tests.acceptance.matrix.events import ALL, BEFORE, feed, unfeed
from tests.acceptance.matrix.ground import (
    Broke,
    Ground,
    Order,
    Refused,
    digest_of,
    like,
    run_spark,
)
from tests.acceptance.matrix.kinds import CHANGES, VERSIONS, Base, Cell, every_cell
from tests.acceptance.support import JOBS, ROOT

# So many queries a Spark: what it holds of them in memory, it keeps.
QUERIES_MAX = 30


@dataclass(frozen=True)
class Outcome:
    """`passed`, `failed`, or `refused`, with what there is to say of it."""

    cell: str
    result: str
    told: str = ""


class Lines:
    """A file of JSON lines, one for each name; the last one counts. A line that was cut short does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: dict[str, Any] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                name, value = json.loads(line)
            except ValueError:
                continue
            self.held[name] = value

    def add(self, name: str, value: Any) -> None:
        self.held[name] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write("\n" * (not _ends_a_line(self.path)) + json.dumps([name, value]) + "\n")


def _ends_a_line(path: Path) -> bool:
    content = path.read_bytes()[-1:] if path.exists() else b""
    return content in (b"", b"\n")


class Version:
    """What one version of Spark has done so far."""

    def __init__(self, version: str, state: Path, python: Path) -> None:
        made_by = [JOBS / "shapes.py", JOBS / "processors.py", Path(__file__).with_name("events.py")]
        jobs = _digest(made_by)[:12]
        self.folder, self.python = state / f"{version}-{jobs}", str(python)
        self.ground = Ground(self.folder)
        self.ran, self.evidence = Lines(self.folder / "ran"), Lines(self.folder / "evidence")

    def prepare(self, wanted: Sequence[tuple[Base, str]]) -> None:
        """Run what is wanted of the bases and has not run yet: as they begin, then the untouched ones further."""
        firsts = [self.ground.first_run(base, part) for base, part in wanted if part != "untouched"]
        firsts = [order for order in firsts if not self._ran(order)]
        for order in firsts:
            shutil.rmtree(order.checkpoint.parent, ignore_errors=True)
        if firsts:
            unfeed(self.folder)
            feed(self.folder, 0, BEFORE)
        self._run(firsts)
        rests = [base for base, part in wanted if part == "untouched" and not self.failure(base, "whole")]
        rests = [base for base in rests if not self._ran(self.ground.untouched(base))]
        for base in rests:
            self.ground.carry_on_untouched(base)
        feed(self.folder, BEFORE, ALL)
        self._run([self.ground.untouched(base) for base in rests])

    def failure(self, base: Base, part: str) -> str | None:
        order = self.ground.untouched(base) if part == "untouched" else self.ground.first_run(base, part)
        told: str | None = self.ran.held.get(order.name, [None, "it did not run"])[1]
        return told

    def _ran(self, order: Order) -> bool:
        return bool(self.ran.held.get(order.name, [None])[0] == json.dumps(order.plain()))

    def _run(self, orders: Sequence[Order]) -> None:
        asked = {order.name: json.dumps(order.plain()) for order in orders}
        for name, wrong in self.spark(orders).items() if orders else ():
            self.ran.add(name, [asked[name], wrong])

    def spark(self, orders: Sequence[Order]) -> dict[str, str | None]:
        """Run them all. Where Spark dies, those that had not ended are run one by one, to see which it dies of."""
        told = run_spark(self.python, self.folder / "spark", orders)
        for order in orders:
            if order.name not in told:
                told |= {order.name: "Spark died of it", **run_spark(self.python, self.folder / "spark", [order])}
        return told

    # -- cells

    def outcomes(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        """What becomes of these cells."""
        self.prepare([needed for cell in cells for needed in needs(cell)])
        asked: dict[Cell, tuple[str, list[Order]]] = {}
        for cell in cells:
            failures = [failure for base, part in needs(cell) if (failure := self.failure(base, part))]
            if failures:
                yield Outcome(cell.name, "failed", f"the base did not run: {failures[0]}")
                continue
            try:
                orders = self.ground.change(cell)
            except Refused as refused:
                yield Outcome(cell.name, "refused", str(refused))
            except Broke as broke:
                yield Outcome(cell.name, "failed", str(broke))
            else:
                asked[cell] = digest_of(orders), orders
        yield from self._judged(asked)

    def _judged(self, asked: Mapping[Cell, tuple[str, Sequence[Order]]]) -> Iterator[Outcome]:
        """Spark's word for each, by running what it has not been asked yet."""
        new = [order for cell, (digest, orders) in asked.items() if not self._known(cell, digest) for order in orders]
        told = self.spark(new) if new else {}
        for cell, (digest, orders) in asked.items():
            if not self._known(cell, digest):
                failures = [told[order.name] for order in orders if told[order.name]]
                wrong = failures[0] if failures else self.ground.wrong(cell, orders)
                self.evidence.add(cell.name, [digest, wrong])
            wrong = self.evidence.held[cell.name][1]
            self.ground.clear(cell)
            yield Outcome(cell.name, "failed" if wrong else "passed", wrong or "")

    # -- damaged checkpoints

    def verdicts(self, damages: Sequence[Damage]) -> Iterator[tuple[Damage, damaging.Verdicts]]:
        """Ours and Spark's, of each."""
        self.prepare([(one.base, part) for one in damages for part in ("whole", "untouched")])
        made = {one: damaging.prepared(self.ground, one) for one in damages}
        ours = {one: damaging.our_verdict(order) for one, (order, _) in made.items()}
        digests = {one: digest_of([order]) for one, (order, _) in made.items()}
        new = [one for one in damages if self.evidence.held.get(one.name, [None])[0] != digests[one]]
        told = self.spark([made[one][0] for one in new]) if new else {}
        for one in new:
            order = made[one][0]
            verdict = damaging.sparks_verdict(self.ground, one, order, told[order.name])
            self.evidence.add(one.name, [digests[one], verdict])
        for one, (order, path) in made.items():
            damaging.clear([order])
            yield one, damaging.Verdicts(path, ours[one], self.evidence.held[one.name][1])

    def _known(self, cell: Cell, digest: str) -> bool:
        return bool(self.evidence.held.get(cell.name, [None])[0] == digest)


def needs(cell: Cell) -> list[tuple[Base, str]]:
    """The runs that a cell is made from, and measured by."""
    parts = ["even", "odd"] if cell.change == "merge" else ["whole"]
    return [*((cell.base, part) for part in parts), (like(cell.base), "whole"), (like(cell.base), "untouched")]


def run(arguments: argparse.Namespace) -> int:
    """Every cell that is asked for; 1 where one failed."""
    if arguments.restart:
        shutil.rmtree(arguments.state, ignore_errors=True)
    until = time.monotonic() + 60 * arguments.minutes
    code, found = code_digest(), Lines(arguments.state / "outcomes")
    known = lambda: {name: Outcome(*o) for name, (by, *o) in found.held.items() if by == code}  # noqa: E731
    cells = [cell for cell in every_cell() if fits(cell, arguments)]
    for version in VERSIONS[::-1]:
        runner = Version(version, arguments.state, arguments.sparks / version / "bin" / "python")
        pending = [cell for cell in in_order(cells) if cell.base.version == version and cell.name not in known()]
        for start in range(0, len(pending), QUERIES_MAX):
            if time.monotonic() > until:
                break
            for outcome in runner.outcomes(pending[start : start + QUERIES_MAX]):
                found.add(outcome.cell, [code, outcome.cell, outcome.result, outcome.told])
                print(f"{outcome.result:8} {outcome.cell} {outcome.told[:200]}", flush=True)
            arguments.table.write_text(table.written(list(every_cell()), known()))
    arguments.table.write_text(table.written(list(every_cell()), known()))
    results = [known().get(cell.name) for cell in cells]
    return int(any(result is None or result.result == "failed" for result in results))


def fits(cell: Cell, arguments: argparse.Namespace) -> bool:
    return arguments.version in ("", cell.base.version) and all(word in cell.name for word in arguments.only)


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Change by change, so that a run that is cut short has shown something of every kind and provider."""
    return sorted(cells, key=lambda cell: list(CHANGES).index(cell.change))


def code_digest() -> str:
    """Of everything that an outcome depends on, but Spark."""
    here = Path(__file__).parent
    return _digest([*(ROOT / "stateshift").rglob("*.py"), *here.glob("*.py"), *JOBS.glob("*.py")])[:12]


def _digest(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sparks", type=Path)
    parser.add_argument("--state", type=Path, default=Path(os.environ.get("STATESHIFT_MATRIX") or ROOT / ".matrix"))
    parser.add_argument("--restart", action="store_true", help="forget everything first")
    parser.add_argument("--version", default="", choices=["", *VERSIONS])
    parser.add_argument("--only", action="append", default=[], help="cells whose names hold this; all of several")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument("--table", type=Path, default=ROOT / "tests" / "matrix.md")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
