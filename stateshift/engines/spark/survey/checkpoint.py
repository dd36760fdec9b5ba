"""The content of a location: a Spark checkpoint, or a workflow directory of per-operator ones,
surveyed without a JVM.

One listing, then a handful of small files per query: its id, the last offsets, the last commit,
operator metadata, the source logs (for the absolute places in them) and, for RocksDB, the metadata
inside the zips the last epoch needs. State itself is not decoded: that is what `entries` is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from shlex import quote
from typing import Literal

from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.image import surveyed_image
from stateshift.errors import FormatError
from stateshift.formats.marks import FOLDER, INDEX, TEMPORARY, decode_index
from stateshift.formats.spark.names import classify
from stateshift.specification.transform import Change
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo, Finding, Survey

TOP = ("offsets/", "commits/", "state/", "sources/")
# The kinds of files that only a checkpoint has.
AREAS = ("metadata", "offsets", "commits", "state", "state-metadata", "state-schema")

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
        findings.append(_mixed(storage.location, prefixes))
    name_of = {directory: name for name, directory in names.items()}
    images = []
    for prefix in prefixes:
        if not prefix:
            own_files = files
        else:
            own_files = tuple(file for file in files if file.path.startswith(f"{prefix}/"))
        image = surveyed_image(Reading(storage, prefix), own_files, thorough, changes)
        images.append(replace(image, name=name_of.get(prefix)))
    is_file = not files and storage.stat("") is not None
    if is_file:
        where = f"stateshift inspect {quote(storage.location)}"
        findings.append(
            Finding("refuse", f"{storage.location} is a file, not a directory", hint=where)
        )
    return Survey(
        location=storage.location,
        engine="spark" if images else None,
        kind="foreign" if is_file else _kind(prefixes, files),
        files=files,
        images=tuple(images),
        findings=tuple(findings),
        names=names,
    )


def _kind(prefixes: list[str], files: tuple[FileInfo, ...]) -> Kind:
    """Return the kind of a location whose images lie at `prefixes`."""
    if prefixes == [""]:
        return "checkpoint"
    if prefixes:
        return "workflow"
    holds_only_ours = all(file.path.startswith(f"{FOLDER}/") for file in files)
    return "empty" if holds_only_ours else "foreign"


def _listed(storage: Storage, until: int | None) -> Iterator[FileInfo]:
    """Yield the files that count. A listing may be long: only hidden names are looked at again."""
    for file in storage.list():
        path = file[0]
        is_hidden = path.startswith(".", path.rfind("/") + 1)
        if is_hidden and is_temporary(path):
            continue
        if until is None or not _is_log_after(path, until):
            yield file


def is_temporary(path: str) -> bool:
    """Whether a writer left this file behind: Spark's `.name.uuid.tmp`, or ours."""
    name = path.rpartition("/")[2]
    return name.startswith(TEMPORARY) or (name.startswith(".") and name.endswith(".tmp"))


def _is_log_after(path: str, until: int) -> bool:
    """Whether this is the log of a batch after `until`, here or in a checkpoint of a workflow."""
    place = classify(path)
    if place.area not in ("offsets", "commits"):
        place = classify(path.partition("/")[2])
    return place.area in ("offsets", "commits") and (place.version or 0) > until


def _names(storage: Storage, files: tuple[FileInfo, ...]) -> tuple[dict[str, str], list[Finding]]:
    """Return the name index, if there is one that can be read."""
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
    """Whether a path begins as those of a checkpoint do."""
    return path == layout.METADATA or path.startswith(TOP)


def _mixed(location: str, prefixes: list[str]) -> Finding:
    """Refuse a checkpoint with others inside: no plan can tell which is meant."""
    inside = ", ".join(prefixes[1:4])
    return Finding(
        "refuse",
        f"{location} is a checkpoint and holds others too ({inside}): it is not clear which is "
        "meant",
        hint=f"name one of them: stateshift inspect {quote(f'{location}/{prefixes[1]}')}",
    )
