"""`diff` for a person: equal or not first, then how many entries of which store differ, then
some of them. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stateshift.cli.views.text import Block, Cell, Line, Table, Tone, section
from stateshift.cli.views.units import compared, number
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.look import Differences

_TONES: dict[str, Tone] = {"added": "good", "removed": "bad", "changed": "warn"}


def differences(found: Differences, a: str, b: str, verbose: bool = False) -> Iterator[Block]:
    if found.equal:
        yield Line(f"equal, {compared(found.same)}: {redact(a)} and {redact(b)}", "good")
    elif any(not store.equal for store in found.stores):
        yield Line(f"different: {redact(a)} and {redact(b)}", "bad")
    elif found.stores:
        yield Line(f"what could be compared is equal: {redact(a)} and {redact(b)}", "warn")
    else:
        yield Line(f"cannot be compared: {redact(a)} and {redact(b)}", "warn")
    if found.epochs[0] != found.epochs[1]:
        at = terms_of(found.engine).at
        yield Line(f"{at} {found.epochs[0]} and {at} {found.epochs[1]}", "dim", 2)
    rows = [store for store in found.stores if verbose or not store.equal]
    if rows:
        yield Table(
            ("operator", "store", ">added", ">removed", ">changed", ">same"),
            tuple(
                (
                    s.operator,
                    s.store,
                    number(s.added),
                    number(s.removed),
                    number(s.changed),
                    number(s.same),
                )
                for s in rows
            ),
        )
    for operator, store, why in found.incomparable:
        yield Line(f"not compared: store {store} of operator {operator}: {why}", "warn", 2)
    yield from _shown(found)


def _shown(found: Differences) -> Iterator[Block]:
    if not found.shown:
        return
    yield from section("Differences", *_lines(found))


def _lines(found: Differences) -> Iterator[Block]:
    rows = tuple(
        (
            d.operator,
            d.store,
            Cell(d.change, _TONES[d.change]),
            _compact(d.key),
            _told(d.before, d.after, d.change),
        )
        for d in found.shown
    )
    yield Table(("operator", "store", "", "key", "value"), rows)
    if sum(s.added + s.removed + s.changed for s in found.stores) > len(found.shown):
        yield Line("… and more: --show N shows more of each store", "dim", indent=2)


def _told(before: Any, after: Any, change: str) -> str:
    if change == "changed":
        return f"{_compact(before)} -> {_compact(after)}"
    return _compact(after if change == "added" else before)


def _compact(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    )
