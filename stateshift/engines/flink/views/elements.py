"""Entries as a person reads them: keys, namespaces and values decoded, where their serializers are
among those that can be read without the job's classes; what is left is shown as its bytes, in
hexadecimal digits.

    Shown(operator, state, subtask, key, value)
        keyed           key: {"key": ..., "window": ..., "map_key": ...}
        list, union     key: {"index": ...} within the subtask
        broadcast       key: {"key": ...}
        what is not decoded    {"bytes": ...}; where it is long, or was not held, its SHA-256:
                               {"digest": ...}

Other programs get them as rows: Parquet, Arrow or JSON lines. Reads only.

    operator | store (the state's name) | shard (the subtask) | key | value

In JSON lines, keys and values are JSON. A Parquet or an Arrow file has one schema, and what a
state's key looks like only its serializers know: there they are the same JSON as text. A value that
is not decoded is shown as its bytes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from shlex import quote
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stateshift.engines.flink.entries.image import (
    Digest,
    header_of,
    is_canonical,
    of_subtask,
    plain_pieces,
    short,
)
from stateshift.engines.flink.entries.keyed import (
    Shown,
    TextRows,
    headers_of,
    hidden_states,
    keyed_entries,
    why_opaque,
)
from stateshift.engines.flink.entries.operators import positions_in
from stateshift.engines.flink.image import flink_image, id_in, metadata_of, names_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.engines.flink.survey.image import survey as surveyed
from stateshift.engines.views import HINT_FILE, Opening, Readers, ShownEntry, Wanted
from stateshift.engines.window import GrowingFile
from stateshift.errors import FormatError, PlanError
from stateshift.formats import bounds
from stateshift.formats.blocks import Column, binary, edges, join_columns
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.key_groups import prefix_bytes
from stateshift.formats.flink.keyed_columns import EntryPlaces, columns_in, texts_of
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.metadata import Metadata, OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import BROADCAST, Partitioned
from stateshift.formats.flink.operator_state import (
    OperatorHeader,
    Pair,
    decode_operator_header,
    element_bytes,
    read_element,
    split_elements,
)
from stateshift.formats.flink.protobuf import is_described
from stateshift.formats.flink.serializers import Unknown
from stateshift.formats.flink.state_values import key_parts, read_value, read_value_around
from stateshift.formats.spans import Content
from stateshift.plain import JsonObject
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Survey

ROWS = 16_384
_MESSAGE: Final = re.compile(r"Protobuf of ([\w.$]+)")
TEXT_BYTES: Final = 2 * 1024 * 1024  # of entries that are made texts together

See = Callable[[str, object], None]  # a state, and what is shown of an entry

_SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("operator", "store")),
        ("shard", pa.int32()),
        *((name, pa.string()) for name in ("key", "value")),
    ]
)


def shown_entries(metadata: Metadata, streams: Streams) -> Iterator[Shown]:
    """Yield every entry of an image, operator by operator."""
    for operator in metadata.operators:
        yield from of_operator(operator, streams)


def of_operator(operator: OperatorState, streams: Streams) -> Iterator[Shown]:
    """Yield the entries of one operator, subtask by subtask."""
    own, most = operator.id.hex(), operator.max_parallelism
    for subtask in operator.all_subtasks:
        with _naming(operator, subtask):
            for state, key, value in _of_subtask(subtask, most, streams):
                yield Shown(own, state, subtask.index, key, value)


@contextmanager
def _naming(operator: OperatorState, subtask: SubtaskState) -> Iterator[None]:
    """Let errors name the subtask that is read."""
    try:
        yield
    except FormatError as error:
        fact = f"operator {operator.id.hex()}, subtask {subtask.index}: {error.fact}"
        hint = error.hint or HINT_FILE
        raise type(error)(fact, error.path, error.offset, hint=hint) from error


def text_rows(
    operator: OperatorState,
    streams: Streams,
    store: str | None = None,
    see: See = lambda state, shown: None,
) -> Iterator[TextRows]:
    """Yield one state of an operator, or all, subtask by subtask; who asks sees entries that are
    read one by one.
    """
    for subtask in operator.all_subtasks:
        keyed, most = subtask.managed_keyed, operator.max_parallelism
        with _naming(operator, subtask):
            if isinstance(keyed, KeyGroups) and is_canonical(keyed, streams):
                for rows in _texts_of(keyed, prefix_bytes(most), streams, store, see):
                    yield TextRows(subtask.index, *rows)
                subtask = replace(subtask, managed_keyed=None)
            every = _of_subtask(subtask, most, streams)
            rest = (entry for entry in every if store in (None, entry[0]))
            while batch := list(islice(rest, ROWS)):
                texts = []
                for state, key, value in batch:
                    see(state, [key, value])
                    texts.append((state, json.dumps(key), json.dumps(value)))
                yield TextRows(subtask.index, *map(_column, zip(*texts, strict=True)))


def _texts_of(
    keyed: KeyGroups, prefix: int, streams: Streams, store: str | None, see: See
) -> Iterator[tuple[Column, Column, Column]]:
    """Yield the entries of a canonical file: states, keys and values, in their order."""
    header = header_of(keyed, streams)
    if header is None:
        return
    size_max = min(TEXT_BYTES, bounds.piece())
    pieces = plain_pieces(keyed, streams, size_max)
    for columns in columns_in(pieces, prefix, len(header.states), size_max):
        found, order = [], []
        for number, state in enumerate(header.states):
            rows = np.flatnonzero(columns.states == number)
            if len(rows) and store in (None, state.name):
                places = columns.of(rows, prefix)
                texts = _texts_of_state(header, state, columns.content, places, see)
                found.append((_column([state.name] * len(rows)), *texts))
                order.append(rows)
        if found:
            in_order = pa.array(np.argsort(np.concatenate(order), kind="stable"))
            states, keys, own = map(pa.concat_arrays, zip(*found, strict=True))
            yield states.take(in_order), keys.take(in_order), own.take(in_order)


def _texts_of_state(
    header: Header, state: StateInfo, content: Content, places: EntryPlaces, see: See
) -> tuple[Column, Column]:
    """Return keys and values of entries of one state."""
    keys, values, odd = texts_of(header, state, content, places)
    if not odd.any():
        return keys, values
    pairs = []
    for row in np.flatnonzero(odd).tolist():
        key, key_end, value, end = (int(edge[row]) for edge in places)
        raw_key, raw = content[key:key_end], content[value:end]
        shown = [_key(header, state, raw_key.tobytes()), _value(state, raw.tobytes())]
        see(state.name, shown)
        pairs.append(tuple(map(json.dumps, shown)))
    new_keys, new = map(_column, zip(*pairs, strict=True))
    mask = pa.array(odd)
    return pc.replace_with_mask(keys, mask, new_keys), pc.replace_with_mask(values, mask, new)


def _column(texts: Iterable[str]) -> Column:
    return binary([text.encode("utf-8", "surrogatepass") for text in texts])


def _of_subtask(
    subtask: SubtaskState, max_parallelism: int, streams: Streams
) -> Iterator[tuple[str, object, object]]:
    keyed = subtask.managed_keyed
    if why_opaque(keyed, streams) is None:
        for header, state, _, raw_key, raw in keyed_entries(keyed, max_parallelism, streams):
            yield state.name, _key(header, state, raw_key), _value(state, raw)
        for hidden in hidden_states(keyed, max_parallelism, streams):
            shown: dict[str, object] = dict(_undecoded(short(hidden.content)))
            if len(hidden.states) > 1:
                shown["hides"] = list(hidden.states[1:])
            yield hidden.states[0], {"key_group": hidden.group}, shown
        keyed = None
    if subtask.managed_operator is not None:
        yield from listed_elements(subtask.managed_operator, streams)
    rest = replace(subtask, managed_operator=None, managed_keyed=keyed)
    for name, raw_key, raw in of_subtask(rest, prefix_bytes(max_parallelism), streams):
        yield name, {"bytes": _text(raw_key)}, _undecoded(raw)


def listed_elements(handle: Partitioned, streams: Streams) -> Iterator[tuple[str, object, object]]:
    """Yield state, key and value of each element of state that belongs to no key."""
    starts = handle.starts
    if handle.stream is None or not starts:
        return
    content = b"".join(streams.chunks(handle.stream))
    elements = split_elements(content, starts, handle.stream.size)
    header = decode_operator_header(content[: min(starts)])
    for named in handle.states:
        index = 0
        for offset, count in Counter(named.offsets).items():
            for key, value in _element(header, named.name, elements[offset], count):
                shown: dict[str, object] = {"index": index}
                if named.mode == BROADCAST:
                    shown = {} if key is None else {"key": key}
                yield named.name, shown, value
                index += 1


def _element(header: OperatorHeader, name: str, raw: bytes, count: int) -> list[Pair]:
    state = header.state(name)
    try:
        content = element_bytes(header, raw)
    except FormatError:
        return [(None, _undecoded(raw))]
    if state is None:
        return [(None, _undecoded(content))]
    try:
        split_positions = positions_in(name, content, count)
        if split_positions and all(split_positions):
            plain = [[asdict(each) for each in positions] for positions in split_positions]
            return [(None, each[0] if len(each) == 1 else each) for each in plain]
        return read_element(state, content, count)
    except (Unknown, FormatError):
        return [(None, _undecoded(content))]


def _undecoded(raw: bytes) -> dict[str, str]:
    return {"digest": raw.hex()} if isinstance(raw, Digest) else {"bytes": raw.hex()}


class Shower:
    """Decodes entries of one operator, as `entries` gives them."""

    def __init__(self, operator: OperatorState, streams: Streams) -> None:
        self._states: dict[str, tuple[Header, StateInfo]] = {}
        self._listed: dict[str, OperatorHeader] = {}
        for subtask in operator.all_subtasks:
            if why_opaque(subtask.managed_keyed, streams) is not None:
                continue
            for header in headers_of(subtask.managed_keyed, streams):
                for state in header.states:
                    self._states.setdefault(state.name, (header, state))
        for subtask in operator.all_subtasks:
            handle = subtask.managed_operator
            if handle is not None and handle.stream is not None and handle.starts:
                head = streams.head(handle.stream, min(handle.starts))
                described_by = decode_operator_header(head)
                self._listed.update((state.name, described_by) for state in handle.states)

    def key(self, state: str, raw: bytes) -> object:
        if state in self._states:
            return _key(*self._states[state], raw)
        return {} if state in self._listed and not raw else {"bytes": _text(raw)}

    def value(self, state: str, raw: bytes) -> object:
        if state in self._states:
            _, info = self._states[state]
            return _value(info, raw)
        if state not in self._listed:
            return _undecoded(raw)
        pairs = _element(self._listed[state], state, raw, 1)
        if len(pairs) == 1 and pairs[0][0] is None:
            return pairs[0][1]
        return [list(pair) for pair in pairs]


def _key(header: Header, state: StateInfo, raw: bytes) -> dict[str, object]:
    data = DataInput(raw, "a key")
    parts: dict[str, object] = {}
    try:
        parts.update(key_parts(header, state, data))  # as far as they can be read
    except (Unknown, FormatError):
        return {**parts, "bytes": raw.hex()}
    return parts if data.at_end() else {**parts, "bytes": raw.hex()}


def _value(state: StateInfo, raw: bytes) -> object:
    if state.kind == "timers":
        return None
    try:
        return read_value(state, raw)
    except Unknown:
        with suppress(Unknown, FormatError):
            return read_value_around(state, raw)
    except FormatError:
        pass
    return {"bytes": raw.hex()}


def _text(key: bytes) -> str:
    return key.decode("ascii") if key.isascii() else key.hex()


def first_entries(storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
    """Yield up to `limit` entries of every state of every image that has metadata."""
    for image in survey.images:
        if flink_image(image) is None:
            continue
        names = names_of(image)
        counts: Counter[tuple[str, str]] = Counter()
        for entry in shown_entries(metadata_of(image), Streams(storage.chunks, places_of(image))):
            state = (entry.operator, entry.state)
            counts[state] += 1
            if counts[state] <= limit:
                name = names[entry.operator]
                yield ShownEntry(name, entry.state, entry.subtask, entry.key, entry.value)


@dataclass
class FlinkExport:
    """Entries to export: `chunks` gives the bytes once, `entries` counts them meanwhile."""

    image: Image
    streams: Streams
    wanted: Wanted
    format: str
    entries: int = 0
    watermark_ms: int | None = None
    as_bytes: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """A note for each state with bytes or fields that are not decoded. Known when the file is
        written.
        """
        unnamed: dict[tuple[str, str], str] = {}
        for operator, state in self._states():
            types = " ".join([state["value"] or "", *(each["type"] for each in state["fields"])])
            classes = {name for name in _MESSAGE.findall(types) if not is_described(name)}
            if classes:
                unnamed[operator, state["name"]] = ", ".join(sorted(classes))
        return (
            *(
                f"operator {operator}, state {state}: fields of {classes} are shown by number; "
                "--descriptor FILE tells their names"
                for (operator, state), classes in unnamed.items()
            ),
            *(
                f"operator {operator}, state {state}: what its serializer alone can read is bytes, "
                "in hexadecimal; the job's own classes are needed to decode it"
                for operator, state in sorted(self.as_bytes.keys() - unnamed.keys())
            ),
        )

    @property
    def stores(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys((name, state["name"]) for name, state in self._states()))

    def _states(self) -> Iterator[tuple[str, JsonObject]]:
        """Yield the states that are asked for, with the names of their operators."""
        names = names_of(self.image)
        for operator in self.image.operators:
            for state in cast("list[JsonObject]", operator.details["states"]):
                is_of_operator = self.wanted.operator in (None, operator.id)
                if is_of_operator and self.wanted.store in (None, state["name"]):
                    yield names[operator.id], state

    def chunks(self, readers: Readers | None = None) -> Iterator[bytes]:
        self.entries = 0
        return self._lines() if self.format == "jsonl" else self._table()

    def _rows(self) -> Iterator[tuple[str, TextRows]]:
        names = names_of(self.image)
        for operator in metadata_of(self.image).operators:
            id_ = operator.id.hex()
            if self.wanted.operator not in (None, id_):
                continue

            def see(state: str, shown: object, name: str = names[id_]) -> None:
                if _is_bytes(shown):
                    self.as_bytes[name, state] = None

            if self.wanted.shard is not None:
                own = (each for each in operator.all_subtasks if each.index == self.wanted.shard)
                operator = replace(operator, subtasks=tuple(own))
            for rows in text_rows(operator, self.streams, self.wanted.store, see):
                self.entries += len(rows.keys)
                yield names[id_], rows

    def _lines(self) -> Iterator[bytes]:
        for operator, rows in self._rows():
            each = rows.states.dictionary_encode()
            named = (name.decode("utf-8", "surrogatepass") for name in each.dictionary.to_pylist())
            names = _column(map(json.dumps, named))
            begin = f'{{"operator": {json.dumps(operator)}, "store": '.encode()
            behind = f', "shard": {rows.subtask}, "key": '.encode()
            head = join_columns(begin, names.take(each.indices), behind)
            lines = join_columns(head, rows.keys, b', "value": ', rows.values, b"}\n")
            starts, content = edges(lines)
            yield bytes(content[: int(starts[-1])])

    def _table(self) -> Iterator[bytes]:
        out = GrowingFile()
        open_writer = pq.ParquetWriter if self.format == "parquet" else pa.ipc.new_file
        writer = open_writer(out, _SCHEMA)
        held: list[pa.Table] = []
        count = 0
        for operator, rows in self._rows():
            size = len(rows.keys)
            shard = pa.array(np.full(size, rows.subtask, np.int32))
            columns = [_column([operator] * size), rows.states, shard, rows.keys, rows.values]
            held.append(pa.table(columns, names=_SCHEMA.names).cast(_SCHEMA))
            count += size
            if count >= ROWS:
                writer.write_table(pa.concat_tables(held).combine_chunks())
                held, count = [], 0
                yield out.taken()
        if held:
            writer.write_table(pa.concat_tables(held).combine_chunks())
        writer.close()
        yield out.taken()


def _is_bytes(shown: object) -> bool:
    """Whether `shown_entries` could not decode it, or not to its end."""
    match shown:
        case dict():
            return "bytes" in shown or "digest" in shown or any(map(_is_bytes, shown.values()))
        case list():
            return any(map(_is_bytes, shown))
    return False


def export(location: str, wanted: Wanted, format: str, opening: Opening) -> FlinkExport:
    """Return the export of a whole image's state, nothing written; it has no batches or changes."""
    if wanted.batch is not None or wanted.changes is not None:
        raise PlanError(
            "a Flink image holds one checkpoint, and no changes: there is no --batch and no "
            "--changes",
            hint=f"stateshift inspect {quote(location)}",
        )
    image, streams = open_image(location, opening)
    name = wanted.operator
    if name is not None and id_in(image, name) not in names_of(image):
        hint = f"its operators: {', '.join(names_of(image).values())}"
        raise PlanError(f"{location} has no operator {name}", hint=hint)
    wanted = replace(wanted, operator=name and id_in(image, name))
    return FlinkExport(image, streams, wanted, format)


def open_image(location: str, opening: Opening) -> tuple[Image, Streams]:
    """Return the image at a location, which is whole, and its bytes.

    Raises:
        PlanError: there is none, or not all of it.
    """
    storage, survey = surveyed(location, opening)
    image = survey.images[0] if survey.images else None
    if image is None:
        told = next(iter(survey.findings), None)
        fact = f"{location} holds no Flink image" if told is None else told.message
        hint = f"stateshift inspect {quote(location)}" if told is None else told.hint
        raise PlanError(fact, hint=hint)
    refusals = (finding.message for finding in image.findings if finding.level == "refuse")
    why = next(refusals, None)
    if why is not None:
        raise PlanError(
            f"the state is not whole: {why}", hint=f"stateshift verify {quote(location)}"
        )
    return image, Streams(storage.chunks, places_of(image))
