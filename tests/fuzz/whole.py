"""Whole checkpoints: one golden one, one of its files mutated, and every way in which we read it.

    case u8 | file u16LE | edits: op u8, place u16LE, value u8 ...

What must hold: nothing but errors of the error tree comes out, whatever was edited; and where
`verify --deep` calls the image fine, its entries are those of the untouched one, unless no format
could have told (`_could_tell`).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from stateshift import look
from stateshift.engines.registry import engine
from stateshift.errors import StateshiftError
from stateshift.formats.spark.compression import codec_of
from stateshift.formats.spark.names import classify
from stateshift.survey import Image
from stateshift.testing.memory_storage import MemoryDisk
from tests.fuzz.oracles import Broken
from tests.fuzz.seeds import of_cases
from tests.fuzz.targets import Target
from tests.support.checkpoints import put

HERE = "file:///here/orders"
NAMES = (
    "window-hdfs",
    "dedup-zstd",
    "dedup-lzf",
    "dedup-snappy",
    "dedup-checksum",
    "join-hdfs",
    "join-rocksdb-v4",
    "window-rocksdb-changelog",
    "window-rocksdb-format2",
    "session-rocksdb",
    "tws-ttl",
    "files",
    "total-hdfs",
    "dedup-rocksdb-checksum",
    "files-commits3",
    "dedup-offsets2",
    "limit-rocksdb",
)
EDIT = struct.Struct("<BHB")

Entries = dict[tuple[str, str, int, bytes], bytes]


def run(data: bytes) -> None:
    if len(data) < 3:
        return
    _, files, whole = _case(data[0] % len(NAMES))
    paths = sorted(files)
    path = paths[struct.unpack_from("<H", data, 1)[0] % len(paths)]
    content = edited(files[path], data[3:], [files[one] for one in paths])
    if content == files[path]:
        return
    if content in files.values() and f"{path}.crc" not in files:
        return  # another sound file in its place: no file says which version or shard it is of
    judge(files, path, content, whole)


def judge(files: dict[str, bytes], path: str, content: bytes, whole: Entries) -> None:
    """The checkpoint with that one file changed, read in every way."""
    disk = MemoryDisk()
    for name, one in {**files, path: content}.items():
        put(disk.open(HERE), name, one)
    try:
        judged = look.restartable(HERE, disk.open, thorough=True)
        list(look.entries(HERE, disk.open, limit=3))
        look.inspect(f"{HERE}/{path}", disk.open)
    except StateshiftError as error:
        if error.exit_code == 1:
            raise Broken(f"{path}: {error}") from error
        judged = None
    for finding in judged.findings if judged else ():
        if len(finding.message) > 2000:
            raise Broken(f"a finding of {len(finding.message)} characters: {finding.message[:200]}")
    if judged is None or not judged.restartable or not _could_tell(files, path):
        return
    if any(
        finding.path == path for finding in judged.findings
    ):  # a warning: another sound file in its place
        return
    held = entries_of(disk)
    if held is not None and held != whole:
        raise Broken(
            f"{path} was changed, verify --deep calls the image fine, and its entries are others"
        )


def entries_of(disk: MemoryDisk) -> Entries | None:
    """Every entry of the image, None where there is none; what `verify --deep` has called fine
    must read.
    """
    storage, survey = engine("spark").survey(HERE, disk.open)
    if not survey.images:
        return None
    image: Image = survey.images[0]
    found: Entries = {}
    for shard in image.shards:
        for store, block in engine("spark").entries_reader()(storage.chunks, shard, image.settings):
            for key, value in block.records():
                assert value is not None
                found[shard.operator, store, shard.shard, key] = value
    return found


def edited(content: bytes, edits: bytes, others: list[bytes]) -> bytes:
    out = bytearray(content)
    for op, where, value in EDIT.iter_unpack(edits[: len(edits) // EDIT.size * EDIT.size]):
        place = where % (len(out) + 1)
        match op % 8:
            case 0 | 1 if place < len(out):
                out[place] ^= 1 << value % 8
            case 2 if place < len(out):
                out[place] = value
            case 3:
                del out[place:]
            case 4:
                out[place:place] = bytes((value,)) * (1 + where % 5)
            case 5:
                del out[place : place + 1 + value % 16]
            case 6:
                out[place : place + 4] = (
                    b"\xff\xff\xff\xff",
                    b"\x7f\xff\xff\xff",
                    b"9999",
                    bytes(4),
                )[value % 4]
            case 7:
                out = bytearray(others[where % len(others)])
    return bytes(out)


def _could_tell(files: dict[str, bytes], path: str) -> bool:
    """Whether anything in the format notices when bytes of this file become others. snappy and lzf
    have no checksums (nor has what lies behind them), logs and metadata are text, and what a log
    says may change which state is meant.
    """
    place = classify(path)
    if place.area != "state":
        return False
    if place.kind in ("zip", "sst"):
        return True
    return f"{path}.crc" in files or codec_of(files[path]) in ("lz4",)


@cache
def _case(number: int) -> tuple[str, dict[str, bytes], Entries]:
    ((name, files),) = of_cases(NAMES[number])
    disk = MemoryDisk()
    for path, content in files.items():
        put(disk.open(HERE), path, content)
    return name, files, entries_of(disk) or {}


def _seeds() -> list[bytes]:
    edits: Any = ((0, 40, 1), (2, 9, 255), (3, 20, 0), (6, 30, 0), (7, 3, 0))
    return [
        bytes((case,)) + struct.pack("<H", file) + EDIT.pack(*edit)
        for case in range(len(NAMES))
        for file, edit in zip((1, 7, 13, 22, 31), edits, strict=True)
    ]


MODULES = tuple(
    f"engines/spark/{name}.py"
    for name in (
        *("survey/checkpoint", "survey/restart/query_files", "survey/restart/operators"),
        "survey/restart/image",
        *("chains", "entries/fold", "entries/last_writes"),
        *(
            "check/image",
            "entries/row_check",
            "check/joins",
            "check/sidecars",
            "check/snapshots",
        ),
    )
)

TARGETS = (Target("checkpoint", run, _seeds, MODULES, bytes_max=64),)
