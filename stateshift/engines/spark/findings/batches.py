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
from dataclasses import dataclass

from stateshift.engines.spark import layout
from stateshift.engines.spark.findings.rewind import REPEATED, WAIVE, may_know, way_out
from stateshift.engines.spark.image import name_of, spark_image
from stateshift.engines.spark.real_time import LAST_BATCHES, SINKS, is_in_real_time
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.survey.planned_image import NAME_THE_SINK, SKIPPING, lacks_state
from stateshift.survey import Finding, Image, Level, SinkFacts

_COMMIT_FIRST = "let the job commit batch {batch} where it is, then plan again"
_DROP, _KEEP = '"planned_batch": "drop" takes', '"planned_batch": "keep" runs it again over'


def of_batches(move: Move) -> Iterator[Finding]:
    """Report batches that were planned and not committed."""
    images: list[tuple[Image, str]] = []
    for survey in (move.facts.source, *move.facts.merges):
        images += [(image, name_of(image, survey.location)) for image in survey.images]
    for image, name in images:
        if image.epoch is not None and not layout.has_commits(image):
            yield from _without_commits(move, image, name)
    if move.runs:
        return  # a running job has always planned its next batch
    if move.change.renumber:
        return  # the batch gets a number that no sink has
    for image, name in images:
        is_rewound = spark_image(image).newest is not None  # which `of_rewind` reports
        if is_rewound or image.epoch is None or image.planned is None:
            continue
        planned = _PlannedBatch(move, image, name)
        if image.planned > image.epoch + 1:
            yield planned.several()
        elif image.planned > image.epoch:
            yield from planned.fates()


def _without_commits(move: Move, image: Image, name: str) -> Iterator[Finding]:
    """Refuse what needs a commit log, of a query that has none: Spark runs its last batch again."""
    job = move.job
    fact = f"{name} has no commit log, as Spark before 2.2 left it"
    if move.change.checkpoint_format == "v2":
        yield Finding(
            "refuse",
            f"{fact}: under checkpoint format v2, commits name the files of the state",
            hint="let a newer Spark run one batch of it",
        )
    if job.mode == "warm":
        yield Finding(
            "refuse",
            f"{fact}: no log says which batches a running job has done, so that it cannot be "
            "followed",
            hint="leave out the mode: the job is stopped, then moved",
        )
    if job.planned_batch == "drop":
        hint = 'keep it ("planned_batch": "keep"): it runs again on the target over the same input'
        yield Finding(
            "refuse",
            f"{fact}: without batch {image.planned} a job would run batch {image.epoch} "
            "again, whose state before it is not copied",
            hint=hint,
        )


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


@dataclass(frozen=True)
class _PlannedBatch:
    """The batch of an image that was planned last, and not committed."""

    job_move: Move
    image: Image
    name: str

    @property
    def batch(self) -> int:
        return self.image.planned or 0

    @property
    def sink(self) -> SinkFacts | None:
        return self.job_move.facts.sink

    def fates(self) -> Iterator[Finding]:
        """Report what becomes of it, where it is the only one. The times of files alone show
        real-time mode: where the sink is of a kind that this mode refuses, they are wrong.
        """
        if self.job_move.job.target is None:
            yield self._report("note", "it runs again where it is, over the same input")
            return
        is_possible = self.sink is None or self.sink.kind in SINKS
        if is_possible and len(spark_image(self.image).real_time_lengths) == LAST_BATCHES:
            yield self._report("note", "in real-time mode, Spark drops its plan, and reads on anew")
            return
        if self.job_move.kept_batch(self.image) is None:
            yield self._dropped()
        elif self.job_move.skips_kept_batch(self.image) and self.image.operators:
            yield self._skipped()
        else:
            yield self._kept()
        if is_in_real_time(self.image):
            yield self._report(
                "note", "if the job is in real-time mode, Spark drops its plan, and reads on anew"
            )

    def _report(self, level: Level, fate: str, hint: str | None = None) -> Finding:
        return Finding(
            level,
            f"{self.name}: batch {self.image.planned} was planned and not committed; {fate}",
            waive=REPEATED if level == "refuse" else None,
            hint=hint,
        )

    def _kept(self) -> Finding:
        image, batch, sink = self.image, self.batch, self.sink
        written = image.planned_state
        again = "it runs again on the target over the same input"
        if sink is not None and sink.read:
            has_it = sink.has_batch(image.identity, batch)
            again = f"the sink ({sink.kind}) {'has' if has_it else 'does not have'} it: {again}"
        runs_its_plan = sink is not None and sink.skips_plan is False
        if not image.operators or runs_its_plan or not may_know(self.job_move, image, batch):
            return self._report("note", again, f"{_DROP} its input into the next batch instead")
        if written is None or written.wrong is not None:
            return self._report(
                "warn",
                f"{again}, unless a sink has it ({SKIPPING}): the state that it wrote is not "
                f"whole, and the job then fails at batch {batch + 1}",
                NAME_THE_SINK,
            )
        if written.unnamed:
            return self._unnamed()
        if self.job_move.change.rewrites_versions(image):
            return self._report(
                "refuse",
                f"this change writes the state of batch {image.epoch} alone, and a sink that has "
                f"batch {batch} ({SKIPPING}) skips it: its state would be missing",
                f"{_COMMIT_FIRST.format(batch=batch)}; or {WAIVE}",
            )
        files = len(self.job_move.planned_paths((image,)))
        return self._report(
            "note",
            f"{again}; the state that it wrote goes along ({_files(files)})",
            f"{_DROP} its input into the next batch instead, and its state stays behind",
        )

    def _skipped(self) -> Finding:
        """Report a batch that the sink has: its state has to be there, nobody writes it again."""
        image, batch, sink, written = self.image, self.batch, self.sink, self.image.planned_state
        sink_has_it = "the sink has it" if sink is None else f"the sink ({sink.kind}) has it"
        if lacks_state(image) or written is None:
            return Finding(
                "refuse",
                f"{self.name}: batch {batch} was planned and not committed, and {sink_has_it}: a "
                "job that restarts skips it, and the state that it wrote is not whole. The job "
                f"would fail at batch {batch + 1}, here as at the target",
                hint=f"restore the state of batch {batch} from a copy of the checkpoint; or go "
                f"back to batch {image.epoch}: {way_out(self.job_move, image)}",
            )
        if written.unnamed:
            return self._unnamed()
        if not self.job_move.change.rewrites_versions(image):
            files = len(self.job_move.planned_paths((image,)))
            fate = f"the state that it wrote goes along ({_files(files)})"
        elif self.job_move.planned_image(image) is not None:
            fate = f"its state is rewritten, too: that of batch {image.epoch}, and that of {batch}"
        else:
            return self._report(
                "refuse",
                f"{sink_has_it}, so that a restart skips it, and its state would be missing: this "
                f"change writes the state of batch {image.epoch} alone",
                f"{_COMMIT_FIRST.format(batch=batch)}; or move the job first, and change it then",
            )
        return self._report("note", f"{sink_has_it}, and a restart skips it; {fate}")

    def _unnamed(self) -> Finding:
        return self._report(
            "refuse",
            f"a sink that has it ({SKIPPING}) skips it, and under checkpoint format 2 "
            "Spark then fails, here as at the target (CheckpointInfo length: 0)",
            f"{_COMMIT_FIRST.format(batch=self.batch)}; where that fails, the sink has it: "
            f'restore the sink to batch {self.image.epoch} and continue in a fork ("mode": '
            f'"fork"); or {WAIVE}',
        )

    def _dropped(self) -> Finding:
        image, batch, sink = self.image, self.batch, self.sink
        dropped = "it is dropped, and its input is planned again"
        if not may_know(self.job_move, image, batch):
            return self._report("warn", dropped, f"{_KEEP} the same input")
        has_it = sink is not None and sink.has_batch(image.identity, batch)
        # The tasks of a batch write its state before the sink commits it.
        may_be_delivered = not image.operators or image.planned_state is not None
        if not may_be_delivered and not has_it:
            return self._report(
                "warn",
                f"{dropped}; its state is not whole, so that no sink has it",
                f"{_KEEP} the same input",
            )
        has = f"a sink that has it ({SKIPPING})"
        if sink is not None and sink.read:
            has = "the sink has it, and"
        return self._report(
            "refuse",
            f"it is dropped, and the next batch gets its number: {has} loses the next one's input",
            f"{_KEEP} the same input; or {_COMMIT_FIRST.format(batch=batch)}; or {WAIVE}",
        )

    def several(self) -> Finding:
        """Report that it is the last of several: Spark runs it again, from the state before it."""
        epoch, planned = self.image.epoch or 0, self.batch
        known = may_know(self.job_move, self.image, epoch + 1)
        consequence = "gets its input again"
        if known:
            consequence = f"skips the new batch of its number, or {consequence}"
        fact = (
            f"{self.name}: batches {epoch + 1} to {planned} were planned and none of them "
            f"committed; they are planned again, so a sink that has one of "
            f"them already {consequence}"
        )
        hint = f"if batch {planned} did finish: {_COMMIT_FIRST.format(batch=planned)}"
        if known and self.image.operators:
            return Finding("refuse", fact, waive=REPEATED, hint=f"{hint}; or {WAIVE}")
        return Finding("warn", fact, hint=hint)
