"""State schema files: the columns of the keys and values of a store. Not compressed.

    v1  UTF "v1" | UTF key | UTF value
    v2  UTF "v2" | CHUNKS key | CHUNKS value             3.1 to 4.3
    v3  UTF "v3" | i32BE count | per column family:      4.0+: transformWithState, joins 3, 4
          UTF name | i16BE key id | CHUNKS key | i16BE value id | CHUNKS value | CHUNKS encoder |
          CHUNKS user key

    UTF = u16BE length | modified UTF-8.   CHUNKS = i32BE count | UTF*, each of at most 65,535
                                           characters.
    key, value: StructType.json; encoder: the key encoder's; user key: of a map state, else `{    }`
    Spark does not read what follows: a job starts with a newline behind it (seen with 4.3.0).

Source: Spark, StateSchemaCompatibilityChecker, SchemaWriter/SchemaReader V1 to V3; Java,
DataOutput.writeUTF.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.stream import Stream

VERSIONS = (1, 2, 3)
NO_USER_KEY = "{    }"

_CHUNK = 65_535
_WHAT = "a state schema file"


@dataclass(frozen=True, slots=True)
class StoreSchema:
    """Key and value of a store (or column family), as JSON. Only v3 has other fields."""

    key: str
    value: str
    name: str = "default"
    key_id: int = 0
    value_id: int = 0
    encoder: str | None = None
    user_key: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """v1 and v2 hold exactly one store."""

    version: int
    stores: tuple[StoreSchema, ...]


def decode_schema(content: bytes) -> SchemaFile:
    """Read a state schema file: UTF version, then the schemas of each store's key and value."""
    stream = Stream([content], _WHAT)
    beginning = stream.peek(4)
    digit = beginning[3:]
    if not b"\x00\x02v".startswith(beginning[:3]) or (digit and not digit.isdigit()):
        raise FormatError(f"{_WHAT} does not begin with a version", None, 0)
    version = int(stream.take(4)[3:])
    if version not in VERSIONS:
        fact = f"{_WHAT} has format version v{version}; known are v1 to v3"
        raise UnknownVersion(fact, None, 0)
    if version < 3:
        decode = _decode_utf if version == 1 else _decode_chunks
        return SchemaFile(version, (StoreSchema(decode(stream), decode(stream)),))
    stores = tuple(_decode_store(stream) for _ in range(_decode_count(stream)))
    if not stores:
        raise FormatError(f"{_WHAT} describes no store", None, 4)
    return SchemaFile(version, stores)


def encode_schema(schema: SchemaFile) -> bytes:
    """Return a state schema file's bytes in the layout of its version; v1 and v2 take one store."""
    version = _encode_utf(f"v{schema.version}")
    if schema.version == 3:
        count = len(schema.stores).to_bytes(4, "big")
        return b"".join((version, count, *map(_encode_store, schema.stores)))
    encode = _encode_utf if schema.version == 1 else _encode_chunks
    (store,) = schema.stores
    return version + encode(store.key) + encode(store.value)


def _decode_store(stream: Stream) -> StoreSchema:
    name = _decode_utf(stream)
    key_id, key = _decode_id(stream), _decode_chunks(stream)
    value_id, value = _decode_id(stream), _decode_chunks(stream)
    encoder, user_key = _decode_chunks(stream), _decode_chunks(stream)
    return StoreSchema(key, value, name, key_id, value_id, encoder, user_key)


def _encode_store(store: StoreSchema) -> bytes:
    parts = (
        _encode_utf(store.name),
        store.key_id.to_bytes(2, "big", signed=True),
        _encode_chunks(store.key),
        store.value_id.to_bytes(2, "big", signed=True),
        _encode_chunks(store.value),
        _encode_chunks(store.encoder or ""),
        _encode_chunks(NO_USER_KEY if store.user_key is None else store.user_key),
    )
    return b"".join(parts)


def _decode_id(stream: Stream) -> int:
    return int.from_bytes(stream.take(2), "big", signed=True)


def _decode_count(stream: Stream) -> int:
    """Return a count of things of two bytes or more; missing ones are found in reading."""
    start = stream.offset
    count = int.from_bytes(stream.take(4), "big", signed=True)
    if count < 0:
        raise FormatError(f"{_WHAT} claims {count} parts", None, start)
    return count


def _decode_chunks(stream: Stream) -> str:
    return "".join([_decode_utf(stream) for _ in range(_decode_count(stream))])


def _encode_chunks(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")  # Java cuts by UTF-16 units
    pieces = [units[start : start + 2 * _CHUNK] for start in range(0, len(units), 2 * _CHUNK)]
    utfs = [_encode_utf(piece.decode("utf-16-be", "surrogatepass")) for piece in pieces]
    return len(utfs).to_bytes(4, "big") + b"".join(utfs)


def _decode_utf(stream: Stream) -> str:
    length = int.from_bytes(stream.take(2), "big")
    start = stream.offset
    content = stream.take(length)
    try:
        text = content.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    except UnicodeDecodeError as error:
        fact = f"{_WHAT} holds text that is not UTF-8"
        raise FormatError(fact, None, start + error.start) from error


def _encode_utf(text: str) -> bytes:
    """Return modified UTF-8: NUL takes two bytes, a character above the BMP six."""
    content = text.encode() if text.isascii() else b"".join(_modified(text))
    content = content.replace(b"\x00", b"\xc0\x80")
    if len(content) > _CHUNK:
        fact = f"a text of {len(content)} bytes does not fit where {_CHUNK} are the most"
        raise FormatError(fact)
    return len(content).to_bytes(2, "big") + content


def _modified(text: str) -> Iterable[bytes]:
    for character in text:
        units = character.encode("utf-16-be", "surrogatepass")
        for start in range(0, len(units), 2):
            unit = units[start : start + 2].decode("utf-16-be", "surrogatepass")
            yield unit.encode("utf-8", "surrogatepass")
