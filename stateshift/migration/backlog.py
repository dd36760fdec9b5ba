"""Jobs that stop at one cut: a job that reads what others of them write goes on until it has read
all of it.

Nothing is then left between them: the other has read before the change what the one has written.
Only topics can be asked for their ends, by the brokers that the spec names (`kafka`), and only
Spark's checkpoints tell the progress of a job while it runs. Else a line says so, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stateshift.errors import ClusterError, Interrupted, StateshiftError, StorageError
from stateshift.migration.context import RunContext
from stateshift.migration.wave_order import cuts_of
from stateshift.specification import JobSpec, Spec
from stateshift.specification.job_relations import sharing
from stateshift.step import StopJob
from stateshift.step.starting import OVER

POLL_SECONDS = 1.0

Place = tuple[str, int]  # topic and partition


def parts(spec: Spec, wave: Sequence[JobSpec]) -> list[list[JobSpec]]:
    """Return the jobs in parts, in the order of their cuts; jobs in no cut are in the first."""
    rank_of: dict[str, int] = {}
    for cut in cuts_of(spec, [job.name for job in wave]):
        for rank, part in enumerate(cut.order):
            rank_of |= dict.fromkeys(part, rank)
    made: list[list[JobSpec]] = [[] for _ in range(1 + max(rank_of.values(), default=0))]
    for job in wave:
        made[rank_of.get(job.name, 0)].append(job)
    return made


def reads_out(spec: Spec, job: JobSpec) -> bool:
    """Whether anybody can tell that the job has read everything."""
    return spec.engine == "spark" and job.kafka is not None


@dataclass(eq=False)
class Backlog:
    """One application, by the job that stops it: the queries of all the jobs that share it."""

    context: RunContext
    job: JobSpec
    stop: StopJob
    # The next offset of a query.
    _read: dict[tuple[str, Place], int] = field(default_factory=dict, init=False)
    _had: set[Place] | None = field(default=None, init=False)  # what there was while all jobs ran
    _awaited: dict[Place, int] | None = field(default=None, init=False)  # how far the topics go

    def first_look(self) -> None:
        """Ask while all jobs run: nobody stops for brokers that cannot be asked."""
        try:
            self._look()
            self._had = set(self._ends())
        except Interrupted:
            raise
        except StateshiftError as error:
            hint = f'nothing was stopped; without "kafka" {self.job.name} is not waited for'
            if error.hint:
                hint = f"{error.hint}; {hint}"
            raise error.with_hint(hint) from error

    def wait(self) -> None:
        """Wait until the job has read what its topics held when this began, or has ended."""
        clock = self.context.adapters.clock
        until = clock.now() + self.stop.seconds_max
        while True:
            began = clock.now()
            trouble = ""
            try:
                cluster = self.context.world.cluster(self.stop.cluster)
                has_ended = cluster.find_source(self.stop.request).state in OVER
                self._look()
                if self._awaited is None:
                    self._awaited = self._ends()
                    self._begin(self._awaited)
            except Interrupted:
                raise
            except StateshiftError as error:
                # The job may have tidied up a file that we read, and brokers may be busy.
                trouble = error.fact
            left = self._left()
            if not trouble and (has_ended or not left):
                if left:
                    self.context.say(
                        f"{self.job.name} has ended before it had read all: {left:,} records are "
                        "left for later"
                    )
                return
            if clock.now() >= until:
                raise self._in_vain(left, trouble)
            self.context.world.check_interrupted()
            clock.sleep(max(POLL_SECONDS, clock.now() - began))

    def _begin(self, ends: Mapping[Place, int]) -> None:
        """Say once what is waited for."""
        name = self.job.name
        if not self._read:
            self.context.say(
                f"{name} reads no topic: it is stopped now, whatever it has not read yet"
            )
            return
        self.context.say(
            f"{name} is stopped when it has read what there is ({self._left():,} records)"
        )
        unread = sorted(self._unknown(ends) & (self._had or set()))
        if unread:
            names = ", ".join(f"{topic}/{number}" for topic, number in unread[:3])
            more = f" and {len(unread) - 3} more" if len(unread) > 3 else ""
            self.context.say(
                f"not waited for: {names}{more}, of which {name} has read nothing so far"
            )

    def _unknown(self, ends: Mapping[Place, int]) -> set[Place]:
        """Return the partitions of which no query has read anything."""
        return ends.keys() - {place for _, place in self._read}

    def _left(self) -> int:
        """Return the number of unread records. The job finds a new partition in its next batch."""
        ends = self._awaited or {}
        left = 0
        for (_, place), offset in self._read.items():
            left += max(0, ends.get(place, 0) - offset)
        if self._had is not None:
            topics = {topic for _, (topic, _) in self._read}
            new = [place for place in self._unknown(ends) - self._had if place[0] in topics]
            left += sum(ends[place] for place in new)
        return left

    def _look(self) -> None:
        """Find the offsets of every query by its last commit. No query goes back."""
        context, job = self.context, self.job
        _, survey = context.engine.survey(job.source, context.adapters.open_storage)
        for other in (job, *sharing(context.spec, job)):
            for image in context.engine.own_part(context.spec, other, survey).images:
                for finding in image.findings:
                    if finding.is_damage:
                        raise StorageError(finding.message, location=job.source)
                for endpoint in image.endpoints:
                    for topic, offsets in endpoint.offsets.items():
                        for number, offset in offsets.items():
                            self._read[image.path, (topic, number)] = offset

    def _ends(self) -> dict[Place, int]:
        """Return the ends of its topics by now. Records that are written later are not awaited."""
        topics = sorted({topic for _, (topic, _) in self._read})
        if not topics:
            return {}
        assert self.job.kafka is not None, "who cannot ask does not wait"
        ends: dict[Place, int] = {}
        for topic, spans in self.context.adapters.ask_topics(self.job.kafka, topics).items():
            for number, (_, end) in spans.items():
                ends[topic, number] = end
        return ends

    def _in_vain(self, left: int, trouble: str) -> ClusterError:
        name = self.job.name
        waited = f"{self.stop.seconds_max:.0f} s after what writes them was stopped"
        fact = f"{name} still has {left:,} records to read, {waited}"
        if trouble:
            fact = f"whether {name} has read everything is not known, {waited}: {trouble}"
        hint = (
            "once it has read them: `stateshift resume WORKDIR`; `stateshift rollback WORKDIR` "
            'lets the others go on where they were. "stop": {"seconds_max": …} in the spec says '
            "how long to wait"
        )
        return ClusterError(fact, cluster=self.stop.cluster, job=name, hint=hint)
