"""Periods in which nothing is moved: hours of the day, and minutes of a cron expression. Pure.

    07:00-09:30       from the first minute on, until the second; it may go over midnight
    * 8-17 * * 1-5    minute, hour, day of the month, month, day of the week (0 and 7: Sunday)

A field is `*`, a number, a range, each of them with a step behind `/`; or several with commas.
If both days are given, one of them is enough, as with cron.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain

from stateshift.specification.warm import Window, clock, window_of

_PART = re.compile(r"(\*|[0-9]{1,2}(?:-[0-9]{1,2})?)(?:/([0-9]{1,2}))?")
# The least and the greatest number of each field.
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
EXPECTED = "hours of the day such as 07:00-09:30, or a cron expression such as * 8-17 * * 1-5"


def normal_excluded(text: str) -> str | None:
    """Return the one spelling of a period; None for what is none."""
    hours = _hours(text)
    if hours is not None:
        is_empty = hours.begin == hours.end
        return None if is_empty else f"{clock(hours.begin)}-{clock(hours.end)}"
    words = " ".join(text.split())
    return None if _cron_fields(words) is None else words


def excluding(periods: Iterable[str], moment: datetime) -> str | None:
    """Return the first of these periods in which a moment lies; None if it lies in none."""
    return next((period for period in periods if _holds(period, moment)), None)


def _holds(period: str, moment: datetime) -> bool:
    hours = _hours(period)
    if hours is not None:
        return hours.holds(moment)
    fields = _cron_fields(period)
    return fields is not None and _names(period, fields, moment)


def _names(period: str, fields: Sequence[frozenset[int]], moment: datetime) -> bool:
    """Whether a cron expression names the minute of a moment: its day by both of its fields for
    days if one is a star, by either if both are given.
    """
    minutes, hours, days, months, weekdays = fields
    sunday_or_other = {moment.isoweekday(), moment.isoweekday() % 7}  # Sunday is 0 or 7
    in_month = moment.day in days
    in_week = not sunday_or_other.isdisjoint(weekdays)
    _, _, day, _, weekday = period.split()
    is_day = in_month or in_week
    if "*" in (day[0], weekday[0]):
        is_day = in_month and in_week
    is_time = moment.minute in minutes and moment.hour in hours
    return is_day and is_time and moment.month in months


def _hours(text: str) -> Window | None:
    window = window_of(text)
    return None if window is None or window.utc else window


def _cron_fields(text: str) -> list[frozenset[int]] | None:
    """Return the numbers that each field names; None where one cannot be read."""
    words = text.split()
    if len(words) != len(_BOUNDS):
        return None
    fields = []
    for word, (least, greatest) in zip(words, _BOUNDS, strict=True):
        ranges = [_range(part, least, greatest) for part in word.split(",")]
        if not all(ranges):
            return None
        fields.append(frozenset(chain.from_iterable(filter(None, ranges))))
    return fields


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
