"""The keys of canonical state, as far as they are read and hashed without the job's classes:
strings, whole numbers and tuples of them. Other classes hash in ways of their own. Pure.
"""

from __future__ import annotations

from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.key_groups import hash_fields, hash_int, hash_long, hash_string
from stateshift.formats.flink.keyed_state import Header
from stateshift.formats.flink.serializers import Serializer, Unknown, value

HASHED = (
    "StringSerializer",
    "IntSerializer",
    "LongSerializer",
    "ShortSerializer",
    "ByteSerializer",
)
_TIME = 8  # bytes of a timer's time


def hashable(serializer: Serializer | None) -> bool:
    """Whether keys of a serializer are hashed here."""
    if serializer is None:
        return False
    if serializer.name == "TupleSerializer":
        return all(map(hashable, serializer.inner))
    return serializer.name in HASHED


def hash_of(header: Header, state: int, key: bytes) -> int:
    """Return the hash code of the key that an entry begins with; of a timer, behind its time."""
    data = DataInput(key, "a key")
    data.take(key_start(header, state))
    serializer = _known(header)
    return code_of(serializer, value(serializer, data))


def code_of(serializer: Serializer, key: object) -> int:
    """Return the hash code of a key that was read by its serializer."""
    match key:
        case None:
            return 0
        case str():
            return hash_string(key)
        case list():
            fields = zip(serializer.inner, key, strict=True)
            return hash_fields([code_of(inner, field) for inner, field in fields])
        case int():
            return hash_long(key) if serializer.name == "LongSerializer" else hash_int(key)
    raise AssertionError(f"asked before: hashable ({serializer.name})")


def key_of(header: Header, state: int, key: bytes) -> bytes | None:
    """Return the key that an entry begins with; None where it cannot be read."""
    if header.key is None:
        return None
    data, start = DataInput(key, "a key"), key_start(header, state)
    data.take(start)
    try:
        value(header.key, data)
    except Unknown:
        return None
    return key[start : data.at]


def key_text(header: Header, key: bytes) -> str:
    """Return a key that was read, as text."""
    return repr(value(_known(header), DataInput(key, "a key")))


def _known(header: Header) -> Serializer:
    assert header.key is not None, "asked before: why_not"
    return header.key


def key_start(header: Header, state: int) -> int:
    """Return the offset of the key in a state's entries: a timer's time stands in front of it."""
    return _TIME if header.states[state].kind == "timers" else 0
