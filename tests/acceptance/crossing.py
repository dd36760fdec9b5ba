"""Which Spark goes on with what another one wrote, and what `plan` says of it beforehand.

    python -m tests.acceptance.crossing SPARKS [--state DIRECTORY] [--page FILE] [--only TEXT]
    [--minutes N]

Each kind of state, in each provider, is written by each version of Spark that has it (three
batches), and carried on by each older one, as `matrix.running` carries on what was changed: over
input that touches every key, brings new ones and leaves them all behind. What comes out is held
against what its own Spark puts out. SPARKS has an environment for each version (scripts/sparks).
What was found is kept in the state directory, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stateshift.engines.spark.plan import move as planner
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.specification import parse_spec
from stateshift.storage.opening import open_storage
from stateshift.survey import ClusterFacts, Facts, Survey
from tests.acceptance.matrix.ground import Order, rows_of
from tests.acceptance.matrix.kinds import KINDS, PARTITIONS, PROVIDERS, STATE, Base
from tests.acceptance.matrix.outcomes import Lines
from tests.acceptance.matrix.running import QUERIES_MAX, Version
from tests.acceptance.support import ROOT

VERSIONS = ("3.3.4", "3.4.4", "3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0")
KINDS_SINCE = {
    "window-1": "3.3.4",
    "window-2": "3.3.4",
    "session": "3.3.4",
    "unique": "3.3.4",
    "distinct": "3.5.9",
    "join-1": "3.3.4",
    "join-2": "3.3.4",
    "join-3": "4.1.4",
    "join-4": "4.3.0",
    "pandas": "3.4.4",
    "timed": "4.0.5",
    "expiring": "4.0.5",
    "limit": "3.3.4",
}
PROVIDERS_SINCE = {
    "hdfs": "3.3.4",
    "rocksdb": "3.3.4",
    "rocksdb-changelog": "3.5.9",
    "rocksdb-changelog-format2": "4.0.5",
    "hdfs-checksums": "4.2.1",
    "rocksdb-checksums": "4.2.1",
}


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
            has = (
                not _before(writer, since)
                and not _before(writer, from_)
                and (not own or kind in own)
            )
            if has and (PROVIDERS[provider].rocksdb or not KINDS[kind].families):
                yield Base(writer, kind, provider)


def crossings() -> Iterator[Crossing]:
    for writer in reversed(VERSIONS):
        for reader in reversed(VERSIONS[: VERSIONS.index(writer)]):
            yield from (Crossing(base, reader) for base in bases(writer))


def _before(one: str, other: str) -> bool:
    return VERSIONS.index(one) < VERSIONS.index(other)


def conf(crossing: Crossing) -> dict[str, str]:
    """A session of defaults: how the state is kept, the checkpoint itself has to tell. Before 4.3,
    Spark has to be told of checkpoint format 2.
    """
    settings = {PARTITIONS: "3", f"{STATE}maintenanceInterval": "1h"}
    told = PROVIDERS[crossing.base.provider].format_2 and crossing.reader[:3] in (
        "4.0",
        "4.1",
        "4.2",
    )
    return {**settings, f"{STATE}checkpointFormatVersion": "2"} if told else settings


def carried_on(runner: Version, spark: Version, asked: list[Crossing]) -> Iterator[tuple[str, str]]:
    """What becomes of each: empty where it goes on as in its own Spark."""
    orders: dict[str, tuple[Crossing, Order]] = {}
    for crossing in asked:
        own = runner.ground.untouched(crossing.base)
        place = runner.folder / "crossings" / crossing.name.replace("/", "-").replace(" ", "-")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(runner.ground.place(crossing.base.name, "whole"), place)
        order = replace(
            own,
            name=crossing.name,
            checkpoint=place / "checkpoint",
            output=place / "output",
            conf=conf(crossing),
        )
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


# -- what we say of it, and the page

MISSED = "MISSED"

HEAD = """# What one Spark wrote, in the hands of an older one

Written by `./scripts/versions`. Each kind of state is written by the Spark of its row (three batches) and carried on by
that of its column, over input that touches every key that state holds, brings new ones, and then leaves all behind.
*Goes on*: what comes out is what its own Spark puts out. *Refused*: it does not, and `plan` says so by name before
anything moves. *Refused, could*: it went on here, and `plan` refuses it for what it may hold (`list-state` waives it).
*Warned*: it goes on only with a setting that `plan` names. All of them need the waiver `older-target`. What the kinds
and providers are is told in [matrix.md](matrix.md).

"""


def judged(crossing: Crossing, checkpoint: Path) -> str:
    """`refuse`, `warn`, or nothing: what a plan says against this reader, but that it is older."""
    source = survey.survey(open_storage(str(checkpoint)))
    cluster = ClusterFacts("theirs", "command", crossing.reader, "unknown", reaches=True)
    job = {
        "name": "a",
        "checkpoint_location": str(checkpoint),
        "remote_location": "/there",
        "waive": ["paths-stay", "older-target"],
    }
    spec = parse_spec(json.dumps({"version": 1, "jobs": [job]}))
    facts = Facts(
        source, Survey("file:///there", None, "empty", ()), target_cluster=cluster, at=1e12
    )
    findings = [one for plan in planner.plan(spec, spec.jobs[0], facts) for one in plan.findings]
    if any(one.level == "refuse" for one in findings):
        return "refuse"
    return (
        "warn"
        if any(one.level == "warn" and "has to say so" in one.message for one in findings)
        else ""
    )


def cell(told: str | None, ours: str) -> str:
    if told is None:
        return "not run"
    if told:
        return "refused" if ours == "refuse" else MISSED
    return {"refuse": "refused, could", "warn": "warned", "": "goes on"}[ours]


def page(arguments: argparse.Namespace, found: Lines, runners: dict[str, Version]) -> str:
    head = " | ".join(("written by", "kind", "provider", *VERSIONS[:-1]))
    lines = [f"| {head} |", "|---" * (2 + len(VERSIONS)) + "|"]
    for base in (base for writer in reversed(VERSIONS) for base in bases(writer)):
        own = [Crossing(base, reader) for reader in VERSIONS[: VERSIONS.index(base.version)]]
        checkpoint = runners[base.version].ground.place(base.name, "whole") / "checkpoint"
        if not any(one.name in found.held for one in own):
            continue
        cells = [cell(found.held.get(one.name), judged(one, checkpoint)) for one in own]
        cells += ["-"] * (len(VERSIONS) - 1 - len(cells))
        lines.append(f"| {base.version} | {base.kind} | {base.provider} | {' | '.join(cells)} |")
    return HEAD + "\n".join([*lines, ""])


def run(arguments: argparse.Namespace) -> int:
    runners = {
        v: Version(v, arguments.state, arguments.sparks / v / "bin" / "python") for v in VERSIONS
    }
    found = Lines(arguments.state / "crossings")
    until = time.monotonic() + 60 * arguments.minutes
    every = [one for one in crossings() if all(word in one.name for word in arguments.only)]
    for writer in reversed(VERSIONS[1:]):
        own = [one for one in every if one.base.version == writer and one.name not in found.held]
        _prepare(runners[writer], [one.base for one in own])
        own = [one for one in own if not runners[writer].failure(one.base, "untouched")]
        for reader in VERSIONS:
            theirs = [one for one in own if one.reader == reader]
            for start in range(0, len(theirs), QUERIES_MAX):
                if time.monotonic() > until:
                    break
                for name, told in carried_on(
                    runners[writer], runners[reader], theirs[start : start + QUERIES_MAX]
                ):
                    found.add(name, told)
                    print(f"{name}: {' '.join(told.split())[:300] or 'goes on'}", flush=True)
    written = page(arguments, found, runners)
    arguments.page.write_text(written)
    return int(MISSED in written)


def _prepare(runner: Version, wanted: list[Base]) -> None:
    unique = list(dict.fromkeys(wanted))
    for start in range(0, len(unique), QUERIES_MAX):
        some = unique[start : start + QUERIES_MAX]
        runner.prepare([(base, part) for base in some for part in ("whole", "untouched")])
    for base in unique:
        if failure := runner.failure(base, "whole") or runner.failure(base, "untouched"):
            print(
                f"{base.version}/{base.name} did not run: {' '.join(failure.split())[:300]}",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sparks", type=Path)
    parser.add_argument(
        "--state", type=Path, default=Path(os.environ.get("STATESHIFT_MATRIX") or ROOT / ".matrix")
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="crossings whose names hold this; all of several",
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument("--page", type=Path, default=ROOT / "tests" / "versions.md")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
