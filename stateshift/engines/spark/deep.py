"""Every file that a restart needs, read to its end: what a listing cannot tell. Reads only."""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark.entries import entries
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark import crc
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image


def findings(storage: Storage, survey: object, image: Image) -> Iterator[Finding]:
    """A refusal for every shard that does not decode, and for every checksum that its file does not match."""
    for shard in image.shards:
        try:
            for _ in entries(storage.chunks, shard, image.settings):
                pass
        except FormatError as error:
            path = error.path or shard.files[-1]
            yield Finding("refuse", f"{path} is damaged: {error.fact}", path=path, offset=error.offset)
        except MissingFile as error:
            yield Finding("refuse", f"{error.fact}: shard {shard.shard} of operator {shard.operator} needs it")
    for path in image.needed:
        if path.endswith(".crc"):
            yield from _checked(storage, path)


def _checked(storage: Storage, path: str) -> Iterator[Finding]:
    """Spark's own checksum beside a file (4.1 and later): a stale one makes an intact file unreadable."""
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
