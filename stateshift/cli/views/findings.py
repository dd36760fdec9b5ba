"""Findings as lines: refusals first, each with its hint and the name by which it can be waived.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Line, Tone
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.survey import Finding

ORDER = ("refuse", "warn", "note")
TONES: dict[str, Tone] = {"refuse": "bad", "warn": "warn", "note": ""}


def findings(found: Iterable[Finding], indent: int = 2) -> Iterator[Block]:
    """Those that are told twice (two jobs may find the same) are shown once."""
    for one in sorted(dict.fromkeys(found), key=lambda f: ORDER.index(f.level)):
        at = f" (at byte {one.offset})" if one.offset is not None else ""
        yield Line(f"{one.level}: {redact(one.message)}{at}", TONES[one.level], indent)
        if one.hint:
            yield Line(f"hint: {redact(one.hint)}", "dim", indent + 2)
        if one.waive and one.level == "refuse" and one.waive not in (one.hint or ""):
            yield Line(f'waive it in the job: "waive": ["{one.waive}"]', "dim", indent + 2)
