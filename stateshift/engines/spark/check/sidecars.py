"""The files beside state files: checksums of both kinds, and tables that no version needs. Reads
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
from itertools import takewhile

from stateshift.engines.spark import layout
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import crc, rocksdb
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo, Finding, Image, Level, Survey

CHECKSUMS_MAX = 1 << 28
ZIP_MAX = 1 << 28


def findings(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """Compare every checksum of what the image needs with its file."""
    listed, known = {file.path for file in survey.files}, set(image.read_before)
    for path in image.needed:
        if path.endswith(".crc") and not {path, path.removesuffix(".crc")} <= known:
            yield from _spark(storage, path)
        if path in known:
            continue
        hidden = layout.hidden_checksum(path)
        if hidden in listed:
            yield from _hadoop(storage, path, hidden, layout.is_spare(layout.inside(image, path)))


def of_file(storage: Storage, path: str) -> Iterator[Finding]:
    """Yield the findings of the checksums beside one file, where there are any."""
    yield from _spark(storage, f"{path}.crc")
    yield from _hadoop(storage, path, layout.hidden_checksum(path), spare=False)


def orphans(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """Yield one note about all tables that no snapshot names: they take space, and nothing else."""
    start = layout.under(image.path, "state/")
    state = [file for file in survey.files if file.path.startswith(start)]
    zips = _by_folder(state, ".zip")
    unnamed: list[FileInfo] = []
    for folder, tables in _by_folder(state, ".sst").items():
        named: set[str] = set()
        try:
            for file in zips.get(folder.rpartition("/")[0], []):
                decoded = rocksdb.decode_zip(storage.read(file.path, ZIP_MAX))
                named.update(table.stored for table in decoded.tables)
        except (FormatError, MissingFile):
            continue  # it may name any of them
        unnamed += [table for table in tables if table.path.rpartition("/")[2] not in named]
    if unnamed:
        size = sum(file.size for file in unnamed)
        yield Finding(
            "note",
            f"{len(unnamed)} SST files of {size} bytes are named by no snapshot, "
            f"{unnamed[0].path} among them: an attempt left them that was never committed",
            path=unnamed[0].path,
        )


def _by_folder(files: Iterable[FileInfo], ending: str) -> dict[str, list[FileInfo]]:
    """Return the files with this ending by their folders; hidden ones are left out."""
    by_folder: dict[str, list[FileInfo]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        if name.endswith(ending) and not name.startswith("."):
            by_folder.setdefault(folder, []).append(file)
    return by_folder


def _spark(storage: Storage, path: str) -> Iterator[Finding]:
    about = path.removesuffix(".crc")
    try:
        recorded = crc.decode_spark_crc(storage.read(path, 1 << 16))
        computed = crc.spark_checksum(storage.chunks(about), 0)
    except FormatError as error:
        yield Finding("refuse", f"{path} is damaged: {error.fact}", path=path, offset=error.offset)
        return
    except MissingFile:
        return  # the file itself is missing: the survey has refused that
    if (recorded.value, recorded.size) != (computed.value, computed.size):
        fact = f"{about} does not match its checksum {path}: Spark refuses to read it"
        hint = f"if the file is intact otherwise, remove {path}: Spark reads it without"
        yield Finding("refuse", fact, hint=hint, path=about)


def _hadoop(storage: Storage, path: str, hidden: str, spare: bool) -> Iterator[Finding]:
    unreadable = path.endswith((".zip", ".sst"))
    try:
        checksums = crc.decode_hadoop_crc(storage.read(hidden, CHECKSUMS_MAX))
        offset = _first_difference(storage, path, checksums)
        if offset is None:
            return
        fact = f"{path} does not match Hadoop's checksums in {hidden}"
    except FormatError as error:
        offset = error.offset
        fact = f"{hidden} is damaged: {error.fact}"
    except MissingFile:
        return
    consequence = "it is not what was written, which Spark does not notice"
    if unreadable:
        consequence = "Spark cannot read the file"
    hint = f"if {path} is intact otherwise, remove {hidden}: nothing needs it"
    level: Level = "warn" if spare else "refuse"
    yield Finding(level, f"{fact}: {consequence}", hint=hint, path=path, offset=offset)


def _first_difference(storage: Storage, path: str, checksums: crc.HadoopChecksums) -> int | None:
    """Return the offset of the first chunk that does not have its checksum; None where all do."""
    position = number = 0
    size = checksums.bytes_per_chunk
    for chunks in _of_whole_chunks(storage.chunks(path), size):
        computed = crc.hadoop_checksums(chunks, size)
        recorded = checksums.values[number : number + len(computed)]
        if tuple(computed) != recorded:
            same = takewhile(lambda pair: pair[0] == pair[1], zip(computed, recorded, strict=False))
            return position + size * len(list(same))
        position += len(chunks)
        number += len(computed)
    return None if number == len(checksums.values) else position


def _of_whole_chunks(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of whole chunks; the last chunk may be shorter."""
    rest = b""
    for piece in pieces:
        piece = rest + piece
        whole = len(piece) - len(piece) % size
        if whole:
            yield piece[:whole]
        rest = piece[whole:]
    if rest:
        yield rest
