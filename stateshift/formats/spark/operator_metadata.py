"""What an operator says of itself, from Spark 4.0 on.

    state/<op>/_metadata/metadata    v1\\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},
                                          "stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,
                                                             "numPartitions":5}]}
    state/<op>/_metadata/v2/<batch>  v2\\n... each store + "stateSchemaFilePaths":["file:/..."],
                                     absolute;
                                          and "operatorPropertiesJson":"<JSON in a string>"

Source: Spark, OperatorStateMetadata (OperatorStateMetadataV1, V2). The newest v2 file not after a
batch applies to it. `numPartitions` can be stale or too high: the offset log's conf is what counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stateshift.errors import FormatError
from stateshift.formats.spark.text import (
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
    properties: Mapping[str, Any]


def decode_operator_metadata(content: bytes) -> OperatorMetadata:
    first, rest, start = after_version(content)
    version = decode_version(first, VERSIONS, _WHAT)
    if not rest:
        raise FormatError(f"{_WHAT} ends after its version line", None, len(content))
    return _metadata(version, decode_text(rest, _WHAT, start), start)


def encode_operator_metadata(metadata: OperatorMetadata) -> bytes:
    return f"v{metadata.version}\n{metadata.text}".encode()


def with_partitions(metadata: OperatorMetadata, partitions: int) -> OperatorMetadata:
    """The same operator spread over another number of partitions."""
    plain = decode_object(metadata.text, _WHAT)
    stores = [{**store, "numPartitions": partitions} for store in plain["stateStoreInfo"]]
    return _metadata(metadata.version, encode_object({**plain, "stateStoreInfo": stores}), 0)


def with_operator(metadata: OperatorMetadata, operator: int) -> OperatorMetadata:
    """The same operator under another id."""
    plain = decode_object(metadata.text, _WHAT)
    info = {**object_of(plain, "operatorInfo", _WHAT, 0), "operatorId": operator}
    return _metadata(metadata.version, encode_object({**plain, "operatorInfo": info}), 0)


def relocated(metadata: OperatorMetadata, relocation: Relocation) -> OperatorMetadata:
    """The same operator with the paths of its schema files moved; every other byte stays."""
    text = _PATHS.sub(lambda found: _moved_paths(found, relocation), metadata.text)
    return _metadata(metadata.version, text, len(f"v{metadata.version}") + 1)


def _moved_paths(found: re.Match[str], relocation: Relocation) -> str:
    def moved(token: re.Match[str]) -> str:
        path = json.loads(token[0], strict=False)
        new = relocation.new(path)
        if new is None:
            raise FormatError(
                f"{_WHAT} names the schema file {path}, which lies under no directory that moves"
            )
        return encode_object(new)

    start = found.start(1) - found.start()
    return found[0][:start] + _STRING.sub(moved, found[1])


def _metadata(version: int, text: str, start: int) -> OperatorMetadata:
    plain = decode_object(text, _WHAT, start)
    info = object_of(plain, "operatorInfo", _WHAT, start)
    stores = plain.get("stateStoreInfo")
    name = info.get("operatorName")
    if not isinstance(stores, list) or not all(isinstance(store, dict) for store in stores):
        raise FormatError(f"{_WHAT}: 'stateStoreInfo' is not a list of stores", None, start)
    if not isinstance(name, str):
        raise FormatError(f"{_WHAT} holds no operator name", None, start)
    return OperatorMetadata(
        version,
        text,
        number_of(info, "operatorId", _WHAT, start),
        name,
        tuple(_store(store, start) for store in stores),
        _properties(plain, start),
    )


def _store(store: dict[str, Any], start: int) -> StoreInfo:
    name = store.get("storeName")
    paths = store.get("stateSchemaFilePaths") or store.get("stateSchemaFilePath") or []
    paths = [paths] if isinstance(paths, str) else paths  # previews of 4.0 wrote one
    if (
        not isinstance(name, str)
        or not isinstance(paths, list)
        or not all(isinstance(p, str) for p in paths)
    ):
        raise FormatError(
            f"{_WHAT} holds a store without a name, or with other than paths", None, start
        )
    return StoreInfo(
        name,
        number_of(store, "numColsPrefixKey", _WHAT, start),
        number_of(store, "numPartitions", _WHAT, start),
        tuple(paths),
    )


def _properties(plain: dict[str, Any], start: int) -> dict[str, Any]:
    text = plain.get("operatorPropertiesJson")
    if text is None or text == "":
        return {}
    if not isinstance(text, str):
        raise FormatError(f"{_WHAT}: 'operatorPropertiesJson' is not a string", None, start)
    return decode_object(text, f"{_WHAT}, its properties", start)
