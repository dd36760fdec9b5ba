"""A kind of source, as a value. Pure.

    SourceKind(name, …)
      spark(offset, has_log)     an offset in Spark's offset log, decoded JSON -> its details, None
                                 if it is of another kind; `has_log`: there are files below sources/
      flink(source)              the state of a source of Flink's -> its details, or None
      positions(details)         SourcePosition(partition, position) ...
      words(details, every)      the position in a few words; `every`: of all partitions
      step_back(older, newer)    words for how an offset of Spark's is behind an earlier one

Details are plain values with names of ours: they are in the JSON of `inspect`. Offsets and states
are JSON and bytes that somebody else wrote: a function returns None for what it does not know, and
raises FormatError for what cannot be.

A package adds a kind by an entry point of the group `stateshift.sources` that names such a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stateshift.formats.flink.operator_state import ConnectorState
from stateshift.plain import JsonObject

Details = JsonObject


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position in one part of a source: a partition, a shard, a file. `partition` is empty for
    a source that has no parts; `position` is an offset, or words.
    """

    partition: str
    position: int | str


@dataclass(frozen=True, slots=True)
class FlinkSource:
    """The state of a source of Flink's: its splits, and its enumerator if it has a coordinator.
    `states` are the elements of operator states that were written before there were splits.
    """

    splits: tuple[ConnectorState, ...] = ()
    enumerator: ConnectorState | None = None
    states: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)


def no_spark(offset: object, has_log: bool) -> Details | None:
    """Return None: no offset of Spark's is of this kind."""
    return None


def no_flink(source: FlinkSource) -> Details | None:
    """Return None: no source of Flink's is of this kind."""
    return None


def no_positions(details: Details) -> Iterable[SourcePosition]:
    """Return no position: only the connector knows it."""
    return ()


def no_words(details: Details, every: bool) -> str:
    """Return no words."""
    return ""


def no_step(older: object, newer: object) -> str | None:
    """Return None: nobody can tell which of two offsets is the later one."""
    return None


SparkReader = Callable[[object, bool], Details | None]
StepBack = Callable[[object, object], str | None]


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A kind of source. `replayable`: whether it can be read again from an offset, None if that is
    not known. `asked`: Kafka's brokers are asked for the offsets in its details. `comparable`: its
    positions are all that a source's state in Flink says, so `diff` compares them.
    """

    name: str
    replayable: bool | None = None
    spark: SparkReader = no_spark
    flink: Callable[[FlinkSource], Details | None] = no_flink
    positions: Callable[[Details], Iterable[SourcePosition]] = no_positions
    words: Callable[[Details, bool], str] = no_words
    step_back: StepBack = no_step
    asked: bool = False
    comparable: bool = False
