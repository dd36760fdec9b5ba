"""Entries of several images in one section each, taken apart and put together one by one: no key is
in two images, or the first that is gets refused.

They are sorted by key groups first, in a scratch file beyond some size (see `formats.sorting`).
This module imports pyarrow: see `blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby, islice
from struct import Struct

from stateshift.engines.flink.entries.image import uncompress
from stateshift.engines.flink.entries.keys import hash_of, key_of, key_text
from stateshift.engines.flink.rewrite.keyed_files import KeyedFile, refuse_other_hash
from stateshift.engines.flink.rewrite.sections import Sections
from stateshift.errors import Incompatible
from stateshift.formats.blocks import block_of
from stateshift.formats.flink.key_groups import key_group, prefix_bytes
from stateshift.formats.flink.keyed_state import encode_section, entries
from stateshift.formats.sorting import Scratch, SortedPiles


def united_sections(files: list[KeyedFile], becomes: int, scratch: Scratch) -> Sections:
    """Return the entries of all files, by the key groups that they belong to from now on."""
    sections = Sections(files[0].head, scratch)
    images = {file.image for file in files}
    prefix = prefix_bytes(becomes)
    for group, entries_of_group in _by_group(files, becomes, scratch):
        if len(images) > 1:
            _refuse_in_two(entries_of_group)
        number = group.to_bytes(prefix, "big")
        section = encode_section(
            [(entry.number, number + entry.key, entry.value) for entry in entries_of_group]
        )
        sections.add(group, (section,))
    return sections


@dataclass(frozen=True, slots=True)
class _Entry:
    """`state` as its own file numbers it, `number` as the new one does; the key is without its
    group's number.
    """

    file: KeyedFile
    state: int
    number: int
    key: bytes
    value: bytes


# Group, number, and the entry's own number: an order of its own is kept.
_SORTED_BY = Struct(">HHQ")
_BEHIND = Struct(">HHI")  # the file's number, the state in it, the size of the key that follows
_AT_ONCE = 1 << 15


def _by_group(
    files: list[KeyedFile], becomes: int, scratch: Scratch
) -> Iterator[tuple[int, list[_Entry]]]:
    """Yield group by group, and in each by the states' new numbers."""
    piles = SortedPiles(scratch)
    records = _records(files, becomes)
    while batch := list(islice(records, _AT_ONCE)):
        piles.add(0, block_of(batch))
    rows = chain.from_iterable(block.records() for block in piles.pile(0).blocks())
    for group, own in groupby(rows, key=lambda row: int(_SORTED_BY.unpack_from(row[0])[0])):
        yield group, [_entry(files, key, packed or b"") for key, packed in own]


def _records(files: list[KeyedFile], becomes: int) -> Iterator[tuple[bytes, bytes]]:
    count = 0
    for index, file in enumerate(files):
        for group, content in file.sections():
            for state, key, raw in _entries(file, content, group):
                new_group = group
                if file.was != becomes:
                    code = hash_of(file.known_header, state, key)
                    if key_group(code, file.was) != group:
                        refuse_other_hash(group)
                    new_group = key_group(code, becomes)
                behind = _BEHIND.pack(index, state, len(key))
                sorted_by = _SORTED_BY.pack(new_group, file.renumbered(state), count)
                yield sorted_by, b"".join((behind, key, raw))
                count += 1


def _entry(files: list[KeyedFile], sorted_by: bytes, packed: bytes) -> _Entry:
    _, number, _ = _SORTED_BY.unpack(sorted_by)
    index, state, size = _BEHIND.unpack_from(packed)
    key_end = _BEHIND.size + size
    return _Entry(files[index], state, number, packed[_BEHIND.size : key_end], packed[key_end:])


def _entries(file: KeyedFile, content: bytes, group: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield state, key without the group's number, and value."""
    header = file.known_header
    plain = uncompress(content) if header.compressed else content
    prefix = prefix_bytes(file.was)
    for state, key, raw in entries(plain, prefix, group, len(header.states)):
        yield state, key[prefix:], raw


def _refuse_in_two(entries_of_group: list[_Entry]) -> None:
    """Refuse a key that is in two images; where keys cannot be read, an entry that is."""
    owners: dict[tuple[int | None, bytes], int] = {}
    for entry in entries_of_group:
        owner = owners.setdefault(_key_of(entry), entry.file.image)
        if owner != entry.file.image:
            number, key = _key_of(entry)
            shown = key_text(entry.file.known_header, key) if number is None else key.hex()
            raise Incompatible(
                f"key {shown} is in two images: whose state counts is not known",
                hint='drop the operator from one of them (a drop may be "of" one image); or let '
                "the jobs have keys of their own",
            )


def _key_of(entry: _Entry) -> tuple[int | None, bytes]:
    """Return an entry's key; else all that stands in front of its value."""
    key = key_of(entry.file.known_header, entry.state, entry.key)
    return (entry.number, entry.key) if key is None else (None, key)
