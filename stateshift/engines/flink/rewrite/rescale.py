"""Keyed state cut into other key-group ranges, for another parallelism; of several images put
together; and, where keys can be hashed without the job's classes, dealt into other key groups, for
another max parallelism, which Flink itself refuses (FLINK-5052).

    cut     the sections of key groups, as they are, joined to the files of the new subtasks:
            nothing is decoded
    united  entries of several images in one section, once no key is in two of them
    edited  entries of one subtask, some of which become others or stay behind
    dealt   each entry's key is read and hashed, gets its group's number, and goes to that group.
            That each was in the group its hash says before is checked on the way: who hashes keys
            otherwise is refused, and beforehand, who has too few keys to show that

    Rescaler(origins, parallelism, max_parallelism, scratch, edit)
      .keyed(subtask) -> Cut(first, offsets, size, content)
      .unkeyed(subtask, role) -> Joined       role: operator, raw operator

One key group of the cut files at a time is held in memory. State that is united or redistributed is
sorted by key groups first, in a scratch file beyond some size (see `formats.sorting`), and kept in
another for all new subtasks. Operator state is held as a whole. Subtasks may number their states
differently: one header is every new file's, that of the file with the most states, and entries of
the others are renumbered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from io import BytesIO
from itertools import chain, filterfalse
from typing import TYPE_CHECKING, Final

from stateshift.engines.flink.entries.edits import Edit
from stateshift.engines.flink.entries.image import header_of, is_canonical
from stateshift.engines.flink.entries.operators import first_section
from stateshift.engines.flink.image import AS_IT_IS, CANONICAL, Obstacle
from stateshift.engines.flink.rewrite.keyed_files import (
    Cut,
    KeyedFile,
    Origin,
    Sections,
    cut_of,
    edited_file,
    keyed_file,
    keyed_files,
    keyed_handles,
    nothing,
)
from stateshift.engines.flink.rewrite.unkeyed import RAW, Held, Joined, handles_of, join_subtask
from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError, Incompatible, PlanError
from stateshift.formats import bounds
from stateshift.formats.flink.key_groups import (
    COMPOSED,
    ROW_DATA,
    groups_of,
    has_one_hash,
    hashable,
    prefix_bytes,
)
from stateshift.formats.flink.keyed_handles import Changelog, Incremental, KeyedHandle, KeyGroups
from stateshift.formats.flink.keyed_state import Header, decode_header, encode_section, entries
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.operator_handles import Partitioned
from stateshift.formats.flink.serializers import Serializer, snapshot_name

if TYPE_CHECKING:
    from stateshift.formats.sorting import Scratch

KEY_HASH: Final = "key-hash"  # the waiver
EVIDENCE: Final = 20  # bits that key groups have to tell: by chance it is one image of a million


def why_not(origin: Origin, max_parallelism: int, united: bool = False) -> Obstacle | None:
    """Return the obstacle to cutting, uniting or redistributing keyed state."""
    operator, streams = origin.operator, origin.streams
    has_raw_keyed_state = any(subtask.raw_keyed is not None for subtask in operator.all_subtasks)
    if has_raw_keyed_state:
        return Obstacle("it has raw keyed state, which only its own code can divide")
    handles = list(keyed_handles(operator))
    is_dealt = max_parallelism != operator.max_parallelism
    if is_dealt:
        for header in unhashed_headers(origin):
            if origin.hashing is None or header.key is None:
                return _of_keys(header)
    files = [handle for handle in handles if isinstance(handle, KeyGroups)]
    if len(files) < len(handles):
        return Obstacle("its state lies in files of RocksDB, or in a changelog", CANONICAL)
    filled = [file for file in files if first_section(file) is not None]
    if all(is_canonical(file, streams) for file in filled):
        return _not_shown(origin) if is_dealt else None
    of_hashmap = "it is in the hashmap backend's own format"
    if is_dealt or united:
        return Obstacle(f"{of_hashmap}, which is not taken apart", CANONICAL)
    # Flink reads each key group that such a file is said to have, empty ones too
    # (HeapRestoreOperation): none may be missing.
    if sum(len(file.offsets) for file in files) == operator.max_parallelism:
        return None
    return Obstacle(f"{of_hashmap}, and not every subtask has some", CANONICAL)


def unhashed_headers(origin: Origin) -> list[Header]:
    """Return the headers of the files whose keys only the job's own classes hash."""
    headers = []
    for handle in keyed_handles(origin.operator):
        header = _any_header(handle, origin.streams)
        if header is not None and not hashable(header.key):
            headers.append(header)
    return headers


class Rescaler:
    """One operator's state, of one image or of several, and what of it each new subtask gets."""

    def __init__(
        self,
        origins: Sequence[Origin],
        parallelism: int,
        max_parallelism: int,
        scratch: Scratch = BytesIO,
        edit: Edit | None = None,
    ) -> None:
        self._origins, self._scratch, self._edit = origins, scratch, edit
        self._parallelism, self._max_parallelism = parallelism, max_parallelism

    def keyed(self, subtask: int) -> Cut:
        if self._edit is not None:
            return edited_file(self._origins[0], subtask, self._edit, self._scratch)
        groups = groups_of(subtask, self._max_parallelism, self._parallelism)
        if not self._files:
            return nothing(groups)
        before = {origin.operator.max_parallelism for origin in self._origins}
        is_dealt = before != {self._max_parallelism}
        if is_dealt or len(self._origins) > 1:
            return self._sorted.cut(groups)
        return _joined(self._files, groups)

    @cached_property
    def _files(self) -> list[KeyedFile]:
        return keyed_files(self._origins)

    @cached_property
    def _sorted(self) -> Sections:
        # It loads Arrow, for which no other plan should wait.
        from stateshift.engines.flink.rewrite.regroup import dealt_sections, united_sections

        sorted_by_group = united_sections if len(self._origins) > 1 else dealt_sections
        return sorted_by_group(self._files, self._max_parallelism, self._scratch)

    def unkeyed(self, subtask: int, role: str) -> Joined:
        every: list[Held] = []
        own: list[Held] = []
        for origin in self._origins:
            for index, handle in _handles(origin.operator, role):
                if handle.stream is None or not handle.states:
                    continue
                content = bounds.gather(origin.streams.chunks(handle.stream), "operator state")
                held = Held(handle, content, role == RAW)
                every.append(held)
                if index % self._parallelism == subtask:
                    own.append(held)
        return join_subtask(own, every)


def heads_of(operator: OperatorState, streams: Streams, role: str) -> list[bytes]:
    """Return the headers in front of the elements in the files of operator state; each once."""
    heads = []
    for _, handle in _handles(operator, role):
        if handle.stream is not None and handle.starts:
            heads.append(streams.head(handle.stream, min(handle.starts)))
    return list(dict.fromkeys(heads))


def keyed_heads(operator: OperatorState, streams: Streams) -> list[bytes]:
    """Return the headers of the files of canonical keyed state; each once."""
    heads = []
    for handle in keyed_handles(operator):
        if not isinstance(handle, KeyGroups) or not is_canonical(handle, streams):
            continue
        first = first_section(handle)
        if first is not None and handle.stream is not None:
            heads.append(streams.head(handle.stream, first))
    return list(dict.fromkeys(heads))


def _handles(operator: OperatorState, role: str) -> Iterator[tuple[int, Partitioned]]:
    for subtask in operator.all_subtasks:
        for own, handle in handles_of(subtask):
            if own == role:
                yield subtask.index, handle


def _joined(files: list[KeyedFile], groups: range) -> Cut:
    """Return sections as they are, but for their states' numbers where these differ."""
    places: dict[int, int] = {}
    at = len(files[0].head)
    for group, size in chain.from_iterable(file.sizes() for file in files):
        if group not in groups:
            continue
        if group in places:
            raise FormatError(f"key group {group} is in two subtasks", None, None)
        places[group] = at
        at += size

    def content() -> Iterator[bytes]:
        yield files[0].head
        for file in files:
            for group, section in file.sections(groups):
                yield _with_numbers(file, section, group) if file.states else section

    return cut_of(groups, places, at, content)


def _with_numbers(file: KeyedFile, content: bytes, group: int) -> bytes:
    assert file.header is not None, "what has no header of its own is refused"
    if file.header.compressed:
        raise Incompatible(
            "compressed state whose subtasks number their states differently cannot be joined",
            hint="take a savepoint without compression",
        )
    numbered = entries(content, prefix_bytes(file.was), group, len(file.states))
    renumbered = [(file.states[number], key, value) for number, key, value in numbered]
    made = encode_section(sorted(renumbered, key=lambda entry: entry[0]))
    if len(made) != len(content):
        raise FormatError(f"key group {group} has a state in two places", None, None)
    return made


def _any_header(handle: KeyedHandle | None, streams: Streams) -> Header | None:
    match handle:
        case KeyGroups():
            return header_of(handle, streams)
        case Incremental(meta=meta) if meta is not None:
            return decode_header(streams.head(meta, meta.size), meta.size)
        case Changelog(bases=bases):
            headers = (_any_header(base, streams) for base in bases)
            return next((header for header in headers if header is not None), None)
    return None


def _not_shown(origin: Origin) -> Obstacle | None:
    """Return the obstacle of keys that jobs hash in ways of their own: they are not in the key
    group that their hash says, or too few of them show that they are.
    """
    groups = origin.operator.max_parallelism
    bits, hashes = math.log2(groups), set[int]()
    fact = "jobs hash such keys in several ways, and"
    leave = 'leave it behind: {"kind": "drop", "operators": [...]}'
    for handle in keyed_handles(origin.operator):
        try:
            file = keyed_file(0, origin, handle)
            if file is None or file.header is None or has_one_hash(file.header.key):
                continue
            # It loads Arrow, for which no other plan should wait.
            from stateshift.engines.flink.rewrite.regroup import hashes_of

            for own in hashes_of(file):
                hashes.update(own.tolist())
                if len(hashes) * bits >= EVIDENCE or (hashes and not bits):
                    break
        except PlanError as error:
            return Obstacle(error.fact, error.hint or leave)
        if len(hashes) * bits >= EVIDENCE:
            return None
    if not hashes:
        return None
    if not bits:
        return Obstacle(f"{fact} one key group does not show how this one does", leave)
    enough = math.ceil(EVIDENCE / bits)
    fact = f"{fact} {len(hashes)} keys in {groups} key groups do not show how this one does"
    hint = f"take a savepoint once it has {enough} keys, or {leave}"
    by_classes = [header.key for header in unhashed_headers(origin)]
    if any(map(_may_have_enum, by_classes)):  # its hash is another in every JVM: of M, one agrees
        return Obstacle(f"{fact}, and they may hold constants of an enum", hint)
    usual = "the hashCode of --classes" if by_classes else "the usual hash of Rows and RowData"
    return Obstacle(
        fact,
        f'{hint}; or, where you know that its job has {usual}, "waive": ["{KEY_HASH}"]. With '
        "another hash Flink never finds these keys again",
        KEY_HASH,
    )


def _may_have_enum(key: Serializer | None) -> bool:
    """Whether a key's hash may be another in every JVM: it has an enum, or what Kryo writes, whose
    fields no snapshot tells.
    """
    if key is None:
        return False
    if key.name in ("KryoSerializer", "ProtobufSerializer"):
        return key.type != "java.util.UUID"
    return key.name == "EnumSerializer" or any(map(_may_have_enum, key.within()))


def _of_keys(header: Header) -> Obstacle:
    """Return the obstacle of keys that cannot be hashed here: only known serializers tell how."""
    key = header.key
    if key is None:
        name = snapshot_name(header.unknown) if header.unknown else "a serializer that is not known"
        return Obstacle(f"its keys are written by {name}, and are not hashed here")
    while key.name in COMPOSED:  # of which no part may be RowData
        others = [inner for inner in key.inner if inner.name == ROW_DATA]
        key = next(chain(others, filterfalse(hashable, key.inner)))
    fact = f"its keys are written by {key.name}, and are not hashed here"
    match key.name:
        case "EnumSerializer":
            kind = f"its keys are constants of {key.type}"
            return Obstacle(f"{kind}, whose hash is another in every JVM")
        case "PojoSerializer" | "KryoSerializer" | "ProtobufSerializer":
            fact = f"its keys are objects of {key.type}: only the job's own code tells their hash"
    return Obstacle(
        fact,
        "stateshift repartition --classes JOB.jar --flink FOLDER computes it by the job's own "
        f'code, in a JVM (in a spec, "classes" of the rescale); or {AS_IT_IS}',
    )
