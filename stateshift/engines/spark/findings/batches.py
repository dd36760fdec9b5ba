"""The consequences for a sink of batches that are run a second time, or of other batches under
their numbers (W-1). Pure.

    kept       a batch that was planned and not committed runs again over the same input. A sink
               that has it skips it, and the state that the batch wrote must be at the target
    dropped    the next batch gets its number and other input. A sink that has the number loses that
               input
    rewound    (`rewind`) the batches since get their numbers again, from the second on over other
               input. The same happens
    renumbered the batches since get numbers that nobody has had. No sink knows them

A fork is another query. Delta and Iceberg tell its batches apart by the query's id. A file sink
does not, and neither does a foreachBatch that goes by numbers: the fork runs the same function.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark import layout
from stateshift.engines.spark.findings.rewind import REPEATED, WAIVE, may_know, way_out
from stateshift.engines.spark.image import name_of, spark_image
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.survey.planned_image import NAME_THE_SINK, SKIPPING, lacks_state
from stateshift.specification import JobSpec
from stateshift.survey import Finding, Image, Level

_COMMIT_FIRST = (
    "start the job once where it is, until it has committed batch {batch}, then plan again"
)


def of_batches(move: Move) -> Iterator[Finding]:
    """Report batches that were planned and not committed."""
    images: list[tuple[Image, str]] = []
    for survey in (move.facts.source, *move.facts.merges):
        images += [(image, name_of(image, survey.location)) for image in survey.images]
    for image, name in images:
        if image.epoch is not None and not layout.has_commits(image):
            yield from _without_commits(move.job, image, name)
    if move.runs:
        return  # a running job has always planned its next batch
    if move.change.renumber:
        return  # the batch gets a number that no sink has
    for image, name in images:
        is_rewound = spark_image(image).newest is not None  # which `of_rewind` reports
        if not is_rewound and image.epoch is not None and image.planned is not None:
            yield from _of_planned(move, image, name, image.planned - image.epoch)


def _of_planned(move: Move, image: Image, name: str, planned: int) -> Iterator[Finding]:
    """Report batches that were planned and not committed, as many as are `planned`."""
    if planned < 1:
        return
    if planned > 1:
        yield _several(move, image, name)
    elif move.job.target is None:
        yield _planned("note", image, name, "it runs again where it is, over the same input")
    elif move.kept_batch(image) is None:
        yield _dropped(move, image, name)
    else:
        yield _kept(move, image, name)


def _without_commits(job: JobSpec, image: Image, name: str) -> Iterator[Finding]:
    """Refuse what needs a commit log, of a query that has none: Spark runs its last batch again."""
    fact = f"{name} has no commit log, as Spark before 2.2 left it"
    if job.mode == "warm":
        yield Finding(
            "refuse",
            f"{fact}: no log says which batches a running job has done, so that it cannot be "
            "followed",
            hint="leave out the mode: the job is stopped, then moved",
        )
    if job.planned_batch == "drop":
        yield Finding(
            "refuse",
            f"{fact}: without batch {image.planned} a job would run batch {image.epoch} "
            "again, whose state before it is not copied",
            hint=(
                'keep it ("planned_batch": "keep"): it runs again on the target over the same input'
            ),
        )


def _planned(level: Level, image: Image, name: str, fate: str, hint: str | None = None) -> Finding:
    return Finding(
        level,
        f"{name}: batch {image.planned} was planned and not committed; {fate}",
        waive=REPEATED if level == "refuse" else None,
        hint=hint or '"planned_batch" of the job says which: "keep" or "drop"',
    )


def _kept(move: Move, image: Image, name: str) -> Finding:
    written, batch, sink = image.planned_state, image.planned or 0, move.facts.sink
    if move.skips_kept_batch(image) and image.operators:
        return _skipped(move, image, name)
    again = "it runs again on the target over the same input"
    if sink is not None and sink.read:
        has_it = sink.has_batch(image.identity, batch)
        again = f"the sink ({sink.kind}) {'has' if has_it else 'does not have'} it: {again}"
    runs_its_plan = sink is not None and sink.skips_plan is False
    if not image.operators or runs_its_plan or not may_know(move, image, batch):
        return _planned("note", image, name, again)
    if written is None or written.wrong is not None:
        return _planned(
            "warn",
            image,
            name,
            f"{again}, unless a sink has it ({SKIPPING}): the state that it wrote is not whole, "
            f"and the job then fails at batch {batch + 1}",
            NAME_THE_SINK,
        )
    if written.unnamed:
        return _unnamed(image, name, batch)
    if move.change.rewrites_versions(image):
        return _planned(
            "refuse",
            image,
            name,
            f"a sink that has it ({SKIPPING}) skips it, so that its state would be "
            f"missing: this change writes the state of batch {image.epoch} alone",
            f"{NAME_THE_SINK}; or {_COMMIT_FIRST.format(batch=batch)}; {WAIVE}",
        )
    files = len(move.planned_paths((image,)))
    return _planned(
        "note",
        image,
        name,
        f"{again}; the state that it wrote goes along ({files} files), for a sink that has it "
        "skips it",
    )


def _skipped(move: Move, image: Image, name: str) -> Finding:
    """Report a batch that the sink is known to have: its state has to be at the target, for nobody
    writes it again.
    """
    written, batch, sink = image.planned_state, image.planned or 0, move.facts.sink
    sink_has_it = "the sink has it" if sink is None else f"the sink ({sink.kind}) has it"
    if lacks_state(image) or written is None:
        return Finding(
            "refuse",
            f"{name}: batch {batch} was planned and not committed, and {sink_has_it}: a job "
            "that restarts skips it, and the state that it wrote is not whole. The job would fail "
            f"at batch {batch + 1}, here as at the target",
            hint=f"restore the state of batch {batch} from a copy of the checkpoint; or go back to "
            f"batch {image.epoch}: {way_out(move, image)}",
        )
    if written.unnamed:
        return _unnamed(image, name, batch)
    if not move.change.rewrites_versions(image):
        files = len(move.planned_paths((image,)))
        fate = f"the state that it wrote goes along ({files} files)"
    elif move.planned_image(image) is not None:
        fate = f"its state is rewritten, too: that of batch {image.epoch}, and that of {batch}"
    else:
        return _planned(
            "refuse",
            image,
            name,
            f"{sink_has_it}, so that a restart skips it, and its state would be missing: this "
            f"change writes the state of batch {image.epoch} alone",
            f"{_COMMIT_FIRST.format(batch=batch)}; or move the job first, and change it then",
        )
    return _planned("note", image, name, f"{sink_has_it}, and a restart skips it; {fate}")


def _unnamed(image: Image, name: str, batch: int) -> Finding:
    return _planned(
        "refuse",
        image,
        name,
        f"a sink that has it ({SKIPPING}) skips it, and under checkpoint format 2 "
        "Spark then fails, here as at the target (CheckpointInfo length: 0)",
        f"{_COMMIT_FIRST.format(batch=batch)}; where that fails, the sink has it: "
        f'restore the sink to batch {image.epoch} and continue in a fork ("mode": "fork"); '
        f"{WAIVE}",
    )


def _dropped(move: Move, image: Image, name: str) -> Finding:
    batch, sink = image.planned or 0, move.facts.sink
    if not may_know(move, image, batch):
        return _planned("warn", image, name, "it is dropped, and its input is planned again")
    has_it = sink is not None and sink.has_batch(image.identity, batch)
    # The tasks of a batch write its state before the sink commits it.
    may_be_delivered = not image.operators or image.planned_state is not None
    if not may_be_delivered and not has_it:
        return _planned(
            "warn",
            image,
            name,
            "it is dropped, and its input is planned again; its state is not whole, so that "
            "no sink has it",
        )
    has = "the sink has it" if sink is not None and sink.read else "the sink may have it"
    return _planned(
        "refuse",
        image,
        name,
        f"it is dropped, and the next batch gets its number: {has}, and one that knows "
        f"batches by number ({SKIPPING}) then loses the input of that batch",
        f'keep it ("planned_batch": "keep"); or {_COMMIT_FIRST.format(batch=batch)}; {WAIVE}',
    )


def _several(move: Move, image: Image, name: str) -> Finding:
    """Report several batches without a commit: Spark runs the last of them again, from the state of
    its number.
    """
    epoch = image.epoch or 0
    planned = image.planned or 0
    known = may_know(move, image, epoch + 1)
    consequence = "gets its input again"
    if known:
        consequence = f"skips the new batch of its number, or {consequence}"
    fact = (
        f"{name}: batches {epoch + 1} to {planned} were planned and none of them committed; "
        f"they are planned again after batch {epoch}, so a sink that was given one of them already "
        f"{consequence}"
    )
    hint = (
        f"if batch {planned} did finish, let the job start once where it is and commit, then "
        "plan again"
    )
    if known and image.operators:
        return Finding("refuse", fact, waive=REPEATED, hint=f"{hint}; {WAIVE}")
    return Finding("warn", fact, hint=hint)
