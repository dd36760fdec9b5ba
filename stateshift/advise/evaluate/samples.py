"""The measurements of a Flink job, and those of them that count.

    JobSample           one look at a job, at a time
      VertexSample        counters since the job's last start; the lag of a source
        SubtaskSample       the same counters of one subtask

Counters make two samples exact: the difference is a mean over all that happened between. A sample
of before the last start is void, as is one of another parallelism or of a job of another id. Where
a counter goes back, as after the restart of one subtask alone, the samples that follow count:
nothing tells what the subtask had done since the last look when it was restarted.

Flink answers with the values that it fetched from its tasks last, up to ten seconds ago. The busy,
idle and backpressured time of a task together tell how long it had run by then: rates are taken by
that clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stateshift.advise.evaluate.settings import Settings

# The clock of a subtask may go back by less than this without a restart: it is a sum of three times
# that are not read at one moment.
_UNSTEADY_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Input:
    """An edge: the vertex that sends, and its way (`HASH`, `FORWARD`, `REBALANCE`, …)."""

    vertex: str
    ship_strategy: str = ""


@dataclass(frozen=True, slots=True)
class SubtaskSample:
    """Counters of a subtask since its start. Three times add up to its own clock; None is not told,
    or NaN. `attempt` counts its starts.
    """

    records_in: float | None
    busy_ms: float | None
    idle_ms: float | None
    backpressured_ms: float | None
    attempt: int | None = None

    @property
    def clock_ms(self) -> float | None:
        """Return the time for which it had run when its counters were taken."""
        if self.busy_ms is None or self.idle_ms is None or self.backpressured_ms is None:
            return None
        return self.busy_ms + self.idle_ms + self.backpressured_ms


@dataclass(frozen=True, slots=True)
class VertexSample:
    """A chain of operators. `records_in` of a source is what its reader took in. `lag` is how many
    records wait in front of a source, `partitions` how many partitions it reads; both None where
    the source does not tell. `counted_at` is when its counters were taken, in seconds since 1970.
    """

    id: str
    name: str
    parallelism: int
    parallelism_max: int | None
    inputs: tuple[Input, ...]
    records_in: float | None
    records_out: float | None
    subtasks: tuple[SubtaskSample, ...]
    lag: float | None = None
    partitions: int | None = None
    counted_at: float | None = None

    @property
    def is_source(self) -> bool:
        return not self.inputs


@dataclass(frozen=True, slots=True)
class JobSample:
    """One look at a job. Times are seconds since 1970 by the JobManager's clock; `started` is when
    it was last (re)started.
    """

    time: float
    job_id: str
    started: float
    vertices: tuple[VertexSample, ...]


@dataclass(frozen=True, slots=True)
class Unusable:
    """The reason for which nothing can be told from some samples, and the way out."""

    why: str


def usable(
    samples: Sequence[JobSample], now: float, settings: Settings
) -> tuple[JobSample, ...] | Unusable:
    """Return the samples that count, oldest first: at least two; or why there are none."""
    if not samples:
        return Unusable("nothing was measured")
    last = max(samples, key=lambda sample: sample.time)
    if not last.vertices:
        return Unusable("the job has no vertices")
    age = now - last.time
    if age > settings.sample_age_max:
        return Unusable(
            f"the last sample is {age:.0f} s old, of {settings.sample_age_max:.0f} s that it may "
            "be (sample.age-max)"
        )
    missing = next(_missing(last), None)
    if missing is not None:
        return Unusable(missing)
    whole = [sample for sample in samples if next(_missing(sample), None) is None]
    same_run = [sample for sample in whole if is_of_run(sample, last)]
    begun = last.started + settings.stabilization_interval
    settled = [sample for sample in same_run if sample.time >= begun]
    settled.sort(key=lambda sample: sample.time)
    in_window = _in_window(settled, settings)
    if len(in_window) < 2:
        return Unusable(_too_few(samples, settled, last, settings))
    following, damage = _after_damage(in_window, settings)
    if len(following) < 2:
        return Unusable(damage)
    # Flink may have gathered nothing between two looks: the second tells the first again.
    anew = [following[0]]
    for later in following[1:]:
        if not _unchanged(anew[-1], later):
            anew.append(later)
    if len(anew) < 2:
        names = _unchanged(following[0], following[-1])
        return Unusable(f"{names[0]}: Flink gathered nothing new between two samples")
    return tuple(anew)


def is_of_run(sample: JobSample, last: JobSample) -> bool:
    """Whether a sample is of the last one's run: not before its start, with as many subtasks."""
    if sample.job_id != last.job_id or sample.started != last.started:
        return False
    widths = [(vertex.id, vertex.parallelism) for vertex in sample.vertices]
    return widths == [(vertex.id, vertex.parallelism) for vertex in last.vertices]


def _in_window(settled: Sequence[JobSample], settings: Settings) -> list[JobSample]:
    """Return the samples of the last window; of a cron job that runs more seldom, the last two."""
    if not settled:
        return []
    last = settled[-1].time
    within = [sample for sample in settled if sample.time >= last - settings.metrics_window]
    if len(within) > 1 or len(settled) < 2:
        return within
    before = settled[-2]
    if last - before.time > settings.sample_age_max:
        return within
    return [before, *within]


def _after_damage(samples: Sequence[JobSample], settings: Settings) -> tuple[list[JobSample], str]:
    """Return the newest samples between which nothing went back, and the damage before them; "" if
    there was none. Subtasks that were restarted alone count once they have settled, as a job does.
    """
    for number in range(len(samples) - 1, 0, -1):
        earlier, later = samples[number - 1], samples[number]
        restarts = _restarts_between(earlier, later)
        if restarts:
            settled = max(restart.at for restart in restarts) + settings.stabilization_interval
            following = [sample for sample in samples[number:] if sample.time >= settled]
            first = restarts[0]
            ago = max(0.0, samples[-1].time - first.at)
            return following, (
                f"{first.vertex.name}: subtask {first.number} of {first.vertex.parallelism} was "
                f"restarted alone {ago:.0f} s ago; it takes two samples from "
                f"{settings.stabilization_interval:.0f} s after that on (stabilization.interval)"
            )
        if later.time <= earlier.time:
            return list(samples[number:]), "two samples have the same time"
        for before, after in zip(earlier.vertices, later.vertices, strict=True):
            for (what, was), (_, now) in zip(_growing(before), _growing(after), strict=True):
                if was is not None and now is not None and now < was:
                    damage = f"{after.name}: {what} went back from {was:.0f} to {now:.0f}"
                    return list(samples[number:]), damage
    return list(samples), ""


@dataclass(frozen=True, slots=True)
class _Restart:
    """A subtask that was restarted, and the time of that."""

    vertex: VertexSample
    number: int
    at: float


def _restarts_between(earlier: JobSample, later: JobSample) -> list[_Restart]:
    """Return the subtasks that were restarted alone between two samples; none if all were."""
    restarts, count = [], 0
    for before, after in zip(earlier.vertices, later.vertices, strict=True):
        for number, (was, now) in enumerate(zip(before.subtasks, after.subtasks, strict=True)):
            count += 1
            has_attempts = was.attempt is not None and now.attempt is not None
            is_next = has_attempts and was.attempt != now.attempt
            if is_next or (now.clock_ms or 0.0) < (was.clock_ms or 0.0) - _UNSTEADY_MS:
                restarts.append(_Restart(after, number, later.time - (now.clock_ms or 0.0) / 1000))
    return restarts if len(restarts) < count else []


def _unchanged(earlier: JobSample, later: JobSample) -> list[str]:
    """Return the vertices of which a subtask's clock stood still between two samples."""
    names = []
    for before, after in zip(earlier.vertices, later.vertices, strict=True):
        clocks = zip(before.subtasks, after.subtasks, strict=True)
        if any(one.clock_ms == other.clock_ms for one, other in clocks):
            names.append(after.name)
    return names


def _too_few(
    samples: Sequence[JobSample], settled: Sequence[JobSample], last: JobSample, settings: Settings
) -> str:
    runs_for = last.time - last.started
    if not settled:
        return (
            f"the job runs for {runs_for:.0f} s; samples count from "
            f"{settings.stabilization_interval:.0f} s on (stabilization.interval)"
        )
    if len(settled) > 1:
        apart = settled[-1].time - settled[-2].time
        return (
            f"the last two samples are {apart:.0f} s apart, of {settings.sample_age_max:.0f} s "
            "that they may be (sample.age-max)"
        )
    if len(samples) > 1:
        return "one sample counts since the job was started, or changed: it takes two"
    return "there is one sample: it takes two"


def _missing(sample: JobSample) -> Iterator[str]:
    """Yield the facts that a decision needs and a sample does not tell."""
    for vertex in sample.vertices:
        if len(vertex.subtasks) != vertex.parallelism:
            told = f"{len(vertex.subtasks)} of {vertex.parallelism} subtasks"
            yield f"{vertex.name}: Flink tells of {told}"
        counters = [("records in", vertex.records_in), ("records out", vertex.records_out)]
        for subtask in vertex.subtasks:
            counters.append(("busy time", subtask.busy_ms))
            counters.append(("backpressured time", subtask.backpressured_ms))
            counters.append(("idle time", subtask.idle_ms))
        for what, value in counters:
            if value is None:
                yield f"{vertex.name}: Flink tells no {what}"
            elif not math.isfinite(value):
                yield f"{vertex.name}: {what} is no number"


def _growing(vertex: VertexSample) -> Iterator[tuple[str, float | None]]:
    """Yield a vertex's counters that only grow. Busy time is the rest of the clock, and Flink adds
    to the others later (TaskIOMetricGroup, TimerGauge).
    """
    yield "records in", vertex.records_in
    yield "records out", vertex.records_out
    for subtask in vertex.subtasks:
        yield "the time that it runs", subtask.clock_ms
        yield "backpressured time", subtask.backpressured_ms
        yield "idle time", subtask.idle_ms
