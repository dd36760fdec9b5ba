"""The keys of canonical state, as far as they are read and hashed without the job's classes:
strings, whole numbers and tuples of them. Other classes hash in ways of their own. Pure.
"""

from __future__ import annotations

from typing import Any

from stateshift.formats.flink.java_data import Input
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


def hashable(serializer: Serializer | None) -> bool:
    if serializer is None:
        return False
    tuples = serializer.name == "TupleSerializer" and all(map(hashable, serializer.inner))
    return tuples or serializer.name in HASHED


def hash_of(header: Header, state: int, key: bytes) -> int:
    """Of the key that an entry begins with; of a timer, behind its time."""
    data = Input(key, "a key")
    data.take(_start(header, state))
    return code_of(_known(header), value(_known(header), data))


def code_of(serializer: Serializer, found: Any) -> int:
    """The hash code of a key that was read."""
    if found is None:
        return 0
    match serializer.name:
        case "StringSerializer":
            return hash_string(found)
        case "LongSerializer":
            return hash_long(found)
        case "TupleSerializer":
            return hash_fields(
                [code_of(inner, one) for inner, one in zip(serializer.inner, found, strict=True)]
            )
    return hash_int(found)


def key_of(header: Header, state: int, key: bytes) -> bytes | None:
    """The key that an entry begins with; None where it cannot be read."""
    if header.key is None:
        return None
    data, start = Input(key, "a key"), _start(header, state)
    data.take(start)
    try:
        value(header.key, data)
    except Unknown:
        return None
    return key[start : data.at]


def shown(header: Header, key: bytes) -> str:
    """A key that was read."""
    return repr(value(_known(header), Input(key, "a key")))


def _known(header: Header) -> Serializer:
    assert header.key is not None, "asked before: why_not"
    return header.key


def _start(header: Header, state: int) -> int:
    """Where the key begins: a timer's time stands in front of it."""
    return 8 if header.states[state].kind == "timers" else 0
