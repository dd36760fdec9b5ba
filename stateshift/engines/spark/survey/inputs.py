"""The inputs of a job that are looked for: Delta tables, and the files that file sources name.
Reads only.

A Delta table has to have still what the job reads next. An offset names the table's id and a
version, and not its place: that says `sources` of the spec, or `data`, where the table moves along.
From that version on Delta reads the commits (DeltaSource.getFileChanges), and Spark the files that
they add.

A file source knows a file again by its full path. If the named files are there, the job is taken to
go on reading there; where some are not, the folder may be elsewhere by now, and all that lies there
would be read again. The newest entries are looked for first, and no more than so many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from urllib.parse import unquote

from stateshift.engines.spark.layout import deepest_above, number_of_log
from stateshift.engines.spark.places import is_covered, needed_embedded
from stateshift.engines.spark.survey.table_logs import actions_in
from stateshift.engines.views import Opening
from stateshift.errors import FormatError, MissingFile, StateshiftError, errors_at
from stateshift.formats.delta_log import (
    FOLDER,
    CheckpointName,
    checkpoint_name,
    commit_version,
    decode_actions,
    newest_checkpoint,
)
from stateshift.formats.spark.source_log import decode_source_log
from stateshift.formats.spark.uris import decode_location
from stateshift.plain import JsonObject
from stateshift.specification import JobSpec
from stateshift.specification.location import host_of
from stateshift.storage.protocol import Storage
from stateshift.survey import Endpoint, Facts, InputFacts, Survey, TableFacts


def ask_tables(job: JobSpec, facts: Facts, opening: Opening) -> tuple[TableFacts, ...]:
    """Return the facts of the tables that the spec names, and of those that move along."""
    sources = delta_sources(facts)
    if not sources:
        return ()
    comes_from = {data.target: data.source for data in job.data if data.copy}
    named = [comes_from.get(source.location, source.location) for source in job.sources]
    repositioned = [each.changes for each in facts.positions if each.kind == "delta"]
    named += [change.partition for change in chain.from_iterable(repositioned)]
    moved = [data.source if data.copy else data.target for data in job.data]
    tables = [_asked(location, True, sources, opening) for location in named]
    for location in set(moved) - set(named):
        table = _asked(location, False, sources, opening)
        if table.id in {source.details["table_id"] for source in sources}:
            tables.append(table)
    return tuple(tables)


def delta_sources(facts: Facts) -> list[Endpoint]:
    """Return the Delta sources of the job's images, as they will be: without those of which that
    could not be found.
    """
    ends = chain.from_iterable(image.endpoints for image in facts.source_images)
    after = {position.source: position.after for position in facts.positions}
    sources: list[Endpoint] = []
    for end in ends:
        will_be = after.get(end.index, end)
        if end.role == "source" and will_be is not None and will_be.kind == "delta":
            sources.append(will_be)
    return sources


def table_at(location: str, opening: Opening) -> TableFacts:
    """Return the facts of a table, whatever reads it."""
    return _asked(location, True, (), opening)


def _asked(location: str, named: bool, sources: Sequence[Endpoint], opening: Opening) -> TableFacts:
    try:
        storage = opening(location)
        names = [file.path.rpartition("/")[2] for file in storage.list(FOLDER)]
        newest = newest_checkpoint(names)
        commits = sorted(v for v in map(commit_version, names) if v is not None)
        if not commits and not newest:
            raise MissingFile(f"{location} is no Delta table: it has no {FOLDER}")
        checkpoints = {each.version for each in map(checkpoint_name, names) if each is not None}
        metadata = _metadata(storage, commits, newest)
        table_id = metadata["id"] if isinstance(metadata.get("id"), str) else None
        schema = metadata.get("schemaString")
        own = [source for source in sources if source.details["table_id"] == table_id]
        asked, missing = _looked_for(storage, commits, own)
    except FormatError as error:
        return TableFacts(location, named, wrong=str(error), hint=error.hint)
    except StateshiftError as error:
        return TableFacts(location, named, wrong=error.fact, hint=error.hint)
    return TableFacts(
        location,
        named,
        table_id,
        frozenset(commits),
        tuple(checkpoints),
        asked,
        missing,
        schema=schema if isinstance(schema, str) else None,
    )


def _metadata(
    storage: Storage, commits: Sequence[int], checkpoint: Sequence[CheckpointName]
) -> JsonObject:
    """Return the newest metadata of a commit, or else of the checkpoint before."""
    oldest = checkpoint[0].version if checkpoint else -1
    for version in reversed([each for each in commits if each > oldest]):
        for said in _actions(storage, version, "metaData"):
            return said
    for file in checkpoint:
        path = f"{FOLDER}/{file.name}"
        reads = decode_actions(storage.chunks(path), "metaData") if file.is_json else None
        for said in reads or actions_in(storage, path, "metaData"):
            return said
    return {}


def _actions(storage: Storage, version: int, name: str) -> Iterator[JsonObject]:
    path = f"{FOLDER}/{version:020d}.json"
    with errors_at(path):
        yield from decode_actions(storage.chunks(path), name)


def _looked_for(
    storage: Storage, commits: Sequence[int], sources: Iterable[Endpoint]
) -> tuple[int, str | None]:
    """Look for the next files; return how many were looked for, and the first missing one."""
    wanted: dict[str, None] = {}
    most = ASKED_MAX_REMOTE if storage.traits.at_once > 1 else ASKED_MAX
    for source in sources:
        first, index = source.details["version"], source.details["index"]
        is_snapshot = source.details["starting_snapshot"]
        for version in [each for each in commits if each >= first + is_snapshot]:
            if len(wanted) >= most:
                break
            adds = [add for add in _actions(storage, version, "add") if add.get("dataChange")]
            read = max(0, index + 1) if version == first else 0
            # An absolute path is that of a shallow clone, whose files lie in another table.
            paths = [str(add.get("path", "")) for add in adds[read:]]
            wanted |= dict.fromkeys(unquote(path) for path in paths if ":" not in path)
    asked = list(wanted)[:most]
    absent = (path for path in asked if storage.stat(path) is None)
    return len(asked), next(absent, None)


ASKED_MAX, ASKED_MAX_REMOTE = 5_000, 500
AT_ONCE = 16


def ask_inputs(job: JobSpec, survey: Survey, opening: Opening) -> tuple[InputFacts, ...]:
    """Return the facts of files that stay, by their log: who waives them reads what they are."""
    if job.target is None:
        return ()
    moved = tuple((data.source, data.target) for data in job.data)
    logs: dict[str, set[str]] = {}
    for file, places in needed_embedded(survey.images).items():
        if any(place.role == "source" and not is_covered(place.path, moved) for place in places):
            logs.setdefault(file.rpartition("/")[0], set()).add(file)
    return tuple(
        _ask_log(log, _entries(opening(survey.location), logs[log]), opening) for log in logs
    )


def _entries(storage: Storage, files: Iterable[str]) -> Iterator[str]:
    for file in sorted(files, key=number_of_log, reverse=True):
        try:
            for entry in decode_source_log(storage.chunks(file)):
                yield decode_location(entry.path)
        except (FormatError, MissingFile):
            return  # the survey has said so


def _ask_log(log: str, paths: Iterator[str], opening: Opening) -> InputFacts:
    """Look for the first of these files; read a byte of the newest of them."""
    asked: set[str] = set()
    missing: list[str] = []
    try:
        by_host: dict[str, list[str]] = {}
        for path in islice(paths, ASKED_MAX):
            by_host.setdefault(host_of(path), []).append(path)
        for own in by_host.values():
            root = deepest_above(path.rpartition("/")[0] for path in own)
            storage = opening(root)
            is_remote = storage.traits.at_once > 1
            names = dict.fromkeys(path[len(root) :].lstrip("/") for path in own)
            wanted = list(islice(names, ASKED_MAX_REMOTE if is_remote else ASKED_MAX))
            with ThreadPoolExecutor(AT_ONCE if is_remote else 1, "input") as threads:
                found = list(threads.map(storage.stat, wanted))
            asked.update(f"{root}/{name}" for name in wanted)
            absent = [name for name, file in zip(wanted, found, strict=True) if file is None]
            missing += [f"{root}/{name}" for name in absent]
            if wanted and found[0] is not None and found[0].size:
                next(iter(storage.chunks(wanted[0], 0, 1)), b"")
    except StateshiftError as error:
        return InputFacts(log, len(asked), len(missing), wrong=error.fact)
    return InputFacts(log, len(asked), len(missing), next(iter(missing), None))
