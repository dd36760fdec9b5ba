"""When nothing is moved: hours of the day, and minutes that a cron expression names. Pure.

    07:00-09:30       from the first minute on, until the second; it may go over midnight
    * 8-17 * * 1-5    minute, hour, day of the month, month, day of the week (0 and 7: Sunday)

A field is `*`, a number, a range, each of them with a step behind `/`; or several with commas.
Where both days are given, one of them is enough, as with cron.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

_HOURS = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])\s*-\s*([01]?[0-9]|2[0-3]):([0-5][0-9])")
_PART = re.compile(r"(\*|[0-9]{1,2}(?:-[0-9]{1,2})?)(?:/([0-9]{1,2}))?")
_DAY = 24 * 60
# Of each field: the least and the greatest number.
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
EXPECTED = "hours of the day such as 07:00-09:30, or a cron expression such as * 8-17 * * 1-5"


@dataclass(frozen=True, slots=True)
class _Minutes:
    """The minutes that a cron expression names: what each field may be."""

    fields: tuple[frozenset[int], ...]
    any_day_of_month: bool
    any_day_of_week: bool


def normal_excluded(text: str) -> str | None:
    """Return the one spelling of a period; None for what is none."""
    hours = _hours(text)
    if hours is not None:
        return None if hours[0] == hours[1] else "-".join(map(_clock, hours))
    words = " ".join(text.split())
    return None if _minutes(words) is None else words


def excluding(periods: Iterable[str], moment: datetime) -> str | None:
    """Return the first of these periods in which a moment lies; None if it lies in none."""
    return next((period for period in periods if _holds(period, moment)), None)


def _holds(period: str, moment: datetime) -> bool:
    hours = _hours(period)
    if hours is not None:
        begin, end = hours
        minute = moment.hour * 60 + moment.minute
        return (minute - begin) % _DAY < (end - begin) % _DAY
    minutes = _minutes(period)
    return minutes is not None and _names(minutes, moment)


def _names(minutes: _Minutes, moment: datetime) -> bool:
    """Whether a cron expression names the minute of a moment."""
    minute, hour, _, month, _ = minutes.fields
    if moment.minute not in minute or moment.hour not in hour:
        return False
    return moment.month in month and _names_day(minutes, moment)


def _names_day(minutes: _Minutes, moment: datetime) -> bool:
    """Whether a cron expression names the day of a moment: by both of its fields for days if one
    is a star, by either if both are given.
    """
    _, _, day, _, weekday = minutes.fields
    sunday_or_other = {moment.isoweekday(), moment.isoweekday() % 7}  # Sunday is 0 or 7
    in_month = moment.day in day
    in_week = not sunday_or_other.isdisjoint(weekday)
    if minutes.any_day_of_month or minutes.any_day_of_week:
        return in_month and in_week
    return in_month or in_week


def _hours(text: str) -> tuple[int, int] | None:
    parts = _HOURS.fullmatch(text.strip())
    if parts is None:
        return None
    return int(parts[1]) * 60 + int(parts[2]), int(parts[3]) * 60 + int(parts[4])


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _minutes(text: str) -> _Minutes | None:
    words = text.split()
    if len(words) != len(_BOUNDS):
        return None
    fields = []
    for word, (least, greatest) in zip(words, _BOUNDS, strict=True):
        numbers = _numbers(word, least, greatest)
        if numbers is None:
            return None
        fields.append(numbers)
    return _Minutes(tuple(fields), words[2].startswith("*"), words[4].startswith("*"))


def _numbers(word: str, least: int, greatest: int) -> frozenset[int] | None:
    """Return the numbers that a field names; None where it cannot be read."""
    numbers: set[int] = set()
    for part in word.split(","):
        some = _range(part, least, greatest)
        if not some:
            return None
        numbers.update(some)
    return frozenset(numbers)


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
