"""Zips whose every bit is flipped once, and what real Java says of each: `recorded.json`.

    python -m tests.formats.spark.zips.samples      records it, with the `java` on PATH (Unzip.java)

A verdict a bit, in their order: `=` Java finds the same files, `~` others, `!` it refuses the zip.
Written as runs: "12!3=" is twelve refusals, and three zips in which nothing is different to Java.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

from stateshift.formats.spark.rocksdb import RocksDBSnapshot, encode_zip

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
GOLDEN = Path(__file__).resolve().parents[3] / "golden"

# A write-ahead log with content, one without, and checkpoint format 2 with column families.
SPARKS = (
    "spark-3.3.4/groups-rocksdb/checkpoint/state/0/0/2.zip",
    "spark-3.5.9/groups-rocksdb/checkpoint/state/0/0/2.zip",
)

METADATA = b'v1\n{"sstFiles":[],"numKeys":0}'
CURRENT = b"MANIFEST-000002\n"


def samples() -> dict[str, bytes]:
    """Spark's own, ours, and such as other writers make them."""
    sparks = {name: (GOLDEN / name).read_bytes() for name in SPARKS}
    members = {"CURRENT": CURRENT, "MANIFEST-000002": bytes(40), "000003.log": b""}
    return {
        **sparks,
        "stored": encode_zip(RocksDBSnapshot((), 0), members),
        "descriptors without a signature": zipped(signature=b""),
        "sizes in an extra field": zipped(wide=True),
        "sizes before the files": zipped(described=False),
    }


def zipped(
    *, signature: bytes = b"PK\x07\x08", described: bool = True, wide: bool = False
) -> bytes:
    """A zip of two files, deflated: sizes behind them where they are `described`, else before them;
    `wide` ones stand in zip64's extra field.
    """
    body, directory = b"", b""
    files = {b"metadata": METADATA, b"CURRENT": CURRENT}
    for name, content in files.items():
        deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
        data = deflater.compress(content) + deflater.flush()
        sizes = (zlib.crc32(content), len(data), len(content))
        extra = struct.pack("<HHQQ", 1, 16, len(content), len(data)) if wide else b""
        before = (sizes[0], 0xFFFFFFFF, 0xFFFFFFFF) if wide else sizes
        flags = 8 if described and not wide else 0
        if flags:
            before = (0, 0, 0)
        place = len(body)
        lengths = (len(name), len(extra))
        body += (
            struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, flags, 8, 0, 33, *before, *lengths)
            + name
            + extra
            + data
        )
        body += signature + struct.pack("<3L", *sizes) if flags else b""
        entry = (20, 20, flags, 8, 0, 33, *sizes, len(name), 0, 0, 0, 0, 0, place)
        directory += struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *entry) + name
    end = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, len(files), len(files), len(directory), len(body), 0
    )
    return body + directory + end


def asked_of_java() -> dict[str, str]:
    """The verdicts of real Java, one process for all."""
    with tempfile.TemporaryDirectory() as folder:
        places = []
        for number, content in enumerate(samples().values()):
            place = Path(folder) / f"{number}.zip"
            place.write_bytes(content)
            places.append(str(place))
        command = ["java", str(HERE / "Unzip.java"), *places]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return dict(zip(samples(), lines, strict=True))


def recorded() -> dict[str, str]:
    runs = json.loads(RECORDED.read_text())
    return {name: expanded(text) for name, text in runs.items()}


def expanded(runs: str) -> str:
    return "".join(verdict * int(count) for count, verdict in re.findall(r"(\d+)([=~!])", runs))


def shortened(verdicts: str) -> str:
    return "".join(f"{len(list(run))}{verdict}" for verdict, run in itertools.groupby(verdicts))


if __name__ == "__main__":
    found = {name: shortened(verdicts) for name, verdicts in asked_of_java().items()}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
