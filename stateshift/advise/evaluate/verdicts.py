"""The verdict on a job: fits, scale to a parallelism, move to where there is room, limited by a
part that more subtasks do not divide, or unknown.

    verdict_on(inputs) -> Verdict      pure: the same inputs give the same verdict

"unknown" is an answer: it says what is missing. Facts that change nothing today are told all the
same: headroom, skew, the bound of the parallelism.

The samples of the present load count: those since its last lasting step. A mean over the window
would tell of a load that has doubled, or has ended, only once the window has passed. A burst is no
step: the mean over many of them is the load that a job has to keep up with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

from stateshift.advise.evaluate import reasons
from stateshift.advise.evaluate.flink_formulas import Ceiling, State, VertexDecision, decide
from stateshift.advise.evaluate.inputs import (
    Circumstances,
    FlinkInputs,
    Inputs,
    RestartCost,
    SparkInputs,
    Wish,
)
from stateshift.advise.evaluate.loads import VertexLoad, loads_of
from stateshift.advise.evaluate.reasons import Unit
from stateshift.advise.evaluate.samples import JobSample, Unusable, usable
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.spark_batches import HUNDREDTHS, QueryLoad, SparkSample, query_load

Word = Literal["fits", "scale", "move", "limited", "unknown"]
Sample = TypeVar("Sample", JobSample, SparkSample)

# A source that is held back for as much of the time could read more.
HELD_BACK: Final = 0.1
# From this utilization on a vertex holds others back.
NEARLY_FULL: Final = 0.95
# A lag that grows by less than this share of the input does not grow.
LAG_GROWS: Final = 0.05
# A job has to fall behind, or not to, for as long and in as many intervals: longer than a burst.
STEP_SECONDS: Final = 60.0
INTERVALS_MIN: Final = 2
# Intervals that are shorter are taken together: counters are up to ten seconds old.
INTERVAL_SECONDS: Final = 15.0
# An interval in which a burst begins has idle time before it.
BUSY_MIN: Final = 0.85


@dataclass(frozen=True, slots=True)
class Verdict:
    """The advice. `parallelism` and `wanted` are of the widest vertex, of Spark cores; None where
    nobody told them, and then `factor` is what remains. `headroom` is the share of the capacity
    that is left, `drain_seconds` the time of the lag at today's capacity: None where it is not
    drained, or nothing tells.
    """

    job: str
    engine: str
    word: Word
    reasons: tuple[str, ...]
    restart: RestartCost
    parallelism: int | None = None
    wanted: int | None = None
    factor: float | None = None
    headroom: float | None = None
    lag: float | None = None
    drain_seconds: float | None = None
    cost_per_hour: float | None = None
    cost_per_hour_wanted: float | None = None
    changes: Mapping[str, int] = field(default_factory=dict)  # of vertices
    loads: tuple[VertexLoad, ...] = ()
    decisions: tuple[VertexDecision, ...] = ()

    @property
    def unit(self) -> Unit:
        """The unit of its parallelism and of that of its vertices."""
        if self.engine == "flink":
            return "subtasks"
        if self.decisions and self.parallelism is None:
            return "hundredths"
        return "cores"

    @property
    def wish(self) -> dict[str, int]:
        """Return the wanted parallelism of each vertex, for the next look to know."""
        return {decision.id: decision.wanted for decision in self.decisions}

    @property
    def states(self) -> dict[str, State]:
        """Return the vertices that have too little, for the next look to know."""
        states = {decision.id: decision.state for decision in self.decisions}
        return {id: state for id, state in states.items() if state is not None}


def verdict_on(inputs: Inputs) -> Verdict:
    """Return the verdict that these inputs lead to."""
    trouble, note = inputs.around.trouble, inputs.around.note
    if trouble is not None:
        verdict = _unknown(inputs, trouble)
    elif isinstance(inputs, FlinkInputs):
        verdict = _on_flink(inputs)
    else:
        verdict = _on_spark(inputs)
    return replace(verdict, reasons=(*verdict.reasons, note)) if note else verdict


def _unknown(inputs: Inputs, why: str, loads: tuple[VertexLoad, ...] = ()) -> Verdict:
    around = inputs.around
    return Verdict(around.job, inputs.engine, "unknown", (why,), around.restart, loads=loads)


def _on_flink(inputs: FlinkInputs) -> Verdict:
    around = inputs.around
    counted = usable(inputs.samples, around.now, around.settings)
    if isinstance(counted, Unusable):
        return _unknown(inputs, counted.why)
    wishes = [wish for wish in around.wishes if wish.time >= counted[-1].started]

    def falls_behind(samples: Sequence[JobSample], busy_min: float) -> bool:
        loads = loads_of(samples, around.settings)
        pairs = zip(loads, decide(loads, around.settings, 0.0), strict=True)
        return any(each.is_below and load.busy >= busy_min for load, each in pairs)

    loads = loads_of(since_last_step(counted, falls_behind), around.settings)
    return judge(loads, replace(around, wishes=tuple(wishes)))


def judge(loads: Sequence[VertexLoad], around: Circumstances) -> Verdict:
    """Return the verdict on a job of Flink with these loads."""
    decisions = decide(loads, around.settings, restart_seconds(around), around.states)
    hidden = hides_its_backlog(loads, decisions)
    limited = [each for each in decisions if each.limit is not None]
    if hidden:
        changes = {each.id: each.wanted for each in decisions if each.wanted > each.parallelism}
    else:
        changes = settled_changes(decisions, around) or beyond_bounds(decisions)
    if limited:
        below = [each for each in decisions if each.is_below]
        short = [each.id for each in below if each not in limited]
        changes = {id: count for id, count in changes.items() if id in short}
    word: Word = "limited" if limited else "fits"
    verdict = Verdict(
        around.job,
        "flink",
        "scale" if changes else word,
        (),
        around.restart,
        changes=changes,
        loads=tuple(loads),
        decisions=decisions,
    )
    verdict = _with_totals(verdict, around)
    said = [
        *reasons.of_limits(loads, limited),
        *reasons.of_change(verdict.word, decisions, changes),
        *([reasons.hidden_backlog(loads)] if hidden else ()),
        *_common_reasons(verdict, around),
        *reasons.of_skew(loads),
    ]
    return _placed(replace(verdict, reasons=tuple(said)), around)


def restart_seconds(around: Circumstances) -> float:
    """Return the restart time of the formulas: the setting's, or the measured one."""
    settings = around.settings
    if settings.restart_time_tracking and around.restart.source != "default":
        return min(around.restart.seconds, settings.restart_time_limit)
    return settings.restart_time


def hides_its_backlog(loads: Sequence[VertexLoad], decisions: Sequence[VertexDecision]) -> bool:
    """Whether a full vertex holds back a source without a lag: the formulas see too little."""
    sources = [load for load in loads if load.is_source]
    held = any(load.backpressured >= HELD_BACK for load in sources if load.lag is None)
    fullest = max(decision.utilization for decision in decisions)
    return held and (fullest >= NEARLY_FULL or any(each.is_below for each in decisions))


def settled_changes(decisions: Sequence[VertexDecision], around: Circumstances) -> dict[str, int]:
    """Return new parallelisms, fewer only if wanted all through `scale-down.interval`."""
    settled = {}
    for each in decisions:
        settled[each.id] = each.wanted
        if each.wanted < each.parallelism:
            wished = wished_less(each, around.wishes, around.now, around.settings)
            settled[each.id] = each.parallelism if wished is None else max(wished, each.wanted)
    changing = [each for each in decisions if settled[each.id] != each.parallelism]
    if not any(decision.is_outside for decision in changing):
        return {}
    return {each.id: settled[each.id] for each in changing}


def beyond_bounds(decisions: Sequence[VertexDecision]) -> dict[str, int]:
    """Return the parallelism of vertices that have too little, and all that a bound allows."""
    changes = {}
    for each in decisions:
        if each.limit is not None:
            continue
        if each.is_below and each.ceiling is not None and each.unclamped > each.parallelism:
            changes[each.id] = each.unclamped
    return changes


def wished_less(
    decision: VertexDecision, wishes: Sequence[Wish], now: float, settings: Settings
) -> int | None:
    """Return the most that was wanted within `scale-down.interval`; None unless always fewer."""
    if settings.scale_down_interval <= 0:
        return decision.wanted
    streak: list[Wish] = []
    later = now
    for wish in sorted(wishes, key=lambda wish: -wish.time):
        if later - wish.time > settings.sample_age_max:
            break  # nobody has looked in between
        later = wish.time
        if wish.parallelism.get(decision.id, decision.parallelism) >= decision.parallelism:
            break
        streak.append(wish)
    begun = now - settings.scale_down_interval
    if not streak or streak[-1].time > begun:
        return None
    recent = [wish.parallelism[decision.id] for wish in streak if wish.time >= begun]
    return max(recent, default=decision.wanted)


def _with_totals(verdict: Verdict, around: Circumstances) -> Verdict:
    """Return the verdict with the figures of the whole job."""
    now = max(decision.parallelism for decision in verdict.decisions)
    new = [verdict.changes.get(decision.id, decision.parallelism) for decision in verdict.decisions]
    used = max(decision.utilization for decision in verdict.decisions)
    lag = lag_of(verdict.loads)
    price = around.settings.cost_per_hour
    return replace(
        verdict,
        parallelism=now,
        wanted=max(new),
        factor=max(new) / now,
        headroom=1 - used,
        lag=lag,
        drain_seconds=drain_seconds(lag, used, verdict.decisions, verdict.loads),
        cost_per_hour=None if price is None else price * now,
        cost_per_hour_wanted=None if price is None else price * max(new),
    )


def lag_of(loads: Sequence[VertexLoad]) -> float | None:
    """Return the records that wait for sources and vertices; None where nothing tells it."""
    known = [load.lag for load in loads if load.lag is not None]
    queued = sum(load.queued for load in loads)
    return sum(known) + queued if known or queued else None


def drain_seconds(
    lag: float | None, used: float, decisions: Sequence[VertexDecision], loads: Sequence[VertexLoad]
) -> float | None:
    """Return lag / (TPR - lambda) of the narrowest vertex. None where it is not drained."""
    if lag is None:
        return None
    if lag == 0:
        return 0.0
    pairs = zip(decisions, loads, strict=True)
    arrives = sum(decision.target_rate for decision, load in pairs if load.is_source)
    spare = arrives * (1 / used - 1) if used > 0 else 0.0
    return lag / spare if spare > 0 else None


def _common_reasons(verdict: Verdict, around: Circumstances) -> list[str]:
    return [
        *reasons.of_headroom(verdict.headroom, verdict.decisions, around.settings),
        *reasons.of_lag(verdict.lag, verdict.drain_seconds, verdict.loads),
        *reasons.of_waiting(verdict.decisions, verdict.changes, around.settings, verdict.unit),
        *reasons.of_ceiling(verdict.decisions, verdict.unit, around.location),
    ]


def _placed(verdict: Verdict, around: Circumstances) -> Verdict:
    """Return the verdict as it is on this cluster: without free slots, the job has to move."""
    slots = around.slots
    assert verdict.wanted is not None and verdict.parallelism is not None
    more = verdict.wanted - verdict.parallelism
    if slots is None or slots.on_demand or more <= slots.free:
        return verdict
    lacks = reasons.no_room(more, slots)
    return replace(verdict, word="move", reasons=(lacks, *verdict.reasons))


def _on_spark(inputs: SparkInputs) -> Verdict:
    verdict = _by_batches(inputs)
    newest = max(inputs.samples, key=lambda sample: sample.time, default=None)
    if newest is None:
        return verdict
    more = (*reasons.of_shards(newest.shards), *reasons.of_driver(newest))
    return replace(verdict, reasons=(*verdict.reasons, *more))


def _by_batches(inputs: SparkInputs) -> Verdict:
    around = inputs.around
    settings, cores = around.settings, inputs.cores
    measured = query_load(inputs.samples, around.now, settings, cores, _query_since(inputs))
    if isinstance(measured, Unusable):
        return _unknown(inputs, measured.why)
    load = measured.load
    if measured.back_to_back and not measured.lag_known:
        return _unknown(inputs, reasons.of_back_to_back(measured), (load,))
    if cores is None:
        settings = replace(settings, vertex_max_parallelism=HUNDREDTHS * 1000)
    around = replace(around, settings=settings)
    decisions = decide((load,), settings, restart_seconds(around), around.states)
    decisions = _bounded(decisions, inputs)
    grows = 0.0 if around.states else LAG_GROWS  # one that fell back has to stop that altogether
    if measured.back_to_back and load.lag_rate <= grows * load.input_rate:
        return _keeps_up(inputs, measured, decisions)
    changes = settled_changes(decisions, around) or beyond_bounds(decisions)
    verdict = Verdict(
        around.job,
        "spark",
        "scale" if changes else "fits",
        (),
        around.restart,
        changes=changes,
        loads=(load,),
        decisions=decisions,
    )
    verdict = _with_totals(verdict, around)
    if cores is None:
        verdict = replace(verdict, parallelism=None, wanted=None)
        verdict = replace(verdict, cost_per_hour=None, cost_per_hour_wanted=None)
    said = [
        reasons.of_query(verdict.word, verdict.wanted, verdict.factor),
        *_common_reasons(verdict, around),
        *reasons.of_batches(measured),
    ]
    return replace(verdict, reasons=tuple(said))


def _query_since(inputs: SparkInputs) -> float | None:
    """Return the time since which looks at a query are of its present load."""
    around = inputs.around
    in_order = sorted(inputs.samples, key=lambda sample: sample.time)
    begin = in_order[-1].time - around.settings.metrics_window if in_order else 0.0
    begin = max(begin, around.since or begin)
    recent = [sample for sample in in_order if sample.time >= begin]

    def falls_behind(looks: Sequence[SparkSample], _busy_min: float) -> bool:
        first, last = looks[0].time, looks[-1].time
        batches = [batch for batch in in_order[-1].batches if first <= batch.started <= last]
        whole = (*looks[:-1], replace(looks[-1], batches=tuple(batches)))
        measured = query_load(whole, last, around.settings, inputs.cores)
        if isinstance(measured, Unusable):
            return False
        if measured.back_to_back:
            return measured.load.lag_rate > LAG_GROWS * measured.load.input_rate
        return decide((measured.load,), around.settings, 0.0)[0].is_below

    since = since_last_step(recent, falls_behind) if len(recent) > 1 else recent
    return since[0].time if len(since) < len(recent) else around.since


def _bounded(
    decisions: tuple[VertexDecision, ...], inputs: SparkInputs
) -> tuple[VertexDecision, ...]:
    """Return the decision with the bound of the partitions: each is one task."""
    (decision,), sample = decisions, inputs.samples[-1]
    bound = None
    if sample.state_partitions is not None:
        bound = Ceiling("state partitions", sample.state_partitions)
    elif sample.shards is None and sample.partitions is not None:  # it has no state
        bound = Ceiling("topic partitions", sample.partitions)
    if inputs.cores is None or bound is None or decision.wanted <= bound.count:
        return decisions
    wanted = max(min(decision.wanted, bound.count), min(decision.parallelism, decision.wanted))
    return (replace(decision, wanted=wanted, ceiling=bound),)


def _keeps_up(
    inputs: SparkInputs, measured: QueryLoad, decisions: tuple[VertexDecision, ...]
) -> Verdict:
    """Return the verdict on a query without pauses or growing lag: its headroom is not known."""
    around, load = inputs.around, measured.load
    # Its batches take all of the time at any load.
    decisions = tuple(replace(each, is_below=False, is_saturated=False) for each in decisions)
    waits = load.lag is not None and load.lag > 0
    drains = waits and load.lag_rate < 0
    return Verdict(
        around.job,
        "spark",
        "fits",
        (reasons.KEEPS_UP, *reasons.of_batches(measured)),
        around.restart,
        parallelism=inputs.cores,
        wanted=inputs.cores,
        factor=1.0,
        lag=load.lag,
        drain_seconds=(load.lag or 0.0) / -load.lag_rate if drains else (None if waits else 0.0),
        loads=(load,),
        decisions=decisions,
    )


def since_last_step(
    samples: Sequence[Sample], falls_behind: Callable[[Sequence[Sample], float], bool]
) -> Sequence[Sample]:
    """Return the samples since the load has changed for good: each interval then says the opposite
    of all. `falls_behind` judges samples by their busiest vertices.
    """
    marks = [samples[-1]]  # far enough apart, the newest among them
    for sample in reversed(samples):
        if marks[0].time - sample.time >= INTERVAL_SECONDS:
            marks.insert(0, sample)
    begin, run, before = 0, 0, None
    for last in range(1, len(marks)):
        behind = falls_behind([marks[last - 1], marks[last]], BUSY_MIN)
        if behind != before:
            run = last - 1
        before = behind
        lasts = marks[last].time - marks[run].time
        if run == begin or last - run < INTERVALS_MIN or lasts < STEP_SECONDS:
            continue
        if falls_behind(marks[begin : last + 1], 0.0) != behind:
            begin = run
    return samples[samples.index(marks[begin]) :] if begin > 0 else samples
