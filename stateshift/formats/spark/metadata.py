"""The query's identity: `metadata`, written once by the first start.

    {"id":"3f9f2b1e-..."}          UTF-8 JSON, no version line, no newline at the end

Spark takes the first JSON value and reads no further (Jackson): whatever follows is carried along.
The id is what java.util.UUID.fromString takes: five hexadecimal numbers, of 36 characters at most;
a short one is another UUID than it looks like (`1-1-1-1-1` is
00000001-0001-0001-0001-000000000001). Two ids in one object are none.

Source: Spark, StreamMetadata (StreamMetadata.read/write), StreamExecution.id, the same from 2.1 to
4.3; seen with 4.3.0 and Java 17. Idempotent sinks recognise a query by this id: a move keeps it, a
fork needs another.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from stateshift.errors import FormatError

_WHAT = "the query's metadata file"
_BLANKS = " \t\r\n"
_NUMBER = re.compile(r"\+?[0-9A-Fa-f]+")
_LONG_MAX = (1 << 63) - 1
# The hexadecimal digits of a UUID's five numbers, as Java prints them.
_DIGITS = (8, 4, 4, 4, 12)


@dataclass(frozen=True, slots=True)
class QueryMetadata:
    """The id as Spark has it, and the text it stands in, kept so that it can be written back byte
    for byte. `written` is the id as the text has it; `trailing` counts the bytes behind the JSON,
    unless they are blank.
    """

    id: str
    text: str
    written: str
    trailing: int = 0


def decode_metadata(content: bytes) -> QueryMetadata:
    """Read the query's `metadata`: the first JSON value counts, what follows is carried along."""
    text = content.decode("utf-8", "surrogateescape")
    start = len(text) - len(text.lstrip(_BLANKS))
    value, end = _first_value(text, start)
    if not isinstance(value, _Object):
        raise FormatError(f"{_WHAT} is not a JSON object", None, start)
    written = _only_id(value, start)
    trailing = text[end:].strip(_BLANKS)
    return QueryMetadata(
        id=_uuid(written, start),
        text=text,
        written=written,
        trailing=_size(text[end:]) if trailing else 0,
    )


def _only_id(value: _Object, start: int) -> str:
    ids = [field for name, field in value.fields if name == "id"]
    if len(ids) != 1 or not isinstance(ids[0], str):
        raise FormatError(f"{_WHAT} holds no query id", None, start)
    return ids[0]


def _first_value(text: str, start: int) -> tuple[object, int]:
    """Return the JSON value that begins at `start`, and where it ends."""
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        place = _size(text[: error.pos])
        raise FormatError(f"{_WHAT} is not JSON: {error.msg}", None, place) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{_WHAT} is not JSON: {error}", None, start) from error


def encode_metadata(metadata: QueryMetadata) -> bytes:
    """Return the file's bytes: the text as it was read, what follows the JSON included."""
    return metadata.text.encode("utf-8", "surrogateescape")


class _Object:
    """A JSON object with every one of its fields, those of one name too."""

    def __init__(self, fields: list[tuple[str, object]]) -> None:
        self.fields = fields


_DECODER = json.JSONDecoder(object_pairs_hook=_Object)


def _uuid(text: str, offset: int) -> str:
    """Return the id as Java prints it, where Java takes it for one."""
    words = text.split("-")
    if not _is_uuid(text, words):
        fact = f"{_WHAT} holds the query id {text[:50]!r}, which is no UUID: Spark does not start"
        raise FormatError(fact, None, offset)
    shown = []
    for word, digits in zip(words, _DIGITS, strict=True):
        lowest = int(word, 16) & ((1 << 4 * digits) - 1)
        shown.append(f"{lowest:0{digits}x}")
    return "-".join(shown)


def _is_uuid(text: str, words: list[str]) -> bool:
    """Whether java.util.UUID.fromString takes the text, whose numbers are `words`."""
    if len(text) > 36 or len(words) != len(_DIGITS):
        return False
    if not all(map(_NUMBER.fullmatch, words)):
        return False
    return max(int(word, 16) for word in words) <= _LONG_MAX


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
