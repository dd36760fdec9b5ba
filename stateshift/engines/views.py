"""The views of an image that an engine shows without a run. Types only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol
from zlib import crc32

from stateshift.errors import SpecError
from stateshift.storage.locations import redact
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, ShardFiles, Survey
from stateshift.world import Unit

if TYPE_CHECKING:
    from stateshift.formats.blocks import Column, RowBlock

Change = Literal["added", "removed", "changed"]
Opening = Callable[[str], Storage]

COLUMNS = frozenset(("operator", "store", "shard", "key", "value"))  # of rows

HINT_FILE = "stateshift verify LOCATION --deep names the file it stands in"


@dataclass(frozen=True, slots=True)
class DecodedFile:
    """A single file. `value` is plain JSON; `lines` is the same for a person. `holds_data` is
    whether there may be keys and values of state in it, or anything else.
    """

    path: str
    format: str
    lines: tuple[str, ...]
    value: object
    holds_data: bool = True


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """An entry in plain JSON. `note`, one for all of a store, says why it has no columns."""

    operator: str
    store: str
    shard: int
    key: object
    value: object
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ImageAt:
    """One image of a survey, and the storage it is in. `where` is what it is called in messages."""

    storage: Storage
    survey: Survey
    image: Image
    where: str


@dataclass(frozen=True, slots=True)
class NumberedPart:
    """One part of a state, counted from 1; operator and number alone decide a shard's."""

    number: int
    of: int

    def holds(self, operator: str, shard: int) -> bool:
        """Whether the shard is in this part: an operator deals them out in turn."""
        return (crc32(operator.encode()) + shard) % self.of == self.number - 1


@dataclass(frozen=True, slots=True)
class DeepCheck:
    """How far a deep check goes: whether it compares histories, and which `part` it reads."""

    history: bool = True
    part: NumberedPart | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a state was read: shards, and bytes of what a restart reads; and of how much."""

    shards: int
    shards_all: int
    bytes: int
    bytes_all: int

    def __add__(self, other: Coverage) -> Coverage:
        """Return the reads of two images together."""
        return Coverage(
            self.shards + other.shards,
            self.shards_all + other.shards_all,
            self.bytes + other.bytes,
            self.bytes_all + other.bytes_all,
        )


@dataclass(frozen=True, slots=True)
class CheckStage:
    """The reads of one stage of a deep check, and their time."""

    name: Literal["state", "history"]
    seconds: float
    files: int
    bytes: int

    def __add__(self, other: CheckStage) -> CheckStage:
        """Return the same stage of two images as one."""
        return CheckStage(
            self.name,
            self.seconds + other.seconds,
            self.files + other.files,
            self.bytes + other.bytes,
        )


@dataclass(frozen=True, slots=True)
class HistoryCheck:
    """Snapshots held against the changes before them: how many, what was found, what was read."""

    snapshots: int = 0
    findings: tuple[Finding, ...] = ()
    files: int = 0
    bytes: int = 0

    def __add__(self, other: HistoryCheck) -> HistoryCheck:
        return HistoryCheck(
            self.snapshots + other.snapshots,
            (*self.findings, *other.findings),
            self.files + other.files,
            self.bytes + other.bytes,
        )


@dataclass(slots=True)
class StateRead:
    """The ways in which the entries of a state were read: `decoded` to their ends, by their type;
    `framed`, where the bytes leave no other ends; `sized`, of which only the lengths are known;
    `hidden`, which cannot be told apart. `hidden_by`: the state before it, which hides it.
    """

    operator: str
    state: str
    decoded: int = 0
    framed: int = 0
    sized: int = 0
    hidden: int = 0
    hidden_by: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """The findings of one image, and from which of its epochs a job could restart. `stages` are
    those of a deep check; `left_out` is what it was told not to check, in words; `coverage` is how
    much it read, where that is a part. `no_checksum`: the ranges of bytes, by file, where a changed
    one may go unseen; `undecoded`: the serializers whose values nobody has read; `read`: how the
    entries of each state were read. Flink's engine says these.
    """

    findings: tuple[Finding, ...]
    epochs: tuple[int, ...]
    stages: tuple[CheckStage, ...] = ()
    left_out: tuple[str, ...] = ()
    coverage: Coverage | None = None
    no_checksum: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    undecoded: tuple[str, ...] = ()
    read: tuple[StateRead, ...] = ()


# The tally of the entries of each store, by operator, shard and store: how many, and their sum.
Tallies = dict[tuple[str, int, str], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs, in plain JSON: A's value, and B's; None where it is not."""

    operator: str
    store: str
    change: Change
    key: object
    before: object
    after: object


@dataclass(slots=True)
class Counts:
    """How one store of one operator compares: counts of entries, or of things compared whole."""

    operator: str
    store: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0
    unit: Unit = "entries"

    @property
    def equal(self) -> bool:
        return not (self.added or self.removed or self.changed)


@dataclass(slots=True)
class Differences:
    """`incomparable` names stores, and why nothing can be said about them. `different` is what can
    be said: it is None where all that could be compared is equal, and something could not.
    """

    stores: list[Counts] = field(default_factory=list)
    incomparable: list[tuple[str, str, str]] = field(default_factory=list)
    shown: list[Difference] = field(default_factory=list)
    epochs: tuple[int | None, int | None] = (None, None)
    engine: str = "spark"

    @property
    def same(self) -> dict[str, int]:
        """Return the amount that is the same on both sides, by what it is counted in."""
        counts = {"entries": 0}
        for store in self.stores:
            counts[store.unit] = counts.get(store.unit, 0) + store.same
        return counts

    @property
    def equal(self) -> bool:
        return self.different is False

    @property
    def different(self) -> bool | None:
        if not all(store.equal for store in self.stores):
            return True
        return None if self.incomparable else False


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of an image to export: an operator, a store, a shard, an earlier batch, or changes;
    and only every so-many-th shard, where the engine can leave others out.
    """

    operator: str | None = None
    store: str | None = None
    batch: int | None = None
    changes: tuple[int, int] | None = None
    every: int = 1
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of a source, the first of them with the number `first`: columns of Arrow by name, or
    lists of plain JSON as an export has them.
    """

    source: str
    first: int
    count: int
    columns: Mapping[str, Column]

    @property
    def unit(self) -> str:
        return "line" if isinstance(self.columns["key"], list) else "row"

    def by_store(
        self, wanted: Wanted, stores: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[str, str, Sequence[int]]]:
        """Yield operators and stores that rows name, or that are `wanted` or the only ones, with
        the places of their rows. SpecError: rows have other columns, or do not say whose they are.
        """
        if self.columns.keys() - COLUMNS or not {"key", "value"} <= self.columns.keys():
            expected = "key and value; operator, store and shard may stand beside"
            found = ", ".join(self.columns)
            raise SpecError.of(self.source, "rows have other columns", found, expected)
        names = []
        for place, (column, default) in enumerate(
            (("operator", wanted.operator), ("store", wanted.store))
        ):
            given = self.columns.get(column)
            if given is None and default is None:
                own = [store for store in stores if wanted.operator in (None, store[0])]
                known = sorted({store[place] for store in own})
                if len(known) != 1:
                    fact = f"rows do not say which {column} they are of"
                    hint = f"--{column} NAME, or a column `{column}`: {', '.join(known)}"
                    raise SpecError.of(self.source, fact, hint=hint)
                default = known[0]
            listed = given if isinstance(given, list) else given and given.to_pylist()
            names.append([default] * self.count if listed is None else listed)
        if all(name.count(name[0]) == len(name) for name in names):
            yield str(names[0][0]), str(names[1][0]), range(self.count)
            return
        places: dict[tuple[str, str], list[int]] = {}
        for row, (operator, store) in enumerate(zip(*names, strict=True)):
            places.setdefault((str(operator), str(store)), []).append(row)
        for (operator, store), rows in places.items():
            yield operator, store, rows

    def take(self, places: Sequence[int]) -> RowBatch:
        """Return some of the rows, without the columns that say which store is theirs."""
        columns = {}
        for name in ("key", "value"):
            column = self.columns[name]
            if isinstance(column, list):
                columns[name] = [column[place] for place in places]
            else:
                columns[name] = column if len(places) == len(column) else column.take(list(places))
        return RowBatch(self.source, self.first, len(places), columns)


@dataclass
class RowNumbers:
    """Rows of several sources, counted from 0 on; `begins`: those before each source, its name."""

    count: int = 0
    begins: list[tuple[int, str]] = field(default_factory=list)

    def add(self, batch: RowBatch) -> None:
        """Count the rows of a batch."""
        if batch.first == 1:
            self.begins.append((self.count, batch.source))
        self.count += batch.count

    def named(self, number: int) -> str:
        """Return the words for a row."""
        at = bisect_right(self.begins, number, key=lambda begin: begin[0]) - 1
        begin, source = self.begins[at]
        return f"row {number - begin + 1} of {source}"


@dataclass(frozen=True, slots=True)
class PreparedState:
    """State that was made of rows: the changes that a copy of the template needs to have it.
    `kept`: the entries that are the template's, byte by byte, where they are counted.
    """

    changes: tuple[dict[str, object], ...]
    entries: Mapping[tuple[str, str], int]
    warnings: tuple[str, ...] = ()
    kept: Mapping[tuple[str, str], int] | None = None


@dataclass(frozen=True, slots=True)
class ShardCount:
    """The number of entries in one shard of a store, and their size."""

    shard: Annotated[int, "its number"]
    entries: Annotated[int, "how many entries it holds"]
    bytes: Annotated[int, "the bytes of their columns"]


@dataclass(frozen=True, slots=True)
class LargeEntry:
    """An entry with one of the largest keys, or values."""

    bytes: Annotated[int, "the bytes of the key, or of the value"]
    shard: Annotated[int, "the shard that it is in"]
    key: Annotated[object, "the key, as plain JSON"]


@dataclass(frozen=True, slots=True)
class Times:
    """The times in a column, by the hour; `ages` are counts before the reference, in days."""

    column: Annotated[str, "the column that has times, such as key.window.end"]
    oldest_ms: Annotated[int, "the oldest of them, down to the hour"]
    newest_ms: Annotated[int, "the newest of them, up to the hour"]
    reference_ms: Annotated[int, "what ages are counted from: the watermark, else the newest time"]
    ages: Annotated[dict[str, int], "entries by age: at least so many days, and less than the next"]


@dataclass(frozen=True, slots=True)
class StoreProfile:
    """The profile of one store: its entries by shard, the largest of them, and their ages."""

    table: Annotated[str, "its name in SQL (`stateshift query`)"]
    operator: Annotated[str, "the operator whose state it is"]
    store: Annotated[str, "the store of that operator"]
    entries: Annotated[int, "how many entries it has; an estimate, if not all shards were read"]
    bytes: Annotated[int, "the bytes of their columns; likewise"]
    margin: Annotated[int, "entries more or less that the estimate may be wrong by; 0 if exact"]
    shards: Annotated[tuple[ShardCount, ...], "the shards that were read"]
    shards_there: Annotated[int, "how many shards the store has"]
    skew: Annotated[float, "entries of the largest shard that was read, by those of the mean"]
    largest_keys: Annotated[tuple[LargeEntry, ...], "the largest keys"]
    largest_values: Annotated[tuple[LargeEntry, ...], "the keys of the largest values"]
    times: Annotated[tuple[Times, ...], "columns that have times, with the age of entries"]
    files: Annotated[
        int,
        "files of its shards; column families share those of their store. 0: it has none of its "
        "own, as where the states of a Flink operator share files",
    ]
    stored_bytes: Annotated[int, "the bytes of these files"]

    @property
    def is_estimate(self) -> bool:
        return len(self.shards) < self.shards_there


@dataclass(frozen=True, slots=True)
class ImageProfile:
    """The profiles of all stores of an image."""

    location: Annotated[str, "where the image is", redact]
    watermark_ms: Annotated[int | None, "its watermark; null where it has none, or does not say it"]
    stores: Annotated[tuple[StoreProfile, ...], "its stores"]


class Export(Protocol):
    """The part to export. `chunks` gives the file's bytes once, whoever reads, and counts."""

    @property
    def notes(self) -> Sequence[str]: ...

    @property
    def wanted(self) -> Wanted: ...

    @property
    def format(self) -> str: ...

    @property
    def entries(self) -> int: ...

    @property
    def stores(self) -> tuple[tuple[str, str], ...]:
        """The operator and the name of each store that is exported."""
        ...

    @property
    def watermark_ms(self) -> int | None:
        """The time up to which events have come, as far as the image says."""
        ...

    def chunks(self, readers: Readers | None = None) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class ExportedPart:
    """Entries that others have written to a file, which is gone when the next is asked for."""

    file: str
    entries: int


@dataclass
class Compared:
    """How many entries of each store are the same, besides those put; and every store met."""

    same: dict[str, int] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)


class Readers(Protocol):
    """A fleet, as those know it who have much to read."""

    def is_worth(self, bytes: int) -> bool:
        """Whether so much is worth being read by others."""
        ...

    def deep(self, survey: Survey, image: Image, tallies: Tallies | None) -> tuple[Finding, ...]:
        """Return the faults of everything a restart reads; `tallies` get the stores' if given."""
        ...

    def histories(self, survey: Survey, image: Image, tallies: Tallies) -> HistoryCheck:
        """Hold the snapshots against the changes before them, by what `deep` has tallied."""
        ...

    def unequal(
        self,
        sides: Any,
        sizes: tuple[Mapping[str, int], Mapping[str, int]],
        put: Callable[[int, RowBlock], None],
    ) -> Compared:
        """Put every entry that may differ, with its side, in blocks."""
        ...

    def exported(
        self,
        survey: Survey,
        shards: Iterable[tuple[Image, ShardFiles]],
        wanted: Wanted,
        format: str,
    ) -> Iterator[ExportedPart]:
        """Yield the entries of shards that are wanted, in their order."""
        ...
