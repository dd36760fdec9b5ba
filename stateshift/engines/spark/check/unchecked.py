"""What of a checkpoint no checksum covers, said once, with how much of it: a letter that is another
there goes unseen, by Spark as by us. Pure.

    logs, metadata and schemas  text, or nearly
    state in zstd, snappy, lzf  lz4 frames, zips and SSTs have checksums of their own
    a state file's version      no state file says which version or shard it is of: keys tell the
                                shard
    a state file's store        nor of which store it is: columns of other types tell, as far as
                                they are others

Spark's `x.crc` (4.1 and later, some checkpoints) and Hadoop's `.x.crc` (local disks) cover a file
whole. `sidecars` compares both with it.

Source: Spark, CompressionCodec (ZStdCompressionCodec writes frames without content checksums,
SnappyOutputStream and LZFOutputStream have none; LZ4BlockOutputStream has one a block),
ChecksumCheckpointFileManager; Hadoop, ChecksumFileSystem.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from stateshift.engines.spark.check.sidecars import hidden_checksum
from stateshift.engines.spark.layout import under
from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.formats.spark.offset_conf import codec_in
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
    """Yield one note, where there is something to say."""
    codec = codec_in(image.settings)
    gaps = uncovered(survey, image, codec)
    facts = "; ".join(_facts(gaps, codec))
    if facts:
        yield Finding("note", facts)


def _facts(gaps: Uncovered, codec: str) -> Iterator[str]:
    amounts = []
    if gaps.text:
        amounts.append(f"{_amount(gaps.text)} of logs, metadata and schemas")
    if gaps.frames:
        amounts.append(f"{_amount(gaps.frames)} of state in {codec}")
    if amounts:
        yield f"{' and '.join(amounts)} have no checksum: a letter that changed would go unseen"
    if gaps.versions:
        verb = "is" if len(gaps.versions) == 1 else "are"
        yield f"no checksum says which version {_files(gaps.versions)} of state {verb}"
    if gaps.stores > 1:
        yield "nor of which store, where several have columns of the same types"


def uncovered(survey: Survey, image: Image, codec: str) -> Uncovered:
    """Return the files that a restart needs, without those that checksums cover."""
    text, frames, versions = [], [], []
    stores = set()
    for file, place in _without_checksum(survey, image):
        if place.area != "state":
            text.append(file)
        elif place.kind in FRAMED and codec != "lz4":
            frames.append(file)
        if place.kind in VERSIONED:
            versions.append(file)
            stores.add((place.operator, place.store))
    return Uncovered(tuple(text), tuple(frames), tuple(versions), len(stores))


def _without_checksum(survey: Survey, image: Image) -> Iterator[tuple[FileInfo, CheckpointPath]]:
    """Yield the files that a restart needs, and that no checksum covers, with what they are."""
    listed = {file.path: file for file in survey.files}
    needed = [listed[path] for path in image.needed if path in listed]
    start = len(under(image.path, ""))
    for file in needed:
        place = classify(file.path[start:])
        if place.area != "sidecar" and not _is_covered(file.path, listed):
            yield file, place


def _is_covered(path: str, listed: Container[str]) -> bool:
    return f"{path}.crc" in listed or hidden_checksum(path) in listed


def _amount(files: tuple[FileInfo, ...]) -> str:
    size = sum(file.size for file in files)
    return f"{size:,} bytes in {_files(files)}"


def _files(files: tuple[FileInfo, ...]) -> str:
    noun = "file" if len(files) == 1 else "files"
    return f"{len(files):,} {noun}"
