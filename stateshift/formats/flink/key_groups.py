"""Which key belongs to which key group, and which group to which subtask.

    group of a key          murmur(hashCode of the key) mod max parallelism
    owner of a group        group * parallelism // max parallelism
    groups of a subtask     (i * M + P - 1) // P  to  ((i + 1) * M - 1) // P

hashCode is Java's:

    byte, short, int    the number
    long, double        its bits' halves by exclusive or; every NaN has the same bits
    float, char         its bits
    boolean             1231 for true, 1237 for false
    string              31 * h + unit, over UTF-16 units
    tuple               31 * h + hash, over its fields; of null it is 0
    Row                 31 * kind + the same that begins with 1, of 31 + hash of each that is not
                        null; +I, -U, +U, -D are 0 to 3
    RowData             Murmur3 over the bytes of the row: its words of four bytes, seed 42

The hash of objects (POJO, Kryo) is their own code's. An enum's is another in every JVM: Flink has
no such keys. A job may hash a Row by its fields' names, and RowData that it does not take from SQL
in a way of its own: who moves such keys checks that each stood where its hash says, and that there
are enough of them to show it.

Flink: runtime/state/KeyGroupRangeAssignment, util/MathUtils.murmurHash, types/RowUtils,
api/java/tuple, table/data/binary/BinarySection, table/runtime/util/MurmurHashUtil. Pure.
"""

from __future__ import annotations

import math
import struct

from stateshift.formats.flink.binary_rows import KINDS
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.keyed_state import Header
from stateshift.formats.flink.serializers import Serializer, Unknown, value

PARALLELISM_MAX = 1 << 15
_MASK = 0xFFFFFFFF

_SIMPLE = ("String", "Int", "Long", "Short", "Byte", "Boolean", "Char", "Double", "Float")
HASHED = tuple(f"{name}Serializer" for name in _SIMPLE)
ROW_DATA = "RowDataSerializer"
COMPOSED = ("TupleSerializer", "RowSerializer")
_TRUE, _FALSE = 1231, 1237
ROW_SEED = 42  # MurmurHashUtil.DEFAULT_SEED
_WORD = 4  # bytes
_TIME = 8  # bytes of a timer's time


def key_group(hash_code: int, max_parallelism: int) -> int:
    """Return the key group of a key, by the key's hash code in Java."""
    return murmur(hash_code) % max_parallelism


def groups_of(subtask: int, max_parallelism: int, parallelism: int) -> range:
    """Return the key groups that Flink gives a subtask."""
    first = (subtask * max_parallelism + parallelism - 1) // parallelism
    return range(first, ((subtask + 1) * max_parallelism - 1) // parallelism + 1)


def prefix_bytes(max_parallelism: int) -> int:
    """Return the number of a key's bytes for its group, in canonical savepoints and RocksDB."""
    return 1 if max_parallelism <= 128 else 2


def murmur(code: int) -> int:
    """Return one round of Murmur3 (32 bits) over four bytes, never negative."""
    code = _finished(_mixed(0, code) ^ 4)
    signed = code - (1 << 32) if code >> 31 else code
    if signed >= 0:
        return signed
    return -signed if signed != -(1 << 31) else 0


def _mixed(code: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    code ^= word * 0x1B873593 & _MASK
    code = (code << 13 | code >> 19) & _MASK
    return (code * 5 + 0xE6546B64) & _MASK


def _finished(code: int) -> int:
    code ^= code >> 16
    code = code * 0x85EBCA6B & _MASK
    code ^= code >> 13
    code = code * 0xC2B2AE35 & _MASK
    return code ^ code >> 16


def hash_int(value: int) -> int:
    """Return Java's `Integer.hashCode`, unsigned."""
    return value & _MASK


def hash_long(value: int) -> int:
    """Return Java's `Long.hashCode`, unsigned."""
    unsigned = value & 0xFFFFFFFFFFFFFFFF
    return (unsigned ^ unsigned >> 32) & _MASK


def hash_string(value: str) -> int:
    """Return Java's `String.hashCode` (by units of UTF-16), unsigned."""
    code = 0
    raw = value.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(raw) // 2}H", raw):
        code = code * 31 + unit & _MASK
    return code


def hash_fields(codes: list[int], code: int = 0) -> int:
    """Return the hash code of fields, which begins with the first one's, or with a number."""
    for field in codes:
        code = code * 31 + field & _MASK
    return code


def hashable(serializer: Serializer | None) -> bool:
    """Whether keys of a serializer are hashed here."""
    if serializer is None:
        return False
    return serializer.name == ROW_DATA or _has_hash(serializer, COMPOSED)


def has_one_hash(serializer: Serializer | None) -> bool:
    """Whether no job hashes keys of a serializer otherwise than it is done here."""
    return serializer is not None and _has_hash(serializer, COMPOSED[:1])


def _has_hash(serializer: Serializer, outer: tuple[str, ...]) -> bool:
    if serializer.name in outer:
        return all(_has_hash(inner, outer) for inner in serializer.inner)
    return serializer.name in HASHED


def hash_of(header: Header, state: int, key: bytes) -> int:
    """Return the hash code of the key that an entry begins with; of a timer, behind its time."""
    data = DataInput(key, "a key")
    data.take(key_start(header, state))
    return hash_next(_known(header), data)


def raw_hash(serializer: Serializer, key: bytes) -> int | None:
    """Return the hash code of a key's bytes; None where it is not known here, or another job's may
    be another: RowData is taken for SQL's.
    """
    is_told = serializer.name == ROW_DATA or has_one_hash(serializer)
    return hash_next(serializer, DataInput(key, "a key")) if is_told else None


def hash_next(serializer: Serializer, data: DataInput) -> int:
    """Read a key, and return its hash code."""
    if serializer.name != ROW_DATA:
        return code_of(serializer, value(serializer, data))
    at, size = data.at, data.count("bytes")
    if size % _WORD:
        raise data.wrong(f"a row of {size} bytes, which are no words of {_WORD}", at)
    return hash_words(data.take(size))


def hash_words(content: bytes) -> int:
    """Return Murmur3 (32 bits, seed 42) over words of four bytes: the hash code of a row of SQL."""
    code = ROW_SEED
    for word in struct.unpack(f"<{len(content) // 4}I", content):
        code = _mixed(code, word)
    return _finished(code ^ len(content))


def code_of(serializer: Serializer, key: object) -> int:
    """Return the hash code of a key that was read by its serializer."""
    match key:
        case None:
            return 0
        case bool():
            return _TRUE if key else _FALSE
        case str():
            return hash_string(key)
        case list():
            fields = zip(serializer.inner, key, strict=True)
            return hash_fields([code_of(inner, field) for inner, field in fields])
        case dict():
            kind = KINDS.index(key.get("@kind", KINDS[0]))
            own = [field for name, field in key.items() if name != "@kind"]
            fields = zip(serializer.inner, own, strict=True)
            codes = [0 if each is None else 31 + code_of(inner, each) for inner, each in fields]
            return 31 * kind + hash_fields(codes, 1) & _MASK
        case float():
            number = math.nan if math.isnan(key) else key  # Java's bits of any NaN
            form = ">f" if serializer.name == "FloatSerializer" else ">d"
            bits = int.from_bytes(struct.pack(form, number), "big")
            return hash_long(bits)  # of four bytes, the bits themselves
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
