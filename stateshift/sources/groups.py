"""Consumer groups at brokers: what they have committed, read and set. Only a step sets it.

Brokers take offsets for a group while it has no active members, and refuse them otherwise: no
consumer that has just joined is overruled. One that chooses its partitions itself (`assign`, as the
sources of Flink and Spark do) is no member, and cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from stateshift.errors import StorageError
from stateshift.sources.kafka import Client, open_client
from stateshift.survey import Committed

Offsets = Mapping[tuple[str, int], Committed | None]


@dataclass(frozen=True)
class Groups:
    """The consumer groups of brokers, while one connection lasts: a `world.ConsumerGroups`."""

    brokers: str
    _admin: Client

    def state(self, group: str) -> str:
        """Return the state of a group. Only groups of the older protocol can be described."""
        states = {each["group_id"]: each.get("group_state") for each in self._admin.list_groups()}
        return states.get(group) or ""

    def committed(self, group: str) -> Mapping[tuple[str, int], Committed]:
        """Return the committed offsets of a group, by topic and partition."""
        answer, offsets = self._admin.list_group_offsets(group)[group], {}
        for place, each in answer.items():
            if each.offset >= 0:
                offsets[place.topic, place.partition] = Committed(each.offset, each.metadata or "")
        return offsets

    def commit(self, group: str, offsets: Offsets) -> None:
        """Set the offsets of these partitions."""
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        wanted, forgotten = {}, []
        for place, each in offsets.items():
            if each is None:
                forgotten.append(TopicPartition(*place))
            else:
                wanted[TopicPartition(*place)] = OffsetAndMetadata(each.offset, each.metadata, -1)
        results = dict(self._admin.alter_group_offsets(group, wanted))
        results.update(self._admin.delete_group_offsets(group, forgotten))
        for place, result in results.items():
            if result.errno:
                raise StorageError(
                    f"{self.brokers} does not take an offset of {place.topic}/{place.partition} "
                    f"for the group {group}: {result.__name__}",
                    location=self.brokers,
                    hint="stop the consumers of the group; may this user commit for it?",
                )


@contextmanager
def open_groups(brokers: str, properties: str | None) -> Iterator[Groups]:
    """Connect to brokers for as long as this lasts."""
    with open_client("KafkaAdminClient", brokers, properties) as admin:
        yield Groups(brokers, admin)
