"""The rules of event time, of sources and sinks, and of the lines of a plan; and the `Pair` of a
new query and the checkpoint's that all rules are given. Pure.

    event time  windows, sessions and watermarks, in the state and in the code
    sources     what the offset log is of, against what the code reads; and the sink, of which no
                checkpoint tells anything
    lines       what computes something else now. A line is a node of Spark's plan, from the
                operator down to the ones below, without the numbers of columns. Two things change
                no value and are left out: the columns that are carried along, and aliases, each of
                which is replaced by its column
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import reduce
from itertools import pairwise
from math import gcd

from stateshift.check.spark.columns import fields_of, takes
from stateshift.check.spark.query import CapturedQuery, Operator, Source, StoredQuery
from stateshift.check.verdict import Difference
from stateshift.formats.spark.operator_metadata import AGGREGATION, REAL_TIME_AGGREGATION
from stateshift.specification.transform import Change, Drop, Rename


@dataclass(frozen=True, slots=True)
class Pair:
    """The new query, the checkpoint's, and the old code's where that was given.

    is_behind  whether the new query's file sink lacks the newest batch
    """

    new: CapturedQuery
    stored: StoredQuery
    before: CapturedQuery | None = None
    is_behind: bool = False

    @property
    def shared(self) -> Iterator[tuple[Operator, Operator]]:
        """Yield the operators that both have under one id and name: the old, the new."""
        old = {operator.id: operator for operator in self.stored.operators}
        for operator in self.new.operators:
            if operator.id in old and is_same_kind(old[operator.id], operator):
                yield old[operator.id], operator

    def before_of(self, operator: Operator) -> Operator | None:
        """Return the operator of the old code; None where nobody has given that."""
        own = () if self.before is None else self.before.operators
        return next((each for each in own if each.id == operator.id), None)


def is_same_kind(old: Operator, new: Operator) -> bool:
    """Whether both are of one kind; by their stores where Spark 3 wrote no name."""
    if old.name is None or new.name is None:
        return set(old.stores) == set(new.stores)
    return old.name == new.name or {old.name, new.name} == {AGGREGATION, REAL_TIME_AGGREGATION}


DELAY = "spark.watermarkDelayMs"
GRID_STARTS_MIN = 3  # so many different windows show the grid on which they begin


def windows(pair: Pair) -> Iterator[Difference]:
    """Yield windows of the code that are not those in the state."""
    for _, new in pair.shared:
        spans = pair.stored.spans.get(new.id, ())
        if not spans:
            continue
        if new.name == "sessionWindowStateStoreSaveExec":
            yield from _sessions(new, spans)
        elif new.windows:
            yield from _windows(new, spans)


def _windows(operator: Operator, spans: Sequence[tuple[int, int]]) -> Iterator[Difference]:
    lengths = sorted({end - start for start, end in spans})
    own = sorted({window.length_us for window in operator.windows})
    was, now = (" and ".join(map(_span, each)) for each in (lengths, own))
    place = f"operator {operator.id}"
    if not set(lengths) <= set(own):
        message = f"windows in the state are {was} long, and the code's {now}"
        yield Difference("starts-but", "window-length", place, message, was, now)
        return
    if len(operator.windows) != 1:
        return
    (window,) = operator.windows
    slide = window.slide_us or window.length_us
    starts = sorted({start for start, _ in spans})
    off = [start for start in starts if (start - window.start_us) % slide]
    steps = [later - earlier for earlier, later in pairwise(starts)]
    grid = reduce(gcd, steps, 0)
    is_coarser = len(starts) >= GRID_STARTS_MIN and grid > slide
    if off or is_coarser:
        message = (
            f"windows in the state begin every {_span(grid)}, and the code's every {_span(slide)}"
        )
        if grid % slide == 0 and off:
            message = "windows in the state begin at other times than the code's"
        yield Difference("starts-but", "window-slide", place, message, _span(grid), _span(slide))


def _sessions(operator: Operator, spans: Sequence[tuple[int, int]]) -> Iterator[Difference]:
    gap = _microseconds(operator.gaps[0]) if len(operator.gaps) == 1 else None
    shortest = min(end - start for start, end in spans)
    if gap is None or gap == shortest:
        return
    how = "lasts" if shortest < gap else "lasts at least"
    was, now = _span(shortest), _span(gap)
    message = f"the shortest session in the state {how} {was}, and the code's gap is {now}"
    yield Difference("starts-but", "session-gap", f"operator {operator.id}", message, was, now)


_UNITS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


def _microseconds(gap: str) -> int | None:
    """Return a fixed gap, of Spark's text of an interval; None if each row has its own."""
    text = gap.upper().removeprefix("INTERVAL ")
    text = text.replace("'", "")
    words = text.split()
    amounts, units = words[::2], words[1::2]
    if not words or len(words) % 2:
        return None
    total = 0.0
    for amount, unit in zip(amounts, units, strict=True):
        size = _UNITS.get(unit.removesuffix("S"))
        if size is None or not re.fullmatch(r"-?\d+(\.\d+)?", amount):
            return None
        count = float(amount)
        total += count * size
    return round(total)


def _span(microseconds: float) -> str:
    for unit, name in ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s")):
        if microseconds and microseconds % unit == 0:
            return f"{int(microseconds // unit)} {name}"
    return f"{microseconds / 1000:g} ms"


def watermarks(pair: Pair) -> Iterator[Difference]:
    """Yield event-time columns in the state whose delay is another now."""
    for old, new in pair.shared:
        delays: dict[tuple[int | None, int | None], None] = {}
        for store in new.stores.keys() & old.stores.keys():
            was, now = old.stores[store], new.stores[store]
            for theirs, mine in ((was.key, now.key), (was.value, now.value)):
                before, after = fields_of(theirs), fields_of(mine)
                if takes(after, before, nullability=False):
                    for one, other in zip(before, after, strict=True):
                        delays[one.metadata.get(DELAY), other.metadata.get(DELAY)] = None
        for one_delay, other_delay in delays:
            if one_delay != other_delay:
                yield _delayed(new, one_delay, other_delay)


def delay_text(milliseconds: int | None) -> str:
    """Return a watermark's delay as people write it."""
    return "none" if milliseconds is None else _span(milliseconds * 1000)


def _delayed(operator: Operator, was: int | None, now: int | None) -> Difference:
    old, new = delay_text(was), delay_text(now)
    message = f"the watermark's delay was {old}, and is {new}"
    if now is None:
        message += ": late rows count again, and the state is never cleaned"
    elif was is not None:
        message += ": other rows are late than those that the state was made of"
    return Difference("starts-but", "watermark", f"operator {operator.id}", message, old, new)


DROPPED = "what is dropped stays behind; the rest of the state was made with it"


def sources(pair: Pair) -> Iterator[Difference]:
    """Yield sources that are not those of the offset log."""
    old, new = pair.stored.sources, pair.new.sources
    if len(old) != len(new):
        yield _other_number(old, new)
        return
    exchanged = _exchanged(old, new)
    if exchanged is not None:
        yield exchanged
        return
    for number, (theirs, mine) in enumerate(zip(old, new, strict=True)):
        yield from source_differences(f"source {number}", theirs, mine)


def sinks(pair: Pair) -> Iterator[Difference]:
    """Yield that the old code has another sink, or that a file sink is not the query's own.

    Spark keeps no trace of a sink in a checkpoint, and starts.
    """
    new = pair.new.sink
    if pair.is_behind:
        yield _foreign_log(f"it is {new.text}, which does not have the newest batch")
        return
    old = new if pair.before is None else pair.before.sink
    if (old.kind, old.topics, old.folders) == (new.kind, new.topics, new.folders):
        return
    message = f"it was {old.text}, and is {new.text}: what was written stays in the old one"
    if new.kind == "file":
        yield _foreign_log(message)
    else:
        yield Difference("note", "sink", "sink", message)


def _foreign_log(fact: str) -> Difference:
    message = f"{fact}. Spark starts, and fails when it compacts the log of that folder"
    hint = "keep the folder, or write to the new one with foreachBatch"
    return Difference("never", "sink", "sink", message, hint=hint)


def _other_number(old: Sequence[Source], new: Sequence[Source]) -> Difference:
    message = (
        f"the offset log is of {len(old)} sources, and the code has {len(new)}: "
        "Spark cannot continue"
    )
    was, now = (", ".join(source.text for source in each) for each in (old, new))
    kept = _kept_sources(old, new)
    if kept is None:
        hint = "keep the sources as they were, and give the new one a query of its own"
        return Difference("never", "sources", "query", message, was, now, hint=hint)
    gone = sorted(set(range(len(old))) - set(kept))
    dropped = tuple(map(str, gone))
    moved = {str(number): str(place) for place, number in enumerate(kept) if number != place}
    changes: list[Change] = [Drop(sources=dropped)]
    if moved:
        changes.append(Rename(sources=moved))
    return Difference(
        "starts-after", "sources", "query", message, was, now, tuple(changes), hint=DROPPED
    )


def _kept_sources(old: Sequence[Source], new: Sequence[Source]) -> list[int] | None:
    """Return the old sources' numbers that the new ones have, if each is told by what it reads."""
    kept = []
    for source in new:
        same = [number for number, each in enumerate(old) if each.reads_as(source)]
        if len(same) != 1 or same[0] in kept:
            return None
        kept.append(same[0])
    return kept


def _exchanged(old: Sequence[Source], new: Sequence[Source]) -> Difference | None:
    kept = _kept_sources(old, new)
    if kept is None or kept == sorted(kept):
        return None
    if not all(source.rested for source in old if source.places):
        return None  # Spark refuses files of another folder
    message = "sources are in another order: each continues from another one's offsets"
    was, now = (", ".join(source.text for source in each) for each in (old, new))
    return Difference(
        "starts-but", "source-order", "query", message, was, now, hint="write them in the old order"
    )


def source_differences(place: str, old: Source, new: Source) -> Iterator[Difference]:
    """Yield the differences of one source."""
    if not old.is_of_kind(new):
        message = f"the offset log is of {old.kind}, and the code reads {new.kind}"
        hint = "start the query with a new checkpoint, or keep the source"
        yield Difference("never", "source-kind", place, message, old.text, new.text, hint=hint)
    elif gone := old.unread_by(new):
        yield _lost(place, old, new, gone)
    elif old.places and new.places and not old.reads_as(new):
        yield _other_place(place, old, new)


def _lost(place: str, old: Source, new: Source, gone: Sequence[str]) -> Difference:
    """Return the difference of topics that are no longer read: for Kafka's source, lost data."""
    fact = f"the offset log has offsets of {', '.join(gone)}, which the code does not read"
    if not new.fails_on_loss:
        return Difference("starts-but", "source-topics", place, fact, old.text, new.text)
    message = f"{fact}: Spark fails with 'Some data may have been lost'"
    hint = (
        "failOnDataLoss false leaves their last records unread; where another topic takes the "
        "place of one, stateshift reposition --topic OLD=NEW"
    )
    return Difference(
        "starts-after", "source-topics", place, message, old.text, new.text, hint=hint
    )


def _other_place(place: str, old: Source, new: Source) -> Difference:
    """Return the difference of a file source that reads elsewhere.

    Spark lists the files of the newest batch once more, as files below the new folder
    (MicroBatchExecution.populateStartOffsets, PartitioningAwareFileIndex.basePaths). If the source
    had none in it, or has no folder but a pattern, there is nothing that does not fit.
    """
    was, now = old.text, new.text
    if old.rested or any("*" in path for path in new.places):
        message = f"the source was {was}: all files of {now} are new to it"
        return Difference("starts-but", "source-place", place, message, was, now)
    message = f"the source was {was}, and is {now}: Spark fails with 'Wrong basePath'"
    hint = "give the file the arguments that it has in production: after -- on the command line"
    return Difference("never", "source-place", place, message, was, now, hint=hint)


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
