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
from typing import Any

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
    text = content.decode("utf-8", "surrogateescape")
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        pairs, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        place = _size(text[: error.pos])
        raise FormatError(f"{_WHAT} is not JSON: {error.msg}", None, place) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{_WHAT} is not JSON: {error}", None, start) from error
    if not isinstance(pairs, _Object):
        raise FormatError(f"{_WHAT} is not a JSON object", None, start)
    ids = [value for key, value in pairs.fields if key == "id"]
    if len(ids) != 1 or not isinstance(ids[0], str):
        raise FormatError(f"{_WHAT} holds no query id", None, start)
    trailing = _size(text[end:]) if text[end:].strip(_BLANKS) else 0
    return QueryMetadata(_uuid(ids[0], start), text, ids[0], trailing)


def encode_metadata(metadata: QueryMetadata) -> bytes:
    return metadata.text.encode("utf-8", "surrogateescape")


class _Object:
    """A JSON object with every one of its fields, those of one name too."""

    def __init__(self, fields: list[tuple[str, Any]]) -> None:
        self.fields = fields


_DECODER = json.JSONDecoder(object_pairs_hook=_Object)


def _uuid(text: str, offset: int) -> str:
    """The id as Java prints it, where Java takes it for one."""
    parts = text.split("-")
    numbers = [int(part, 16) for part in parts if _NUMBER.fullmatch(part)]
    if len(text) > 36 or len(parts) != 5 or len(numbers) != 5 or max(numbers) > _LONG_MAX:
        fact = f"{_WHAT} holds the query id {text[:50]!r}, which is no UUID: Spark does not start"
        raise FormatError(fact, None, offset)
    shown = [
        f"{number & ((1 << 4 * digits) - 1):0{digits}x}"
        for number, digits in zip(numbers, _DIGITS, strict=True)
    ]
    return "-".join(shown)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
