"""Zips, read as Java's ZipInputStream reads them: front to back, by the headers that stand before
the files.

    file        "PK" 03 04 | version u16 | flags u16 | method u16 | time u32 | crc u32 | stored size
                u32 | size u32
                | name length u16 | extra length u16 | name | extra | data [| descriptor]
    descriptor  ["PK" 07 08 |] crc u32 | stored size u32 | size u32      flag 8; the sizes are u64
                                                                         beyond 4 GiB
    directory   "PK" 01 02 | made by u16 | version u16 | flags u16 | method u16 | time u32 | crc u32
                | stored size u32 | size u32 | name length u16 | extra length u16 | comment length
                u16 | disk u16 | attributes u16, u32
                | where the file stands u32 | name | extra | comment     one a file, behind them
                                                                         all
    end         "PK" 05 06 | disk u16 | disk u16 | files here u16 | files u16 | directory's size u32
                | place u32
                | comment length u16 | comment

All of it little-endian. Spark unzips a snapshot with ZipInputStream, which never looks at the
directory: the first line above decides whether it can, and `inflate`. Its rules,
in its order (OpenJDK, ZipInputStream: readLOC, read, readEnd):

    no header's signature, or fewer than 30 bytes  no more files: that is all there is
    the name is not UTF-8                          refused
    flag 1, encrypted                              refused
    flag 8 on a file that is not deflated          refused
    a method that is neither 0 nor 8               refused
    method 0                                       `size` bytes; CRC-32 checked unless there are
                                                   none
    method 8                                       up to deflate's own end; size, stored size and
                                                   CRC-32 checked
    zip64's extra field                            counts where a size in the header is 0xFFFFFFFF

A header whose signature is damaged is no error to Java: the files from there on are missing. The
directory has their number and their names. A zip is refused if it says otherwise, or is cut off:
then nobody can tell whether a file is missing. Java does not notice other faults of the directory:
`doubts` names them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from stateshift.errors import FormatError

MEMBERS_MAX = 10_000

STORED, DEFLATED = 0, 8

_WHAT = "a zip"
_FILE, _DIRECTORY, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_DESCRIPTOR = b"PK\x07\x08"
_HEADER = struct.Struct("<4s5H3L2H")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_TAIL = struct.Struct("<4s4H2LH")
_ENCRYPTED, _DESCRIBED = 1, 8
_FOUR_GIB = 0xFFFFFFFF
_ZIP64 = 1
_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a zip. `content` is as much of it as was asked for."""

    name: str
    offset: int
    method: int
    crc: int
    stored: int
    size: int
    content: bytes


@dataclass(frozen=True, slots=True)
class ZipFiles:
    """The files in their order, and the faults of their directory."""

    members: tuple[Member, ...]
    doubts: tuple[str, ...]


class _Sums(NamedTuple):
    """The checksum and the sizes that a file has, or that something says it has."""

    crc: int
    stored: int
    size: int


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of a file, whose bytes begin at `data`."""

    name: str
    offset: int
    flags: int
    method: int
    sums: _Sums
    data: int

    @property
    def shown(self) -> str:
        return repr(self.name[:80])


class _Listed(NamedTuple):
    """An entry of the directory."""

    name: bytes
    sums: _Sums
    offset: int


class _Tail(NamedTuple):
    """The end of a zip: the number of files, and the place of the directory."""

    files: int
    directory: int


# How many bytes of a file are kept, by its name; and how often its stored size a file may hold.
Kept = Callable[[str], int]
Ratio = Callable[[str], int]


def read_zip(content: bytes, kept: Kept, ratio_max: Ratio) -> ZipFiles:
    """Return the files that Java finds, each read to its end; an error if it finds fewer."""
    members: list[Member] = []
    position = 0
    while (header := _header(content, position)) is not None:
        if len(members) == MEMBERS_MAX:
            raise _wrong(f" holds more than {MEMBERS_MAX} files", position)
        member, position = _member(content, header, kept(header.name), ratio_max(header.name))
        members.append(member)
    if not members:
        raise _wrong(" does not begin with a file", 0)
    return ZipFiles(tuple(members), _doubts(content, members, position))


def _wrong(fact: str, offset: int) -> FormatError:
    return FormatError(f"{_WHAT}{fact}", None, offset)


# ---- files, as Java reads them


def _header(content: bytes, start: int) -> _Header | None:
    if len(content) - start < _HEADER.size or content[start : start + 4] != _FILE:
        return None
    fields = _HEADER.unpack_from(content, start)
    flags, method, sums = fields[2], fields[3], _Sums(*fields[6:9])
    name_end = start + _HEADER.size + fields[9]
    data = name_end + fields[10]
    if data > len(content):
        raise _wrong(" ends inside of a file's header", len(content))
    try:
        name = content[start + _HEADER.size : name_end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise _wrong(" holds a file whose name is not UTF-8", start) from error
    shown = repr(name[:80])
    if flags & _ENCRYPTED:
        raise _wrong(f" holds {shown} encrypted", start)
    if method not in (STORED, DEFLATED):
        raise _wrong(f" holds {shown} in the unknown compression method {method}", start)
    if flags & _DESCRIBED and method != DEFLATED:
        raise _wrong(f" holds {shown} stored with a descriptor", start)
    if not flags & _DESCRIBED and _FOUR_GIB in sums[1:]:
        sums = _sizes_64(content[name_end:data], sums)
    return _Header(name, start, flags, method, sums, data)


def _sizes_64(extra: bytes, sums: _Sums) -> _Sums:
    """Return both sizes of zip64's extra field; an incomplete one is skipped."""
    position = 0
    while position + 4 < len(extra):
        tag, length = struct.unpack_from("<HH", extra, position)
        position += 4
        if position + length > len(extra):
            break
        if tag == _ZIP64 and length >= 16:
            size, stored = struct.unpack_from("<QQ", extra, position)
            sums = _Sums(sums.crc, stored, size)
        position += length
    return sums


def _member(content: bytes, header: _Header, kept: int, ratio_max: int) -> tuple[Member, int]:
    said = header.sums
    if header.method == STORED:
        size = header.sums.size
        end = header.data + size
        if end > len(content):
            raise _wrong(f" ends inside of {header.shown}", len(content))
        data = memoryview(content)[header.data : end]
        found, held = _Sums(zlib.crc32(data), size, size), bytes(data[:kept])
        crc = said.crc if said.size else found.crc  # of an empty file it is not checked
        said, end = _Sums(crc, said.size, said.size), header.data + said.size
    else:
        found, held = _inflated(content, header, kept, ratio_max)
        said, end = _said(content, header, found)
    file, offset = f": {header.shown} in it", header.offset
    if said.size != found.size:
        raise _wrong(f"{file} has {found.size} bytes, not the {said.size} it claims", offset)
    if said.stored != found.stored:
        raise _wrong(f"{file} takes {found.stored} bytes, not the {said.stored} it claims", offset)
    if said.crc != found.crc:
        raise _wrong(f"{file} does not have its checksum", offset)
    return Member(header.name, offset, header.method, *found, held), end


def _inflated(content: bytes, header: _Header, kept: int, ratio_max: int) -> tuple[_Sums, bytes]:
    """Return the kept part of deflated bytes, piece by piece: a file may be longer than memory."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    position = header.data
    crc = size = 0
    held: list[bytes] = []
    waiting = b""
    while not inflater.eof:
        if not waiting:
            waiting = content[position : position + _PIECE]
            position += len(waiting)
        at_end = not waiting
        try:
            piece = inflater.decompress(waiting, _PIECE)
        except zlib.error as error:
            raise _wrong(f": {header.shown} in it is damaged", header.offset) from error
        if at_end and not piece and not inflater.eof:
            raise _wrong(f" ends inside of {header.shown}", len(content))
        waiting = inflater.unconsumed_tail
        crc = zlib.crc32(piece, crc)
        if size < kept:
            held.append(piece[: kept - size])
        size += len(piece)
        consumed = position - len(waiting) - header.data
        if size > ratio_max * consumed + 4096:
            fact = f": {header.shown} in it expands to {size} bytes from {consumed}"
            raise _wrong(fact, header.offset)
    stored = position - len(inflater.unused_data) - header.data
    return _Sums(crc, stored, size), b"".join(held)


def _said(content: bytes, header: _Header, found: _Sums) -> tuple[_Sums, int]:
    """Return the word of a deflated file's header, or of the descriptor after it; and the end."""
    start = header.data + found.stored
    if not header.flags & _DESCRIBED:
        return header.sums, start
    fields = struct.Struct("<LQQ" if max(found.size, found.stored) > _FOUR_GIB else "<LLL")
    # Java reads the longer form, and puts back what is too much.
    if start + 4 + fields.size > len(content):
        raise _wrong(f" ends inside of the descriptor of {header.shown}", len(content))
    if content[start : start + 4] == _DESCRIPTOR:
        start += 4
    return _Sums(*fields.unpack_from(content, start)), start + fields.size


# ---- the directory behind them, which Java does not read


def _doubts(content: bytes, members: list[Member], end: int) -> tuple[str, ...]:
    """Return the directory's faults; an error if it leaves open which files there are."""
    listed = list(_directory(content, end))
    names = [member.name.encode("utf-8") for member in members]
    listed_names = [entry.name for entry in listed]
    tail = _tail(content, end)
    if tail is None:
        raise _wrong(" is truncated: the end of its directory is missing", len(content))
    tail_fits = tail == _Tail(len(members), end)
    if listed_names == names:
        doubts = list(chain.from_iterable(map(_differences, members, listed)))
        if not tail_fits:
            doubts.append("the end of its directory is damaged")
        return tuple(doubts)
    if tail_fits and listed_names == names[: len(listed_names)]:
        return (f"its directory is damaged behind {len(listed)} of {len(members)} files",)
    raise _other_files(members, listed, tail, end)


def _other_files(
    members: list[Member], listed: list[_Listed], tail: _Tail, end: int
) -> FormatError:
    """Return words for how the directory lists other files than there are."""
    for member, entry in zip(members, listed, strict=False):
        if entry.name != member.name.encode("utf-8"):
            shown = entry.name.decode("utf-8", "replace")[:80]
            fact = f" calls a file {member.name[:80]!r}, and {shown!r} in its directory"
            return _wrong(fact, member.offset)
    if tail.files != len(members):
        count = f"{tail.files} files, and {len(members)}"
        return _wrong(f" lists {count} can be read one behind the other", end)
    return _wrong(" has a damaged directory", end)


def _differences(member: Member, listed: _Listed) -> Iterator[str]:
    """Yield the directory's other values of a file; those beyond 4 GiB are not compared."""
    pairs = {
        "checksum": (member.crc, listed.sums.crc),
        "size": (member.size, listed.sums.size),
        "stored size": (member.stored, listed.sums.stored),
        "place": (member.offset, listed.offset),
    }
    for what, (actual, claimed) in pairs.items():
        if claimed not in (actual, _FOUR_GIB):
            yield f"its directory has another {what} of {member.name[:80]!r}"


def _directory(content: bytes, start: int) -> Iterator[_Listed]:
    while len(content) - start >= _ENTRY.size and content[start : start + 4] == _DIRECTORY:
        fields = _ENTRY.unpack_from(content, start)
        name_start = start + _ENTRY.size
        name_end = name_start + fields[10]
        yield _Listed(content[name_start:name_end], _Sums(*fields[7:10]), fields[16])
        start = name_end + fields[11] + fields[12]


def _tail(content: bytes, directory: int) -> _Tail | None:
    start = content.rfind(_END, directory)
    if start < 0 or len(content) - start < _TAIL.size:
        return None
    fields = _TAIL.unpack_from(content, start)
    return _Tail(fields[4], fields[6])
