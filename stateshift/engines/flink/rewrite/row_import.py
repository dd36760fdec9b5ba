"""Rows made keyed state: the inverse of `export`. What is made is a savepoint of its own, of the
operators that rows are of; a plan puts the other operators of the template beside it.

    rows    key {"key": ..., "window": ..., "map_key": ...} | value [| operator | store | shard]
            JSON: text in columns of Arrow, plain in lines
    files   _metadata; of each operator a file of key groups for each subtask, and what else it has

Rows replace all entries of their states; states of the same operator without rows keep those of the
template, for they share its files. A row goes to the key group that the hash of its key says. Where
only the job can tell the hash, a key keeps the group that it has in the template, and others are
refused: also Rows and RowData that stand otherwise there, or are too few to show the hash.

    pile    u16 key group, u16 state, key    ->    i64 number of the row, u1 origin, content

A row that shows what the template's entry of its key shows becomes that entry: Flink writes some
values in several forms, and those of which only the job's classes can tell all parts are not
written here. Origin `SHOWN` has such a row, `OLD` the entry, filed by the key that its row has. A
key is the template's too, which has its own group and size before it there.

The new savepoint is read as an export reads it: each state has to show its rows, and no others.
"""

from __future__ import annotations

import json
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import chain, groupby, islice
from json import JSONDecoder
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow.compute as pc

from stateshift.engines.flink.entries.image import numbered_entries
from stateshift.engines.flink.entries.keyed import TextRows
from stateshift.engines.flink.image import (
    Obstacle,
    flink_facts,
    id_in,
    metadata_of,
    names_of,
    places_of,
)
from stateshift.engines.flink.layout import METADATA
from stateshift.engines.flink.places import Places
from stateshift.engines.flink.rewrite.keyed_files import (
    KeyedFile,
    Origin,
    Sections,
    keyed_files,
    refuse_other_hash,
)
from stateshift.engines.flink.rewrite.metadata import (
    RewrittenOperator,
    SubtaskPart,
    Taken,
    unite_images,
)
from stateshift.engines.flink.rewrite.rescale import EVIDENCE, why_not
from stateshift.engines.flink.streams import Streams
from stateshift.engines.views import PreparedState, RowBatch, RowNumbers, Wanted
from stateshift.errors import FormatError, PlanError, SpecError
from stateshift.formats import bounds
from stateshift.formats.blocks import (
    Binary,
    Flags,
    Ints,
    Numbers,
    RowBlock,
    binary,
    block_of,
    cut,
    edges,
    in_order,
    join_columns,
    lengths,
    of_width,
    part,
    whole,
    without_first,
)
from stateshift.formats.flink.binary_rows import WRONG
from stateshift.formats.flink.encoding import BYTES_MAX, EntryWriter, UnfitValue
from stateshift.formats.flink.heap_groups import namespace_of
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.key_groups import (
    groups_of,
    has_one_hash,
    hash_next,
    hashable,
    key_group,
    key_of,
    prefix_bytes,
)
from stateshift.formats.flink.key_hashes import hash_codes, is_hashed, murmur_of_each
from stateshift.formats.flink.keyed_columns import (
    PADDING,
    Columns,
    EntryPlaces,
    columns_in,
    encode_sections,
    texts_of,
)
from stateshift.formats.flink.keyed_state import Header
from stateshift.formats.flink.metadata import (
    OperatorState,
    decode_metadata,
    encode_metadata,
)
from stateshift.formats.flink.references import references
from stateshift.formats.flink.state_values import is_known
from stateshift.formats.flink.stream_handles import FileHandle, files_of
from stateshift.formats.sorting import Scratch, SortedPiles
from stateshift.formats.spans import Content, hash64
from stateshift.storage.protocol import Storage
from stateshift.survey import Image

WRITTEN, SHOWN, OLD = range(3)
CANONICAL: Final = "take a canonical savepoint of the job: flink savepoint --type canonical JOB"
CHECKED: Final = 1000  # entries of a file whose keys are hashed: a job with a hash of its own shows
_PLACE, _ROW, _OWN = Struct(">HH"), Struct(">qB"), Struct(">HI")
_HEAD: Final = np.dtype([("group", ">u2"), ("state", ">u2"), ("number", ">i8"), ("origin", "u1")])
_WORD: Final = 1 << 64
_OLD_HEAD: Final = np.dtype([("group", ">u2"), ("size", ">u4")])
_KEPT: Final = -1  # the number of an entry that is no row
_AT_ONCE: Final = 1 << 15
BATCH_BYTES: Final = 8 * 1024 * 1024  # of the template's entries
# json.loads reads by it, and looks for blanks first.
_SCAN: Final = cast("Callable[[str, int], tuple[object, int]]", vars(JSONDecoder())["scan_once"])


@dataclass(frozen=True)
class Template:
    """The image that all else is taken from, and what shows the entries of any."""

    location: str
    image: Image
    streams: Streams
    shown: Callable[[OperatorState, Streams], Iterable[TextRows]]


class _Record(NamedTuple):
    group: int
    state: int
    key: bytes
    number: int
    origin: int
    content: bytes

    def packed(self) -> tuple[bytes, bytes]:
        head = _PLACE.pack(self.group, self.state)
        return head + self.key, _ROW.pack(self.number, self.origin) + self.content


def import_rows(
    template: Template, rows: Iterable[RowBatch], wanted: Wanted, into: Storage, scratch: Scratch
) -> PreparedState:
    """Write the savepoint that rows make; `wanted` is the state of rows that name none.

    Raises:
        PlanError: a state of the template cannot take rows.
        SpecError: rows name no state that is there, or have other columns.
        FormatError: a row does not fit; its number is told.
    """
    own = id_in(template.image, wanted.operator or "")
    operator = names_of(template.image).get(own, wanted.operator)
    making = _Making(template, replace(wanted, operator=operator), SortedPiles(scratch))
    for batch in rows:
        making.add(batch)
    return making.write(into, scratch)


@dataclass
class _Making:
    """State in the making: rows dealt out to the key groups of their keys."""

    template: Template
    wanted: Wanted
    piles: SortedPiles
    operators: dict[str, _Target] = field(default_factory=dict)
    entries: Counter[tuple[str, str]] = field(default_factory=Counter)
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)
    numbers: RowNumbers = field(default_factory=RowNumbers)

    def add(self, batch: RowBatch) -> None:
        """Deal out rows."""
        names, known = names_of(self.template.image), dict[tuple[str, str], None]()
        for each in self.template.image.operators:
            states = cast("list[dict[str, str]]", each.details["states"])
            keyed = [state["name"] for state in states if state["kind"] != "operator"]
            known.update(((names[each.id], name), None) for name in keyed)
        for operator, store, places in batch.by_store(self.wanted, list(known)):
            target = self._target(operator, store, batch.source)
            rows = plain_rows(batch.take(places))
            block, is_written = target.block(store, rows, self.numbers.count + np.asarray(places))
            records = []
            for place in np.flatnonzero(~is_written).tolist():
                try:
                    record = target.record(store, *rows[place])
                except UnfitValue as error:
                    fact = f"{batch.unit} {batch.first + places[place]}: {error}"
                    raise FormatError(fact, batch.source) from error
                number = self.numbers.count + places[place]
                records.append(record._replace(number=number).packed())
            self.piles.add(target.number, block)
            self.piles.add(target.number, block_of(records))
            self.entries[target.name, store] += len(rows)
        self.numbers.add(batch)

    def _target(self, name: str, store: str, source: str) -> _Target:
        """Return the operator of that name, refused if rows cannot become its state."""
        id_ = id_in(self.template.image, name)
        target = self.operators.get(id_)
        if target is None:
            every = metadata_of(self.template.image).operators
            operator = next((each for each in every if each.id.hex() == id_), None)
            if operator is None:
                fact = f"the template has no operator {name}"
                known = ", ".join(names_of(self.template.image).values())
                raise SpecError.of(source, fact, hint=f"its operators: {known}")
            target = _Target.of(operator, name, len(self.operators), self.template)
            self.operators[id_] = target
        if store not in target.states:
            known = ", ".join(target.states) or "none"
            fact = f"operator {name} has no keyed state {store}"
            hint = f"its keyed states: {known}. Other state is the template's: leave out its rows"
            raise SpecError.of(source, fact, hint=hint)
        target.begin(store)
        return target

    def write(self, into: Storage, scratch: Scratch) -> PreparedState:
        """Write the savepoint."""
        if not self.operators:
            hint = "to leave all entries behind: stateshift prune LOCATION --to NEW --where true"
            raise SpecError.of("ROWS", "there are no rows", hint=hint)
        metadata, rewritten = metadata_of(self.template.image), []
        for target in self.operators.values():
            for block in target.old_blocks():
                self.piles.add(target.number, block)
            sections = Sections(target.files[0].head, scratch)
            prefix = prefix_bytes(target.operator.max_parallelism)
            for block in whole_groups(self.piles.pile(target.number).blocks()):
                for group, content in encode_sections(self._settled(target, block), prefix):
                    sections.add(group, (content,))
            rewritten.append(target.write(sections, into))
        ids = [target.operator.id for target in self.operators.values()]
        own = [operator for operator in metadata.operators if operator.id in ids]
        taken = Taken(places_of(self.template.image), {id_.hex(): (id_.hex(), None) for id_ in ids})
        chosen = replace(metadata, masters=(), operators=tuple(own))
        others: dict[str, FileHandle] = {}  # of state that belongs to no key
        for reference in references(chosen):
            files = files_of(reference.stream) if reference.role != "keyed" else ()
            others.update((taken.name(file), file) for file in files)
        for name, file in others.items():
            into.write(name, partial(self.template.streams.chunks, file))
        united = encode_metadata(unite_images([chosen], [taken], None, rewritten))
        into.write(METADATA, lambda: iter((united,)))
        made = {operator.id.hex(): operator for operator in decode_metadata(united).operators}
        streams = Streams(into.chunks, Places(into.location, ""))
        for id_, target in self.operators.items():
            target.check(self.template.shown(made[id_], streams), self.entries)
        rest: dict[str, object] = {"kind": "drop", "operators": list(self.operators)}
        rest["of"] = self.template.location
        merge: dict[str, object] = {"kind": "merge", "locations": [into.location]}
        warnings = chain.from_iterable(target.warnings() for target in self.operators.values())
        changes = (rest, merge)
        return PreparedState(changes, dict(self.entries), tuple(warnings), dict(self.kept))

    def _settled(self, target: _Target, block: RowBlock) -> RowBlock:
        """Return the entries that records make, of whole key groups: a row alone is one, and so is
        a row that is the template's entry in the same bytes. Others are looked at one by one.
        """
        count, keys, values = len(block), block.keys, block.values
        begins, raw = edges(values)
        origins = np.frombuffer(raw, np.uint8)[begins[:-1] + _ROW.size - 1]
        alike = np.zeros(count + 2, bool)  # with the row before
        alike[1:count] = pc.equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
        is_alone = ~alike[:count] & ~alike[1 : count + 1]
        in_pairs = ~alike[:count] & alike[1 : count + 1] & ~alike[2:]
        pairs = np.flatnonzero(in_pairs & (origins == WRITTEN))
        pairs = pairs[origins[pairs + 1] == OLD]
        own, content = keys.take(pairs), without_first(values.take(pairs), _ROW.size)
        sizes = (lengths(own) - _PLACE.size).astype(">u4").view(np.uint8).reshape(-1, 4)
        groups = _first_bytes(own, 2)
        told = join_columns(of_width(np.hstack((groups, sizes))), without_first(own, 4), content)
        old = without_first(values.take(pairs + 1), _ROW.size)
        pairs = pairs[pc.equal(told, old).to_numpy(zero_copy_only=False)]
        states = _first_bytes(keys.take(pairs), _PLACE.size)[:, 2:].copy().view(">u2")
        for state, found in zip(*np.unique(states, return_counts=True), strict=True):
            self.kept[target.name, target.header.states[state].name] += int(found)
        is_row = is_alone & (origins == WRITTEN)
        is_row[pairs] = True
        is_known = is_row | (is_alone & (origins == OLD))
        is_known[pairs + 1] = True
        taken, others = np.flatnonzero(is_row), np.flatnonzero(~is_known)
        made = RowBlock(keys.take(taken), without_first(values.take(taken), _ROW.size))
        if not len(others):
            return made
        listed = []
        records = block.take(others).records()
        for place, same in groupby(records, key=itemgetter(0)):
            entry = self._entry(target, place, [row[1] or b"" for row in same])
            if entry is not None:
                listed.append((place[: _PLACE.size] + entry[0], entry[1]))
        return in_order(whole([made, block_of(listed)]))

    def _entry(
        self, target: _Target, place: bytes, packed: Sequence[bytes]
    ) -> tuple[bytes, bytes] | None:
        """Return the key and the value of a place; None where no row has it any more."""
        (group, state), key = _PLACE.unpack_from(place), place[_PLACE.size :]
        rows, own, old, was = [], key, None, group
        for each in packed:
            number, origin = _ROW.unpack_from(each)
            if origin == OLD:
                was, size = _OWN.unpack_from(each, _ROW.size)
                begin = _ROW.size + _OWN.size
                own, old = each[begin : begin + size], each[begin + size :]
            else:
                rows.append((number, origin, each[_ROW.size :]))
        if len(rows) > 1:
            told = " and ".join(self.numbers.named(number) for number, _, _ in sorted(rows))
            raise FormatError(f"{told} have the same key")
        for number, origin, content in rows:
            if was != group:
                fact = f"the template has its key in other bytes, in key group {was}, not {group}"
                raise FormatError(f"{self.numbers.named(number)}: {fact}")
            if origin == SHOWN:
                shown = json.loads(content)
                if old is None or json.loads(target.shown(state, old)) != shown["value"]:
                    raise FormatError(f"{self.numbers.named(number)}: {shown['why']}")
                store = target.header.states[state].name
                target.note(store, json.dumps(shown["key"]), target.shown(state, old))
            elif number == _KEPT or old is None:
                return key, content
            elif old != content and target.shown(state, old) != target.shown(state, content):
                return own, content
            assert old is not None, "it shows the row"
            self.kept[target.name, target.header.states[state].name] += 1
            return own, old
        return None


@dataclass
class _Target:
    """An operator whose state is made of rows; `number` is that of its pile. `known` are the keys
    of the template with their key groups, where only the job can hash them.
    """

    name: str
    number: int
    operator: OperatorState
    files: list[KeyedFile]
    states: dict[str, int]
    known: dict[bytes, int] | None = None
    writers: dict[str, EntryWriter] = field(default_factory=dict)
    sums: Counter[str] = field(default_factory=Counter)  # of the digests of rows, by their states
    noted: dict[str, list[tuple[bytes, bytes]]] = field(default_factory=dict)  # keys and values
    others: Counter[str] = field(default_factory=Counter)  # entries of states without rows

    @property
    def header(self) -> Header:
        """The header that every new file has."""
        return self.files[0].known_header

    def shown(self, state: int, raw: bytes) -> str:
        """Return a value of the template as an export shows it."""
        return json.dumps(self.writers[self.header.states[state].name].shown(raw))

    @classmethod
    def of(cls, operator: OperatorState, name: str, number: int, template: Template) -> _Target:
        """Return the operator, refused if its files cannot be written."""
        origin = Origin(operator, template.streams)
        obstacle = why_not(origin, operator.max_parallelism, united=True)
        if obstacle is None and flink_facts(template.image).unaligned:
            obstacle = Obstacle("records are in flight, which belong to the state as it is")
        if obstacle is not None:
            raise PlanError(f"operator {name}: {obstacle.fact}", hint=CANONICAL)
        files = keyed_files([origin])
        if not files:
            return cls(name, number, operator, [], {})
        header = files[0].known_header
        states = {state.name: at for at, state in enumerate(header.states)}
        target = cls(name, number, operator, files, states)
        target._check_keys()
        return target

    def _check_keys(self) -> None:
        """Check that keys are where their hash says, and show it; or learn their key groups."""
        serializer = self.header.key
        if serializer is None or serializer.is_opaque:
            return
        is_told, has_one, seen = hashable(serializer), has_one_hash(serializer), set[bytes]()
        for file in self.files if is_told else ():
            entries = numbered_entries(file.handle, prefix_bytes(file.was), file.streams)
            for entry in islice(entries, CHECKED):
                own = key_of(file.known_header, entry.state, entry.key) or b""
                seen.add(own)
                code = hash_next(serializer, DataInput(own, "a key"))
                if key_group(code, file.was) != entry.group:
                    if has_one:
                        refuse_other_hash(entry.group)
                    is_told = False
        bits = len(seen) * math.log2(self.operator.max_parallelism)
        if is_told and (has_one or bits >= EVIDENCE):
            return
        self.known = {}
        for file in self.files:
            for entry in numbered_entries(file.handle, prefix_bytes(file.was), file.streams):
                own = key_of(file.known_header, entry.state, entry.key) or b""
                self.known[own] = entry.group

    def begin(self, store: str) -> None:
        """Begin with a state, refused if its serializers are not known."""
        if store in self.writers:
            return
        state = self.header.states[self.states[store]]
        key = self.header.key
        if key is None or key.is_opaque or not is_known(self.header, state):
            fact = f"operator {self.name}, state {store}: only the job's classes can write it"
            raise PlanError(fact, hint="leave out its rows, and it stays as it is in the template")
        self.writers[store] = EntryWriter(self.header, state)

    def block(
        self, store: str, rows: Sequence[tuple[object, object]], numbers: Ints
    ) -> tuple[RowBlock, Flags]:
        """Return the records of rows that are read again, as columns, as what they were given; and
        which rows these are.
        """
        writer, state, key = self.writers[store], self.states[store], self.header.key
        assert key is not None, "asked before: begin"
        try:
            made = [writer.unchecked(*row) for row in rows]
        except (*WRONG, RecursionError, AttributeError):
            return block_of([]), np.zeros(len(rows), bool)
        keys, owns, raw = map(binary, zip(*made, strict=True))
        content, (key_edges, own_edges, edges_) = laid_out(keys, owns, raw)
        places = EntryPlaces(key_edges[:-1], key_edges[1:], edges_[:-1], edges_[1:])
        texts = texts_of(self.header, self.header.states[state], content, places)
        if self.known is None and is_hashed(key):
            codes, odd = hash_codes(key, content, own_edges[:-1], own_edges[1:])
            groups = murmur_of_each(codes) % self.operator.max_parallelism
        else:
            found = [self._group_of(own) for _, own, _ in made]
            groups = np.array([-1 if group is None else group for group in found])
            odd = groups < 0
        is_written = ~texts.odd & ~odd
        for edge in (key_edges, edges_):
            is_written &= np.diff(edge) <= BYTES_MAX
        for shown, given in zip((texts.keys, texts.values), zip(*rows, strict=True), strict=True):
            listed = shown.to_pylist()
            if b"[%s]" % b", ".join(listed) != json.dumps(given).encode():
                own = [json.dumps(each).encode() for each in given]
                is_written &= pc.equal(shown, binary(own)).to_numpy(zero_copy_only=False)
        heads = np.zeros(len(rows), _HEAD)
        heads["group"], heads["state"], heads["number"] = groups, state, numbers
        head = heads.view(np.uint8).reshape(len(rows), -1)
        own_keys = join_columns(of_width(head[:, : _PLACE.size]), keys)
        block = RowBlock(own_keys, join_columns(of_width(head[:, _PLACE.size :]), raw))
        written = np.flatnonzero(is_written)
        digests = _digests(texts.keys, texts.values)
        self.sums[store] += int(digests[written].sum())
        return block.take(written), is_written

    def note(self, store: str, key: str, value: str) -> None:
        """Note what an entry has to show, as JSON."""
        self.noted.setdefault(store, []).append((key.encode(), value.encode()))
        if len(self.noted[store]) >= _AT_ONCE:
            self.digest(store)

    def digest(self, store: str) -> None:
        """Add what was noted of a state to the sum of its digests."""
        noted = self.noted.pop(store, [])
        if noted:
            self.sums[store] += int(_digests(*map(binary, zip(*noted, strict=True))).sum())

    def check(self, shown: Iterable[TextRows], entries: Counter[tuple[str, str]]) -> None:
        """Check that states show their rows, by the sum of their digests, and are whole."""
        counts, sums = Counter[str](), Counter[str]()
        for rows in shown:
            each, digests = rows.states.dictionary_encode(), _digests(rows.keys, rows.values)
            numbers = each.indices.to_numpy()
            for number, name in enumerate(each.dictionary.to_pylist()):
                state, own = name.decode("utf-8", "surrogatepass"), digests[numbers == number]
                counts[state] += len(own)
                sums[state] += int(own.sum())
        for store in self.states:
            self.digest(store)
            wanted = entries[self.name, store] + self.others[store]
            differs = (sums[store] - self.sums[store]) % _WORD
            if counts[store] != wanted or (store in self.writers and differs):
                fact = f"{counts[store]} entries, which do not show their {wanted} rows"
                raise FormatError(f"operator {self.name}, state {store}: {fact}", METADATA)

    def record(self, store: str, key: object, own: object) -> _Record:
        """Return the record of a row."""
        writer, state, serializer = self.writers[store], self.states[store], self.header.key
        (raw_key, shown_key), own_key = writer.key(key), writer.own_key(key)
        assert serializer is not None, "asked before: begin"
        group = self._group_of(own_key)
        if group is None:
            fact = f"how the job hashes {serializer.name} is not known"
            raise UnfitValue(f"a key that the template does not have, and {fact}")
        try:
            raw, shown = writer.value(own)
            self.note(store, json.dumps(shown_key), json.dumps(shown))
            return _Record(group, state, raw_key, _KEPT, WRITTEN, raw)
        except UnfitValue as error:
            if not writer.may_be_unknown and own is not None:
                raise
            content = json.dumps({"key": shown_key, "value": own, "why": str(error)}).encode()
            return _Record(group, state, raw_key, _KEPT, SHOWN, content)

    def _group_of(self, own_key: bytes) -> int | None:
        """Return the key group of a key; None where only the job knows it."""
        if self.known is not None:
            return self.known.get(own_key)
        assert self.header.key is not None, "asked before: begin"
        code = hash_next(self.header.key, DataInput(own_key, "a key"))
        return key_group(code, self.operator.max_parallelism)

    def warnings(self) -> Iterator[str]:
        """Yield a warning for state of windows without rows, where other such state has some."""
        of_windows: dict[bool, list[str]] = {True: [], False: []}
        for state in self.header.states:
            namespace = namespace_of(state)
            if namespace is not None and namespace.name != "VoidNamespaceSerializer":
                of_windows[state.name in self.writers].append(state.name)
        for store in of_windows[False]:
            if of_windows[True] and store in self.others:
                yield (
                    f"operator {self.name}: store {store} has no rows, and keeps the template's; "
                    f"{', '.join(of_windows[True])} and it need to agree (windows, their timers)"
                )

    def write(self, sections: Sections, into: Storage) -> RewrittenOperator:
        """Write the files of keyed state of all subtasks."""
        operator, parts = self.operator, []
        for subtask in range(operator.parallelism):
            cut = sections.cut(groups_of(subtask, operator.max_parallelism, operator.parallelism))
            place = f"{into.location} {operator.id.hex()} {subtask}"  # of this import alone
            name = str(uuid.uuid5(uuid.NAMESPACE_URL, place))
            if cut.size:
                into.write(name, cut.content)
            parts.append(SubtaskPart(name, cut.size, cut.first, cut.offsets))
        return RewrittenOperator(operator.id.hex(), operator.max_parallelism, tuple(parts))

    def old_blocks(self) -> Iterator[RowBlock]:
        """Yield the entries of states without rows, and those that rows may show."""
        for file in self.files:
            prefix, states = prefix_bytes(file.was), len(file.known_header.states)
            size_max = min(BATCH_BYTES, bounds.piece())
            for columns in columns_in(file.parts(size_max), prefix, states, size_max):
                for number in np.unique(columns.states).tolist():
                    rows = np.flatnonzero(columns.states == number)
                    yield self._old_block(file.renumbered(number), columns, rows, prefix)

    def _old_block(self, state: int, columns: Columns, rows: Ints, prefix: int) -> RowBlock:
        places, groups = columns.of(rows, prefix), columns.groups[rows]
        keys = cut(columns.content, places.keys, places.key_ends)
        values = cut(columns.content, places.values, places.value_ends)
        name = self.header.states[state].name
        writer = self.writers.get(name)
        heads = np.zeros(len(rows), _HEAD)
        heads["group"], heads["state"], heads["number"] = groups, state, _KEPT
        heads["origin"] = WRITTEN if writer is None else OLD
        head = heads.view(np.uint8).reshape(len(rows), -1)
        behind = of_width(head[:, _PLACE.size :])
        if writer is None:
            self.others[name] += len(rows)
        else:
            olds = np.zeros(len(rows), _OLD_HEAD)
            olds["group"], olds["size"] = groups, lengths(keys)
            old = olds.view(np.uint8).reshape(len(rows), -1)
            values = join_columns(of_width(old), keys, values)
            if not writer.has_one_form:
                made = []
                for row, old_key in enumerate(keys.to_pylist()):
                    key, own = writer.rewritten(old_key)
                    made.append(key)
                    found = self._group_of(own) if key != old_key else None
                    if found is not None:
                        heads["group"][row] = found
                keys = binary(made)
        return RowBlock(
            join_columns(of_width(head[:, : _PLACE.size]), keys), join_columns(behind, values)
        )


def _first_bytes(column: Binary, count: int) -> Numbers:
    """Return the first bytes of each item as rows of a matrix; every item has so many."""
    starts, content = edges(column)
    return np.frombuffer(content, np.uint8)[starts[:-1, None] + np.arange(count)]


def whole_groups(blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
    """Yield sorted records again, those of one key group together."""
    held: list[RowBlock] = []
    for block in blocks:
        groups = _first_bytes(block.keys, 2).view(">u2")[:, 0]
        last = int(np.searchsorted(groups, groups[-1]))
        if held and (last or _first_bytes(held[0].keys[:1], 2).tobytes() != groups[:1].tobytes()):
            yield whole([*held, part(block, 0, last)])
            held = []
        elif last:
            yield part(block, 0, last)
        held.append(part(block, last, len(block)))
    if held:
        yield whole(held)


def _digests(keys: Binary, values: Binary) -> Numbers:
    """Return a number for each entry, of what it shows."""
    return hash64(join_columns(keys, b"\n", values))


def laid_out(*columns: Binary) -> tuple[Content, list[Ints]]:
    """Return columns behind each other, with some bytes at their end, and their items' edges."""
    contents, all_edges, at = [], [], 0
    for column in columns:
        starts, content = edges(column)
        contents.append(content[: int(starts[-1])])
        all_edges.append(starts + at)
        at += int(starts[-1])
    return np.frombuffer(b"".join((*contents, bytes(PADDING))), np.uint8), all_edges


def plain_rows(batch: RowBatch) -> list[tuple[object, object]]:
    """Return keys and values as JSON has them."""
    columns = []
    for name in ("key", "value"):
        column = batch.columns[name]
        if isinstance(column, list):
            columns.append(column)
            continue
        columns.append([])
        try:
            for given in column.to_pylist():  # a text is JSON already
                text = given if isinstance(given, str) else json.dumps(given, default=plain_value)
                try:
                    read, end = _SCAN(text, 0)
                except StopIteration:
                    end = -1
                columns[-1].append(read if end == len(text) else json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            fact = f"column {name} is not JSON, as an export has it: {error}"
            raise FormatError(f"from row {batch.first} on: {fact}", batch.source) from error
    return list(zip(*columns, strict=True))


def plain_value(given: object) -> object:
    """Return bytes as digits, and a decimal that is whole as a number."""
    match given:
        case bytes():
            return given.hex()
        case Decimal() if given == given.to_integral_value():
            return int(given)
    raise TypeError(f"{given!r} is to be a text, or a number of another type")
