"""What was in flight when an unaligned checkpoint was taken: the buffers of channels, many in one
file.

    file       i32 version 0, then buffers
    buffer     i32 size, that many bytes           at the offsets that the handle of its channel has

Records go across the ends of buffers, and nothing in the file says where they begin. There is no
checksum.

Source: Flink, checkpoint/channel/ChannelStateSerializerImpl.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateshift.errors import FormatError
from stateshift.formats.flink.operator_handles import ChannelPart
from stateshift.formats.rocksdb.block import Read

VERSION = 0
HEADER = 4
_SIZE = 4


def check_version(read: Read) -> None:
    """Check how the file begins."""
    head = read(0, HEADER)
    if len(head) < HEADER:
        raise FormatError("channel state ends within its version", None, len(head))
    version = int.from_bytes(head, "big", signed=True)
    if version != VERSION:
        raise FormatError(f"channel state has version {version}, which is not known", None, 0)


def buffers_of(part: ChannelPart, read: Read, end: int) -> list[tuple[int, int]]:
    """Return where each buffer of a channel begins and ends; they come to the size that its handle
    has.
    """
    buffers = [(offset, _buffer_end(offset, read, end)) for offset in part.offsets]
    total = sum(stop - start for start, stop in buffers)
    if total != part.size:
        raise FormatError(
            f"channel state has buffers of {total} bytes, its metadata says {part.size}", None, 0
        )
    return buffers


def _buffer_end(offset: int, read: Read, end: int) -> int:
    """Return where the buffer ends that begins at an offset."""
    head = read(offset, _SIZE) if HEADER <= offset < end else b""
    if len(head) < _SIZE:
        raise FormatError(f"channel state has a buffer at {offset} of {end} bytes", None, offset)
    size = int.from_bytes(head, "big", signed=True)
    stop = offset + _SIZE + size
    if size < 0 or stop > end:
        raise FormatError(
            f"channel state has a buffer of {size} bytes at {offset} of {end}", None, offset
        )
    return stop


def check_apart(buffers: Sequence[tuple[int, int]]) -> None:
    """Check that no buffer of a file lies over another one."""
    reached = 0
    for start, end in sorted(buffers):
        if start < reached:
            raise FormatError("channel state has overlapping buffers", None, start)
        reached = end
