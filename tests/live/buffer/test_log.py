"""Records on disk: torn at every byte, spread over segments, removed, on a disk that fails."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from stateshift.errors import FormatError, UnknownVersion
from stateshift.live.buffer import frames
from stateshift.live.buffer.frames import SEGMENT_HEAD, BufferRecord
from stateshift.live.buffer.log import SUFFIX, Files, Log

SEGMENT = 1000


def put(log: Log, *values: bytes) -> None:
    """Write values as one commit."""
    records = [BufferRecord(log.next + place, 5, value) for place, value in enumerate(values)]
    parts = [frames.encode_record(record, record is records[0]) for record in records]
    log.append(b"".join(parts), log.next + len(values))


def values_of(log: Log, number: int = 0, bytes_max: int = 100) -> list[bytes]:
    values: list[bytes] = []
    while number < log.next:
        block = log.read(number, log.next - number, bytes_max)
        records = list(frames.decode_records(block, number))
        values += [record.value for record in records]
        number += len(records)
    return values


def last_file(folder: Path) -> Path:
    return max(folder.glob(f"*{SUFFIX}"))


class FullDisk(Files):
    """A disk that has room for so many bytes; a write that does not fit leaves what did."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sync_fails = False

    def write(self, descriptor: int, content: bytes) -> None:
        fitting = content[: self.room]
        super().write(descriptor, fitting)
        self.room -= len(fitting)
        if len(fitting) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self, descriptor: int) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_records_are_read_in_their_order_over_all_segments(tmp_path: Path) -> None:
    log = Log(tmp_path, SEGMENT)
    values = [b"%d" % number * (number % 90) for number in range(300)]
    for place in range(0, 300, 3):
        put(log, *values[place : place + 3])
    assert len(list(tmp_path.iterdir())) > 5
    assert values_of(log) == values
    again = Log(tmp_path, SEGMENT)
    for number in range(0, 300, 7):
        assert values_of(again, number) == values[number:]


def test_a_large_segment_is_read_from_any_record_on(tmp_path: Path) -> None:
    log = Log(tmp_path, 1 << 30)
    values = [b"%d" % number * 2000 for number in range(90)] + [b"x" * 200_000, b"end"]
    for value in values:
        put(log, value)
    again = Log(tmp_path, 1 << 30)
    for number in (91, 90, 89, 0, 44, 91):
        assert values_of(again, number, 1 << 16) == values[number:]


def test_a_log_that_is_cut_at_any_byte_goes_on_behind_its_last_whole_record(tmp_path: Path) -> None:
    source = tmp_path / "whole"
    source.mkdir()
    log = Log(source, SEGMENT)
    put(log, b"one", b"two")
    put(log, b"three")
    content = last_file(source).read_bytes()
    whole_values = [b"one", b"two", b"three"]
    sizes = [24 + len(value) for value in whole_values]
    ends = [SEGMENT_HEAD.size + sum(sizes[:count]) for count in range(4)]
    for length in range(len(content) + 1):
        folder = tmp_path / f"cut-{length}"
        shutil.copytree(source, folder)
        os.truncate(last_file(folder), length)
        cut = Log(folder, SEGMENT)
        whole = max(0, sum(end <= length for end in ends) - 1)
        assert cut.next == whole
        put(cut, b"again")
        assert values_of(Log(folder, SEGMENT)) == [*whole_values[:whole], b"again"]


def test_a_torn_end_with_later_bytes_of_the_same_write_is_cut(tmp_path: Path) -> None:
    log = Log(tmp_path, SEGMENT)
    put(log, b"kept")
    end = log.disk_bytes
    put(log, b"torn", b"whole")
    damage(last_file(tmp_path), end + 25)
    assert values_of(Log(tmp_path, SEGMENT)) == [b"kept"]


def test_a_segment_whose_head_was_not_synced_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / f"{0:020}{SUFFIX}").write_bytes(b"\0" * 4096)
    log = Log(tmp_path, SEGMENT)
    put(log, b"first")
    assert values_of(Log(tmp_path, SEGMENT)) == [b"first"]


def test_damage_before_what_was_synced_later_is_no_torn_end(tmp_path: Path) -> None:
    log = Log(tmp_path, SEGMENT)
    put(log, b"first")
    put(log, b"second")
    damage(last_file(tmp_path), SEGMENT_HEAD.size + 25)
    with pytest.raises(FormatError, match="record 0 is damaged") as caught:
        Log(tmp_path, SEGMENT)
    assert caught.value.offset == SEGMENT_HEAD.size
    assert last_file(tmp_path).stat().st_size == log.disk_bytes, "nothing was cut"


def damage(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_segment_of_a_newer_version_and_a_stray_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / f"x{SUFFIX}").write_bytes(b"")
    with pytest.raises(FormatError, match="the name is no number"):
        Log(tmp_path, SEGMENT)
    (tmp_path / f"x{SUFFIX}").unlink()
    head = frames.encode_segment_head(0)
    (tmp_path / f"{0:020}{SUFFIX}").write_bytes(head[:7] + b"\x09" + head[8:])
    with pytest.raises(UnknownVersion, match="segment version 9"):
        Log(tmp_path, SEGMENT)


def test_removed_segments_are_gone_and_the_last_one_stays(tmp_path: Path) -> None:
    log = Log(tmp_path, SEGMENT)
    for number in range(100):
        put(log, b"%d" % number * 40)
    log.remove(2)
    first = log.first
    assert first > 0
    with pytest.raises(LookupError):
        log.read(first - 1, 1, 100)
    log.remove(10_000)
    again = Log(tmp_path, SEGMENT)
    assert again.next == 100 and again.first == log.first, "numbers go on where they were"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("room", range(0, 200, 7))
def test_a_full_disk_takes_a_write_whole_or_not_at_all(tmp_path: Path, room: int) -> None:
    files = FullDisk(room)
    log = Log(tmp_path, SEGMENT, files)
    written = []
    for value in (b"a" * 50, b"b" * 60, b"c" * 5, b"d" * 70):
        try:
            put(log, value)
        except OSError as error:
            assert error.errno == errno.ENOSPC
        else:
            written.append(value)
    assert values_of(log) == written
    files.room = 1 << 20
    put(log, b"later")
    assert values_of(log) == values_of(Log(tmp_path, SEGMENT)) == [*written, b"later"]


def test_after_a_sync_that_failed_nothing_more_is_written_to_that_file(tmp_path: Path) -> None:
    files = FullDisk(1 << 20)
    log = Log(tmp_path, SEGMENT, files)
    put(log, b"before")
    before = last_file(tmp_path)
    files.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        put(log, b"lost")
    files.sync_fails = False
    put(log, b"behind")
    assert values_of(Log(tmp_path, SEGMENT)) == [b"before", b"behind"]
    assert last_file(tmp_path) != before
