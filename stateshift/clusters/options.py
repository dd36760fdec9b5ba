"""The options of a cluster and of a submission, checked: what is unknown is refused with the
nearest name that is not.

A kind says what it knows as a mapping of names to tests, which `specification.options` has for the
kinds that come with stateshift. `read_options` holds the given mapping against it, and raises one
SpecError with every complaint, each with its JSON pointer. Nothing is converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from stateshift.errors import Complaint, SpecError
from stateshift.plain import JsonObject
from stateshift.specification.options import (
    ARGUMENTS,
    COMMAND,
    COUNT,
    FLAG,
    NEEDED_COMMAND,
    NEEDED_TEXT,
    SECONDS,
    SETTINGS,
    TEXT,
    TEXTS,
    Expected,
)
from stateshift.suggestion import BRACKETED, did_you_mean

__all__ = [
    "ARGUMENTS",
    "COMMAND",
    "COUNT",
    "FLAG",
    "NEEDED_COMMAND",
    "NEEDED_TEXT",
    "SECONDS",
    "SETTINGS",
    "TEXT",
    "TEXTS",
    "Expected",
    "Options",
    "as_text",
    "read_options",
    "settings",
]

# A spec's options of a cluster or a submission. The types of the values are those that
# `read_options` has checked, and no others.
Options: TypeAlias = JsonObject


def read_options(options: Options, known: Mapping[str, Expected], pointer: str) -> Options:
    """Return the options, if all are known, all that are needed are there, and all fit."""
    names = ", ".join(sorted(known)) or "no options"
    complaints = []
    for key in filter(lambda key: key not in known, options):
        near = did_you_mean(key, known, BRACKETED)
        place = f"{pointer}/{key}"
        complaints.append(Complaint(place, f"unknown option {key!r}{near}", options[key], names))
    for key, expected in known.items():
        place = f"{pointer}/{key}"
        if key not in options:
            if expected.needed:
                message = "is needed and not there"
                complaints.append(Complaint(place, message, None, expected.words))
        elif not expected.fits(options[key]):
            complaints.append(Complaint(place, "does not fit", options[key], expected.words))
    if complaints:
        raise SpecError(tuple(complaints), hint=f"known here: {names}")
    return dict(options)


def settings(values: Mapping[str, object] | None) -> dict[str, str]:
    """Return an object of scalars as texts."""
    return {name: as_text(value) for name, value in (values or {}).items()}


def as_text(value: object) -> str:
    """Return a scalar as text, booleans as Spark and the shell spell them."""
    return str(value).lower() if isinstance(value, bool) else str(value)
