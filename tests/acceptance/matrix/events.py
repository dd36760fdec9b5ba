"""The input of all jobs of the matrix: events of words with an even number in one folder, with an
odd one in the other.

    number  0 1 2          each word of the first eight several times, half a minute a file
            3              all twelve words, and at its end an event a day later
            4              one more of that day: now everything before has passed

Files of one number end at the same time in both, so that watermarks are the same whichever of the
two a job reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.acceptance.support import write_records

PARITIES = ("even", "odd")
BEFORE, ALL = 3, 5  # files of each input: as many batches
WORDS_BEFORE, WORDS_AFTER = 4, 6  # of each parity


def feed(folder: Path, first: int, last: int) -> None:
    """Files of both inputs. The last two are a day later, so that all that waits for its end has
    it.
    """
    for number in range(first, last):
        for parity, name in enumerate(PARITIES):
            write_records(
                folder / "input" / name / f"{number:03}.json", list(_events(number, parity))
            )


def unfeed(folder: Path) -> None:
    """As it was before the rest of the input."""
    for parity in PARITIES:
        for number in range(BEFORE, ALL):
            (folder / "input" / parity / f"{number:03}.json").unlink(missing_ok=True)


def words_of(parity: str) -> tuple[str, ...]:
    return tuple(f"w{2 * n + PARITIES.index(parity)}" for n in range(WORDS_AFTER))


def _events(number: int, parity: int) -> Iterable[dict[str, Any]]:
    if number < ALL - 1:
        words = WORDS_BEFORE if number < BEFORE else WORDS_AFTER
        for j in range(12):
            yield _event(
                number * 24 + 2 * j + parity,
                number * 30 + j * 2.5,
                2 * ((j // 2 + number) % words) + parity,
            )
    if number >= BEFORE:
        yield _event(1000 * number + parity, 86_400 + 60 * number, parity)


def _event(number: int, seconds: float, word: int) -> dict[str, Any]:
    day, rest = divmod(seconds, 86_400)
    minute, second = divmod(rest, 60)
    at = f"2026-01-{1 + int(day):02}T00:{int(minute):02}:{second:06.3f}Z"
    return {"id": number, "at": at, "word": f"w{word}", "amount": number * number}
