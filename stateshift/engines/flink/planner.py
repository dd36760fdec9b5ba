"""The plan of one Flink job, from spec and facts and nothing else.

    halt        take the savepoints of the jobs that still run, and stop them with it
    copy        the files of every image, in bundles; what lay elsewhere, or was a part of a file, becomes a file of its
                own; each image's metadata, beside the target's
    transform   the metadata of the target, not yet under its name
    compare     the entries of every operator
    publish     the metadata under its name: Flink looks for nothing else
    submit, confirm

The sources stay as they are (IF-10). A job that still runs has no image yet: its plan is a halt plan, and a move plan
that is made once the savepoints are there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stateshift import plain
from stateshift.engines.bundles import bundled
from stateshift.engines.flink import layout
from stateshift.engines.flink.choosing import (
    Anew,
    Choice,
    Dealing,
    asked_version,
    chosen,
    dealing,
    id_of,
    metadata_of,
    places_of,
)
from stateshift.engines.flink.editing import Taken
from stateshift.engines.flink.entries import SETTING
from stateshift.engines.flink.findings import (
    ASKABLE,
    of_changes,
    of_clusters,
    of_move,
    of_sources,
    of_taking,
    of_target,
    waived,
)
from stateshift.engines.flink.transforms import CUT, KEEP, METADATA, RESCALE
from stateshift.engines.starting import Awaited, start
from stateshift.formats.flink.operator_handles import BROADCAST
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import Segment, files_of
from stateshift.formats.flink.versions import newest_for
from stateshift.formats.marks import FOLDER
from stateshift.plan import Phase, Plan, phases_of
from stateshift.spec import JobSpec, Spec
from stateshift.spec.waves import sharing
from stateshift.step import AnyStep, CompareImages, CopyFiles, TakeSavepoint, TransformShard
from stateshift.step.files import Elsewhere
from stateshift.step.images import Side
from stateshift.survey import Facts, FileInfo, Finding, Image, ShardFiles, Survey


def plan(spec: Spec, job: JobSpec, facts: Facts) -> tuple[Plan, ...]:
    if not spec.restart:
        started = _plan(job, facts, phases_of(*_start(job, facts, None)), tuple(of_clusters(facts)))
        return (replace(started, purpose="start"),)
    if job.takes_savepoints:
        later = _plan(job, facts, phases_of(*_start(job, facts, 0)), tuple(_of_taking(job, facts)))
        return halt_plan(spec, job, facts), replace(later, provisional=True, facts=identity_of(facts))
    return (move_plan(spec, job, facts),)


def halt_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    """Take the savepoints. Where they are, the next survey is told."""
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    # Of several jobs it is not known which of them `source_submit` starts: they are told apart by a person.
    again, cancel = job.source_submit if len(job.flink.job_ids) == 1 else None, job.flink.cancel_job
    patience = spec.cluster(job.source_cluster).options.get("seconds_max", 600) if job.source_cluster else 600
    steps = tuple(
        TakeSavepoint(
            name=f"halt/savepoint-{number}",
            cluster=job.source_cluster or "",
            job=job.name,
            job_id=job_id,
            directory=job.source,
            stop=cancel is None and job.mode == "move",
            cancel=bool(cancel),
            drain=bool(job.stop.get("drain", False)),
            native=job.stop.get("format", "canonical") == "native",
            seconds_max=float(job.stop.get("seconds_max", patience)),
            restart=again.options if again else None,
            restart_environment=again.environment if again else {},
        )
        for number, job_id in enumerate(job.flink.job_ids)
    )
    halted = _plan(job, facts, phases_of(Phase("halt", steps)), ())
    return replace(halted, purpose="halt", epoch=None, facts=identity_of(facts))


def _of_taking(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """What can be said before there is a savepoint."""
    found = [*of_taking(job, facts), *of_target(job, facts), *of_changes(job), *of_clusters(facts)]
    yield from (waived(finding, job.waive) for finding in found)


def move_plan(spec: Spec, job: JobSpec, facts: Facts) -> Plan:
    surveys = (facts.source, *facts.others)
    if not all(survey.images and "metadata" in survey.images[0].details for survey in surveys):
        found = tuple(waived(finding, job.waive) for finding in of_sources(surveys))
        return _plan(job, facts, (), found)
    choice = chosen(job, surveys)
    deal = dealing(job, surveys, choice)
    found = of_move(job, facts, surveys, choice, _taken_by_others(spec, job), deal)
    if any(finding.level == "refuse" for finding in found):
        return _plan(job, facts, (), found)
    epoch = max(metadata_of(survey.images[0]).checkpoint_id for survey in surveys)
    if job.target is None:
        return _plan(job, facts, phases_of(*_start(job, facts, epoch)), found, epoch)
    target = facts.target.location
    phases = phases_of(
        Phase("copy", (*_copies(surveys, choice, target, deal), *_rescales(surveys, choice, target, deal))),
        Phase("transform", (_metadata(job, surveys, choice, target, deal),)),
        Phase("compare", tuple(_compares(job, surveys, choice, target, deal))),
        Phase("publish", (_published(target),), ordered=True),
        *_start(job, facts, epoch),
    )
    return _plan(job, facts, phases, found, epoch)


def _taken_by_others(spec: Spec, job: JobSpec) -> frozenset[str] | None:
    """The operators that the jobs take which divide this one's savepoints with it; None where it divides nothing."""
    asked = spec.job(job.name)  # before its savepoints were taken
    others = sharing(spec, asked) if asked is not None else ()
    return frozenset(id_of(operator.name)[0] for other in others for operator in other.operators) if others else None


def identity_of(facts: Facts) -> str:
    """What does not change while a job runs: who it is, and where it goes, if it goes anywhere."""
    target = facts.target
    return plain.fingerprint(
        [
            None if target is facts.source else [target.location, target.kind, len(target.files)],
            [c and [c.name, c.version] for c in (facts.source_cluster, facts.target_cluster)],
        ]
    )


def fingerprint_of(facts: Facts) -> str:
    """Every file of every image."""
    return plain.fingerprint(
        [identity_of(facts), [[s.location, s.kind, sorted(s.files), s.epoch] for s in (facts.source, *facts.others)]]
    )


def _plan(
    job: JobSpec, facts: Facts, phases: tuple[Phase, ...], found: tuple[Finding, ...], epoch: int | None = None
) -> Plan:
    return Plan(
        job=job.name,
        engine=layout.ENGINE,
        purpose="move",
        source=facts.source.location,
        target=facts.target.location if job.target else facts.source.location,
        epoch=epoch,
        phases=phases,
        findings=found,
        facts=fingerprint_of(facts),
    )


def _copies(
    surveys: Sequence[Survey], choice: Choice, target: str, deal: Dealing
) -> Iterator[AnyStep]:
    for number, (survey, taken) in enumerate(zip(surveys, choice.taken, strict=True)):
        image = survey.images[0]
        infos = {file.path: file for file in survey.files}
        wanted = _wanted(image, taken, {own: one for (n, own), one in deal.by_source.items() if n == number})
        same = [infos[path] for path, parts in wanted.items() if list(parts) == [(path, None)]]
        for bundle, items in enumerate(bundled(same)):
            yield CopyFiles(f"copy/{number}-{bundle}", survey.location, target, tuple(items))
        others = {path: parts for path, parts in wanted.items() if list(parts) != [(path, None)]}
        whole = [(infos[path], name) for path, parts in others.items() for name, part in parts if part is None]
        yield from _renamed(f"copy/{number}-named", survey.location, target, whole)
        cut = {path: [(n, p) for n, p in parts if p is not None] for path, parts in others.items()}
        for index, (path, pieces) in enumerate((path, pieces) for path, pieces in cut.items() if pieces):
            yield TransformShard(
                name=f"copy/{number}-cut-{index}",
                transform=CUT,
                options={"pieces": [list(part) for _, part in pieces]},
                source=survey.location,
                inputs=(infos[path],),
                target=target,
                outputs=tuple(name for name, _ in pieces),
            )
        metadata = infos[layout.under(image.path, layout.METADATA)]
        yield from _renamed(f"copy/{number}-metadata", survey.location, target, [(metadata, _kept(number))])


def _wanted(
    image: Image, taken: Taken, anew: Mapping[str, Anew]
) -> dict[str, dict[tuple[str, tuple[int, int] | None], None]]:
    """Path in the source -> what becomes of it: (name in the target, the piece of it or all); but for what is
    written anew."""
    places, found = places_of(image), dict[str, dict[tuple[str, tuple[int, int] | None], None]]()
    for reference in references(metadata_of(image)):
        one = anew.get(reference.operator)
        if reference.operator not in taken.operators or (one is not None and reference.role in ("keyed", *one.loose)):
            continue
        for file in files_of(reference.stream):
            path = places.path_of(file)
            assert path is not None, "what lies elsewhere is refused before"
            part = (file.start, file.size) if isinstance(file, Segment) and not reference.whole else None
            found.setdefault(path, {})[taken.name(file, reference.whole), part] = None
    return found


def _rescales(
    surveys: Sequence[Survey], choice: Choice, target: str, deal: Dealing
) -> Iterator[TransformShard]:
    """An operator's state for other subtasks, or that of several images' as one: a step each."""
    for one in deal.anew:
        origins, inputs = [], []
        for number, operator in one.sources:
            survey, places = surveys[number], choice.taken[number].places
            image, infos = survey.images[0], {file.path: file for file in survey.files}
            paths = _paths_of(image, operator, ("keyed", *one.loose))
            origins.append({**places.plain(), "operator": operator, "paths": list(paths)})
            files = (infos[layout.under(image.path, layout.METADATA)], *(infos[path] for path in paths))
            inputs.append(Elsewhere(survey.location, files))
        names, loose = _names_anew(choice, one), _loose_names(choice, one)
        yield TransformShard(
            name=f"copy/anew-{one.operator}",
            transform=RESCALE,
            options={"origins": origins, "operator": one.operator, "parallelism": one.parallelism,
                     "max_parallelism": one.max_parallelism, "names": list(names), "loose": loose},
            source=inputs[0].location,
            inputs=inputs[0].files,
            target=target,
            outputs=(*names, *(name for own in loose.values() for name in own), _summary(one)),
            beside=tuple(inputs[1:]),
        )  # fmt: skip


def _paths_of(image: Image, operator: str, roles: Sequence[str]) -> tuple[str, ...]:
    places = places_of(image)
    own = (r for r in references(metadata_of(image)) if r.operator == operator and r.role in roles)
    return tuple(dict.fromkeys(p for r in own for f in files_of(r.stream) if (p := places.path_of(f)) is not None))


def _names_anew(choice: Choice, one: Anew, role: str = "") -> tuple[str, ...]:
    """Made of where its state comes from: of whatever is run again, they are the same."""
    places = (choice.taken[number].places for number, _ in one.sources)
    known = " ".join((*(f"{place.root}/{place.image}" for place in places), one.operator, str(one.parallelism), role))
    return tuple(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{known} {subtask}")) for subtask in range(one.parallelism))


def _loose_names(choice: Choice, one: Anew) -> dict[str, list[str]]:
    return {role: list(_names_anew(choice, one, role)) for role in one.loose}


def _summary(one: Anew) -> str:
    return f"{FOLDER}/anew-{one.operator}.json"


def _renamed(
    name: str, source: str, target: str, files: list[tuple[FileInfo, str]]
) -> Iterator[TransformShard]:
    """Files as they are, under other names."""
    names = {info.path: given for info, given in files}
    for number, bundle in enumerate(bundled([info for info, _ in files])):
        yield TransformShard(
            name=f"{name}-{number}",
            transform=KEEP,
            options={},
            source=source,
            inputs=tuple(bundle),
            target=target,
            outputs=tuple(names[info.path] for info in bundle),
        )


def _kept(number: int) -> str:
    """Where the target keeps what the metadata of an image was."""
    return f"{FOLDER}/source-{number}{layout.METADATA}"


def _metadata(
    job: JobSpec, surveys: Sequence[Survey], choice: Choice, target: str, deal: Dealing
) -> TransformShard:
    asked = asked_version(job)
    sizes = [_size(survey) for survey in surveys]
    return TransformShard(
        name="transform/metadata",
        transform=METADATA,
        options={"taken": [one.plain() for one in choice.taken], "version": newest_for(asked) if asked else None,
                 "max_parallelism": deal.max_parallelism},
        source=target,
        inputs=(*(FileInfo(_kept(number), size) for number, size in enumerate(sizes)),
                *(FileInfo(_summary(one), 0) for one in deal.anew)),
        target=target,
        outputs=(layout.STAGED,),
    )  # fmt: skip


def _size(survey: Survey) -> int:
    path = layout.under(survey.images[0].path, layout.METADATA)
    return next(file.size for file in survey.files if file.path == path)


def _published(target: str) -> TransformShard:
    return TransformShard(
        name="publish/metadata",
        transform=KEEP,
        options={},
        source=target,
        inputs=(FileInfo(layout.STAGED, 0),),
        target=target,
        outputs=(layout.METADATA,),
        whole=True,
    )


def _compares(
    job: JobSpec, surveys: Sequence[Survey], choice: Choice, target: str, deal: Dealing
) -> Iterator[CompareImages]:
    """Image by image; what is made of several, by itself."""
    if job.verify == "none":
        return
    united = [one for one in deal.anew if len(one.sources) > 1]
    apart = {source for one in united for source in one.sources}
    for number, taken in enumerate(choice.taken):
        own = [(old, new[0]) for old, new in taken.operators.items() if (number, old) not in apart]
        if own:
            yield _compared(f"compare/{number}", surveys, choice, target, deal, [(number, own)])
    for one in united:
        of_images = [(number, [(old, one.operator)]) for number, old in one.sources]
        yield _compared(f"compare/{one.operator}", surveys, choice, target, deal, of_images)


def _compared(
    name: str, surveys: Sequence[Survey], choice: Choice, target: str, deal: Dealing,
    of_images: Sequence[tuple[int, Sequence[tuple[str, str]]]],
) -> CompareImages:
    """`of_images`: (image, [(operator there, in the target)])."""
    anew = {one.operator: one for one in deal.anew}
    new = list(dict.fromkeys(operator for _, pairs in of_images for _, operator in pairs))
    told = {"whole": sorted(set(new) - anew.keys())}
    once: dict[str, list[str]] = {id_: [] for id_ in new if id_ in anew and anew[id_].loose}
    kept: dict[str, dict[str, None]] = {operator: {} for operator in new}
    sides, size = [], 0
    for number, pairs in of_images:
        survey, taken = surveys[number], choice.taken[number]
        image, sizes = survey.images[0], {file.path: file.size for file in survey.files}
        own, names = {shard.operator: shard for shard in image.shards}, _names(image, taken)
        shards = tuple(replace(own[old], operator=operator) for old, operator in pairs)
        names_of = {operator: old for old, operator in pairs}
        settings = {**taken.places.plain(), **told, "once": once, "as": names_of}
        sides.append(Side(survey.location, shards, {SETTING: json.dumps(settings, sort_keys=True)}))
        once = {id_: sorted({*seen, *_broadcast(image, names_of.get(id_))}) for id_, seen in once.items()}
        size += sum(sizes.get(path, 0) for path in {path for shard in shards for path in shard.files})
        for old, operator in pairs:
            gone = ("keyed", *anew[operator].loose) if operator in anew else ()
            kept[operator] |= {name: None for name, role in names.get(old, {}).items() if role not in gone}
    for operator in new:
        if operator in anew:
            loose = _loose_names(choice, anew[operator])
            written = (*_names_anew(choice, anew[operator]), *(name for own in loose.values() for name in own))
            kept[operator] |= dict.fromkeys(written)
    first = sides[0]
    there = {"root": target, "image": "", **told, "once": {id_: [] for id_ in once}}
    return CompareImages(
        name=name,
        engine=layout.ENGINE,
        source=first.location,
        target=target,
        source_shards=first.shards,
        target_shards=tuple(ShardFiles(id_, "", 0, (layout.STAGED, *kept[id_])) for id_ in new),
        paths=(),
        settings=first.settings,
        size=size,
        target_settings={SETTING: json.dumps(there, sort_keys=True)},
        beside=tuple(sides[1:]),
    )


def _broadcast(image: Image, operator: str | None) -> set[str]:
    """The names of its broadcast states."""
    own = (o for o in metadata_of(image).operators if o.id.hex() == operator)
    subtasks = (subtask for o in own for subtask in o.subtasks or ())
    handles = (handle for s in subtasks for handle in (s.managed_operator, s.raw_operator) if handle is not None)
    return {state.name for handle in handles for state in handle.states if state.mode == BROADCAST and state.offsets}


def _names(image: Image, taken: Taken) -> dict[str, dict[str, str]]:
    """Operator -> what its files are called in the target, each once: the role of what lies there. A file that holds
    several roles is kept: the one that is not written anew stands for it."""
    found: dict[str, dict[str, str]] = {}
    for reference in references(metadata_of(image)):
        if reference.operator in taken.operators:
            own = found.setdefault(reference.operator, {})
            for file in files_of(reference.stream):
                name = taken.name(file, reference.whole)
                own[name] = reference.role if own.get(name, "keyed") == "keyed" else own[name]
    return found


def _start(job: JobSpec, facts: Facts, epoch: int | None) -> Iterator[Phase]:
    location = job.destination if epoch is not None else ""
    askable = facts.target_cluster is None or facts.target_cluster.kind in ASKABLE
    return start(job, facts, location, _submitting(job), Awaited(location, epoch) if askable else None)


def _submitting(job: JobSpec) -> dict[str, object]:
    """What the spec says, and what it says beside `submit`."""
    options = dict(job.submit.options) if job.submit else {}
    if job.flink is not None and job.flink.allow_non_restored_state:
        options.setdefault("allow_non_restored_state", True)
    return options

