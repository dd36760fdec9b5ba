"""What lies beside state files: checksums of both kinds, and tables that no version needs. Reads
only.

    x.crc   Spark's (4.1 and later): a stale one makes Spark refuse the file
            (ChecksumCheckpointFileManager)
    .x.crc  Hadoop's, on local disks: a stale one makes a zip or an SST unreadable, which Spark
            opens through FileSystem; logs, metadata and deltas it opens through FileContext, and
            does not notice. It is all that tells a log with another number in it, or the delta of
            another version, from what was written: a restart works from them, and gives wrong
            results
    SSTs/x  named by the zips beside; what none of them names was left by an attempt that never
            committed

Seen with Spark 3.5, 4.1 and 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from stateshift.engines.spark import layout
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import crc, rocksdb
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo, Finding, Image, Survey

CHECKSUMS_MAX = 1 << 28
ZIP_MAX = 1 << 28


def findings(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """Every checksum of what the image needs, held against its file."""
    there = {file.path for file in survey.files}
    start = len(image.path) + 1 if image.path else 0
    for path in image.needed:
        if path.endswith(".crc"):
            yield from _spark(storage, path)
        hidden = hidden_checksum(path)
        if hidden in there:
            yield from _hadoop(storage, path, hidden, layout.is_spare(path[start:]))


def orphans(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """One note about all tables that no snapshot names: they cost room, and nothing else."""
    start = f"{image.path}/state/" if image.path else "state/"
    tables: dict[str, list[FileInfo]] = {}
    zips: dict[str, list[str]] = {}
    for file in survey.files:
        folder, _, name = file.path.rpartition("/")
        if file.path.startswith(start) and name.endswith(".sst") and not name.startswith("."):
            tables.setdefault(folder.rpartition("/")[0], []).append(file)
        elif file.path.startswith(start) and name.endswith(".zip") and not name.startswith("."):
            zips.setdefault(folder, []).append(file.path)
    spare = list(
        chain.from_iterable(
            _unnamed(storage, found, zips.get(folder, [])) for folder, found in tables.items()
        )
    )
    if spare:
        size = sum(file.size for file in spare)
        yield Finding(
            "note",
            f"{len(spare)} SST files of {size} bytes are named by no snapshot, "
            f"{spare[0].path} among "
            "them: an attempt left them that was never committed",
            path=spare[0].path,
        )


def _unnamed(
    storage: Storage, tables: Iterable[FileInfo], zips: Iterable[str]
) -> Iterator[FileInfo]:
    named: set[str] = set()
    for path in zips:
        try:
            named |= {
                table.stored for table in rocksdb.decode_zip(storage.read(path, ZIP_MAX)).tables
            }
        except (FormatError, MissingFile):
            return  # which tables it names nobody can tell any more
    yield from (file for file in tables if file.path.rpartition("/")[2] not in named)


def hidden_checksum(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def _spark(storage: Storage, path: str) -> Iterator[Finding]:
    about = path.removesuffix(".crc")
    try:
        wanted = crc.decode_spark_crc(storage.read(path, 1 << 16))
        found = crc.spark_checksum(storage.chunks(about), 0)
    except FormatError as error:
        yield Finding("refuse", f"{path} is damaged: {error.fact}", path=path, offset=error.offset)
        return
    except MissingFile:
        return  # the file itself is missing: that was said already
    if (wanted.value, wanted.size) != (found.value, found.size):
        yield Finding(
            "refuse",
            f"{about} does not match its checksum {path}: Spark refuses to read it",
            hint=f"if the file is intact otherwise, remove {path}: Spark reads it without",
            path=about,
        )


def _hadoop(storage: Storage, path: str, hidden: str, spare: bool) -> Iterator[Finding]:
    unreadable = path.endswith((".zip", ".sst"))
    try:
        wanted = crc.decode_hadoop_crc(storage.read(hidden, CHECKSUMS_MAX))
        offset = _differs(storage, path, wanted)
        if offset is None:
            return
        fact = f"{path} does not match Hadoop's checksums in {hidden}"
    except FormatError as error:
        offset, fact = error.offset, f"{hidden} is damaged: {error.fact}"
    except MissingFile:
        return
    told = (
        "Spark cannot read the file"
        if unreadable
        else "it is not what was written, which Spark does not notice"
    )
    hint = f"if {path} is intact otherwise, remove {hidden}: nothing needs it"
    yield Finding(
        "warn" if spare else "refuse", f"{fact}: {told}", hint=hint, path=path, offset=offset
    )


def _differs(storage: Storage, path: str, wanted: crc.HadoopChecksums) -> int | None:
    """The offset of the first chunk that does not have its checksum; None where all do."""
    position = number = 0
    for chunk in _chunked(storage.chunks(path), wanted.bytes_per_chunk):
        if number >= len(wanted.values) or crc.crc32(chunk) != wanted.values[number]:
            return position
        position, number = position + len(chunk), number + 1
    return None if number == len(wanted.values) else position


def _chunked(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        piece = rest + piece
        whole = len(piece) - len(piece) % size
        yield from (piece[start : start + size] for start in range(0, whole, size))
        rest = piece[whole:]
    if rest:
        yield rest
