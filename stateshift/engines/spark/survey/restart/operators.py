"""The stateful operators of a query: their stores, names and shards, and the files that tell of
them. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import StoreFiles, expected_shards
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart import operator_identity
from stateshift.engines.spark.survey.restart.query_files import Found, is_number, number_of
from stateshift.formats.spark import operator_metadata, schema
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.type_json import check_schema
from stateshift.formats.spark.types import Atomic, decode_struct
from stateshift.formats.spark.uris import canonical
from stateshift.survey import EmbeddedPath, Operator, Store

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = {
    "HDFSBackedStateStoreProvider": "hdfs-backed",
    "RocksDBStateStoreProvider": "rocksdb",
}


def operators_of(
    reading: Reading, found: Found, settings: Mapping[str, str]
) -> tuple[Operator, ...]:
    ids = sorted({key[0] for key in found.stores} | set(found.operator_files) - {""}, key=number_of)
    operators = []
    for operator in ids:
        own = [store for key, store in found.stores.items() if key[0] == operator]
        shards = expected_shards(
            settings, {s.shard for s in own}, _is_single(reading, found, operator, own)
        )
        names = sorted({store.store for store in own})
        stores = tuple(
            Store(
                n,
                sum(s.files for s in own if s.store == n),
                sum(s.bytes for s in own if s.store == n),
            )
            for n in names
        )
        title = _title(reading, found, operator)
        operators.append(
            Operator(operator, title, None, _provider(settings, own), len(shards), stores)
        )
    return tuple(operators)


def _provider(settings: Mapping[str, str], stores: list[StoreFiles]) -> str | None:
    """What keeps the state, by the offset log; before Spark 2.3 that says nothing, and the files
    tell.
    """
    named = settings.get(PROVIDER, "").rsplit(".", 1)[-1]
    if named:
        return PROVIDERS.get(named, named)
    paths: list[str] = []
    for store in stores:
        paths.extend((*store.snapshots.values(), *store.changes.values()))
    own = bool(paths) and all(path.endswith((".delta", ".snapshot")) for path in paths)
    return "hdfs-backed" if own else None


def is_foreign(settings: Mapping[str, str]) -> bool:
    """Whether neither of Spark's own providers keeps the state."""
    return settings.get(PROVIDER, "").rsplit(".", 1)[-1] not in (*PROVIDERS, "")


def refuse_foreign_state(
    reading: Reading,
    operators: tuple[Operator, ...],
    settings: Mapping[str, str],
    epoch: int | None,
) -> None:
    """State that neither of Spark's own providers keeps: which files it consists of only its
    provider knows.
    """
    provider = settings.get(PROVIDER, "")
    if not operators or epoch is None or not is_foreign(settings):
        return
    path = layout.offset_path(epoch)
    fact = (
        f"{reading.path(path)} says that {provider[:200]} keeps the state, whose files only "
        "that provider knows"
    )
    reading.refuse(fact, path, hint="copy the stopped job's whole checkpoint by other means")


def _title(reading: Reading, found: Found, operator: str) -> str | None:
    """The operator's name as its metadata has it: Spark 4.0 and later."""
    path = newest_metadata(found, operator, None)
    operator_identity.check_version(reading, operator, path, found.operator_files.get(operator, []))
    if path is None:
        return None
    operator_identity.check(reading, operator, path)
    # Spark 4.3 starts with a damaged v1, too; v2 says where the schemas are, and is needed.
    read = reading.hinted if layout.is_spare(path) else reading.decoded
    decoded = read(path, operator_metadata.decode_operator_metadata)
    if decoded is None:
        return None
    operator_identity.check_schemas(reading, path, decoded, found.operator_files[operator])
    return decoded.name


def newest_metadata(found: Found, operator: str, epoch: int | None) -> str | None:
    """`_metadata/v2/<batch>` of the newest batch up to `epoch`, else `_metadata/metadata`."""
    files = found.operator_files.get(operator, [])
    versions = [
        path for path in files if "/_metadata/v2/" in path and is_number(path.rsplit("/", 1)[-1])
    ]
    fitting = [path for path in versions if epoch is None or int(path.rsplit("/", 1)[-1]) <= epoch]
    if fitting:
        return max(fitting, key=lambda path: int(path.rsplit("/", 1)[-1]))
    first = f"state/{operator}/_metadata/metadata"
    return first if first in files else None


def _is_single(reading: Reading, found: Found, operator: str, stores: list[StoreFiles]) -> bool:
    """A global limit, or an aggregation without a key: only shard 0 exists, whatever the partition
    count says. The key's schema has no fields, or the one void field that stands for none.
    """
    if {store.shard for store in stores} != {0}:
        return False
    path = f"state/{operator}/0/_metadata/schema"
    if path not in found.operator_files.get(operator, []):
        return False
    key = reading.decoded(
        path, lambda content: decode_struct(schema.decode_schema(content).stores[0].key)
    )
    return key is not None and all(kind == Atomic("void") for kind in key.types)


def files_of_operators(found: Found, epoch: int) -> list[str]:
    """Metadata and schemas of the operators; of the versioned ones only those up to the epoch."""
    kept = []
    for files in found.operator_files.values():
        for path in files:
            head = path.rsplit("/", 1)[-1].split("_")[0]
            versioned = "/_metadata/v2/" in path or "/_stateSchema/" in path
            if not versioned or not is_number(head) or int(head) <= epoch:
                kept.append(path)
    return kept


def refuse_unparsable(reading: Reading, found: Found, epoch: int) -> None:
    """Schemas that Spark reads before a job's first batch, and cannot parse."""
    schemas = [
        path for path in files_of_operators(found, epoch) if classify(path).area == "state-schema"
    ]

    def check(own: Reading, path: str) -> None:
        own.decoded(path, lambda content: check_schema(schema.decode_schema(content)))

    reading.each(schemas, check)


def own_places(reading: Reading, found: Found, epoch: int | None) -> list[EmbeddedPath]:
    """The paths of schema files that operator metadata v2 names absolutely."""
    places = []
    for files in found.operator_files.values():
        for path in files:
            if "/_metadata/v2/" not in path:
                continue
            decoded = reading.decoded(path, operator_metadata.decode_operator_metadata)
            named = (
                ()
                if decoded is None
                else (chain.from_iterable(store.schema_paths for store in decoded.stores))
            )
            folders: dict[str, int] = {}
            for name in named:
                folder = canonical(name.rsplit("/", 1)[0])
                folders[folder] = folders.get(folder, 0) + 1
            places += [
                EmbeddedPath(reading.path(path), f, n, "self") for f, n in sorted(folders.items())
            ]
    return places
