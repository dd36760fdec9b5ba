"""An operator's own metadata, from Spark 4.0 on.

    state/<op>/_metadata/metadata    v1\\n
      {"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},
       "stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":5}]}
    state/<op>/_metadata/v2/<batch>  v2\\n
      the same; each store has also "stateSchemaFilePaths":["file:/..."], absolute,
      and the object "operatorPropertiesJson":"<JSON in a string>"

Source: Spark, OperatorStateMetadata (OperatorStateMetadataV1, V2). The newest v2 file not after a
batch applies to it. `numPartitions` can be stale or too high: the offset log's conf counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from stateshift.errors import FormatError
from stateshift.formats.spark.text import (
    JsonObject,
    after_version,
    decode_object,
    decode_text,
    decode_version,
    encode_object,
    number_of,
    object_of,
)
from stateshift.formats.spark.uris import Relocation

VERSIONS = (1, 2)
# An aggregation, in micro-batches and in real-time mode. Spark takes the state of one for that of
# the other (IncrementalExecution.isOperatorMetadataConvertible, 4.3.0).
AGGREGATION, REAL_TIME_AGGREGATION = "stateStoreSave", "StatefulStreamlineAggregate"

_JOIN_LISTS = ("-keyWithTsToValues", "-tsWithKey")
_WHAT = "an operator's metadata"
_PATHS = re.compile(
    r'"stateSchemaFilePaths?"\s*:\s*(\[[^\]"]*(?:"(?:[^"\\]|\\.)*"[^\]"]*)*\]|"(?:[^"\\]|\\.)*")'
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """One state store of the operator, over all its partitions."""

    name: str
    prefix_columns: int
    partitions: int
    schema_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """`text` is the JSON as it was; the other fields are read from it."""

    version: int
    text: str
    operator: int
    name: str
    stores: tuple[StoreInfo, ...]
    properties: Mapping[str, object]


def decode_operator_metadata(content: bytes) -> OperatorMetadata:
    """Read an operator's metadata file: a line with the version, 1 or 2, then JSON."""
    first, rest, start = after_version(content)
    version = decode_version(first, VERSIONS, _WHAT)
    if not rest:
        raise FormatError(f"{_WHAT} ends after its version line", None, len(content))
    return _metadata(version, decode_text(rest, _WHAT, start), start)


def encode_operator_metadata(metadata: OperatorMetadata) -> bytes:
    """Return the file's bytes, UTF-8: the version line, then the JSON text as it is."""
    return f"v{metadata.version}\n{metadata.text}".encode()


def with_partitions(metadata: OperatorMetadata, partitions: int) -> OperatorMetadata:
    """Return the same operator spread over another number of partitions."""
    plain = decode_object(metadata.text, _WHAT)
    stores = [{**store, "numPartitions": partitions} for store in _stores_in(plain, 0)]
    return _metadata(metadata.version, encode_object({**plain, "stateStoreInfo": stores}), 0)


def with_operator(metadata: OperatorMetadata, operator: int) -> OperatorMetadata:
    """Return the same operator under another id."""
    plain = decode_object(metadata.text, _WHAT)
    info = {**object_of(plain, "operatorInfo", _WHAT, 0), "operatorId": operator}
    return _metadata(metadata.version, encode_object({**plain, "operatorInfo": info}), 0)


def relocate_schema_files(metadata: OperatorMetadata, relocation: Relocation) -> OperatorMetadata:
    """Return the same operator with the paths of its schema files moved; every other byte stays."""
    text = _PATHS.sub(lambda field: _moved_paths(field, relocation), metadata.text)
    return _metadata(metadata.version, text, len(f"v{metadata.version}") + 1)


def _moved_paths(field: re.Match[str], relocation: Relocation) -> str:

    def moved(token: re.Match[str]) -> str:
        path = json.loads(token[0], strict=False)
        new = relocation.new(path)
        if new is None:
            fact = f"{_WHAT} names the schema file {path}, which lies under no directory that moves"
            raise FormatError(fact)
        return encode_object(new)

    start = field.start(1) - field.start()
    return field[0][:start] + _STRING.sub(moved, field[1])


def _metadata(version: int, text: str, start: int) -> OperatorMetadata:
    plain = decode_object(text, _WHAT, start)
    info = object_of(plain, "operatorInfo", _WHAT, start)
    stores = _stores_in(plain, start)
    name = info.get("operatorName")
    if not isinstance(name, str):
        raise FormatError(f"{_WHAT} holds no operator name", None, start)
    operator = number_of(info, "operatorId", _WHAT, start)
    infos = tuple(_store(store, start) for store in stores)
    return OperatorMetadata(version, text, operator, name, infos, _properties(plain, start))


def _stores_in(plain: JsonObject, start: int) -> list[JsonObject]:
    stores = plain.get("stateStoreInfo")
    if not isinstance(stores, list) or not all(isinstance(store, dict) for store in stores):
        raise FormatError(f"{_WHAT}: 'stateStoreInfo' is not a list of stores", None, start)
    return stores


def _store(store: JsonObject, start: int) -> StoreInfo:
    name = store.get("storeName")
    paths = store.get("stateSchemaFilePaths") or store.get("stateSchemaFilePath") or []
    if isinstance(paths, str):
        paths = (paths,)
    elif not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        paths = None
    else:
        paths = tuple(paths)
    if not isinstance(name, str) or paths is None:
        fact = f"{_WHAT} holds a store without a name, or with other than paths"
        raise FormatError(fact, None, start)
    prefix_columns = number_of(store, "numColsPrefixKey", _WHAT, start)
    return StoreInfo(name, prefix_columns, number_of(store, "numPartitions", _WHAT, start), paths)


def _properties(plain: JsonObject, start: int) -> JsonObject:
    text = plain.get("operatorPropertiesJson")
    if text is None or text == "":
        return {}
    if not isinstance(text, str):
        raise FormatError(f"{_WHAT}: 'operatorPropertiesJson' is not a string", None, start)
    return decode_object(text, f"{_WHAT}, its properties", start)


def keeps_lists(store: str, metadata: OperatorMetadata | None) -> bool:
    """Whether the values of a column family are lists."""
    if store.endswith(_JOIN_LISTS):
        return True
    variables = metadata.properties.get("stateVariables") if metadata else None
    if not isinstance(variables, list):
        return False
    for variable in variables:
        is_own = isinstance(variable, dict) and variable.get("stateName") == store
        if is_own and "List" in str(variable.get("stateVariableType")):
            return True
    return False
