"""The reasons of a verdict, in words. Each is made whole in one function here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from stateshift.advise.evaluate.flink_formulas import Limit, VertexDecision
from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.spark_batches import HUNDREDTHS

if TYPE_CHECKING:
    from stateshift.advise.evaluate.inputs import FreeSlots
    from stateshift.advise.evaluate.spark_batches import QueryLoad, SparkSample, StateShards

# The unit of a parallelism: subtasks of Flink, cores of Spark or, where nobody tells how many a
# query has, hundredths of those.
Unit = Literal["subtasks", "cores", "hundredths"]

# A subtask with as many times the mean is worth a word.
SKEWED: Final = 1.5
# Most bytes of a smaller partition are the files' own.
SHARD_BYTES_MIN: Final = 1 << 20
# Headroom below which a job that fits is worth a word.
TIGHT: Final = 0.15

BACK_TO_BACK_WITHOUT_LAG: Final = (
    "batches follow each other without a pause, so that they do not tell how much more it could "
    'do; what waits in Kafka would: give its brokers ("kafka" in the spec), and two samples; so '
    "would the job, if it ran its queries with stateshift.job"
)
REAL_TIME: Final = (
    "it is in real-time mode: its batches take as long as its trigger says, and do not tell how "
    'much more it could do; what waits in Kafka would: give its brokers ("kafka" in the spec), and '
    "two samples"
)
BACK_TO_BACK_WITHOUT_WAITING: Final = (
    "batches follow each other without a pause, and too few of them tell what waited before them: "
    "whether it falls back was not seen; look again later; if its source is not Kafka, a trigger "
    "with an interval would tell how busy it is"
)
KEEPS_UP: Final = (
    "it keeps up: batches follow each other without a pause, and what waits does not grow; how "
    "much more it could do was not seen"
)


_LIMITS: Final[Mapping[Limit | None, str]] = {
    "key": "one key, or a few that are never parted, is the limit, and more subtasks do not help; "
    "spread that key over several, or aggregate before keyBy",
    "partition": "one partition is the limit, and more subtasks do not help; spread its records "
    "over several partitions",
    "subtask": "all records go to one subtask, and more subtasks do not help",
}


def of_change(
    word: str, decisions: Sequence[VertexDecision], changes: Mapping[str, int]
) -> Iterator[str]:
    """Yield the change of each vertex, and its reason."""
    for decision in decisions:
        if decision.id not in changes:
            continue
        count = changes[decision.id]
        is_just_full = decision.is_saturated and (decision.true_rate or 0.0) >= decision.up
        if is_just_full:
            why = "it is busy all the time, and has nothing left for more"
        elif decision.is_below:
            why = (
                f"it can take {rate(decision.true_rate)} records/s and needs at least "
                f"{rate(decision.up)}"
            )
        elif decision.is_above:
            can = rate(decision.true_rate)
            why = f"it can take {can} records/s, and {rate(decision.down)} would do"
        else:
            why = "it changes along, in the same restart"
        yield f"{decision.name}: {decision.parallelism} -> {count}: {why}"
    if word == "fits":
        yield "every vertex is inside the band"


def of_limits(loads: Sequence[VertexLoad], limited: Sequence[VertexDecision]) -> Iterator[str]:
    """Yield the limit of each vertex that more subtasks would not help."""
    by_id = {load.id: load for load in loads}
    for decision in limited:
        load = by_id[decision.id]
        if decision.limit == "operator":
            yield (
                f"{load.name}: it has one subtask, as its program says, and that is busy for "
                f"{load.busy:.0%} of the time: more cannot be given to it"
            )
            continue
        others = (load.parallelism * (load.busy_mean or 0.0) - load.busy) / (load.parallelism - 1)
        yield (
            f"{load.name}: subtask {load.busiest} of {load.parallelism} is busy for "
            f"{load.busy:.0%} of the time, the others for {max(0.0, others):.0%}: "
            f"{_LIMITS[decision.limit]}"
        )


def of_query(word: str, wanted: int | None, factor: float | None) -> str:
    """Return the advice for a query of Spark."""
    if word == "fits":
        return "its batches are inside the band"
    if wanted is not None:
        return f"it needs {in_units(wanted, 'cores')}"
    return f"it needs {factor or 1:.2f} times the cores that it has"


def hidden_backlog(loads: Sequence[VertexLoad]) -> str:
    """Return the sentence that more arrives than can be seen."""
    held = max((load for load in loads if load.is_source), key=lambda load: load.backpressured)
    return (
        f"{held.name} is held back for {held.backpressured:.0%} of the time and does not tell what "
        "waits: this is the least that it needs, more may arrive than was read"
    )


def of_headroom(
    headroom: float | None, decisions: Sequence[VertexDecision], settings: Settings
) -> Iterator[str]:
    """Yield the utilization of the fullest vertex."""
    if headroom is None:
        return
    fullest = max(decisions, key=lambda decision: decision.utilization)
    used = f"{fullest.name} is at {fullest.utilization:.0%}"
    if headroom < 0:
        yield f"{used}: it lacks {-headroom:.0%} of what it would need to keep up"
    elif headroom < TIGHT and not fullest.is_outside:
        band = f"its band ends at {settings.utilization_above:.0%}"
        yield f"{used}, headroom {headroom:.0%}: the operator would leave it, {band}"
    else:
        yield f"{used}, headroom {headroom:.0%}"


def of_lag(lag: float | None, drain: float | None, loads: Sequence[VertexLoad]) -> Iterator[str]:
    """Yield the lag, and the time that it takes to drain it."""
    if not lag:
        return
    grows = sum(load.lag_rate + load.queue_rate for load in loads)
    change = f", {grows:+,.0f} a second" if abs(grows) >= 1 else ""
    queued = [f"{load.queued:,.0f} before {load.name}" for load in loads if load.queued >= 1]
    where = f" ({', '.join(queued)})" if queued else ""
    if drain is None:
        yield f"{lag:,.0f} records wait{where}{change}: never drained at today's capacity"
    else:
        drained = f"drained in {drain:,.0f} s at today's capacity"
        yield f"{lag:,.0f} records wait{where}{change}: {drained}"


def of_waiting(
    decisions: Sequence[VertexDecision], changes: Mapping[str, int], settings: Settings, unit: Unit
) -> Iterator[str]:
    """Yield the vertices that would do with fewer, and are left until that has lasted."""
    if not any(decision.is_outside for decision in decisions):
        return
    for decision in decisions:
        less = decision.wanted < decision.parallelism
        if less and decision.id not in changes:
            enough = in_units(decision.wanted, unit)
            yield (
                f"{decision.name}: {enough} would do; advised once it was so for "
                f"{settings.scale_down_interval:.0f} s (scale-down.interval)"
            )


def in_units(count: int, unit: Unit) -> str:
    """Return a parallelism with its unit."""
    if unit == "hundredths":
        return f"{count / HUNDREDTHS:.2f} times the cores that it has"
    return f"{count} {unit.removesuffix('s') if count == 1 else unit}"


def of_ceiling(
    decisions: Sequence[VertexDecision], unit: Unit, location: str | None
) -> Iterator[str]:
    """Yield the bound of the parallelism, and the command that lifts it."""
    here = location or ("SAVEPOINT" if unit == "subtasks" else "CHECKPOINT")
    for decision in decisions:
        bound, needed = decision.ceiling, decision.unclamped
        if bound is None or decision.limit is not None:
            continue
        power = 1  # key groups are best divided by a power of two
        while power < needed:
            power *= 2
        lifting = {
            "max parallelism": f"stateshift repartition {here} --to {here}-{power} "
            f"--max-parallelism {power}",
            "state partitions": f"stateshift repartition {here} --to {here}-{needed} "
            f"--partitions {needed}",
            "partitions": "the topic needs more partitions",
            "topic partitions": "the topic needs more, or the query's source the option "
            "minPartitions",
        }.get(bound.what, f"--set {bound.what}={needed} allows it")
        needs = f"{decision.name} would need {in_units(needed, unit)}"
        yield f"{needs}, and is bounded by {bound.count} {bound.what}: {lifting}"


def of_skew(loads: Sequence[VertexLoad]) -> Iterator[str]:
    """Yield the vertices in which one subtask has much more to do than the others."""
    for load in loads:
        if load.records_skew is None or load.records_skew < SKEWED:
            continue
        yield (
            f"{load.name}: the busiest subtask takes {load.records_skew:.1f} times the mean; more "
            "subtasks help only as far as its keys part"
        )


def no_room(more: int, slots: FreeSlots) -> str:
    """Return the sentence that the cluster has too few free slots."""
    return f"it needs {more} more slots, and this cluster has {slots.free} free of {slots.all}"


def of_back_to_back(measured: QueryLoad) -> str:
    """Return the reason for which batches without a pause do not tell, and the way out."""
    if measured.real_time:
        return REAL_TIME
    if measured.worked is None:
        return BACK_TO_BACK_WITHOUT_LAG
    return BACK_TO_BACK_WITHOUT_WAITING


def of_batches(measured: QueryLoad) -> Iterator[str]:
    """Yield the measurements of a query's batches."""
    yield f"{measured.batches} batches of {measured.seconds:.0f} s were measured"
    if measured.real_time:
        yield "it is in real-time mode: what its running batch has read does not count as waiting"
    if measured.worked is not None:
        yield f"it works on records for {measured.worked:.0%} of the time, as it says itself"
    if measured.state_rows is not None:
        yield f"its state has {measured.state_rows:,} rows"
    if not measured.counted:
        why = "its sources do not count records, or none came"
        yield f"{why}: judged by the time of its batches alone"
    elif not measured.lag_known:
        yield "what waits was not seen twice: what arrives is taken for what was read"


def of_shards(shards: StateShards | None) -> Iterator[str]:
    """Yield the partition of the state that has much more than the others."""
    if shards is None or shards.skew < SKEWED or shards.largest_bytes < SHARD_BYTES_MIN:
        return
    yield (
        f"operator {shards.operator}: partition {shards.largest} of its {shards.partitions} has "
        f"{shards.skew:.1f} times the mean's bytes; more cores help only as far as its keys part"
    )


def of_driver(sample: SparkSample) -> Iterator[str]:
    """Yield the report of the driver of a query, or the reason for none."""
    if sample.driver_trouble:
        yield f"its driver does not tell: {sample.driver_trouble}"
    driver = sample.driver
    if driver is None:
        return
    yield f"its driver counts cores: {driver.cores}, executors: {driver.executors}"
    if driver.input_rate is None or driver.processing_rate is None:
        yield "its driver tells rates and state if spark.sql.streaming.metricsEnabled is true"
        return
    yield (
        f"its driver says of the last batch: {rate(driver.input_rate)} records/s came in, "
        f"{rate(driver.processing_rate)} records/s were processed"
        + ("" if driver.batch_seconds is None else f", it took {driver.batch_seconds:.3g} s")
    )
    if driver.state_rows is not None and driver.state_bytes is not None:
        rows, bytes = f"{driver.state_rows:,} rows", f"{driver.state_bytes:,} bytes of memory"
        yield f"its driver says of the state: {rows} in {bytes}"


def rate(value: float | None) -> str:
    """Return a rate as a person reads it."""
    if value is None:
        return "any number of"
    return f"{value:,.0f}" if value >= 99.5 or value == 0 else f"{value:.3g}"
