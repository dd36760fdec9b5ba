"""Which operators of which image go to the target, under which ids, and which are rewritten.
Pure.

    chosen(job, surveys)              Choice(taken, unknown, twice, left)
    dealing(job, surveys, choice)     Dealing(rewritten, max_parallelism, wrong)

An operator is named by its uid, whose hash is its id, or by the id itself (32 hexadecimal digits).
Without names, all go.

    "operators": [...]                                  only these: keep, and split
    {"kind": "drop", "operators": [...]}                all but these
    {"kind": "rename", "operators": {"old": "new"}}     under another uid, or another id
    {"kind": "union", "operators": [...]}               of several images, become one

A drop or rename may be `of` one image: jobs that were started from one jar have the same uids.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stateshift.engines.flink.image import Beginnings, flink_image, kept_of, metadata_of, places_of
from stateshift.engines.flink.obstacles import CANONICAL, Obstacle
from stateshift.engines.flink.places import located
from stateshift.engines.flink.rewrite.metadata import Taken
from stateshift.engines.flink.rewrite.unkeyed import RAW, UNKEYED, handles_of, why_not
from stateshift.formats.flink.metadata import Metadata, OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import BROADCAST, Partitioned
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import RelativeFile, files_of
from stateshift.formats.uid import flink_operator_id
from stateshift.specification import JobSpec
from stateshift.survey import Image, Survey

_ID = re.compile(r"[0-9a-f]{32}")
_RESCALED = "cannot get another number of subtasks or key groups"
_UNITED = "cannot become one of several"


@dataclass(frozen=True, slots=True)
class Choice:
    """`unknown` are names that match nothing, `twice` the ids that two images would give to the
    target, `left` those of operators with state that stay behind, `elsewhere` what changes are
    `of`, and no image is; `alone` are names of operators that were to become one of several, and
    are in one image.
    """

    taken: tuple[Taken, ...]
    unknown: tuple[str, ...]
    twice: tuple[str, ...]
    left: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()


def id_of(name: str) -> tuple[str, str | None]:
    """The id that a name stands for, and the uid, if it is one."""
    return (name, None) if _ID.fullmatch(name) else (flink_operator_id(name), name)


def chosen(job: JobSpec, surveys: Sequence[Survey]) -> Choice:
    """Return which operators of which image go to the target, and what is wrong with the names."""
    images = [survey.images[0] for survey in surveys]
    taken = _without_empty_twins(images, _taken_of_each(job, images))
    made = _made_of(taken)
    unions = unions_of(job)
    united = {id_of(name)[0] for name in unions}
    twice = [new for new, sources in made.items() if not _is_one(sources, new in united)]
    alone = [name for name in unions if len(made.get(id_of(name)[0], ())) == 1]
    return Choice(
        taken=tuple(taken),
        unknown=tuple(dict.fromkeys(_unknown(job, images, made))),
        twice=tuple(sorted(twice)),
        left=tuple(sorted(_left(images, taken))),
        alone=tuple(alone),
        elsewhere=tuple(_of_no_image(job, len(images))),
    )


def _taken_of_each(job: JobSpec, images: Sequence[Image]) -> list[Taken]:
    """Return what goes along of each image. Images whose files have the same names lie apart."""
    names: set[str] = set()
    taken = []
    for number, image in enumerate(images):
        renamed = _of_image(job, number, "rename")
        new_ids = {id_of(old)[0]: id_of(new) for old, new in renamed.items()}
        going = _going(job, number, [operator.id for operator in image.operators])
        operators = {id_: new_ids.get(id_, (id_, None)) for id_ in going}
        files = _relative_files(metadata_of(image))
        taken.append(Taken(places_of(image), operators, apart=bool(files & names)))
        names |= files
    return taken


def _of_no_image(job: JobSpec, count: int) -> Iterator[str]:
    """Yield what changes are `of`, where no image is called so."""
    for change in job.transform:
        if "of" in change and not _meant(job, count, change):
            yield change["of"]


def taken_along(job: JobSpec, number: int, image: Image) -> Image:
    """Return an image, the `number`th of the job's, without the operators that its spec leaves
    behind.
    """
    kept = flink_image(image)
    if kept is None:
        return image
    whole = kept.metadata
    going = _going(job, number, [operator.id.hex() for operator in whole.operators])
    operators = tuple(operator for operator in whole.operators if operator.id.hex() in going)
    return replace(image, details=replace(kept, metadata=replace(whole, operators=operators)))


def _going(job: JobSpec, number: int, ids: Iterable[str]) -> list[str]:
    """Return which operators of the `number`th image go along: those that the job names, or all,
    but none dropped.
    """
    named = {id_of(operator.name)[0] for operator in job.operators}
    dropped = {id_of(name)[0] for name in _of_image(job, number, "drop")}
    going = []
    for id_ in ids:
        if id_ not in dropped and (not named or id_ in named):
            going.append(id_)
    return going


def _left(images: Sequence[Image], taken: Sequence[Taken]) -> set[str]:
    left: set[str] = set()
    for image, own in zip(images, taken, strict=True):
        for operator in image.operators:
            if operator.stores and operator.id not in own.operators:
                left.add(operator.id)
    return left


def _without_empty_twins(images: Sequence[Image], taken: Sequence[Taken]) -> list[Taken]:
    """Jobs of one jar have the same operators; one that has no state is of no use beside another
    of its id.
    """
    full = [{o.id for o in image.operators if o.stores} for image in images]
    pairs = list(zip(taken, full, strict=True))
    held: set[str] = set()
    for one, own in pairs:
        held.update(given[0] for old, given in one.operators.items() if old in own)
    found = []
    for one, own in pairs:
        kept = {}
        for old, given in one.operators.items():
            if old in own or given[0] not in held:
                kept[old] = given
        held |= {given[0] for given in kept.values()}
        found.append(replace(one, operators=kept))
    return found


def _unknown(job: JobSpec, images: Sequence[Image], made: Container[str]) -> Iterator[str]:
    """What the job names and no image has."""
    there = [{operator.id for operator in image.operators} for image in images]
    yield from (o.name for o in job.operators if not any(id_of(o.name)[0] in ids for ids in there))
    for change in job.transform:
        if change["kind"] in ("drop", "rename"):
            ids = set[str]().union(*(there[number] for number in _meant(job, len(images), change)))
            for name in change.get("operators", ()):
                if ids and id_of(name)[0] not in ids:
                    yield name
    yield from (name for name in unions_of(job) if id_of(name)[0] not in made)


def _is_one(sources: Sequence[tuple[int, str]], united: bool) -> bool:
    """Whether an operator of the target is made of one, or of some that are to become one, of
    different images.
    """
    return len(sources) == 1 or (united and len({number for number, _ in sources}) == len(sources))


def unions_of(job: JobSpec) -> tuple[str, ...]:
    return tuple(changed(job, "union").get("operators", ()))


def _of_image(job: JobSpec, number: int, kind: str) -> Any:
    """What a drop or a rename says of an image's operators: names, or old ones to new ones."""
    found = []
    for c in job.transform:
        if c["kind"] == kind and _is_meant(job, number, c):
            found.append(c.get("operators", ()))
    if kind == "drop":
        dropped = []
        for names in found:
            dropped.extend(names)
        return dropped
    renamed: dict[str, str] = {}
    for pairs in found:
        renamed.update(dict(pairs))
    return renamed


def _meant(job: JobSpec, count: int, change: Mapping[str, Any]) -> list[int]:
    """The images that a change is for."""
    return [number for number in range(count) if _is_meant(job, number, change)]


def _is_meant(job: JobSpec, number: int, change: Mapping[str, Any]) -> bool:
    of = change.get("of")
    return of is None or bool({of, located(of)} & {*_names_of(job, number)})


def _names_of(job: JobSpec, number: int) -> Iterator[str]:
    """What an image is called by: where it is, and the id of the job that it was taken of."""
    existing = job.flink.existing_savepoints if job.flink is not None else ()
    merged: list[str] = []
    for change in job.transform:
        if change["kind"] == "merge":
            merged += change["locations"]
    ids = job.flink.job_ids if job.flink is not None else ()
    for names in ((*(existing or (job.source,)), *merged), ids):
        yield from names[number : number + 1]


def asked_version(job: JobSpec) -> str | None:
    """The Flink for which the metadata is to be written."""
    version: str | None = changed(job, "convert").get("flink")
    return version


@dataclass(frozen=True, slots=True)
class Rewritten:
    """An operator of the target whose state is rewritten.

    sources  the operators that it is made of, as (image, id there)
    unkeyed  the roles of its state that belongs to no key, where that is rewritten too
    """

    operator: str
    sources: tuple[tuple[int, str], ...]
    parallelism: int
    max_parallelism: int
    unkeyed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dealing:
    """What is rewritten; of all operators the max parallelism, where it changes; and for which
    operators that cannot be done: (id, what, why).
    """

    rewritten: tuple[Rewritten, ...]
    max_parallelism: int | None
    wrong: tuple[tuple[str, str, Obstacle], ...] = ()

    @property
    def by_source(self) -> Mapping[tuple[int, str], Rewritten]:
        found = {}
        for rewritten in self.rewritten:
            for source in rewritten.sources:
                found[source] = rewritten
        return found


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An operator of the target that may have to be rewritten, and the operators it is made of."""

    operator: str
    sources: tuple[tuple[int, str], ...]
    operators: tuple[OperatorState, ...]

    @property
    def is_united(self) -> bool:
        return len(self.sources) > 1

    @property
    def subtasks(self) -> list[SubtaskState]:
        found: list[SubtaskState] = []
        for operator in self.operators:
            found += operator.subtasks or ()
        return found

    @property
    def is_keyed(self) -> bool:
        return any(subtask.managed_keyed is not None for subtask in self.subtasks)

    @property
    def unkeyed(self) -> list[tuple[str, Partitioned]]:
        """The handles of its state that belongs to no key, as far as they hold something."""
        found = []
        for subtask in self.subtasks:
            found += [(role, handle) for role, handle in handles_of(subtask) if handle.states]
        return found

    @property
    def has_broadcast_state(self) -> bool:
        modes: set[int] = set()
        for _, handle in self.unkeyed:
            modes.update(state.mode for state in handle.states)
        return BROADCAST in modes


def dealing(job: JobSpec, surveys: Sequence[Survey], choice: Choice) -> Dealing:
    """Return which operators are rewritten for what the job's changes ask for, and which of those
    cannot be.
    """
    change = changed(job, "rescale")
    rewritten: list[Rewritten] = []
    wrong: list[tuple[str, str, Obstacle]] = []
    for new, sources in _made_of(choice.taken).items():
        operators = [_operator(surveys[number].images[0], old) for number, old in sources]
        candidate = _Candidate(new, sources, tuple(operators))
        if not change and not candidate.is_united:
            continue
        result = _dealt(candidate, surveys, change)
        if isinstance(result, Rewritten):
            rewritten.append(result)
        elif isinstance(result, Obstacle):
            wrong.append((new, _UNITED if candidate.is_united else _RESCALED, result))
    return Dealing(tuple(rewritten), change.get("max_parallelism"), tuple(wrong))


def _dealt(
    candidate: _Candidate, surveys: Sequence[Survey], change: Mapping[str, Any]
) -> Rewritten | Obstacle | None:
    """Return how an operator is rewritten, or why it cannot be; None where nothing is to be done.

    What Flink deals out itself need not be refused where no more than its parallelism was asked
    for.
    """
    images = [surveys[number].images[0] for number, _ in candidate.sources]
    heads = [
        kept_of(image).heads.get(old, {})
        for image, (_, old) in zip(images, candidate.sources, strict=True)
    ]
    stuck = _stuck(heads)
    wanted = change
    if stuck is not None and not candidate.is_united:
        wanted = {**change, "parallelism": None}
    rewritten = _rewritten(candidate, wanted)
    if rewritten is None:
        return _too_many_subtasks(candidate.operators[0], change)
    why = _cannot(candidate, rewritten, change)
    if why is None:
        why = _blocked(surveys, candidate.sources, candidate.is_united)
    if why is None and stuck is not None and rewritten.unkeyed:
        why = Obstacle(stuck)
    return rewritten if why is None else why


def _too_many_subtasks(operator: OperatorState, change: Mapping[str, Any]) -> Obstacle | None:
    most = change.get("max_parallelism", operator.max_parallelism)
    if operator.parallelism <= most:
        return None
    return Obstacle(f"it has {operator.parallelism} subtasks, more than {most}")


def _blocked(
    surveys: Sequence[Survey], sources: Sequence[tuple[int, str]], united: bool
) -> Obstacle | None:
    """Return the first reason why one of the sources cannot be written otherwise."""
    for number, operator in sources:
        kept = kept_of(surveys[number].images[0])
        reasons = kept.apart if united else kept.rigid
        if operator in reasons:
            return reasons[operator]
    return None


def _made_of(taken: Sequence[Taken]) -> dict[str, tuple[tuple[int, str], ...]]:
    """Id in the target -> what it is made of: (image, id there)."""
    found: dict[str, tuple[tuple[int, str], ...]] = {}
    for number, one in enumerate(taken):
        for old, (new, _) in one.operators.items():
            found[new] = (*found.get(new, ()), (number, old))
    return found


def _stuck(images: Sequence[Beginnings]) -> str | None:
    """Why operator state cannot be joined, from how its files begin: role -> beginnings, an
    image each.
    """
    for role in UNKEYED:
        found: list[bytes] = []
        for image in images:
            found.extend(image.get(role, []))
        why = why_not(found, role == RAW)
        if why is not None:
            return why
    return None


def _operator(image: Image, id_: str) -> OperatorState:
    return next(operator for operator in metadata_of(image).operators if operator.id.hex() == id_)


def _rewritten(candidate: _Candidate, change: Mapping[str, Any]) -> Rewritten | None:
    """Return how an operator is rewritten; None where nothing is to be done: state of no key, by
    itself, is left to Flink, which deals it out for any parallelism.
    """
    first = candidate.operators[0]
    max_parallelism = change.get("max_parallelism") or first.max_parallelism
    own = max(operator.parallelism for operator in candidate.operators)
    parallelism = own
    if candidate.is_keyed and change.get("parallelism"):
        parallelism = change["parallelism"]
    if not candidate.is_united:
        before = (first.parallelism, first.max_parallelism)
        if not candidate.is_keyed or (parallelism, max_parallelism) == before:
            return None
    roles: set[str] = set()
    if _moves_unkeyed(candidate, own, parallelism):
        roles = {role for role, _ in candidate.unkeyed}
    return Rewritten(
        operator=candidate.operator,
        sources=candidate.sources,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        unkeyed=tuple(sorted(roles)),
    )


def _moves_unkeyed(candidate: _Candidate, before: int, after: int) -> bool:
    """Whether state of no key is to be rewritten with the keyed state: where subtasks go, and
    where what each of them has whole is for more of them.
    """
    if candidate.is_united or after < before:
        return True
    return candidate.has_broadcast_state and after != before


def _cannot(
    candidate: _Candidate, rewritten: Rewritten, change: Mapping[str, Any]
) -> Obstacle | None:
    operators, subtasks = candidate.operators, candidate.subtasks
    if rewritten.parallelism > rewritten.max_parallelism:
        return Obstacle(
            f"it has {rewritten.parallelism} subtasks, "
            f"more than {rewritten.max_parallelism} key groups"
        )
    if any(subtask.inputs or subtask.outputs for subtask in subtasks):
        return Obstacle("records were in flight to it, which only Flink can deal out", CANONICAL)
    has_finished = any(operator.subtasks is None for operator in operators)
    if has_finished or any(subtask.finished for subtask in subtasks):
        return Obstacle("some of its subtasks have finished")
    groups = sorted({operator.max_parallelism for operator in operators})
    if len(groups) > 1 and not change.get("max_parallelism"):
        return Obstacle(
            f"it has {' and '.join(map(str, groups))} key groups",
            '{"kind": "rescale", "max_parallelism": N} makes them equal',
        )
    coordinators = [operator for operator in operators if operator.coordinator is not None]
    if len(coordinators) > 1:
        return Obstacle(
            "each has a coordinator with a state of its own, of which Flink restores one",
            (
                'rename one of them: {"kind": "rename", "of": "that savepoint", "operators": '
                '{"old": "new"}}'
            ),
        )
    return None


def changed(job: JobSpec, kind: str) -> Mapping[str, Any]:
    return next((change for change in job.transform if change["kind"] == kind), {})


def _relative_files(metadata: Metadata) -> set[str]:
    paths: set[str] = set()
    for reference in references(metadata):
        for file in files_of(reference.stream):
            if isinstance(file, RelativeFile):
                paths.add(file.path)
    return paths
