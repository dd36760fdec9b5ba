"""Text to a plain tree: JSON, with what JSON itself lets pass refused, and `${NAME}` replaced.

    read_text("{...}")  -> Place of dictionaries, lists, strings, numbers; SpecError where it is not
                        JSON
    "${HOME}/in"           the variable's value; one that is not set is a complaint
    "$${HOME}"             the characters ${HOME}, for a shell to read

Keys are never replaced. Refused are: a key that stands twice in one object, NaN and infinities,
text that no file name or log can hold (a NUL, half a surrogate pair), a user's password inside a
URL, and bottomless nesting.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from stateshift.errors import Complaint, SpecError
from stateshift.specification.place import CREDENTIALS_OF_URL, Complaints, Place

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DEPTH_MAX = 40

WHERE_CREDENTIALS_BELONG = (
    "credentials in fsspec's own configuration, ~/.hdfscli.cfg, the environment of the program "
    "that needs them, or a file that the spec only names"
)


class _JsonObject(dict[str, Any]):
    """An object as it was written: `twice` names the keys that came again; the first value
    counts.
    """

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__()
        self.twice: dict[str, None] = {}
        for key, value in pairs:
            if key in self:
                self.twice[key] = None
            else:
                self[key] = value


def read_text(text: str, environment: Mapping[str, str], complaints: Complaints) -> Place:
    """Return the tree of a JSON text, settled: every string is final, and every complaint about the
    text itself is made.
    """
    return Place(_Settler(environment, complaints).settle(Place(_decode(text), "")), "")


def protect(text: str) -> str:
    """Return the text as a spec has to spell it, so that no `${` in it is replaced."""
    return text.replace("${", "$${")


def _decode(text: str) -> object:
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_JsonObject)
    except json.JSONDecodeError as error:
        # The line itself is not repeated: there may be a password in it.
        fact = f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        cause: Exception = error
    except RecursionError as error:
        fact, cause = "not a spec: nested too deeply", error
    except ValueError as error:  # a number of more digits than Python converts
        fact, cause = f"not a spec: {error}", error
    hint = "JSON takes double quotes, no comments, and no comma after the last item"
    raise SpecError((Complaint("", fact, expected="one JSON object"),), hint=hint) from cause


class _Settler:
    """Walks the tree once. A value that is complained of is left out or made harmless."""

    def __init__(self, environment: Mapping[str, str], complaints: Complaints) -> None:
        self._environment = environment
        self._complaints = complaints

    def settle(self, place: Place, depth: int = 0) -> object:
        value = place.value
        if depth > _DEPTH_MAX:
            self._complaints.add(place, "nested too deeply", f"at most {_DEPTH_MAX} levels")
            return None
        if isinstance(value, _JsonObject):
            return self._object(place, depth)
        if isinstance(value, list):
            return [self.settle(item, depth + 1) for item in place.items]
        if isinstance(value, str):
            return self._text(place)
        if isinstance(value, float) and not math.isfinite(value):
            self._complaints.add(place, "not a number that JSON knows", "a finite number")
            return None
        return value

    def _object(self, place: Place, depth: int) -> dict[str, object]:
        for key in place.value.twice:
            message = f"{key!r} stands more than once in one object"
            self._complaints.add(place / key, message, "each key once")
        items = {}
        for key in place.value:
            below = place / key
            at_key = Place(key, below.pointer)
            if self._is_text(at_key):
                self._check_password(at_key)
                items[key] = self.settle(below, depth + 1)
        return items

    def _text(self, place: Place) -> str | None:
        if not self._is_text(place):
            return None
        text = _PLACEHOLDER.sub(lambda match: self._replace(match, place), place.value)
        self._check_password(Place(text, place.pointer))
        return text

    def _check_password(self, place: Place) -> None:
        if CREDENTIALS_OF_URL.search(place.value):
            self._complaints.add(place, "a password in a URL", WHERE_CREDENTIALS_BELONG)

    def _is_text(self, place: Place) -> bool:
        has_surrogate = any("\ud800" <= letter <= "\udfff" for letter in place.value)
        if "\0" not in place.value and not has_surrogate:
            return True
        self._complaints.add(place, "a NUL or half a surrogate pair", "text")
        return False

    def _replace(self, match: re.Match[str], place: Place) -> str:
        name = match[1]
        if name is None:
            return "${"
        names_variable = match[0].endswith("}") and _NAME.match(name) is not None
        if names_variable and name in self._environment:
            return self._environment[name]
        literally = "$" + match[0]
        if not names_variable:
            message = f"{match[0]!r} is no placeholder"
            expected = f"${{NAME}}, or {literally} for the characters themselves"
        else:
            message = f"the environment variable {name!r} is not set"
            expected = f"export {name}=..., or {literally} for the characters themselves"
        self._complaints.add(place, message, expected)
        return match[0]
