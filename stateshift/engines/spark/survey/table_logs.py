"""The tables of Delta as they tell of themselves. Reads only, without a JVM.

A Delta table has a log. For the batches of a query it is read

    from the newest commit back   until every query's wanted batch is found, COMMITS_MAX at most
    at the newest checkpoint      for a query that no commit behind it names: its last batch,
                                  without a version

A Delta checkpoint in Parquet may be large: one column of it, an action such as `txn`, is read in
pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stateshift.engines.spark.small_files import json_or_text
from stateshift.engines.tables import TableFile, batches_of, parquet_at
from stateshift.errors import MissingFile, StorageError, errors_at
from stateshift.formats.delta_log import (
    FOLDER,
    SIDECARS,
    CheckpointName,
    checkpoint_name,
    commit_version,
    decode_actions,
    decode_commit,
    decode_transactions,
    newest_checkpoint,
    staged_version,
    transaction_of,
)
from stateshift.formats.spark.text import is_integer
from stateshift.plain import JsonObject
from stateshift.storage.protocol import Storage
from stateshift.survey import SinkLog

if TYPE_CHECKING:
    pass

COMMITS_MAX = 4096


def read_delta_log(storage: Storage, back_to: Mapping[str, int]) -> dict[str, SinkLog]:
    """Return the table's batches by application id, as far back as `back_to`."""
    paths = [file.path for file in storage.list(FOLDER)]
    names = [path.rpartition("/")[2] for path in paths if path.count("/") == 1]
    commits = _versions(names, commit_version)
    checkpoint = newest_checkpoint(names)
    if not commits and not checkpoint:
        raise MissingFile(f"{storage.location} is no Delta table: it has no {FOLDER}")
    newest = max(_versions(paths, staged_version), default=-1)
    if newest > max(commits, default=-1):
        raise StorageError(
            f"commits of {storage.location} up to version {newest} are staged, and only "
            "the table's catalog knows which of them count",
            location=storage.location,
            hint="let the catalog publish them, then plan again",
        )
    history = _History(back_to)
    _add_commits(history, storage, commits[:COMMITS_MAX], checkpoint)
    if len(commits) > COMMITS_MAX and history.unknown:
        raise StorageError(
            f"the newest {COMMITS_MAX:,} commits of {storage.location} name no batch of "
            "the job, and the table has no checkpoint",
            location=storage.location,
        )
    return history.logs()


def _add_commits(
    history: _History,
    storage: Storage,
    commits: Iterable[int],
    checkpoint: Sequence[CheckpointName],
) -> None:
    """Add commits from the newest back until all is known, then the checkpoint if needed."""
    checkpoint_version = checkpoint[0].version if checkpoint else -1
    for version in commits:
        if version <= checkpoint_version and history.unknown:
            history.add_last(_of_checkpoint(storage, checkpoint))
        if history.is_complete:
            return
        path = f"{FOLDER}/{version:020d}.json"
        with errors_at(path):
            commit = decode_commit(storage.chunks(path))
            batches = _newest_of_each(commit.transactions)
        if commit.restores:
            history.add_restore(version)
        history.add(version, batches)
    if history.unknown and checkpoint:
        history.add_last(_of_checkpoint(storage, checkpoint))


def _versions(names: Iterable[str], version_in: Callable[[str], int | None]) -> list[int]:
    """Return the versions that `version_in` reads in these names, the newest first."""
    versions = [version for version in map(version_in, names) if version is not None]
    return sorted(versions, reverse=True)


class _History:
    """The batches of each application id, collected from the newest commit back.

    A RESTORE after a batch, and before the next one of its application, has taken the table to
    where the next batch went on: what the job means by that batch is then the version that the
    RESTORE made. That is so after a rewind under new numbers, whose last batch has the number of
    one whose output was taken back.
    """

    def __init__(self, back_to: Mapping[str, int]) -> None:
        self._back_to = back_to
        self._last: dict[str, int | None] = {}
        self._versions: dict[str, dict[int, int]] = {app_id: {} for app_id in back_to}
        self._restored: dict[str, int] = {}

    @property
    def unknown(self) -> bool:
        return any(app_id not in self._last for app_id in self._back_to)

    @property
    def is_complete(self) -> bool:
        """Whether older commits tell no more of any application."""
        for app_id, batch in self._back_to.items():
            is_known = app_id in self._last and self._last[app_id] is None
            if not is_known and not any(each <= batch for each in self._versions[app_id]):
                return False
        return True

    def add(self, version: int, batches: Mapping[str, int]) -> None:
        """Add what one commit says; commits come from the newest back."""
        for app_id, batch in batches.items():
            if app_id in self._versions:
                self._last.setdefault(app_id, batch)
                meant = self._restored.pop(app_id, version)
                self._versions[app_id].setdefault(batch, meant)

    def add_restore(self, version: int) -> None:
        """Add a RESTORE, which stands for the batch before it, whichever that is."""
        for app_id in self._versions:
            self._restored.setdefault(app_id, version)

    def add_last(self, batches: Mapping[str, int]) -> None:
        """Add what a checkpoint says: every application's last batch."""
        for app_id in self._back_to:
            self._last.setdefault(app_id, batches.get(app_id))

    def logs(self) -> dict[str, SinkLog]:
        return {
            app_id: SinkLog(self._last.get(app_id), held) for app_id, held in self._versions.items()
        }


def _of_checkpoint(storage: Storage, files: Iterable[CheckpointName]) -> dict[str, int]:
    batches: dict[str, int] = {}
    for file in files:
        path = f"{FOLDER}/{file.name}"
        with errors_at(path):
            if file.is_json:
                transactions = decode_transactions(storage.chunks(path))
            else:
                transactions = map(transaction_of, actions_in(storage, path, "txn"))
            batches |= _newest_of_each(transactions)
    return batches


def _newest_of_each(transactions: Iterable[tuple[str, int]]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for app_id, batch in transactions:
        newest[app_id] = max(batch, newest.get(app_id, batch))
    return newest


def actions_in(storage: Storage, path: str, name: str) -> Iterator[JsonObject]:
    """Yield the actions of this name in a checkpoint. Other columns are not read."""
    file = parquet_at(storage, path)
    if name in file.schema_arrow.names:
        for batch in batches_of(file, [name]):
            yield from batch.column(0).drop_null().to_pylist()


def files_at(storage: Storage, version: int) -> list[TableFile]:
    """Return the files of a table at a version; none before its first."""
    if version < 0:
        return []
    names = [file.path.rpartition("/")[2] for file in storage.list(FOLDER)]
    checkpoints = filter(None, map(checkpoint_name, names))
    checkpoint = newest_checkpoint(each.name for each in checkpoints if each.version <= version)
    first = checkpoint[0].version + 1 if checkpoint else 0
    commits = {each for each in map(commit_version, names) if each is not None}
    missing = sorted(set(range(first, version + 1)) - commits)
    if missing:
        raise MissingFile(
            f"{storage.location} can no longer show version {version}: its commit {missing[0]} is "
            "gone",
            location=storage.location,
            hint="its log was cleaned up. To compare nothing, leave out --from-table (in a spec, "
            '"from_table")',
        )
    adds: dict[str, JsonObject] = {}
    for file in checkpoint:
        path = f"{FOLDER}/{file.name}"
        # A checkpoint V2 has its files in others beside it.
        sidecars = _named_actions(storage, path, "sidecar")
        paths = [path, *(f"{SIDECARS}/{each.get('path')}" for each in sidecars)]
        for add in chain.from_iterable(_named_actions(storage, each, "add") for each in paths):
            adds[str(add.get("path"))] = add
    for number in range(first, version + 1):
        path = f"{FOLDER}/{number:020d}.json"
        for remove in _named_actions(storage, path, "remove"):
            adds.pop(str(remove.get("path")), None)
        for add in _named_actions(storage, path, "add"):
            adds[str(add.get("path"))] = add
    return [_file(add) for add in adds.values()]


def _named_actions(storage: Storage, path: str, name: str) -> Iterator[JsonObject]:
    with errors_at(path):
        if path.endswith(".json"):
            yield from decode_actions(storage.chunks(path), name)
        else:
            yield from actions_in(storage, path, name)


def _file(add: JsonObject) -> TableFile:
    place = unquote(str(add.get("path")))
    vector = add.get("deletionVector") or {}
    stats = add.get("stats")
    told = json_or_text(stats) if isinstance(stats, str) else None
    records = told.get("numRecords") if isinstance(told, dict) else None
    size, deleted = int(add.get("size") or 0), int(vector.get("cardinality") or 0)
    values, pairs = add.get("partitionValues"), list[tuple[object, object]]()
    if isinstance(values, dict):
        pairs = list(values.items())
    elif isinstance(values, list):  # as Parquet has a map
        pairs = [pair for pair in values if isinstance(pair, tuple)]
    texts = {str(key): text if isinstance(text, str) else None for key, text in pairs}
    name, known = place.rpartition("/")[2], records if is_integer(records) else None
    return TableFile(name, size, deleted, known, place, tuple(sorted(texts.items())))
