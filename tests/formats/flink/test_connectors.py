"""The state of Flink's connectors: what real ones wrote is read and written back byte for byte, and
what is not theirs is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import FormatError
from stateshift.formats.flink import file_source, kafka, operator_state
from stateshift.formats.flink.metadata import decode_metadata
from stateshift.formats.flink.operator_state import (
    READER_STATE,
    ConnectorState,
    decode_source_coordinator,
    decode_versioned_elements,
    split_elements,
)
from tests.support import flink_connectors as written

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
CASES = sorted(
    str(path.parent.relative_to(GOLDEN))
    for connector in ("kafka", "iceberg")
    for path in GOLDEN.glob(f"{connector}/*/told.json")
)

Decode = Callable[[int, bytes], Any]


class Codec(NamedTuple):
    """A decoder of bytes in a version, and the encoder that gives these bytes back."""

    decode: Decode
    encode: Callable[[int, Any], bytes]
    versions: tuple[int, ...]


CODECS = {
    "split": Codec(kafka.decode_split, lambda _, value: kafka.encode_split(value), (0,)),
    "cluster split": Codec(kafka.decode_cluster_split, written.encode_cluster_split, (1, 2)),
    "enumerator": Codec(
        kafka.decode_enumerator, lambda _, value: kafka.encode_enumerator(value), (0, 1, 2, 3)
    ),
    "transaction": Codec(
        kafka.decode_transaction, lambda _, value: written.encode_transaction(value), (1,)
    ),
    "consumer": Codec(
        lambda _, content: kafka.decode_read_offset(content),
        lambda _, value: kafka.encode_read_offset(value),
        (0,),
    ),
    "committer": Codec(
        operator_state.decode_committer,
        lambda _, value: written.encode_committer(value),
        (1, 2),
    ),
    "file split": Codec(
        file_source.decode_file_split,
        lambda _, value: file_source.encode_file_split(value),
        (1,),
    ),
    "file enumerator": Codec(
        file_source.decode_file_enumerator,
        lambda _, value: file_source.encode_file_enumerator(value),
        (1,),
    ),
    "numbers": Codec(
        file_source.decode_numbers, lambda _, value: written.encode_numbers(value), (1,)
    ),
    "numbers enumerator": Codec(
        file_source.decode_numbers_enumerator,
        lambda _, value: written.encode_numbers_enumerator(value),
        (1,),
    ),
    "iceberg enumerator": Codec(
        file_source.decode_iceberg_enumerator, file_source.encode_iceberg_enumerator, (1, 2)
    ),
}


# ---- what real connectors wrote


def states(case: str) -> Iterator[tuple[str, ConnectorState]]:
    """Yield the name of each state of a golden savepoint, with its bytes."""
    folder = GOLDEN / case
    image = folder / json.loads((folder / "told.json").read_text())["image"]
    for operator in decode_metadata((image / "_metadata").read_bytes()).operators:
        if operator.coordinator is not None:
            content = operator.coordinator.content
            state = decode_source_coordinator(content)
            assert operator_state.encode_source_coordinator(state) == content
            yield "enumerator", state
        for subtask in operator.all_subtasks:
            handle = subtask.managed_operator
            if handle is None or not handle.starts:
                continue
            elements = split_elements(handle.stream.content, handle.starts, handle.stream.size)
            for named in handle.states:
                if named.name == "writer_raw_states":
                    continue  # a sink's writer is not read
                for offset in named.offsets:
                    yield from connector_states(named.name, elements[offset])


def connector_states(name: str, content: bytes) -> Iterator[tuple[str, ConnectorState]]:
    if name == kafka.CONSUMER_STATE:
        yield name, ConnectorState(0, content)
        return
    (state,) = decode_versioned_elements(content, name)
    assert operator_state.encode_versioned_element(state) == content
    yield name, state


MAY_BE = {
    "enumerator": ("enumerator", "file enumerator", "iceberg enumerator"),
    "SourceReaderState": ("split", "file split"),
    "streaming_committer_raw_states": ("committer",),
    kafka.CONSUMER_STATE: ("consumer",),
}


@pytest.mark.parametrize("case", CASES)
def test_the_state_of_a_real_connector_is_read_and_written_back(case: str) -> None:
    count = 0
    for name, state in states(case):
        if name == READER_STATE and case.startswith("iceberg/"):
            continue  # its splits are not read
        read = []
        for codec in (CODECS[codec] for codec in MAY_BE[name]):
            try:
                read.append((codec, codec.decode(state.version, state.content)))
            except FormatError:
                continue
        ((codec, value),) = read
        assert codec.encode(state.version, value) == state.content
        count += 1
    assert count >= (1 if case.startswith("iceberg/") else 4)


# ---- what they could write

small = st.integers(0, 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
offsets = st.integers(0, 2**63 - 1) | st.sampled_from((-1, -2, -3, kafka.NOT_RESOLVED))
stops = st.integers(0, 2**63 - 1) | st.sampled_from((-1, -3, kafka.NEVER))
text = st.text(max_size=8)
splits = st.builds(kafka.KafkaSplit, topics, small, offsets, stops)
cluster_splits = st.builds(
    kafka.KafkaSplit, topics, small, offsets, stops, st.none(), text, st.none() | longs
)
statuses = st.sampled_from((0, 1))
uris = st.builds(
    file_source.Uri,
    *(st.none() | text for _ in range(3)),
    st.integers(-1, 65535),
    *(st.none() | text for _ in range(3)),
)


@st.composite
def enumerators(draw: st.DrawFn) -> kafka.KafkaEnumerator:
    version = draw(st.integers(0, 3))
    drawn = draw(st.lists(splits, max_size=4))
    if version in (1, 2):
        drawn = [kafka.KafkaSplit(each.topic, each.partition) for each in drawn]
    if version == 0:
        first = draw(st.integers(0, len(drawn)))
        subtasks = ((5, first), (0, len(drawn) - first))
        return kafka.KafkaEnumerator(0, tuple(drawn), subtasks=subtasks)
    if version == 1:
        return kafka.KafkaEnumerator(1, tuple(drawn))
    known = []
    for each in drawn:
        fields = (each.topic, each.partition, each.offset, each.stop)
        known.append(kafka.KafkaSplit(*fields, status=draw(statuses)))
    return kafka.KafkaEnumerator(version, tuple(known), draw(st.booleans()))


@st.composite
def committers(draw: st.DrawFn) -> operator_state.CommitterState:
    blobs = st.binary(max_size=8)
    if draw(st.booleans()):
        legacy = tuple(draw(st.lists(blobs, max_size=3)))
        return operator_state.CommitterState(1, draw(small), legacy=legacy)
    version = draw(st.sampled_from((0, 1)))
    checkpoints = []
    for _ in range(draw(st.integers(0, 2))):
        subtask_version = draw(st.sampled_from((0, 1, 2)))
        numbers = st.tuples(*(small,) * (2 if subtask_version == 2 else 3))
        request = st.builds(
            operator_state.CommitRequest,
            st.builds(ConnectorState, small, blobs),
            small,
            st.integers(0, 3),
        )
        subtask = st.builds(
            operator_state.SubtaskCommittables,
            st.lists(request, max_size=2).map(tuple),
            numbers,
            small if subtask_version else st.none(),
        )
        checkpoints.append(
            operator_state.CheckpointCommittables(
                draw(longs),
                tuple(draw(st.lists(subtask, max_size=2))),
                subtask_version,
                draw(small) if version else None,
            )
        )
    return operator_state.CommitterState(2, version, tuple(checkpoints))


@st.composite
def file_splits(draw: st.DrawFn) -> file_source.FileSplit:
    begun = draw(st.booleans())
    return file_source.FileSplit(
        draw(text),
        draw(uris),
        draw(small),
        draw(small),
        draw(longs),
        draw(longs),
        tuple(draw(st.lists(text, max_size=2))),
        draw(st.integers(-1, 2**40)) if begun else None,
        draw(small) if begun else None,
    )


@st.composite
def numbers(draw: st.DrawFn) -> file_source.Numbers:
    last = draw(st.integers(-(2**62), 2**62))
    return file_source.Numbers(draw(text), draw(st.integers(-(2**63), last + 1)), last)


VALUES: dict[str, st.SearchStrategy[tuple[int, Any]]] = {
    "split": st.tuples(st.just(0), splits),
    "cluster split": st.tuples(st.just(2), cluster_splits),
    "enumerator": enumerators().map(lambda value: (value.version, value)),
    "transaction": st.tuples(
        st.just(1),
        st.builds(
            kafka.KafkaTransaction,
            st.text(min_size=1, max_size=8),
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**15 - 1),
        ),
    ),
    "consumer": st.tuples(
        st.just(0),
        st.builds(
            kafka.ReadOffset,
            topics,
            small,
            st.integers(-1, 2**63 - 2) | st.sampled_from((min(kafka.CONSUMER_MARKS),)),
            st.integers(3, 2**31 - 1),
        ),
    ),
    "committer": committers().map(lambda value: (value.version, value)),
    "file split": st.tuples(st.just(1), file_splits()),
    "file enumerator": st.tuples(
        st.just(1),
        st.builds(
            file_source.FileEnumerator,
            st.lists(file_splits(), max_size=2).map(tuple),
            st.lists(text, max_size=2).map(tuple),
        ),
    ),
    "numbers": st.tuples(st.just(1), numbers()),
    "numbers enumerator": st.tuples(st.just(1), st.lists(numbers(), max_size=3).map(tuple)),
    "iceberg enumerator": st.tuples(
        st.just(2),
        st.builds(
            file_source.IcebergEnumerator,
            st.none() | longs,
            st.none() | longs,
            small,
            st.lists(
                st.tuples(st.binary(max_size=8), st.sampled_from(("UNASSIGNED", "ASSIGNED"))),
                max_size=2,
            ).map(tuple),
            st.lists(small, max_size=2).map(tuple),
        ),
    ),
}


@pytest.mark.parametrize("name", CODECS)
@given(data=st.data())
def test_what_is_written_is_read(name: str, data: st.DataObject) -> None:
    codec = CODECS[name]
    version, value = data.draw(VALUES[name])
    content = codec.encode(version, value)
    assert codec.decode(version, content) == value


@pytest.mark.parametrize("name", CODECS)
@given(data=st.data())
def test_bytes_that_are_changed_are_refused_or_are_others(name: str, data: st.DataObject) -> None:
    """Whatever is read is written back as it was: nothing in it is passed over."""
    codec = CODECS[name]
    version, value = data.draw(VALUES[name])
    content = bytearray(codec.encode(version, value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        cut = data.draw(st.integers(0, 8))
        content[at : at + cut] = data.draw(st.binary(max_size=8))
    try:
        changed = codec.decode(version, bytes(content))
    except FormatError as error:
        assert error.offset is not None
        return
    assert codec.encode(version, changed) == content


@pytest.mark.parametrize("name", CODECS)
@given(content=st.binary(max_size=64), version=st.integers(-1, 5))
def test_any_bytes_are_refused_or_written_back(name: str, content: bytes, version: int) -> None:
    codec = CODECS[name]
    try:
        value = codec.decode(version, content)
    except FormatError:
        return
    assert codec.encode(version, value) == content


@pytest.mark.parametrize("name", CODECS)
def test_a_version_that_is_not_known_is_refused_by_its_number(name: str) -> None:
    if name == "consumer":
        return  # Kryo writes none
    with pytest.raises(FormatError, match="has version 9"):
        CODECS[name].decode(9, bytes(40))
