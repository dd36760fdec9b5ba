"""Pieces that lie close to each other are read by one request."""

from __future__ import annotations

import pytest

from stateshift.live.bins.bin_run import GAP_MAX, SPAN_MAX, read_together, spans
from stateshift.live.bins.commits import FilePiece

CONTENT = {"a": bytes(range(256)), "b": bytes(reversed(range(256)))}


def read(piece: FilePiece) -> bytes:
    return CONTENT[piece.file][piece.at : piece.at + piece.size]


def test_every_piece_has_its_own_bytes_whatever_is_read_along():
    pieces = [
        FilePiece("b", 7, 3),
        FilePiece("a", 250, 6),
        FilePiece("a", 0, 4),
        FilePiece("a", 2, 1),
    ]
    pieces += [FilePiece("a", 4, 0), FilePiece("a", 0, 4)]
    assert dict(read_together(pieces, read)) == {piece: read(piece) for piece in pieces}


@pytest.mark.parametrize(
    ("pieces", "requests"),
    [
        ([], 0),
        ([FilePiece("a", 0, 5), FilePiece("a", 5, 5), FilePiece("a", 10, 5)], 1),
        ([FilePiece("a", 0, 5), FilePiece("b", 5, 5)], 2),
        ([FilePiece("a", 0, 5), FilePiece("a", 5 + GAP_MAX, 5)], 1),
        ([FilePiece("a", 0, 5), FilePiece("a", 6 + GAP_MAX, 5)], 2),
        ([FilePiece("a", 0, SPAN_MAX), FilePiece("a", SPAN_MAX, 5)], 2),
    ],
)
def test_what_lies_far_apart_is_asked_for_by_itself(pieces, requests):
    assert len(spans(pieces)) == requests
