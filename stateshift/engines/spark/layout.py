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

METADATA = "metadata"
SINK_LOG = "_spark_metadata"
ENGINE = "spark"


def under(prefix: str, path: str) -> str:
    """`path` inside an image that lies at `prefix` below its location."""
    return f"{prefix}/{path}" if prefix else path


def offset_path(batch: int) -> str:
    return f"offsets/{batch}"


def commit_path(batch: int) -> str:
    return f"commits/{batch}"


def fence_paths(epoch: int, planned: int | None) -> tuple[str, ...]:
    """The files a zombie would have to create to plan and to commit its next batch. A batch it had planned already
    keeps its offsets: the target reads them."""
    following = epoch + 1
    taken = () if planned is not None and planned >= following else (offset_path(following),)
    return (*taken, commit_path(following))


def first_read(epoch: int, planned: int | None = None) -> tuple[str, ...]:
    """The files Spark looks for first, in the order they are published. The commit is last: offsets without their
    commit are a batch to be run again, a commit without its offsets is corruption."""
    offsets = tuple(offset_path(b) for b in (epoch - 1, epoch) if b >= 0)
    further = (offset_path(planned),) if planned is not None and planned > epoch else ()
    return (METADATA, *offsets, *further, commit_path(epoch))
