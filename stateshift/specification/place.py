"""Places in a spec, and complaints of them.

    Place       a value and its JSON pointer (RFC 6901), in the user's own spelling of the keys
    Complaints  everything wrong so far; reading goes on after each, so that all are shown at once

A complaint never repeats a secret: what a URL carries before its host is masked.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stateshift.errors import Complaint

# scheme://user:password@host. A number and a slash behind the colon are a port, with an @ somewhere
# in the path.
_PASSWORD = r"(?!//|\d+(?:[/,]|$))(?P<password>[^\s@]+)@"
CREDENTIALS = re.compile(rf"(?P<user>(?:^|//)[^/\s:@]*:){_PASSWORD}")
CREDENTIALS_OF_URL = re.compile(rf"//[^/\s:@]*:{_PASSWORD}")

_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A plain value, and where it stands."""

    value: Any
    pointer: str

    def __truediv__(self, key: str | int) -> Place:
        """Return the place one step below: a key of the object, or an index of the list."""
        return Place(self.value[key], f"{self.pointer}/{escape(str(key))}")

    @property
    def items(self) -> Iterator[Place]:
        """The places of a list, in order."""
        return (self / index for index in range(len(self.value)))

    def picked(self, keys: Iterable[str]) -> dict[str, object]:
        """Return these keys of the object, each as it stands."""
        return {key: self.value[key] for key in keys}

    @property
    def below(self) -> list[Place]:
        """The places in a list or an object; none of anything else."""
        return [below for _, below in self.children]

    @property
    def children(self) -> Iterator[tuple[str | int, Place]]:
        """The places below, and the key or index of each."""
        keys: Iterable[str | int] = ()
        if isinstance(self.value, list):
            keys = range(len(self.value))
        if isinstance(self.value, dict):
            keys = self.value
        return ((key, self / key) for key in keys)

    @property
    def hidden(self) -> Place:
        """The same place, where its value may be a credential."""
        return Place("(not shown)", self.pointer)

    @property
    def key(self) -> str:
        """The last name in the pointer, as the user wrote it."""
        return self.pointer.rsplit("/", 1)[-1].replace("~1", "/").replace("~0", "~")


# Each a place, the fact, and what is expected instead.
Flaws = Iterator[tuple[Place, str, str]]


@dataclass(slots=True)
class Complaints:
    """The complaints so far, in the order in which they were noticed."""

    made: list[Complaint] = field(default_factory=list)

    def add(self, place: Place, message: str, expected: str | None = None) -> None:
        self.made.append(
            Complaint(place.pointer, readable(mask_passwords(message)), show(place.value), expected)
        )

    def add_all(self, flaws: Flaws) -> None:
        for place, message, expected in flaws:
            self.add(place, message, expected)


def escape(key: str) -> str:
    """Return a key as a part of a JSON pointer."""
    whole = key.encode("utf-8", "backslashreplace").decode()
    return whole.replace("~", "~0").replace("/", "~1")


def quote(value: object) -> str:
    """Return the value as a sentence about it begins."""
    text = show(value)
    if isinstance(value, dict | list):
        return str(text)
    return json.dumps(text, ensure_ascii=False)


def show(value: object) -> object:
    """Return the value as a complaint repeats it: plain JSON, short, without passwords."""
    match value:
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case float() if not math.isfinite(value):
            return str(value)
        case str():
            text = mask_passwords(readable(value))
            return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
        case _:
            return value


def mask_passwords(text: str) -> str:
    """Return the text without the passwords of URLs in it."""
    return CREDENTIALS.sub(r"\g<user>***@", text)


def readable(text: str) -> str:
    """Return the text with everything spelled out that a terminal would not print."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
