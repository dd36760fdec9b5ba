"""State that is imported, exported, and taken from a worker that never comes back: names and
locations in, results out.

A worker's name is taken from it, so that somebody else can go on. An eviction is a commit of
nothing, created in the place of the worker's next one. If the worker lives after all, its next
commit fails, and it ends. Whoever starts under its name from then on, on whatever cluster, goes on
from its last commit: rows that are folded already are left out, so it reads from the frontier or
from anywhere before. Bins do not go to others by an eviction alone: they have read past the rows
that are still to be folded. They get them by a move, once the heir has caught up.

A worker that has never committed has nothing that could be gone on from: it is said to be evicted,
and its first commit is refused as long as nobody has started under its name.

Rows of `stateshift export` get columns by the operator's names, and the times of timers beside the
keys that they are of. A column inside a struct is named by its path, `key.user`. The times of
Spark's timers and of Flink's are milliseconds since 1970.

    key                   value       timers
    {user: "a", day: 3}   {n: 5}      [1772000000000]
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from stateshift.errors import Complaint, FormatError, PlanError, SpecError
from stateshift.live.bins.adoption import (
    TIMERS,
    Entry,
    ImportResult,
    bring_in,
    columns_of,
    take_out,
)
from stateshift.live.bins.commits import Counts
from stateshift.live.bins.files import Files
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.times import Moment
from stateshift.live.code import import_function
from stateshift.live.folder import Folder
from stateshift.live.protocol.applying import State
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently

if TYPE_CHECKING:
    import pyarrow

TABLE_MAX = 1 << 34  # bytes of a file that is brought in: it is read as a whole
TIMES = ("expiryTimestampMs", "timestamp")  # in a timer's key, of Spark and of Flink
TRIES = 20  # as often a worker that lives may commit in between


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """Files of `stateshift export`: state, timers; the operator's names by the files' own."""

    file: str
    timers: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def import_state(
    group: str, operator: str, exported: ExportFiles, workers: Sequence[str], make_state: str | None
) -> ImportResult:
    """Bring files of `stateshift export` into a group, which is made if it is not there."""
    declared = _operator(operator)
    make = None if make_state is None else import_function(make_state)
    table = map_columns(_read(exported.file), exported.names)
    if exported.timers is not None:
        if make is None:
            fact = f"{declared.name} keeps a table a bin, and asks for nothing later"
            raise SpecError((Complaint("--timers", fact),), hint="leave --timers out")
        timers = _read(exported.timers)
        table = with_timers(table, timers, declared.key, exported.names)
    storage = open_patiently(locations.normal(group, os.getcwd()))
    return bring_in(Files(storage), declared, table, workers, make)


def export_state(group: str, operator: str, to: str, show: str | None) -> tuple[int, int]:
    """Write every key of an operator with its state; return their number, and the file's bytes."""
    declared = _operator(operator)
    # A state that JSON cannot hold is shown as its text.
    shown = partial(json.dumps, default=str) if show is None else import_function(show)
    table = as_table(declared, take_out(_opened(group), declared), shown)
    target = locations.normal(to, os.getcwd())
    content = _encoded(table, to)
    storage = open_patiently(locations.parent(target))
    size = storage.write(locations.name(target), lambda: iter((content,)))
    storage.sync()
    return table.num_rows, size


def evict_worker(
    group: str, worker: str, say: Callable[[str], None] = lambda words: None
) -> tuple[Eviction, ...]:
    """Take a worker's name from it, in every operator that it runs; `say` tells the waits."""
    files = _opened(group)
    evicted = evict_everywhere(files, worker, say)
    if not evicted:
        names = ", ".join(one.name for one in files.joined()) or "none"
        raise PlanError(
            f"there is no worker {worker} that runs an operator", hint=f"the group has {names}"
        )
    return evicted


def _opened(group: str) -> Files:
    storage = open_patiently(locations.normal(group, os.getcwd()))
    Folder(storage).check()
    return Files(storage)


def _operator(name: str) -> BinOperator:
    found: object = import_function(name)
    if not isinstance(found, BinOperator):
        fact = f"{name} is no operator: {type(found).__name__}"
        raise SpecError((Complaint("OPERATOR", fact, name),), hint="decorate it: live.operator(…)")
    return found


def _read(file: str) -> pyarrow.Table:
    """Read a file of rows, by its suffix."""
    import pyarrow
    import pyarrow.parquet

    place = locations.normal(file, os.getcwd())
    content = open_patiently(locations.parent(place)).read(locations.name(place), TABLE_MAX)
    source = pyarrow.BufferReader(content)
    try:
        if file.lower().endswith(".arrow"):
            return pyarrow.ipc.open_file(source).read_all()
        return pyarrow.parquet.ParquetFile(source).read(use_threads=False)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise FormatError(f"neither Parquet nor Arrow: {error}", place) from None


def map_columns(table: pyarrow.Table, names: Mapping[str, str]) -> pyarrow.Table:
    """Return rows with other names of columns, in their keys and in their values."""
    missing = dict(names)
    for part in ("key", "value"):
        columns = columns_of(table, part)
        renamed = {}
        for source, target in names.items():
            column = _at(columns, source.split("."))
            if column is not None:
                renamed[target] = column
                missing.pop(source, None)
        if renamed:
            others = {name: columns[name] for name in columns.column_names if name not in names}
            table = _with(table, part, {**others, **renamed})
    if missing:
        there = ", ".join(columns_of(table, "key").column_names)
        complaints = tuple(
            Complaint("--map", f"the rows have no column {name}", name) for name in missing
        )
        raise SpecError(complaints, hint=f"their keys have {there}")
    return table


def _at(columns: pyarrow.Table, path: Sequence[str]) -> pyarrow.Array | None:
    """Return the column at a path; None where there is none."""
    import pyarrow

    if path[0] not in columns.column_names:
        return None
    column = columns.column(path[0]).combine_chunks()
    for name in path[1:]:
        if not pyarrow.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = column.field(name)
    return column


def _with(
    table: pyarrow.Table, name: str, columns: Mapping[str, pyarrow.ChunkedArray]
) -> pyarrow.Table:
    """Return a table with a struct of columns in the place of one."""
    import pyarrow

    whole = pyarrow.table(dict(columns)).combine_chunks()
    arrays = [column.combine_chunks() for column in whole.columns]
    struct = pyarrow.StructArray.from_arrays(arrays, names=whole.column_names)
    return table.set_column(table.column_names.index(name), name, struct)


def with_timers(
    table: pyarrow.Table, timers: pyarrow.Table, key: Sequence[str], names: Mapping[str, str]
) -> pyarrow.Table:
    """Return rows with the times of their timers; keys with timers alone get a row more."""
    import pyarrow

    columns = columns_of(timers, "key")
    if "key" in columns.column_names and pyarrow.types.is_struct(columns.column("key").type):
        inner = columns_of(columns, "key")  # Spark's: the key, and the time beside it
        columns = columns.drop_columns(["key"])
        for name in inner.column_names:
            columns = columns.append_column(name, inner.column(name))
    columns = columns.rename_columns(
        [names.get(f"key.{name}", names.get(name, name)) for name in columns.column_names]
    )
    times = [name for name in TIMES if name in columns.column_names]
    missing = [name for name in key if name not in columns.column_names]
    if not times or missing:
        fact = f"the keys of its rows have no {', '.join(missing) or 'time'}"
        raise SpecError(
            (Complaint("--timers", fact),),
            hint="give what `stateshift export --store` has written of timers by their key: in "
            "Spark 'default/$eventTimers_keyToTimestamp', in Flink '_timer_state/event_NAME'",
        )
    found: dict[tuple[object, ...], list[int]] = defaultdict(list)
    parts = [columns.column(name).to_pylist() for name in key]
    for *of_key, at in zip(*parts, columns.column(times[0]).to_pylist(), strict=True):
        found[tuple(of_key)].append(at)
    keys = columns_of(table, "key").select(list(key))
    mine = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
    alone = [of_key for of_key in found if of_key not in set(mine)]
    more = {
        name: pyarrow.array([of_key[place] for of_key in alone], keys.schema.field(name).type)
        for place, name in enumerate(key)
    }
    table = _with(table.select(["key", "value"]), "key", dict(zip(key, keys.columns, strict=True)))
    rows = pyarrow.table({"key": [None] * len(alone), "value": [None] * len(alone)})
    if alone:
        rows = _with(rows, "key", {name: pyarrow.chunked_array([more[name]]) for name in key})
        table = pyarrow.concat_tables([table, rows.cast(table.schema)])
    ats = [sorted(found.get(of_key, ())) for of_key in (*mine, *alone)]
    return table.append_column(TIMERS, pyarrow.array(ats, pyarrow.list_(pyarrow.int64())))


def as_table(
    operator: BinOperator, entries: Iterable[Entry], shown: Callable[[State], object]
) -> pyarrow.Table:
    """Return entries as a table: the key's columns, the state as `shown` has it, and its place."""
    import pyarrow

    columns: dict[str, list[object]] = {name: [] for name in operator.key}
    columns |= {name: [] for name in ("state", "bin", "worker", "frontier")}
    for entry in entries:
        parts = entry.key if len(operator.key) > 1 else (entry.key,)
        for name, part in zip(operator.key, parts, strict=True):
            columns[name].append(part)
        columns["state"].append(shown(entry.state))
        columns["bin"].append(entry.bin)
        columns["worker"].append(entry.worker)
        columns["frontier"].append(None if entry.frontier is None else list(entry.frontier))
    return pyarrow.table(columns)


def _encoded(table: pyarrow.Table, to: str) -> bytes:
    """Return a table as a file, by its suffix."""
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    suffix = os.path.splitext(to)[1].lower()
    if suffix == ".parquet":
        pyarrow.parquet.write_table(table, sink)
    elif suffix == ".arrow":
        with pyarrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    elif suffix in (".jsonl", ".json"):
        lines = [json.dumps(row, default=str).encode() for row in table.to_pylist()]
        return b"".join(line + b"\n" for line in lines)
    else:
        fact = f"{to}: the suffix decides the format, and {suffix or 'none'} is none that is known"
        raise SpecError((Complaint("--to", fact, to),), hint="name it .parquet, .arrow or .jsonl")
    return bytes(sink.getvalue())


@dataclass(frozen=True, slots=True)
class Eviction:
    """The place where whoever goes on under the name has to begin."""

    operator: str
    worker: str
    commit: int
    frontier: Moment | None
    bins: int
    at: float | None  # when it committed last by itself


def evict_everywhere(
    files: Files, worker: str, say: Callable[[str], None] = lambda words: None
) -> tuple[Eviction, ...]:
    """The same, in files that are open; none where there is no such worker."""
    evicted = []
    all_runs = [runs for runs in files.runs() if runs.worker == worker]
    for number, runs in enumerate(all_runs, start=1):
        say(f"{number} of {len(all_runs)}: read what {worker} of {runs.operator} has committed")
        evicted.append(evict(files, runs.operator, worker, say))
        files.evict_start(runs)
    return tuple(evicted)


def evict(
    files: Files, operator: str, worker: str, say: Callable[[str], None] = lambda words: None
) -> Eviction:
    """Take a worker's name from it; refuse one that commits faster."""
    names = [one.name for one in files.joined()]
    if worker not in names:
        hint = f"the group has {', '.join(names) or 'none'}"
        raise PlanError(f"there is no worker {worker}", hint=hint)
    for tried in range(1, TRIES + 1):
        ledger = files.ledger(operator, worker)
        last = ledger.last
        if last is None:  # there is nothing to take: its first commit is refused (`bin_worker`)
            return Eviction(operator, worker, 0, None, 0, None)
        try:
            nothing = replace(  # its batch is the last one's, or somebody would do that again
                last,
                number=last.number + 1,
                began=time.time(),
                at=time.time(),
                changed=(),
                given=(),
                taken=(),
                here=None,
                unclaimed=(),
                undelivered=(),
                outputs=(),
                counts=Counts(held=last.counts.held),
                busy={},
            )
            files.commit(operator, worker, nothing)
        except PlanError:
            say(f"{worker} of {operator} has just committed: tried {tried} of {TRIES} times")
            continue
        return Eviction(
            operator=operator,
            worker=worker,
            commit=last.number + 1,
            frontier=last.frontier,
            bins=len(ledger.here),
            at=last.at,
        )
    raise PlanError(
        f"worker {worker} of {operator} lives: it commits all the time",
        hint="stop its application, or move its bins away while it runs: stateshift live move",
    )
