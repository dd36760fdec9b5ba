"""Native keyed state: the RocksDB or ForSt of one subtask, opened through its handle in
`_metadata`.

    meta              header of the states, as in a canonical file
    shared, private   the database's files by their names there: tables, MANIFEST, OPTIONS, CURRENT

One column family is one state, and named so; `default` is RocksDB's own. A key is the number of its
key group (1 or 2 bytes), then what a canonical file holds: key, namespace, and of a map the key in
it; of a timer its time comes first. Values are the same as in a canonical file, so that entries of
both can be held against each other.

Keys of groups outside of the handle's range are not read by Flink; a rescaled job may have left
them there.

Source: Flink, contrib/streaming/state/RocksDBKeyedStateBackendBuilder,
snapshot/RocksIncrementalSnapshotStrategy, restore/RocksDBIncrementalRestoreOperation; since 2.0 in
state/rocksdb and state/forst.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from stateshift.engines.flink.streams import Streams
from stateshift.engines.window import WINDOW
from stateshift.errors import FormatError, TooLarge
from stateshift.formats.flink.key_groups import has_one_hash, hash_of, key_group, prefix_bytes
from stateshift.formats.flink.keyed_handles import Changelog, Incremental, KeyedHandle, KeyGroups
from stateshift.formats.flink.keyed_state import Header, decode_header
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.rocksdb.database import Database, FileOf, decode_options, open_database
from stateshift.formats.rocksdb.manifest import DEFAULT_FAMILY
from stateshift.formats.rocksdb.table import NotRead
from stateshift.survey import Finding, refuse, warn

Kind = TypeVar("Kind", Incremental, KeyGroups)
HEADER_MAX = 64 * 1024 * 1024
WINDOW_MIN, WINDOWS_MAX = 1 << 14, 1 << 27  # bytes: of one file, and of all that are open together


class NativeEntry(NamedTuple):
    """One entry: its state's number in the header, key group, key without that, and value."""

    state: int
    group: int
    key: bytes
    value: bytes


@dataclass(frozen=True)
class Native:
    """A subtask's database, and the header of its states."""

    handle: Incremental
    header: Header
    database: Database

    def entries(self, prefix: int) -> Iterator[NativeEntry]:
        """Yield entries state by state, of all key groups; `prefix` bytes say a key's group."""
        for number, state in enumerate(self.header.states):
            for key, value in self.database.entries(state.name):
                if len(key) <= prefix:
                    fact = f"state {state.name!r} holds a key of {len(key)} bytes"
                    raise FormatError(fact, None, 0)
                group = int.from_bytes(key[:prefix], "big")
                yield NativeEntry(number, group, key[prefix:], value)

    def holds(self, group: int) -> bool:
        return group in range(self.handle.first, self.handle.first + self.handle.count)


def open_native(handle: Incremental, streams: Streams) -> Native:
    """Open a handle's database: its files fit each other, and hold the header's states."""
    files = _files(handle, streams)
    if handle.meta is None:
        raise FormatError("native state has no header of its states", None, 0)
    if handle.meta.size > HEADER_MAX:
        raise FormatError(f"the header of its states has {handle.meta.size} bytes", None, 0)
    content = streams.head(handle.meta, handle.meta.size)
    header = decode_header(content, len(content))
    database = open_database(files)
    _check_families(header, content, database)
    return Native(handle, header, database)


def _files(handle: Incremental, streams: Streams) -> dict[str, FileOf]:
    named = (*handle.shared, *handle.private)
    window = max(WINDOW_MIN, min(WINDOW, WINDOWS_MAX // max(1, len(named))))
    files: dict[str, FileOf] = {}
    for name, stream in named:
        if name in files:
            raise FormatError(f"{name} is named twice", None, 0)
        if stream is None:
            raise FormatError(f"{name} has no file", None, 0)
        files[name] = FileOf(streams.reader(stream, window), stream.size)
    return files


def handles_below(handle: KeyedHandle | None, kind: type[Kind]) -> Iterator[Kind]:
    """Yield the handles of a kind: a handle itself, or the bases of a changelog."""
    if isinstance(handle, kind):
        yield handle
    elif isinstance(handle, Changelog):
        for base in handle.bases:
            yield from handles_below(base, kind)


def leave_out(handle: KeyedHandle | None, kind: type[KeyedHandle]) -> KeyedHandle | None:
    """Return the handle without those of a kind."""
    if isinstance(handle, kind):
        return None
    if isinstance(handle, Changelog):
        kept = (leave_out(base, kind) for base in handle.bases)
        return replace(handle, bases=tuple(base for base in kept if base is not None))
    return handle


def checked_databases(operator: OperatorState, streams: Streams) -> Iterator[Finding]:
    """Yield the faults of the native state of an operator, which is read to its end."""
    for subtask in operator.all_subtasks:
        where = f"operator {operator.id.hex()}, subtask {subtask.index}"
        for handle in handles_below(subtask.managed_keyed, Incremental):
            try:
                yield from _checked(handle, operator.max_parallelism, where, streams)
            except NotRead as error:
                streams_of = [stream for _, stream in (*handle.shared, *handle.private)]
                size = sum(stream.size for stream in streams_of if stream is not None)
                fact = f"{error.fact}: of {size} bytes nothing more than this is checked"
                yield warn(f"{where}: {fact}")
            except TooLarge:  # which says nothing of the image
                raise
            except FormatError as error:
                yield refuse(
                    f"{where}: {error.fact}",
                    path=_path_of(handle, error.fact, streams),
                    offset=error.offset,
                    hint=error.hint,
                )


def _checked(handle: Incremental, most: int, where: str, streams: Streams) -> Iterator[Finding]:
    native = open_native(handle, streams)
    outside = wrong = 0
    is_hashed = has_one_hash(native.header.key)
    for entry in native.entries(prefix_bytes(most)):
        if not native.holds(entry.group):
            outside += 1
        elif is_hashed:
            code = hash_of(native.header, entry.state, entry.key)
            wrong += key_group(code, most) != entry.group
    if outside:
        last = handle.first + handle.count - 1
        yield refuse(
            f"{where}: {outside} entries lie outside of its key groups {handle.first} to "
            f"{last}: Flink would not read them"
        )
    if wrong:
        yield refuse(
            f"{where}: {wrong} entries lie in other key groups than those of their keys, "
            f"for max parallelism {most}"
        )
    why = _why_options_differ(native)
    if why is not None:
        yield warn(f"{where}: {why}; RocksDB opens the database without it")


def check_stored(handle: Incremental, streams: Streams) -> None:
    """Check that the files fit each other, and every block its checksum."""
    with suppress(NotRead):
        open_native(handle, streams).database.check_blocks()


def _path_of(handle: Incremental, fact: str, streams: Streams) -> str | None:
    """Return the path of the file whose name in RocksDB begins the error's fact."""
    for name, stream in (*handle.shared, *handle.private):
        if fact.startswith((f"{name}:", f"{name} ")):
            return streams.places.file_of(stream)
    return None


def _why_options_differ(native: Native) -> str | None:
    """Return the fault of the OPTIONS file: RocksDB opens a database without it."""
    for name, file in native.database.files.items():
        if not name.startswith("OPTIONS-"):
            continue
        try:
            families = decode_options(file.whole(name))
        except TooLarge:  # which says nothing of the image
            raise
        except FormatError as error:
            return f"{name}: {error.fact}"
        if set(families) != set(native.database.families):
            return f"{name} names other column families than the MANIFEST"
    return None


def _check_families(header: Header, content: bytes, database: Database) -> None:
    """Check that column families and states are the same: RocksDB opens all of them, or none."""
    states = [state.name for state in header.states]
    families = database.families.keys() - {DEFAULT_FAMILY}
    for name in states:
        if name not in families:
            raise FormatError(f"state {name!r} has no column family in the MANIFEST", None, 0)
    foreign = families - set(states)
    if foreign:
        first = min(foreign)
        if all(name.encode() in content for name in foreign):
            fact = f"state {first!r} is in the header, but its place there is not known"
            raise NotRead(fact, None, 0)
        raise FormatError(f"column family {first!r} is no state of the header", None, 0)
    if len(set(states)) < len(states):
        raise FormatError("the header names two states the same", None, 0)
