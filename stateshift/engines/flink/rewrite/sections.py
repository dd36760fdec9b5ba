"""Sections of key groups that are made anew, behind each other in a scratch file, and what of them
each new subtask gets.

    sections = Sections(head, scratch)
    sections.add(group, pieces)          group by group, ascending
    sections.cut(groups) -> Cut          the header, and the sections of these groups
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.storage.protocol import CHUNK, Content

if TYPE_CHECKING:
    from stateshift.formats.sorting import Scratch

_COMPRESSED_AT = 4  # behind the version


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of one new subtask: where its groups begin, all 0 where it gets nothing."""

    first: int
    offsets: tuple[int, ...]
    size: int
    content: Content


class Sections:
    """Sections of key groups, behind each other."""

    def __init__(self, head: bytes, scratch: Scratch) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        self._file, self._end = scratch(), 0
        uncompressed = bytearray(head)
        uncompressed[_COMPRESSED_AT] = 0
        self._head = bytes(uncompressed)

    def add(self, group: int, pieces: Iterable[bytes | bytearray]) -> None:
        """Put a group's section behind those of the groups before it."""
        begin = self._end
        for piece in pieces:
            self._file.write(piece)
            self._end += len(piece)
        self._places[group] = begin, self._end - begin

    def cut(self, groups: range) -> Cut:
        """Return the sections of key groups, which lie behind each other as in their new file."""
        own = {group: self._places[group] for group in groups if group in self._places}
        begin = min((start for start, _ in own.values()), default=0)
        end = max((start + size for start, size in own.values()), default=begin)
        places = {group: len(self._head) + start - begin for group, (start, _) in own.items()}

        def content() -> Iterator[bytes]:
            yield self._head
            self._file.seek(begin)
            left = end - begin
            while left:
                chunk = self._file.read(min(left, CHUNK))
                if not chunk:
                    return
                left -= len(chunk)
                yield chunk

        return cut_of(groups, places, len(self._head) + end - begin, content)


def nothing(groups: range) -> Cut:
    """Return the part of a subtask that gets no keyed state."""
    return Cut(groups.start, (0,) * len(groups), 0, lambda: iter(()))


def cut_of(groups: range, places: Mapping[int, int], size: int, content: Content) -> Cut:
    """Return the part of a subtask whose groups begin at these places."""
    if not places:
        return nothing(groups)
    offsets = tuple(places.get(group, 0) for group in groups)
    return Cut(groups.start, offsets, size, content)
