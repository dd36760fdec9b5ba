"""One bin through its stages: the same in the driver and in a task of Spark's.

    BinWork   the stages, the state as it is kept, rows that were held and rows that came
    Memory    bins in memory, and pieces of files that are read together
    run       reads what is not in memory, folds, gives, takes, and returns the changes

State in memory counts only as long as it is the state that is kept under its name: after a batch
that was not committed it is read again.

The stages that the rows of a bin go through in a batch, up to a frontier, are pure:

    history of the bin    west, from 45 on east, from 90 on west
    west's frontier       from 40 to 95
    stages                apply before 45 · give at 45 to east · leave out before 90 · take at 90 ·
                          apply before 95

Until a bin that is to be taken has come, all its rows from there on are held. A bin that goes on
before it has come waits here as well: it is given once it was taken.
"""

from __future__ import annotations

import contextlib
import gc
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from stateshift.live.bins.arrow_tables import to_bytes
from stateshift.live.bins.batches import Records, Rows
from stateshift.live.bins.commits import (
    BinChange,
    BinSnapshot,
    FilePiece,
    GivenBin,
    RedistributedBin,
    add_piece,
)
from stateshift.live.bins.files import data_file
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.stores import Output, Store, read_store, rows_as_bytes, rows_from_bytes
from stateshift.live.bins.times import Moment, cut
from stateshift.live.protocol.configuration import History, Time

T = TypeVar("T")

LASTING_MIN = 1000  # keys of a bin: of fewer it costs more than it saves
FETCHED_MAX = 1 << 26  # bytes of states that are read together
GAP_MAX = 1 << 17  # bytes between two pieces that are read along rather than asked for anew
SPAN_MAX = 1 << 24
PIECES_MAX = 16  # and up to twice as many, so that not all bins are written whole at one time


@dataclass(frozen=True, slots=True)
class ArrivedBin:
    """A bin that was given to here."""

    source: int
    kept: BinSnapshot


@dataclass(frozen=True, slots=True)
class BinWork:
    """The way of one bin through a batch."""

    bin: int
    stages: tuple[Stage, ...]
    after: Position
    kept: BinSnapshot | None  # as it is here
    taken: Mapping[Time, ArrivedBin]
    held: tuple[FilePiece, ...]  # rows of before
    rows: Rows | None
    frontier: Moment | None = None  # before the batch; rows before it are late
    is_rewritten: bool = False  # written as a whole, whether it has changed or not
    comes_again: Moment | None = None  # held rows from here on are left out: they are read again

    @property
    def is_elsewhere(self) -> bool:
        """Whether its rows before the frontier are others'."""
        is_left_out = [type(stage) for stage in self.stages] == [LeaveOut]
        return is_left_out and self.after.place == "away"


@dataclass(slots=True)
class BinResult:
    """The result of one bin. Pieces are parts of files that are written."""

    bin: int
    changed: BinChange | None = None
    given: list[GivenBin] = field(default_factory=list)
    held: tuple[FilePiece, ...] = ()
    folded: int = 0
    rows_held: int = 0
    held_first: Moment | None = None  # the earliest of the rows held; None where it is not known
    late: int = 0


@dataclass(slots=True)
class BatchResult:
    """The result of a batch: of each bin, with the rows put out; or redistributed bins."""

    done: list[BinResult]
    outputs: tuple[FilePiece, ...] = ()
    put_out: int = 0
    tables: list[object] | None = None  # Arrow tables, where they are at hand
    dealt: list[RedistributedBin] = field(default_factory=list)


class Writing:
    """The data of a commit that is being filled. Rows of bins that are awaited get a file of their
    own: they may be needed long after states and outputs of their batch are not.
    """

    def __init__(self, operator: str, worker: str, number: int) -> None:
        self._states = _NewFile(operator, worker, number)
        self._awaiting = _NewFile(operator, worker, number)

    def add(self, content: bytes) -> FilePiece:
        """Add a piece that the next batches replace, and return where it will be."""
        return self._states.add(content)

    def hold(self, content: bytes, position: Position) -> FilePiece:
        """Add rows of a bin which cannot be folded yet, and return where they will be."""
        file = self._awaiting if position.place == "awaited" else self._states
        return file.add(content)

    def finish(self, write: Callable[[str, bytes], None]) -> None:
        for file in (self._states, self._awaiting):
            content = b"".join(file.parts)
            if content:
                write(file.path, content)


class _NewFile:
    """A file that is being filled."""

    def __init__(self, operator: str, worker: str, number: int) -> None:
        self.path = data_file(operator, worker, number, uuid.uuid4().hex[:12])
        self.parts: list[bytes] = []
        self._size = 0

    def add(self, content: bytes) -> FilePiece:
        piece = FilePiece(self.path, self._size, len(content))
        self.parts.append(content)
        self._size += len(content)
        return piece


@dataclass
class Memory:
    """Bins in memory, each with how it is kept."""

    operator: BinOperator
    read: Callable[[FilePiece], bytes]
    stores: dict[int, tuple[BinSnapshot, Store]] = field(default_factory=dict)
    fetched: dict[FilePiece, bytes] = field(default_factory=dict)

    def fetch(self, works: Iterable[BinWork]) -> None:
        """Read the pieces that works need together, in the place of those of other works."""
        needed: list[FilePiece] = []
        for work in works:
            if not work.stages and not work.is_rewritten:
                continue
            needed += work.held
            states = [taken.kept for taken in work.taken.values()]
            for kept in states if work.kept is None else [work.kept, *states]:
                needed += self.missing_of(work.bin, kept)
        self.fetch_pieces(needed)

    def fetch_pieces(self, needed: Iterable[FilePiece]) -> None:
        self.fetched = dict(read_together(needed, self.read))

    def missing_of(self, bin: int, kept: BinSnapshot) -> tuple[FilePiece, ...]:
        """Return the pieces of a bin, as it is kept, that are not in memory."""
        known = self.stores.get(bin)
        return kept.pieces[0 if known is None else _common(known, kept) :]

    def content(self, piece: FilePiece) -> bytes:
        """Return the bytes of a piece, which was fetched or is read now."""
        fetched = self.fetched.get(piece)
        return self.read(piece) if fetched is None else fetched

    def take(self, bin: int, kept: BinSnapshot) -> Store:
        """Return a bin's state as it is kept, and forget it: whoever has it changes it."""
        known = self.stores.pop(bin, None)
        common = 0 if known is None else _common(known, kept)
        if known is not None and 0 < common == len(kept.pieces):
            return known[1]
        with lasting(kept.keys):
            if known is None or common == 0:
                return read_store(self.operator, map(self.content, kept.pieces))
            return known[1].caught_up(map(self.content, kept.pieces[common:]))

    def put(self, bin: int, kept: BinSnapshot, store: Store) -> None:
        self.stores[bin] = (kept, store)

    def read_ahead(self, bin: int, kept: BinSnapshot) -> None:
        """Read a bin that will come, or what has changed of it since the last time."""
        self.put(bin, kept, self.take(bin, kept))


def read_together(
    pieces: Iterable[FilePiece], read: Callable[[FilePiece], bytes]
) -> Iterator[tuple[FilePiece, bytes]]:
    """Yield pieces with their bytes; those that lie close to each other are read by one request. A
    task that another process's bins come to needs a piece of each, and most lie in one file: on an
    object store a request for each would take as long as the batch.
    """
    for span, inside in spans(pieces):
        content = read(span)
        for piece in inside:
            start = piece.at - span.at
            yield piece, content[start : start + piece.size]


def spans(pieces: Iterable[FilePiece]) -> list[tuple[FilePiece, list[FilePiece]]]:
    """Return the spans that are read at a time, each with the pieces in it."""
    found: list[tuple[FilePiece, list[FilePiece]]] = []
    for piece in sorted(set(pieces)):
        if found:
            span, inside = found[-1]
            end = max(span.at + span.size, piece.at + piece.size)
            is_close = piece.at - (span.at + span.size) <= GAP_MAX
            is_close = is_close and piece.at + piece.size - span.at <= SPAN_MAX
            if span.file == piece.file and is_close:
                inside.append(piece)
                found[-1] = (span._replace(size=end - span.at), inside)
                continue
        found.append((piece, [piece]))
    return found


@contextlib.contextmanager
def lasting(keys: int) -> Iterator[None]:
    """Keep what is made meanwhile out of Python's search for garbage. States are many objects that
    stay: to look through all of them, again and again, takes longer than to read them. They are
    freed all the same once nothing refers to them. Earlier garbage is collected before, or it would
    stay for ever; that is quick, since states that were read earlier are left out.
    """
    if keys < LASTING_MIN or not gc.isenabled():
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def portions(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield items in portions that are small enough to be read together."""
    portion: list[T] = []
    size = 0
    for item in items:
        portion.append(item)
        size += size_of(item)
        if size > FETCHED_MAX:
            yield portion
            portion, size = [], 0
    yield portion


def _size(work: BinWork) -> int:
    """Return the bytes of states that a work may need."""
    taken = sum(taken.kept.size for taken in work.taken.values())
    return taken + (0 if work.kept is None else work.kept.size)


def _common(known: tuple[BinSnapshot, Store], kept: BinSnapshot) -> int:
    """Return the number of pieces of a kept state that are in memory; 0 if it cannot catch up."""
    before, store = known
    count = len(before.pieces)
    if kept.pieces[:count] != before.pieces or store.is_changed:
        return 0
    return count


def run(work: BinWork, memory: Memory, writing: Writing, put_out: list[Output]) -> BinResult:
    """Take a bin through its stages."""
    done = BinResult(work.bin)
    if work.rows is not None and work.frontier is not None:
        late, in_time = work.rows.cut(work.frontier)
        done.late = len(late)
        work = replace(work, rows=in_time)
    if not work.stages and not work.is_rewritten:  # rows are held behind those held already
        done.held = work.held
        if work.comes_again is not None:
            done.held = ()
            rows = _held(work, memory)
            if rows is not None and len(rows):
                done.held = (writing.hold(rows_as_bytes(rows), work.after),)
        if work.rows is not None and len(work.rows):
            done.held = (*done.held, writing.hold(rows_as_bytes(work.rows), work.after))
            done.rows_held = len(work.rows)
        return done
    return _Run(work, memory, writing, put_out, done).through()


def run_works(
    works: Iterable[BinWork], memory: Memory, writing: Writing, write: Callable[[str, bytes], None]
) -> BatchResult:
    """Take bins through their stages, and write their changes, outputs and held rows."""
    import pyarrow

    put_out: list[Output] = []
    done: list[BinResult] = []
    for some in portions(works, _size):
        memory.fetch(some)
        done += [run(work, memory, writing, put_out) for work in some]
    memory.fetched = {}
    came = BatchResult(done, tables=put_out_as_tables(memory.operator, put_out))
    if came.tables:
        table = pyarrow.concat_tables(came.tables)
        came.outputs = (writing.add(to_bytes(table)),)
        came.put_out = table.num_rows
    writing.finish(write)
    return came


def _held(work: BinWork, memory: Memory) -> Rows | None:
    """Return the rows that are held, without those that come again."""
    rows: Rows | None = None
    for piece in work.held:
        rows = _merged(rows, rows_from_bytes(memory.content(piece)))
    if rows is not None and work.comes_again is not None:
        rows, _ = rows.cut(work.comes_again)
    return rows


def _merged(rows: Rows | None, later: Rows | None) -> Rows | None:
    if rows is None or later is None:
        return later if rows is None else rows
    return rows.merged(later)


@dataclass
class _Run:
    """A bin on its way through its stages."""

    work: BinWork
    memory: Memory
    writing: Writing
    put_out: list[Output]
    done: BinResult
    kept: BinSnapshot = field(default_factory=BinSnapshot)
    store: Store | None = None

    def through(self) -> BinResult:
        """Go through all stages, and write what is left of the bin here."""
        work, done = self.work, self.done
        if work.kept is not None:
            self.kept, self.store = work.kept, self.memory.take(work.bin, work.kept)
        rest = _merged(_held(work, self.memory), work.rows)
        for stage in work.stages:
            match stage:
                case LeaveOut(until):
                    rest = None if rest is None else rest.cut(until)[1]
                case Apply(until):
                    rest = self._apply(until, rest)
                case Give(time, worker):
                    self._give(time, worker)
                case Take(time):
                    self.kept = work.taken[time].kept
                    self.store = self.memory.take(work.bin, self.kept)
        if rest is not None and len(rest):
            done.held = (self.writing.hold(rows_as_bytes(rest), work.after),)
            done.rows_held, done.held_first = len(rest), rest.first
        if self.store is not None:
            if self.store.is_changed or work.is_rewritten or not self.kept.pieces:
                done.changed = self._written(self.store)
                self.kept = add_piece(self.kept, done.changed)
            self.memory.put(work.bin, self.kept, self.store)
        return done

    def _apply(self, until: Moment, rows: Rows | None) -> Rows | None:
        assert self.store is not None, "what is applied is here"
        ready, rest = (Records(()), None) if rows is None else rows.cut(until)
        due = self.store.due
        if len(ready) or (due is not None and due < until):
            self.done.folded += len(ready)
            self.put_out.extend(self.store.apply(ready, until))
        return rest

    def _give(self, time: Time, worker: int) -> None:
        assert self.store is not None, "what is given is here"
        if self.store.is_changed or not self.kept.pieces:
            self.kept = add_piece(self.kept, self._written(self.store))
        self.done.given.append(GivenBin(self.work.bin, time, worker, self.kept))
        self.store = None
        self.kept = BinSnapshot()

    def _written(self, store: Store) -> BinChange:
        is_whole = self.work.is_rewritten or _is_worth_whole(self.kept, self.work.bin)
        piece = self.writing.add(store.whole() if is_whole else store.changes())
        return BinChange(self.work.bin, piece, is_whole, store.keys, store.due)


def _is_worth_whole(kept: BinSnapshot, bin: int) -> bool:
    """Whether a bin has many pieces, or larger ones than its first: it is written whole."""
    if not kept.pieces:
        return True
    base, changes = kept.pieces[0].size, kept.pieces[1:]
    if len(changes) >= PIECES_MAX + bin % PIECES_MAX:
        return True
    return sum(piece.size for piece in changes) > max(base, 4096)


def put_out_as_tables(operator: BinOperator, put_out: Sequence[Output]) -> list[object]:
    """Return the rows that were put out as Arrow tables."""
    if not put_out:
        return []
    if operator.form == "columns":
        return list(put_out)
    import pyarrow

    schema = operator.output
    columns = list(zip(*put_out, strict=True))
    arrays = [
        pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return [pyarrow.table(arrays, schema=schema)]


Place = Literal["here", "away", "awaited"]


@dataclass(frozen=True, slots=True)
class Position:
    """How far a bin has come: all before `at` is done. `since` is the awaited move's time."""

    at: Moment
    place: Place
    since: Time | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """Rows before a moment, and what was asked for before it, are folded."""

    until: Moment


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Rows before a moment belong to others."""

    until: Moment


@dataclass(frozen=True, slots=True)
class Give:
    """The bin goes to another worker, as it is after everything before the time."""

    time: Time
    worker: int


@dataclass(frozen=True, slots=True)
class Take:
    """The bin comes, as it was given at the time."""

    time: Time


Stage = Apply | LeaveOut | Give | Take


def stages(
    history: History, me: int, position: Position, frontier: Moment, arrived: Container[Time]
) -> tuple[tuple[Stage, ...], Position]:
    """Return a bin's stages up to a frontier, and its position then. `arrived`: moves to here."""
    found: list[Stage] = []
    place, since, at = position.place, position.since, position.at
    if place == "awaited":
        assert since is not None, "what is awaited has a time"
        if since not in arrived:
            return (), position
        found.append(Take(since))
        place, since = "here", None
    for time, worker in history:
        if not at < cut(time) <= frontier:
            continue
        at, is_mine = cut(time), worker == me
        found.append(Apply(at) if place == "here" else LeaveOut(at))
        if place == "here" and not is_mine:
            found.append(Give(time, worker))
            place = "away"
        elif place == "away" and is_mine:
            if time not in arrived:
                return tuple(found), Position(at, "awaited", time)
            found.append(Take(time))
            place = "here"
    found.append(Apply(frontier) if place == "here" else LeaveOut(frontier))
    return tuple(found), Position(frontier, place)
