"""The batches that a Delta table has of a query: its log, read from the newest commit back.

commits from the newest back  until every query's wanted batch is found, COMMITS_MAX at most
the newest checkpoint         for a query that no commit behind it names: its last batch, without a
                              version

A Delta checkpoint in Parquet may be large: one column of it, an action such as `txn`, is read in
pieces.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from stateshift.engines.spark.small_files import errors_at
from stateshift.errors import FormatError, MissingFile, StorageError
from stateshift.formats.delta_log import (
    FOLDER,
    CheckpointName,
    commit_version,
    decode_commit,
    decode_transactions,
    newest_checkpoint,
    staged_version,
    transaction_of,
)
from stateshift.plain import JsonObject
from stateshift.storage.protocol import Storage
from stateshift.survey import SinkLog

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


ROWS = 16 * 1024


def actions_in(storage: Storage, path: str, name: str) -> Iterator[JsonObject]:
    """Yield the actions of this name in a checkpoint. Other columns are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    info = storage.stat(path)
    if info is None:
        raise MissingFile(f"{path} is not there", location=storage.location)
    try:
        file = pq.ParquetFile(_Ranges(storage, path, info.size))
        if name not in file.schema_arrow.names:
            return
        for batch in file.iter_batches(ROWS, columns=[name]):
            yield from batch.column(0).drop_null().to_pylist()
    except (pa.ArrowException, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise FormatError(f"a checkpoint of a Delta table is not Parquet: {first_line}") from error


class _Ranges(io.RawIOBase):
    """A file of a storage, of which only what is asked for is read."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__()
        self._storage, self._path, self._size = storage, path, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        wanted = left if size < 0 else min(size, left)
        pieces: list[bytes] = []
        held = 0
        if wanted:
            for chunk in self._storage.chunks(self._path, self._position, self._size):
                pieces.append(bytes(chunk[: wanted - held]))
                held += len(pieces[-1])
                if held >= wanted:
                    break
        self._position += held
        return b"".join(pieces)
