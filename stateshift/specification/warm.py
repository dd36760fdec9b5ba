"""How a job moves while it runs: until when it is copied, and when it may be stopped. Pure.

until      "remaining < 5s"     stop once what is left to copy would take less than that
cutover    "ready"              as soon as `until` is reached
           "manual"             not before somebody says so: stateshift cutover WORKDIR
           "never"              likewise; and what has been copied can be started from at any time
           "22:00-04:30 UTC"    not outside of these hours; without UTC they are this machine's
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

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


def seconds_of(until: str | None) -> float:
    """Return the seconds of `until`; the default where there is none."""
    match = re.fullmatch(UNTIL, until or "", re.IGNORECASE)
    if match is None:
        return SECONDS
    unit = match[2].lower()
    return float(match[1]) * _UNITS["ms" if unit == "ms" else unit[0]]


def normal_until(text: str) -> str | None:
    """Return the one spelling; None for what says nothing of the kind."""
    if re.fullmatch(UNTIL, text, re.IGNORECASE) is None:
        return None
    seconds = seconds_of(text)
    return f"remaining < {seconds:g}s" if seconds > 0 else None


def normal_cutover(text: str) -> str | None:
    """Return the one spelling of a word or a window; None for neither."""
    word = text.strip().lower()
    word = _OLD_WORDS.get(word, word)
    if word in (READY, MANUAL, NEVER):
        return word
    window = window_of(text)
    if window is None or window.begin == window.end:
        return None
    hours = f"{clock(window.begin)}-{clock(window.end)}"
    return f"{hours} UTC" if window.utc else hours


def clock(minute: int) -> str:
    """Return a minute of the day as hours and minutes."""
    return f"{minute // 60:02}:{minute % 60:02}"


def window_of(cutover: str) -> Window | None:
    """Return the hours that `cutover` names; None where it names none."""
    match = re.fullmatch(WINDOW, cutover, re.IGNORECASE)
    if match is None:
        return None
    begin = int(match[1]) * 60 + int(match[2])
    end = int(match[3]) * 60 + int(match[4])
    return Window(begin, end, utc=match[5] is not None)
