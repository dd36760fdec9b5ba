"""Which files name absolute places, and what becomes of those names. Pure.

    state/<op>/_metadata/v2/<batch>  the checkpoint itself    source location -> target location
    …/_schema_log_<table>/<n>        a source's folder in it  likewise (Delta)
    sources/<i>/<n>[.compact]        every input file         as `data` of the spec says
    <output>/_spark_metadata/<n>     every output file        as `data` of the spec says

A file system can have several names: the storage says `s3`, the job's Hadoop wrote `s3a`. A place
is recognised under each of them, and what is written is the name that the spec gives the new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from stateshift.engines.bundles import infos_of
from stateshift.engines.spark.layout import SINK_LOG, under
from stateshift.formats.spark.names import DELTA_SCHEMA_LOG
from stateshift.plain import JsonObject
from stateshift.specification import JobSpec
from stateshift.specification.location import names_in_hadoop, relation
from stateshift.step import TransformShard
from stateshift.survey import EmbeddedPath, Facts, FileInfo, Image, Survey

REWRITE_LOG = "spark.rewrite-log"
REWRITE_OPERATOR_METADATA = "spark.rewrite-operator-metadata"
REWRITE_SCHEMA_LOG = "spark.rewrite-delta-schema-log"

# The options of a transform, in plain JSON: a plan is saved.
Options = JsonObject

# Old places, each with its new one.
Places = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """One file that is rewritten from `source` to `target`: to the same path, or to another."""

    transform: str
    options: Options
    source: str
    target: str
    info: FileInfo
    path: str | None = None

    @property
    def target_path(self) -> str:
        return self.info.path if self.path is None else self.path


@dataclass(frozen=True, slots=True)
class Rewriting:
    """All files that are rewritten on the way."""

    files: tuple[Rewritten, ...]

    @property
    def paths(self) -> frozenset[tuple[str, str]]:
        return frozenset((file.source, file.info.path) for file in self.files)

    def steps(self) -> Iterator[TransformShard]:
        for number, file in enumerate(self.files):
            yield TransformShard(
                name=f"transform/{number}",
                transform=file.transform,
                options=file.options,
                source=file.source,
                inputs=(file.info,),
                target=file.target,
                outputs=(file.target_path,),
            )


def rewriting_of(job: JobSpec, facts: Facts) -> Rewriting:
    """Return everything that has to be rewritten for the image to work where it goes."""
    data_places = tuple((data.source, data.target) for data in job.data)
    files = list(_of_checkpoints(job, facts, data_places))
    options = _options(data_places)
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        for file in here.files if data.copy else ():
            if is_sink_log(file.path):
                files.append(Rewritten(REWRITE_LOG, options, here.location, there.location, file))
    return Rewriting(tuple(files))


def _of_checkpoints(job: JobSpec, facts: Facts, data_places: Places) -> Iterator[Rewritten]:
    """Yield the files of the checkpoints that name places which move along."""
    surveys = (facts.source, *facts.merges)
    infos = infos_of(surveys)
    source, target = facts.source.location, facts.target.location
    for survey in surveys:
        # The job's Hadoop may know s3a, and not s3.
        is_url = job.target is not None and "://" in job.target
        new = job.target if job.target is not None and is_url else facts.target.location
        own = [(place, new) for place in own_places_of(job, survey)]
        options = _options((*data_places, *own))
        for path, embedded in needed_embedded(survey.images).items():
            folder = path.rpartition("/")[0].rpartition("/")[2]
            if any(place.role == "self" for place in embedded):
                is_schema_log = folder.startswith(DELTA_SCHEMA_LOG)
                transform = REWRITE_SCHEMA_LOG if is_schema_log else REWRITE_OPERATOR_METADATA
                yield Rewritten(transform, options, source, target, infos[path])
            elif any(is_covered(place.path, data_places) for place in embedded):
                yield Rewritten(REWRITE_LOG, options, source, target, infos[path])


def own_place(image: Image, place: EmbeddedPath) -> str:
    """Return the place of the folder, below the location, that a file names as one of its image."""
    name = place.path.rpartition("/")[2]
    if is_of_operator(place):
        operator = place.file.partition("/_metadata/")[0]
        return f"{operator}/_stateSchema/{name}"
    return under(image.path, f"sources/{name}")


def is_of_operator(place: EmbeddedPath) -> bool:
    """Whether an operator's metadata names the place, and not Delta's schema log."""
    return "/_metadata/v2/" in place.file


def root_of(image: Image, place: EmbeddedPath) -> str | None:
    """Return the location of the image when its file was written; None where no path tells it."""
    inside = f"/{own_place(image, place)}"
    return place.path.removesuffix(inside) if place.path.endswith(inside) else None


def own_places_of(job: JobSpec, survey: Survey) -> tuple[str, ...]:
    """Return the places by which images may name theirs: the present, the spec's, and files'."""
    places = [survey.location, *filter(None, [job.was_at])]
    for image in survey.images:
        for embedded in image.embedded:
            root = root_of(image, embedded) if embedded.role == "self" else None
            if root is not None and embedded.found not in ("here", "different"):
                places.append(root)
    return tuple(dict.fromkeys(places))


def with_changes(
    rewriting: Rewriting,
    facts: Facts,
    operators: Mapping[str, Options],
    paths: Mapping[str, str | None],
) -> Rewriting:
    """Return the same, with what else becomes of these files: a file is rewritten once. `operators`
    are further options for their metadata, by path; `paths` are files that get another path, or
    none: those are left behind.
    """
    here, target = facts.source.location, facts.target.location
    infos = {file.path: file for file in facts.source.files}
    changes = {path: more for path, more in operators.items() if paths.get(path, path) is not None}
    files = []
    for file in rewriting.files:
        if file.source != here:
            files.append(replace(file, path=file.info.path))
            continue
        path = paths.get(file.info.path, file.info.path)
        if path is not None:
            files.append(_changed(file, path, changes.pop(file.info.path, {})))
    for path, more in changes.items():
        metadata = Rewritten(REWRITE_OPERATOR_METADATA, _options(()), here, target, infos[path])
        files.append(_changed(metadata, paths.get(path) or path, more))
    return Rewriting(tuple(files))


def _changed(file: Rewritten, path: str, changes: Options) -> Rewritten:
    """Return the file as it is written to another path, with further options."""
    further = dict(changes)
    old_mapping = file.options["mapping"]
    mapping, folders = list(old_mapping), further.pop("folders", {})
    # Renamed folders of the image, under every name of their places: the longest fits.
    for old_place, new_place in old_mapping:
        mapping += [[f"{old_place}/{old}", f"{new_place}/{new}"] for old, new in folders.items()]
    return replace(file, options={**file.options, "mapping": mapping, **further}, path=path)


def needed_embedded(images: tuple[Image, ...]) -> dict[str, list[EmbeddedPath]]:
    """Return the absolute places that files name which a restart needs, by the file."""
    by_file: dict[str, list[EmbeddedPath]] = {}
    for image in images:
        needed = set(image.needed)
        for embedded in image.embedded:
            if embedded.file in needed:
                by_file.setdefault(embedded.file, []).append(embedded)
    return by_file


def is_covered(path: str, places: Places) -> bool:
    """Whether a directory named in the image lies in one of the places that move along."""
    return any(relation(path, source) in ("same", "inside") for source, _ in places)


def is_sink_log(path: str) -> bool:
    """Whether the file belongs to the log of a file sink."""
    return f"/{SINK_LOG}/" in f"/{path}" and not path.rsplit("/", 1)[-1].startswith(".")


def _options(places: Places) -> Options:
    """Return the mapping of places. Names in none of them stay: the findings have asked before."""
    mapping = []
    for old, new in places:
        scheme, colon, rest = old.partition("://")
        for name in names_in_hadoop(scheme) if colon else ():
            mapping.append([f"{name}://{rest}", new])
        if not colon:
            mapping.append([old, new])
    return {"mapping": mapping, "unmapped": "keep"}
