"""Bounds of the memory that bytes may claim: one for the process, and shares of it.

    total  1 GiB, or what `set_total` was called with: the command line sets it from
           STATESHIFT_MEMORY
    whole  a quarter: a file that is held at once, such as a table of RocksDB's or a zip
    piece  a sixteenth: a record, a block, a line. It is copied a few times on its way
    text   a 64th: a JSON document, whose objects take up to 34 times the memory of their text

`own_process` notes that the process is ours alone, and not of a program that imports us: then
`blocks` chooses what Arrow takes its memory from.

Files that are streamed may have any size. A format asks before it allocates a length that it has
read; a length that the bytes cannot hold is damage, and the format says so itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stateshift.errors import TooLarge

DEFAULT = 1 << 30
LEAST = 64 << 20

_MIB = 1 << 20
_GIB = 1 << 30
_SHARES = {"whole": 4, "piece": 16, "text": 64}


class _Bound:
    """The one that holds. A class, so that setting it needs no `global`."""

    total = DEFAULT
    asked: int | None = None
    is_ours = False


def set_total(size: int) -> None:
    """Let this process take about so many bytes."""
    _Bound.total = size


def set_request(size: int | None) -> None:
    """Set what somebody asked for, and the total by it."""
    _Bound.asked = size
    _Bound.total = DEFAULT if size is None else size


def request() -> int | None:
    """Return the size that somebody asked for; None if nobody did."""
    return _Bound.asked


def own_process() -> None:
    """Note that this process is ours alone; to be called before `blocks` is imported."""
    _Bound.is_ours = True


def is_own_process() -> bool:
    """Return whether this process is ours alone, as far as we were told."""
    return _Bound.is_ours


def total() -> int:
    """Return the bound from which all others follow."""
    return _Bound.total


def whole() -> int:
    """Return the most bytes of a file that is held at once."""
    return _Bound.total // _SHARES["whole"]


def piece() -> int:
    """Return the most bytes of a record, block or line."""
    return _Bound.total // _SHARES["piece"]


def text() -> int:
    """Return the most bytes of a JSON document."""
    return _Bound.total // _SHARES["text"]


def require_whole(size: int, what: str) -> None:
    """Refuse a file that is too large to be held at once."""
    if size > whole():
        raise _too_large(size, "whole", what, None)


def require_piece(size: int, what: str, offset: int | None = None) -> None:
    """Refuse a record, a block or a line that is too large."""
    if size > piece():
        raise _too_large(size, "piece", what, offset)


def require_text(size: int, what: str, offset: int | None = None) -> None:
    """Refuse a JSON document that is too large."""
    if size > text():
        raise _too_large(size, "text", what, offset)


@dataclass(eq=False)
class Shown:
    """A sum of what is decoded to be shown at once: objects take several times their bytes."""

    _what: str
    _size: int = field(default=0, init=False)

    def add(self, size: int) -> None:
        """Count a record of so many bytes; refused where all of them together are too much."""
        self._size += 1024 + 4 * size
        if self._size > _Bound.total // 2:
            fact = (
                f"{self._what} is too long to be shown at once: {_Bound.total // _MIB:,} MiB "
                "are allowed"
            )
            hint = "stateshift export LOCATION --to FILE.jsonl holds little at once"
            raise TooLarge(fact, None, None, hint=hint)


def gather(chunks: Iterable[bytes], what: str) -> bytes:
    """Return the chunks as one, for what can only be read as a whole."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        require_whole(size, what)
        held.append(chunk)
    return b"".join(held)


def _too_large(size: int, share: str, what: str, offset: int | None) -> TooLarge:
    enough = -(-size * _SHARES[share] // _GIB)
    fact = (
        f"{what} of {-(-size // _MIB):,} MiB or more takes more memory than is allowed: "
        f"{_Bound.total // _MIB:,} MiB for the process, "
        f"{_Bound.total // _SHARES[share] // _MIB:,} MiB for this"
    )
    return TooLarge(
        fact, None, offset, hint=f"if it is no damage, allow more: STATESHIFT_MEMORY={enough}GiB"
    )
