"""The form of Spark's text logs: a version line, then JSON; UTF-8, lines ended by \\n.

    v1\\n<json>[\\n<json>...]        no newline at the end

Spark writes them so, and reads lines as Java does (scala.io.Source.getLines,
BufferedReader.readLine): \\n, \\r\\n and \\r each end a line, and behind the last of them no empty
line follows. An editor's newline at the end changes nothing.

Source: Spark, HDFSMetadataLog, OffsetSeqLog, CommitLog, CompactibleFileStreamLog
(`validateVersion`). Every error carries the offset of the byte that is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats import bounds

# A decoded JSON object; whoever reads a value narrows it.
JsonObject = dict[str, object]


@dataclass(eq=False)
class JsonFields:
    """A JSON object with all of its fields, those of one name too."""

    fields: list[tuple[str, object]]

    def exactly(self, *names: str) -> JsonObject | None:
        """Return the fields by name, if these are all, and each is there once."""
        if sorted(name for name, _ in self.fields) != sorted(names):
            return None
        return dict(self.fields)

    def get(self, name: str) -> object:
        return next((value for key, value in self.fields if key == name), None)


FIELDS_DECODER = json.JSONDecoder(object_pairs_hook=JsonFields)

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_LONG = 1 << 63
_VERSION = re.compile(rb"v\+?0{0,9}([1-9]\d{0,8})")


def decode_text(content: bytes, what: str, offset: int = 0) -> str:
    """Return the bytes as UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{what} is not UTF-8", None, offset + error.start) from error


def lines_of(content: bytes) -> list[tuple[int, bytes]]:
    """Return the lines as Java reads them, each with the offset where it begins."""
    lines = []
    start = 0
    for line in content.splitlines(keepends=True):  # of bytes: \n, \r and \r\n, and no others
        lines.append((start, line.rstrip(b"\r\n")))
        start += len(line)
    return lines


def after_version(content: bytes) -> tuple[bytes, bytes, int]:
    """Return the version line, everything behind it, and the offset where that begins."""
    lines = lines_of(content)
    first = lines[0][1] if lines else b""
    start = lines[1][0] if len(lines) > 1 else len(content)
    return first, content[start:], start


def decode_version(line: bytes, known: Iterable[int], what: str) -> int:
    """Return the number of a version line: `v1`, or, as Integer.parseInt takes it, `v01`, `v+1`."""
    number = _VERSION.fullmatch(line)
    if number is None:
        raise FormatError(f"{what} does not begin with a version line", None, 0)
    version = int(number[1])
    if version not in known:
        names = ", ".join(map("v{}".format, known))
        fact = f"{what} has format version v{version}; known are {names}"
        hint = "a newer stateshift may know it: pip install --upgrade stateshift"
        raise UnknownVersion(fact, None, 0, hint=hint)
    return version


def decode_object(text: str, what: str, offset: int = 0) -> JsonObject:
    """Return the text as a JSON object."""
    bounds.require_text(len(text), f"{what}, as JSON", offset)
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        place = offset + len(text[: error.pos].encode("utf-8", "surrogatepass"))
        raise FormatError(f"{what} is not JSON: {error.msg}", None, place) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is not JSON: {error}", None, offset) from error
    if not isinstance(plain, dict):
        raise FormatError(f"{what} is not a JSON object", None, offset)
    return plain


def encode_object(plain: Mapping[str, object] | str) -> str:
    """Return an object as Spark (json4s, Jackson) writes it: dense, half a surrogate escaped."""
    text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    return _HALF_PAIR.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def half_pairs(text: str) -> bool:
    """Whether the text holds half of a surrogate pair, which no bytes can stand for."""
    return _HALF_PAIR.search(text) is not None


def number_of(
    plain: Mapping[str, object], key: str, what: str, offset: int, default: int = 0
) -> int:
    """Return an integer field, a long in Spark; `default` where it is missing or null."""
    value = plain.get(key)
    if value is None:
        return default
    if not is_integer(value) or not -_LONG <= value < _LONG:
        raise FormatError(f"{what}: {key!r} is not a whole number of 64 bits", None, offset)
    return value


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number: Python takes true and false for numbers too."""
    return isinstance(value, int) and not isinstance(value, bool)


def object_of(plain: Mapping[str, object], key: str, what: str, offset: int) -> JsonObject:
    """Return an object field; empty where it is missing or null."""
    value = plain.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FormatError(f"{what}: {key!r} is not an object", None, offset)
    return value
