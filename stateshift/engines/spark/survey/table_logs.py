"""The tables of Delta and Iceberg as they tell of themselves. Reads only, without a JVM.

A Delta table has a log. For the batches of a query it is read

    from the newest commit back   until every query's wanted batch is found, COMMITS_MAX at most
    at the newest checkpoint      for a query that no commit behind it names: its last batch,
                                  without a version

A Delta checkpoint in Parquet may be large: one column of it, an action such as `txn`, is read in
pieces.

An Iceberg table has metadata, and is named by one of

    s3://lake/db/orders                                     a folder: the newest metadata in it
    s3://lake/db/orders/metadata/00007-….metadata.json      that very file
    catalog://lake/sales.orders                             the file that the catalog `lake` names

pyiceberg asks the catalog. It knows it from ~/.pyiceberg.yaml, or PYICEBERG_CATALOG__LAKE__… in the
environment. A table of a Hadoop catalog says which metadata is the newest. The file of the highest
number is taken of others, if it is the only one of that number.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from stateshift.engines.spark.small_files import errors_at, json_or_text
from stateshift.engines.views import Opening
from stateshift.errors import ClusterError, FormatError, MissingFile, StorageError
from stateshift.formats import iceberg_metadata as iceberg
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
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.survey import SinkLog

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

COMMITS_MAX = 4096
METADATA_ENDING: Final = ".metadata.json"
CATALOG: Final = "catalog"


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
    file = parquet_at(storage, path)
    if name in file.schema_arrow.names:
        for batch in batches_of(file, [name]):
            yield from batch.column(0).drop_null().to_pylist()


def parquet_at(storage: Storage, path: str) -> ParquetFile:
    """Return a file of Parquet, of which only what is asked for is read."""
    import pyarrow.parquet as pq

    info = storage.stat(path)
    if info is None:
        raise MissingFile(f"{path} is not there", location=storage.location)
    with _parquet_errors():
        return pq.ParquetFile(_Ranges(storage, path, info.size))


def batches_of(file: ParquetFile, columns: Sequence[str] | None = None) -> Iterator[RecordBatch]:
    """Yield the rows of a file of Parquet, or some columns of them."""
    with _parquet_errors():
        yield from file.iter_batches(ROWS, columns=columns)


@contextmanager
def _parquet_errors() -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise FormatError(f"a file of a table is not Parquet: {first_line}") from error


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


class TableFile(NamedTuple):
    """A file of a table, as far as two tables can be compared by it: where it is, and the columns
    that are the same in all of its rows.
    """

    name: str
    size: int
    deleted: int
    records: int | None
    place: str = ""
    constants: tuple[tuple[str, str | None], ...] = ()


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


# ---- Iceberg


def iceberg_table(location: str, opening: Opening) -> iceberg.IcebergTable:
    """Return the table at a location, or in a catalog."""
    if locations.scheme(location) == CATALOG:
        location = metadata_in_catalog(location)
    if location.endswith(METADATA_ENDING):
        storage, path = opening(locations.parent(location)), locations.name(location)
    else:
        storage = opening(location)
        path = newest_path(storage)
    with errors_at(path):
        return iceberg.decode_table(storage.read(path, iceberg.METADATA_BYTES_MAX))


def metadata_in_catalog(location: str) -> str:
    """Return the metadata file that a catalog names."""
    catalog, table = locations.authority(location), locations.name(location)
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        fact = f"{location} is a table of a catalog, and pyiceberg is not installed here"
        hint = "pip install 'stateshift[iceberg]'; or name the table's folder, or its metadata file"
        raise StorageError(fact, hint=hint, location=location) from error
    try:
        return str(load_catalog(catalog).load_table(table).metadata_location)
    except Exception as error:  # each catalog has errors of its own
        first_line = str(error).partition("\n")[0] or type(error).__name__
        raise ClusterError(
            f"the catalog {catalog} gave no table {table}: {first_line}",
            hint=f"check `pyiceberg --catalog {catalog} describe {table}`; or name the table's "
            "folder, or its metadata file",
        ) from error


def newest_path(storage: Storage) -> str:
    """Return the path of the newest metadata of the table at the storage's location."""
    paths = [file.path for file in storage.list(iceberg.FOLDER)]
    names = {path.rpartition("/")[2] for path in paths if path.count("/") == 1}
    name = _hinted(storage, names) or _newest(storage, names)
    return f"{iceberg.FOLDER}/{name}"


def _hinted(storage: Storage, names: set[str]) -> str | None:
    """Return the hinted metadata file, or a newer one, which may be there before the hint is."""
    number = None
    if iceberg.VERSION_HINT in names:
        text = storage.read(f"{iceberg.FOLDER}/{iceberg.VERSION_HINT}", 1024).strip()
        if text.isdigit() and len(text) <= 18:
            number = int(text)
    by_number = {iceberg.metadata_number(name): name for name in names if name.startswith("v")}
    if number is None or number not in by_number:
        return None
    while number + 1 in by_number:
        number += 1
    return by_number[number]


def _newest(storage: Storage, names: set[str]) -> str:
    newest = iceberg.newest_metadata(names)
    if not newest:
        raise MissingFile(
            f"{storage.location} is no Iceberg table: it has no {iceberg.FOLDER} that names one"
        )
    if len(newest) > 1:
        raise StorageError(
            f"{storage.location} has {len(newest)} newest metadata files, and its catalog alone "
            f"knows which one counts: {', '.join(newest)}",
            hint="name that one: let the `location`, or the table, end with its name",
        )
    return newest[0]


def data_files(snapshot: iceberg.Snapshot, opening: Opening) -> Iterator[TableFile]:
    """Yield the files of rows of a snapshot. Places are those that the table names."""
    if snapshot.manifest_list is None:
        fact = f"snapshot {snapshot.id} names no manifest list (it is of format version 1)"
        raise StorageError(fact, hint="let the newest Iceberg write the table once")

    def content(location: str) -> bytes:
        storage = opening(locations.parent(location))
        return storage.read(locations.name(location), iceberg.MANIFEST_BYTES_MAX)

    with errors_at(snapshot.manifest_list):
        manifests = iceberg.decode_manifest_list(content(snapshot.manifest_list))
    for manifest in manifests:
        with errors_at(manifest.path):
            for file in iceberg.decode_manifest(content(manifest.path)):
                name, place = locations.name(file.path), locations.normal(file.path)
                # Files that delete rows are told by the summary, too.
                if not manifest.of_deletes:
                    yield TableFile(name, file.size, 0, file.records, place)
