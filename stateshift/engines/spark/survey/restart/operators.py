"""The stateful operators of a query: their stores, names, shards and schemas, and the files that
tell of them. Reads only.

One schema file below shard 0 describes a store; one named by the operator's newest metadata
describes all column families of a store (`formats.spark.schema`, v3).

Later versions refuse some state that Spark before 3.0 wrote:

    join state format 1  goes on for inner joins; for any other "correctness issue is discovered.
                         Please discard the checkpoint and rerun the query"
                         (StreamingSymmetricHashJoinExec, SPARK-26154)
    sums of decimals     their buffer has had a second column since (SPARK-28067): the first row
                         that is read does not have the form, "the streaming query failed by state
                         format invalidation" (SPARK-31894)

Neither the kind of a join nor, before schemas were kept (3.1), the columns of a buffer can be read
off the state. A later Spark that wrote format 1 was asked to, and had let an inner join through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import StoreFiles, expected_shards
from stateshift.engines.spark.image import StoreSchema
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart import operator_checks
from stateshift.engines.spark.survey.restart.query_files import (
    ListedFiles,
    folder_of,
    is_number,
    number_of,
)
from stateshift.formats.spark import operator_metadata, schema
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.offset_conf import is_avro
from stateshift.formats.spark.operator_metadata import OperatorMetadata, StoreInfo, keeps_lists
from stateshift.formats.spark.source_log import decode_schema_log
from stateshift.formats.spark.type_json import check_schema
from stateshift.formats.spark.types import Atomic, StructType, decode_struct
from stateshift.formats.spark.uris import canonical
from stateshift.survey import EmbeddedPath, Operator, Store

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = {"HDFSBackedStateStoreProvider": "hdfs-backed", "RocksDBStateStoreProvider": "rocksdb"}


def operators_of(
    reading: Reading, listed: ListedFiles, settings: Mapping[str, str]
) -> tuple[Operator, ...]:
    """Return every operator that has files, whatever the query's plan says."""
    ids = {operator for operator, _, _ in listed.stores}
    ids |= listed.operator_files.keys() - {""}
    operators = []
    for operator in sorted(ids, key=number_of):
        own_files = [files for files in listed.stores.values() if files.operator == operator]
        is_single = _is_single(reading, listed, operator, own_files)
        shards = expected_shards(settings, {files.shard for files in own_files}, is_single)
        stores = []
        for name in sorted({files.store for files in own_files}):
            of_store = [files for files in own_files if files.store == name]
            count = sum(files.files for files in of_store)
            stores.append(Store(name, count, sum(files.bytes for files in of_store)))
        operators.append(
            Operator(
                id=operator,
                name=_title(reading, listed, operator, own_files),
                uid=None,
                provider=_provider(settings, own_files),
                shards=len(shards),
                stores=tuple(stores),
            )
        )
    return tuple(operators)


def _provider(settings: Mapping[str, str], stores: list[StoreFiles]) -> str | None:
    """Return the offset log's provider; before Spark 2.3, the files' names tell it."""
    named = settings.get(PROVIDER, "").rsplit(".", 1)[-1]
    if named:
        return PROVIDERS.get(named, named)
    paths: list[str] = []
    for store in stores:
        paths += (*store.snapshots.values(), *store.changes.values())
    is_hdfs_backed = bool(paths) and all(path.endswith((".delta", ".snapshot")) for path in paths)
    return "hdfs-backed" if is_hdfs_backed else None


def is_foreign(settings: Mapping[str, str]) -> bool:
    """Whether neither of Spark's own providers keeps the state."""
    return settings.get(PROVIDER, "").rsplit(".", 1)[-1] not in (*PROVIDERS, "")


def refuse_foreign_state(
    reading: Reading,
    operators: tuple[Operator, ...],
    settings: Mapping[str, str],
    epoch: int | None,
) -> None:
    """Refuse a foreign provider's state, whose files only that provider knows."""
    provider = settings.get(PROVIDER, "")
    if not operators or epoch is None or not is_foreign(settings):
        return
    path = layout.offset_path(epoch)
    fact = (
        f"{reading.path(path)} says that {provider[:200]} keeps the state, whose files only "
        "that provider knows"
    )
    reading.refuse(fact, path, hint="copy the stopped job's whole checkpoint by other means")


def _title(
    reading: Reading, listed: ListedFiles, operator: str, files: list[StoreFiles]
) -> str | None:
    """Return the operator's name as its metadata has it: Spark 4.0 and later."""
    path = newest_metadata(listed, operator, None)
    operator_checks.check_version(reading, operator, path, listed.operator_files.get(operator, []))
    if path is None:
        return None
    operator_checks.check(reading, operator, path)
    # Spark 4.3 starts with a damaged v1, too; v2 says where the schemas are, and is needed.
    read = reading.hinted if layout.is_spare(path) else reading.decoded
    decoded = read(path, operator_metadata.decode_operator_metadata)
    if decoded is None:
        return None
    operator_checks.check_schemas(reading, path, decoded, listed.operator_files[operator])
    if listed.commits:
        operator_checks.check_stores(reading, path, decoded, {shard.store for shard in files})
    return decoded.name


def newest_metadata(listed: ListedFiles, operator: str, epoch: int | None) -> str | None:
    """Return the metadata of the newest batch up to `epoch` (v2), else the one without a batch."""
    files = listed.operator_files.get(operator, [])
    wanted = files
    if epoch is not None:
        wanted = [path for path in files if _metadata_batch(path) <= epoch]
    newest = max(wanted, key=_metadata_batch, default=None)
    if newest is not None and _metadata_batch(newest) >= 0:
        return newest
    first_version = f"state/{operator}/_metadata/metadata"
    return first_version if first_version in files else None


def _metadata_batch(path: str) -> int:
    """Return the batch of `_metadata/v2/<batch>`; -1 for every other file."""
    name = path.rpartition("/")[2]
    return int(name) if "/_metadata/v2/" in path and is_number(name) else -1


def _is_single(
    reading: Reading, listed: ListedFiles, operator: str, stores: list[StoreFiles]
) -> bool:
    """Whether this is a global limit, or an aggregation without a key: only shard 0 exists,
    whatever the partition count says. The key's schema has no fields, or the one void field that
    stands for none.
    """
    if {store.shard for store in stores} != {0}:
        return False
    path = f"state/{operator}/0/_metadata/schema"
    if path not in listed.operator_files.get(operator, []):
        return False

    def first_key(content: bytes) -> StructType:
        return decode_struct(schema.decode_schema(content).stores[0].key)

    key = reading.decoded(path, first_key)
    return key is not None and all(kind == Atomic("void") for kind in key.types)


def files_of_operators(listed: ListedFiles, epoch: int) -> list[str]:
    """Return the operators' metadata and schemas, of versioned ones those up to the epoch."""
    kept: list[str] = []
    for path in chain.from_iterable(listed.operator_files.values()):
        is_versioned = "/_metadata/v2/" in path or "/_stateSchema/" in path
        batch = path.rpartition("/")[2].partition("_")[0]  # <batch> or <batch>_<uuid>
        if not is_versioned or not is_number(batch) or int(batch) <= epoch:
            kept.append(path)
    return kept


def refuse_unparsable(reading: Reading, listed: ListedFiles, epoch: int) -> None:
    """Refuse schemas that Spark reads before a job's first batch, and cannot parse."""
    files = files_of_operators(listed, epoch)
    schemas = [path for path in files if classify(path).area == "state-schema"]

    def check(own: Reading, path: str) -> None:
        own.decoded(path, lambda content: check_schema(schema.decode_schema(content)))

    reading.each(schemas, check)


def own_places(reading: Reading, listed: ListedFiles) -> list[EmbeddedPath]:
    """Return the folders of schema files that operator metadata v2 names absolutely."""
    places: list[EmbeddedPath] = []
    for path in chain.from_iterable(listed.operator_files.values()):
        if "/_metadata/v2/" not in path:
            continue
        decoded = reading.decoded(path, operator_metadata.decode_operator_metadata)
        if decoded is not None:
            schemas = operator_checks.named_schemas(decoded)
            files_in = Counter(canonical(name.rsplit("/", 1)[0]) for name in schemas)
            for folder in sorted(files_in):
                place = EmbeddedPath(reading.path(path), folder, files_in[folder], "self")
                places.append(place)
    return places


def tracked_schemas(reading: Reading, logs: Iterable[str]) -> list[EmbeddedPath]:
    """Return the folders of sources that Delta's schema logs name absolutely."""
    places = []
    for path in sorted(logs):
        entry = reading.decoded(path, decode_schema_log)
        if entry is None or entry.source_path is None:
            continue
        folder = canonical(entry.source_path)
        place = EmbeddedPath(reading.path(path), folder, 1, "self")
        places.append(place)
    return places


# Settings of the offset log that began with 3.0 and 3.1.
_SINCE_3 = (
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.stateStore.compression.codec",
)
_JOIN = "-keyWithIndexToValue"


def state_refused_since_3(
    operators: Sequence[Operator], settings: Mapping[str, str]
) -> Iterator[str]:
    """Yield the state that a Spark from 3.0 on may refuse, with its reason."""
    if not settings or any(key in settings for key in _SINCE_3):
        return
    for operator in operators:
        if any(store.name.endswith(_JOIN) for store in operator.stores):
            yield (
                f"operator {operator.id} keeps join state of format 1, written before "
                "Spark 3.0: later versions continue with an inner join, and refuse any other "
                '("correctness issue is discovered. Please discard the checkpoint and rerun '
                'the query", SPARK-26154)'
            )
        elif operator.stores:
            yield (
                f"operator {operator.id} keeps state written before Spark 3.0: where it "
                'holds sums of decimals, later versions refuse its rows ("the streaming query '
                'failed by state format invalidation", SPARK-31894)'
            )


def schemas_of(
    reading: Reading,
    listed: ListedFiles,
    operators: Iterable[Operator],
    epoch: int | None,
    settings: Mapping[str, str],
) -> dict[str, StoreSchema]:
    """Return schemas by "<operator>/<store>[/<column family>]"; unreadable ones are left out."""
    unreported = reading.unreported()
    schemas: dict[str, StoreSchema] = {}
    for operator in operators:
        files = listed.operator_files.get(operator.id, [])
        newest = newest_metadata(listed, operator.id, epoch)
        metadata = None
        if newest is not None:
            metadata = unreported.decoded(newest, operator_metadata.decode_operator_metadata)
        for store in operator.stores:
            path = _schema_path(operator.id, store.name, _info(metadata, store.name), files)
            decoded = None if path is None else unreported.decoded(path, schema.decode_schema)
            if decoded is not None:
                for place, each in _of_store(store.name, decoded, metadata, settings).items():
                    schemas[f"{operator.id}/{place}"] = each
    return schemas


def _of_store(
    name: str,
    decoded: schema.SchemaFile,
    metadata: OperatorMetadata | None,
    settings: Mapping[str, str],
) -> dict[str, StoreSchema]:
    info = _info(metadata, name)
    has_families = decoded.version == 3
    schemas: dict[str, StoreSchema] = {}
    for described in decoded.stores:
        place = f"{name}/{described.name}" if has_families else name
        schemas[place] = {
            "key": described.key,
            "value": described.value,
            "encoder": described.encoder or None,
            "lists": has_families and keeps_lists(described.name, metadata),
            "avro": is_avro(settings, has_families),
            "prefix": 0 if info is None else info.prefix_columns,
        }
    return schemas


def _info(metadata: OperatorMetadata | None, store: str) -> StoreInfo | None:
    stores = () if metadata is None else metadata.stores
    return next((info for info in stores if info.name == store), None)


def _schema_path(operator: str, store: str, info: StoreInfo | None, files: list[str]) -> str | None:
    """Return the newest schema that the metadata names, else the one below shard 0."""
    named = () if info is None else info.schema_paths
    candidates = []
    for path in reversed(named):
        name = path.rpartition("/")[2]
        candidates.append(f"state/{operator}/_stateSchema/{store}/{name}")
    candidates.append(f"{folder_of(operator, 0, store)}/_metadata/schema")
    return next((path for path in candidates if path in files), None)
