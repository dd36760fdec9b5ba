"""The world: everything a step may touch, handed to it as one value.

    storage(location)  opens where bytes live
    cluster(name)      where jobs run
    groups(brokers, …) the consumer groups of brokers, and a file of client properties
    transforms         pure functions from source streams to target streams, by name
    entries            per engine: a shard's files, read as entries, many at once
    fence              the run that has fenced an image off, if one has
    clock              time, so that tests need not wait
    meter              told of every file done, for whoever watches
    pace               how fast all storages together may be used, where that is bounded
    unsynced           locations whose files are not synced; `storage` sees to it here, and whoever
                       opens storages for the steps elsewhere
    found              what places held when this process first looked, so that files need not be
                       asked for one by one
    read               what shards came to that steps before have read whole, by the names that
                       `step.images.reading_of` gives them
    origins            what a job was started with where it ran, as its cluster told before the halt
    run                the run's name: tags and fences carry it, so a second attempt knows the first
    stop               set once somebody asked to stop
    look               heeds what else is asked of the run while it is at work; returns when it may
                       go on

Only types here: the adapters are opened by `migration`, `look` and `fleet`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from stateshift.clusters.protocol import Cluster, Origin
from stateshift.errors import Interrupted, StorageError
from stateshift.plain import JsonObject
from stateshift.storage.protocol import Content, Input, Storage
from stateshift.survey import Committed, ShardFiles

if TYPE_CHECKING:
    from stateshift.formats.blocks import RowBlock


class ReadFrom(Protocol):
    """Opens a path of the image that is being read, from an offset on."""

    def __call__(self, path: str, offset: int = 0) -> Iterator[bytes]: ...


# Entries of an engine that reads them one by one, and then need not be columns: Arrow takes longer
# to start than a few take to be compared.
Pairs = list[tuple[bytes, bytes]]

# The unit in which a thing that is compared is counted. A thing that is counted elsewhere is
# uncounted.
Unit = Literal["entries", "files", "key_groups", "uncounted"]


class Whole(str):
    """The store of things that are compared whole: `unit` says what each of them is."""

    __slots__ = ("unit",)
    unit: Unit

    def __new__(cls, store: str, unit: Unit) -> Whole:
        made = super().__new__(cls, store)
        made.unit = unit
        return made


def unit_of(store: str) -> Unit:
    """Return the unit in which the things of a store are counted."""
    return store.unit if isinstance(store, Whole) else "entries"


# (read, shard, the image's settings) -> (store, some) ...: the entries of that shard, as the bytes
# the engine compares. Things that are compared whole come under a store that is `Whole`.
EntriesReader = Callable[
    [ReadFrom, ShardFiles, Mapping[str, str]], Iterator[tuple[str, "RowBlock | Pairs"]]
]


@dataclass(frozen=True, slots=True)
class ShardRead:
    """A shard that was read whole, its settings, and the sums of its entries."""

    shard: ShardFiles
    settings: Mapping[str, str]
    sums: Mapping[str, int]


class Contents(list[Content]):
    """Contents that say, once they were made, which shards were read for them."""

    def __init__(
        self, contents: Iterable[Content], shards_read: Callable[[], Sequence[ShardRead]]
    ) -> None:
        super().__init__(contents)
        self.shards_read = shards_read


# (options, inputs) -> one content per output, None for an output that is not needed: there will be
# no such file. Pure: the same inputs give the same bytes.
Transform = Callable[[JsonObject, Sequence[Input]], Sequence[Content | None]]


class Clock(Protocol):
    """The time, and waiting: the real ones, or a simulation's."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Meter(Protocol):
    """Somebody who watches: gets what was done, and is never asked."""

    def phase(self, job: str, name: str, files: int, bytes: int) -> None: ...

    def step(self, name: str, description: str) -> None: ...

    def done(self, files: int, bytes: int) -> None: ...

    def say(self, line: str) -> None: ...


class ConsumerGroups(Protocol):
    """The consumer groups of brokers, while one connection lasts."""

    def state(self, group: str) -> str:
        """Return the state of a group in Kafka's words; nothing for one that is not there."""
        ...

    def committed(self, group: str) -> Mapping[tuple[str, int], Committed]:
        """Return the committed offsets of a group, by topic and partition."""
        ...

    def commit(self, group: str, offsets: Mapping[tuple[str, int], Committed | None]) -> None:
        """Set the offsets of these partitions; None is for one that is forgotten.

        Raises:
            StorageError: the brokers refuse them, as they do while the group has members.
        """
        ...


# (brokers, a file of client properties) -> their consumer groups
OpenGroups = Callable[[str, str | None], AbstractContextManager[ConsumerGroups]]


def no_groups(brokers: str, properties: str | None) -> AbstractContextManager[ConsumerGroups]:
    """Refuse: who has no way to brokers carries out no step that needs one."""
    raise StorageError(f"{brokers} cannot be asked from here", location=brokers)


class Limits(Protocol):
    """How fast all storages together may be used; None is as fast as it goes."""

    @property
    def bytes_per_second(self) -> float | None: ...

    @property
    def operations_per_second(self) -> float | None: ...


class Unwatched:
    """The meter of a run that nobody watches."""

    def phase(self, job: str, name: str, files: int, bytes: int) -> None: ...

    def step(self, name: str, description: str) -> None: ...

    def done(self, files: int, bytes: int) -> None: ...

    def say(self, line: str) -> None: ...


class Listings:
    """The content of places when they were first asked about here, by one listing each. A file that
    was not there then is written, and replaces one of others, without a question.
    """

    def __init__(self, known: Mapping[str, Collection[str]] = MappingProxyType({})) -> None:
        """`known` are the paths of places that somebody else has listed."""
        self._lock = threading.Lock()
        self._paths = {location: frozenset(paths) for location, paths in known.items()}

    def may_hold(self, storage: Storage, path: str, worthwhile: bool) -> bool:
        """Whether it may have been there, or it is not `worthwhile` to list the place."""
        with self._lock:
            found = self._paths.get(storage.location)
            if found is None and worthwhile:
                found = self._paths[storage.location] = frozenset(
                    file.path for file in storage.list()
                )
        return found is None or path in found


@dataclass(frozen=True)
class Correction:
    """The start of a job by `resume --spec`, instead of its plan's, in which `before` stands."""

    before: JsonObject
    options: JsonObject
    environment: Mapping[str, str]
    seconds_max: float

    def applied(self, options: JsonObject) -> dict[str, object]:
        """Return the options of a plan, corrected; those that an engine has added stay."""
        added = {key: value for key, value in options.items() if key not in self.before}
        return {**added, **self.options}


class Claimed(NamedTuple):
    """The location of a standby, and the generation under which this run has claimed it."""

    location: str
    generation: int


class Spared(NamedTuple):
    """Files that were at a place before this run wrote there: where one of them is written over or
    removed, it is moved to the folder instead.
    """

    folder: str
    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fencing:
    """The files that a job needs for its next commit, and the epoch that it has committed. `paths`
    is None where files keep no job of the engine from going on.
    """

    paths: tuple[str, ...] | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class World:
    """Everything outside of a plan that its steps need: storages, clusters, the clock."""

    storage: Callable[[str], Storage]
    cluster: Callable[[str], Cluster]
    transforms: Mapping[str, Transform]
    entries: Mapping[str, EntriesReader]
    clock: Clock
    run: str
    meter: Meter = field(default_factory=Unwatched)
    stop: threading.Event = field(default_factory=threading.Event)
    parallel: int = 4
    cores: int = 1
    groups: OpenGroups = no_groups
    fence: Callable[[str], str | None] = lambda location: None
    fencing: Callable[[str], Fencing] = lambda location: Fencing()
    pace: Limits | None = None
    unsynced: Collection[str] = ()
    claims: dict[str, Claimed] = field(default_factory=dict)  # by place: those of its standbys
    spared: dict[str, Spared] = field(default_factory=dict)  # by place
    look: Callable[[], None] = lambda: None
    found: Listings | None = field(default_factory=Listings)
    corrections: Mapping[str, Correction] = field(default_factory=dict)
    read: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    origins: Callable[[str], Origin | None] = lambda job: None

    def check_interrupted(self) -> None:
        """Steps call this between two writes: Ctrl-C finishes the current one and no more."""
        self.look()
        if self.stop.is_set():
            raise Interrupted("interrupted; what was done is written down")
