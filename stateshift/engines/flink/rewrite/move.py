"""A job that moves, read once, at the planner's door: every finding, step and comparison is made of
the `Move`. Pure.

Operators of the target are rewritten for other numbers of subtasks and key groups, or because
several images become one; others cannot be.

    redistribute(job, surveys, choice)    Redistribution(rewritten, max_parallelism, obstacles)

Flink itself deals out state of no key: it is rewritten only together with keyed state.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from shlex import quote

from stateshift.engines.flink.entries.edits import Edit
from stateshift.engines.flink.image import (
    CANONICAL,
    Beginnings,
    Obstacle,
    flink_facts,
    id_of,
    is_readable,
    metadata_of,
)
from stateshift.engines.flink.new_offsets import NewOffsets, holds
from stateshift.engines.flink.rewrite.choice import Choice, Source, choose, sources_by_id
from stateshift.engines.flink.rewrite.metadata import is_set_to_one
from stateshift.engines.flink.rewrite.unkeyed import (
    KEYED,
    MANAGED,
    RAW,
    UNKEYED,
    handles_of,
    why_not,
)
from stateshift.errors import FormatError, PlanError
from stateshift.formats.flink.evolution import Unfit
from stateshift.formats.flink.keyed_state import Header, decode_header
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import BROADCAST, Partitioned
from stateshift.formats.flink.operator_state import COMMITTER_STATE, WRITER_STATE
from stateshift.plain import JsonObject, to_plain
from stateshift.specification import JobSpec, Spec
from stateshift.specification.transform import Evolve, Prune, Rescale, find_change
from stateshift.survey import Facts, Survey

TRANSACTIONS = "open-transactions"  # the waiver
# States of a sink with files or transactions not finished: of Sink V2, and of StreamingFileSink.
BEGUN = (WRITER_STATE, COMMITTER_STATE, "bucket-states")
# FlinkKafkaProducer has them in `state`, which others have, too, beside the numbers of new ones.
OF_PRODUCER = {"next-transactional-id-hint", "next-transactional-id-hint-v2"}
_RESCALED = "cannot get another number of subtasks or key groups"
_UNITED = "cannot become one of several"
_EDITED = "cannot be changed so"
_SET_TO_ONE = Obstacle(
    "one image has it in one key group, as its code says, and another has it in more",
    "these are different operators under one id. Take that of one image: "
    '{"kind": "drop", "operators": ["UID"], "of": "the other savepoint"}',
)
FIELD_PARTS = ("add", "widen", "rename", "drop", "nullable", "order")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """An operator of the target whose state is rewritten.

    sources  the operators that it is made of
    unkeyed  the roles of its state that belongs to no key, where that is rewritten too
    edit     how its keyed entries become others; those of every subtask stay its own
    """

    operator: str
    sources: tuple[Source, ...]
    parallelism: int
    max_parallelism: int
    unkeyed: tuple[str, ...]
    edit: Edit | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of all state that is rewritten."""
        return ("keyed", *self.unkeyed)


@dataclass(frozen=True, slots=True)
class Redistribution:
    """Rewritten operators, the new max parallelism of all, and others with (id, what, why)."""

    rewritten: tuple[Rewritten, ...]
    max_parallelism: int | None
    obstacles: tuple[tuple[str, str, Obstacle], ...] = ()

    @property
    def by_source(self) -> Mapping[Source, Rewritten]:
        by_source = {}
        for rewritten in self.rewritten:
            for source in rewritten.sources:
                by_source[source] = rewritten
        return by_source

    @property
    def united(self) -> list[Rewritten]:
        return [rewritten for rewritten in self.rewritten if len(rewritten.sources) > 1]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An operator of the target that may have to be rewritten, and the operators it is made of."""

    operator: str
    sources: tuple[Source, ...]
    operators: tuple[OperatorState, ...]

    @property
    def is_united(self) -> bool:
        return len(self.sources) > 1

    @property
    def subtasks(self) -> list[SubtaskState]:
        subtasks: list[SubtaskState] = []
        for operator in self.operators:
            subtasks += operator.all_subtasks
        return subtasks

    @property
    def is_keyed(self) -> bool:
        return any(subtask.managed_keyed is not None for subtask in self.subtasks)

    @property
    def is_bound_to_groups(self) -> bool:
        """Whether it holds what lies by key groups, and is no managed keyed state."""
        return any(
            subtask.raw_keyed or bool(subtask.inputs or subtask.outputs)
            for subtask in self.subtasks
        )

    @property
    def unkeyed(self) -> list[tuple[str, Partitioned]]:
        handles = []
        for subtask in self.subtasks:
            handles += [(role, handle) for role, handle in handles_of(subtask) if handle.states]
        return handles

    @property
    def has_broadcast_state(self) -> bool:
        modes: set[int] = set()
        for _, handle in self.unkeyed:
            modes.update(state.mode for state in handle.states)
        return BROADCAST in modes

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(sorted({role for role, _ in self.unkeyed}))

    @property
    def has_finished_subtasks(self) -> bool:
        if any(operator.subtasks is None for operator in self.operators):
            return True  # all of them
        return any(subtask.finished for subtask in self.subtasks)


def redistribute(job: JobSpec, surveys: Sequence[Survey], choice: Choice) -> Redistribution:
    """Return the operators rewritten for the job's changes, and those that cannot be."""
    rescale = find_change(job.transform, Rescale)
    rewritten: list[Rewritten] = []
    obstacles: list[tuple[str, str, Obstacle]] = []
    for new, sources in sources_by_id(choice.taken).items():
        operators = []
        for number, old in sources:
            known = metadata_of(surveys[number].images[0]).operators
            operators.append(next(operator for operator in known if operator.id.hex() == old))
        candidate = _Candidate(new, sources, tuple(operators))
        edit = _asked_edit(job, surveys, candidate)
        if isinstance(edit, Obstacle):
            obstacles.append((candidate.operator, _EDITED, edit))
            continue
        if edit is not None:
            numbers = operators[0].parallelism, operators[0].max_parallelism
            rewritten.append(Rewritten(new, sources, *numbers, (), edit))
            continue
        if rescale is None and not candidate.is_united:
            continue
        wanted = rescale or Rescale()
        images = (metadata_of(surveys[number].images[0]) for number, _ in sources)
        if any(map(is_set_to_one, operators, images)):
            wanted = Rescale()  # Flink takes no other max parallelism, so no other parallelism
            if len({operator.max_parallelism for operator in operators}) > 1:
                obstacles.append((candidate.operator, _UNITED, _SET_TO_ONE))
                continue
        match _redistributed_operator(candidate, surveys, wanted, job.waive):
            case Rewritten() as result:
                rewritten.append(result)
            case Obstacle() as obstacle:
                what = _UNITED if candidate.is_united else _RESCALED
                obstacles.append((candidate.operator, what, obstacle))
    return Redistribution(
        tuple(rewritten), rescale.max_parallelism if rescale else None, tuple(obstacles)
    )


def _asked_edit(
    job: JobSpec, surveys: Sequence[Survey], candidate: _Candidate
) -> Edit | Obstacle | None:
    """Return the change of an operator's entries, or the obstacle; None where none is asked."""
    number, old = candidate.sources[0]
    if candidate.is_united:
        return None  # both at once are refused
    every = [change for change in job.transform if isinstance(change, Evolve)]
    evolve = [change for change in every if id_of(change.operator) == old]
    prune = find_change(job.transform, Prune)
    if prune is not None and old not in pruned_operators(prune, surveys):
        prune = None
    if not evolve and prune is None:
        return None
    kept = flink_facts(surveys[number].images[0])
    if old in kept.apart:
        return kept.apart[old]
    heads = kept.heads.get(old, {}).get(KEYED, ())
    try:
        headers = [decode_header(head, len(head)) for head in heads]
        edit = _edit_of(evolve, prune, headers)
        for head in heads:
            edit.open(head)
    except (Unfit, PlanError, FormatError) as error:
        hint = None if isinstance(error, Unfit) else error.hint
        look = f"stateshift inspect --entries {quote(surveys[number].location)}"
        return Obstacle(str(error), hint or f"{look}   # shows its states and their fields")
    return edit


def pruned_operators(prune: Prune, surveys: Sequence[Survey]) -> list[str]:
    """Return the ids of the operators that a condition may be of: the one that it names, or all
    with keyed state.
    """
    if prune.operator is not None:
        return [id_of(prune.operator)]
    keyed = []
    for survey in surveys:
        for operator in metadata_of(survey.images[0]).operators:
            if any(subtask.managed_keyed for subtask in operator.all_subtasks):
                keyed.append(operator.id.hex())
    return keyed


def _edit_of(evolve: Sequence[Evolve], prune: Prune | None, headers: Sequence[Header]) -> Edit:
    """Return the change of entries; `Unfit` where it names what is not there."""
    kinds: dict[str, str] = {}
    for header in headers:
        kinds.update((state.name, state.kind) for state in header.states)
    own = [name for name, kind in kinds.items() if kind != "timers"]
    asked: dict[str, JsonObject] = {}
    for change in evolve:
        if change.widen_key or change.rename_key or change.nullable_key:
            raise Unfit("its keys stay: their hash says in which key group Flink looks for them")
        is_sole = change.store == "default" and "default" not in kinds and len(own) == 1
        told = {part: to_plain(getattr(change, part)) for part in FIELD_PARTS}
        changed = own[0] if is_sole else change.store
        if changed in asked:
            raise Unfit(f"state {changed!r} is changed twice: once by name, once without a name")
        asked[changed] = told
    if prune is not None and not headers:
        raise Unfit("it has no keyed entries: there is nothing to leave behind")
    where, store = (None, None) if prune is None else (prune.where, prune.store)
    for name in (*asked, store):
        if name is not None and name not in own:
            known = ", ".join(own) or "none"
            raise Unfit(f"it has no state {name!r} with fields; its states are {known}")
    return Edit(asked, where, store)


def _redistributed_operator(
    candidate: _Candidate, surveys: Sequence[Survey], rescale: Rescale, waived: Container[str]
) -> Rewritten | Obstacle | None:
    """Return an operator's rewriting or the obstacle; None where it need not be."""
    inseparable = _why_inseparable(candidate, surveys)
    wanted = rescale
    if inseparable is not None and not candidate.is_united:
        # Operator state that cannot be joined need not be refused where no more than the
        # parallelism was asked for: Flink itself deals that out.
        wanted = replace(rescale, parallelism=None)
    rewritten = _rewritten(candidate, wanted)
    if rewritten is None:
        operator = candidate.operators[0]
        regrouped = rescale.max_parallelism not in (None, operator.max_parallelism)
        if regrouped and candidate.is_bound_to_groups:
            return _blocked(surveys, candidate, waived)
        most = operator.max_parallelism
        if rescale.max_parallelism is not None:
            most = rescale.max_parallelism
        if operator.parallelism <= most:
            return None
        return Obstacle(f"it has {operator.parallelism} subtasks, more than {most}")
    obstacle = _cannot(candidate, rewritten, rescale) or _blocked(surveys, candidate, waived)
    if obstacle is not None:
        return obstacle
    if inseparable is not None and rewritten.unkeyed:
        return inseparable
    return rewritten


def _blocked(
    surveys: Sequence[Survey], candidate: _Candidate, waived: Container[str]
) -> Obstacle | None:
    """Return the obstacle to writing a source otherwise; its senders hold records of it as well."""
    for number, operator in candidate.sources:
        kept = flink_facts(surveys[number].images[0])
        if kept.unaligned:
            return Obstacle(
                "records were in flight in its job, which only Flink can deal out", CANONICAL
            )
        obstacle = (kept.apart if candidate.is_united else kept.rigid).get(operator)
        if obstacle is not None and obstacle.waive not in waived:
            return obstacle
    return None


def _why_inseparable(candidate: _Candidate, surveys: Sequence[Survey]) -> Obstacle | None:
    """Return the obstacle to joining operator state, by the beginnings of its files."""
    heads_of_each: list[Beginnings] = []
    for number, old in candidate.sources:
        kept = flink_facts(surveys[number].images[0])
        heads_of_each.append(kept.heads.get(old, {}))
    for role in UNKEYED:
        heads = chain.from_iterable(own.get(role, ()) for own in heads_of_each)
        why = why_not([*heads], role == RAW)
        if why is not None:
            return Obstacle(why)
    return None


def _rewritten(candidate: _Candidate, rescale: Rescale) -> Rewritten | None:
    """Return an operator's rewriting; None for state of no key alone: Flink redistributes it."""
    first, before = (
        candidate.operators[0],
        max(operator.parallelism for operator in candidate.operators),
    )
    parallelism = before
    if candidate.is_keyed and rescale.parallelism:
        parallelism = rescale.parallelism
    max_parallelism = rescale.max_parallelism or first.max_parallelism
    is_same = (parallelism, max_parallelism) == (first.parallelism, first.max_parallelism)
    if not candidate.is_united and (is_same or not candidate.is_keyed):
        return None
    # State of no key is rewritten with the keyed state where subtasks go, and where what each of
    # them has whole is for more of them.
    moves_unkeyed = candidate.is_united or parallelism < before
    if candidate.has_broadcast_state and parallelism != before:
        moves_unkeyed = True
    return Rewritten(
        operator=candidate.operator,
        sources=candidate.sources,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        unkeyed=candidate.roles if moves_unkeyed else (),
    )


def _cannot(candidate: _Candidate, rewritten: Rewritten, rescale: Rescale) -> Obstacle | None:
    if rewritten.parallelism > rewritten.max_parallelism:
        return Obstacle(
            f"it has {rewritten.parallelism} subtasks, "
            f"more than {rewritten.max_parallelism} key groups"
        )
    if candidate.has_finished_subtasks:
        return Obstacle("some of its subtasks have finished")
    groups = sorted({operator.max_parallelism for operator in candidate.operators})
    if len(groups) > 1 and not rescale.max_parallelism:
        return Obstacle(
            f"it has {' and '.join(map(str, groups))} key groups",
            '{"kind": "rescale", "max_parallelism": N} makes them equal',
        )
    coordinators = [operator.coordinator for operator in candidate.operators]
    if len(coordinators) - coordinators.count(None) > 1:
        return Obstacle(
            "each has a coordinator with a state of its own, of which Flink restores one",
            'rename one of them: {"kind": "rename", "of": "that savepoint", "operators": '
            '{"old": "new"}}',
        )
    return None


@dataclass(frozen=True)
class Move:
    """Operators of images that go to a target, as they are or rewritten; none are unreadable."""

    spec: Spec
    job: JobSpec
    facts: Facts

    @property
    def surveys(self) -> tuple[Survey, ...]:
        return (self.facts.source, *self.facts.others)

    @property
    def target(self) -> str:
        return self.facts.target.location

    @cached_property
    def choice(self) -> Choice:
        return choose(self.job, self.surveys)

    @cached_property
    def redistribution(self) -> Redistribution:
        return redistribute(self.job, self.surveys, self.choice)

    @cached_property
    def new_offsets(self) -> Mapping[str, NewOffsets]:
        """The operators of the first image that read on from elsewhere, or whose pending
        transactions are dropped, or what the running job has begun, by their ids.
        """
        changed: dict[str, NewOffsets] = {}
        for position in self.facts.positions:
            for plain in position.offsets.values():
                changed[position.source] = NewOffsets.of(json.loads(plain))
        if self.facts.positions and TRANSACTIONS in self.job.waive:
            for end in self.facts.source.images[0].endpoints:
                if end.role == "sink" and end.details.get("transactions"):
                    changed[end.index] = NewOffsets({}, {}, (COMMITTER_STATE,))
        by_id: dict[str, NewOffsets] = {}
        for operator in metadata_of(self.facts.source.images[0]).operators if changed else ():
            index = operator.uid or operator.name or operator.id.hex()
            if index in changed:
                by_id[operator.id.hex()] = changed[index]
        taken = self.choice.taken[0].operators
        for id_, states in self.begun.items() if self.leaves_begun_work else ():
            if id_ in taken:
                by_id[id_] = NewOffsets({}, {}, states)
        return by_id

    @property
    def leaves_begun_work(self) -> bool:
        """Whether `begun` work is the job's to finish. A job that is asked for its savepoint goes
        on, or whose standby is rehearsed; that of an image alone may have ended.
        """
        asks = self.job.flink is not None and bool(self.job.flink.job_ids)
        return asks or self.job.rehearses or TRANSACTIONS in self.job.waive

    @cached_property
    def begun(self) -> Mapping[str, tuple[str, ...]]:
        """The sinks with work that a job has begun which may go on beside its fork, by ids, and the
        states that have it.
        """
        begun: dict[str, tuple[str, ...]] = {}
        keeps = self.job.flink is not None and self.job.flink.cancel_job is False
        may_go_on = keeps or self.job.mode == "fork"
        for survey in filter(is_readable, self.surveys if may_go_on else ()):
            for operator in metadata_of(survey.images[0]).operators:
                for subtask in operator.all_subtasks:
                    handle = subtask.managed_operator
                    names = set() if handle is None else {state.name for state in handle.states}
                    states = (*BEGUN, "state") if names & OF_PRODUCER else BEGUN
                    if holds(handle, states):
                        begun[operator.id.hex()] = states
        return begun

    def is_rewritten(self, number: int, operator: str, role: str) -> bool:
        """Whether state of an operator of the `number`th image is written anew."""
        if number == 0 and role == MANAGED and operator in self.new_offsets:
            return True
        rewritten = self.rewritten_of(number).get(operator)
        return rewritten is not None and role in rewritten.roles

    @property
    def operators(self) -> list[OperatorState]:
        operators = []
        for survey, taken in zip(self.surveys, self.choice.taken, strict=True):
            for operator in metadata_of(survey.images[0]).operators:
                if operator.id.hex() in taken.operators:
                    operators.append(operator)
        return operators

    @property
    def prunes(self) -> bool:
        """Whether entries are left behind by a condition."""
        edits = [rewritten.edit for rewritten in self.redistribution.rewritten]
        return any(edit is not None and edit.where is not None for edit in edits)

    def rewritten(self, operator: str) -> Rewritten | None:
        for candidate in self.redistribution.rewritten:
            if candidate.operator == operator:
                return candidate
        return None

    def rewritten_of(self, number: int) -> dict[str, Rewritten]:
        own = {}
        for (image, operator), rewritten in self.redistribution.by_source.items():
            if image == number:
                own[operator] = rewritten
        return own
