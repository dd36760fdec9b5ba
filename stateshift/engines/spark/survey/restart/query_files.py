"""The files of one query, sorted by what they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import StoreFiles, StoreKey, store_key
from stateshift.engines.spark.image import Strangers
from stateshift.formats.spark.names import DEFAULT_STORE, CheckpointPath, classify
from stateshift.survey import FileInfo, Operator


@dataclass(slots=True)
class ListedFiles:
    """The files of one query, sorted by what they are; paths are relative to the image."""

    metadata: bool = False
    offsets: set[int] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)
    sources: list[str] = field(default_factory=list)
    stores: dict[StoreKey, StoreFiles] = field(default_factory=dict)
    operator_files: dict[str, list[str]] = field(default_factory=dict)
    spark_crcs: set[str] = field(default_factory=set)
    schema_logs: list[str] = field(default_factory=list)
    strangers: list[FileInfo] = field(default_factory=list)
    misplaced: set[str] = field(default_factory=set)  # directories named as files, or the reverse

    def logs(self) -> set[str]:
        logs = set(map(layout.offset_path, self.offsets))
        logs.update(map(layout.commit_path, self.commits))
        if self.metadata:
            logs.add(layout.METADATA)
        return logs

    def forget_after(self, batch: int) -> None:
        """Leave out the logs of what came after this batch, but for the batch planned next."""
        self.commits = {number for number in self.commits if number <= batch}
        self.offsets = {number for number in self.offsets if number <= batch + 1}


def sort_by_kind(files: Iterable[FileInfo], skip: int) -> ListedFiles:
    """Sort a listing in one pass. `skip` characters of each path lead to the image."""
    listed = ListedFiles()
    for info in files:
        path = info.path[skip:]
        # Hadoop's sidecars, and a writer's leftovers: half of a local checkpoint, and no part of
        # any restart.
        is_hidden = "/." in path or path.startswith(".")
        if layout.is_strange(path):
            listed.strangers.append(info._replace(path=path))
        elif not is_hidden:
            _add(listed, path, info.size)
    return listed


def _add(listed: ListedFiles, path: str, size: int) -> None:
    place = classify(path)
    match place.area:
        case "state":
            _add_state(listed, path, place, size)
        case "offsets" if place.version is not None:
            listed.offsets.add(place.version)
        case "commits" if place.version is not None:
            listed.commits.add(place.version)
        case "sources":
            listed.sources.append(path)
        case "delta-schema-log":
            listed.schema_logs.append(path)
        case "state-metadata" | "state-schema":
            listed.operator_files.setdefault(place.operator or "", []).append(path)
        case "metadata":
            listed.metadata = True
        case _ if place.kind == "checksum":
            listed.spark_crcs.add(path)
        case "other":
            _add_misplaced(listed, path)


def _add_misplaced(listed: ListedFiles, path: str) -> None:
    folder = path.rpartition("/")[0]
    if path in ("offsets", "commits"):
        listed.misplaced.add(path)
    elif classify(folder).area in ("offsets", "commits", "state-schema"):
        listed.misplaced.add(folder)


def _add_state(listed: ListedFiles, path: str, place: CheckpointPath, size: int) -> None:
    key = store_key(place)
    store = listed.stores.get(key)
    if store is None:
        operator, shard, name = key
        store = listed.stores[key] = StoreFiles(
            operator, shard, name, folder_of(operator, shard, name)
        )
    store.files += 1
    store.bytes += size
    store.add(path, place)


def folder_of(operator: str, shard: int, store: str) -> str:
    """Return the folder of a store's files, below its checkpoint."""
    folder = f"state/{operator}/{shard}"
    return folder if store == DEFAULT_STORE else f"{folder}/{store}"


def store_keys(operators: Iterable[Operator]) -> Iterator[StoreKey]:
    """Yield every store of every shard that the operators have to have, listed or not."""
    for operator in operators:
        for shard in range(operator.shards):
            for store in operator.stores:
                yield operator.id, shard, store.name


def number_of(text: str) -> tuple[int, str]:
    """Return a key to sort names by: numbers first, in their order."""
    return (int(text), "") if is_number(text) else (1 << 30, text)


def is_number(text: str) -> bool:
    """Whether a name is a number. Other digits than these, and more of them, `int` may not take."""
    return text.isascii() and text.isdigit() and len(text) <= 19


def counted_strangers(files: Iterable[FileInfo]) -> tuple[Strangers, ...]:
    """Count the files and bytes of each stranger: a folder at the top, or a single file there."""
    counted: dict[str, Strangers] = {}
    for file in files:
        top, slash, _ = file.path.partition("/")
        place = top + slash
        held = counted.get(place, Strangers(place, 0, 0))
        counted[place] = Strangers(place, held.files + 1, held.bytes + file.size)
    return tuple(counted[path] for path in sorted(counted))
