"""Small inputs that ask for much: no number in a file makes us take more room or time than its own
size allows.

Each of these is a few bytes to a few KiB. What they ask for is thousands of times what refusing
them may cost here: MIB_MAX of Python's memory and SECONDS_MAX of this thread's time.
"""

from __future__ import annotations

import io
import json
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cramjam
import pytest

from stateshift import lock, look, migration
from stateshift.api import requests
from stateshift.engines.spark.entries.encoders import Encoder, decode_key, decode_list, encoder_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError, JournalError, PlanError, SpecError
from stateshift.formats import marks
from stateshift.formats.rocksdb import table as sst
from stateshift.formats.spark import crc, offsets, operator_metadata, rocksdb, schema, state_files
from stateshift.formats.spark.compression import compress, decompress
from stateshift.formats.spark.types import ArrayType, Atomic, MapType, StructType, decode_struct
from stateshift.formats.spark.unsafe_row import decode_row
from stateshift.formats.stream import lines
from stateshift.journal import decode_records
from stateshift.specification import parse_spec
from stateshift.survey import Finding
from stateshift.testing.memory_storage import MemoryDisk
from stateshift.workdir import Workdir
from tests.fuzz import sst_files
from tests.support.checkpoints import Checkpoint, put

MIB_MAX = 48
SECONDS_MAX = 10.0
HERE = "file:///here/orders"

pytestmark = pytest.mark.row("IS-13")


@contextmanager
def little() -> Iterator[None]:
    tracemalloc.start()
    began = time.thread_time()
    try:
        yield
        seconds, peak = time.thread_time() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MIB_MAX << 20, f"{peak >> 20} MiB"
    assert seconds < SECONDS_MAX, f"{seconds:.1f} s"


def packed(raw: bytes, codec: str = "lz4") -> bytes:
    return b"".join(compress([raw], codec))


def rows_of(*types: Any) -> StructType:
    return StructType(tuple(f"c{n}" for n in range(len(types))), types)


HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00")
LONG = Atomic("long")
STRING = Atomic("string")

CLAIMS: dict[str, Callable[[], Any]] = {
    **{
        f"a key of {h.hex()}": lambda h=h: list(state_files.decode_delta([packed(h + b"k")]))
        for h in HUGE
    },
    **{
        f"a value of {h.hex()}": lambda h=h: list(state_files.decode_delta([packed(bytes(4) + h)]))
        for h in HUGE
    },
    **{
        f"a changelog's key of {h.hex()}": lambda h=h: list(
            state_files.decode_changelog([packed(b"\x00\x02v2\x01" + h)])[1]
        )
        for h in HUGE
    },
    "a lineage of 64 KiB": lambda: state_files.decode_changelog([packed(b"\x00\x02v3\xff\xff[")]),
    **{
        f"{h.hex()} column families": lambda h=h: schema.decode_schema(b"\x00\x02v3" + h)
        for h in HUGE
    },
    **{
        f"{h.hex()} chunks of a schema": lambda h=h: schema.decode_schema(b"\x00\x02v2" + h)
        for h in HUGE
    },
    "an array of 2^40 nothings": lambda: decode_row(
        bytes(8) + struct.pack("<IIq", 8, 16, 1 << 40), rows_of(ArrayType(Atomic("void")))
    ),
    "a map whose keys take 2^62 bytes": lambda: decode_row(
        bytes(8) + struct.pack("<IIq", 8, 16, 1 << 62), rows_of(MapType(LONG, LONG))
    ),
    "a string of 4 GiB": lambda: decode_row(
        bytes(8) + struct.pack("<II", 0xFFFFFFFF, 16), rows_of(STRING)
    ),
    "a hundred strings that are all of the row": lambda: decode_row(
        bytes(16) + struct.pack("<II", 60_000, 816) * 100 + bytes(60_000), rows_of(*[STRING] * 100)
    ),
    "a key's first columns of 2 GiB": lambda: decode_key(
        b"\xff\xff\xff\x7f\0", rows_of(LONG), Encoder("prefix", (0,))
    ),
    "an item of a list of 2 GiB": lambda: decode_list(b"\xff\xff\xff\x7f\0", rows_of(LONG), b""),
    "a prefix of 10^9 columns": lambda: encoder_of(
        '{"keyStateEncoderType":"PrefixKeyScanStateEncoderSpec","numColsPrefixKey":1000000000}'
    ),
    "a prefix of infinitely many": lambda: encoder_of(
        '{"keyStateEncoderType":"PrefixKeyScanStateEncoderSpec","numColsPrefixKey":Infinity}'
    ),
    "types inside of types without end": lambda: decode_struct(
        '{"type":"array","elementType":' * 50_000
    ),
    "brackets without end": lambda: offsets.decode_offsets(b"v1\n" + b"[" * 500_000 + b"\n-"),
    "a number of a million digits": lambda: operator_metadata.decode_operator_metadata(
        b'v1\n{"a":' + b"9" * 1_000_000
    ),
    "Hadoop's chunks of 2 GiB": lambda: crc.decode_hadoop_crc(b"crc\0\x7f\xff\xff\xff" + bytes(8)),
    "an lz4 block of 32 MiB in 4 bytes": lambda: list(
        decompress([b"LZ4Block" + struct.pack("<BiiI", 0x2F, 4, 1 << 25, 0) + b"abcd"])
    ),
    "a zstd window of 2 GiB": lambda: list(decompress([b"\x28\xb5\x2f\xfd\x00\xa8" + bytes(9)])),
    "a snappy block of 4 GiB": lambda: list(
        decompress([b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\6\xff\xff\xff\xff\x0fa"])
    ),
}


@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_that_the_bytes_cannot_hold_is_refused_for_next_to_nothing(what: str) -> None:
    with little(), pytest.raises(FormatError):
        CLAIMS[what]()


def test_a_line_that_goes_on_for_ever_is_gathered_once() -> None:
    """In time that grows with its length, not with the square of it: sixty thousand pieces of
    one line.
    """
    with little():
        (found,) = lines(b"x" * 64 for _ in range(60_000))
    assert len(found[1]) == 64 * 60_000


def zstd_of_one_byte(blocks: int) -> bytes:
    """A frame that says 128 KiB of zeros in every four bytes."""
    block = (1 << 1 | (128 * 1024) << 3).to_bytes(3, "little") + b"\0"
    last = (1 | 1 << 1 | 1 << 3).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * blocks + last


def test_a_zstd_frame_that_expands_without_end_is_refused() -> None:
    """Sixteen KiB that are half a GiB."""
    with little(), pytest.raises(FormatError, match="from next to none"):
        for _ in decompress([zstd_of_one_byte(4096)]):
            pass
    assert sum(len(piece) for piece in decompress([zstd_of_one_byte(100)])) == 100 * 128 * 1024 + 1


# ---- zips


def zipped(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


METADATA = ("metadata", b'v1\n{"sstFiles":[],"numKeys":0}')


def overlapping(count: int) -> bytes:
    """One file of 4 MiB, listed as often as asked for."""
    whole = zipped(METADATA, ("MANIFEST-1", bytes(4 << 20)))
    end = whole.rindex(b"PK\x05\x06")
    second = whole.index(b"PK\x01\x02", whole.index(b"PK\x01\x02") + 1)
    entry, start = whole[second:end], whole.index(b"PK\x01\x02")
    directory = whole[start:second] + entry * count
    tail = struct.pack(
        "<IHHHHIIH", 0x06054B50, 0, 0, count + 1, count + 1, len(directory), start, 0
    )
    return whole[:start] + directory + tail


def test_a_zip_whose_files_lie_over_each_other_is_refused() -> None:
    content = overlapping(1000)
    for read in (rocksdb.decode_zip, rocksdb.check_zip):
        with little(), pytest.raises(FormatError, match="lists 1001 files, and 2 can be read"):
            read(content)


def test_metadata_that_expands_a_thousand_times_is_refused() -> None:
    content = zipped(("metadata", b'v1\n{"sstFiles":[' + b"[]," * 5_000_000 + b"1]}"))
    with little(), pytest.raises(FormatError, match="'metadata' in it expands to"):
        rocksdb.decode_zip(content)


def test_a_write_ahead_log_that_expands_is_refused_unread() -> None:
    content = zipped(METADATA, ("000004.log", bytes(60 << 20)))
    with little(), pytest.raises(FormatError, match="write-ahead log"):
        rocksdb.decode_zip(content)


def test_a_file_of_rocksdbs_own_may_be_large_and_takes_no_room() -> None:
    content = zipped(METADATA, ("MANIFEST-000004", bytes(60 << 20)))
    with little():
        rocksdb.check_zip(content)
    assert rocksdb.decode_zip(content).tables == ()


# ---- tables


def entry(shared: int, rest: bytes, value: bytes) -> bytes:
    sizes = (
        sst_files.put_varint(shared)
        + sst_files.put_varint(len(rest))
        + sst_files.put_varint(len(value))
    )
    return sizes + rest + value


def block(*entries: bytes) -> bytes:
    return b"".join(entries) + struct.pack("<II", 0, 1)


def sequenced(key: bytes) -> bytes:
    return key + (5 << 8 | 1).to_bytes(8, "little")


def test_keys_that_share_all_but_a_byte_are_not_multiplied() -> None:
    """A first key of 100 KB, and then a hundred thousand that share it: 10 GB of keys in 1 MB."""
    first = entry(0, sequenced(bytes(100_000)), b"")
    later = [entry(100_000, sequenced(n.to_bytes(4, "big")), b"") for n in range(20_000)]
    with little(), pytest.raises(FormatError, match="larger than its block"):
        for _ in sst.decode_sst(sst_files.made([block(first, *later)], 0, 0)):
            pass


@pytest.mark.parametrize("sixteen", range(2))
def test_keys_that_share_as_rocksdb_lets_them_are_read(sixteen: int) -> None:
    rows = [entry(0, sequenced(bytes(900)), b"v")]
    rows += [entry(900, sequenced(n.to_bytes(1, "big")), b"v") for n in range(1, 16)]
    found = list(
        sst.decode_sst(sst_files.made([block(*rows)] if sixteen else [block(rows[0])], 4, 4))
    )
    assert len(found) == (16 if sixteen else 1)


def test_a_block_that_zstd_expands_beyond_its_claim_is_refused() -> None:
    bomb = sst_files.put_varint(1000) + cramjam.zstd.compress(bytes(200 << 20))
    content = with_block(bomb, 7)
    with little(), pytest.raises(FormatError, match="damaged block"):
        list(sst.decode_sst(content))


def test_a_block_that_claims_a_gibibyte_is_refused() -> None:
    with little(), pytest.raises(FormatError, match="claims to hold"):
        list(
            sst.decode_sst(
                with_block(sst_files.put_varint(1 << 30) + cramjam.zstd.compress(b"x"), 7)
            )
        )


def with_block(stored: bytes, kind: int) -> bytes:
    """A table whose one data block is stored as given."""
    content = bytearray(sst_files.made([stored], 4, 0))
    content[len(stored)] = kind
    return sst_files.with_checksums(bytes(content))


def test_an_index_that_names_one_block_over_and_over_is_refused() -> None:
    one = block(entry(0, sequenced(b"k"), b"v" * 50_000))
    content = sst_files.made([one], 4, 0)
    handle = sst_files.put_varint(0) + sst_files.put_varint(len(one))
    index = sst_files.entries([(n.to_bytes(4, "big"), handle) for n in range(30_000)], sizes=False)
    with little(), pytest.raises(FormatError, match="blocks that overlap"):
        list(sst.decode_sst(sst_files.with_index(content, index)))


# ---- whole checkpoints


def surveyed(**files: bytes) -> list[Finding]:
    disk = MemoryDisk()
    for path, content in {**Checkpoint().files(), **files}.items():
        put(disk.open(HERE), path, content)
    with little():
        (image,) = survey(disk.open(HERE), thorough=True).images
        found = look.restartable(HERE, disk.open, thorough=True)
    assert not found.restartable
    assert len(image.findings) < 200
    return [finding for finding in image.findings if finding.level == "refuse"]


@pytest.mark.parametrize("count", ["2147483647", "99999999999999999999", "-5", "0", "²", "three"])
def test_a_partition_count_that_no_job_has_is_refused_naming_the_log(count: str) -> None:
    log = (
        Checkpoint()
        .files()["offsets/2"]
        .replace(b'partitions":"2"', f'partitions":"{count}"'.encode())
    )
    assert any(
        finding.path == "offsets/2" and count in finding.message
        for finding in surveyed(**{"offsets/2": log})
    )


def test_of_twenty_thousand_missing_shards_a_few_are_named_and_the_rest_counted() -> None:
    log = Checkpoint().files()["offsets/2"].replace(b'partitions":"2"', b'partitions":"20000"')
    told = [finding.message for finding in surveyed(**{"offsets/2": log})]
    assert "state/0/2 is missing: the operator has 20000 shards" in told
    assert "19978 more shards are missing from state/0, of 20000" in told


@pytest.mark.parametrize("batch", ["999999999", "9223372036854775806"])
def test_a_batch_of_any_number_does_not_make_us_count_to_it(batch: str) -> None:
    files = Checkpoint().files()
    found = surveyed(
        **{f"commits/{batch}": files["commits/2"], f"offsets/{batch}": files["offsets/2"]}
    )
    assert any("state/0/0/4.delta is missing" in finding.message for finding in found)


def test_a_state_file_of_any_version_does_not_make_us_count_to_it() -> None:
    disk = MemoryDisk()
    files = Checkpoint().files()
    for path, content in {
        **files,
        "state/0/0/9223372036854775806.delta": files["state/0/0/1.delta"],
    }.items():
        put(disk.open(HERE), path, content)
    with little():
        assert look.restartable(HERE, disk.open, thorough=True).restartable


DEEP = b"[" * 100_000


def test_brackets_without_end_in_any_file_are_no_bug_of_ours() -> None:
    """A source may write what it likes as its offset; anything else is refused."""
    files = Checkpoint(inputs="file:///in").files()
    head = files["offsets/2"].rsplit(b"\n", 1)[0]
    utf = len(DEEP[:60_000]).to_bytes(2, "big") + DEEP[:60_000]
    bad = {
        "offsets/2": head + b"\n" + DEEP,
        "commits/2": b"v1\n" + DEEP,
        "metadata": DEEP,
        "sources/0/0": b"v1\n" + DEEP,
        "state/0/0/_metadata/schema": b"\0\2v1" + utf * 2,
        "state/0/_metadata/metadata": b"v1\n" + DEEP,
        "state/0/1/3.delta": packed(b"\0\2v3" + utf),
        "_stateshift/operators.json": DEEP,
    }
    for path, content in bad.items():
        disk = MemoryDisk()
        for name, one in {**files, path: content}.items():
            put(disk.open(HERE), name, one)
        with little():
            look.restartable(HERE, disk.open, thorough=True)
            with suppress(FormatError):
                list(look.entries(HERE, disk.open))
            with suppress(FormatError):
                look.inspect(f"{HERE}/{path}", disk.open)


# ---- what we write ourselves


def test_a_journal_a_lock_or_a_file_of_a_workdir_nested_without_end_is_refused(
    tmp_path: Path,
) -> None:
    line = b"%08x %s\n" % (zlib.crc32(DEEP), DEEP)
    with little(), pytest.raises(JournalError):
        decode_records(line + line)
    workdir = Workdir(tmp_path)
    (tmp_path / "spec.json").write_bytes(DEEP)
    with little(), pytest.raises(JournalError):
        workdir.read("spec.json")
    with little(), pytest.raises(SpecError):
        requests.read(str(tmp_path / "spec.json"))
    parent = MemoryDisk().open("file:///here")
    put(parent, f"orders{marks.LOCK_SUFFIX}", DEEP[:60_000])
    with little(), pytest.raises(JournalError):
        lock.refuse_held(parent, "orders")


@pytest.mark.parametrize(
    "nested", ["[" * 400 + "]" * 400, '{"a":' * 400 + "1" + "}" * 400, "[" * 100_000]
)
def test_a_saved_plan_or_a_spec_nested_without_end_is_refused(nested: str) -> None:
    with little(), pytest.raises(SpecError):
        parse_spec(f'{{"version":1,"jobs":{nested}}}')
    if nested.endswith("]"):
        value = json.loads(nested)
        for plan in (
            {"spec": value},
            {"plans": value},
            {"plans": [value]},
            {"spec": {"jobs": value}},
        ):
            with little(), pytest.raises(PlanError):
                migration.decode_proposal({"stateshift_plan": 1, **plan})
