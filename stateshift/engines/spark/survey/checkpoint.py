"""The content of a location: a Spark checkpoint, or a workflow directory of per-operator ones,
surveyed without a JVM.

One listing, then a handful of small files per query: its id, the last offsets, the last commit,
operator metadata, the source logs (for the absolute places in them) and, for RocksDB, the metadata
inside the zips the last epoch needs. State itself is not decoded: that is what `entries` is for.

Several jobs may divide a workflow (Algorithm 5's split: workflow 1 becomes workflows 2 and 3, each
with some of its operators). Nothing may be left over: a directory that no job takes is named, and
stays only where the spec says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from shlex import quote
from typing import Literal

from stateshift.engines.findings import of_images_below
from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.image import surveyed_image
from stateshift.errors import FormatError
from stateshift.formats import uid
from stateshift.formats.marks import FOLDER, INDEX, TEMPORARY, decode_index
from stateshift.formats.spark.names import classify
from stateshift.specification import JobSpec, OperatorSpec, Spec
from stateshift.specification.job_relations import sharing
from stateshift.specification.transform import Change
from stateshift.step.claims import in_words, note_at_primary
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo, Finding, Image, Survey

TOP = ("offsets/", "commits/", "state/", "sources/")
# The kinds of files that only a checkpoint has.
AREAS = ("metadata", "offsets", "commits", "state", "state-metadata", "state-schema")
LOGS = ("offsets", "commits")

Kind = Literal["checkpoint", "workflow", "empty", "foreign"]


def survey(
    storage: Storage,
    thorough: bool = False,
    until: int | None = None,
    changes: Sequence[Change] = (),
) -> Survey:
    """Return everything at the storage's location. `thorough` looks into the zips of every epoch,
    not only of the last. With `until`, as if the batch of that number had been the last: the logs
    of later ones are not seen. `changes` are what is to be made of it (`transform` of a job): what
    they need to know is looked up, too.
    """
    # Sorted by path: no two have the same.
    files = tuple(sorted(_listed(storage, until), key=itemgetter(0)))
    names, findings = _names(storage, files)
    prefixes = _images(files)
    if "" in prefixes and len(prefixes) > 1:
        inside = ", ".join(prefixes[1:4])
        fact = f"{storage.location} is a checkpoint and holds others too ({inside})"
        one_of_them = f"stateshift inspect {quote(f'{storage.location}/{prefixes[1]}')}"
        message = f"{fact}: it is not clear which is meant"
        findings.append(Finding("refuse", message, hint=f"name one of them: {one_of_them}"))
    name_of = {directory: name for name, directory in names.items()}
    images = []
    for prefix in prefixes:
        start = layout.under(prefix, "")
        own_files = tuple(file for file in files if file.path.startswith(start))
        image = surveyed_image(Reading(storage, prefix), own_files, thorough, changes)
        images.append(replace(image, name=name_of.get(prefix)))
    kind: Kind = "foreign"
    if prefixes:
        kind = "checkpoint" if prefixes == [""] else "workflow"
    elif not files and storage.stat("") is not None:
        fact = f"{storage.location} is a file, not a directory"
        hint = f"stateshift inspect {quote(storage.location)}"
        findings.append(Finding("refuse", fact, hint=hint))
    elif all(file.path.startswith(f"{FOLDER}/") for file in files):
        kind = "empty"
    else:
        findings += of_images_below(storage.location, files)
    superseded = list(_superseded(storage, images))
    return Survey(
        location=storage.location,
        engine="spark" if images else None,
        kind=kind,
        files=files,
        images=tuple(images),
        findings=(*findings, *superseded),
        names=names,
        superseded=bool(superseded),
    )


def _superseded(storage: Storage, images: Sequence[Image]) -> Iterator[Finding]:
    """Yield the note of a failover that has fenced an image. A damaged one is none: the fence says
    enough.
    """
    try:
        found = note_at_primary(storage, [image.fence for image in images])
    except FormatError:
        return
    if found is not None:
        here, there = quote(storage.location), quote(found.successor)
        hint = f"stateshift status {there}; both have parted by: stateshift diff {there} {here}"
        yield Finding("refuse", in_words(found), hint=hint)


def _listed(storage: Storage, until: int | None) -> Iterator[FileInfo]:
    """Yield the files that count. A listing may be long: only hidden names are looked at again."""
    for file in storage.list():
        path = file[0]
        is_hidden = path.startswith(".", path.rfind("/") + 1)
        if is_hidden and is_temporary(path):
            continue
        if until is not None:
            place = classify(path)
            if place.area not in LOGS:  # it may be in a checkpoint of a workflow
                place = classify(path.partition("/")[2])
            if place.area in LOGS and (place.version or 0) > until:
                continue
        yield file


def is_temporary(path: str) -> bool:
    """Whether a writer left this file behind: Spark's `.name.uuid.tmp`, or ours."""
    name = path.rpartition("/")[2]
    return name.startswith(TEMPORARY) or (name.startswith(".") and name.endswith(".tmp"))


def _names(storage: Storage, files: tuple[FileInfo, ...]) -> tuple[dict[str, str], list[Finding]]:
    if not any(file.path == INDEX for file in files):
        return {}, []
    try:
        return decode_index(storage.read(INDEX, 1 << 24)), []
    except FormatError as error:
        return {}, [Finding("warn", f"{INDEX}: {error.fact}", path=INDEX, offset=error.offset)]


def _images(files: tuple[FileInfo, ...]) -> list[str]:
    """Return the checkpoints' places: "" for the location, else a workflow's directories."""
    prefixes: set[str] = set()
    for path, *_ in files:
        prefix, path_inside = "", path
        if not _is_at_top(path):
            prefix, _, path_inside = path.partition("/")
        if prefix in prefixes or prefix == FOLDER:
            continue
        # Folders called `state` or `sources` others have, too.
        if _is_at_top(path_inside) and classify(path_inside).area in AREAS:
            prefixes.add(prefix)
    return sorted(prefixes)


def _is_at_top(path: str) -> bool:
    return path == layout.METADATA or path.startswith(TOP)


def own_part(spec: Spec, job: JobSpec, survey: Survey) -> Survey:
    """Return the job's part of a survey, with strangers, which are copied as the engine's own."""
    own = _own_operators(spec, job, survey)
    if not job.also:
        return own
    images = []
    for image in own.images:
        start = layout.under(image.path, "")
        needed = set(image.needed)
        for file in own.files:
            path = file.path.removeprefix(start)
            is_inside = file.path.startswith(start)
            if is_inside and layout.is_strange(path) and is_taken(job, path):
                needed.add(file.path)
        images.append(replace(image, needed=tuple(sorted(needed))))
    return replace(own, images=tuple(images))


def is_taken(job: JobSpec, path: str) -> bool:
    """Whether the spec takes this file along: its own name, or a folder that it lies in."""
    return any(path == asked or path.startswith(f"{asked}/") for asked in job.also)


def _own_operators(spec: Spec, job: JobSpec, survey: Survey) -> Survey:
    others = sharing(spec, job)
    if not others or survey.kind == "empty":
        return survey
    own = _directories(spec, job, survey)
    findings = [*survey.findings, *_of_part(job, survey, own)]
    first_job = min((job, *others), key=spec.jobs.index)
    if job is first_job:  # what no job takes is reported once
        taken = own.union(*(_directories(spec, other, survey) for other in others))
        hint = "add its operator to one of them; or, where its state is no longer wanted, waive it"
        directories = {image.path for image in survey.images if image.path}
        for path in sorted(directories - taken):
            fact = f"{survey.location}/{path} is taken along by none of the jobs that divide this"
            finding = Finding("refuse", f"{fact} workflow", waive="operators-stay", hint=hint)
            findings.append(finding)
    names = survey.names
    return replace(
        survey,
        files=tuple(file for file in survey.files if file.path.split("/", 1)[0] in own),
        images=tuple(image for image in survey.images if image.path in own),
        names={name: names[name] for name in names if names[name] in own},
        findings=tuple(findings),
    )


def _directories(spec: Spec, job: JobSpec, survey: Survey) -> frozenset[str]:
    return frozenset(directory_of(spec, operator, survey.names) for operator in job.operators)


def directory_of(spec: Spec, operator: OperatorSpec, index: Mapping[str, str]) -> str:
    """Return the directory in the spec, else in the index, else the name's hash."""
    profile = spec.uid_hash
    hashed = uid.directory_name(operator.name, profile.p, profile.m, profile.offset, profile.signed)
    return operator.directory or index.get(operator.name) or hashed


def _of_part(job: JobSpec, survey: Survey, own: frozenset[str]) -> Iterator[Finding]:
    if survey.kind != "workflow":
        yield Finding(
            "refuse",
            f"{survey.location} is one query's checkpoint: jobs cannot divide it by operators",
            hint='give each job "mode": "fork" and a "transform" of kind "split": by shards, or '
            "by a column of the key",
        )
    elif not own.intersection(image.path for image in survey.images):
        yield Finding(
            "refuse",
            f"none of the operators of {job.name!r} is in {survey.location}",
            hint=f"stateshift inspect {quote(survey.location)} lists the directories; "
            '{"name": …, "directory": …} adopts one',
        )
