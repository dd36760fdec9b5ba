"""Jobs that stop at one cut: whoever reads what others of them write goes on until it has read all of it.

    parts(spec, wave)            the jobs of a wave in parts, each stopped when those before it are
    Draining(run).wait(step)     return when a job has read what its topics hold, or there is no use in waiting

What the one has written before the change is then read by the other before the change, too: nothing is left between
them. Only topics can be asked how far they go, by the brokers that the spec names (`kafka`), and only Spark's
checkpoints tell how far a job has come while it runs. Where that is not so it is said, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stateshift.engines.registry import engine
from stateshift.errors import ClusterError
from stateshift.migration.together import cuts_of
from stateshift.migration.working import Working
from stateshift.spec import JobSpec, Spec
from stateshift.step import StopJob
from stateshift.survey import Survey

POLL_SECONDS = 1.0

Offsets = Mapping[tuple[str, int], int]  # by topic and partition, the next to be read


def parts(spec: Spec, wave: Sequence[JobSpec]) -> list[list[JobSpec]]:
    """Jobs that are in no cut are stopped with the first."""
    ranks = {
        name: rank for cut in cuts_of(spec, [job.name for job in wave])
        for rank, part in enumerate(cut.order) for name in part
    }  # fmt: skip
    every = range(1 + max(ranks.values(), default=0))
    return [[job for job in wave if ranks.get(job.name, 0) == rank] for rank in every]


def reads_out(spec: Spec, job: JobSpec) -> bool:
    """Whether anybody can tell that the job has read everything."""
    return spec.engine == "spark" and job.kafka is not None


class Draining:
    def __init__(self, run: Working) -> None:
        self.run = run

    def wait(self, job: JobSpec, stop: StopJob) -> None:
        run = self.run
        read = _read(self._survey(job)) if reads_out(run.spec, job) else {}
        if not read:
            run.say(f"{job.name} is stopped now: nobody here can ask whether it has read all that was written before")
            return
        ends, until = self._ends(job, read), run.doors.clock.now() + stop.seconds_max
        run.say(f"{job.name} is stopped when it has read what there is ({_left(read, ends):,} records)")
        while left := _left(read, ends):
            if not run.world.cluster(stop.cluster).find_source(stop.request).state.alive:
                run.say(f"{job.name} has ended before it had read all: {left:,} records are left for later")
                return
            if run.doors.clock.now() >= until:
                raise ClusterError(
                    f"{job.name} still has {left:,} records to read, {stop.seconds_max:.0f} s after what writes them "
                    "was stopped",
                    cluster=stop.cluster, job=job.name,
                    hint="once it has read them: `stateshift resume WORKDIR`; `stateshift rollback WORKDIR` lets the "
                    'others go on where they were. "stop": {"seconds_max": …} in the spec says how long to wait',
                )  # fmt: skip
            run.world.check_interrupted()
            run.doors.clock.sleep(POLL_SECONDS)
            read = _read(self._survey(job))

    def _survey(self, job: JobSpec) -> Survey:
        return engine(self.run.spec.engine).survey(job.source, self.run.doors.open_storage)[1]

    def _ends(self, job: JobSpec, read: Offsets) -> Offsets:
        """How far its topics go by now. What is written later is not waited for."""
        topics = sorted({topic for topic, _ in read})
        assert job.kafka is not None, "who cannot ask does not wait"
        spans = self.run.doors.ask_topics(job.kafka, topics)
        return {(topic, number): end for topic, found in spans.items() for number, (_, end) in found.items()}


def _read(survey: Survey) -> Offsets:
    """How far every query of the job has come, by the last batch that it has committed."""
    read: dict[tuple[str, int], int] = {}
    for topic, number, offset in _told(survey):
        read[topic, number] = min(offset, read.get((topic, number), offset))
    return read


def _told(survey: Survey) -> Iterator[tuple[str, int, int]]:
    for image in survey.images:
        for endpoint in image.endpoints:
            for topic, offsets in endpoint.offsets.items():
                yield from ((topic, number, offset) for number, offset in offsets.items())


def _left(read: Offsets, ends: Offsets) -> int:
    """A partition that the job has not begun with holds what it has from its first offset on, which nobody knows here:
    the job finds it by itself, and tells of it in its next batch."""
    return sum(max(0, end - read[place]) for place, end in ends.items() if place in read)
