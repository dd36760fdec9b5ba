"""The consequences for a sink of a job that goes back to an earlier batch. Pure.

rewound     the batches since get their numbers again, from the second on over other input: a
            sink that knows batches by number drops them, and then fails
renumbered  the batches since get numbers that nobody has had (`rewrite.move`)
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import SINK_LOG, under
from stateshift.engines.spark.rewrite.move import BY_NUMBER, Move
from stateshift.engines.spark.survey.planned_image import SKIPPING
from stateshift.survey import Facts, Finding, Image

REPEATED = "repeated-batches"

_FOR_ALL = " (for all of its writers: what others have written since is taken back, too)"
# CompactibleFileStreamLog.compact reads every entry since the last compaction; where one is
# missing, the job fails at batch 9, 19, ... (seen with 4.3.0).
WITH_ITS_LOG = "a file sink needs its log there, too: name both folders in `data`"
OTHER_FUNCTION = "let the fork write to a table of its own, or under another application id"
IN_A_FORK = 'rewind in a fork instead: leave `renumber` out, and say `--fork` ("mode": "fork")'
_NEW_NUMBERS = '`--renumber`; "renumber": true'
WAIVE = (
    'name the sink ("sink"); where it takes a batch number again, waive it: "waive": '
    f'["{REPEATED}"]'
)


def may_know(move: Move, image: Image, batch: int) -> bool:
    """Whether the sink may hold a batch of this number that counts as the job's own."""
    job, sink = move.job, move.facts.sink
    if sink is None:
        return job.moves
    if sink.knows_batches is False or sink.has_batch(image.identity, batch) is False:
        return False
    return job.moves or sink.kind in BY_NUMBER


def of_renumbering(move: Move) -> Iterator[Finding]:
    """Refuse everything that keeps a rewind from getting new numbers."""
    if not move.change.renumber:
        return
    if move.facts.source.kind == "workflow":
        yield Finding(
            "refuse",
            f"{move.source} is a workflow: a batch of one of its queries is none "
            "of the others, and each has numbers of its own",
            hint="rewind the queries one by one, each as a job of its own",
        )
        return
    if move.change.merge:
        fact = "a rewind under new numbers beside a merge: the merged job has numbers of its own"
        yield Finding("refuse", fact, hint="one after the other: two jobs")
    for image, name in move.named_images:
        if image.epoch == 0:
            yield Finding(
                "refuse",
                f"{name}: batch 0 has none before it, and Spark reads the offsets of the batch "
                "before the last one, under whatever number",
                hint=f"{IN_A_FORK}; or start the job without a checkpoint",
            )
        for index in sorted(_unknown_logs(move.facts, image)):
            yield Finding(
                "refuse",
                f"{name}: source {index} is none that stateshift knows, and keeps files below "
                f"sources/{index}: they may be numbered by batch",
                hint=IN_A_FORK,
            )


def _unknown_logs(facts: Facts, image: Image) -> set[str]:
    unknown = set()
    for end in image.endpoints:
        if end.role == "source" and end.kind == "unknown":
            unknown.add(end.index)
    folder = under(image.path, "sources/")
    with_logs = set()
    for file in facts.source.files:
        if file.path.startswith(folder):
            with_logs.add(file.path.removeprefix(folder).partition("/")[0])
    return unknown & with_logs


def of_rewind(move: Move, image: Image, name: str) -> Iterator[Finding]:
    """Report the consequences for the sink of a job that goes back to an earlier batch."""
    if image.epoch is None:
        return
    if move.change.renumber:
        yield from _of_new_numbers(move, image, name)
        return
    newest = spark_image(image).newest
    if newest is None:
        return
    back = _back(move, image, newest.committed, name)
    if may_know(move, image, image.epoch + 1):
        yield Finding(
            "refuse",
            f"{back}. {_losing(move)}",
            waive=REPEATED,
            hint=f"{way_out(move, image)}; {WAIVE}",
        )
        return
    if _has_none_since(move, image):
        fact, hint = "The sink has none of them", "nothing has to be cleared"
    else:
        fact = (
            "The fork is another query, whose output Delta and Iceberg take beside what they "
            "have of these batches"
        )
        if move.job.moves:
            fact = "The sink is given their output again"
        hint = f"{_restoring(move, image)}, or let the job write to another place; {WITH_ITS_LOG}"
    yield Finding("warn", f"{back}. {fact}", hint=hint)


def _back(move: Move, image: Image, newest: int, name: str) -> str:
    epoch = image.epoch or 0
    first = epoch + 1
    batches = f"batch {first}"
    if first < newest:
        batches = f"{batches} to {newest}"
    how = "in batches that are planned again"
    if move.kept_batch(image) is not None:
        how = f"first that of batch {first} as it was planned"
    backlog = spark_image(image).backlog
    if backlog:
        amounts = [f"{each.amount:,} {each.unit} of source {each.source}" for each in backlog]
        limits = sorted({each.bounded_by for each in backlog})
        how += (
            f": {' and '.join(amounts)}, and what came since. What is planned again comes in one "
            f"batch, unless the source has {' or '.join(limits)}"
        )
    return (
        f"{name} goes back from batch {newest} to batch {epoch}; the input of {batches} is read "
        f"again, {how}"
    )


def _of_new_numbers(move: Move, image: Image, name: str) -> Iterator[Finding]:
    """Report the last batch's other number. A planned batch may have reached the sink, too."""
    epoch, number = image.epoch or 0, move.number_after(image)
    if number == epoch:
        return
    fact = (
        f"{_back(move, image, number, name)}. Batch {epoch} gets the number {number}, so that the "
        f"next is batch {number + 1}, which no sink has had"
    )
    if _has_none_since(move, image):
        message = f"{fact}. The sink has none of the batches since"
        yield Finding("warn", message, hint="nothing has to be cleared")
    else:
        yield Finding(
            "warn",
            f"{fact}. What the sink has of the batches since stays there, and is given to it again",
            hint=f"before the job starts there: {_restoring(move, image)}",
        )


def _has_none_since(move: Move, image: Image) -> bool:
    """Whether the sink is known to have nothing after the batch that the job goes back to."""
    first, sink = (image.epoch or 0) + 1, move.facts.sink
    return sink is not None and sink.has_batch(image.identity, first) is False


def _losing(move: Move) -> str:
    sink = move.facts.sink
    if sink is not None and not move.job.moves:
        who = f"{BY_NUMBER[sink.kind]} knows batches by number, whichever query wrote them, and"
    elif sink is None:
        who = f"A sink that knows batches by number ({SKIPPING}; Iceberg)"
    else:
        who = f"The sink ({sink.kind})"
    return (
        f"{who} drops every batch under a number that it has, also the ones with new input, and "
        "the job fails at the first number that it has not: the state before that was never written"
    )


def way_out(move: Move, image: Image) -> str:
    """Return the way to an earlier batch that loses nothing."""
    restoring = _restoring(move, image)
    if move.facts.sink is not None and move.facts.sink.kind == "foreach-batch":
        way = f"rewind under new numbers ({_NEW_NUMBERS}), and {restoring}"
        return way if move.job.moves else f"{OTHER_FUNCTION}; or {way}"
    if not move.job.moves:
        return f"let the fork write to a folder of its own; {WITH_ITS_LOG}; then {restoring}"
    if move.repair is not None:
        return f'give the new image an id of its own (`--fork`; "mode": "fork"), and {restoring}'
    return (
        f'rewind in a fork (`--fork`; "mode": "fork"), or under new numbers ({_NEW_NUMBERS}), and '
        f"{restoring}"
    )


def _restoring(move: Move, image: Image) -> str:
    sink, query, epoch = move.facts.sink, image.identity, image.epoch or 0
    last = sink.last_batch(query) if sink is not None else None
    if sink is not None and sink.kind == "file" and last is not None:
        log = f"{sink.location}/{SINK_LOG}"
        # An entry that is gone, Spark misses at its next compaction.
        first = epoch + 1
        entries = f"entry {first}" if first >= last else f"each of the entries {first} to {last}"
        return (
            f"leave of {entries} of {quote(log)} its first line alone (of a .compact also the "
            f"files of batches up to {epoch}), and remove the hidden .crc beside it"
        )
    version = sink.version_to_restore(query, epoch) if sink is not None else None
    if sink is None or version is None:
        return (
            "clear from the sink what these batches put out (Delta: RESTORE to the version of "
            f"batch {epoch})"
        )
    if sink.kind == "iceberg":
        return (
            f"roll the table {quote(sink.location or '')} back to snapshot {version}, which "
            f"ends with batch {epoch}{_FOR_ALL}"
        )
    return (
        f"RESTORE TABLE delta.`{sink.location}` TO VERSION AS OF {version}, which ends with "
        f"batch {epoch}{_FOR_ALL}"
    )
