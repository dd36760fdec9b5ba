"""State that goes into a group, and comes out of it again: adopting live operators, and leaving
them, is no loss.

    bring_in   rows of `stateshift export` become the first commits of a group
    take_out   every key of a group with its state, as it was last committed

Both are for whoever runs the jobs: bringing in needs a group in which no worker has committed yet.
If it dies between two workers, the same import goes on where it has ended. Taking out reads what is
committed, bin by bin. Each row says how far its worker had come, since that may differ from one
worker to the other while they run.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stateshift.errors import (
    Complaint,
    FormatError,
    Incompatible,
    MissingFile,
    PlanError,
    SpecError,
)
from stateshift.live.bins.bin_run import Writing
from stateshift.live.bins.commits import BinSnapshot, Commit, Ledger
from stateshift.live.bins.files import Files, GroupStart
from stateshift.live.bins.hashing import encoders, hash_of, key_kinds
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.parts import KeyHashing, Membership
from stateshift.live.bins.stores import BinTable, Objects, Store, read_store
from stateshift.live.bins.times import Moment, cut, timer_moment
from stateshift.live.folder import Folder
from stateshift.live.protocol.applying import Folded, Key, State
from stateshift.live.protocol.configuration import BEGIN, bin_of
from stateshift.plain import JsonObject

if TYPE_CHECKING:
    import pyarrow

    from stateshift.live.bins.operators import Function

LOOKS_MAX = 20  # at where the bins are, until two in turn are alike

BinOfMany = tuple[int, int]  # a bin, and how many there are
Share = Mapping[int, bytes]  # a worker's bins, as bytes
Value = JsonObject  # a row's value by column, as `stateshift export` has it
TIMERS = "timers"  # the column of the times of a key's timers, beside it
_STATED = ("value", TIMERS)  # the columns that a function makes a key's state of


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import."""

    keys: int
    bins: int
    workers: tuple[str, ...]
    size: int


class Entry(NamedTuple):
    """A key of a group, with its state."""

    key: Key
    state: State
    bin: int
    worker: str
    frontier: Moment | None


# ------------------------------------------------------------------------------------ in


def bring_in(
    files: Files,
    operator: BinOperator,
    table: pyarrow.Table,
    workers: Sequence[str],
    make_state: Function | None = None,
) -> ImportResult:
    """Make rows of key and value the first state of an operator's workers. Nothing is written
    unless all rows have become state.

    Args:
        files: the group's; no worker has committed, but for an import of the same rows.
        operator: whose state it becomes.
        table: the columns `key` and `value`, as `stateshift export` writes them.
        workers: which the bins begin at, in turn.
        make_state: of a key and a value, with timers also of their times; none for `columns`.
    """
    _check_way(operator, make_state)
    asked = GroupStart(operator.bins, tuple(workers))
    begun = files.begun() or asked
    _check_workers(files, begun, asked)
    files.check_declared(begun, operator.name, operator.bins)
    keys = _keys(operator, table)
    bins = _bins(operator, keys, table, begun.bins, make_state)
    Folder(files.storage).ensure()
    begun = files.begin(begun)
    _check_workers(files, begun, asked)
    shares: dict[str, Share] = {}
    for number, name in enumerate(begun.workers):
        mine = range(number, begun.bins, len(begun.workers))
        shares[name] = {bin: bins[bin].whole() if bin in bins else b"" for bin in mine}
    left = _left(files, operator, shares)
    kinds = key_kinds(keys.schema, operator.key)
    # Let no compaction leave out moves that parts need once they start; refuse where one has.
    parts = [KeyHashing(operator.name, name, kinds, time.time()) for name in left]
    is_all_known = files.first_time() == BEGIN
    if is_all_known:
        for keyed in parts:
            files.join(Membership(-1, keyed.worker, time.time()))
            files.say_keyed(keyed)
        is_all_known = files.begin_part() == BEGIN
        if not is_all_known:
            files.forget_keyed(parts)
    if not is_all_known:
        raise PlanError(
            f"the first moves of this group are not known any more: {files.location} had many",
            hint="import into a group of its own, before bins move there",
        )
    for name in left:
        _first_commit(files, operator, name, shares[name], bins)
    keys = sum(store.keys for store in bins.values())
    size = sum(sum(map(len, share.values())) for share in shares.values())
    return ImportResult(keys, len(bins), begun.workers, size)


def _check_workers(files: Files, begun: GroupStart, asked: GroupStart) -> None:
    """Refuse workers other than those with which a group has begun."""
    if begun.workers != asked.workers:
        flags = " ".join(f"--worker {name}" for name in begun.workers)
        raise PlanError(
            f"the group {files.location} begins at {', '.join(begun.workers)}, not at "
            f"{', '.join(asked.workers)}",
            hint=f"say {flags}, and move bins then; or import into another group",
        )


def _check_way(operator: BinOperator, make_state: Function | None) -> None:
    if (operator.form == "columns") == (make_state is None):
        return
    fact = f"{operator.name} keeps an object a key, which the rows do not say"
    if operator.form == "columns":
        fact = f"{operator.name} keeps a table a bin: its columns are taken from the rows"
    hint = "name a function of (key, value) that returns the state, for all forms but columns"
    raise SpecError((Complaint("state", fact),), hint=hint)


def _left(files: Files, operator: BinOperator, shares: Mapping[str, Share]) -> list[str]:
    """Return the workers whose first commit is still to be written. Those that have it from an
    import of the same rows, which has died, are done. Any other state is refused.
    """
    left: list[str] = []
    has_gone_on: list[str] = []
    for name, share in shares.items():
        last = files.last_commit(operator.name, name)
        if last < 0:
            left.append(name)
            continue
        if not _is_first_commit(files, files.committed(operator.name, name, 0), share):
            raise _has_a_state(operator, name)
        if last > 0:
            has_gone_on.append(name)
    if not left and has_gone_on:
        raise _has_a_state(operator, has_gone_on[0])
    return left


def _is_first_commit(files: Files, commit: Commit | None, share: Share) -> bool:
    """Whether a worker's first commit has just what an import would write into it."""
    if commit is None or commit.here is None or commit.batch is not None:
        return False
    if {str(bin) for bin in share} != set(commit.here):
        return False
    try:
        there = {bin: b"".join(map(files.read, commit.here[str(bin)].pieces)) for bin in share}
    except (FormatError, MissingFile):  # the worker has gone on, and removed what it had first
        return False
    return there == share


def _has_a_state(operator: BinOperator, name: str) -> PlanError:
    return PlanError(
        f"worker {name} of {operator.name} has a state already",
        hint="bring state into a group in which the operator has not run yet; an import that has "
        "died goes on with the same file, function and workers",
    )


def columns_of(table: pyarrow.Table, name: str) -> pyarrow.Table:
    """Return the columns inside a struct; a column that is none as itself."""
    import pyarrow

    if name not in table.column_names:
        fact = f"there is no column {name}"
        hint = "give a file that `stateshift export --to FILE.parquet` has written"
        raise SpecError((Complaint(name, fact),), hint=hint)
    column = table.column(name).combine_chunks()
    if not pyarrow.types.is_struct(column.type):
        return pyarrow.table({name: column})
    names = [field.name for field in column.type]
    return pyarrow.table(dict(zip(names, column.flatten(), strict=True)))


def _keys(operator: BinOperator, table: pyarrow.Table) -> pyarrow.Table:
    """Return the columns of the rows' keys."""
    keys = columns_of(table, "key")
    missing = [name for name in operator.key if name not in keys.column_names]
    if missing:
        fact = f"the rows have no column {', '.join(missing)} in their keys"
        there = keys.column_names
        hint = f"their keys have {', '.join(there)}: --map {there[0]}={missing[0]}"
        raise SpecError((Complaint("key", fact),), hint=hint)
    return keys.select(list(operator.key))


def _bins(
    operator: BinOperator,
    keys: pyarrow.Table,
    table: pyarrow.Table,
    count: int,
    make_state: Function | None,
) -> dict[int, Store]:
    """Return the rows as bins in memory, so many of them."""
    encode = encoders(keys.schema, operator.key)
    parts = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
    bins = [bin_of(hash_of(part, encode), count) for part in parts]
    if make_state is None:
        return _tables(operator, keys, columns_of(table, "value"), bins)
    columns = [table.column(name).to_pylist() for name in _STATED if name in table.column_names]
    return _objects(operator, parts, list(zip(*columns, strict=True)), bins, make_state)


def _tables(
    operator: BinOperator, keys: pyarrow.Table, values: pyarrow.Table, bins: Sequence[int]
) -> dict[int, Store]:
    import pyarrow

    wanted = operator.table
    missing = [name for name in wanted.names if name not in values.column_names]
    if missing:
        fact = f"the rows have no column {', '.join(missing)} in their values"
        raise SpecError((Complaint("value", fact),), hint="declare the state as the rows have it")
    columns = {name: keys.column(name) for name in operator.key}
    for field in wanted:
        columns[field.name] = values.column(field.name).cast(field.type)
    whole = pyarrow.table(columns)
    by_bin: dict[int, list[int]] = defaultdict(list)
    for row, bin in enumerate(bins):
        by_bin[bin].append(row)
    return {bin: BinTable(operator, whole.take(rows)) for bin, rows in by_bin.items()}


def _objects(
    operator: BinOperator,
    parts: Sequence[tuple[object, ...]],
    values: Sequence[Sequence[object]],
    bins: Sequence[int],
    make_state: Function,
) -> dict[int, Store]:
    stores: dict[int, Objects] = defaultdict(lambda: Objects(operator))
    for row, (part, value, bin) in enumerate(zip(parts, values, bins, strict=True)):
        key = part[0] if len(part) == 1 else part
        try:
            made = make_state(key, *value)
        except Exception as error:
            name = getattr(make_state, "__qualname__", type(make_state).__name__)
            raise Incompatible(
                f"{name} raises {type(error).__name__} for row {row}, key {key!r}: {error}",
                hint=f"nothing was brought in; it was given {str((key, *value))[:300]}",
            ) from error
        folded = made if isinstance(made, Folded) else Folded(made)
        store = stores[bin]
        if folded.state is not None:
            store.states[key] = folded.state
        for at, later in folded.later:
            store.ask(timer_moment(at, len(operator.time)), key, later)
    return dict(stores)


def _first_commit(
    files: Files, operator: BinOperator, worker: str, share: Share, bins: Mapping[int, Store]
) -> None:
    """Write a worker's first commit."""
    writing = Writing(operator.name, worker, 0)
    here = {}
    for bin, content in share.items():
        kept = BinSnapshot()
        if bin in bins:
            kept = BinSnapshot((writing.add(content),), bins[bin].keys, bins[bin].due)
        here[str(bin)] = kept
    writing.finish(files.write_data)
    now = time.time()
    commit = Commit(0, None, "", now, now, None, {}, 0, here=here)
    files.commit(operator.name, worker, commit)


# ------------------------------------------------------------------------------------ out


def take_out(files: Files, operator: BinOperator) -> Iterator[Entry]:
    """Yield every key of an operator with its state, bin by bin; of a bin that is on its way, as it
    was given. A worker that runs on removes what it has rewritten: then the bins that are left are
    looked for again. Refused where they move, or are rewritten, faster than they can be read.
    """
    places = _places(files, operator)
    left = list(places)
    looks_in_vain = 0
    while left:
        place = places[left[0]]
        try:
            store = read_store(operator, map(files.read, place.kept.pieces))
        except MissingFile:
            looks_in_vain += 1
            now = _places(files, operator)
            if now.keys() != places.keys():
                raise PlanError(
                    f"the bins of {operator.name} were split or merged while they were read",
                    hint="wait until all workers have so many: "
                    f"stateshift live status {files.location}",
                ) from None
            if now[left[0]].kept == place.kept:
                raise  # nobody has rewritten it
            if looks_in_vain == LOOKS_MAX:
                raise PlanError(
                    f"worker {place.worker} rewrites bin {place.bin} of {operator.name} faster "
                    f"than it can be read: {LOOKS_MAX} times what it had named was removed",
                    hint="export from nearer to the group's storage, or while fewer rows come",
                ) from None
            places = now
            continue
        for key, state in store.entries():
            yield Entry(key, state, place.bin, place.worker, place.frontier)
        left.pop(0)
        looks_in_vain = 0


class CommittedBin(NamedTuple):
    """A bin, the worker that has committed it, and how far that had come."""

    bin: int
    worker: str
    frontier: Moment | None
    kept: BinSnapshot


def _places(files: Files, operator: BinOperator) -> dict[BinOfMany, CommittedBin]:
    """Return the place of each bin."""
    begun = files.begun()
    places: dict[BinOfMany, CommittedBin] = {}
    for name, ledger in _ledgers_at_rest(files, operator).items():
        assert begun is not None, "somebody has committed"
        count = ledger.bins(begun.bins)
        for bin, kept in sorted(ledger.here.items()):
            places[bin, count] = CommittedBin(bin, name, ledger.frontier, kept)
        for given in sorted(ledger.unclaimed):
            places[given.bin, count] = CommittedBin(given.bin, name, cut(given.time), given.kept)
    return places


def _ledgers_at_rest(files: Files, operator: BinOperator) -> dict[str, Ledger]:
    """Return the commits of each worker, without bins that others have taken from it, of one moment
    as far as bins move: they are read one after the other, and a bin that moves meanwhile would be
    in two of them, or in none.
    """
    begun = files.begun()
    before: Counter[BinOfMany] | None = None
    for _ in range(LOOKS_MAX):
        joined = files.joined()
        by_number = {one.number: files.ledger(operator.name, one.name) for one in joined}
        ledgers = {one.name: by_number[one.number].claimed(by_number) for one in joined}
        if begun is None or all(ledger.last is None for ledger in ledgers.values()):
            raise PlanError(
                f"no worker of {operator.name} has committed anything",
                hint=f"stateshift live status {files.location}",
            )
        bins: Counter[BinOfMany] = Counter()
        for ledger in ledgers.values():
            count = ledger.bins(begun.bins)
            bins.update((bin, count) for bin in ledger.here)
            bins.update((given.bin, count) for given in ledger.unclaimed)
        if bins == before and max(bins.values(), default=1) == 1:
            return ledgers
        before = bins
    raise PlanError(
        f"the bins of {operator.name} move all the time: no moment is known at which each is once",
        hint=f"export them again later; or first: stateshift live pause {files.location}",
    )
