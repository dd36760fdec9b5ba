"""What `stateshift live import`, `export` and `evict` do: names and locations in, what came of it
out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stateshift.errors import Complaint, FormatError, PlanError, SpecError
from stateshift.live.bins.adopting import Entry, ImportResult, bring_in, take_out
from stateshift.live.bins.evicting import Eviction, evict_everywhere
from stateshift.live.bins.exported_rows import map_columns, with_timers
from stateshift.live.bins.files import Files
from stateshift.live.bins.operators import Operator
from stateshift.live.code import import_function
from stateshift.live.folder import Folder
from stateshift.live.protocol.applying import State
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently

if TYPE_CHECKING:
    import pyarrow

TABLE_MAX = 1 << 34  # bytes of a file that is brought in: it is read as a whole


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """Files of `stateshift export`: of state, and of timers; and the operator's names of columns by
    the files' own.
    """

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
    """Write every key of an operator with its state; return how many, and the file's bytes."""
    declared = _operator(operator)
    shown = _as_json if show is None else import_function(show)
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
    """Take a worker's name from it, in every operator that it runs; say what is waited for."""
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


def _operator(name: str) -> Operator:
    found: object = import_function(name)
    if not isinstance(found, Operator):
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
        return pyarrow.parquet.read_table(source)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise FormatError(f"neither Parquet nor Arrow: {error}", place) from None


def as_table(
    operator: Operator, entries: Iterable[Entry], shown: Callable[[State], object]
) -> pyarrow.Table:
    """Return entries as a table: a column for each of the key's, the state as `shown` has it, and
    where it was.
    """
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
        return b"".join(_lines(table))
    else:
        fact = f"{to}: the suffix decides the format, and {suffix or 'none'} is none that is known"
        raise SpecError((Complaint("--to", fact, to),), hint="name it .parquet, .arrow or .jsonl")
    return bytes(sink.getvalue())


def _lines(table: pyarrow.Table) -> Iterator[bytes]:
    for row in table.to_pylist():
        yield json.dumps(row, default=str).encode() + b"\n"


def _as_json(state: object) -> str:  # a user's own
    """Return a state as JSON; what JSON cannot hold as its text."""
    return json.dumps(state, default=str)
