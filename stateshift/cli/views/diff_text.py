"""`diff` for a person: equal or not first, then how many entries of which store differ, then
some of them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Cell, Line, Row, TextTable, Tone, compact_json, section
from stateshift.cli.views.units import amounts_compared, many, number
from stateshift.documents.diff import DiffFacts, Outcome
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.engines.views import Difference

_TONES: dict[str, Tone] = {"added": "good", "removed": "bad", "changed": "warn"}
_OUTCOMES: dict[Outcome, tuple[str, Tone]] = {
    Outcome.DIFFERENT: ("different", "bad"),
    Outcome.EQUAL_AS_FAR: ("what could be compared is equal", "warn"),
    Outcome.UNKNOWN: ("cannot be compared", "warn"),
}


def differences(facts: DiffFacts, a: str, b: str, verbose: bool = False) -> Iterator[Block]:
    """Show how two images differ; `a` and `b` are what they were called."""
    images = facts.differences
    both = f"{redact(a)} and {redact(b)}"
    if facts.outcome is Outcome.EQUAL:
        yield Line(f"equal, {amounts_compared(images.same)}: {both}", "good")
    else:
        words, tone = _OUTCOMES[facts.outcome]
        yield Line(f"{words}: {both}", tone)
    same = [store.same for store in images.stores if store.store == "coordinator"]
    if 1 in same and images.engine == "flink":
        count = many(same.count(1), "entry", "entries")
        yield Line(f"{count} of coordinators of operators is counted, and not exported", "dim", 2)
    first, second = images.epochs
    if first != second:
        at = terms_of(images.engine).at
        yield Line(f"{at} {first} and {at} {second}", "dim", 2)
    rows: list[Row] = []
    for store in images.stores if verbose else facts.unequal_stores:
        counts = (store.added, store.removed, store.changed, store.same)
        rows.append((store.operator, store.store, *map(number, counts)))
    if rows:
        heads = ("operator", "store", ">added", ">removed", ">changed", ">same")
        yield TextTable(heads, tuple(rows))
    for operator, name, why in images.incomparable:
        yield Line(f"not compared: store {name} of operator {operator}: {why}", "warn", 2)
    if images.shown:
        each = [(shown.operator, shown.store, *row(shown)) for shown in images.shown]
        table = TextTable(("operator", "store", "", "key", "value"), tuple(each))
        yield from section("Differences", table)
        if facts.more:
            yield Line("… and more: --show N shows more of each store", "dim", indent=2)


def row(shown: Difference) -> Row:
    """Return the change of an entry, its key, and its values."""
    before, after = compact_json(shown.before), compact_json(shown.after)
    values = {"added": after, "removed": before}.get(shown.change, f"{before} -> {after}")
    return Cell(shown.change, _TONES[shown.change]), compact_json(shown.key), values
