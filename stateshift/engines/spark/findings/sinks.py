"""The job's sink at the time of the move: its last batch, and the consequences. Pure.

    the planned batch      delivered already, or not: `findings.batches` says it
    a newer batch          the sink is ahead of the checkpoint: it drops what the job puts out in
                           these batches
    no batch, or an older  the sink lacks output that the checkpoint has committed: perhaps another
                           table is meant
    a fork                 has an id of its own: a sink that goes by ids knows none of its batches

Only the spec names the sink, and only the sink's own log tells its batches (`SinkFacts`).
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark.findings.rewind import OTHER_FUNCTION, WITH_ITS_LOG
from stateshift.engines.spark.image import name_of, spark_image
from stateshift.engines.spark.layout import number_of_log
from stateshift.engines.spark.places import is_sink_log
from stateshift.engines.spark.rewrite.move import BY_NUMBER, Move
from stateshift.specification import JobSpec
from stateshift.survey import Finding, Image, SinkFacts

AHEAD = "sink-ahead"

_OTHER_OUTPUT = (
    "move the output that belongs to this checkpoint, or let the job write to a place of its own"
)


def of_sink(move: Move) -> Iterator[Finding]:
    """Compare the sink's batches with those of the checkpoint."""
    sink, images = move.facts.sink, move.images
    if not images:
        return
    if sink is None:
        yield Finding(
            "note",
            "exactly-once output needs an idempotent sink; name a file sink's output "
            "directory in `data`",
            hint='name the sink, and its log is read: "sink": {"kind": "delta", "location": "…"}',
        )
        return
    if sink.wrong is not None:
        fact = f"what {_named(sink)} has of the job is not known: {sink.wrong}"
        yield Finding("warn", fact, hint=sink.hint or "correct the location in `sink`")
        return
    if not sink.read:
        yield _of_unread(move.job, sink)
        return
    for image in images:
        if image.epoch is None or image.identity is None:
            continue
        name = name_of(image, "the job")
        is_rewound = move.change.renumber or spark_image(image).newest is not None
        if move.job.mode == "fork":
            yield _of_fork(sink, image)
        elif move.may_run:
            yield Finding("note", f"{_named(sink)} has {_batches(sink, image)} of {name} so far")
        elif not is_rewound:  # a rewind goes back on purpose, and says so itself
            yield from _of_image(sink, image, image.epoch, name)


def _of_unread(job: JobSpec, sink: SinkFacts) -> Finding:
    if sink.knows_batches is None:
        return Finding(
            "note",
            "only the author of the foreach-batch function knows whether it drops a batch "
            "that arrives twice",
            hint='say it: "idempotent_by_batch": true or false; or name the Delta table and its '
            '"transaction_id"',
        )
    if sink.knows_batches and job.mode == "fork" and sink.kind in BY_NUMBER:
        return Finding(
            "warn",
            f"{_named(sink)} drops a batch that it is given twice: a fork that it serves, too, is "
            "not given the output of batches whose numbers the job has had",
            hint=OTHER_FUNCTION,
        )
    if sink.knows_batches:
        return Finding("note", f"{_named(sink)} drops a batch that it is given twice")
    return Finding(
        "note", f"{_named(sink)} is at least once: a batch that runs twice is there twice"
    )


def _of_fork(sink: SinkFacts, image: Image) -> Finding:
    have = f"{_named(sink)} has {_batches(sink, image)}"
    if "" not in sink.logs:
        return Finding(
            "note",
            f"{have}; the fork has an id of its own: where it writes to the same table, "
            "every batch of its own is written there as well",
        )
    return Finding(
        "warn",
        f"{have}, and goes by their numbers alone: a fork that writes there, too, is not given the "
        "output of batches with these numbers",
        hint=f"let the fork write to a place of its own; {WITH_ITS_LOG}"
        if sink.kind == "file"
        else OTHER_FUNCTION,
    )


def _batches(sink: SinkFacts, image: Image) -> str:
    last = sink.last_batch(image.identity)
    return "no batch" if last is None else f"the batches up to {last}{_version(sink, image, last)}"


def _of_image(sink: SinkFacts, image: Image, epoch: int, name: str) -> Iterator[Finding]:
    last = sink.last_batch(image.identity)
    planned = epoch if image.planned is None else max(image.planned, epoch)
    if last is None:
        yield Finding(
            "warn",
            f"{_named(sink)} has no batch of {name} (query {image.identity}), which has committed "
            f"batch {epoch}: it is another table, or its log has been tidied",
            hint="correct the location in `sink`",
        )
    elif last > planned:
        restore = sink.version_to_restore(image.identity, planned)
        fact = (
            f"{_named(sink)} has the batches of {name} up to {last}, and the checkpoint has "
            f"planned none after {planned}: what the job puts out in batches {planned + 1} to "
            f"{last} is dropped"
        )
        if sink.skips_plan:
            fact += ", their state is not written, and the job fails at the batch behind them"
        to = f"; restore the table to version {restore} then" if restore is not None else ""
        way = (
            f'"mode": "fork" gives the copy an id of its own{to}; or move the checkpoint that '
            "belongs to the sink"
        )
        if "" in sink.logs:
            way = _OTHER_OUTPUT
        yield Finding("refuse", fact, waive=AHEAD, hint=f'{way}; or "waive": ["{AHEAD}"]')
    elif last < epoch:
        by_function = sink.kind == "foreach-batch"
        unless = ", unless the function wrote nothing for them" if by_function else ""
        yield Finding(
            "warn",
            f"{_named(sink)} has the batches of {name} up to {last}{_version(sink, image, last)}, "
            f"and the checkpoint has committed batch {epoch}: the output of batches "
            f"{last + 1} to {epoch} is not there{unless}",
            hint="restore the sink, or rewind the job to that batch in a fork",
        )
    else:
        fact = f"{_named(sink)} has the batches of {name} up to {last}{_version(sink, image, last)}"
        yield Finding("note", fact)


def _version(sink: SinkFacts, image: Image, batch: int) -> str:
    log = sink.log_of(image.identity)
    version = log.versions.get(batch) if log is not None else None
    if version is None:
        return ""
    word = "snapshot" if sink.kind == "iceberg" else "version"
    return f" ({word} {version})"


def _named(sink: SinkFacts) -> str:
    words = {
        "delta": "the Delta table",
        "iceberg": "the Iceberg table",
        "file": "the file sink",
        "foreach-batch": "the foreach-batch function",
        "kafka": "the Kafka sink",
    }
    return words[sink.kind] if sink.location is None else f"{words[sink.kind]} {sink.location}"


def of_moved_output(move: Move) -> Iterator[Finding]:
    """Warn of a file sink's output that moves along and holds more than the checkpoint."""
    images, facts = move.images, move.facts
    if len(images) != 1 or images[0].epoch is None or facts.merges:
        return  # nothing tells whose output it is
    last = max(images[0].epoch, images[0].planned or 0)
    for data, (here, there) in zip(move.job.data, facts.data, strict=True):
        survey = here if data.copy else there
        logs = [file.path for file in survey.files if is_sink_log(file.path)]
        newest = max(map(number_of_log, logs), default=-1)
        if newest > last:
            yield Finding(
                "warn",
                f"{survey.location} holds the output of batches up to {newest}, and the "
                f"checkpoint has planned none after {last}: a file sink drops what the job puts "
                f"out in batches {last + 1} to {newest}, for it has them already",
                hint=_OTHER_OUTPUT,
            )
