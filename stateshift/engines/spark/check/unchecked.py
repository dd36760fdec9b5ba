"""What of a checkpoint no checksum covers, said once, with how much of it: a letter that is another
there goes unseen, by Spark as by us. Pure.

    logs, metadata and schemas  text, or nearly
    state in zstd, snappy, lzf  lz4 frames, zips and SSTs have checksums of their own
    a state file's version      no state file says which version or shard it is of: keys tell the
                                shard
    a state file's store        nor of which store it is: columns of other types tell, as far as
                                they are others

Spark's `x.crc` (4.1 and later, some checkpoints) and Hadoop's `.x.crc` (local disks) cover a file
whole. Both are held against it by `sidecars`.

Source: Spark, CompressionCodec (ZStdCompressionCodec writes frames without content checksums,
SnappyOutputStream and LZFOutputStream have none; LZ4BlockOutputStream has one a block),
ChecksumCheckpointFileManager; Hadoop, ChecksumFileSystem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stateshift.engines.spark.check.sidecars import hidden_checksum
from stateshift.engines.spark.entries.settings import CODEC
from stateshift.formats.spark.names import classify
from stateshift.survey import FileInfo, Finding, Image, Survey

FRAMED = ("delta", "snapshot", "changelog")
VERSIONED = (*FRAMED, "zip")


@dataclass(frozen=True)
class Uncovered:
    """The files of an image that no checksum covers whole, by what could be wrong about them
    unseen.
    """

    text: tuple[FileInfo, ...]
    frames: tuple[FileInfo, ...]
    versions: tuple[FileInfo, ...]
    stores: int  # how many the files of `versions` belong to


def findings(survey: Survey, image: Image) -> Iterator[Finding]:
    """One note, where there is something to say."""
    codec = image.settings.get(CODEC, "lz4")
    found = uncovered(survey, image, codec)
    parts = []
    if found.text:
        parts.append(f"{_amount(found.text)} of logs, metadata and schemas")
    if found.frames:
        parts.append(f"{_amount(found.frames)} of state in {codec}")
    told = []
    if parts:
        told.append(
            f"{' and '.join(parts)} have no checksum: a letter that changed would go unseen"
        )
    if found.versions:
        told.append(
            f"no checksum says which version {_files(found.versions)} of state {_is(found)}"
        )
    if found.stores > 1:
        told.append("nor of which store, where several have columns of the same types")
    if told:
        yield Finding("note", "; ".join(told))


def _is(found: Uncovered) -> str:
    return "is" if len(found.versions) == 1 else "are"


def uncovered(survey: Survey, image: Image, codec: str) -> Uncovered:
    """What a restart needs, without what checksums cover."""
    sizes = {file.path: file for file in survey.files}
    start = len(image.path) + 1 if image.path else 0
    text, frames, versions = [], [], []
    stores = set()
    for path in image.needed:
        place = classify(path[start:])
        file = sizes.get(path)
        if file is None or place.area == "sidecar" or _is_covered(path, sizes):
            continue
        if place.area != "state":
            text.append(file)
        elif place.kind in FRAMED and codec != "lz4":
            frames.append(file)
        if place.kind in VERSIONED:
            versions.append(file)
            stores.add((place.operator, place.store))
    return Uncovered(tuple(text), tuple(frames), tuple(versions), len(stores))


def _is_covered(path: str, there: dict[str, FileInfo]) -> bool:
    return f"{path}.crc" in there or hidden_checksum(path) in there


def _amount(files: tuple[FileInfo, ...]) -> str:
    size = sum(file.size for file in files)
    return f"{size:,} bytes in {_files(files)}"


def _files(files: tuple[FileInfo, ...]) -> str:
    return f"{len(files):,} {'file' if len(files) == 1 else 'files'}"
