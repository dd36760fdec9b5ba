"""The state of a planned batch as an image of its own, so that it is read to its end, and changed,
like that of the epoch. Pure.

shard at the epoch  1.snapshot  2.delta  3.delta
after the batch     1.snapshot  2.delta  3.delta  4.delta  or its own 4.zip with the tables it names
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stateshift.engines.spark.layout import under
from stateshift.engines.spark.survey.restart.query_files import StoreKey, store_key
from stateshift.formats.spark.names import classify
from stateshift.survey import Image, ShardFiles, Survey

SKIPPING = "Delta, a file sink, or a foreachBatch with txnVersion"
NAME_THE_SINK = 'name the sink, and the plan says which: "sink": {"kind": "delta", "location": "…"}'


def after_planned(image: Image) -> Image | None:
    """Return the image with its state as the planned batch has left it; None where there is
    none.
    """
    if image.planned_state is None or not image.planned_state.files:
        return None
    written: dict[StoreKey, list[str]] = {}
    for path in image.planned_state.files:
        if not path.endswith(".crc"):
            store = store_key(classify(path[len(under(image.path, "")) :]))
            written.setdefault(store, []).append(path)
    shards = tuple(_after(shard, written) for shard in image.shards)
    return replace(
        image,
        epoch=image.planned,
        shards=shards,
        needed=image.needed_files,
        planned_state=None,
    )


def _after(shard: ShardFiles, written: dict[StoreKey, list[str]]) -> ShardFiles:
    """Return the shard with the files that the batch has written: behind its own, or in their place
    where they begin with a snapshot.
    """
    files = written.get((shard.operator, shard.shard, shard.store), [])
    snapshots = [path for path in files if path.endswith((".zip", ".snapshot"))]
    if not snapshots:
        return replace(shard, files=(*shard.files, *files))
    others = [path for path in files if path not in snapshots]
    return replace(shard, files=(*snapshots, *others))


def planned_files(image: Image) -> Iterator[str]:
    """Yield the state files of a batch that was planned and not committed."""
    if image.planned_state is not None:
        yield from image.planned_state.files


def lacks_state(image: Image) -> bool:
    """Whether a batch was planned, and its state is not whole or cannot be read, so that a job
    cannot go on behind that batch unless it runs again.
    """
    if not image.operators or image.epoch is None or image.planned != image.epoch + 1:
        return False
    return image.planned_state is None or image.planned_state.wrong is not None


def is_begun(survey: Survey, image: Image) -> bool:
    """Whether the planned batch has left any state, whole or not."""
    start = len(under(image.path, ""))
    for file in survey.files:
        if file.path.startswith(under(image.path, "state/")):
            place = classify(file.path[start:])
            if place.area == "state" and place.version == (image.planned or 0) + 1:
                return True
    return False


def planned_fate(image: Image) -> str:
    """Return what a job makes of the planned batch's state, where nobody knows its sink."""
    return (
        f"batch {image.planned} wrote it, which was planned and not committed: a sink that has the "
        f"batch ({SKIPPING}) skips it, and the job fails behind it, or goes on from wrong state; "
        "any other takes it again, and Spark writes this state anew"
    )
