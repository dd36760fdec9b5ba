"""Jobs that stop at one cut: whoever reads what others of them write goes on until it has read all
of it.

    parts(spec, wave)              the jobs of a wave in parts, each stopped when those before it
                                   are
    reader = Backlog(context, job, stop)
    reader.first_look()            while everybody runs: whether anybody can be asked
    reader.wait()                  return when the job has read what its topics hold, or there is no
                                   use in waiting

What the one has written before the change is then read by the other before the change, too: nothing
is left between them. Only topics can be asked how far they go, by the brokers that the spec names
(`kafka`), and only Spark's checkpoints tell how far a job has come while it runs. Where that is not
so it is said, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stateshift.clusters.protocol import JobState
from stateshift.errors import ClusterError, Interrupted, StateshiftError, StorageError
from stateshift.migration.context import RunContext
from stateshift.migration.wave_order import cuts_of
from stateshift.specification import JobSpec, Spec
from stateshift.specification.waves import sharing
from stateshift.step import StopJob

POLL_SECONDS = 1.0
OVER = (JobState.FINISHED, JobState.FAILED, JobState.ABSENT)

Place = tuple[str, int]  # topic and partition


def parts(spec: Spec, wave: Sequence[JobSpec]) -> list[list[JobSpec]]:
    """Jobs that are in no cut are stopped with the first."""
    ranks = {
        name: rank
        for cut in cuts_of(spec, [job.name for job in wave])
        for rank, part in enumerate(cut.order)
        for name in part
    }
    every = range(1 + max(ranks.values(), default=0))
    return [[job for job in wave if ranks.get(job.name, 0) == rank] for rank in every]


def reads_out(spec: Spec, job: JobSpec) -> bool:
    """Whether anybody can tell that the job has read everything."""
    return spec.engine == "spark" and job.kafka is not None


class Backlog:
    """One application, by the job that stops it: the queries of all the jobs that share it."""

    def __init__(self, context: RunContext, job: JobSpec, stop: StopJob) -> None:
        self.context, self.job, self.stop = context, job, stop
        self._read: dict[tuple[str, Place], int] = {}  # of a query, the next offset
        self._had: set[Place] | None = None  # what there was while everybody ran

    def first_look(self) -> None:
        """What cannot be asked now could not be asked when others have stopped either: nobody
        stops for it.
        """
        try:
            self._look()
            self._had = set(self._ends())
        except Interrupted:
            raise
        except StateshiftError as error:
            nothing = f'nothing was stopped; without "kafka" {self.job.name} is not waited for'
            hint = f"{error.hint}; {nothing}" if error.hint else nothing
            raise error.with_hint(hint) from error

    def wait(self) -> None:
        clock, until = (
            self.context.doors.clock,
            self.context.doors.clock.now() + self.stop.seconds_max,
        )
        ends: dict[Place, int] | None = None
        while True:
            began, trouble, state = clock.now(), "", JobState.UNKNOWN
            try:
                state = (
                    self.context.world.cluster(self.stop.cluster)
                    .find_source(self.stop.request)
                    .state
                )
                self._look()
                if ends is None:
                    ends = self._ends()
                    self._begin(ends)
            except Interrupted:
                raise
            except (
                StateshiftError
            ) as error:  # what a job writes may be gone when we read it, and brokers may be busy
                trouble = error.fact
            left = self._left(ends or {})
            if not trouble and not left:
                return
            if state in OVER and not trouble:
                self.context.say(
                    f"{self.job.name} has ended before it had read all: {left:,} records "
                    "are left for later"
                )
                return
            if clock.now() >= until:
                raise self._in_vain(left, trouble)
            self.context.world.check_interrupted()
            clock.sleep(max(POLL_SECONDS, clock.now() - began))

    def _begin(self, ends: Mapping[Place, int]) -> None:
        if not self._read:
            self.context.say(
                f"{self.job.name} reads no topic: it is stopped now, whatever it has not read yet"
            )
            return
        self.context.say(
            f"{self.job.name} is stopped when it has read what there is "
            f"({self._left(ends):,} records)"
        )
        known = {place for _, place in self._read}
        strange = sorted(
            place
            for place in ends
            if place not in known and self._had is not None and place in self._had
        )
        if strange:
            names = ", ".join(f"{topic}/{number}" for topic, number in strange[:3])
            more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
            self.context.say(
                f"not waited for: {names}{more}, of which {self.job.name} has read nothing so far"
            )

    def _left(self, ends: Mapping[Place, int]) -> int:
        """A partition that came while we looked on is the job's to find; it tells of it in its
        next batch.
        """
        known = {place for _, place in self._read}
        topics = {topic for topic, _ in known}
        new = (
            end
            for place, end in ends.items()
            if place[0] in topics
            and place not in known
            and self._had is not None
            and place not in self._had
        )
        return sum(
            max(0, ends[place] - read) for (_, place), read in self._read.items() if place in ends
        ) + sum(new)

    def _look(self) -> None:
        """How far every query has come, by the last batch that it has committed. What one look does
        not find stays as it was: nobody goes back.
        """
        for query, place, offset in self._told():
            self._read[query, place] = offset

    def _told(self) -> Iterator[tuple[str, Place, int]]:
        context, job = self.context, self.job
        _, survey = context.engine.survey(job.source, context.doors.open_storage)
        for one in (job, *sharing(context.spec, job)):
            for image in context.engine.own_part(context.spec, one, survey).images:
                wrong = next(
                    (found for found in image.findings if found.level == "refuse" and found.path),
                    None,
                )
                if wrong is not None:
                    raise StorageError(wrong.message, location=job.source)
                for endpoint in image.endpoints:
                    for topic, offsets in endpoint.offsets.items():
                        yield from (
                            (image.path, (topic, number), offset)
                            for number, offset in offsets.items()
                        )

    def _ends(self) -> dict[Place, int]:
        """How far its topics go by now. What is written later is not waited for."""
        topics = sorted({topic for _, (topic, _) in self._read})
        if not topics:
            return {}
        assert self.job.kafka is not None, "who cannot ask does not wait"
        spans = self.context.doors.ask_topics(self.job.kafka, topics)
        return {
            (topic, number): end
            for topic, found in spans.items()
            for number, (_, end) in found.items()
        }

    def _in_vain(self, left: int, trouble: str) -> ClusterError:
        waited = f"{self.stop.seconds_max:.0f} s after what writes them was stopped"
        told = f"{self.job.name} still has {left:,} records to read, {waited}"
        if trouble:
            told = (
                f"whether {self.job.name} has read everything cannot be told, {waited}: {trouble}"
            )
        return ClusterError(
            told,
            cluster=self.stop.cluster,
            job=self.job.name,
            hint="once it has read them: `stateshift resume WORKDIR`; `stateshift rollback "
            "WORKDIR` lets the others go "
            'on where they were. "stop": {"seconds_max": …} in the spec says how long to wait',
        )
