"""The rules of event time: windows, sessions and watermarks, in the state and in the code. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise
from math import gcd

from stateshift.check.spark.columns import fields_of, takes
from stateshift.check.spark.pair import Pair
from stateshift.check.spark.query import Operator
from stateshift.check.verdict import Difference

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
