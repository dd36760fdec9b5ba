"""The options of a cluster and of a submission, checked: what is unknown is refused with the
nearest name that is not.

A kind says what it knows as a mapping of names to tests; `read_options` holds the given mapping
against it and raises one SpecError with every complaint, each with its JSON pointer. Values come
back as they were: nothing is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from stateshift.errors import Complaint, SpecError
from stateshift.plain import JsonObject
from stateshift.suggestion import BRACKETED, did_you_mean

# What a spec gives a cluster or a submission. The types of the values are those that `read_options`
# has checked, and no others.
Options: TypeAlias = JsonObject


@dataclass(frozen=True, slots=True)
class Expected:
    """What an option's value has to be, in words and as a test."""

    words: str
    fits: Callable[[object], bool]
    needed: bool = False


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _scalar(value: object) -> bool:
    return isinstance(value, str | int | float)


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _scalars(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_scalar, value))


def _command(value: object) -> bool:
    return _text(value) or (_texts(value) and value != [] and value != ())


def _settings(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(name, str) for name in value) and all(map(_scalar, value.values()))


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


TEXT = Expected("a text", _text)
NEEDED_TEXT = Expected("a text", _text, needed=True)
TEXTS = Expected("a list of texts", _texts)
ARGUMENTS = Expected("a list of texts and numbers", _scalars)
COMMAND = Expected("a shell command, or a list of its words", _command)
NEEDED_COMMAND = Expected(COMMAND.words, COMMAND.fits, needed=True)
SETTINGS = Expected("an object of texts, numbers and booleans", _settings)
COUNT = Expected("a whole number, not negative", _count)
SECONDS = Expected("a number of seconds, not negative", _seconds)
FLAG = Expected("true or false", lambda v: isinstance(v, bool))


def read_options(options: Options, known: Mapping[str, Expected], pointer: str) -> Options:
    """Return the options, if all of them are known, all that are needed are there, and every value
    fits.
    """
    complaints = [
        _unknown(key, options[key], known, pointer) for key in options if key not in known
    ]
    for key, expected in known.items():
        place = f"{pointer}/{key}"
        if key in options:
            if not expected.fits(options[key]):
                complaints.append(Complaint(place, "does not fit", options[key], expected.words))
        elif expected.needed:
            complaints.append(Complaint(place, "is needed and not there", None, expected.words))
    if complaints:
        names = ", ".join(sorted(known)) or "no options"
        raise SpecError(tuple(complaints), hint=f"known here: {names}")
    return dict(options)


def settings(values: Mapping[str, object] | None) -> dict[str, str]:
    """Return an object of scalars as texts."""
    return {name: as_text(value) for name, value in (values or {}).items()}


def as_text(value: object) -> str:
    """Return a scalar as text, booleans as Spark and the shell spell them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unknown(key: str, value: object, known: Mapping[str, Expected], pointer: str) -> Complaint:
    near = did_you_mean(key, known, BRACKETED)
    return Complaint(
        f"{pointer}/{key}", f"unknown option {key!r}{near}", value, ", ".join(sorted(known))
    )
