"""What `verify --deep` says of every kind of bad input: exit code 5, the file, where in it, the
fact, and a way out.

The images are Spark 4.3's own, each with one thing done to it. A way out is a hint, or an earlier
epoch from which a restart would work.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.spark.compression import compress, decompress
from stateshift.formats.spark.state_files import StateRecord, decode_delta, encode_delta
from tests.cli.support import SOURCE, Outside
from tests.look.golden_images import HERE, NEWEST, contents, on_a_disk
from tests.support import encoders
from tests.support.checkpoints import put

pytestmark = pytest.mark.row("IS-13")

Files = dict[str, bytes]
Change = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Damage:
    """What is done to which file of which golden image, and what has to be said of it. `offset`
    None: none is said, for the fact is of the file as a whole; -1: any.
    """

    case: str
    path: str
    change: Change
    fact: str
    offset: int | None = -1
    beside: str | None = None  # the file that is changed, where it is not the one that is named
    level: str = "refuse"


def flipped(place: int) -> Change:
    """A bit, counted from the end where negative."""
    return lambda content: content[:place] + bytes((content[place] ^ 0x10,)) + content[place:][1:]


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def text(old: str, new: str) -> Change:
    def change(content: bytes) -> bytes:
        assert old.encode() in content
        return content.replace(old.encode(), new.encode())

    return change


def inside(change: Change) -> Change:
    """Of what is behind the compression."""
    return lambda content: b"".join(compress([change(b"".join(decompress([content])))], "lz4"))


def zipped(name: str, content: bytes) -> Change:
    """With one more file in the zip."""

    def change(before: bytes) -> bytes:
        out = io.BytesIO(before)
        with zipfile.ZipFile(out, "a") as archive:
            archive.writestr(name, content)
        return out.getvalue()

    return change


def rezipped(old: bytes, new: bytes) -> Change:
    """With its metadata changed, and everything right about the zip."""

    def change(before: bytes) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(before)) as archive, zipfile.ZipFile(out, "w") as made:
            for member in archive.infolist():
                content = archive.read(member)
                made.writestr(
                    member.filename,
                    content.replace(old, new) if member.filename == "metadata" else content,
                )
        return out.getvalue()

    return change


def needed(case: str, ending: str) -> str:
    """The first of the files of a kind that a restart reads."""
    disk = on_a_disk(NEWEST[case])
    (image,) = survey(disk.open(HERE)).images
    return next(path for path in sorted(image.needed) if re.fullmatch(ending, path))


def some(case: str, ending: str, number: int = -1) -> str:
    """The newest file of a kind in shard 0 of operator 0, or wherever there is one."""
    found = sorted(p for p in contents(NEWEST[case]) if re.fullmatch(ending, p))
    return found[number]


HDFS, ROCKS, FORMAT2 = "window-hdfs", "window-rocksdb", "tws-format2"
SNAPSHOT, ZIP, SST = (
    "state/0/0/6.snapshot",
    "state/0/0/6.zip",
    some(ROCKS, r"state/0/0/SSTs/.*\.sst"),
)
CHANGELOG = needed(FORMAT2, r"state/0/.*\.changelog")
SCHEMA, TOLD = "state/0/0/_metadata/schema", "state/0/_metadata/metadata"

FOUR_GIB = b"\xff\xff\xff\xfe"
DAMAGES: dict[str, Damage] = {
    # a flipped bit anywhere
    "a bit of a snapshot": Damage(HDFS, SNAPSHOT, flipped(60), "checksum does not fit|damaged", 0),
    "a bit of an SST": Damage(ROCKS, SST, flipped(50), "checksum does not fit", 0),
    "a bit of a zip": Damage(ROCKS, ZIP, flipped(60), "is damaged"),
    "a bit of a changelog": Damage(FORMAT2, CHANGELOG, flipped(60), "does not fit|damaged", 0),
    "a bit of an offset log": Damage(HDFS, "offsets/5", flipped(3), "is not JSON", 3),
    "a bit of a commit": Damage(HDFS, "commits/5", flipped(3), "is not JSON", 3),
    "a bit of a version": Damage(
        HDFS, "commits/5", flipped(0), "does not begin with a version line", 0
    ),
    "a bit of the query's id": Damage(HDFS, "metadata", flipped(0), "is not JSON", 0),
    "a bit of a schema": Damage(HDFS, SCHEMA, flipped(1), "does not begin with a version", 0),
    "a bit of an operator's metadata": Damage(HDFS, TOLD, flipped(3), "is not JSON", level="warn"),
    "a bit of a source's log": Damage("files", "sources/0/3", flipped(3), "is not JSON", 3),
    # a truncation
    "half a snapshot": Damage(HDFS, SNAPSHOT, half, "ends early"),
    "half an SST": Damage(ROCKS, SST, half, "bytes is .* long|cut off"),
    "half a zip": Damage(ROCKS, ZIP, half, "ends inside of"),
    "the last byte of a zip": Damage(ROCKS, ZIP, lambda c: c[:-1], "is truncated"),
    "a bit of a zip's local header": Damage(
        ROCKS, ZIP, lambda c: c[:6] + bytes((c[6] ^ 1,)) + c[7:], "encrypted", 0
    ),
    "a bit of the second file's header in a zip": Damage(
        ROCKS, ZIP, lambda c: flipped(c.index(b"PK\3\4", 1))(c), "lists . files, and 1 can be read"
    ),
    "a bit of a file's sizes in a zip": Damage(
        ROCKS, ZIP, lambda c: flipped(c.index(b"PK\7\10") + 12)(c), "not the .* it claims"
    ),
    "a bit of a checksum in a zip's directory": Damage(
        ROCKS,
        ZIP,
        lambda c: flipped(c.index(b"PK\1\2") + 16)(c),
        "damaged where Spark does not look",
        None,
        level="warn",
    ),
    "half a changelog": Damage(FORMAT2, CHANGELOG, half, "ends early"),
    "half an offset log": Damage(HDFS, "offsets/5", half, "is not JSON|names no source"),
    "half a schema": Damage(HDFS, SCHEMA, half, "ends early"),
    "half an operator's metadata": Damage(HDFS, TOLD, half, "is not JSON", level="warn"),
    "half a source's log": Damage("files", "sources/0/3", half, "is not JSON"),
    "an empty snapshot": Damage(HDFS, SNAPSHOT, lambda _: b"", "ends early", 0),
    "an empty commit": Damage(HDFS, "commits/5", lambda _: b"", "does not begin with a version", 0),
    # a number that claims too much
    "a key of 4 GiB": Damage(
        HDFS, SNAPSHOT, inside(lambda raw: FOUR_GIB + raw[4:]), "wrong end mark", 0
    ),
    "a key of 2 GiB": Damage(
        HDFS, SNAPSHOT, inside(lambda raw: b"\x7f\xff\xff\xff" + raw[4:]), "ends early"
    ),
    "an lz4 block of 2 GiB": Damage(
        HDFS, SNAPSHOT, lambda c: c[:13] + b"\xff\xff\xff\x7f" + c[17:], "claims", 13
    ),
    "an SST's block of 4 GiB": Damage(
        ROCKS,
        SST,
        lambda c: c[:-52] + b"\xff\xff\xff\xff\x0f" * 2 + c[-42:],
        "ends before its block",
    ),
    "2^31 - 1 chunks of a schema": Damage(
        HDFS, SCHEMA, lambda c: c[:4] + b"\x7f\xff\xff\xff" + c[8:], "a state schema"
    ),
    "a billion partitions": Damage(
        HDFS,
        "offsets/5",
        text('partitions":"3"', 'partitions":"999999999"'),
        "999999999' partitions",
        None,
    ),
    # a stale checksum
    "a stale checksum of Spark's": Damage(
        FORMAT2,
        CHANGELOG,
        text('"mainFileSize":', '"mainFileSize":1'),
        "does not match its checksum",
        None,
        beside=f"{CHANGELOG}.crc",
    ),
    # a zip that climbs out
    "a zip that climbs out": Damage(
        ROCKS, ZIP, zipped("../../../etc/cron.d/x", b"x"), "path that leaves its folder"
    ),
    "a zip with an absolute name": Damage(
        ROCKS, ZIP, zipped("/etc/passwd", b"x"), "path that leaves its folder"
    ),
    "an SST that climbs out": Damage(
        ROCKS, ZIP, rezipped(b'"dfsSstFileName":"', b'"dfsSstFileName":"../'), "plain name"
    ),
    "a write-ahead log with writes": Damage(
        ROCKS, ZIP, zipped("000099.log", b"x" * 30), "write-ahead log with writes"
    ),
    # a newer Spark
    "an offset log of a newer Spark": Damage(
        HDFS, "offsets/5", text("v1\n", "v3\n"), "format version v3", 0
    ),
    "a commit of a newer Spark": Damage(
        HDFS, "commits/5", text("v1\n", "v4\n"), "format version v4", 0
    ),
    "a source's log of a newer Spark": Damage(
        "files", "sources/0/3", text("v1\n", "v2\n"), "format version v2", 0
    ),
    "an operator of a newer Spark": Damage(
        HDFS, TOLD, text("v1\n", "v3\n"), "format version v3", level="warn"
    ),
    "a schema of a newer Spark": Damage(
        HDFS, SCHEMA, lambda c: c.replace(b"v2", b"v4", 1), "format version v4", 0
    ),
    "a changelog of a newer Spark": Damage(
        FORMAT2,
        CHANGELOG,
        inside(lambda raw: raw.replace(b"\0\2v4", b"\0\2v5", 1)),
        "changelog of version v5",
        0,
    ),
    "an SST of a newer RocksDB": Damage(
        ROCKS, SST, lambda c: c[:-12] + b"\x06" + c[-11:], "format version 6"
    ),
    "a snapshot of a newer Spark": Damage(
        ROCKS, ZIP, rezipped(b"v1\n", b"v7\n"), "format version v7"
    ),
    # state of somebody else's
    "state of a custom provider": Damage(
        HDFS,
        "offsets/5",
        text("streaming.state.HDFSBackedStateStoreProvider", "acme.FancyStateStoreProvider"),
        "FancyStateStoreProvider",
        None,
    ),
    "a schema of another operator": Damage(
        HDFS,
        "state/0/1/6.snapshot",
        lambda _: contents(NEWEST["join-hdfs"])["state/0/0/left-keyToNumValues/_metadata/schema"],
        "row of the key .* is damaged|is not looked for here",
        beside=SCHEMA,
    ),
    "a state file of another store": Damage(
        HDFS,
        SNAPSHOT,
        lambda _: contents(NEWEST["dedup-zstd"])["state/0/0/6.snapshot"],
        "row of the key .* is damaged",
    ),
    "a file of another kind": Damage(
        HDFS, SNAPSHOT, lambda _: b"PK\x05\x06" + bytes(18), "not compressed by any codec", 0
    ),
}


def outside(files: Files) -> Outside:
    made = Outside()
    for path, content in files.items():
        put(made.disk.open(SOURCE), path, content)
    return made


def damaged(damage: Damage) -> Outside:
    files = contents(NEWEST[damage.case])
    path = damage.beside or damage.path
    changed = damage.change(files[path])
    assert changed != files[path]
    return outside({**files, path: changed})


@pytest.mark.sample(24)
@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_told_with_file_and_place_and_a_way_out(what: str) -> None:
    damage = DAMAGES[what]
    there = damaged(damage)
    code = (
        5 if damage.level == "refuse" else 0
    )  # Spark starts without an operator's metadata, and writes it anew
    found = there.run("verify", SOURCE, "--deep", "--json")
    assert found.code == code, found
    told = [one for one in found.document["findings"] if one["level"] == damage.level]
    named = [
        one for one in told if one["path"] == damage.path and re.search(damage.fact, one["message"])
    ]
    assert named, told
    if damage.offset is not None:
        assert named[0]["offset"] is not None
        assert damage.offset in (-1, named[0]["offset"])
    shown = there.run("verify", SOURCE, "--deep")
    assert shown.code == code
    assert named[0]["message"] in shown.out
    assert "hint:" in shown.out or re.search(r"restart from +\d", shown.out), shown.out


@pytest.mark.parametrize(
    "what", ["a bit of a snapshot", "half an SST", "a bit of a changelog", "a zip that climbs out"]
)
def test_an_export_stops_at_damage_and_names_it(what: str) -> None:
    damage = DAMAGES[what]
    told = damaged(damage).run("export", SOURCE, "--to", "-")
    assert told.code == (4 if "zip" in what else 3)  # found in surveying, or in reading
    assert damage.path in told.err
    assert re.search(damage.fact, told.err)


@pytest.mark.parametrize("path", ["state/0/0/6.snapshot", "offsets/4", "commits/5", "metadata"])
def test_a_single_damaged_file_is_refused_when_it_is_inspected(path: str) -> None:
    files = contents(NEWEST[HDFS])
    told = outside({**files, path: half(files[path])}).run("inspect", f"{SOURCE}/{path}")
    assert told.code == 3
    assert f"{path}:" in told.err and "(at byte " in told.err


@pytest.mark.parametrize(
    ("case", "path"),
    [("dedup-zstd", "state/0/0/5.delta"), (ROCKS, SST), (ROCKS, ZIP), (HDFS, "offsets/4")],
)
def test_a_missing_file_is_named(case: str, path: str) -> None:
    files = contents(NEWEST[case])
    if path.endswith(".delta"):  # which the chain needs where no snapshot is behind it
        files = {p: c for p, c in files.items() if not p.endswith(".snapshot")}
    told = outside({p: c for p, c in files.items() if p != path}).run("verify", SOURCE, "--json")
    assert told.code == 5
    assert path in {finding["path"] for finding in told.document["findings"]}


def test_a_stale_checksum_of_hadoops_is_told_with_what_spark_makes_of_it() -> None:
    """It fails to read a zip, and takes a delta that is not what was written."""
    stale = encoders.encode_hadoop_crc(encoders.hadoop_checksums(b"as it was before"))
    hidden = {
        "state/0/0/.6.zip.crc": stale,
        f"{SST.rpartition('/')[0]}/.{SST.rpartition('/')[2]}.crc": stale,
    }
    for path, content in hidden.items():
        told = outside({**contents(NEWEST[ROCKS]), path: content}).run("verify", SOURCE, "--deep")
        assert told.code == 5
        assert "hint: if " in told.out
    told = outside({**contents(NEWEST[HDFS]), "state/0/0/.6.snapshot.crc": stale}).run(
        "verify", SOURCE, "--deep"
    )
    assert told.code == 5
    assert "refuse: state/0/0/6.snapshot does not match" in told.out
    assert "which Spark does not notice" in told.out


def test_a_snapshot_that_disagrees_with_its_deltas_is_told_with_the_other_state() -> None:
    files = contents(NEWEST["dedup-lzf"])
    path = "state/0/2/6.snapshot"
    records: list[StateRecord] = list(decode_delta([files[path]]))
    files[path] = b"".join(encode_delta(records[1:], "lzf"))
    told = outside(files).run("verify", SOURCE, "--deep", "--json")
    assert told.code == 0
    (warned,) = [one for one in told.document["findings"] if one["level"] != "note"]
    assert (warned["level"], warned["path"]) == ("warn", path)
    assert "1 entries differ" in warned["message"]
    assert warned["hint"]


def test_what_a_file_says_cannot_move_the_cursor() -> None:
    """Text from inside files is shown as text."""
    files = contents(NEWEST["files"])
    lines = files["sources/0/3"].split(b"\n")
    entry = json.loads(lines[1])
    lines[1] = json.dumps({**entry, "path": "file:///in/\x1b[2Jgone/f.json"}).encode()
    told = outside({**files, "sources/0/3": b"\n".join(lines)}).run("inspect", SOURCE)
    assert told.code == 0
    assert "\x1b" not in told.out and "\\x1b[2Jgone" in told.out


def test_a_4_gib_length_in_a_list_is_refused_when_it_is_shown_and_when_it_is_verified() -> None:
    files = contents(NEWEST["tws-ttl"])
    path = next(p for p in sorted(files) if p.endswith(".changelog") and p.startswith("state/0/"))
    raw = b"".join(decompress([files[path]]))
    assert raw[:4] == b"\0\2v2"
    size = struct.unpack_from(">i", raw, 5)[0]
    bad = raw[: 9 + size] + b"\x7f\xff\xff\xff" + raw[13 + size :]
    told = outside({**files, path: b"".join(compress([bad], "lz4"))}).run(
        "inspect", f"{SOURCE}/{path}"
    )
    assert told.code == 3 and "ends early" in told.err
