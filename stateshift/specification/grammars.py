"""Texts of a spec with a grammar of their own: when jobs move, and when they do not. Pure.

strategy   "fluid", "all-at-once", "batched(3)", "optimised"     (`dataflow.move_steps` moves by it)
until      "remaining < 5s"     stop once what is left to copy would take less than that
cutover    "ready"              as soon as `until` is reached
           "manual"             not before somebody says so: stateshift cutover WORKDIR
           "never"              likewise; and what has been copied can be started from at any time
           "22:00-04:30 UTC"    not outside of these hours; without UTC they are this machine's
excluded   "07:00-09:30"        from the first minute on, until the second; it may go over midnight
           "* 8-17 * * 1-5"     minute, hour, day of the month, month, day of the week (0 and 7:
                                Sunday). A field is `*`, a number, a range, each of them with a step
                                behind `/`; or several with commas. If both days are given, one of
                                them is enough, as with cron.
by         "offsets"            the way to a topic's new offsets (WAYS_EXPECTED)
           "timestamp:1795…"

`normal_x` returns the one spelling of an x; None for a text that is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain


def fold(spelling: str) -> str:
    """Return a spelling without case, blanks, `_` and `-`, in which keys may differ."""
    return spelling.lower().replace(" ", "").replace("_", "").replace("-", "")


# -------------------------------------------------------------------------- strategy

STRATEGY_EXPECTED = "all-at-once, fluid, batched(k) with k moves at a time, or optimised"
_STRATEGIES = {
    "allatonce": "all-at-once",
    "fluid": "fluid",
    "optimised": "optimised",
    "optimized": "optimised",
}
_BATCHED = re.compile(r"\s*batched\s*\(\s*0*([1-9][0-9]{0,8})\s*\)\s*", re.IGNORECASE)


def normal_strategy(text: str) -> str | None:
    """Return the one spelling of a strategy."""
    match = _BATCHED.fullmatch(text)
    return f"batched({match[1]})" if match is not None else _STRATEGIES.get(fold(text.strip()))


# -------------------------------------------------------------------------- until and cutover

READY, MANUAL, NEVER = "ready", "manual", "never"
_OLD_WORDS = {"told": MANUAL}  # in specs of earlier versions
SECONDS = 5.0  # that may remain where the spec does not say

UNTIL = r"\s*remaining\s*<\s*([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(ms|s|sec|seconds?|min|minutes?)\s*"
WINDOW = r"\s*([01]?[0-9]|2[0-3]):([0-5][0-9])\s*-\s*([01]?[0-9]|2[0-3]):([0-5][0-9])\s*(UTC)?\s*"
_UNITS = {"m": 60.0, "ms": 0.001, "s": 1.0}
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of a day, in minutes since midnight; the second may lie on the next day."""

    begin: int
    end: int
    utc: bool

    def open_at(self, now: float) -> bool:
        """Whether it is open at this time, in seconds since the epoch."""
        return self.holds(datetime.fromtimestamp(now, UTC if self.utc else None))

    def holds(self, moment: datetime) -> bool:
        minute = moment.hour * 60 + moment.minute
        length = (self.end - self.begin) % _DAY or _DAY
        return (minute - self.begin) % _DAY < length

    @property
    def text(self) -> str:
        """The hours in their one spelling, without UTC."""
        ends = (f"{minute // 60:02}:{minute % 60:02}" for minute in (self.begin, self.end))
        return "-".join(ends)


def seconds_of(until: str | None) -> float:
    """Return the seconds of `until`; the default where there is none."""
    match = re.fullmatch(UNTIL, until or "", re.IGNORECASE)
    if match is None:
        return SECONDS
    unit = match[2].lower()
    return float(match[1]) * _UNITS["ms" if unit == "ms" else unit[0]]


def normal_until(text: str) -> str | None:
    """Return the one spelling of a time that may remain."""
    if re.fullmatch(UNTIL, text, re.IGNORECASE) is None:
        return None
    seconds = seconds_of(text)
    return f"remaining < {seconds:g}s" if seconds > 0 else None


def normal_cutover(text: str) -> str | None:
    """Return the one spelling of a word or a window."""
    word = text.strip().lower()
    word = _OLD_WORDS.get(word, word)
    if word in (READY, MANUAL, NEVER):
        return word
    window = window_of(text)
    if window is None or window.begin == window.end:
        return None
    return f"{window.text} UTC" if window.utc else window.text


def window_of(cutover: str) -> Window | None:
    """Return the hours that `cutover` names; None where it names none."""
    match = re.fullmatch(WINDOW, cutover, re.IGNORECASE)
    if match is None:
        return None
    begin = int(match[1]) * 60 + int(match[2])
    end = int(match[3]) * 60 + int(match[4])
    return Window(begin, end, utc=match[5] is not None)


# -------------------------------------------------------------------------- new offsets

BY_FILE, BY_TIMESTAMP, BY_RECORDS, BY_MIRROR = "offsets", "timestamp", "records", "mirrormaker"
EARLIEST, LATEST = "earliest", "latest"
_WAYS = (BY_FILE, BY_TIMESTAMP, BY_RECORDS, BY_MIRROR, EARLIEST, LATEST)
BY_COMPARING = (BY_RECORDS, BY_TIMESTAMP, BY_MIRROR)  # the records of both sides
WAYS_EXPECTED = f"{', '.join(_WAYS)} or timestamp:MS (milliseconds since 1970)"
_AT = re.compile(r"timestamp:([0-9]{1,15})")


def normal_way(text: str) -> str | None:
    """Return the one spelling of the way to a topic's new offsets; None for anything else."""
    way = text.strip().lower()
    return way if way in _WAYS or _AT.fullmatch(way) else None


def milliseconds_of(way: str) -> int | None:
    """Return the time of `timestamp:MS`; None of another way."""
    match = _AT.fullmatch(way)
    return None if match is None else int(match[1])


# -------------------------------------------------------------------------- excluded periods

EXCLUDED_EXPECTED = (
    "hours of the day such as 07:00-09:30, or a cron expression such as * 8-17 * * 1-5"
)
_PART = re.compile(r"(\*|[0-9]{1,2}(?:-[0-9]{1,2})?)(?:/([0-9]{1,2}))?")
# The least and the greatest number of each field.
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@dataclass(frozen=True, slots=True)
class _Cron:
    """A cron expression, and the numbers that each of its fields names."""

    text: str
    fields: tuple[frozenset[int], ...]

    def holds(self, moment: datetime) -> bool:
        """Whether it names a moment's minute. Two given fields for days are alternatives."""
        minutes, hours, days, months, weekdays = self.fields
        sunday_or_other = {moment.isoweekday(), moment.isoweekday() % 7}  # Sunday is 0 or 7
        in_month = moment.day in days
        in_week = not sunday_or_other.isdisjoint(weekdays)
        _, _, day, _, weekday = self.text.split()
        is_day = in_month or in_week
        if "*" in (day[0], weekday[0]):
            is_day = in_month and in_week
        is_time = moment.minute in minutes and moment.hour in hours
        return is_day and is_time and moment.month in months


def normal_excluded(text: str) -> str | None:
    """Return the one spelling of a period."""
    period = _period(text)
    if isinstance(period, Window) and period.begin == period.end:
        return None
    return None if period is None else period.text


def excluding(periods: Iterable[str], moment: datetime) -> str | None:
    """Return the first of these periods in which a moment lies; None if it lies in none."""
    for text in periods:
        period = _period(text)
        if period is not None and period.holds(moment):
            return text
    return None


def _period(text: str) -> Window | _Cron | None:
    hours = window_of(text)
    if hours is not None and not hours.utc:
        return hours
    words = text.split()
    if len(words) != len(_BOUNDS):
        return None
    fields = []
    for word, (least, greatest) in zip(words, _BOUNDS, strict=True):
        ranges = [_range(part, least, greatest) for part in word.split(",")]
        if not all(ranges):
            return None
        fields.append(frozenset(chain.from_iterable(filter(None, ranges))))
    return _Cron(" ".join(words), tuple(fields))


def _range(part: str, least: int, greatest: int) -> range | None:
    parts = _PART.fullmatch(part)
    if parts is None:
        return None
    first, _, last = parts[1].partition("-")
    low = least if first == "*" else int(first)
    high = int(last) if last else low
    if first == "*" or (parts[2] and not last):
        high = greatest
    step = int(parts[2] or 1)
    if low < least or high > greatest or step < 1:
        return None
    return range(low, high + 1, step)


# -------------------------------------------------------------------------- sizes and rates


def bytes_of(text: str) -> int:
    """Return a size from `50MB`, `64MiB`, `1e9`; ValueError with the reason where it is none."""
    try:
        return int(_measured(text.strip().lower()))
    except ValueError:
        raise ValueError(f"{text!r} is not a size: write it as 500MB or 2GiB") from None


def rate(text: str) -> float:
    """Return bytes per second of `50MB`, `50 MB/s`, `64MiB`, `1e6`; else raise ValueError."""
    try:
        return _measured(text.strip().lower().removesuffix("/s").strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a rate: write it as 50MB or 64MiB (a second)") from None


def _measured(plain: str) -> float:
    """Return a positive number with a unit of bytes."""
    digits = plain.rstrip("kmgtib ")
    factors = {"": 1, "b": 1}
    for power, letter in enumerate("kmgt", start=1):
        factors |= {f"{letter}b": 1000**power, letter: 1000**power, f"{letter}ib": 1024**power}
    unit = plain[len(digits) :].strip()
    if unit not in factors:
        raise ValueError(unit)
    value = float(digits) * factors[unit]
    if not 0 < value < float("inf"):
        raise ValueError(plain)
    return value
