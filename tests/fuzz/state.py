"""State files: the four framings, deltas and changelogs. The first byte chooses how far behind
the framing we are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any

import cramjam
import xxhash

from stateshift.errors import FormatError
from stateshift.formats.blocks import RowBlock
from stateshift.formats.spark import state_files
from stateshift.formats.spark.compression import CODECS, codec_of, compress, decompress
from stateshift.formats.spark.state_blocks import (
    SMALL,
    decode_changelog_blocks,
    decode_delta_blocks,
    decode_snapshot_blocks,
)
from stateshift.formats.spark.state_files import StateRecord
from tests.fuzz.oracles import attempt, records_of, same
from tests.fuzz.seeds import golden
from tests.fuzz.targets import Target, spark
from tests.support import encoders

OUT_MAX = 64 << 20
LARGE = 12 * 1024


def run_codecs(data: bytes) -> None:
    """Framings as they are, below 0x80 with lz4's checksums made right; and anything, there and
    back.
    """
    content = with_lz4_checksums(data[1:]) if data[:1] < b"\x80" else data[1:]
    whole = attempt(lambda: _unpacked([content]), len(content))
    pieces = attempt(lambda: _unpacked(_pieces(content)), len(content))
    same(pieces, whole, "a stream in pieces")
    codec = CODECS[(data[0] if data else 0) % 4]
    packed = b"".join(compress([content], codec))
    same(codec_of(packed), codec, "the codec that wrote it")
    same(b"".join(decompress([packed])), content, f"what {codec} gives back")


def run_delta(data: bytes) -> None:
    content = _file(data)
    pairs = (
        (state_files.decode_delta, decode_delta_blocks),
        (state_files.decode_snapshot, decode_snapshot_blocks),
    )
    for decode, decode_blocks in pairs:
        found = _both_ways(lambda chunks, decode=decode: list(decode(chunks)), content)
        _as_blocks(content, found, lambda chunks, decode=decode_blocks: decode(chunks))
        if found is not None:
            same(
                list(state_files.decode_delta(state_files.encode_delta(found))),
                found,
                "records there and back",
            )
            _checksums(found)


def run_changelog(data: bytes) -> None:
    content = _file(data)

    def decode(chunks: Iterable[bytes]) -> tuple[state_files.Changelog, list[StateRecord]]:
        head, records = state_files.decode_changelog(chunks)
        return head, list(records)

    found = _both_ways(decode, content)
    _as_blocks(
        content,
        None if found is None else found[1],
        lambda chunks: decode_changelog_blocks(chunks)[1],
    )
    if found is not None:
        same(decode(encoders.encode_changelog(*found)), found, "a changelog there and back")
        _checksums(found[1])


def _both_ways(decode: Callable[[Iterable[bytes]], Any], content: bytes) -> Any:
    whole = attempt(lambda: decode([content]))
    if len(content) > LARGE:  # too slow to be asked of large ones, too
        return whole
    same(attempt(lambda: decode(_pieces(content))), whole, "a file in pieces")
    return whole


def _as_blocks(
    content: bytes,
    found: list[StateRecord] | None,
    decode: Callable[[Iterable[bytes]], Iterable[RowBlock]],
) -> None:
    """Block by block it is the same."""
    blocks = attempt(
        lambda: [record for block in decode([content]) for record in records_of(block)]
    )
    same(
        blocks, None if found is None else [tuple(record) for record in found], "records by blocks"
    )


def _checksums(records: list[StateRecord]) -> None:
    for record in records[:20]:
        with suppress(FormatError):
            plain = StateRecord(record.key, record.value)
            same(
                state_files.without_row_checksum(state_files.with_row_checksum(plain)),
                plain,
                "a row's checksum",
            )
            state_files.without_row_checksum(plain)


def _file(data: bytes) -> bytes:
    """By the first byte: the bytes as they are, what they would be behind one of the codecs, or as
    a small part of a file that is large enough to be walked in many stretches at once.
    """
    mode, rest = (data[0], data[1:]) if data else (255, b"")
    if mode in (4, 5):
        rest = _among_many(rest, typed=mode == 5)
    return b"".join(compress([rest], CODECS[mode % 4])) if mode < 6 else rest


def _among_many(records: bytes, typed: bool) -> bytes:
    many, end = _many(typed), b"\0" if typed else b"\xff\xff\xff\xff"
    return (b"\x00\x02v2" if typed else b"") + many + records + many + end


@cache
def _many(typed: bool) -> bytes:
    """Records of a few sizes, twice of them more than `state_blocks.SMALL`."""
    rows = ((n.to_bytes(4, "big") * 6, bytes(n % 3 * 64 + 64)) for n in range(SMALL // 160))
    kind = b"\1" if typed else b""
    return b"".join(
        kind + len(k).to_bytes(4, "big") + k + len(v).to_bytes(4, "big") + v for k, v in rows
    )


def _unpacked(chunks: Iterable[bytes]) -> bytes:
    out, size = [], 0
    for piece in decompress(chunks):
        size += len(piece)
        if size <= OUT_MAX:
            out.append(piece)
    return b"".join(out) + size.to_bytes(8, "big")


def _pieces(content: bytes) -> list[bytes]:
    cuts = [*range(min(len(content), 48)), *range(48, len(content), 113), len(content)]
    return [content[start:end] for start, end in pairwise(cuts)]


def with_lz4_checksums(content: bytes) -> bytes:
    """The same blocks, each with the checksum its bytes have now: what gets a mutation past it."""
    out, position = bytearray(content), 0
    while position + 21 <= len(out) and out[position : position + 8] == b"LZ4Block":
        token, stored, raw = struct.unpack_from("<Bii", out, position + 8)
        start, end = position + 21, position + 21 + stored
        if not 0 < stored <= len(out) - start or not 0 <= raw <= 1 << 25:
            position += 21
            continue
        block = bytes(out[start:end])
        if token & 0xF0 == 0x20:
            try:
                block = bytes(cramjam.lz4.decompress_block(block, output_len=raw))
            except cramjam.DecompressionError:
                block = b""
        struct.pack_into(
            "<I", out, position + 17, xxhash.xxh32_intdigest(block, 0x9747B28C) & 0x0FFFFFFF
        )
        position = end
    return bytes(out)


def _codec_seeds() -> list[bytes]:
    files = [*golden("state", "delta")[::3], *golden("state", "changelog")[::4]]
    return [mode + one for one in files for mode in (b"\x01", b"\xff")]


def _inside(kind: str, *more: str) -> list[bytes]:
    """Files as they are, and as each codec would hold what is inside of them."""
    files = golden("state", kind, *more)
    seeds = [b"\xff" + one for one in files]
    for number, one in enumerate(files):
        with suppress(FormatError):
            raw = b"".join(decompress([one]))
            seeds.append(bytes((number % 4,)) + raw)
            if number % 8 == 0:
                seeds += [b"\4" + raw[:-4], b"\5" + raw[4:-1]]
    return seeds


WORDS = (
    b"LZ4Block",
    b"\x82SNAPPY\x00",
    b"\x28\xb5\x2f\xfd",
    b"ZV\x00",
    b"ZV\x01",
    b"\xff\xff\xff\xff",
    b"\x00\x02v2",
    b"\x00\x02v3",
    b"\x00\x02v4",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x10",
    b'"checkpointUniqueId":"',
    b'[{"version":1,',
    b"\x11\x00\x00\x00",
    b"\x10\x00\x00\x00",
)
CODEC_MODULES = spark("compression")

TARGETS = (
    Target("codecs", run_codecs, _codec_seeds, (*CODEC_MODULES, "formats/stream.py"), WORDS),
    Target(
        "delta",
        run_delta,
        lambda: _inside("delta", "snapshot"),
        spark("state_files", "state_blocks"),
        WORDS,
    ),
    Target(
        "changelog",
        run_changelog,
        lambda: _inside("changelog"),
        spark("state_files", "state_blocks"),
        WORDS,
    ),
)
