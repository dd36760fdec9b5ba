"""An option that takes one word of a few."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound=str)


def choice(flag: str, text: str, choices: tuple[T, ...]) -> T:
    """Return the word that an option was given, or refuse it with those there are."""
    from stateshift.errors import Complaint, SpecError

    for known in choices:
        if text.strip().lower() == known:
            return known
    names = ", ".join(choices)
    complaint = Complaint(flag, f"{text!r} is not one of {names}", text, f"one of {names}")
    raise SpecError((complaint,), hint=f"{flag} {choices[0]}")
