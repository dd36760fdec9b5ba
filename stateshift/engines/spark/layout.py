"""How Spark lays out a checkpoint: the names, and which of them a restart reads. Pure.

    metadata                     read first: the query's id
    offsets/N-1, offsets/N       what the last two batches were to read
    commits/N                    the last batch that finished
    sources/<i>/…                each source's own log
    state/<operator>/<partition>/[<store>/]…

State for batch N has version N+1. Spark reads the offsets of the batch before the last one too
(MicroBatchExecution.populateStartOffsets: `batch N-1 doesn't exist`), so two of them are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from shlex import quote

from stateshift.engines.spark.image import spark_image
from stateshift.formats.marks import FOLDER
from stateshift.formats.spark.names import classify, described_file
from stateshift.survey import Image

METADATA = "metadata"
# The names directly below a checkpoint that are the engine's, or ours.
OWN = frozenset((METADATA, "offsets", "commits", "state", "sources", FOLDER))
SINK_LOG = "_spark_metadata"
ENGINE = "spark"

# The providers of state stores whose files we know.
HDFS, ROCKSDB = "hdfs-backed", "rocksdb"
FRAME = b"\0"  # RocksDB's version of the encoding, before every row


def under(prefix: str, path: str) -> str:
    """`path` inside an image that lies at `prefix` below its location."""
    return f"{prefix}/{path}" if prefix else path


def inside(image: Image, path: str) -> str:
    """Return a path of an image below its location as the image has it."""
    return path[len(image.path) + 1 :] if image.path else path


def deepest_above(places: Iterable[str]) -> str:
    """Return the deepest place that is, or is above, all these locations."""
    levels = zip(*(place.split("/") for place in places), strict=False)
    same = takewhile(lambda names: len(set(names)) == 1, levels)
    above = "/".join(names[0] for names in same)
    return above + "/" if above.endswith("//") else above


def hidden_checksum(path: str) -> str:
    """Return the path of Hadoop's checksums of a file."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def is_spare(path: str) -> bool:
    """Whether this is operator metadata v1: a query starts without it, or with a damaged one."""
    return path.startswith("state/") and path.endswith("/_metadata/metadata")


def is_strange(path: str) -> bool:
    """Whether this is no file of the engine or its connectors, nor Hadoop's checksum of one."""
    if path.split("/", 1)[0] in OWN:
        return False
    area = classify(path).area
    if area != "sidecar":
        return area == "other"
    about = described_file(path)
    is_hadoops = path.rpartition("/")[2].startswith(".")
    return not is_hadoops and about is not None and is_strange(about)


def number_of_log(path: str) -> int:
    """Return the batch of a log named <n> or <n>.compact; -1 where it has none."""
    stem = path.rpartition("/")[2].removesuffix(".compact")
    is_number = stem.isascii() and stem.isdecimal() and len(stem) <= 19
    return int(stem) if is_number else -1


def offset_path(batch: int) -> str:
    """Return the path of a batch's offset log, below its checkpoint."""
    return f"offsets/{batch}"


def commit_path(batch: int) -> str:
    """Return the path of a batch's commit, below its checkpoint."""
    return f"commits/{batch}"


def is_commit(path: str) -> bool:
    """Whether this is a commit of a query, or of one of a workflow's."""
    return _is_log(path, "commits")


def is_offset(path: str) -> bool:
    """Whether these are the offsets of a batch of a query, or of one of a workflow's."""
    return _is_log(path, "offsets")


def _is_log(path: str, folder: str) -> bool:
    directory, _, name = path.rpartition("/")
    return directory.rpartition("/")[2] == folder and name.isdecimal()


def newest_files(files: Sequence[str], ending: str) -> Sequence[str]:
    """Return the files from the last one with this ending on; all where none has it."""
    last = max((at for at, path in enumerate(files) if path.endswith(ending)), default=0)
    return files[last:]


def has_tables(files: Iterable[str]) -> bool:
    """Whether a shard lies in RocksDB's tables, by the names of its files."""
    return {path.rpartition(".")[2] for path in files} >= {"zip", "sst"}


def rollback_of(run: str) -> str:
    """Return the command that takes a run's fence away again."""
    return f"stateshift rollback {quote(run)}   # or its workdir, if it was begun elsewhere"


def fence_paths(epoch: int, planned: int | None) -> tuple[str, ...]:
    """Return the files a zombie would have to create to plan and to commit its next batch. A batch
    it had planned already keeps its offsets: the target reads them. If it had planned several, it
    commits the last of them.
    """
    following = epoch + 1
    if planned is None or planned < following:
        return (offset_path(following), commit_path(following))
    if planned == following:
        return (commit_path(following),)
    return (commit_path(following), commit_path(planned))


def has_commits(image: Image) -> bool:
    """Whether the query has a commit log with something in it. Spark before 2.2 wrote none."""
    return spark_image(image).commits != 0


def first_read(epoch: int, planned: int | None = None) -> tuple[str, ...]:
    """Return the files Spark looks for first, the commit last: it must not precede its offsets."""
    batches = [epoch - 1, epoch] if epoch > 0 else [epoch]
    if planned is not None and planned > epoch:
        batches.append(planned)
    return (METADATA, *map(offset_path, batches), commit_path(epoch))
