"""Which operators of which image go to the target, under which ids, and which are written anew.
Pure.

    chosen(job, surveys)              Choice(taken, unknown, twice, left)
    dealing(job, surveys, choice)     Dealing(anew, max_parallelism, wrong)

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
from stateshift.engines.flink.rewrite.unkeyed import LOOSE, RAW, handles_of, why_not
from stateshift.formats.flink.metadata import Metadata, OperatorState
from stateshift.formats.flink.operator_handles import BROADCAST
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
    images = [survey.images[0] for survey in surveys]
    names = set[str]()
    taken = list[Taken]()
    for number, image in enumerate(images):
        renamed = {
            id_of(old)[0]: id_of(new) for old, new in _of_image(job, number, "rename").items()
        }
        wanted = _going(job, number, [operator.id for operator in image.operators])
        files = _relative_files(metadata_of(image))
        own = {id_: renamed.get(id_, (id_, None)) for id_ in wanted}
        taken.append(Taken(places_of(image), own, apart=bool(files & names)))
        names |= files
    taken = _without_empty_twins(images, taken)
    made, united = _made_of(taken), {id_of(name)[0] for name in unions_of(job)}
    return Choice(
        taken=tuple(taken),
        unknown=tuple(dict.fromkeys(_unknown(job, images, made))),
        twice=tuple(
            sorted(new for new, sources in made.items() if not _is_one(sources, new in united))
        ),
        left=tuple(sorted(_left(images, taken))),
        alone=tuple(name for name in unions_of(job) if len(made.get(id_of(name)[0], ())) == 1),
        elsewhere=tuple(
            c["of"] for c in job.transform if "of" in c and not _meant(job, len(images), c)
        ),
    )


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
    return [id_ for id_ in ids if id_ not in dropped and (not named or id_ in named)]


def _left(images: Sequence[Image], taken: Sequence[Taken]) -> set[str]:
    pairs = zip(images, taken, strict=True)
    return {
        o.id
        for image, own in pairs
        for o in image.operators
        if o.stores and o.id not in own.operators
    }


def _without_empty_twins(images: Sequence[Image], taken: Sequence[Taken]) -> list[Taken]:
    """Jobs of one jar have the same operators; one that has no state is of no use beside another
    of its id.
    """
    full = [{o.id for o in image.operators if o.stores} for image in images]
    pairs = list(zip(taken, full, strict=True))
    held = {given[0] for one, own in pairs for old, given in one.operators.items() if old in own}
    found = []
    for one, own in pairs:
        kept = {
            old: given for old, given in one.operators.items() if old in own or given[0] not in held
        }
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
            yield from (
                name for name in change.get("operators", ()) if ids and id_of(name)[0] not in ids
            )
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
    found = [
        c.get("operators", ())
        for c in job.transform
        if c["kind"] == kind and _is_meant(job, number, c)
    ]
    if kind == "drop":
        return [name for names in found for name in names]
    return {old: new for names in found for old, new in dict(names).items()}


def _meant(job: JobSpec, count: int, change: Mapping[str, Any]) -> list[int]:
    """The images that a change is for."""
    return [number for number in range(count) if _is_meant(job, number, change)]


def _is_meant(job: JobSpec, number: int, change: Mapping[str, Any]) -> bool:
    of = change.get("of")
    return of is None or bool({of, located(of)} & {*_names_of(job, number)})


def _names_of(job: JobSpec, number: int) -> Iterator[str]:
    """What an image is called by: where it is, and the id of the job that it was taken of."""
    existing = job.flink.existing_savepoints if job.flink is not None else ()
    merged = (
        at for change in job.transform if change["kind"] == "merge" for at in change["locations"]
    )
    ids = job.flink.job_ids if job.flink is not None else ()
    for names in ((*(existing or (job.source,)), *merged), ids):
        yield from names[number : number + 1]


def asked_version(job: JobSpec) -> str | None:
    """The Flink for which the metadata is to be written."""
    version: str | None = changed(job, "convert").get("flink")
    return version


@dataclass(frozen=True, slots=True)
class Anew:
    """An operator of the target whose state is written anew: the operators that it is made of, as
    (image, id there). `loose` is what of it belongs to no key, by its roles, as far as that is
    written anew too.
    """

    operator: str
    sources: tuple[tuple[int, str], ...]
    parallelism: int
    max_parallelism: int
    loose: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dealing:
    """What is written anew; of all operators the max parallelism, where it changes; and for which
    operators that cannot be done: (id, what, why).
    """

    anew: tuple[Anew, ...]
    max_parallelism: int | None
    wrong: tuple[tuple[str, str, Obstacle], ...] = ()

    @property
    def by_source(self) -> Mapping[tuple[int, str], Anew]:
        return {source: one for one in self.anew for source in one.sources}


def dealing(job: JobSpec, surveys: Sequence[Survey], choice: Choice) -> Dealing:
    change = changed(job, "rescale")
    found: list[Anew] = []
    wrong: list[tuple[str, str, Obstacle]] = []
    for new, sources in _made_of(choice.taken).items():
        united = len(sources) > 1
        if not change and not united:
            continue
        operators = [_operator(surveys[number].images[0], old) for number, old in sources]
        blocked = _blocked(surveys, sources, united)
        heads = [kept_of(surveys[n].images[0]).heads.get(o, {}) for n, o in sources]
        stuck = _stuck(heads)
        # What Flink deals out itself need not be refused where no more than its parallelism was
        # asked for.
        wished = change if stuck is None or united else {**change, "parallelism": None}
        anew = _anew(new, sources, operators, wished)
        if anew is None:
            most = change.get("max_parallelism", operators[0].max_parallelism)
            if operators[0].parallelism > most:
                fact = f"it has {operators[0].parallelism} subtasks, more than {most}"
                wrong.append((new, _RESCALED, Obstacle(fact)))
            continue
        why = _cannot(operators, anew, change) or blocked
        if why is None and stuck is not None and anew.loose:
            why = Obstacle(stuck)
        if why is None:
            found.append(anew)
        else:
            wrong.append((new, _UNITED if united else _RESCALED, why))
    return Dealing(tuple(found), change.get("max_parallelism"), tuple(wrong))


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
    for role in LOOSE:
        found = [head for image in images for head in image.get(role, [])]
        why = why_not(found, role == RAW)
        if why is not None:
            return why
    return None


def _operator(image: Image, id_: str) -> OperatorState:
    return next(operator for operator in metadata_of(image).operators if operator.id.hex() == id_)


def _anew(
    new: str,
    sources: tuple[tuple[int, str], ...],
    operators: Sequence[OperatorState],
    change: Mapping[str, Any],
) -> Anew | None:
    """None where nothing is to be done: state of no key, by itself, is left to Flink, which deals
    it out for any parallelism.
    """
    first, subtasks = operators[0], [s for operator in operators for s in operator.subtasks or ()]
    keyed = any(s.managed_keyed is not None for s in subtasks)
    most = change.get("max_parallelism") or first.max_parallelism
    own = max(operator.parallelism for operator in operators)
    wanted: int = (change.get("parallelism") if keyed else None) or own
    united = len(operators) > 1
    if not united and (not keyed or (wanted, most) == (first.parallelism, first.max_parallelism)):
        return None
    held = [
        (role, handle)
        for subtask in subtasks
        for role, handle in handles_of(subtask)
        if handle.states
    ]
    copied = any(state.mode == BROADCAST for _, handle in held for state in handle.states)
    moves = united or wanted < own or (copied and wanted != own)
    return Anew(
        new, sources, wanted, most, tuple(sorted({role for role, _ in held})) if moves else ()
    )


def _cannot(
    operators: Sequence[OperatorState], anew: Anew, change: Mapping[str, Any]
) -> Obstacle | None:
    subtasks = [subtask for operator in operators for subtask in operator.subtasks or ()]
    if anew.parallelism > anew.max_parallelism:
        return Obstacle(
            f"it has {anew.parallelism} subtasks, more than {anew.max_parallelism} key groups"
        )
    if any(subtask.inputs or subtask.outputs for subtask in subtasks):
        return Obstacle("records were in flight to it, which only Flink can deal out", CANONICAL)
    if any(operator.subtasks is None for operator in operators) or any(
        subtask.finished for subtask in subtasks
    ):
        return Obstacle("some of its subtasks have finished")
    groups = sorted({operator.max_parallelism for operator in operators})
    if len(groups) > 1 and not change.get("max_parallelism"):
        return Obstacle(
            f"it has {' and '.join(map(str, groups))} key groups",
            '{"kind": "rescale", "max_parallelism": N} makes them equal',
        )
    if len([operator for operator in operators if operator.coordinator is not None]) > 1:
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
    return {
        f.path
        for r in references(metadata)
        for f in files_of(r.stream)
        if isinstance(f, RelativeFile)
    }
