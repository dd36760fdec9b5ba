"""The lines of two plans of one operator: what computes something else now. Pure.

A line is a node of Spark's plan, from the operator down to the ones below, without the numbers of
columns. Two things change no value and are left out: the columns that are carried along, and
aliases, each of which is replaced by its column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_ALIAS = re.compile(r"(?<![\w)])(\w+)(-T\d+ms)? AS (\w+)")
_GENERATED = re.compile(r"(?P<value>.*), (?:true|false), \[(?P<column>\w+)\]$")
_WATERMARK = re.compile(r"-T\d+ms")
_MODE = re.compile(r"\b(Append|Update|Complete)\b")

# The rule that a changed line of this node breaks.
RULES = {
    "StateStoreSave": "output-mode",
    "HashAggregate": "aggregate",
    "SortAggregate": "aggregate",
    "ObjectHashAggregate": "aggregate",
    "Project": "expression",
    "Expand": "expression",
    "StreamingSymmetricHashJoin": "join",
    "Filter": "filter",
}


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """A line of the plan that is another now."""

    rule: str
    old: str
    new: str


def changed_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[ChangedLine]:
    """Yield the lines that compute something else."""
    before, after = _meaningful(old), _meaningful(new)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, new_first, new_last in matcher.get_opcodes():
        if kind == "equal":
            continue
        gone, come = "; ".join(before[first:last]), "; ".join(after[new_first:new_last])
        nodes = [*before[first:last], *after[new_first:new_last]]
        rules = [RULES.get(re.split(r"[ (]", node)[0], "expression") for node in nodes]
        if all(rule == "filter" for rule in rules):
            yield ChangedLine("filter", gone, come)
        else:
            rule = next(rule for rule in rules if rule != "filter")
            yield ChangedLine(rule, gone, come)


def aliases(lines: Sequence[str]) -> dict[str, str]:
    """Return the columns that aliases stand for, in these lines."""
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith("Project "):
            found |= {alias: column for column, _, alias in _ALIAS.findall(line)}
        elif generated := _generated(line):
            found[generated["column"]] = generated["value"]
    return found


def _generated(line: str) -> re.Match[str] | None:
    """Return the function of a generator that makes one column, and the name of that."""
    return _GENERATED.match(line) if line.startswith("Generate ") else None


def _meaningful(lines: Sequence[str]) -> list[str]:
    renamed = without_aliases([_WATERMARK.sub("", line) for line in lines])
    kept: list[str] = []
    for line in renamed:
        node = re.split(r"[ (]", line)[0]
        if node in ("StreamingRelation", "EventTimeWatermark", "ColumnarToRow"):
            continue
        if node == "Project":
            computed = [part for part in parts_of(line[len("Project [") : -1]) if "(" in part]
            line = f"Project [{', '.join(sorted(computed))}]" if computed else ""
        if node == "StateStoreSave":
            mode = _MODE.search(line)
            line = f"{node} {mode[0]}" if mode else node
        if node == "Filter":
            line = line.replace("isnotnull", "IsNotNull")
        line = re.sub(r"^(Hash|Sort|ObjectHash)Aggregate\((keys?)=", "HashAggregate(keys=", line)
        line = re.sub(r", output=\[.*\]\)$", ")", line)
        if line and (not kept or kept[-1] != line):
            kept.append(line)
    return kept


def without_aliases(lines: Sequence[str]) -> list[str]:
    """Replace each alias of a column, in the nodes above its projection, by that column.

    The column of a generator is called by its number.
    """
    done: list[str] = []
    for line in lines:
        if line.startswith("Project "):
            named = _ALIAS.findall(line)
            for column, _, alias in named:
                word = re.escape(alias)
                pattern = re.compile(rf"\b{word}\b")
                done = [pattern.sub(column, above) for above in done]
            line = _ALIAS.sub(r"\1", line)
        elif generated := _generated(line):
            column = re.compile(rf"\b{generated['column']}\b")
            number = len([above for above in done if above.startswith("Generate ")])
            done = [column.sub(f"generated{number}", above) for above in done]
            line = generated["value"]
        done.append(line)
    return done


def parts_of(text: str) -> list[str]:
    """Return the parts of a list, which commas outside parentheses divide."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]
