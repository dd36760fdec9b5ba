"""A rewind under new numbers: the state of batch K becomes that of batch L, a number that no batch
has passed. Pure.

    source                   target
    offsets/K-1, offsets/K   offsets/L-1, offsets/L
    offsets/K+1, if kept     offsets/L+1
    commits/K                commits/L
    state version K+1        state version L+1, rewritten: Spark looks for the whole chain by number
    sources/<i>/             the same: a source counts its own entries (FileStreamSource,
                             metadataLogCurrentOffset)
    _metadata, _stateSchema  the same: of the versions up to a batch the newest applies

A sink that knows batches by number has all of them up to L, and takes batch L+1 as one that it has
never seen. What it has of batches K+1 to L stays there until somebody takes it back: their input is
read again.

L is the highest number that a batch of the job was ever given, as far as the logs of the checkpoint
and of the sink say: a batch that was planned, and not committed, may have reached the sink.
"""

from __future__ import annotations

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.wishes import Wishes
from stateshift.survey import Image, SinkFacts


def number_after(wishes: Wishes, image: Image, sink: SinkFacts | None) -> int:
    """Return the number that the image's last batch has at the target."""
    epoch = image.epoch or 0
    if not wishes.renumber:
        return epoch
    given: list[int | None] = [epoch, image.planned, *(spark_image(image).newest or ())]
    if sink is not None:
        given.append(sink.last_batch(image.identity))
    return max(number for number in given if number is not None)


def log_path_after(path: str, shift: int) -> str:
    """Return the path of an offset log or a commit, inside the image, under its new number."""
    folder, _, name = path.rpartition("/")
    if folder == "offsets":
        return layout.offset_path(int(name) + shift)
    if folder == "commits":
        return layout.commit_path(int(name) + shift)
    return path
