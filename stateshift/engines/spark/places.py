"""Which files name absolute places, and what becomes of those names. Pure.

    state/<op>/_metadata/v2/<batch>  the checkpoint itself    source location -> target location
    …/_schema_log_<table>/<n>        a source's folder in it  likewise (Delta)
    sources/<i>/<n>[.compact]        every input file         as `data` of the spec says
    <output>/_spark_metadata/<n>     every output file        as `data` of the spec says

A file system can have several names: the storage says `s3`, the job's Hadoop wrote `s3a`. A place
is recognised under each of them, and what is written is the name that the spec gives the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stateshift.engines.spark.layout import SINK_LOG
from stateshift.formats.spark.names import DELTA_SCHEMA_LOG
from stateshift.specification import JobSpec
from stateshift.specification.location import relation
from stateshift.survey import EmbeddedPath, Facts, FileInfo, Image

REWRITE_LOG = "spark.rewrite-log"
REWRITE_OPERATOR_METADATA = "spark.rewrite-operator-metadata"
REWRITE_SCHEMA_LOG = "spark.rewrite-delta-schema-log"

NAMES_OF_ONE = (("s3", "s3a", "s3n"), ("gs", "gcs"), ("abfs", "abfss"))


@dataclass(frozen=True, slots=True)
class Rewritten:
    """One file that is read at `source`, rewritten, and written to `target`: to the same path,
    or to another.
    """

    transform: str
    options: Mapping[str, Any]
    source: str
    target: str
    info: FileInfo
    path: str | None = None

    @property
    def target_path(self) -> str:
        return self.info.path if self.path is None else self.path


@dataclass(frozen=True, slots=True)
class Rewriting:
    files: tuple[Rewritten, ...]

    @property
    def paths(self) -> frozenset[tuple[str, str]]:
        return frozenset((file.source, file.info.path) for file in self.files)


def rewriting_of(job: JobSpec, facts: Facts) -> Rewriting:
    """Everything that has to be rewritten for the image to work where it goes."""
    source, target = facts.source.location, facts.target.location
    infos = {}
    for survey in (facts.source, *facts.merges):
        for file in survey.files:
            infos[file.path] = file
    places = tuple((data.source, data.target) for data in job.data)
    files = []
    for survey in (facts.source, *facts.merges):
        # The new place as the spec spells it: the job's Hadoop may know s3a, and not s3.
        own = (
            *places,
            (survey.location, job.target if job.target and "://" in job.target else target),
        )
        for path, embedded in needed_embedded(survey.images).items():
            inside = any(e.role == "self" for e in embedded)
            transform = _transform_of(path) if inside else REWRITE_LOG
            if inside or any(covered(e.path, places) for e in embedded):
                files.append(Rewritten(transform, _options(own), source, target, infos[path]))
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        if data.copy:
            logs = [file for file in here.files if is_sink_log(file.path)]
            files += [
                Rewritten(REWRITE_LOG, _options(places), here.location, there.location, f)
                for f in logs
            ]
    return Rewriting(tuple(files))


def _transform_of(path: str) -> str:
    """How a file that names the checkpoint itself is rewritten."""
    is_schema_log = path.rpartition("/")[0].rpartition("/")[2].startswith(DELTA_SCHEMA_LOG)
    return REWRITE_SCHEMA_LOG if is_schema_log else REWRITE_OPERATOR_METADATA


def with_changes(
    rewriting: Rewriting,
    facts: Facts,
    operators: Mapping[str, Mapping[str, Any]],
    paths: Mapping[str, str | None],
) -> Rewriting:
    """The same, with what else becomes of these files: a file is rewritten once. `operators` are
    further options for their metadata, by path; `paths` are files that get another path, or none:
    those are left behind.
    """
    here = facts.source.location
    infos = {file.path: file for file in facts.source.files}
    left = {path: more for path, more in operators.items() if paths.get(path, path) is not None}
    files = []
    for file in rewriting.files:
        own = file.source == here
        path = paths.get(file.info.path, file.info.path) if own else file.info.path
        if path is None:
            continue
        more = dict(left.pop(file.info.path, {})) if own else {}
        mapping = [
            *file.options["mapping"],
            *_folders(file.options["mapping"], more.pop("folders", {})),
        ]
        files.append(replace(file, options={**file.options, "mapping": mapping, **more}, path=path))
    for path, changes in left.items():
        options = {
            **_options(()),
            **{key: value for key, value in changes.items() if key != "folders"},
        }
        new = paths.get(path) or path
        files.append(
            Rewritten(
                REWRITE_OPERATOR_METADATA, options, here, facts.target.location, infos[path], new
            )
        )
    return Rewriting(tuple(files))


def _folders(mapping: list[list[str]], folders: Mapping[str, str]) -> list[list[str]]:
    """Folders of the image that get another name, under every name of the places they lie in:
    the longest fits.
    """
    renamed = []
    for old, new in mapping:
        for a, b in folders.items():
            renamed.append([f"{old}/{a}", f"{new}/{b}"])
    return renamed


def needed_embedded(images: tuple[Image, ...]) -> dict[str, list[EmbeddedPath]]:
    """Of the files a restart needs, those that name absolute places, with what they name."""
    found: dict[str, list[EmbeddedPath]] = {}
    for image in images:
        needed = set(image.needed)
        for embedded in image.embedded:
            if embedded.file in needed:
                found.setdefault(embedded.file, []).append(embedded)
    return found


def covered(path: str, places: tuple[tuple[str, str], ...]) -> bool:
    """Whether a directory named in the image lies in one of the places that move along."""
    return any(relation(path, source) in ("same", "inside") for source, _ in places)


def is_sink_log(path: str) -> bool:
    return f"/{SINK_LOG}/" in f"/{path}" and not path.rsplit("/", 1)[-1].startswith(".")


def _options(places: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Names that lie in none of the places stay: the findings have asked before."""
    options = []
    for old, new in places:
        for name in _names(old):
            options.append([name, new])
    return {
        "mapping": options,
        "unmapped": "keep",
    }


def _names(location: str) -> tuple[str, ...]:
    """The location under every name of its file system."""
    scheme, colon, rest = location.partition("://")
    names = next((names for names in NAMES_OF_ONE if scheme in names), (scheme,))
    return tuple(f"{name}://{rest}" for name in names) if colon else (location,)
