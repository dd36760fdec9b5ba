"""What a sink makes of batches that are run a second time, or of other batches under their numbers
(W-1). Pure.

    kept       a batch that was planned and not committed runs again over the same input. A sink
               that has it skips it, and the state that the batch wrote must be at the target
    dropped    the next batch gets its number and other input. A sink that has the number loses that
               input
    rewound    the batches since get their numbers again, from the second on over other input. The
               same happens
    renumbered the batches since get numbers that nobody has had. No sink knows them

A fork is another query. Delta and Iceberg tell its batches apart by the query's id. A file sink
does not, and neither does a foreachBatch that goes by numbers: the fork runs the same function.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from stateshift.engines.spark import layout
from stateshift.engines.spark.image import name_of, spark_image
from stateshift.engines.spark.layout import SINK_LOG
from stateshift.engines.spark.rewrite.batch_numbers import number_after
from stateshift.engines.spark.rewrite.planned_state import (
    BY_NUMBER,
    is_skipped,
    kept_batch,
    planned_paths,
    rewrites_versions,
    to_rewrite,
)
from stateshift.engines.spark.rewrite.wishes import wishes_of
from stateshift.engines.spark.survey.planned_image import NAME_THE_SINK, SKIPPING, lacks_state
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Image, Level, SinkFacts

REPEATED = "repeated-batches"

_FOR_ALL = " (for all of its writers: what others have written since is taken back, too)"
# CompactibleFileStreamLog.compact reads every entry since the last compaction; where one is
# missing, the job fails at batch 9, 19, ... (seen with 4.3.0).
WITH_ITS_LOG = "a file sink needs its log there, too: name both folders in `data`"
OTHER_FUNCTION = "let the fork write to a table of its own, or under another application id"
_COMMIT_FIRST = (
    "start the job once where it is, until it has committed batch {batch}, then plan again"
)
_NEW_NUMBERS = '`--renumber`; "renumber": true'
_WAIVE = (
    f'where the sink takes a batch number again, say so: "waive": ["{REPEATED}"], or name '
    "the sink (`sink`)"
)


def of_batches(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield everything worth saying of batches that were planned and not committed."""
    yield from _of_missing_commits(job, facts)
    cluster = facts.source_cluster
    if cluster is not None and cluster.state in ("running", "queued"):
        return  # a running job has always planned its next batch
    if wishes_of(job.transform).renumber:
        return  # the batch gets a number that no sink has
    for image, name in _named_images(facts):
        is_rewound = spark_image(image).newest is not None  # which `of_rewind` reports
        if not is_rewound and _has_planned(image):
            yield from _of_planned(job, facts, image, name)


def _of_missing_commits(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    for image, name in _named_images(facts):
        if image.epoch is not None and not layout.has_commits(image):
            yield from _without_commits(job, image, name)


def _named_images(facts: Facts) -> Iterator[tuple[Image, str]]:
    for survey in (facts.source, *facts.merges):
        for image in survey.images:
            yield image, name_of(image, survey.location)


def _has_planned(image: Image) -> bool:
    """Whether a batch was planned and not committed."""
    if image.epoch is None or image.planned is None:
        return False
    return image.planned > image.epoch


def _of_planned(job: JobSpec, facts: Facts, image: Image, name: str) -> Iterator[Finding]:
    assert image.epoch is not None and image.planned is not None, "the caller has asked"
    if image.planned > image.epoch + 1:
        yield _several(job, facts, image, name)
    elif job.target is None:
        yield _planned("note", image, name, "it runs again where it is, over the same input")
    elif kept_batch(job, image) is None:
        yield _dropped(job, facts, image, name)
    else:
        yield _kept(job, facts, image, name)


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


# ---- what the sink does


def may_know(job: JobSpec, facts: Facts, image: Image, batch: int) -> bool:
    """Whether the sink may hold a batch of this number that counts as the job's own."""
    sink = facts.sink
    if sink is None:
        return job.moves
    if sink.knows_batches is False or sink.has_batch(image.identity, batch) is False:
        return False
    return job.moves or sink.kind in BY_NUMBER


def _may_skip(job: JobSpec, facts: Facts, image: Image, batch: int) -> bool:
    """Whether the sink may leave a batch's plan unexecuted, so that nobody writes its state."""
    if facts.sink is not None and facts.sink.skips_plan is False:
        return False
    return may_know(job, facts, image, batch)


def _may_be_delivered(image: Image) -> bool:
    """Whether the planned batch came as far as a sink: its tasks write the state before the sink
    commits.
    """
    return not image.operators or image.planned_state is not None


# ---- one planned batch


def _kept(job: JobSpec, facts: Facts, image: Image, name: str) -> Finding:
    written, batch = image.planned_state, image.planned or 0
    if is_skipped(job, facts, image) and image.operators:
        return _skipped(job, facts, image, name)
    again = "it runs again on the target over the same input"
    if facts.sink is not None and facts.sink.read:
        has_it = facts.sink.has_batch(image.identity, batch)
        again = f"the sink ({facts.sink.kind}) {'has' if has_it else 'does not have'} it: {again}"
    if not image.operators or not _may_skip(job, facts, image, batch):
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
    if rewrites_versions(wishes_of(job.transform), image):
        return _planned(
            "refuse",
            image,
            name,
            f"a sink that has it ({SKIPPING}) skips it, so that its state would be "
            f"missing: this change writes the state of batch {image.epoch} alone",
            f"{NAME_THE_SINK}; or {_COMMIT_FIRST.format(batch=batch)}; {_WAIVE}",
        )
    files = len(planned_paths(job, facts, (image,)))
    return _planned(
        "note",
        image,
        name,
        f"{again}; the state that it wrote goes along ({files} files), for a sink that has it "
        "skips it",
    )


def _skipped(job: JobSpec, facts: Facts, image: Image, name: str) -> Finding:
    """Say what becomes of a batch that the sink is known to have: its state has to be at the
    target, for nobody writes it again.
    """
    written, batch = image.planned_state, image.planned or 0
    if lacks_state(image) or written is None:
        return Finding(
            "refuse",
            f"{name}: batch {batch} was planned and not committed, and {_sink_has(facts)}: a job "
            "that restarts skips it, and the state that it wrote is not whole. The job would fail "
            f"at batch {batch + 1}, here as at the target",
            hint=way_out_of_lost_state(job, facts, image),
        )
    if written.unnamed:
        return _unnamed(image, name, batch)
    wishes = wishes_of(job.transform)
    if not rewrites_versions(wishes, image):
        files = len(planned_paths(job, facts, (image,)))
        fate = f"the state that it wrote goes along ({files} files)"
    elif to_rewrite(job, facts, image) is not None:
        fate = f"its state is rewritten, too: that of batch {image.epoch}, and that of {batch}"
    else:
        return _planned(
            "refuse",
            image,
            name,
            f"{_sink_has(facts)}, so that a restart skips it, and its state would be missing: this "
            f"change writes the state of batch {image.epoch} alone",
            f"{_COMMIT_FIRST.format(batch=batch)}; or move the job first, and change it then",
        )
    return _planned("note", image, name, f"{_sink_has(facts)}, and a restart skips it; {fate}")


def _sink_has(facts: Facts) -> str:
    return "the sink has it" if facts.sink is None else f"the sink ({facts.sink.kind}) has it"


def way_out_of_lost_state(job: JobSpec, facts: Facts, image: Image) -> str:
    """Return what is left to do where the sink has a batch whose state is lost."""
    return (
        f"restore the state of batch {image.planned} from a copy of the checkpoint; or go back to "
        f"batch {image.epoch}: {_way_out(job, facts, image)}"
    )


def _unnamed(image: Image, name: str, batch: int) -> Finding:
    return _planned(
        "refuse",
        image,
        name,
        f"a sink that has it ({SKIPPING}) skips it, and under checkpoint format 2 "
        "Spark then fails, here as at the target (CheckpointInfo length: 0)",
        f"{_COMMIT_FIRST.format(batch=batch)}; where that fails, the sink has it: "
        f'restore the sink to batch {image.epoch} and continue in a fork ("mode": "fork"); '
        f"{_WAIVE}",
    )


def _dropped(job: JobSpec, facts: Facts, image: Image, name: str) -> Finding:
    batch = image.planned or 0
    if not may_know(job, facts, image, batch):
        return _planned("warn", image, name, "it is dropped, and its input is planned again")
    has_it = facts.sink is not None and facts.sink.has_batch(image.identity, batch)
    if not _may_be_delivered(image) and not has_it:
        return _planned(
            "warn",
            image,
            name,
            "it is dropped, and its input is planned again; its state is not whole, so that "
            "no sink has it",
        )
    is_known = facts.sink is not None and facts.sink.read
    has = "the sink has it" if is_known else "the sink may have it"
    return _planned(
        "refuse",
        image,
        name,
        f"it is dropped, and the next batch gets its number: {has}, and one that knows "
        f"batches by number ({SKIPPING}) then loses the input of that batch",
        f'keep it ("planned_batch": "keep"); or {_COMMIT_FIRST.format(batch=batch)}; {_WAIVE}',
    )


def _several(job: JobSpec, facts: Facts, image: Image, name: str) -> Finding:
    """Say what becomes of several batches without a commit: Spark runs the last of them again, from
    the state of its number.
    """
    epoch = image.epoch or 0
    planned = image.planned or 0
    known = may_know(job, facts, image, epoch + 1)
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
        return Finding("refuse", fact, waive=REPEATED, hint=f"{hint}; {_WAIVE}")
    return Finding("warn", fact, hint=hint)


# ---- a rewind


def of_rewind(job: JobSpec, facts: Facts, image: Image, name: str) -> Iterator[Finding]:
    """Say what it means for the sink that a job goes back to an earlier batch."""
    if image.epoch is None:
        return
    if wishes_of(job.transform).renumber:
        yield from _of_renumbered(job, facts, image, name)
        return
    newest = spark_image(image).newest
    if newest is None:
        return
    back = _back(job, image, newest.committed, name)
    last = image.epoch + 1
    if not may_know(job, facts, image, last):
        yield Finding(
            "warn", f"{back}. {_given_twice(job, facts, image)}", hint=_clearing(facts, image)
        )
        return
    yield Finding(
        "refuse",
        f"{back}. {_losing(job, facts.sink)}",
        waive=REPEATED,
        hint=f"{_way_out(job, facts, image)}; {_WAIVE}",
    )


def _back(job: JobSpec, image: Image, newest: int, name: str) -> str:
    epoch = image.epoch or 0
    first = epoch + 1
    batches = f"batch {first}"
    if first < newest:
        batches = f"{batches} to {newest}"
    how = "in batches that are planned again"
    if kept_batch(job, image) is not None:
        how = f"first that of batch {first} as it was planned"
    how += _first_batch(image)
    return (
        f"{name} goes back from batch {newest} to batch {epoch}; the input of {batches} is read "
        f"again, {how}"
    )


def _first_batch(image: Image) -> str:
    """Return how much input that is, and how the first of these batches is bounded."""
    backlog = spark_image(image).backlog
    if not backlog:
        return ""
    amounts = [f"{each.amount:,} {each.unit} of source {each.source}" for each in backlog]
    limits = sorted({each.bounded_by for each in backlog})
    return (
        f": {' and '.join(amounts)}, and what came since. What is planned again comes in one "
        f"batch, unless the source has {' or '.join(limits)}"
    )


def _of_renumbered(job: JobSpec, facts: Facts, image: Image, name: str) -> Iterator[Finding]:
    """Say what it means that the last batch gets another number. A planned batch may have
    reached the sink, too.
    """
    number = number_after(wishes_of(job.transform), image, facts.sink)
    if number == image.epoch:
        return
    back = _back(job, image, number, name)
    yield Finding(
        "warn",
        f"{back}. {_renumbered(image, number)}. {_left_there(facts, image)}",
        hint=_clearing_first(facts, image),
    )


def _renumbered(image: Image, number: int) -> str:
    epoch = image.epoch or 0
    return (
        f"Batch {epoch} gets the number {number}, so that the next is batch {number + 1}, "
        "which no sink has had"
    )


def _left_there(facts: Facts, image: Image) -> str:
    if _has_none_since(facts, image):
        return "The sink has none of the batches since"
    return "What the sink has of the batches since stays there, and is given to it again"


def _clearing_first(facts: Facts, image: Image) -> str:
    """Return what to do before the job starts at its new place."""
    if _has_none_since(facts, image):
        return "nothing has to be cleared"
    return f"before the job starts there: {_restoring(facts, image)}"


def _has_none_since(facts: Facts, image: Image) -> bool:
    """Whether the sink is known to have nothing of the batches after the one that the job goes
    back to.
    """
    first = (image.epoch or 0) + 1
    return facts.sink is not None and facts.sink.has_batch(image.identity, first) is False


def _losing(job: JobSpec, sink: SinkFacts | None) -> str:
    if sink is not None and not job.moves:
        who = f"{BY_NUMBER[sink.kind]} knows batches by number, whichever query wrote them, and"
    elif sink is None:
        who = f"A sink that knows batches by number ({SKIPPING}; Iceberg)"
    else:
        who = f"The sink ({sink.kind})"
    return (
        f"{who} drops every batch under a number that it has, also the ones with new "
        "input, and the job fails at the first number that it has not: the state before that was "
        "never written"
    )


def _given_twice(job: JobSpec, facts: Facts, image: Image) -> str:
    if _has_none_since(facts, image):
        return "The sink has none of them"
    if job.moves:
        return "The sink is given their output again"
    return (
        "The fork is another query, whose output Delta and Iceberg take beside what they "
        "have of these batches"
    )


def _clearing(facts: Facts, image: Image) -> str:
    if _has_none_since(facts, image):
        return "nothing has to be cleared"
    return f"{_restoring(facts, image)}, or let the job write to another place; {WITH_ITS_LOG}"


def _way_out(job: JobSpec, facts: Facts, image: Image) -> str:
    if facts.sink is not None and facts.sink.kind == "foreach-batch":
        way = f"rewind under new numbers ({_NEW_NUMBERS}), and {_restoring(facts, image)}"
        return way if job.moves else f"{OTHER_FUNCTION}; or {way}"
    if not job.moves:
        return (
            f"let the fork write to a folder of its own; {WITH_ITS_LOG}; then "
            f"{_restoring(facts, image)}"
        )
    return (
        f'rewind in a fork (`--fork`; "mode": "fork"), or under new numbers ({_NEW_NUMBERS}), and '
        f"{_restoring(facts, image)}"
    )


def _restoring(facts: Facts, image: Image) -> str:
    """Return how the output since is taken back."""
    epoch = image.epoch or 0
    unknown = (
        "clear from the sink what these batches put out (Delta: RESTORE to the version of "
        f"batch {epoch})"
    )
    if facts.sink is None:
        return unknown
    return _restoring_of(facts.sink, image.identity, epoch) or unknown


def _restoring_of(sink: SinkFacts, query: str | None, epoch: int) -> str | None:
    """Return how this sink's output after batch `epoch` is taken back; None where its log does not
    tell.
    """
    last = sink.last_batch(query)
    if sink.kind == "file" and last is not None:
        return _emptying(f"{sink.location}/{SINK_LOG}", epoch, last)
    version = sink.version_to_restore(query, epoch)
    if version is None:
        return None
    if sink.kind == "iceberg":
        return (
            f"roll the table {quote(sink.location or '')} back to snapshot {version}, which "
            f"ends with batch {epoch}{_FOR_ALL}"
        )
    return (
        f"RESTORE TABLE delta.`{sink.location}` TO VERSION AS OF {version}, which ends with "
        f"batch {epoch}{_FOR_ALL}"
    )


def _emptying(log: str, epoch: int, last: int) -> str:
    """Return how the log of a file sink is cleared: an entry that is gone, Spark misses at its next
    compaction.
    """
    first = epoch + 1
    entries = f"entry {first}" if first >= last else f"each of the entries {first} to {last}"
    return (
        f"leave of {entries} of {quote(log)} its first line alone (of a .compact also the "
        f"files of batches up to {epoch}), and remove the hidden .crc beside it"
    )
