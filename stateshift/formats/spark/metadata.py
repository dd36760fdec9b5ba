"""The query's identity: `metadata`, written once by the first start.

    {"id":"3f9f2b1e-..."}          UTF-8 JSON, no version line, no newline at the end

Source: Spark, StreamMetadata (StreamMetadata.read/write), the same from 2.1 to 4.3. Idempotent sinks recognise a query
by this id: a move keeps it, a fork needs another.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateshift.errors import FormatError
from stateshift.formats.spark.text import decode_object, decode_text, encode_object

_WHAT = "the query's metadata file"


@dataclass(frozen=True, slots=True)
class QueryMetadata:
    """The id, and the text it stands in, kept so that it can be written back byte for byte."""

    id: str
    text: str


def decode_metadata(content: bytes) -> QueryMetadata:
    text = decode_text(content, _WHAT)
    identity = decode_object(text, _WHAT).get("id")
    if not isinstance(identity, str) or not identity:
        raise FormatError(f"{_WHAT} holds no query id", None, 0)
    return QueryMetadata(identity, text)


def encode_metadata(metadata: QueryMetadata) -> bytes:
    return metadata.text.encode("utf-8")


def with_id(metadata: QueryMetadata, identity: str) -> QueryMetadata:
    """The same file for another query: what a fork writes."""
    plain = decode_object(metadata.text, _WHAT)
    return QueryMetadata(identity, encode_object({**plain, "id": identity}))
