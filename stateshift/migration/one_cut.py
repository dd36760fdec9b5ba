"""The epochs at which several jobs are started from their standbys together: one cut.

A job that reads what another one writes may not have read what that one, started from its own
epoch, puts out again: it would read it twice, or has read something that never will have been.

    orders   41 40    what the standbys can be started from, the newest first
    totals   17 16    17 has read what orders wrote in batch 42: totals starts from 16

Each job takes its newest epoch that fits those of the jobs it reads from; jobs that read nothing of
each other take the newest they have. That is as new as a cut can be: an older epoch of a writer
leaves its readers fewer.

How far a job has read is known from one of these; a reader of which none tells it is refused:

    the sink   its log names the batches of the writer, and the reader's own log what it has read
    rounds     of a spec with a dataflow: a writer is looked at after its readers, whose state files
               say how far it was by then
    times      as the primaries' storages gave them: what was committed before the writer committed,
               was read before the writer went on
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations

from stateshift.engines.findings import with_waiver
from stateshift.errors import StateshiftError
from stateshift.formats.standby import KeptEpoch, StandbyState
from stateshift.migration.gathering import Inquiry, survey_taken_over
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.step.claims import state_at
from stateshift.survey import Finding, OutputRead, Survey
from stateshift.terms import Terms, terms_of

WAIVER = "several-cuts"

Epoch = int | None  # None: those of a workflow, whose queries have one each


@dataclass(frozen=True, slots=True)
class ReadsFrom:
    """A job that reads what another one writes."""

    writer: str
    reader: str


@dataclass(frozen=True)
class EpochCut:
    """An epoch for each job. `parted` are the edges of which no epoch of the reader fits."""

    epochs: Mapping[str, Epoch] = field(default_factory=dict)
    parted: tuple[ReadsFrom, ...] = ()


def choose(
    candidates: Mapping[str, Sequence[Epoch]],
    edges: Sequence[ReadsFrom],
    fits: Callable[[ReadsFrom, Epoch, Epoch], bool],
) -> EpochCut:
    """Return the newest cut.

    Args:
        candidates: the epochs of each job, the newest first.
        edges: between these jobs.
        fits: whether the reader's epoch, the second one, has read no more than the writer's.
    """
    place = dict.fromkeys(candidates, 0)
    parted: list[ReadsFrom] = []
    is_settled = False
    while not is_settled:
        is_settled = True
        for edge in edges:
            own, at = candidates[edge.reader], candidates[edge.writer][place[edge.writer]]
            before = place[edge.reader]
            while edge not in parted and not fits(edge, at, own[place[edge.reader]]):
                place[edge.reader] += 1
                if place[edge.reader] == len(own):
                    parted.append(edge)
                    place = dict.fromkeys(candidates, 0)
                    is_settled = False
            is_settled = is_settled and place[edge.reader] == before
    return EpochCut({job: candidates[job][at] for job, at in place.items()}, tuple(parted))


class JointStart:
    """The jobs of a spec that are started from their standbys together. Those of `fixed` have an
    epoch already. It reads the state files once.
    """

    def __init__(self, inquiry: Inquiry, fixed: Mapping[str, Epoch] | None = None) -> None:
        self._inquiry, self._fixed = inquiry, fixed or {}
        self._jobs = {job.name: job for job in inquiry.spec.jobs if job.takes_over is not None}
        self._surveys: dict[tuple[str, Epoch], Survey | None] = {}
        self._terms: Terms = terms_of(inquiry.spec.engine)

    @cached_property
    def cut(self) -> EpochCut:
        """The cut; an empty one of jobs that start alone, or have all begun to."""
        if len(self._jobs) < 2 or self._fixed.keys() >= self._jobs.keys():
            return EpochCut(self._fixed)
        return choose(self._candidates, self._edges, self._fits)

    def job(self, job: JobSpec) -> JobSpec:
        """Return a job as it starts at the cut."""
        epoch = self.cut.epochs.get(job.name)
        if epoch is None or job.takes_over is None:
            return job
        readers = () if job.name in self._fixed else [edge.reader for edge in self._edges]
        return _planned_anew(job, epoch) if job.name in readers else _from(job, epoch)

    def with_findings(self, plan: Plan) -> Plan:
        """Return the plan of a job, with what the cut means for it."""
        waived = self._jobs[plan.job].waive if plan.job in self._jobs else ()
        found = [with_waiver(finding, waived) for finding in self._findings(plan.job)]
        return replace(plan, findings=(*found, *plan.findings)) if found else plan

    def _findings(self, name: str) -> Iterator[Finding]:
        for edge in self.cut.parted:
            if edge.reader == name:
                yield self._of_parted(edge)
        epoch, newest = self.cut.epochs.get(name), self._states.get(name)
        if name in self._fixed or epoch is None or newest is None or epoch >= (newest.epoch or 0):
            return
        at, wanted = self._terms.at, self._jobs[name].takes_over
        if wanted is not None and wanted.epoch is None:
            yield Finding(
                "warn",
                f"{name} starts from {at} {epoch}, not from {newest.epoch}: by then it had read "
                "what the others, which start with it, put out once more",
            )

    def _of_parted(self, edge: ReadsFrom) -> Finding:
        writer, reader = edge.writer, edge.reader
        at, start = self._terms.at, self.cut.epochs[writer]
        kept = " and ".join(str(epoch) for epoch in self._candidates[reader])
        return Finding(
            "refuse",
            f"{writer} and {reader} have no common cut: at {at} {kept}, {reader} has read, or may "
            f"have read, what {writer} puts out once more after {at} {start}. Its state would hold "
            "that twice, or hold what is not put out again",
            waive=WAIVER,
            hint=f"stateshift status {self._jobs[writer].source}   # tells what {writer} can be "
            f"started from: --epoch {self._jobs[writer].source}=N; or take that: --waive {WAIVER}",
        )

    # -- what the standbys have

    @cached_property
    def _states(self) -> Mapping[str, StandbyState | None]:
        opening = self._inquiry.adapters.open_storage
        return {name: state_at(opening(job.source)) for name, job in self._jobs.items()}

    @cached_property
    def _edges(self) -> Sequence[ReadsFrom]:
        """The edges that there may be: of the dataflow of the spec that fed the standbys, or seen
        in what a job has read.
        """
        edges = []
        for writer, reader in permutations(self._jobs, 2):
            edge, state = ReadsFrom(writer, reader), self._states[reader]
            declared = () if state is None else [other.job for other in state.reads_from]
            newest = self._candidates[writer][0], self._candidates[reader][0]
            if writer in declared or self._output_read(edge, *newest) != "nothing":
                edges.append(edge)
        return edges

    @cached_property
    def _candidates(self) -> Mapping[str, Sequence[Epoch]]:
        return {name: self._candidates_of(name) for name in self._jobs}

    def _candidates_of(self, name: str) -> tuple[Epoch, ...]:
        take_over, state = self._jobs[name].takes_over, self._states[name]
        if name in self._fixed:
            return (self._fixed[name],)
        if take_over is not None and take_over.epoch is not None:
            return (take_over.epoch,)
        if state is None or state.epoch is None:
            return (None,)
        kept = [each.epoch for each in (*state.coming, *state.kept)]
        if not state.coming:
            return tuple(kept)
        # Whoever published it has died: it is there, or not yet.
        _, survey = self._inquiry.engine.survey(state.location, self._inquiry.adapters.open_storage)
        return tuple(kept if survey.epoch == kept[0] else kept[1:])

    def _fits(self, edge: ReadsFrom, at: Epoch, own: Epoch) -> bool:
        read = self._output_read(edge, at, own)
        if read in ("within", "beyond"):
            return read == "within"
        written, committed = self._kept(edge.writer, at), self._kept(edge.reader, own)
        if written is None or committed is None:
            return False
        for seen in committed.read_up_to:
            if seen.job == edge.writer and seen.epoch <= written.epoch:
                return True
        if written.committed_at is None or committed.committed_at is None:
            return False
        return committed.committed_at <= written.committed_at

    def _output_read(self, edge: ReadsFrom, at: Epoch, own: Epoch) -> OutputRead:
        sink = self._jobs[edge.writer].sink
        if sink is None or sink.location is None:
            return "nothing"
        writer, reader = self._survey(edge.writer, at), self._survey(edge.reader, own)
        if writer is None or reader is None:
            return "unknown"
        opening = self._inquiry.adapters.open_storage
        return self._inquiry.engine.output_read(sink, writer, reader, opening)

    def _survey(self, name: str, epoch: Epoch) -> Survey | None:
        """Return the image of a standby at an epoch; None where it is not there whole."""
        if (name, epoch) in self._surveys:
            return self._surveys[name, epoch]
        engine, opening = self._inquiry.engine, self._inquiry.adapters.open_storage
        job, survey = self._jobs[name], None
        with suppress(StateshiftError):
            if epoch is None:
                _, survey = engine.survey(job.source, opening)
            else:
                job = _planned_anew(job, epoch)
                _, survey = survey_taken_over(engine, job, opening, epoch)
        self._surveys[name, epoch] = survey
        return survey

    def _kept(self, name: str, epoch: Epoch) -> KeptEpoch | None:
        state = self._states[name]
        if state is None:
            return None
        if epoch is None:
            return KeptEpoch(-1, state.committed_at, state.at, read_up_to=state.read_up_to)
        kept = (*state.coming, *state.kept)
        return next((each for each in kept if each.epoch == epoch), None)


def _from(job: JobSpec, epoch: int) -> JobSpec:
    assert job.takes_over is not None, "a job that starts from its standby"
    return replace(job, takes_over=replace(job.takes_over, epoch=epoch))


def _planned_anew(job: JobSpec, epoch: int) -> JobSpec:
    """Return a job that starts from an epoch, and plans the batch after it anew: with the offsets
    that this batch had, the job would have read as much as at the later epoch.
    """
    return replace(_from(job, epoch), planned_batch="drop")
