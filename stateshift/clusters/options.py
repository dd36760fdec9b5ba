"""The options of a cluster and of a submission, checked: what is unknown is refused with the
nearest name that is not.

A kind says what it knows as a mapping of names to tests; `read_options` holds the given mapping
against it and raises one SpecError with every complaint, each with its JSON pointer. Values come
back as they were: nothing is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.errors import Complaint, SpecError
from stateshift.suggestion import BRACKETED, did_you_mean


@dataclass(frozen=True, slots=True)
class Expected:
    """What an option's value has to be, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]
    needed: bool = False


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


TEXT = Expected("a text", _text)
NEEDED_TEXT = Expected("a text", _text, needed=True)
TEXTS = Expected("a list of texts", _texts)
ARGUMENTS = Expected(
    "a list of texts and numbers", lambda v: isinstance(v, list | tuple) and all(map(_scalar, v))
)
COMMAND = Expected(
    "a shell command, or a list of its words", lambda v: _text(v) or (_texts(v) and len(v) > 0)
)
NEEDED_COMMAND = Expected(COMMAND.words, COMMAND.fits, needed=True)
SETTINGS = Expected(
    "an object of texts, numbers and booleans",
    lambda v: (
        isinstance(v, Mapping) and all(isinstance(k, str) and _scalar(i) for k, i in v.items())
    ),
)
COUNT = Expected(
    "a whole number, not negative",
    lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0,
)
SECONDS = Expected(
    "a number of seconds, not negative",
    lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v >= 0,
)


FLAG = Expected("true or false", lambda v: isinstance(v, bool))


def read_options(
    options: Mapping[str, Any], known: Mapping[str, Expected], pointer: str
) -> dict[str, Any]:
    """The options, if all of them are known, all that are needed are there, and every value
    fits.
    """
    complaints = [
        _unknown(key, options[key], known, pointer) for key in options if key not in known
    ]
    for key, expected in known.items():
        if key not in options and expected.needed:
            complaints.append(
                Complaint(f"{pointer}/{key}", "is needed and not there", None, expected.words)
            )
        elif key in options and not expected.fits(options[key]):
            complaints.append(
                Complaint(f"{pointer}/{key}", "does not fit", options[key], expected.words)
            )
    if complaints:
        names = ", ".join(sorted(known)) or "no options"
        raise SpecError(tuple(complaints), hint=f"known here: {names}")
    return dict(options)


def settings(value: Any) -> dict[str, str]:
    """An object of scalars as texts, booleans as Spark and the shell spell them."""
    return {
        key: str(item).lower() if isinstance(item, bool) else str(item)
        for key, item in dict(value or {}).items()
    }


def _unknown(key: str, value: Any, known: Mapping[str, Expected], pointer: str) -> Complaint:
    near = did_you_mean(key, known, BRACKETED)
    return Complaint(
        f"{pointer}/{key}", f"unknown option {key!r}{near}", value, ", ".join(sorted(known))
    )
