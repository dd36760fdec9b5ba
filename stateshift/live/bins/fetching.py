"""Pieces of files read together: those that lie close to each other by one request.

A task that another process's bins come to needs a piece of each, and most lie in one file, one
behind the other: on an object store a request for each would take as long as the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from stateshift.live.bins.commits import Piece

GAP_MAX = 1 << 17  # bytes between two pieces that are read along rather than asked for anew
SPAN_MAX = 1 << 24


def read_together(
    pieces: Iterable[Piece], read: Callable[[Piece], bytes]
) -> Iterator[tuple[Piece, bytes]]:
    """Yield pieces with their bytes."""
    for span, inside in spans(pieces):
        content = read(span)
        for piece in inside:
            start = piece.at - span.at
            yield piece, content[start : start + piece.size]


def spans(pieces: Iterable[Piece]) -> list[tuple[Piece, list[Piece]]]:
    """Return what is read at a time, each with the pieces that lie in it."""
    found: list[tuple[Piece, list[Piece]]] = []
    for piece in sorted(set(pieces)):
        last = found[-1] if found else None
        if last is not None and _is_close(last[0], piece):
            span, inside = last
            size = max(span.at + span.size, piece.at + piece.size) - span.at
            inside.append(piece)
            found[-1] = (span._replace(size=size), inside)
        else:
            found.append((piece, [piece]))
    return found


def _is_close(span: Piece, piece: Piece) -> bool:
    """Whether a piece is worth reading along."""
    is_same = span.file == piece.file
    gap = piece.at - (span.at + span.size)
    return is_same and gap <= GAP_MAX and piece.at + piece.size - span.at <= SPAN_MAX
