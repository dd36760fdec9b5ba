"""A bin's state: in memory, and as bytes.

    Objects    a Python object a key, and what keys have asked to see again; as pickles
    BinTable   a table of Arrow a bin; as Arrow's own format

As bytes a bin is a base and its changes since, one after the other. They are counted from the last
time that they were asked for.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stateshift.errors import Incompatible
from stateshift.live.bins.arrow_tables import (
    from_bytes,
    latest,
    read_tables,
    replace_rows,
    to_bytes,
)
from stateshift.live.bins.batches import Columns, Records, Rows, keys_of
from stateshift.live.bins.operators import BinOperator, Notified
from stateshift.live.bins.times import Moment
from stateshift.live.protocol.applying import Key, State, Timer, Timers, Value, turns

if TYPE_CHECKING:
    import pyarrow

Output = Any  # rows that were put out: a list of tuples, or a table


@dataclass
class Objects:
    """A Python object a key."""

    operator: BinOperator
    states: dict[Key, State] = field(default_factory=dict)
    pending: Timers = field(default_factory=Timers)
    until: Moment = ()
    _changed: set[Key] = field(default_factory=set)
    _asked_before: int = 0
    _is_changed: bool = False

    def __post_init__(self) -> None:
        self._fold = self.operator.fold()

    @property
    def keys(self) -> int:
        return len(self.states)

    @property
    def due(self) -> Moment | None:
        """The earliest moment at which something is to be seen again."""
        return self.pending.earliest

    @property
    def is_changed(self) -> bool:
        return self._is_changed

    def apply(self, rows: Rows, until: Moment) -> list[Output]:
        """Fold rows, and timers before a moment; return the output."""
        assert isinstance(rows, Records)
        put_out: list[Output] = []
        changed = self._changed
        before = len(changed)
        self.until = until
        for _, key, _, folded in turns(rows.records, self.pending, until, self.states, self._fold):
            changed.add(key)
            if folded.outputs:
                put_out.extend(folded.outputs)
        self._is_changed = self._is_changed or len(changed) > before or bool(rows.records)
        return put_out

    def changes(self) -> bytes:
        """Return the changes since this, or `whole`, was called last."""
        states = {key: self.states.get(key) for key in self._changed}
        new = [tuple(one) for one in self.pending.heap if one.number >= self._asked_before]
        self._forget()
        return pickle.dumps((states, new, self.until), protocol=5)

    def whole(self) -> bytes:
        self._forget()
        pending = [tuple(one) for one in self.pending.heap]
        return pickle.dumps((self.states, pending, self.until), protocol=5)

    def entries(self) -> Iterator[tuple[Key, State]]:
        yield from self.states.items()

    def ask(self, time: Moment, key: Key, value: Value) -> None:
        """Ask to see a value again, outside of a fold."""
        self.pending.ask(time, key, Notified(value))
        self._is_changed = True

    def _forget(self) -> None:
        self._changed = set()
        self._asked_before = self.pending.asked
        self._is_changed = False

    def caught_up(self, pieces: Iterable[bytes]) -> Objects:
        """Return the state with its changes since it was read."""
        states, asked, until = self.states, list(self.pending.heap), self.until
        for piece in pieces:
            try:
                changed, new, until = pickle.loads(piece)
            except Exception as error:
                raise Incompatible(
                    f"a bin's state cannot be read here: {type(error).__name__}: {error}",
                    hint="run the workers of a group with the same code and the same Python",
                ) from error
            if states:
                states.update(changed)
            else:
                states = changed
            for key in [key for key, state in changed.items() if state is None]:
                del states[key]  # it has no state any more
            asked = [one for one in asked if one.time >= until]
            asked += [Timer(*one) for one in new]
        return _objects(self.operator, states, asked, until)


@dataclass
class BinTable:
    """A table of Arrow a bin, its rows told apart by their keys."""

    operator: BinOperator
    table: pyarrow.Table | None = None
    _changed: list[pyarrow.Table] = field(default_factory=list)

    @property
    def keys(self) -> int:
        return 0 if self.table is None else int(self.table.num_rows)

    @property
    def due(self) -> Moment | None:
        return None  # a table asks for nothing

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    def apply(self, rows: Rows, until: Moment) -> list[Output]:
        if not len(rows):
            return []
        assert isinstance(rows, Columns)
        changed, put_out = self.operator.function(self.table, rows.table)
        if changed.num_rows:
            self.table = replace_rows(self.table, [changed], self.operator.key)
            self._changed.append(changed)
        return [put_out] if put_out.num_rows else []

    def changes(self) -> bytes:
        changed, self._changed = self._changed, []
        return to_bytes(latest(changed, self.operator.key))

    def whole(self) -> bytes:
        self._changed = []
        return to_bytes(self.table)

    def caught_up(self, pieces: Iterable[bytes]) -> BinTable:
        tables = list(read_tables(pieces))
        base = self.table
        if base is None and tables:
            base = tables.pop(0)
        return BinTable(self.operator, replace_rows(base, tables, self.operator.key))

    def entries(self) -> Iterator[tuple[Key, State]]:
        """Yield each key with its row, the key left out."""
        names = self.operator.key
        for row in () if self.table is None else self.table.to_pylist():
            key = row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
            yield key, {name: value for name, value in row.items() if name not in names}


Store = Objects | BinTable


def read_store(operator: BinOperator, pieces: Iterable[bytes]) -> Store:
    """Return a bin's state by its bytes; an empty one where there are none."""
    store: Store = BinTable(operator) if operator.form == "columns" else Objects(operator)
    return store.caught_up(pieces)


def redistribute_stores(
    operator: BinOperator, stores: Sequence[Store], place: Callable[[Key], int]
) -> dict[int, Store]:
    """Return the states of bins redistributed by `place`, none empty; those given are used up."""
    if operator.form == "columns":
        tables = [store.table for store in stores if isinstance(store, BinTable)]
        return _redistribute_tables(
            operator, [table for table in tables if table is not None], place
        )
    return _redistribute_objects(
        operator, [one for one in stores if isinstance(one, Objects)], place
    )


def _redistribute_objects(
    operator: BinOperator, stores: Sequence[Objects], place: Callable[[Key], int]
) -> dict[int, Store]:
    states: dict[int, dict[Key, State]] = {}
    asked: dict[int, list[Timer]] = {}
    for store in stores:
        for key, state in store.states.items():
            states.setdefault(place(key), {})[key] = state
        for one in store.pending.heap:
            asked.setdefault(place(one.key), []).append(one)
    until = max((store.until for store in stores), default=())
    return {
        bin: _objects(operator, states.get(bin, {}), asked.get(bin, []), until)
        for bin in states.keys() | asked.keys()
    }


def _objects(
    operator: BinOperator, states: dict[Key, State], asked: list[Timer], until: Moment
) -> Objects:
    """Return a bin's objects; its timers are numbered anew, in their order."""
    asked.sort(key=lambda one: (one.time, one.number))
    numbered = [one._replace(number=number) for number, one in enumerate(asked)]
    count = len(numbered)
    return Objects(operator, states, Timers(numbered, count), until, _asked_before=count)


def _redistribute_tables(
    operator: BinOperator, tables: Sequence[pyarrow.Table], place: Callable[[Key], int]
) -> dict[int, Store]:
    import pyarrow

    found: dict[int, list[pyarrow.Table]] = {}
    for table in tables:
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(keys_of(table, operator.key)):
            rows.setdefault(place(key), []).append(row)
        for bin, some in rows.items():
            fitting = found.setdefault(bin, [])
            taken = table.take(some)
            fitting.append(taken.cast(fitting[0].schema) if fitting else taken)
    return {
        bin: BinTable(operator, pyarrow.concat_tables(some).combine_chunks())
        for bin, some in found.items()
    }


def rows_as_bytes(rows: Rows) -> bytes:
    """Return rows that are held as bytes."""
    if isinstance(rows, Columns):
        return pickle.dumps((rows.moments, to_bytes(rows.table)), protocol=5)
    assert isinstance(rows, Records)
    return pickle.dumps(list(rows.records), protocol=5)


def rows_from_bytes(content: bytes) -> Rows:
    """Return the rows that bytes hold."""
    held = pickle.loads(content)
    if isinstance(held, tuple):
        moments, table = held
        return Columns(moments, from_bytes(table))
    return Records(held)
