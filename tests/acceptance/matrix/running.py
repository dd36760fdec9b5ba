"""The whole matrix on real Sparks, as far as it has not been run yet.

    python -m tests.acceptance.matrix.running SPARKS [--state DIRECTORY] [--restart] [--version V]
    [--only TEXT]
                                              [--minutes N] [--pages DIRECTORY]

SPARKS has an environment for each version (scripts/sparks makes them). Everything is kept below the
state directory (.matrix, or STATESHIFT_MATRIX), so that a run that was interrupted or killed goes
on where it was:

    <version>-<jobs>/      what a Spark of the version made of the jobs as they are: the bases, and
                           what carried on
        input, <base>/...  see `ground`
        ran                which orders have ended, and how: a line of JSON each
        evidence           what Spark made of a changed checkpoint, by the digest of its bytes
    outcomes               what became of each cell with the code as it is: a line of JSON each

An outcome counts for the code that it was found with (a digest of the package and of this). When
the code changes, every cell is changed anew, which takes a moment; Spark is asked again only where
other bytes come out.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.acceptance.matrix import damaging, table
from tests.acceptance.matrix.damage import Damage
from tests.acceptance.matrix.damage import every as every_damage
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
from tests.acceptance.matrix.outcomes import Lines, Outcome
from tests.acceptance.support import JOBS, ROOT

# So many queries a Spark: what it holds of them in memory, it keeps.
QUERIES_MAX = 30

# Ten seconds is all that Spark gives a worker of transformWithState to start in, whatever the
# machine is busy with.
BUSY = "Python worker failed to connect back"
RETRIES_MAX = 3


class Version:
    """What one version of Spark has done so far."""

    def __init__(self, version: str, state: Path, python: Path) -> None:
        made_by = [
            JOBS / "shapes.py",
            JOBS / "processors.py",
            Path(__file__).with_name("events.py"),
        ]
        jobs = _digest(made_by)[:12]
        self.folder, self.python = state / f"{version}-{jobs}", str(python)
        self.ground = Ground(self.folder)
        self.ran, self.evidence = Lines(self.folder / "ran"), Lines(self.folder / "evidence")

    def prepare(self, wanted: Iterable[tuple[Base, str]]) -> None:
        """Run what is wanted of the bases and has not run yet: as they begin, then the untouched
        ones further.
        """
        self._run(self._begun(wanted))

    def _begun(self, wanted: Iterable[tuple[Base, str]]) -> list[Order]:
        """Run the bases as they begin, and feed the rest. Return what is left to run: the untouched
        ones further.
        """
        wanted = list(dict.fromkeys(wanted))
        firsts = [self.ground.first_run(base, part) for base, part in wanted if part != "untouched"]
        firsts = [order for order in firsts if not self._ran(order)]
        if firsts:
            unfeed(self.folder)
            feed(self.folder, 0, BEFORE)
        self._run(firsts, _afresh)
        rests = [
            base for base, part in wanted if part == "untouched" and not self.failure(base, "whole")
        ]
        rests = [base for base in rests if not self._ran(self.ground.untouched(base))]
        for base in rests:
            self.ground.carry_on_untouched(base)
        feed(self.folder, BEFORE, ALL)
        return [self.ground.untouched(base) for base in rests]

    def failure(self, base: Base, part: str) -> str | None:
        order = (
            self.ground.untouched(base)
            if part == "untouched"
            else self.ground.first_run(base, part)
        )
        told: str | None = self.ran.held.get(order.name, [None, "it did not run"])[1]
        return told

    def _ran(self, order: Order) -> bool:
        asked, wrong = self.ran.held.get(order.name, [None, None])
        return bool(asked == json.dumps(order.plain())) and BUSY not in (wrong or "")

    def _run(
        self, orders: Sequence[Order], before: Callable[[Order], None] = lambda order: None
    ) -> None:
        self._note(orders, self.spark(orders, before) if orders else {})

    def _note(self, orders: Sequence[Order], told: Mapping[str, str | None]) -> None:
        """Write down what has run of the bases, and how."""
        for order in orders:
            self.ran.add(order.name, [json.dumps(order.plain()), told[order.name]])

    def spark(
        self, orders: Sequence[Order], before: Callable[[Order], None] = lambda order: None
    ) -> dict[str, str | None]:
        """Run them all. Where Spark dies, those that had not ended are run one by one, to see which
        it dies of; where it was only too busy to start a Python worker in time, they go on.
        `before` is done to each, each time.
        """
        told = self._started(orders, before)
        for _ in range(RETRIES_MAX):
            again = [order for order in orders if BUSY in (told.get(order.name) or "")]
            told |= self._started(again, before) if again else {}
        for order in orders:
            if order.name not in told:
                told |= {order.name: "Spark died of it", **self._started([order], before)}
        return told

    def _started(
        self, orders: Sequence[Order], before: Callable[[Order], None]
    ) -> dict[str, str | None]:
        for order in orders:
            before(order)
        return run_spark(self.python, self.folder / "spark", orders)

    # -- cells

    def outcomes(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        """What becomes of these cells. The untouched bases go on in the Spark that the changed ones
        go on in.
        """
        rests = self._begun([needed for cell in cells for needed in needs(cell)])
        asked: dict[Cell, tuple[str, list[Order]]] = {}
        for cell in cells:
            begun = [(base, part) for base, part in needs(cell) if part != "untouched"]
            failures = [failure for base, part in begun if (failure := self.failure(base, part))]
            if failures:
                yield base_failed(cell, failures[0])
                continue
            try:
                orders = self.ground.change(cell)
            except Refused as refused:
                yield Outcome(cell.name, "refused", str(refused))
            except Broke as broke:
                yield Outcome(cell.name, "failed", str(broke))
            else:
                asked[cell] = digest_of(orders), orders
        yield from self._judged(asked, rests)

    def _judged(
        self, asked: Mapping[Cell, tuple[str, Sequence[Order]]], rests: Sequence[Order]
    ) -> Iterator[Outcome]:
        """Spark's word for each, by running what it has not been asked yet."""
        new = [
            order
            for cell, (digest, orders) in asked.items()
            if not self._known(cell, digest)
            for order in orders
        ]
        told = self.spark([*rests, *new]) if rests or new else {}
        self._note(rests, told)
        for cell, (digest, orders) in asked.items():
            failure = self.failure(like(cell.base), "untouched")
            if failure:
                yield base_failed(cell, failure)
                continue
            if not self._known(cell, digest):
                failures = [told[order.name] for order in orders if told[order.name]]
                wrong = failures[0] if failures else self.ground.wrong(cell, orders)
                self.evidence.add(cell.name, [digest, wrong])
            wrong = self.evidence.held[cell.name][1]
            self.ground.clear(cell)
            yield Outcome(cell.name, "failed" if wrong else "passed", wrong or "")

    # -- damaged checkpoints

    def verdicts(self, damages: Sequence[Damage]) -> Iterator[Outcome]:
        """Ours and Spark's, of each: passed where they agree, or are known to differ for a
        reason.
        """
        self.prepare([(one.base, part) for one in damages for part in ("whole", "untouched")])
        unfit = {
            one: failure for one in damages if (failure := self.failure(one.base, "untouched"))
        }
        yield from (
            Outcome(one.name, "failed", damaging.not_run(failure)) for one, failure in unfit.items()
        )
        damages = [one for one in damages if one not in unfit]
        made = {one: damaging.prepared(self.ground, one) for one in damages}
        ours = {one: damaging.our_verdict(order) for one, (order, _) in made.items()}
        digests = {one: digest_of([order]) for one, (order, _) in made.items()}
        new = [
            one for one in damages if self.evidence.held.get(one.name, [None])[0] != digests[one]
        ]
        told = self.spark([made[one][0] for one in new]) if new else {}
        for one in new:
            order = made[one][0]
            verdict = damaging.sparks_verdict(self.ground, one, order, told[order.name])
            self.evidence.add(one.name, [digests[one], verdict])
        for one, (order, path) in made.items():
            damaging.clear([order])
            yield damaging.outcome(one, path, ours[one], self.evidence.held[one.name][1])

    def _known(self, cell: Cell, digest: str) -> bool:
        return bool(self.evidence.held.get(cell.name, [None])[0] == digest)


def base_failed(cell: Cell, failure: str) -> Outcome:
    return Outcome(cell.name, "failed", f"the base did not run: {failure}")


def _afresh(order: Order) -> None:
    shutil.rmtree(order.checkpoint.parent, ignore_errors=True)


def needs(cell: Cell) -> list[tuple[Base, str]]:
    """The runs that a cell is made from, and measured by."""
    parts = ["even", "odd"] if cell.change == "merge" else ["whole"]
    return [
        *((cell.base, part) for part in parts),
        (like(cell.base), "whole"),
        (like(cell.base), "untouched"),
    ]


def run(arguments: argparse.Namespace) -> int:
    """Everything that is asked for, and the two pages; 1 where something failed, or was not run."""
    if arguments.restart:
        shutil.rmtree(arguments.state, ignore_errors=True)
    arguments.state.mkdir(parents=True, exist_ok=True)
    held = (arguments.state / "lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)  # another run over the same state is waited for
    until = time.monotonic() + 60 * arguments.minutes
    found = Outcomes(arguments.state)
    cells = [cell for cell in every_cell() if fits(cell.name, cell.base.version, arguments)]
    damages = [one for one in every_damage() if fits(one.name, one.base.version, arguments)]
    runners = {
        v: Version(v, arguments.state, arguments.sparks / v / "bin" / "python") for v in VERSIONS
    }
    for some in chunks(
        [one for one in in_order([*damages, *cells]) if one.name not in found.known()]
    ):
        if time.monotonic() > until:
            break
        runner = runners[some[0].base.version]
        for outcome in (
            runner.outcomes(some) if isinstance(some[0], Cell) else runner.verdicts(some)
        ):
            found.add(outcome)
            print(f"{outcome.result:8} {outcome.cell} {outcome.told[:200]}", flush=True)
        write_pages(arguments.pages, found.known())
    write_pages(arguments.pages, found.known())
    results = [found.known().get(one.name) for one in (*cells, *damages)]
    return int(any(result is None or result.result == "failed" for result in results))


def write_pages(folder: Path, known: Mapping[str, Outcome]) -> None:
    (folder / "matrix.md").write_text(table.written(list(every_cell()), known))
    (folder / "damage.md").write_text(table.damaged(every_damage(), known))


class Outcomes:
    """What became of each cell, with the code as it is."""

    def __init__(self, state: Path) -> None:
        self.code, self.lines = code_digest(), Lines(state / "outcomes")

    def known(self) -> dict[str, Outcome]:
        return {
            name: Outcome(*told)
            for name, (code, *told) in self.lines.held.items()
            if code == self.code
        }

    def add(self, outcome: Outcome) -> None:
        self.lines.add(outcome.cell, [self.code, outcome.cell, outcome.result, outcome.told])


def in_order(wanted: Iterable[Cell | Damage]) -> list[Any]:
    """Damages, and then change by change, so that a run that is cut short has shown something of
    everything; of each the newest version first.
    """

    def place(one: Cell | Damage) -> tuple[int, int]:
        change = list(CHANGES).index(one.change) if isinstance(one, Cell) else -1
        return change, -VERSIONS.index(one.base.version)

    return sorted(wanted, key=place)


def chunks(items: Sequence[Any], size: int = QUERIES_MAX) -> Iterator[list[Any]]:
    """Runs of items of one type, for one version."""
    for _, group in groupby(items, lambda one: (type(one), one.base.version)):
        own = list(group)
        yield from (own[start : start + size] for start in range(0, len(own), size))


def fits(name: str, version: str, arguments: argparse.Namespace) -> bool:
    return arguments.version in ("", version) and all(word in name for word in arguments.only)


def code_digest() -> str:
    """Of everything that an outcome depends on, but Spark."""
    here = Path(__file__).parent
    own = [path for path in here.glob("*.py") if path.name != "table.py"]
    return _digest([*(ROOT / "stateshift").rglob("*.py"), *own, *JOBS.glob("*.py")])[:12]


def _digest(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sparks", type=Path)
    parser.add_argument(
        "--state", type=Path, default=Path(os.environ.get("STATESHIFT_MATRIX") or ROOT / ".matrix")
    )
    parser.add_argument("--restart", action="store_true", help="forget everything first")
    parser.add_argument("--version", default="", choices=["", *VERSIONS])
    parser.add_argument(
        "--only", action="append", default=[], help="cells whose names hold this; all of several"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument(
        "--pages", type=Path, default=ROOT / "tests", help="where matrix.md and damage.md go"
    )
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
