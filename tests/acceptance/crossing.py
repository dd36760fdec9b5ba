"""Which Spark goes on with what another one wrote, and what `plan` says of it beforehand.

    python -m tests.acceptance.crossing SPARKS [--state DIRECTORY] [--page FILE] [--writer V] [--minutes N]

Each kind of state, in each provider, is written by each version of Spark that has it (three batches), and carried on by
each older one, as `matrix.running` carries on what was changed: over input that touches every key, brings new ones and
leaves them all behind. What comes out is held against what its own Spark puts out. SPARKS has an environment for each
version (scripts/sparks). What was found is kept in the state directory, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.acceptance.matrix.ground import Order, cell_folder, rows_of  # noqa: F401
from tests.acceptance.matrix.kinds import KINDS, PARTITIONS, PROVIDERS, STATE, Base
from tests.acceptance.matrix.outcomes import Lines
from tests.acceptance.matrix.running import QUERIES_MAX, Version
from tests.acceptance.support import ROOT

VERSIONS = ("3.3.4", "3.4.4", "3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0")
KINDS_SINCE = {
    "window-1": "3.3.4", "window-2": "3.3.4", "session": "3.3.4", "unique": "3.3.4", "distinct": "3.5.9",
    "join-1": "3.3.4", "join-2": "3.3.4", "join-3": "4.1.4", "join-4": "4.3.0", "pandas": "3.4.4", "timed": "4.0.5",
    "expiring": "4.0.5", "limit": "3.3.4",
}  # fmt: skip
PROVIDERS_SINCE = {
    "hdfs": "3.3.4", "rocksdb": "3.3.4", "rocksdb-changelog": "3.5.9", "rocksdb-changelog-format2": "4.0.5",
    "hdfs-checksums": "4.2.1", "rocksdb-checksums": "4.2.1",
}  # fmt: skip


@dataclass(frozen=True)
class Crossing:
    """What one Spark wrote, in the hands of another."""

    base: Base
    reader: str

    @property
    def name(self) -> str:
        return f"{self.base.version}/{self.base.name} in {self.reader}"


def bases(writer: str) -> Iterator[Base]:
    for kind, since in KINDS_SINCE.items():
        for provider, from_ in PROVIDERS_SINCE.items():
            own = PROVIDERS[provider].kinds
            has = not _before(writer, since) and not _before(writer, from_) and (not own or kind in own)
            if has and (PROVIDERS[provider].rocksdb or not KINDS[kind].families):
                yield Base(writer, kind, provider)


def crossings() -> Iterator[Crossing]:
    for writer in reversed(VERSIONS):
        for reader in reversed(VERSIONS[: VERSIONS.index(writer)]):
            yield from (Crossing(base, reader) for base in bases(writer))


def _before(one: str, other: str) -> bool:
    return VERSIONS.index(one) < VERSIONS.index(other)


def conf(crossing: Crossing) -> dict[str, str]:
    """A session of defaults: how the state is kept, the checkpoint itself has to tell. Before 4.3, Spark has to be told
    of checkpoint format 2."""
    settings = {PARTITIONS: "3", f"{STATE}maintenanceInterval": "1h"}
    told = PROVIDERS[crossing.base.provider].format_2 and crossing.reader[:3] in ("4.0", "4.1", "4.2")
    return {**settings, f"{STATE}checkpointFormatVersion": "2"} if told else settings


def carried_on(runner: Version, spark: Version, asked: list[Crossing]) -> Iterator[tuple[str, str]]:
    """What becomes of each: empty where it goes on as in its own Spark."""
    orders: dict[str, tuple[Crossing, Order]] = {}
    for crossing in asked:
        own = runner.ground.untouched(crossing.base)
        place = runner.folder / "crossings" / crossing.name.replace("/", "-").replace(" ", "-")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(runner.ground.place(crossing.base.name, "whole"), place)
        order = replace(own, name=crossing.name, checkpoint=place / "checkpoint", output=place / "output",
                        conf=conf(crossing))  # fmt: skip
        orders[crossing.name] = crossing, order
    told = spark.spark([order for _, order in orders.values()])
    for name, (crossing, order) in orders.items():
        yield name, told[name] or _differs(runner, crossing, order)
        shutil.rmtree(order.checkpoint.parent, ignore_errors=True)


def _differs(runner: Version, crossing: Crossing, order: Order) -> str:
    expected, found = runner.ground.expected(crossing.base, 2), rows_of(order.output, 2)
    if expected == found:
        return ""
    lost, added = sorted((expected - found).elements()), sorted((found - expected).elements())
    return f"OTHER ROWS: {len(lost)} lost ({lost[:2]}), {len(added)} added ({added[:2]})"


def run(arguments: argparse.Namespace) -> int:
    until = time.monotonic() + 60 * arguments.minutes
    found = Lines(arguments.state / "crossings")
    runners = {v: Version(v, arguments.state, arguments.sparks / v / "bin" / "python") for v in VERSIONS}
    every = [one for one in crossings() if arguments.writer in ("", one.base.version)]
    for writer in reversed(VERSIONS[1:]):
        own = [one for one in every if one.base.version == writer and one.name not in found.held]
        wanted = list(dict.fromkeys(one.base for one in own))
        for start in range(0, len(wanted), QUERIES_MAX):
            some = wanted[start : start + QUERIES_MAX]
            runners[writer].prepare([(base, part) for base in some for part in ("whole", "untouched")])
        for base in wanted:
            if failure := runners[writer].failure(base, "whole") or runners[writer].failure(base, "untouched"):
                print(f"{writer}/{base.name} did not run: {failure[:300]}", flush=True)
        own = [one for one in own if not runners[writer].failure(one.base, "untouched")]
        for reader in VERSIONS:
            theirs = [one for one in own if one.reader == reader]
            for start in range(0, len(theirs), QUERIES_MAX):
                if time.monotonic() > until:
                    return 1
                some_ = theirs[start : start + QUERIES_MAX]
                for name, told in carried_on(runners[writer], runners[reader], some_):
                    found.add(name, told)
                    print(f"{name}: {' '.join(told.split())[:300] or 'goes on'}", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sparks", type=Path)
    parser.add_argument("--state", type=Path, default=Path(os.environ.get("STATESHIFT_MATRIX") or ROOT / ".matrix"))
    parser.add_argument("--writer", default="", choices=["", *VERSIONS])
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument("--page", type=Path, default=ROOT / "tests" / "versions.md")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
