"""The contents of a repaired checkpoint, and what was lost, told before it is written. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stateshift.engines.spark.findings.rewind import REPEATED, WAIVE, may_know
from stateshift.engines.spark.layout import METADATA, offset_path
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.survey.planned_image import SKIPPING
from stateshift.specification.transform import Import
from stateshift.survey import Finding

FILES_MAX = 5  # named in a message


def of_repair(move: Move) -> Iterator[Finding]:
    """Report the files that are left out, taken and rebuilt. Refuse a repair beside anything else,
    and a planned batch that is lost where a sink may have it.
    """
    repair = move.repair
    if repair is None:
        return
    refused = tuple(_not_alone(move))
    yield from refused
    if refused or isinstance(repair, Import):
        return
    (image,) = move.images
    if repair.leave:
        yield Finding("warn", f"left out, as damaged: {_named(repair.leave)}")
    for place in dict.fromkeys(repair.take.values()):
        paths = [path for path, location in repair.take.items() if location == place]
        yield Finding("warn", f"taken from {place}: {_named(paths)}")
    if repair.rebuild:
        told = _named(tuple(repair.rebuild))
        yield Finding("warn", f"rebuilt, as the next batch's offsets have it: {told}")
    if METADATA in repair.take:
        yield Finding(
            "warn",
            f"the query id is that of {repair.take[METADATA]}: if that is a fork, sinks take the "
            "job for another query",
            hint="the job's own log and its progress name its id",
        )
    following = (image.epoch or 0) + 1
    if offset_path(following) in repair.leave:
        fact = (
            f"batch {following} was planned, and its offsets are damaged: its input is planned "
            "again, in other batches maybe"
        )
        if may_know(move, image, following):
            fact = (
                f"{fact}. A sink that has batch {following} ({SKIPPING}) drops what gets its number"
            )
            yield Finding("refuse", fact, waive=REPEATED, hint=WAIVE)
        else:
            yield Finding("warn", fact)


def of_import(move: Move) -> Iterator[Finding]:
    """Note the place of the files that were made of rows."""
    if isinstance(move.repair, Import):
        for place in dict.fromkeys(move.repair.take.values()):
            yield Finding("note", f"files of state that were made of rows: {place}")


def _not_alone(move: Move) -> Iterator[Finding]:
    """Refuse a repair that is not of one checkpoint, to another place, and nothing else."""
    job, images = move.job, len(move.images)
    change = "an import" if isinstance(move.repair, Import) else "a repair"
    if len(job.transform) != 1:
        hint = f"{change} first, in a job of its own; then change the new image"
        yield Finding("refuse", f"{change} beside another change", hint=hint)
    if job.target is None:
        hint = 'say where the new image goes: "remote_location"'
        yield Finding("refuse", f"{change} in place", hint=hint)
    if job.mode not in ("move", "fork"):
        hint = 'stop the job, and do it with "mode": "move" or "fork"'
        yield Finding("refuse", f'{change} in rounds ("mode": "{job.mode}")', hint=hint)
    if images != 1:
        hint = "name the checkpoint of one query as the job's location: a job for each"
        yield Finding("refuse", f"{change} of {images} queries at once", hint=hint)


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - FILES_MAX} more" if len(paths) > FILES_MAX else ""
    return f"{', '.join(paths[:FILES_MAX])}{more}"
