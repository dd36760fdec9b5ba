"""The coordinator of a migration while a job runs: checks, triggers, counts acknowledgements,
completes or aborts.

    begin(deployment, migration, …)  checked, allocated and triggered
    advance(coordinator, word, now)  one word of a task further: records to write down, orders to
                                     send

Four steps (T-5), and what they are called elsewhere in stateshift; a phase is a barrier here as
there:

    here      phase    is done when                           the executor's step
    allocate  prepare  the places have free slots             PrepareJob
    trigger   prepare  every task has acknowledged            none: a stopped job needs no trigger
    ship      copy     every moving task is paused at the     StopJob and CopyFiles: the image is
                       checkpoint and has shipped its state   its snapshot, the checkpoint its epoch
    restart   submit   every new place has the state          SubmitJob
    resume    confirm  every task runs, nothing is held back  AwaitProgress; from its start nothing
                                                              is taken back

Functions that are replaced where they run (`Replacement`) need no `ship` and no `restart`.

The past is the fold of a journal, and not a second machine: each word writes the records
that the executor writes (StepStarted, StepFinished with evidence, RunFailed, RollbackStarted,
StepUndone, …), `progress` is their fold by journal.advance, and the coordinator's state is
Progress.state. BTW 2018 says *completed* for `finished`, *aborted* for `rolled-back`, and *failed*
for the moment between. Rows T-2, T-3 and T-5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from stateshift import __version__
from stateshift.journal import (
    PlanAdopted,
    PlanFinished,
    PlanUndone,
    Progress,
    Record,
    RollbackStarted,
    RunFailed,
    RunFinished,
    RunRolledBack,
    RunStarted,
    State,
    StepFinished,
    StepStarted,
    StepUndone,
    fold,
)
from stateshift.journal import advance as journaled
from stateshift.plain import fingerprint
from stateshift.plan import PhaseName
from stateshift.step.evidence import OtherEvidence
from tests.models.tasks import (
    Abort,
    Acknowledged,
    Complete,
    Deployed,
    Deployment,
    Flow,
    GiveUp,
    Migration,
    Modification,
    Order,
    Refused,
    Restore,
    Running,
    Shipped,
    Snapshot,
    Task,
    Trigger,
    Word,
    check,
)

STEPS: Mapping[str, PhaseName] = {
    "allocate": "prepare",
    "trigger": "prepare",
    "ship": "copy",
    "restart": "submit",
    "resume": "confirm",
}
Address = tuple[Task, str]  # a task at a place


def steps_of(modification: Modification) -> tuple[str, ...]:
    """Return its steps: where nothing moves, nothing is shipped or restarted."""
    if isinstance(modification, Migration):
        return tuple(STEPS)
    return tuple(step for step in STEPS if step not in ("ship", "restart"))


Sent = tuple[Address, Order]


@dataclass(frozen=True, slots=True)
class Coordinator:
    """`running` is the place of every task before; the rest is from their words so far."""

    flow: Flow
    migration: Modification
    running: Mapping[Task, str]
    checkpoint: int
    progress: Progress = field(default_factory=Progress)
    acknowledged: Mapping[Task, tuple[str, ...]] = field(default_factory=dict)
    snapshots: Mapping[Task, Snapshot] = field(default_factory=dict)
    deployed: frozenset[Task] = frozenset()
    resumed: frozenset[Task] = frozenset()

    @property
    def state(self) -> State:
        return self.progress.state

    @property
    def step(self) -> str | None:
        if not self.progress.plans:
            return None
        for name in STEPS:
            step = self.progress.plans[0].steps.get(name)
            if step is not None and step.state == "started":
                return name
        return None

    @property
    def decided(self) -> bool:
        """Whether it is completed from here on, whatever anybody says."""
        return "resume" in self.progress.plans[0].steps


Outcome = tuple[Coordinator, tuple[Record, ...], tuple[Sent, ...]]


def begin(deployment: Deployment, migration: Modification, checkpoint: int, now: float) -> Outcome:
    """Return a migration's coordinator, and orders to the sources; `checkpoint` is a new one."""
    check(migration, deployment)
    steps = steps_of(migration)
    flow, running = deployment.flow, deployment.running
    places = _places_by_name(migration)
    records: list[Record] = [
        RunStarted(now, migration.name, __version__, "", (migration.name,)),
        PlanAdopted(now, 0, migration.name, "move", fingerprint([places, checkpoint]), len(steps)),
        *_started("allocate", now),
        *_finished("allocate", now, {"places": places}),
        *_started("trigger", now),
    ]
    new = Coordinator(flow, migration, running, checkpoint, fold(iter(records)))
    order = Trigger(migration, checkpoint)
    return new, tuple(records), tuple(((source, running[source]), order) for source in flow.sources)


def advance(before: Coordinator, word: Word, now: float) -> Outcome:
    """Return the outcome of a word. One that comes too late, or twice, changes nothing."""
    if before.state not in ("running", "rolling-back"):
        return before, (), ()
    match word:
        case Acknowledged(task, roles):
            heard = replace(before, acknowledged={**before.acknowledged, task: roles})
        case Shipped(task, snapshot):
            heard = replace(before, snapshots={**before.snapshots, task: snapshot})
        case Deployed(task):
            heard = replace(before, deployed=before.deployed | {task})
        case Running(task):
            heard = replace(before, resumed=before.resumed | {task})
        case Refused(task, reason):
            return _aborted(before, f"{task}: {reason}", now)
        case GiveUp(reason):
            return _aborted(before, reason, now)
    return _settled(heard, now)


def give_up(before: Coordinator, reason: str, now: float) -> Coordinator:
    """Return an abort taken to its end: nobody held anything back, every task runs on."""
    state, _, _ = advance(before, GiveUp(reason), now)
    for task in state.flow.tasks:
        state, _, _ = advance(state, Running(task), now)
    return state


def _settled(heard: Coordinator, now: float) -> Outcome:
    """Finish each step that is done, and order the next: words may come in any order."""
    records: list[Record] = []
    orders: list[Sent] = []
    while done := list(_done(heard, now)):
        records += done
        heard = _with(heard, done)
        begun = [record.step for record in done if isinstance(record, StepStarted)]
        name = heard.migration.name
        if "restart" in begun:
            for address in heard.migration.places.items():
                orders.append((address, Restore(name, heard.snapshots[address[0]])))
        if "resume" in begun:
            orders += _to_everybody(heard, Complete(name))
    return heard, tuple(records), tuple(orders)


def _done(known: Coordinator, now: float) -> Iterator[Record]:
    """Yield the records of the awaited step, if it is done, and of the one that follows."""
    if known.state == "rolling-back":
        yield from _undone(known, now)
        return
    moving = known.migration.places.keys()
    tasks = set(known.flow.tasks)
    match known.step:
        case "trigger" if known.acknowledged.keys() >= tasks:
            roles = {str(task): list(known.acknowledged[task]) for task in known.flow.tasks}
            following = "ship" if moving else "resume"
            yield from (*_finished("trigger", now, {"roles": roles}), *_started(following, now))
        case "ship" if known.snapshots.keys() >= moving:
            evidence = {"checkpoint": known.checkpoint, "tasks": sorted(map(str, moving))}
            yield from (*_finished("ship", now, evidence), *_started("restart", now))
        case "restart" if known.deployed >= moving:
            places = _places_by_name(known.migration)
            yield from (*_finished("restart", now, {"places": places}), *_started("resume", now))
        case "resume" if known.resumed >= tasks:
            evidence = {"tasks": len(tasks)}
            yield from (*_finished("resume", now, evidence), PlanFinished(now, 0), RunFinished(now))


def _places_by_name(migration: Modification) -> dict[str, str]:
    return {str(task): place for task, place in migration.places.items()}


def _to_everybody(known: Coordinator, order: Order) -> Iterator[Sent]:
    """Yield an order to every task where it ran, and to those that move where they go."""
    for address in (*known.running.items(), *known.migration.places.items()):
        yield address, order


def _aborted(before: Coordinator, reason: str, now: float) -> Outcome:
    """Take everything back, unless it is decided: then nothing is taken back any more."""
    if before.decided or before.state == "rolling-back":
        return before, (), ()
    hint = "every task runs on where it was; ask again once the reason is gone"
    records = (
        RunFailed(now, "Aborted", reason, hint, 7, before.step),
        RollbackStarted(now, automatic=True),
    )
    after = _with(replace(before, resumed=frozenset()), records)
    aborts = _to_everybody(before, Abort(before.migration.name))
    return after, records, tuple(aborts)


def _undone(known: Coordinator, now: float) -> Iterator[Record]:
    """Undo the last step first, as the executor does, once every task runs again."""
    if not known.resumed.issuperset(known.flow.tasks):
        return
    begun = known.progress.plans[0].steps
    for step in reversed([step for step in STEPS if step in begun]):
        yield StepUndone(now, 0, step, ())
    yield PlanUndone(now, 0)
    yield RunRolledBack(now)


def _with(before: Coordinator, records: tuple[Record, ...] | list[Record]) -> Coordinator:
    progress = before.progress
    for record in records:
        progress = journaled(progress, record)
    return replace(before, progress=progress)


def _started(step: str, now: float) -> tuple[Record, ...]:
    return (StepStarted(now, 0, STEPS[step], step),)


def _finished(step: str, now: float, evidence: Mapping[str, object]) -> tuple[Record, ...]:
    return (StepFinished(now, 0, step, 0.0, 0, 0, OtherEvidence(evidence)),)
