"""Days, times and instants as ISO 8601 text, of all the years that Java has.

date_text(19_754)                   2024-02-01
time_text(nanos of the day)         10:15:30, 10:15:30.123, .123456, .123456789
instant_text(seconds, nanos)        2024-02-01T10:15:30.123Z
calendar_of, day_of, nanos_of, local_of, instant_of    the same, read; ValueError for other texts
"""

from __future__ import annotations

import re
from calendar import monthrange
from typing import Final

YEAR_MAX: Final = 999_999_999  # of java.time.LocalDate
_DAY_SECONDS: Final = 86_400
_SECOND_NANOS: Final = 1_000_000_000
_DAYS_OF_400_YEARS: Final = 146_097
_TO_YEAR_0: Final = 719_468  # days from 0000-03-01 to 1970-01-01
_DATE: Final = re.compile(r"([+-]?\d{4,10})-(\d\d)-(\d\d)", re.ASCII)
_TIME: Final = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?", re.ASCII)


def year_month_day(days: int) -> tuple[int, int, int]:
    """Return the date, so many days after 1970-01-01; years begin in March meanwhile."""
    shifted = days + _TO_YEAR_0
    era, day_of_era = divmod(shifted, _DAYS_OF_400_YEARS)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = era * 400 + year_of_era + (1 if month <= 2 else 0)
    return year, month, day


def date_text(days: int) -> str:
    """Return the date, so many days after 1970-01-01."""
    return calendar_text(*year_month_day(days))


def calendar_text(year: int, month: int, day: int) -> str:
    """Return a date; years beyond four digits have a sign, as in Java."""
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def time_text(nanos: int) -> str:
    """Return the time of a day, so many nanoseconds after midnight."""
    seconds, fraction = divmod(nanos, _SECOND_NANOS)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if not fraction:
        return text
    digits = f"{fraction:09}"
    if digits.endswith("000000"):
        return f"{text}.{digits[:3]}"
    return f"{text}.{digits[:6]}" if digits.endswith("000") else f"{text}.{digits}"


def local_text(seconds: int, nanos: int) -> str:
    """Return date and time, so many seconds after 1970-01-01T00:00:00."""
    days, second = divmod(seconds, _DAY_SECONDS)
    return f"{date_text(days)}T{time_text(second * _SECOND_NANOS + nanos)}"


def instant_text(seconds: int, nanos: int) -> str:
    """Return an instant, so many seconds after 1970-01-01T00:00:00Z."""
    return f"{local_text(seconds, nanos)}Z"


def calendar_of(text: str, last_year: int = YEAR_MAX) -> tuple[int, int, int]:
    """Return the year, the month and the day of a date that Java has."""
    date = _DATE.fullmatch(text)
    year, month, day = map(int, date.groups()) if date else (0, 0, 0)
    is_date = 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]
    if not is_date or abs(year) > last_year:
        raise ValueError(f"{text!r} is no date")
    return year, month, day


def day_of(text: str, last_year: int = YEAR_MAX) -> int:
    """Return the days from 1970-01-01 to a date."""
    year, month, day = calendar_of(text, last_year)
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = era * _DAYS_OF_400_YEARS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100
    return days + day_of_year - _TO_YEAR_0


def nanos_of(text: str) -> int:
    """Return the nanoseconds from midnight to the time of a day."""
    time = _TIME.fullmatch(text)
    if time is None:
        raise ValueError(f"{text!r} is no time of a day")
    seconds = (int(time[1]) * 60 + int(time[2])) * 60 + int(time[3])
    return seconds * _SECOND_NANOS + int((time[4] or "0").ljust(9, "0"))


def local_of(text: str, last_year: int = YEAR_MAX) -> tuple[int, int]:
    """Return the seconds from 1970-01-01T00:00:00 to date and time, and nanoseconds."""
    date, _, time = text.partition("T")
    seconds, nanos = divmod(nanos_of(time), _SECOND_NANOS)
    return day_of(date, last_year) * _DAY_SECONDS + seconds, nanos


def instant_of(text: str) -> tuple[int, int]:
    """Return the seconds from 1970-01-01T00:00:00Z to an instant, and nanoseconds."""
    if not text.endswith("Z"):
        raise ValueError(f"{text!r} is no instant in UTC, which ends with Z")
    return local_of(text[:-1], YEAR_MAX + 1)  # as java.time.Instant
