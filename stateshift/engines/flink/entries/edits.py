"""Keyed entries of one operator that become others, or stay behind, on their way to a new image.

    Edit(evolve, where, store)     the changes that `evolve` and `prune` of transform ask for
      .open(head) -> EditedFile    of a file's header: the new one, and new entries of old ones
    EditedFile.entries(entries)

A condition is asked of `key`, as entries show it: `key.key`, in a window `key.window`, in a map
`key.map_key`, of a timer `key.timestamp`; fields of a tuple are f0, f1. In one state (`store`) it
may ask `value`. It has to fit all states that it is asked of. DuckDB answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from stateshift.engines.sql import Condition
from stateshift.errors import Incompatible, PlanError
from stateshift.formats.flink.evolution import (
    FieldChanges,
    StateChange,
    Unfit,
    Write,
    evolve_state,
)
from stateshift.formats.flink.heap_groups import AROUND_MAX, namespace_of
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.keyed_state import Header, StateInfo, decode_header
from stateshift.formats.flink.serializers import Unknown
from stateshift.formats.flink.state_values import (
    WINDOW_NAMES,
    is_known,
    own_key_parts,
    read_key,
    read_value,
)
from stateshift.formats.flink.type_names import sql_shape
from stateshift.formats.flink.values import read_around
from stateshift.plain import JsonObject, from_plain, to_plain

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = 1 << 15  # entries that are looked at together
_COMMA: Final = 0x2C
_NULL: Final = b"\1"  # of a map's value


class NumberedEntry(NamedTuple):
    """A canonical entry: key group, number of its state, key without the group, and value."""

    group: int
    state: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Edit:
    """The changes of one operator's entries; in `evolve`, those of a state by its name."""

    evolve: Mapping[str, JsonObject] = field(default_factory=dict)
    where: str | None = None
    store: str | None = None

    @classmethod
    def of(cls, plain: JsonObject) -> Edit:
        edit: Edit = from_plain(cls, plain)
        return edit

    def plain(self) -> JsonObject:
        plain: JsonObject = to_plain(self)
        return plain

    def open(self, head: bytes) -> EditedFile:
        """Return a file's new header and entries.

        Raises:
            Unfit: a type cannot be changed so.
            PlanError: the condition does not fit.
        """
        header = decode_header(head, len(head))
        changes: dict[int, StateChange | None] = {}
        pieces, at = [], 0
        for number, state in enumerate(header.states):
            if state.name not in self.evolve:
                continue
            changes[number], (start, end), snapshot = _changed(head, state, self.evolve[state.name])
            change, is_opaque = changes[number], header.key is None or header.key.is_opaque
            if change is not None and change.write_key is not None and is_opaque:
                raise Unfit("map_key: it comes after keys of a serializer that is not known here")
            pieces += [head[at:start], snapshot]
            at = end
        content = bytearray(b"".join((*pieces, head[at:])))
        left = len(header.states) - list(changes.values()).count(None)
        if left == 0:
            raise Unfit("no state would be left: drop the operator")
        if left < len(header.states):
            count_at = header.states[0].span[0] - 2
            content[count_at : count_at + 2] = left.to_bytes(2, "big")
        conditions: dict[int, StateCondition] = {}
        for number, state in enumerate(header.states):
            if self.where is not None and self.store in (None, state.name):
                is_alone = len(header.states) == 1 or self.store is not None
                asked = Condition(self.where, state.name)
                conditions[number] = StateCondition(asked, header, state, is_alone)
                conditions[number].check()
        return EditedFile(bytes(content), header, changes, conditions)


def _changed(
    head: bytes, state: StateInfo, asked: JsonObject
) -> tuple[StateChange | None, tuple[int, int], bytes]:
    """Return the change of a state, None where it is dropped; and what goes in which place of the
    header.
    """
    if state.kind == "timers":
        raise Unfit("timers have no fields")
    if list(asked.get("drop", ())) != ["*"]:
        change = evolve_state(head, state, FieldChanges.of(asked))
        assert state.value is not None, "it was changed"
        return change, state.value.span, change.snapshot
    if state.span == (0, 0):
        raise Unfit("its header has a serializer that is not known here")
    return None, state.span, b""


@dataclass(frozen=True)
class EditedFile:
    """A file's new header, and what becomes of its entries, by the old numbers of their states:
    None is dropped.
    """

    head: bytes
    header: Header
    changes: Mapping[int, StateChange | None]
    conditions: Mapping[int, StateCondition]

    @property
    def kept(self) -> list[int]:
        """The old numbers of the new file's states."""
        states = range(len(self.header.states))
        return [number for number in states if self.changes.get(number, "") is not None]

    @property
    def names(self) -> list[str]:
        """The names of the new file's states."""
        return [self.header.states[number].name for number in self.kept]

    def entries(self, entries: Iterable[NumberedEntry]) -> Iterator[NumberedEntry]:
        """Yield the entries of the new file."""
        numbers = {number: new for new, number in enumerate(self.kept)}
        rest = iter(entries)
        while batch := list(islice(rest, ROWS)):
            gone: set[int] = set()
            for state, condition in self.conditions.items():
                own = [row for row, entry in enumerate(batch) if entry.state == state]
                true_of = condition.true_of([batch[row] for row in own]) if own else ()
                gone.update(map(own.__getitem__, true_of))
            for row, entry in enumerate(batch):
                if row in gone or entry.state not in numbers:
                    continue
                change, (key, value) = self.changes.get(entry.state), entry[2:]
                if change is not None:
                    key, value = self._changed(entry, change)
                yield NumberedEntry(entry.group, numbers[entry.state], key, value)

    def _changed(self, entry: NumberedEntry, change: StateChange) -> tuple[bytes, bytes]:
        state, key, raw = self.header.states[entry.state], entry.key, entry.value
        if change.write_key is not None:
            data = DataInput(key, "a key")
            for _ in own_key_parts(self.header, state, data):
                pass
            key = key[: data.at] + _rewritten(change.write_key, key, data.at, state.name)
        ahead = 1 if state.type == "MAP" else 0
        write = change.write
        if write is not None and state.type == "LIST":
            write = _ListItems(write).write
        if write is not None and (not ahead or raw[:1] != _NULL):
            raw = raw[:ahead] + _rewritten(write, raw, ahead, state.name)
        return key, raw


@dataclass(frozen=True, slots=True)
class _ListItems:
    """The items of a list, with a comma in between."""

    write_item: Write

    def write(self, data: DataInput) -> bytes:
        items = [self.write_item(data)]
        while not data.at_end():
            at = data.at
            if data.u1() != _COMMA:
                raise data.wrong("no comma between the items of a list", at)
            items.append(self.write_item(data))
        return b",".join(items)


def _rewritten(write: Write, raw: bytes, start: int, state: str) -> bytes:
    """Return a value as the new serializer writes it. A part that only the job's classes can read
    is copied, if there is one way alone to read the rest.
    """
    data = DataInput(raw, "a value", start)
    try:
        new = write(data)
    except Unknown as unknown:
        ways: list[object] = []
        if len(raw) <= AROUND_MAX:
            begun = DataInput(raw, "a value", start)
            ways = [new for end, new in read_around(write, begun) if end == len(raw)]
        if len(ways) != 1 or not isinstance(ways[0], bytes):
            raise Incompatible(
                f"state {state!r} has values whose parts cannot be told apart: {unknown}",
                hint="leave it out of `evolve`: the job's own classes can read and write it",
            ) from unknown
        return ways[0]
    data.require_end(f"bytes behind the end of a value of state {state!r}")
    return new


# ---- conditions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateCondition:
    """A condition on the entries of one state, which may ask their values if it `is_alone`."""

    asked: Condition
    header: Header
    state: StateInfo
    is_alone: bool

    @cached_property
    def _with_value(self) -> bool:
        return self.is_alone and "value" in self.asked.columns

    def check(self) -> None:
        """Check that it fits the state.

        Raises:
            PlanError: it does not; or the keys or values cannot be read.
        """
        state, key = self.state, self.header.key
        if key is None or key.is_opaque or not is_known(self.header, state):
            fact = f"state {state.name!r}: its keys are of a serializer that is not known here"
            raise PlanError(fact, hint="only the job's own classes can read them")
        if self._with_value and state.value is not None and state.value.may_be_unknown:
            fact = f"state {state.name!r}: only the job's classes read all values"
            raise PlanError(fact, hint="ask its key alone")
        shown = {name: [_made_up(shape)] for name, shape in self._shapes.items()}
        self.asked.check(*self._columns(shown))

    def true_of(self, entries: Sequence[NumberedEntry]) -> list[int]:
        """Return the numbers of the entries of which it is true."""
        shown: dict[str, list[object]] = {"key": [], "value": []}
        for entry in entries:
            shown["key"].append(read_key(self.header, self.state, entry.key))
            if self._with_value:
                shown["value"].append(read_value(self.state, entry.value))
        return self.asked.true_of(*self._columns(shown))

    def _columns(self, shown: Mapping[str, Sequence[object]]) -> tuple[pa.Table, list[str]]:
        """Return keys and values as JSON, and what SQL makes of them."""
        import pyarrow as pa

        columns, typed = {}, []
        for name, shape in self._shapes.items():
            plain, type_ = [_plain(each, shape) for each in shown[name]], _arrow_type(shape)
            if type_ is not None:
                columns[name] = pa.array(plain, type_)
                typed.append(name)
                continue
            columns[name] = pa.array(map(json.dumps, plain), pa.string())
            quoted = json.dumps(shape).replace("'", "''")
            typed.append(f"json_transform_strict({name}, '{quoted}') as {name}")
        return pa.table(columns), typed

    @cached_property
    def _shapes(self) -> dict[str, object]:
        """Return the types of keys and values, as DuckDB reads them out of JSON."""
        state, namespace = self.state, namespace_of(self.state)
        assert self.header.key is not None and namespace is not None, "asked before: is_known"
        of_key = {"key": sql_shape(self.header.key)}
        if state.kind == "timers":
            of_key["timestamp"] = "BIGINT"
        name = WINDOW_NAMES.get(namespace.name, "namespace")
        if name is not None:
            of_key[name] = sql_shape(namespace)
        shapes: dict[str, object] = {"key": of_key}
        of_value = state.value
        if state.type == "MAP" and of_value is not None and len(of_value.inner) == 2:
            of_key["map_key"] = sql_shape(of_value.inner[0])
            of_value = of_value.inner[1]
        if self._with_value and of_value is not None:
            shapes["value"] = sql_shape(of_value)
        return shapes


def _made_up(shape: object) -> object:
    """Return a value of a shape for which every comparison is made: nothing, in its lists too."""
    match shape:
        case dict():
            return {name: _made_up(inner) for name, inner in shape.items()}
        case list():
            return [_made_up(inner) for inner in shape]
    return None


def _arrow_type(shape: object) -> pa.DataType | None:
    """Return Arrow's type of a shape whose values are texts and whole numbers; None of another."""
    import pyarrow as pa

    match shape:
        case dict():
            fields = [(name, _arrow_type(inner)) for name, inner in shape.items()]
            return pa.struct(fields) if fields and all(type_ for _, type_ in fields) else None
        case [inner]:
            item = _arrow_type(inner)
            return None if item is None else pa.list_(item)
    return {"BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_()}.get(str(shape))


def _plain(shown: object, shape: object) -> object:
    """Return a value as JSON has it, the fields of a tuple by their names."""
    match shown, shape:
        case list(), dict():
            parts = zip(shape.items(), shown, strict=True)
            return {name: _plain(part, inner) for (name, inner), part in parts}
        case dict(), dict():
            return {name: _plain(part, shape.get(name)) for name, part in shown.items()}
        case list(), _:
            inner = shape[0] if isinstance(shape, list) else None
            return [_plain(part, inner) for part in shown]
        case dict(), _:
            return {name: _plain(part, None) for name, part in shown.items()}
        case str(), "TIMESTAMP" | "TIMESTAMPTZ" | "DATE":
            return shown.removeprefix("+")  # of years beyond 9999, which DuckDB has without it
        case str(), _ if not shown.isascii():  # DuckDB has no half of a pair alone
            return shown.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case float(), _ if not math.isfinite(shown):
            return str(shown)
    return shown
