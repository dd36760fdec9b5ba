"""What Flink does not read in a header of states is refused: versions, names of options, constants,
classes.

Each rule is Flink's own; the mutations at the end were given to a real Flink 2.3.0, which failed on
every one.
"""

from __future__ import annotations

import struct

import pytest

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.keyed_state import find_states, read_state
from stateshift.formats.flink.operator_state import decode_operator_header, require_version
from stateshift.formats.flink.serializers import Unknown, read_snapshot
from tests.damage.verdicts import verdict_of

BASE = "org.apache.flink.api.common.typeutils.base."
LONG = f"{BASE}LongSerializer$LongSerializerSnapshot"
VOID = "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
LIST = f"{BASE}ListSerializerSnapshot"
TUPLE = "org.apache.flink.api.java.typeutils.runtime.TupleSerializerSnapshot"
POJO = "org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot"
OUTER, NESTED = 911108, 1333245


def simple(name: str = LONG, version: int = 3) -> bytes:
    return encode_utf(name) + struct.pack(">i", version)


def composite(
    name: str = LIST,
    version: int = 3,
    outer: int = OUTER,
    nested: int = NESTED,
    nested_version: int = 1,
) -> bytes:
    content = encode_utf(name) + struct.pack(">iii", version, outer, 1)
    return content + struct.pack(">iii", nested, nested_version, 1) + simple()


def tuple_of(class_name: str) -> bytes:
    content = encode_utf(TUPLE) + struct.pack(">iii", 3, OUTER, 2) + encode_utf(class_name)
    return content + struct.pack(">iii", NESTED, 1, 2) + simple() * 2


def proxied(snapshot: bytes, version: int = 2) -> bytes:
    return struct.pack(">i", version) + snapshot


def state(kind: int, options: dict[str, str], serializers: dict[str, bytes]) -> bytes:
    content = encode_utf("count") + struct.pack(">ii", kind, len(options))
    content += b"".join(encode_utf(key) + encode_utf(value) for key, value in options.items())
    content += struct.pack(">i", len(serializers))
    return content + b"".join(
        encode_utf(role) + proxied(found) for role, found in serializers.items()
    )


@pytest.mark.parametrize(
    "snapshot",
    [
        simple(version=2051),
        simple(version=0),
        composite(outer=OUTER ^ 1),
        composite(version=1),
        composite(nested=0),
        composite(nested_version=3),
        tuple_of("org.apache.flink.a0i.java.tuple.Tuple2"),
        tuple_of("org.apache.flink.api.java.tuple.Tuple3"),
        simple(LONG[:-1]),
        simple(POJO, 3),
    ],
)
def test_a_snapshot_that_flink_does_not_read_is_refused(snapshot: bytes) -> None:
    with pytest.raises(FormatError):
        read_snapshot(DataInput(snapshot + bytes(8), "a snapshot"), nested=True)


@pytest.mark.parametrize("version", [0, 3, 2 | 1 << 30])
def test_a_serializer_of_another_version_is_refused(version: int) -> None:
    with pytest.raises(FormatError, match="Flink reads 2"):
        read_snapshot(DataInput(proxied(simple(), version), "a snapshot"))


def test_what_may_be_a_jobs_own_is_not_refused() -> None:
    read = read_snapshot(DataInput(tuple_of("com.acme.Pair"), "a snapshot"), nested=True)
    assert read.type == "com.acme.Pair"
    for own in (simple("com.acme.LongSerializerSnapshot", 7), simple("com.acme.MoneySnapshot", 7)):
        with pytest.raises(Unknown):
            read_snapshot(DataInput(own, "a snapshot"), nested=True)


TYPE, MODE = "KEYED_STATE_TYPE", "OPERATOR_STATE_DISTRIBUTION_MODE"
KEYED = {"NAMESPACE_SERIALIZER": simple(VOID), "VALUE_SERIALIZER": simple()}


@pytest.mark.parametrize(
    ("kind", "options", "serializers"),
    [
        (0, {TYPE: "VALUE"}, KEYED),
        (1, {MODE: "SPLIT_DISTRIBUTE"}, {"VALUE_SERIALIZER": simple()}),
        (2, {MODE: "BROADCAST"}, {"KEY_SERIALIZER": simple(), "VALUE_SERIALIZER": simple()}),
        (3, {}, {"VALUE_SERIALIZER": simple()}),
        (4, {TYPE: "MAP"}, KEYED),
    ],
)
def test_whole_states_are_read_and_each_name_they_need_is_needed(
    kind: int, options: dict[str, str], serializers: dict[str, bytes]
) -> None:
    assert read_state(DataInput(state(kind, options, serializers), "a header")) is not None
    damaged = [
        *((options | {key: f"{value}S"}, serializers) for key, value in options.items()),
        *(({f"{key}S": value}, serializers) for key, value in options.items()),
        *(
            (options, {f"{role[:-1]}S" if r == role else r: s for r, s in serializers.items()})
            for role in serializers
        ),
        *((options, {r: s for r, s in serializers.items() if r != role}) for role in serializers),
    ]
    for other_options, other_serializers in damaged:
        with pytest.raises(FormatError):
            read_state(DataInput(state(kind, other_options, other_serializers), "a header"))


def test_a_state_that_is_counted_and_not_there_is_refused() -> None:
    own = {
        "NAMESPACE_SERIALIZER": simple(VOID),
        "VALUE_SERIALIZER": simple("com.acme.MoneySnapshot", 1),
    }
    header = state(0, {TYPE: "VALUE"}, own)
    assert len(find_states(header, 1)) == 1
    with pytest.raises(FormatError, match="has 2 states"):
        find_states(header, 2)


@pytest.mark.parametrize("version", [0, 2, 7, 5 | 1 << 20])
def test_a_header_of_operator_state_that_no_flink_reads_is_refused(version: int) -> None:
    header = decode_operator_header(struct.pack(">i", version) + bytes(60))
    with pytest.raises(UnknownVersion):
        require_version(header)


REFUSED_BY_FLINK = (
    "flink-1.15.4/count-canonical-long-200#0",  # version of a namespace's serializer
    "flink-1.18.1/count-canonical-tuple#1",  # class of a tuple
    "flink-1.18.1/count-native-rocksdb#2",  # how a list is distributed
    "flink-1.20.5/count-inline-hashmap#0",  # a serializer's name, in _metadata itself
    "flink-1.20.5/count-native-hashmap#1",  # version of a list's serializer
    "flink-2.0.2/count-canonical-hashmap#2",  # zeros over a header's end
    "flink-2.3.0/count-two#2",  # zeros over all of a header
    "flink-2.3.0/count-saved#1",  # a serializer's name
)


@pytest.mark.parametrize("id_", REFUSED_BY_FLINK)
def test_damage_that_a_real_flink_refused_is_refused(id_: str) -> None:
    assert verdict_of(id_).result == "detected"
