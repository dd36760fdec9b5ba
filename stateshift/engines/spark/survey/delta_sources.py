"""Whether a Delta table that the job reads still has what it reads next. Reads only.

An offset names the table's id and a version, and not its place: that says `sources` of the spec, or
`data`, where the table moves along. From that version on Delta reads the commits
(DeltaSource.getFileChanges), and Spark the files that they add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import unquote

from stateshift.engines.spark.survey.input_files import ASKED_MAX, ASKED_MAX_REMOTE
from stateshift.engines.spark.survey.sinks.delta import actions_in
from stateshift.engines.views import Opening
from stateshift.errors import FormatError, MissingFile, StateshiftError
from stateshift.formats.tables.delta_log import (
    FOLDER,
    CheckpointName,
    checkpoint_name,
    commit_version,
    decode_actions,
    newest_checkpoint,
)
from stateshift.plain import JsonObject
from stateshift.specification import JobSpec
from stateshift.storage.protocol import Storage
from stateshift.survey import Endpoint, Facts, TableFacts


def ask_tables(job: JobSpec, facts: Facts, opening: Opening) -> tuple[TableFacts, ...]:
    """Return the facts of the tables that the spec names, and of those that move along."""
    sources = delta_sources(facts)
    if not sources:
        return ()
    comes_from = {data.target: data.source for data in job.data if data.copy}
    named = [comes_from.get(source.location, source.location) for source in job.sources]
    moved = [data.source if data.copy else data.target for data in job.data]
    tables = [_asked(location, True, sources, opening) for location in named]
    for location in set(moved) - set(named):
        table = _asked(location, False, sources, opening)
        if table.id in {source.details["table_id"] for source in sources}:
            tables.append(table)
    return tuple(tables)


def delta_sources(facts: Facts) -> list[Endpoint]:
    """Return the Delta sources of the job's images."""
    ends = [end for image in facts.source_images for end in image.endpoints]
    return [end for end in ends if end.role == "source" and end.kind == "delta"]


def _asked(location: str, named: bool, sources: Sequence[Endpoint], opening: Opening) -> TableFacts:
    try:
        storage = opening(location)
        names = [file.path.rpartition("/")[2] for file in storage.list(FOLDER)]
        newest = newest_checkpoint(names)
        commits = sorted(v for v in map(commit_version, names) if v is not None)
        if not commits and not newest:
            raise MissingFile(f"{location} is no Delta table: it has no {FOLDER}")
        checkpoints = {each.version for each in map(checkpoint_name, names) if each is not None}
        table_id = _table_id(storage, commits, newest)
        asked, missing = _looked_for(storage, commits, _of_table(sources, table_id))
    except FormatError as error:
        return TableFacts(location, named, wrong=str(error), hint=error.hint)
    except StateshiftError as error:
        return TableFacts(location, named, wrong=error.fact, hint=error.hint)
    there = frozenset(commits)
    return TableFacts(location, named, table_id, there, tuple(checkpoints), asked, missing)


def _of_table(sources: Iterable[Endpoint], table_id: str | None) -> list[Endpoint]:
    return [source for source in sources if source.details["table_id"] == table_id]


def _table_id(
    storage: Storage, commits: Sequence[int], checkpoint: Sequence[CheckpointName]
) -> str | None:
    """Return the id in the newest metadata: of the newest commit that has any, or of the checkpoint
    before.
    """
    oldest = checkpoint[0].version if checkpoint else -1
    for version in reversed([each for each in commits if each > oldest]):
        for said in _actions(storage, version, "metaData"):
            return _id_in(said)
    for file in checkpoint:
        path = f"{FOLDER}/{file.name}"
        reads = decode_actions(storage.chunks(path), "metaData") if file.is_json else None
        for said in reads or actions_in(storage, path, "metaData"):
            return _id_in(said)
    return None


def _id_in(metadata: JsonObject) -> str | None:
    return metadata["id"] if isinstance(metadata.get("id"), str) else None


def _actions(storage: Storage, version: int, name: str) -> Iterator[JsonObject]:
    path = f"{FOLDER}/{version:020d}.json"
    try:
        yield from decode_actions(storage.chunks(path), name)
    except FormatError as error:
        raise error.at(path) from error


def _looked_for(
    storage: Storage, commits: Sequence[int], sources: Iterable[Endpoint]
) -> tuple[int, str | None]:
    """Look for the files that come next: how many were looked for, and the first that is not
    there.
    """
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
