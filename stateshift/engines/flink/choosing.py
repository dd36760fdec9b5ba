"""Which operators of which image go to the target, and under which ids. Pure.

    chosen(job, surveys)    Choice(taken, unknown, twice, left)

An operator is named by its uid, whose hash is its id, or by the id itself (32 hexadecimal digits). Without names, all
go.

    "operators": [...]                                  only these: keep, and split
    {"kind": "drop", "operators": [...]}                all but these
    {"kind": "rename", "operators": {"old": "new"}}     under another uid, or another id
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stateshift.engines.flink.editing import Taken
from stateshift.engines.flink.places import Places
from stateshift.formats.flink.metadata import Metadata, OperatorState
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import RelativeFile, files_of
from stateshift.formats.uid import flink_operator_id
from stateshift.spec import JobSpec
from stateshift.survey import Image, Survey

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Choice:
    """`unknown` are names that match nothing, `twice` the ids that two images would give to the target, `left` those of
    operators with state that stay behind."""

    taken: tuple[Taken, ...]
    unknown: tuple[str, ...]
    twice: tuple[str, ...]
    left: tuple[str, ...]


def id_of(name: str) -> tuple[str, str | None]:
    """The id that a name stands for, and the uid, if it is one."""
    return (name, None) if _ID.fullmatch(name) else (flink_operator_id(name), name)


def chosen(job: JobSpec, surveys: Sequence[Survey]) -> Choice:
    named = [operator.name for operator in job.operators]
    dropped = _changed(job, "drop").get("operators", ())
    renamed = _changed(job, "rename").get("operators", {})
    there = {operator.id for survey in surveys for image in survey.images for operator in image.operators}
    wanted = {id_of(name)[0] for name in named} if named else there
    wanted = wanted - {id_of(name)[0] for name in dropped}
    others = {id_of(old)[0]: id_of(new) for old, new in renamed.items()}
    taken, names = [], set[str]()
    for survey in surveys:
        image = survey.images[0]
        own = {o.id: others.get(o.id, (o.id, None)) for o in image.operators if o.id in wanted}
        files = _relative_files(metadata_of(image))
        taken.append(Taken(places_of(image), own, apart=bool(files & names)))
        names |= files
    new = [given[0] for one in taken for given in one.operators.values()]
    kept = {own for one in taken for own in one.operators}
    return Choice(
        taken=tuple(taken),
        unknown=tuple(name for name in (*named, *dropped, *renamed) if id_of(name)[0] not in there),
        twice=tuple(sorted({one for one in new if new.count(one) > 1})),
        left=tuple(sorted(o.id for s in surveys for o in s.images[0].operators if o.stores and o.id not in kept)),
    )


def metadata_of(image: Image) -> Metadata:
    found: Metadata = image.details["metadata"]
    return found


def places_of(image: Image) -> Places:
    found: Places = image.details["places"]
    return found


def asked_version(job: JobSpec) -> str | None:
    """The Flink for which the metadata is to be written."""
    version: str | None = _changed(job, "convert").get("flink")
    return version


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Operators with keyed state whose groups are cut or dealt anew: (image, operator) -> parallelism; and of all, the
    max parallelism, where it changes. `wrong` are operators for which that cannot be done, and why."""

    operators: Mapping[tuple[int, str], int]
    max_parallelism: int | None
    wrong: tuple[tuple[str, str], ...] = ()


def rescaling(job: JobSpec, surveys: Sequence[Survey], taken: Sequence[Taken]) -> Rescaling:
    change = _changed(job, "rescale")
    found: dict[tuple[int, str], int] = {}
    wrong: list[tuple[str, str]] = []
    for number, (survey, own) in enumerate(zip(surveys, taken, strict=True)):
        blocked: Mapping[str, str] = survey.images[0].details.get("rigid", {})
        for operator in metadata_of(survey.images[0]).operators if change else ():
            id_ = operator.id.hex()
            if id_ not in own.operators:
                continue
            wanted, why = _rescaled(operator, change, blocked.get(id_))
            if why is not None:
                wrong.append((id_, why))
            elif wanted is not None:
                found[number, id_] = wanted
    return Rescaling(found, change.get("max_parallelism"), tuple(wrong))


def _rescaled(
    operator: OperatorState, change: Mapping[str, Any], blocked: str | None
) -> tuple[int | None, str | None]:
    """The number of subtasks for which its keyed state is written anew; else why it cannot be, or neither. State of no
    key stays where it is: Flink deals it out, for any parallelism."""
    subtasks = operator.subtasks or ()
    most = change.get("max_parallelism") or operator.max_parallelism
    keyed = any(s.managed_keyed is not None for s in subtasks)
    flying = any(s.inputs or s.outputs for s in subtasks)
    only_keyed = keyed and not flying and not any(s.managed_operator or s.raw_operator for s in subtasks)
    wanted: int = (change.get("parallelism") if only_keyed else None) or operator.parallelism
    if wanted > most:
        return None, f"it has {wanted} subtasks, more than {most} key groups"
    if not keyed or (wanted, most) == (operator.parallelism, operator.max_parallelism):
        return None, None
    return wanted, blocked or ("records were in flight to it, which only Flink can deal out" if flying else None)


def _changed(job: JobSpec, kind: str) -> Mapping[str, Any]:
    return next((change for change in job.transform if change["kind"] == kind), {})


def _relative_files(metadata: Metadata) -> set[str]:
    return {f.path for r in references(metadata) for f in files_of(r.stream) if isinstance(f, RelativeFile)}
