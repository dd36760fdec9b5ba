"""The load of a Spark job, read from its batches: the checkpoint is the history.

    SparkSample    one look: the last batches, the records that wait in Kafka, the parts of its work
      PlannedBatch   its plan's and its commit's time, the records that it read
      StateShards    the bytes of its state over partitions, each of which is the work of one task:
                     while one of them has most of the state, more cores wait for it
      DriverReport   the driver's view of its application, of which a checkpoint tells nothing

    records of a batch    the difference of two offset logs
    batch time            planned (`batchTimestampMs`) -> committed (the commit log's mtime)
    busy                  batch time / time between the starts of batches
    true rate             records / batch time

A job without a trigger interval starts a batch as soon as the last has ended. It is busy all the
time, however little there is to do: only the records that wait in Kafka tell then whether it keeps
up.

Batches in real-time mode take as long as the trigger says. What was read in one shows when it ends:
until then it counts as waiting, as far as the query reads on as it did in the last one.

Only batches in step count: from the last on at which a clock was set, or the query went on with
another driver.

A query that tells of its own batches (`stateshift.job`) makes even that telling: the part of a
batch in which its records are worked on is the most that it needs to be busy, if it has read all
that waited, and the records that waited when each batch was planned say whether that grows.

The cores of a query are known from these, in the order in which they are believed:

    option    whoever runs the command (`--cores`)
    driver    the page of the driver
    query     the query itself, where its job runs it with `stateshift.job`
    spec      `conf` of the submission in the spec: it asks for them
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import linear_regression
from typing import Final, Literal

from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.samples import Unusable
from stateshift.advise.evaluate.settings import Settings

# From this share on, batches follow each other without a pause.
BACK_TO_BACK: Final = 0.95
# A commit may be as much later than the next batch's start, by a storage's and a driver's clock.
CLOCKS_APART_SECONDS: Final = 1.0
# Spark tells times in milliseconds.
ROUNDED_SECONDS: Final = 0.01
# A job whose cores nobody told is counted in hundredths of those that it has.
HUNDREDTHS: Final = 100
QUERY: Final = "query"
# As many batches have to tell what waited before them: one of them alone may have been held up.
TOLD_MIN: Final = 5

CoresSource = Literal["option", "driver", "query", "spec"]


@dataclass(frozen=True, slots=True)
class StateShards:
    """The bytes of the operator with the largest state, and of its largest partition."""

    operator: str
    partitions: int
    bytes: int
    largest: int
    largest_bytes: int

    @property
    def skew(self) -> float:
        """Return the size of the largest partition, in times the mean."""
        return self.largest_bytes * self.partitions / self.bytes


@dataclass(frozen=True, slots=True)
class DriverReport:
    """A look at a driver. Rates, of the last trigger, need `spark.sql.streaming.metricsEnabled`."""

    application: str
    executors: int
    cores: int
    input_rate: float | None = None
    processing_rate: float | None = None
    batch_seconds: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch that was planned. Times are seconds since 1970: the driver's of its start, the
    storage's of its commit. `records` is None where its sources do not tell by their offsets. The
    rest is known of a query that tells of itself: for how long it worked on the records, and what
    waited when the batch was planned, its own records among it.
    """

    id: int
    started: float
    committed: float | None
    records: int | None
    work_seconds: float | None = None
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class SparkSample:
    """One look at a checkpoint and the brokers. `lag` is what waits in the topics, None where no
    brokers were asked. `partitions` are the topics', `state_partitions` those of the state. A query
    that tells of itself also tells its `cores` and `state_rows`. `driver` is what its driver says,
    `driver_trouble` why that says nothing; both are empty where nobody named the driver. `shards`
    is how the state is spread, None of a query without one. `real_time_seconds` is the length of a
    batch in real-time mode, None in any other.
    """

    time: float
    batches: tuple[PlannedBatch, ...]
    lag: int | None = None
    partitions: int | None = None
    state_partitions: int | None = None
    cores: int | None = None
    state_rows: int | None = None
    driver: DriverReport | None = None
    driver_trouble: str = ""
    shards: StateShards | None = None
    real_time_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class QueryLoad:
    """A query's load. `back_to_back`: no pauses tell it. `counted`: rates are records, else shares
    of time. `worked`: the share of time with records. `real_time`: the query is in real-time mode.
    """

    load: VertexLoad
    back_to_back: bool
    counted: bool
    lag_known: bool  # what waits was seen twice
    seconds: float
    batches: int
    worked: float | None = None
    state_rows: int | None = None
    real_time: bool = False


def waiting_now(sample: SparkSample) -> int | None:
    """Return the records that wait, without those that a batch in real-time mode has read since the
    last commit. It is taken to read as fast as the batch before.
    """
    done = [batch for batch in sample.batches if batch.committed is not None]
    if sample.lag is None or sample.real_time_seconds is None or not done:
        return sample.lag
    last = max(done, key=lambda batch: batch.id)
    rate = (last.records or 0) / sample.real_time_seconds
    return max(0, sample.lag - int(rate * (sample.time - (last.committed or 0.0))))


def query_load(
    samples: Sequence[SparkSample],
    now: float,
    settings: Settings,
    cores: int | None,
    since: float | None = None,
) -> QueryLoad | Unusable:
    """Return a query's load over its last window, or why it is not known. `since`: its start."""
    begun = -math.inf if since is None else since
    in_order = sorted(samples, key=lambda sample: sample.time)
    in_order = [sample for sample in in_order if sample.time >= begun]
    if not in_order:
        return Unusable("nothing was measured")
    last = in_order[-1]
    if now - last.time > settings.sample_age_max:
        return Unusable(f"the last sample is {now - last.time:.0f} s old (sample.age-max)")
    of_run = [batch for batch in last.batches if batch.started >= begun]
    batches, step = _in_step(recent(of_run, settings))
    problem = _problem(batches, step, now, settings)
    if problem is not None:
        return Unusable(problem)
    # None where too few tell.
    known = _with_waiting(batches)
    if len(known) < TOLD_MIN:
        lag_rate = None
    else:
        times = [batch.started for batch in known]
        waiting = [batch.waiting or 0 for batch in known]
        lag_rate = linear_regression(times, waiting).slope
    if lag_rate is None:
        lag_rate = _lag_rate(in_order, settings)
    return _measured(batches, last, lag_rate, cores)


def shows_growth(sample: SparkSample, settings: Settings) -> bool:
    """Whether this look alone shows whether what waits grows."""
    batches, _ = _in_step(recent(sample.batches, settings))
    return len(_with_waiting(batches)) >= TOLD_MIN


def recent(batches: Sequence[PlannedBatch], settings: Settings) -> list[PlannedBatch]:
    """Return the newest batches in a row, of the last window; at least the last two."""
    in_order = sorted(batches, key=lambda batch: batch.id)
    done = [batch for batch in in_order if batch.committed is not None]
    following: list[PlannedBatch] = done[-1:]
    for earlier, later in reversed(list(pairwise(done))):
        too_old = earlier.started < done[-1].started - settings.metrics_window
        if later.id != earlier.id + 1 or (too_old and len(following) > 1):
            break
        following.insert(0, earlier)
    return following


def _in_step(batches: Sequence[PlannedBatch]) -> tuple[list[PlannedBatch], str]:
    """Return the newest batches in step by their times, and the fault before them, or ""."""
    for number in range(len(batches) - 1, 0, -1):
        step = _step_between(batches[number - 1], batches[number])
        if step:
            return list(batches[number:]), step
    return list(batches), ""


def _step_between(earlier: PlannedBatch, later: PlannedBatch) -> str:
    """Return the fault of two batches that cannot be by one clock; "" if there is none."""
    if later.started <= earlier.started:
        return f"batch {later.id} is planned before batch {earlier.id}: the driver's clock was set"
    late = (earlier.committed or 0.0) - later.started
    if late <= CLOCKS_APART_SECONDS:
        return ""
    return (
        f"batch {earlier.id} is committed {late:.1f} s after batch {later.id} was planned: "
        "the storage's clock is not the driver's"
    )


def _problem(
    batches: Sequence[PlannedBatch], step: str, now: float, settings: Settings
) -> str | None:
    if len(batches) < 2:
        few = f"it takes two committed batches that follow each other, of {len(batches)} here"
        return step or few
    silent = now - (batches[-1].committed or 0.0)
    if silent > settings.sample_age_max:
        return (
            f"no batch was committed for {silent:.0f} s (sample.age-max): the job may be stopped, "
            "or has nothing to read"
        )
    return next((fault for fault in map(_fault, batches) if fault is not None), None)


def _fault(batch: PlannedBatch) -> str | None:
    """Return the fault of a batch that was committed, if there is one."""
    took = (batch.committed or 0.0) - batch.started
    if took < 0:
        return (
            f"batch {batch.id} is committed {-took:.1f} s before it was planned: the storage's "
            "clock is not the driver's"
        )
    if batch.records is not None and batch.records < 0:
        return f"the offsets of batch {batch.id} go back"
    if batch.work_seconds is not None and not 0 <= batch.work_seconds <= took + ROUNDED_SECONDS:
        return f"batch {batch.id} worked for {batch.work_seconds:.1f} s of {took:.1f} s"
    if batch.waiting is not None and batch.waiting < (batch.records or 0):
        return f"batch {batch.id} read more records than were waiting"
    return None


def _measured(
    batches: Sequence[PlannedBatch], last: SparkSample, lag_rate: float | None, cores: int | None
) -> QueryLoad:
    """Return the load over whole intervals: from a batch's start to the next one's."""
    whole = batches[:-1]
    seconds = batches[-1].started - batches[0].started
    real_time = last.real_time_seconds is not None
    busy = 1.0 if real_time else min(1.0, sum(map(_took, whole)) / seconds)
    if busy >= BACK_TO_BACK:
        busy = min(1.0, sum(map(_seconds_needed, whole)) / seconds)
    # The share of time for which the query worked on records.
    known = [batch.work_seconds for batch in whole if batch.work_seconds is not None]
    worked = min(1.0, sum(known) / seconds) if len(known) == len(whole) else None
    lag: float | None = last.lag  # as the brokers have it, else what the last batch has left
    newest = batches[-1]
    if lag is None and newest.waiting is not None:
        lag = max(0, newest.waiting - (newest.records or 0))
    records = sum(batch.records or 0 for batch in whole)
    # Spark counts no records at all of a plan that it cannot match with its sources.
    counted = records > 0 and all(batch.records is not None for batch in whole)
    load = VertexLoad(
        id=QUERY,
        name=QUERY,
        parallelism=cores or HUNDREDTHS,
        parallelism_max=None,
        inputs=(),
        input_rate=records / seconds if counted else 1.0,
        output_rate=0.0,
        busy=busy,
        lag=lag if counted else None,
        lag_rate=(lag_rate or 0.0) if counted else 0.0,
        busy_mean=busy,
    )
    return QueryLoad(
        load=load,
        back_to_back=busy >= BACK_TO_BACK,
        counted=counted,
        lag_known=lag_rate is not None and counted,
        seconds=seconds,
        batches=len(whole),
        worked=worked,
        state_rows=last.state_rows,
        real_time=real_time,
    )


def _took(batch: PlannedBatch) -> float:
    return (batch.committed or 0.0) - batch.started


def _seconds_needed(batch: PlannedBatch) -> float:
    """Return the most that a batch with no pause behind it has needed. One that has read all could
    have been larger: its idle time counts once. Others may be as large as they can be.
    """
    if batch.work_seconds is None or batch.waiting is None:
        return _took(batch)
    if batch.waiting > (batch.records or 0):
        return _took(batch)
    return batch.work_seconds


def _with_waiting(batches: Sequence[PlannedBatch]) -> list[PlannedBatch]:
    """Return the batches that tell what waited before them."""
    return [batch for batch in batches if batch.waiting is not None]


def _lag_rate(in_order: Sequence[SparkSample], settings: Settings) -> float | None:
    """Return the lag's growth a second, over the window or since the last look; None if unseen."""
    last = in_order[-1]
    earlier = [sample for sample in in_order if sample.time < last.time]
    known = [sample for sample in earlier if sample.lag is not None]
    within = [sample for sample in known if sample.time >= last.time - settings.metrics_window]
    first = next(iter(within or known[-1:]), None)
    if last.lag is None or first is None or first.lag is None:
        return None
    if last.time - first.time > settings.sample_age_max:
        return None
    return (last.lag - first.lag) / (last.time - first.time)


def shards_of(files: Iterable[tuple[str, int, int]]) -> StateShards | None:
    """Return the state's spread by operator, partition and files' bytes; None without state."""
    by_operator: dict[str, dict[int, int]] = {}
    for operator, partition, size in files:
        sizes = by_operator.setdefault(operator, {})
        sizes[partition] = sizes.get(partition, 0) + size
    if not by_operator:
        return None
    operator, sizes = max(by_operator.items(), key=lambda pair: sum(pair[1].values()))
    largest = max(sizes, key=lambda partition: sizes[partition])
    total = sum(sizes.values())
    return StateShards(operator, len(sizes), total, largest, sizes[largest]) if total else None
