"""How records are read from a broker: a twin of its client hands them out, as they are and as
slowly as may be.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from stateshift.errors import TransientStorageError
from stateshift.sources import kafka

pytest.importorskip("kafka")

Told = namedtuple("Told", "offset timestamp timestamp_type key value")


class Consumer:
    """A client of one topic, `orders`. Each poll gives one record of one partition; offsets may
    have none.
    """

    def __init__(
        self, partitions: dict[int, tuple[int, int, Sequence[int]]], mute: bool = False
    ) -> None:
        self.partitions, self.mute = partitions, mute
        self.at: dict[Any, int] = {}
        self.closed = False

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(self.partitions) if topic == "orders" else set()

    def beginning_offsets(self, asked: list[Any]) -> dict[Any, int]:
        return {one: self.partitions[one.partition][0] for one in asked}

    def end_offsets(self, asked: list[Any]) -> dict[Any, int]:
        return {one: self.partitions[one.partition][1] for one in asked}

    def assign(self, asked: list[Any]) -> None:
        self.at = {one: self.at.get(one, 0) for one in asked}

    def assignment(self) -> set[Any]:
        return set(self.at)

    def seek(self, one: Any, offset: int) -> None:
        self.at[one] = offset

    def position(self, one: Any) -> int:
        return self.at[one]

    def poll(self, timeout_ms: int) -> dict[Any, list[Told]]:
        for one, offset in self.at.items():
            _, end, held = self.partitions[one.partition]
            if self.mute or offset >= end:
                continue
            following = next((n for n in sorted(held) if n >= offset), None)
            self.at[one] = end if following is None else following + 1
            if following is None:
                return {}  # the end of a transaction: the position moves on, and there is no record
            return {
                one: [Told(following, 1000 + following, following % 2, None, b"v%d" % following)]
            }
        return {}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(partitions: dict[int, tuple[int, int, Sequence[int]]], mute: bool = False) -> Consumer:
        consumer = Consumer(partitions, mute)
        monkeypatch.setattr(kafka, "_client", lambda kind: (lambda **options: consumer, KeyError))
        return consumer

    return put


def offsets_of(read: Any) -> dict[int, list[int]]:
    return {
        number: [record.offset for record in records] for number, records in read["orders"].items()
    }


def test_the_last_records_before_an_offset_and_the_one_at_it_are_read(broker: Any) -> None:
    consumer = broker(
        {0: (0, 100, range(100)), 1: (0, 10, range(10)), 2: (8, 10, (8, 9)), 3: (0, 0, ())}
    )
    read = kafka.records("b:1", None, {"orders": {0: 50, 1: 10, 2: 9, 3: 0}})
    assert offsets_of(read) == {0: [47, 48, 49, 50], 1: [7, 8, 9], 2: [8, 9], 3: []}
    assert read["orders"][0][0] == (47, 1047, True, None, sha256(b"v47").hexdigest())
    assert consumer.closed


def test_offsets_without_a_record_are_passed_over_and_not_waited_for(broker: Any) -> None:
    broker({0: (0, 100, (40, 48))})
    assert offsets_of(kafka.records("b:1", None, {"orders": {0: 50}})) == {0: [48]}


def test_a_partition_or_a_topic_that_is_not_there_has_no_records(broker: Any) -> None:
    broker({0: (0, 10, range(10))})
    read = kafka.records("b:1", None, {"orders": {5: 3}, "payments": {0: 1}})
    assert read == {"orders": {}, "payments": {}}


def test_a_login_that_ends_while_records_are_read_is_an_error_of_the_brokers(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = broker({0: (0, 10, range(10))})
    polls, poll = iter(range(1)), consumer.poll

    def expires(timeout_ms: int) -> Any:
        if next(polls, None) is None:
            raise KeyError("SaslAuthenticationFailedError")
        return poll(timeout_ms)

    monkeypatch.setattr(consumer, "poll", expires)
    with pytest.raises(TransientStorageError, match=r"b:1 does not answer .* \(KeyError\)") as told:
        kafka.records("b:1", None, {"orders": {0: 5}})
    assert "want TLS or a login" in (told.value.hint or "")
    assert consumer.closed


def test_a_broker_that_gives_no_records_is_not_waited_for_without_end(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "READ_SECONDS", 0.05)
    broker({0: (0, 10, range(10))}, mute=True)
    with pytest.raises(TransientStorageError, match=r"gave no records of orders/0"):
        kafka.records("b:1", None, {"orders": {0: 5}})
