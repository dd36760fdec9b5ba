"""Findings as lines: refusals first, each with its hint and the name by which it can be waived.
Pure.

Findings of one kind differ only in paths, numbers and quoted names. From three on, the first one
is shown, and how many more there are: a workflow has as many queries as it likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Line, Tone
from stateshift.cli.views.units import number
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.survey import Finding

ORDER = ("refuse", "warn", "note")
TONES: dict[str, Tone] = {"refuse": "bad", "warn": "warn", "note": ""}
EACH_MAX = 2  # of a kind; a line that counts one more would be as long as the finding

# The parts that may differ between findings of one kind: texts in quotes, paths, numbers.
# A word is looked through from its beginning alone: a name of 60,000 letters is one, too.
_PLACE = re.compile(
    r"""'[^']*'|"[^"]*"|`[^`]*`|(?<![^\s:,;()'"`])[^\s:,;()]*/[^\s,;()]*|\d[\d,.]*"""
)

Kind = tuple[str, str | None, str, str]


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one kind, in the order they were made."""

    findings: tuple[Finding, ...]

    @property
    def level(self) -> str:
        """The level that all of them have."""
        return self.findings[0].level


def findings(noted: Iterable[Finding], verbose: bool = False) -> Iterator[Block]:
    """Show findings, the worst first; `verbose` shows each, else kinds are shown once.

    A finding that is made twice (two jobs may find the same) is always shown once.
    """
    groups = groups_of(dict.fromkeys(noted))
    for group in sorted(groups, key=lambda group: ORDER.index(group.level)):
        are_all_shown = verbose or len(group.findings) <= EACH_MAX
        for finding in group.findings if are_all_shown else group.findings[:1]:
            yield from _finding(finding)
        if not are_all_shown:
            more = number(len(group.findings) - 1)
            yield Line(f"and {more} more like this: --verbose shows each", "dim", 4)


def groups_of(noted: Iterable[Finding]) -> list[FindingGroup]:
    """Return the findings by kind, in the order in which each kind was first met."""
    by_kind: dict[Kind, list[Finding]] = {}
    for finding in noted:
        by_kind.setdefault(kind_of(finding), []).append(finding)
    return [FindingGroup(tuple(group)) for group in by_kind.values()]


def kind_of(finding: Finding) -> Kind:
    """Return the key that findings of one kind share.

    Two refusals that need different things done about them are of two kinds.
    """
    hint = finding.hint or ""
    shared_hint = hint if finding.level == "refuse" else _PLACE.sub("…", hint)
    return finding.level, finding.waive, _PLACE.sub("…", finding.message), shared_hint


def _finding(finding: Finding) -> Iterator[Block]:
    at = "" if finding.offset is None else f" (at byte {finding.offset})"
    yield Line(f"{finding.level}: {redact(finding.message)}{at}", TONES[finding.level], 2)
    hint = finding.hint or ""
    if hint:
        yield Line(f"hint: {redact(hint)}", "dim", 4)
    if finding.level == "refuse" and finding.waive and finding.waive not in hint:
        yield Line(f'waive it in the job: "waive": ["{finding.waive}"]', "dim", 4)
