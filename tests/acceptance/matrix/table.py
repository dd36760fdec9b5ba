"""The matrix as a page: kind x provider x change in rows, Spark's versions in columns. Pure.

A cell of the page is `passed`, `FAILED`, `refused` (with a number, under which the reason stands
below), `not run`, or `-` where Spark itself does not have it; why not is told below, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.acceptance.matrix.damage import Damage
from tests.acceptance.matrix.kinds import (
    CHANGES,
    KINDS,
    NEWEST,
    PROVIDERS,
    TITLES,
    VERSIONS,
    WIDE,
    Base,
    Cell,
    every_base,
    missing,
)


class Told(Protocol):
    """What became of a cell."""

    @property
    def result(self) -> str: ...
    @property
    def told(self) -> str: ...


HEAD = """# What was changed, and went on in a real Spark

Written by `./scripts/matrix`, which `./scripts/test --full` runs. Each job runs three batches in the Spark of its
column; its checkpoint is changed by the command line; the same Spark carries the changed one on over input that touches
every key its state holds, brings new ones, and then leaves them all behind. *Passed*: what came out is what came out of
the untouched one. *Refused*: stateshift says no, by name, and nothing is changed. A merged join of Spark 3.5, whose job
then reads a union, is also told that its columns may be null (`evolve --nullable`).

"""


def written(cells: Sequence[Cell], outcomes: Mapping[str, Told]) -> str:
    """The whole page."""
    notes: dict[str, int] = {}
    rows = {(c.base.kind, c.base.provider, c.change, c.base.partitions) for c in cells}
    ordered = sorted(
        rows,
        key=lambda row: (
            *(list(d).index(v) for d, v in zip((KINDS, PROVIDERS, CHANGES), row, strict=False)),
        ),
    )
    there = {cell.name for cell in cells}
    lines = [
        "| kind | provider | change | " + " | ".join(f"Spark {v}" for v in VERSIONS) + " |",
        "|---" * 5 + "|",
    ]
    for kind, provider, change, partitions in ordered:
        told = [
            _told(Cell(Base(version, kind, provider, partitions), change), there, outcomes, notes)
            for version in VERSIONS
        ]
        lines.append(f"| {kind} | {provider} | {change} | {' | '.join(told)} |")
    return "\n".join(
        [
            HEAD + _counts(cells, outcomes),
            *_kinds(),
            "",
            *lines,
            "",
            *_notes(notes),
            "",
            *_missing(),
            "",
        ]
    )


DAMAGE_HEAD = """# Damaged checkpoints, judged by us and by a real Spark

Written by `./scripts/matrix`, which `./scripts/test --full` runs. One file of each checkpoint is damaged, from a fixed
seed. *Ours* is what `stateshift verify --deep` says. *Spark's* is what Spark {version} does: it *works* (it restarts,
and puts out what the untouched one does), it *fails*, or what it puts out is *wrong*. They agree where both say that it
works, or where we refuse and Spark does anything else.

"""


def damaged(damages: Sequence[Damage], outcomes: Mapping[str, Told]) -> str:
    """The page of damages."""
    told = [outcomes[one.name].result if one.name in outcomes else "not run" for one in damages]
    reasons = [json.loads(outcomes[one.name].told)[3] for one in damages if one.name in outcomes]
    different = sum(map(bool, reasons))
    counts = (
        f"{len(damages)} damaged checkpoints: {told.count('passed') - different} judged "
        f"alike, {different} "
    )
    counts += (
        f"otherwise for a known reason, {told.count('failed')} FAILED, "
        f"{told.count('not run')} not run.\n"
    )
    lines = ["| checkpoint | file | damage | ours | Spark's | |", "|---" * 6 + "|"]
    for one in damages:
        outcome = outcomes.get(one.name)
        path, ours, sparks, reason = (
            json.loads(outcome.told) if outcome else (one.role, "not run", "not run", "")
        )
        verdict = (
            "not run"
            if outcome is None
            else reason or ("alike" if outcome.result == "passed" else "FAILED")
        )
        cells = [
            f"{one.base.kind} in {one.base.provider}",
            f"{path} ({one.role})",
            one.action,
            ours,
            sparks,
            verdict,
        ]
        lines.append(f"| {' | '.join(_plain(cell) for cell in cells)} |")
    return "\n".join([DAMAGE_HEAD.format(version=NEWEST) + counts, *lines, ""])


def _plain(text: str) -> str:
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>", " ".join(text.split()))
    text = re.sub(
        r"(?<![\w.…])(?:file:/*)?/(?:[\w.+-]+/)+", "…/", text
    )  # where it lay is nobody's business
    return text[:160].replace("|", "\\|")


def _told(cell: Cell, there: set[str], outcomes: Mapping[str, Told], notes: dict[str, int]) -> str:
    if cell.name not in there:
        return "-"
    outcome = outcomes.get(cell.name)
    if outcome is None:
        return "not run"
    if outcome.result == "passed":
        return "passed"
    reason = " ".join(outcome.told.split())[:300].replace("|", "\\|")
    for word in (cell.base.name, cell.base.version):
        reason = reason.replace(word, "…")
    number = notes.setdefault(reason, len(notes) + 1)
    return f"{'FAILED' if outcome.result == 'failed' else outcome.result} ({number})"


def _counts(cells: Sequence[Cell], outcomes: Mapping[str, Told]) -> str:
    told = [outcomes[cell.name].result if cell.name in outcomes else "not run" for cell in cells]
    counts = ", ".join(
        f"{told.count(word)} {word}" for word in ("passed", "refused", "failed", "not run")
    )
    return f"{len(cells)} combinations: {counts}.\n"


def _kinds() -> list[str]:
    return [
        "| kind | is |",
        "|---|---|",
        *(f"| {name} | {title} |" for name, title in TITLES.items()),
    ]


def _notes(notes: Mapping[str, int]) -> list[str]:
    return (
        ["## Why", "", *(f"{number}. {reason}" for reason, number in notes.items())]
        if notes
        else []
    )


def _missing() -> list[str]:
    """What Spark itself does not have, by reason."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for base in every_base():
        reason = missing(base.version, KINDS[base.kind], PROVIDERS[base.provider])
        if reason is not None:
            found.setdefault(reason, {}).setdefault((base.version, base.provider), []).append(
                base.kind
            )
    lines = [
        "## What Spark itself does not have",
        "",
        "| version | provider | kinds | why |",
        "|---" * 4 + "|",
    ]
    for reason, bases in found.items():
        lines += [
            f"| {v} | {provider} | {', '.join(kinds)} | {reason} |"
            for (v, provider), kinds in bases.items()
        ]
    wide = ", ".join(WIDE)
    return [*lines, "", f"The changes {wide} are run on Spark {VERSIONS[-1]} only."]
