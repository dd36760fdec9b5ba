"""The rules of sources: what the offset log is of, against what the code reads. Pure.

And that of the sink, of which no checkpoint tells anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stateshift.check.spark.pair import Pair
from stateshift.check.spark.query import Source
from stateshift.check.verdict import Difference
from stateshift.specification.transform import Change, Drop, Rename

DROPPED = "what is dropped stays behind; the rest of the state was made with it"


def sources(pair: Pair) -> Iterator[Difference]:
    """Yield sources that are not those of the offset log."""
    old, new = pair.stored.sources, pair.new.sources
    if len(old) != len(new):
        yield _other_number(old, new)
        return
    exchanged = _exchanged(old, new)
    if exchanged is not None:
        yield exchanged
        return
    for number, (theirs, mine) in enumerate(zip(old, new, strict=True)):
        yield from source_differences(f"source {number}", theirs, mine)


def sinks(pair: Pair) -> Iterator[Difference]:
    """Yield that the old code has another sink, or that a file sink is not the query's own.

    Spark keeps no trace of a sink in a checkpoint, and starts.
    """
    new = pair.new.sink
    if pair.is_behind:
        yield _foreign_log(f"it is {new.text}, which does not have the newest batch")
        return
    old = new if pair.before is None else pair.before.sink
    if (old.kind, old.topics, old.folders) == (new.kind, new.topics, new.folders):
        return
    message = f"it was {old.text}, and is {new.text}: what was written stays in the old one"
    if new.kind == "file":
        yield _foreign_log(message)
    else:
        yield Difference("note", "sink", "sink", message)


def _foreign_log(fact: str) -> Difference:
    message = f"{fact}. Spark starts, and fails when it compacts the log of that folder"
    hint = "keep the folder, or write to the new one with foreachBatch"
    return Difference("never", "sink", "sink", message, hint=hint)


def _other_number(old: Sequence[Source], new: Sequence[Source]) -> Difference:
    message = (
        f"the offset log is of {len(old)} sources, and the code has {len(new)}: "
        "Spark cannot continue"
    )
    was, now = (", ".join(source.text for source in each) for each in (old, new))
    kept = _kept_sources(old, new)
    if kept is None:
        hint = "keep the sources as they were, and give the new one a query of its own"
        return Difference("never", "sources", "query", message, was, now, hint=hint)
    gone = sorted(set(range(len(old))) - set(kept))
    dropped = tuple(map(str, gone))
    moved = {str(number): str(place) for place, number in enumerate(kept) if number != place}
    changes: list[Change] = [Drop(sources=dropped)]
    if moved:
        changes.append(Rename(sources=moved))
    return Difference(
        "starts-after", "sources", "query", message, was, now, tuple(changes), hint=DROPPED
    )


def _kept_sources(old: Sequence[Source], new: Sequence[Source]) -> list[int] | None:
    """Return the old sources' numbers that the new ones have, if each is told by what it reads."""
    kept = []
    for source in new:
        same = [number for number, each in enumerate(old) if each.reads_as(source)]
        if len(same) != 1 or same[0] in kept:
            return None
        kept.append(same[0])
    return kept


def _exchanged(old: Sequence[Source], new: Sequence[Source]) -> Difference | None:
    kept = _kept_sources(old, new)
    if kept is None or kept == sorted(kept):
        return None
    if not all(source.rested for source in old if source.places):
        return None  # Spark refuses files of another folder
    message = "sources are in another order: each continues from another one's offsets"
    was, now = (", ".join(source.text for source in each) for each in (old, new))
    return Difference(
        "starts-but", "source-order", "query", message, was, now, hint="write them in the old order"
    )


def source_differences(place: str, old: Source, new: Source) -> Iterator[Difference]:
    """Yield the differences of one source."""
    if not old.is_of_kind(new):
        message = f"the offset log is of {old.kind}, and the code reads {new.kind}"
        hint = "start the query with a new checkpoint, or keep the source"
        yield Difference("never", "source-kind", place, message, old.text, new.text, hint=hint)
    elif gone := old.unread_by(new):
        yield _lost(place, old, new, gone)
    elif old.places and new.places and not old.reads_as(new):
        yield _other_place(place, old, new)


def _lost(place: str, old: Source, new: Source, gone: Sequence[str]) -> Difference:
    """Return the difference of topics that are no longer read: for Kafka's source, lost data."""
    fact = f"the offset log has offsets of {', '.join(gone)}, which the code does not read"
    if not new.fails_on_loss:
        return Difference("starts-but", "source-topics", place, fact, old.text, new.text)
    message = f"{fact}: Spark fails with 'Some data may have been lost'"
    hint = (
        "failOnDataLoss false leaves their last records unread; where another topic takes the "
        "place of one, stateshift reposition --topic OLD=NEW"
    )
    return Difference(
        "starts-after", "source-topics", place, message, old.text, new.text, hint=hint
    )


def _other_place(place: str, old: Source, new: Source) -> Difference:
    """Return the difference of a file source that reads elsewhere.

    Spark lists the files of the newest batch once more, as files below the new folder
    (MicroBatchExecution.populateStartOffsets, PartitioningAwareFileIndex.basePaths). If the source
    had none in it, or has no folder but a pattern, there is nothing that does not fit.
    """
    was, now = old.text, new.text
    if old.rested or any("*" in path for path in new.places):
        message = f"the source was {was}: all files of {now} are new to it"
        return Difference("starts-but", "source-place", place, message, was, now)
    message = f"the source was {was}, and is {now}: Spark fails with 'Wrong basePath'"
    hint = "give the file the arguments that it has in production: after -- on the command line"
    return Difference("never", "source-place", place, message, was, now, hint=hint)
