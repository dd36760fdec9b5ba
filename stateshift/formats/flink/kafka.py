"""The state of Flink's Kafka connector: the splits of a source and its enumerator, the offsets of
the source before it, FlinkKafkaConsumer, and the transactions of a sink.

    split        v0  utf topic, i4 partition, i8 offset, i8 stop
    cluster's    v1  utf cluster, i4 version of the split, split      DynamicKafkaSource
      split      v2  utf cluster, u1 n, n * i8 kept until, i4 version of the split, split
    enumerator   v0  i4 n, i4 version of the splits,
                     n * (i4 subtask, i4 m, m * (i4 length, split))   1.14
                 v1  i4 n, n * (utf topic, i4 partition)              to connector 3.0
                 v2  i4 n, n * (utf topic, i4 partition, i4 status), u1 discovered
                                                                      connectors 3.1 to 4.0
                 v3  i4 n, i4 version of the splits,
                     n * (i4 length, split, i4 status), u1 discovered connector 5.0
    committable  v1  i2 epoch, i8 producer id, utf transactional id

`offset` is the next record's, or a mark: -1 the latest, -2 the earliest, -3 the group's own, or
NOT_RESOLVED. `stop` is where the source ends, NEVER where it does not. `status` is 0 for a
partition that a reader has, whose state then says the offset, and 1 for one that no reader has yet.
`discovered`: the first look for partitions is over.

    consumer     varint class, u1 1, zigzag varint hash, zigzag varint partition, u1 1, topic,
                 i8 offset                                            an element, by Kryo
    topic        of 2 to 63 letters: those, the last one with its high bit set
                 else: its length + 1 in a varint whose first byte has its high bit set, and holds
                 six bits, with 0x40 where more follow; then its letters

`class` is the number under which Kryo knows KafkaTopicPartition. If it knows none, 1 and a name
stand there, which are not read. The ones say that an object is new. The hash is Java's, of topic
and partition, so that nothing else is taken for an element. The consumer's `offset` is that of the
last record that was read, -1 before the first, or one of CONSUMER_MARKS.

Bytes behind the last field are refused. Flink refuses them behind an enumerator since version 1,
and passes over them in a split; nobody writes any.

apache/flink-connector-kafka 3.0 to 5.0: KafkaPartitionSplitSerializer, KafkaPartitionSplit,
DynamicKafkaSourceSplitSerializer, KafkaSourceEnumStateSerializer, AssignmentStatus,
KafkaCommittableSerializer; to 3.4: FlinkKafkaConsumerBase,
KafkaTopicPartition, KafkaTopicPartitionStateSentinel. apache/flink: SerdeUtils. Kryo 2.24:
FieldSerializer (fields by their names), Output.writeString.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from stateshift.errors import UnknownVersion
from stateshift.formats.flink.java_data import DataInput, DataOutput
from stateshift.formats.flink.values import read_varint, varint_bytes

LATEST, EARLIEST, COMMITTED = -1, -2, -3
NEVER: Final = -(1 << 63)
NOT_RESOLVED: Final = NEVER  # an enumerator of version 1 or 2 has no offset of a partition
ASSIGNED, UNASSIGNED = 0, 1
SPLIT_VERSION: Final = 0

CONSUMER_STATE: Final = "topic-partition-offset-states"
# The marks of partitions of which the consumer has read nothing, as a split has them.
CONSUMER_MARKS: Final = {
    -915623761776: NOT_RESOLVED,
    -915623761775: EARLIEST,
    -915623761774: LATEST,
    -915623761773: COMMITTED,
}

_NEW_OBJECT = 1
_CLASS_MIN = 3  # 0 is null, 1 a class by its name, 2 the first number
_SHORT, _LONG = 2, 64
_STARTS = (LATEST, EARLIEST, COMMITTED, NOT_RESOLVED)
_STOPS = (LATEST, COMMITTED, NEVER)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # org.apache.kafka.common.internals.Topic


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """A partition, the next offset, and the end. `status` only in an enumerator that has it;
    `cluster` and `kept_until_ms` only of a DynamicKafkaSource.
    """

    topic: str
    partition: int
    offset: int = NOT_RESOLVED
    stop: int = NEVER
    status: int | None = None
    cluster: str | None = None
    kept_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class KafkaEnumerator:
    """The partitions that an enumerator knows, in its order. `subtasks` only of version 0: each
    subtask, and how many of the splits are its.
    """

    version: int
    splits: tuple[KafkaSplit, ...]
    discovered: bool | None = None
    subtasks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KafkaTransaction:
    """A transaction that was prepared and not committed."""

    id: str
    producer_id: int
    epoch: int


# ---- a source's splits


def decode_split(version: int, content: bytes) -> KafkaSplit:
    """Return a split of KafkaSource."""
    data = DataInput(content, "a split of KafkaSource")
    _require(version, (SPLIT_VERSION,), data.what)
    split = _read_split(data)
    data.require_end("bytes behind a split's last field")
    return split


def decode_cluster_split(version: int, content: bytes) -> KafkaSplit:
    """Return a split of DynamicKafkaSource."""
    data = DataInput(content, "a split of DynamicKafkaSource")
    _require(version, (1, 2), data.what)
    cluster = data.utf()
    kept_until_ms = data.i8() if version > 1 and data.boolean() else None
    _require(data.i4(), (SPLIT_VERSION,), data.what)
    split = _read_split(data)
    data.require_end("bytes behind a split's last field")
    return replace(split, cluster=cluster, kept_until_ms=kept_until_ms)


def encode_split(split: KafkaSplit) -> bytes:
    """Return the bytes of a split, in version 0."""
    out = DataOutput()
    out.utf(split.topic)
    out.i4(split.partition)
    out.i8(split.offset, split.stop)
    return out.content()


def _read_split(data: DataInput) -> KafkaSplit:
    topic, partition = _read_partition(data)
    at, offset, stop = data.at, data.i8(), data.i8()
    if offset < 0 and offset not in _STARTS:
        raise data.wrong(f"a partition that begins at {offset}", at)
    if stop < 0 and stop not in _STOPS:
        raise data.wrong(f"a partition that ends at {stop}", at + 8)
    return KafkaSplit(topic, partition, offset, stop)


def _read_partition(data: DataInput) -> tuple[str, int]:
    at, topic = data.at, data.utf()
    if not _TOPIC.fullmatch(topic):
        raise data.wrong(f"{topic[:40]!r} is no name of a topic", at)
    at, partition = data.at, data.i4()
    if partition < 0:
        raise data.wrong(f"partition {partition}", at)
    return topic, partition


# ---- a source's enumerator


def decode_enumerator(version: int, content: bytes) -> KafkaEnumerator:
    """Return the partitions that an enumerator of KafkaSource knows."""
    data = DataInput(content, "the enumerator of KafkaSource")
    _require(version, (0, 1, 2, 3), data.what)
    if version == 0:
        enumerator = _read_assignments(data)
    else:
        count = data.items("partitions")
        if version > 2:
            _require(data.i4(), (SPLIT_VERSION,), data.what)
        splits = tuple(_read_enumerated(data, version) for _ in range(count))
        enumerator = KafkaEnumerator(version, splits, data.boolean() if version > 1 else None)
    data.require_end("bytes behind the last partition, which Flink refuses")
    return enumerator


def _read_assignments(data: DataInput) -> KafkaEnumerator:
    count = data.items("subtasks")
    _require(data.i4(), (SPLIT_VERSION,), data.what)
    splits: list[KafkaSplit] = []
    subtasks: list[tuple[int, int]] = []
    for _ in range(count):
        subtask, own = data.i4(), data.items("splits")
        subtasks.append((subtask, own))
        splits += [_read_sized_split(data) for _ in range(own)]
    return KafkaEnumerator(0, tuple(splits), subtasks=tuple(subtasks))


def _read_enumerated(data: DataInput, version: int) -> KafkaSplit:
    split = _read_sized_split(data) if version > 2 else KafkaSplit(*_read_partition(data))
    if version == 1:
        return split
    at, status = data.at, data.i4()
    if status not in (ASSIGNED, UNASSIGNED):
        raise data.wrong(f"a partition's status is {status}, where 0 or 1 is expected", at)
    return replace(split, status=status)


def _read_sized_split(data: DataInput) -> KafkaSplit:
    inner = data.within()
    split = _read_split(inner)
    inner.require_end("bytes behind a split's last field")
    return split


def encode_enumerator(enumerator: KafkaEnumerator) -> bytes:
    """Return the bytes of an enumerator, in its version."""
    out = DataOutput()
    version = enumerator.version
    if version == 0:
        out.i4(len(enumerator.subtasks), SPLIT_VERSION)
        splits = iter(enumerator.splits)
        for subtask, count in enumerator.subtasks:
            out.i4(subtask, count)
            for split in islice(splits, count):
                out.sized(encode_split(split))
        return out.content()
    out.i4(len(enumerator.splits))
    if version > 2:
        out.i4(SPLIT_VERSION)
    for split in enumerator.splits:
        if version > 2:
            out.sized(encode_split(split))
        else:
            out.utf(split.topic)
            out.i4(split.partition)
        if version > 1:
            assert split.status is not None, "each partition has a status since version 2"
            out.i4(split.status)
    if version > 1:
        out.boolean(enumerator.discovered is True)
    return out.content()


# ---- the source before it


@dataclass(frozen=True, slots=True)
class ReadOffset:
    """A partition, and the last record of it that was read: -1 where there was none."""

    topic: str
    partition: int
    offset: int
    class_number: int

    @property
    def next(self) -> int:
        """The next record's offset, or a mark as a split has it."""
        return CONSUMER_MARKS.get(self.offset, self.offset + 1)


def decode_read_offset(content: bytes) -> ReadOffset:
    """Return one element of the state."""
    data = DataInput(content, "a position of FlinkKafkaConsumer")
    class_number = _varint(data)
    if class_number < _CLASS_MIN:
        raise data.wrong(f"Kryo's number of a class is {class_number}", 0)
    _require_new(data)
    at, own_hash = data.at, _unzigzag(_varint(data))
    partition = _unzigzag(_varint(data))
    _require_new(data)
    topic = _read_topic(data)
    offset = data.i8()
    data.require_end("bytes behind a position")
    if partition < 0 or own_hash != _hash(topic, partition):
        raise data.wrong(f"the hash {own_hash} is not that of {topic}, partition {partition}", at)
    if offset < -1 and offset not in CONSUMER_MARKS:
        raise data.wrong(f"a partition that was read up to {offset}", data.end - 8)
    read = ReadOffset(topic, partition, offset, class_number)
    if encode_read_offset(read) != content:
        raise data.wrong("a number or a string that Kryo would not have written so", 0)
    return read


def encode_read_offset(read: ReadOffset) -> bytes:
    """Return the bytes of one element."""
    out = DataOutput()
    out.put(varint_bytes(read.class_number))
    out.u1(_NEW_OBJECT)
    out.put(varint_bytes(_zigzag(_hash(read.topic, read.partition))))
    out.put(varint_bytes(_zigzag(read.partition)))
    out.u1(_NEW_OBJECT)
    out.put(_topic_bytes(read.topic))
    out.i8(read.offset)
    return out.content()


def _require_new(data: DataInput) -> None:
    at, mark = data.at, data.u1()
    if mark != _NEW_OBJECT:
        raise data.wrong(f"a reference {mark}, where a new object is expected", at)


def _read_topic(data: DataInput) -> str:
    at, first = data.at, data.u1()
    if first & 0x80:
        length = first & 0x3F
        if first & 0x40:
            length |= _varint(data) << 6
        raw = data.take(length - 1)
    else:
        letters = bytearray((first,))
        while not letters[-1] & 0x80:
            letters.append(data.u1())
        letters[-1] &= 0x7F
        raw = bytes(letters)
    topic = raw.decode("ascii", "replace")
    if not _TOPIC.fullmatch(topic):
        raise data.wrong(f"{topic[:40]!r} is no name of a topic", at)
    return topic


def _topic_bytes(topic: str) -> bytes:
    raw = topic.encode("ascii")
    if _SHORT <= len(raw) < _LONG:
        return raw[:-1] + bytes((raw[-1] | 0x80,))
    length = len(raw) + 1
    if length < _LONG:
        return bytes((length | 0x80,)) + raw
    return bytes((length & 0x3F | 0xC0,)) + varint_bytes(length >> 6) + raw


def _hash(topic: str, partition: int) -> int:
    """Return Java's hash of a KafkaTopicPartition."""
    code = 0
    for letter in topic.encode("ascii"):
        code = 31 * code + letter
    code = (31 * code + partition) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def _zigzag(number: int) -> int:
    return (number << 1 ^ number >> 31) & 0xFFFFFFFF


def _unzigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _varint(data: DataInput) -> int:
    number = read_varint(data)
    if number > 0xFFFFFFFF:
        raise data.wrong("a varint of more than 32 bits", data.at - 1)
    return number


# ---- a sink


def decode_transaction(version: int, content: bytes) -> KafkaTransaction:
    """Return a transaction that a sink's committer has still to commit."""
    data = DataInput(content, "a committable of KafkaSink")
    _require(version, (1,), data.what)
    epoch, producer_id, id_ = data.i2(), data.i8(), data.utf()
    data.require_end("bytes behind a transactional id")
    if not id_ or producer_id < 0 or epoch < 0:
        raise data.wrong(f"transaction {id_!r}, {epoch}. of producer {producer_id}", 0)
    return KafkaTransaction(id_, producer_id, epoch)


def _require(version: int, known: tuple[int, ...], what: str) -> None:
    if version not in known:
        read = " and ".join(map(str, known)) if len(known) < 3 else f"0 to {known[-1]}"
        raise UnknownVersion(f"{what} has version {version}, and {read} is known", None, 0)
