"""Java's DataInput and DataOutput: big-endian numbers and strings.

    DataInput(data, what)  .i4() .i8() .utf() .take(n) .longs(n) ... each at `.at`, which it moves
    DataOutput()           the same names, with the values to write; .content() is their bytes

    utf    u16 length in bytes, then modified UTF-8: NUL is C0 80, a character outside the basic
           plane two surrogates of three bytes each. Only what Java writes is read, so that a string
           written again has the same bytes.
    Longs  numbers as they lie in the file: decoded when they are looked at, since most never are

Bytes that end early, or are no such thing, raise FormatError with the offset. A count claims no
memory before the bytes it counts are seen to be there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, overload

from stateshift.errors import FormatError

_I2, _I4, _I8 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
UTF_BYTES_MAX = 0xFFFF


@dataclass(frozen=True, slots=True)
class Longs(Sequence[int]):
    """Numbers of 64 bits, big-endian."""

    raw: bytes = b""

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Longs:
        given = tuple(numbers)
        return cls(struct.pack(f">{len(given)}q", *given))

    def __len__(self) -> int:
        return len(self.raw) // 8

    def __iter__(self) -> Iterator[int]:
        return iter(struct.unpack(f">{len(self)}q", self.raw))

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Longs: ...

    def __getitem__(self, index: int | slice) -> int | Longs:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return (
                Longs(self.raw[start * 8 : stop * 8]) if step == 1 else Longs.of(tuple(self)[index])
            )
        place = range(len(self))[index]
        return int(_I8.unpack_from(self.raw, place * 8)[0])

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self[:4]))
        return f"Longs({shown}{', ...' if len(self) > 4 else ''})"


class DataInput:
    """Bytes read front to back. `what` names the format in the errors.

    `gap`: so many bytes are taken as they are, once, where they could not be read.
    """

    __slots__ = ("at", "data", "end", "gap", "what")

    def __init__(self, data: bytes, what: str, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.what = what
        self.at = at
        self.end = len(data) if end is None else min(end, len(data))
        self.gap: int | None = None

    def take(self, count: int) -> bytes:
        start = self.at
        if count < 0:
            raise self.wrong(f"a length of {count}")
        stop = start + count
        if stop > self.end:
            self._ends(count)
        self.at = stop
        return self.data[start:stop]

    def u1(self) -> int:
        if self.at >= self.end:
            self._ends(1)
        self.at += 1
        return self.data[self.at - 1]

    def i2(self) -> int:
        return int(_I2.unpack(self.take(2))[0])

    def i4(self) -> int:
        stop = self.at + 4
        if stop > self.end:
            self._ends(4)
        value: int = _I4.unpack_from(self.data, self.at)[0]
        self.at = stop
        return value

    def i8(self) -> int:
        stop = self.at + 8
        if stop > self.end:
            self._ends(8)
        value: int = _I8.unpack_from(self.data, self.at)[0]
        self.at = stop
        return value

    def count(self, words: str) -> int:
        at, value = self.at, self.i4()
        if value < 0:
            raise self.wrong(f"{value} {words}", at)
        return value

    def within(self) -> DataInput:
        """Read a length; return its bytes as an input of their own."""
        length, start = self.count("bytes"), self.at
        self.take(length)
        return DataInput(self.data, self.what, start, start + length)

    def boolean(self) -> bool:
        at = self.at
        value = self.data[at] if at < self.end else self.u1()
        if value > 1:
            raise self.wrong(f"invalid boolean {value}, where 0 or 1 is expected", at)
        self.at = at + 1
        return value == 1

    def items(self, words: str) -> int:
        """Read a number of items of a byte or more; one that could not fit is refused."""
        at, value = self.at, self.count(words)
        if value > self.end - self.at:
            raise self.wrong(f"{value} {words}, with {self.end - self.at} bytes left", at)
        return value

    def varint(self) -> int:
        at, number, shift = self.at, 0, 0
        while True:
            byte = self.u1()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number
            if shift > 63:
                raise self.wrong("unterminated varint", at)

    def longs(self, count: int) -> Longs:
        return Longs(self.take(count * 8))

    def utf(self) -> str:
        at = self.at
        raw = self.take(self.i2() & 0xFFFF)
        if raw.isascii() and 0 not in raw:
            return raw.decode("ascii")
        try:
            return decode_modified(raw)
        except ValueError as error:
            raise self.wrong(f"a string is not modified UTF-8 ({error})", at) from error

    def at_end(self) -> bool:
        return self.at >= self.end

    def require_end(self, words: str) -> None:
        """Refuse bytes that are left; `words` follow their number in the error."""
        if self.at < self.end:
            raise self.wrong(f"{self.end - self.at} {words}")

    def wrong(self, fact: str, at: int | None = None) -> FormatError:
        return FormatError(f"{self.what}: {fact}", None, self.at if at is None else at)

    def _ends(self, count: int) -> NoReturn:
        left = max(0, self.end - self.at)
        fact = f"{self.what} ends early: {count} bytes expected, {left} left"
        raise FormatError(fact, None, self.end)


class DataOutput:
    """The same fields, written."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def content(self) -> bytes:
        return b"".join(self._pieces)

    def put(self, content: bytes) -> None:
        self._pieces.append(content)

    def u1(self, value: int) -> None:
        self._pieces.append(bytes((value,)))

    def i2(self, value: int) -> None:
        self._pieces.append(_I2.pack(value))

    def i4(self, value: int, *more: int) -> None:
        self._pieces.append(_I4.pack(value))
        for another in more:
            self._pieces.append(_I4.pack(another))

    def i8(self, value: int, *more: int) -> None:
        self._pieces.append(_I8.pack(value))
        for another in more:
            self._pieces.append(_I8.pack(another))

    def boolean(self, value: bool) -> None:
        self.u1(int(value))

    def utf(self, text: str, *more: str) -> None:
        self._pieces.append(encode_utf(text))
        for another in more:
            self._pieces.append(encode_utf(another))

    def sized(self, content: bytes) -> None:
        """Write a length, and so many bytes."""
        self._pieces += (_I4.pack(len(content)), content)


def encode_utf(text: str) -> bytes:
    """Return a string with its length, which `fits_utf` has found short enough."""
    raw = encode_modified(text)
    return struct.pack(">H", len(raw)) + raw


def fits_utf(text: str) -> bool:
    """Whether Java's `writeUTF` can write a text: its length takes two bytes."""
    return len(encode_modified(text)) <= UTF_BYTES_MAX


def encode_modified(text: str) -> bytes:
    """Return a text in Java's modified UTF-8."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    units = text.encode("utf-16-be", "surrogatepass")
    each = (chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))
    return b"".join(
        b"\xc0\x80" if unit == "\0" else unit.encode("utf-8", "surrogatepass") for unit in each
    )


def decode_modified(raw: bytes) -> str:
    """Return the text; raise ValueError for what Java would not have written."""
    if 0 in raw:
        raise ValueError("a zero byte")
    # C0 begins nothing else: put back after the strict decoder, which knows no such thing.
    units = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    if any(unit > "\uffff" for unit in units):
        raise ValueError("a character in four bytes")
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
