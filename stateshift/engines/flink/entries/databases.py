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

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from stateshift.engines.flink.entries.keys import hash_of, hashable
from stateshift.engines.flink.streams import Streams
from stateshift.engines.window import WINDOW
from stateshift.errors import FormatError, TooLarge
from stateshift.formats.flink.key_groups import key_group, prefix_bytes
from stateshift.formats.flink.keyed_handles import Changelog, Incremental, KeyedHandle
from stateshift.formats.flink.keyed_state import Header, decode_header
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.stream_handles import files_of
from stateshift.formats.rocksdb.database import Database, FileOf, decode_options, open_database
from stateshift.formats.rocksdb.manifest import DEFAULT_FAMILY
from stateshift.formats.rocksdb.table import NotRead
from stateshift.survey import Finding

HEADER_MAX = 64 * 1024 * 1024
WINDOW_MIN, WINDOWS_MAX = 1 << 14, 1 << 27  # bytes: of one file, and of all that are open together


class NativeEntry(NamedTuple):
    """One entry: the number of its state in the header, its key group, its key without the
    group, and its value.
    """

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
        """Yield all entries, state by state, those of foreign key groups too; `prefix` bytes of a
        key say its group.
        """
        for number, state in enumerate(self.header.states):
            for key, value in self.database.entries(state.name):
                if len(key) <= prefix:
                    raise FormatError(
                        f"state {state.name!r} holds a key of {len(key)} bytes", None, 0
                    )
                group = int.from_bytes(key[:prefix], "big")
                yield NativeEntry(number, group, key[prefix:], value)

    def own_entries(self, prefix: int) -> Iterator[NativeEntry]:
        """Yield the entries that Flink reads: those of the handle's key groups."""
        for entry in self.entries(prefix):
            if self.holds(entry.group):
                yield entry

    def holds(self, group: int) -> bool:
        return group in range(self.handle.first, self.handle.first + self.handle.count)


@dataclass
class Misplaced:
    """Entries that a restored job would not find: of key groups outside of the handle's, and such
    whose key belongs to another group than the one they lie in.
    """

    outside: int = 0
    wrong: int = 0


def open_native(handle: Incremental, streams: Streams) -> Native:
    """Open the database of a handle. Its files are there, fit each other, and hold the states of
    the header.
    """
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
    """Return the database's files by the names that it has for them."""
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


def natives_of(handle: KeyedHandle | None) -> Iterator[Incremental]:
    """Yield the databases below a handle: it may be one, or the base of a changelog."""
    match handle:
        case Incremental():
            yield handle
        case Changelog(bases=bases):
            for base in bases:
                yield from natives_of(base)


def without_native(handle: KeyedHandle | None) -> KeyedHandle | None:
    """Return the handle without the databases below it."""
    match handle:
        case Incremental():
            return None
        case Changelog(bases=bases):
            kept = (without_native(base) for base in bases)
            return replace(handle, bases=tuple(base for base in kept if base is not None))
    return handle


def checked_databases(operator: OperatorState, streams: Streams) -> Iterator[Finding]:
    """Yield the faults of the native state of an operator, which is read to its end."""
    for subtask in operator.all_subtasks:
        where = f"operator {operator.id.hex()}, subtask {subtask.index}"
        for handle in natives_of(subtask.managed_keyed):
            try:
                yield from _checked(handle, operator.max_parallelism, where, streams)
            except NotRead as error:
                yield Finding(
                    "warn",
                    f"{where}: {error.fact}: of {_size(handle)} bytes nothing more than this is "
                    "checked",
                )
            except TooLarge:  # which says nothing of the image
                raise
            except FormatError as error:
                yield Finding(
                    "refuse",
                    f"{where}: {error.fact}",
                    path=_path_of(handle, error.fact, streams),
                    offset=error.offset,
                    hint=error.hint,
                )


def _size(handle: Incremental) -> int:
    streams = [stream for _, stream in (*handle.shared, *handle.private)]
    return sum(stream.size for stream in streams if stream is not None)


def _checked(handle: Incremental, most: int, where: str, streams: Streams) -> Iterator[Finding]:
    native = open_native(handle, streams)
    counts = count_misplaced(native, most)
    last = handle.first + handle.count - 1
    if counts.outside:
        yield Finding(
            "refuse",
            f"{where}: {counts.outside} entries lie outside of its key groups {handle.first} to "
            f"{last}: Flink would not read them",
        )
    if counts.wrong:
        yield Finding(
            "refuse",
            f"{where}: {counts.wrong} entries lie in other key groups than those of their keys, "
            f"for max parallelism {most}",
        )
    why = why_options_differ(native)
    if why is not None:
        yield Finding("warn", f"{where}: {why}; RocksDB opens the database without it")


def check_stored(handle: Incremental, streams: Streams) -> None:
    """Check what costs no more than reading: that the files fit each other, and every block its
    checksum.
    """
    with suppress(NotRead):
        open_native(handle, streams).database.check_blocks()


def _path_of(handle: Incremental, fact: str, streams: Streams) -> str | None:
    """Return the path of the file that an error is about: its fact begins with the name that the
    file has in RocksDB.
    """
    for name, stream in (*handle.shared, *handle.private):
        if fact.startswith((f"{name}:", f"{name} ")):
            file = next(files_of(stream), None)
            if file is not None:
                return streams.places.path_of(file)
    return None


def count_misplaced(native: Native, max_parallelism: int) -> Misplaced:
    """Read everything to its end, and count what does not lie where Flink looks for it."""
    counts = Misplaced()
    prefix = prefix_bytes(max_parallelism)
    is_hashed = hashable(native.header.key)
    for entry in native.entries(prefix):
        if not native.holds(entry.group):
            counts.outside += 1
        elif is_hashed:
            code = hash_of(native.header, entry.state, entry.key)
            counts.wrong += key_group(code, max_parallelism) != entry.group
    return counts


def why_options_differ(native: Native) -> str | None:
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
    _refuse_foreign(families - set(states), content)
    if len(set(states)) < len(states):
        raise FormatError("the header names two states the same", None, 0)


def _refuse_foreign(families: Collection[str], header: bytes) -> None:
    """Refuse column families that are no states of a header, as far as it is read."""
    if not families:
        return
    first = min(families)
    if all(name.encode() in header for name in families):
        raise NotRead(
            f"state {first!r} is in the header, but its place there is not known", None, 0
        )
    raise FormatError(f"column family {first!r} is no state of the header", None, 0)
