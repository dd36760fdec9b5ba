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
from stateshift.formats.spark.text import FIELDS_DECODER, JsonFields

_WHAT = "the query's metadata file"
_BLANKS = " \t\r\n"
_NUMBER = re.compile(r"\+?[0-9A-Fa-f]+")
_LONG_MAX = (1 << 63) - 1
# The hexadecimal digits of a UUID's five numbers, as Java prints them.
_DIGITS = (8, 4, 4, 4, 12)


@dataclass(frozen=True, slots=True)
class QueryMetadata:
    """The id as Spark has it, and its text, which can be written back byte for byte."""

    id: str
    text: str
    written: str  # the id as the text has it
    trailing: int = 0  # bytes behind the JSON, unless they are blank


def decode_metadata(content: bytes) -> QueryMetadata:
    """Read the query's `metadata`: the first JSON value counts, what follows is carried along."""
    text = content.decode("utf-8", "surrogateescape")
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = FIELDS_DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        place = _size(text[: error.pos])
        raise FormatError(f"{_WHAT} is not JSON: {error.msg}", None, place) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{_WHAT} is not JSON: {error}", None, start) from error
    if not isinstance(value, JsonFields):
        raise FormatError(f"{_WHAT} is not a JSON object", None, start)
    written = value.get("id")
    count = [name for name, _ in value.fields].count("id")
    if count != 1 or not isinstance(written, str):
        raise FormatError(f"{_WHAT} holds no query id", None, start)
    trailing = _size(text[end:]) if text[end:].strip(_BLANKS) else 0
    words = written.split("-")
    is_short = len(written) <= 36 and len(words) == len(_DIGITS)
    is_hexadecimal = is_short and all(map(_NUMBER.fullmatch, words))
    if not is_hexadecimal or max(int(word, 16) for word in words) > _LONG_MAX:
        fact = (
            f"{_WHAT} holds the query id {written[:50]!r}, which is no UUID: Spark does not start"
        )
        raise FormatError(fact, None, start)
    shown = []
    for word, digits in zip(words, _DIGITS, strict=True):
        lowest = int(word, 16) & ((1 << 4 * digits) - 1)
        shown.append(f"{lowest:0{digits}x}")
    return QueryMetadata("-".join(shown), text, written, trailing)


def encode_metadata(metadata: QueryMetadata) -> bytes:
    """Return the file's bytes: the text as it was read, what follows the JSON included."""
    return metadata.text.encode("utf-8", "surrogateescape")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
