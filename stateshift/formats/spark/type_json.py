"""Whether Spark can parse the types of a state schema: the grammar of StructType.fromString, rule
by rule.

    "long"   "decimal(10,2)"   "varchar(5)"   "interval day to second"   "time(6)"   "geometry(OGC:CRS84)"
    {"type":"struct","fields":[FIELD...]}
    {"type":"array","elementType":TYPE,"containsNull":BOOL}
    {"type":"map","keyType":TYPE,"valueType":TYPE,"valueContainsNull":BOOL}
    {"type":"udt","class":TEXT,"pyClass":ANY,"sqlType":ANY}                       a class of the JVM's
    {"type":"udt","pyClass":TEXT,"serializedClass":TEXT,"sqlType":TYPE}           a class of Python's
    FIELD   {"name":TEXT,"type":TYPE[,"nullable":BOOL[,"metadata":OBJECT]]}

Exactly these fields, each once, whatever their order; what follows the JSON is not read. A
collation stands in its field's metadata, `"__COLLATIONS":{"<path>":"icu.UNICODE_CI"}`, and its path
has to lead to a string.

Wider than `types`, which decodes rows: a type may be Spark's and have no rows that we read. The
union of what 3.3 to 4.3 take: time and geometry since 4.1, variant and collations since 4.0.
Source: Spark, DataType.parseDataType, nameToType, parseStructField, Metadata.fromJObject,
KeyStateEncoderSpec.fromJson; each rule asked of Spark 4.3.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from stateshift.errors import FormatError
from stateshift.formats.spark.schema import SchemaFile

_NAMES = frozenset(
    (
        "void",
        "null",
        "boolean",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ltz",
        "timestamp_ntz",
        "interval",
        "variant",
        "decimal",
        "geometry",
        "geography",
    )
)
_DAYS = ("day", "hour", "minute", "second")
_INTERVALS = {f"interval {unit}" for unit in (*_DAYS, "year", "month", "year to month")} | {
    f"interval {first} to {last}" for first, last in combinations(_DAYS, 2)
}
_DECIMAL = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*(-?[0-9]+)\s*\)")
_TEXT = re.compile(r"(?:char|varchar)\(\s*([0-9]+)\s*\)")
_COLLATED = re.compile(r"string\s+collate\s+(\w+)")
_PARAMETRIC = re.compile(
    r"(?:time|timestamp_ltz|timestamp_ntz)\([0-9]\)"
    r"|geometry\(\s*\w+:\w+\s*\)|geography\(\s*\w+:\w+\s*(?:,\s*\w+\s*)?\)"
)
_COLLATION = re.compile(
    r"(?:UTF8_BINARY|UTF8_LCASE|UNICODE|[A-Z]{2,3}(?:_[A-Z]{4})?(?:_[A-Z]{3})?)(?:_(?:CI|CS|AI|AS|RTRIM))*",
    re.IGNORECASE,
)
_PROVIDERS = ("spark", "icu")
_COLLATIONS = "__COLLATIONS"
_INT_MAX = (1 << 31) - 1

# Key encoders of schema version 3, and what each must say.
_ENCODERS = {
    "NoPrefixKeyStateEncoderSpec": None,
    "PrefixKeyScanStateEncoderSpec": "numColsPrefixKey",
    "RangeKeyScanStateEncoderSpec": "orderingOrdinals",
    "TimestampAsPrefixKeyStateEncoderSpec": None,
    "TimestampAsPostfixKeyStateEncoderSpec": None,
}

_WHAT = "a state schema"


class _Object:
    """A JSON object with all of its fields, those of one name too."""

    def __init__(self, fields: list[tuple[str, Any]]) -> None:
        self.fields = fields

    def exactly(self, *names: str) -> dict[str, Any] | None:
        """The fields by name, where these are all, and each is there once."""
        if sorted(name for name, _ in self.fields) != sorted(names):
            return None
        return dict(self.fields)

    def get(self, name: str) -> Any:
        return next((value for key, value in self.fields if key == name), None)


def check_schema(schema: SchemaFile) -> None:
    """Raise where Spark cannot parse what the file says of keys, values or the keys' encoders."""
    for store in schema.stores:
        check_struct(store.key)
        check_struct(store.value)
        if schema.version == 3:
            _check_encoder(store.encoder or "")


def check_struct(text: str) -> None:
    """Raise where Spark cannot parse the text as the JSON of a struct."""
    if text.startswith("StructType(List("):
        return  # as Spark 1.1 wrote types, which is still taken
    plain = _decoded(text)
    try:
        _check_struct(plain)
    except RecursionError as error:
        raise FormatError(f"{_WHAT} is nested too deeply", None, 0) from error


def _decoded(text: str) -> Any:
    start = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        return _DECODER.raw_decode(text, start)[0]
    except json.JSONDecodeError as error:
        raise FormatError(f"{_WHAT} is not JSON: {error.msg}", None, 0) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{_WHAT} is not JSON: {error}", None, 0) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_constant=_refuse_constant)


def _check_struct(plain: Any) -> None:
    parts = plain.exactly("fields", "type") if isinstance(plain, _Object) else None
    if parts is None or parts["type"] != "struct" or not isinstance(parts["fields"], list):
        raise _unparsable(plain)
    for field in parts["fields"]:
        _check_field(field)


def _check_field(plain: Any) -> None:
    parts = None
    if isinstance(plain, _Object):
        parts = (
            plain.exactly("name", "type")
            or plain.exactly("name", "type", "nullable")
            or plain.exactly("name", "type", "nullable", "metadata")
        )
    if parts is None or not isinstance(parts["name"], str):
        raise _unparsable(plain)
    if not isinstance(parts.get("nullable", True), bool):
        raise _unparsable(plain)
    metadata = parts.get("metadata", _Object([]))
    if not isinstance(metadata, _Object):
        raise _unparsable(plain)
    _check_metadata(metadata)
    _check_type(parts["type"], parts["name"], _collations(metadata))


def _check_type(plain: Any, path: str, collations: Mapping[str, Any]) -> None:
    if plain == "string" and path in collations:
        _check_collation(collations[path])
        return
    if path in collations:
        raise FormatError(f"{_WHAT} gives {path[:80]!r} a collation, which is no string", None, 0)
    if isinstance(plain, str):
        _check_name(plain)
        return
    if not isinstance(plain, _Object):
        raise _unparsable(plain)
    match plain.get("type"):
        case "struct":
            _check_struct(plain)
        case "array":
            parts = plain.exactly("containsNull", "elementType", "type")
            if parts is None or not isinstance(parts["containsNull"], bool):
                raise _unparsable(plain)
            _check_type(parts["elementType"], f"{path}.element", collations)
        case "map":
            parts = plain.exactly("keyType", "type", "valueContainsNull", "valueType")
            if parts is None or not isinstance(parts["valueContainsNull"], bool):
                raise _unparsable(plain)
            _check_type(parts["keyType"], f"{path}.key", collations)
            _check_type(parts["valueType"], f"{path}.value", collations)
        case "udt":
            _check_udt(plain)
        case _:
            raise _unparsable(plain)


def _check_udt(plain: _Object) -> None:
    """A class of the JVM's is looked up by its name, on a class path that we cannot see."""
    of_jvm = plain.exactly("class", "pyClass", "sqlType", "type")
    if of_jvm is not None and isinstance(of_jvm["class"], str):
        return
    of_python = plain.exactly("pyClass", "serializedClass", "sqlType", "type")
    if of_python is None:
        raise _unparsable(plain)
    if not isinstance(of_python["pyClass"], str) or not isinstance(
        of_python["serializedClass"], str
    ):
        raise _unparsable(plain)
    _check_type(of_python["sqlType"], "", {})


def _check_name(name: str) -> None:
    decimal, text, collated = (
        _DECIMAL.fullmatch(name),
        _TEXT.fullmatch(name),
        _COLLATED.fullmatch(name),
    )
    if decimal is not None:
        known = _is_decimal(decimal[1], decimal[2])
    elif text is not None:
        known = len(text[1]) < 20 and int(text[1]) <= _INT_MAX
    elif collated is not None:
        known = _COLLATION.fullmatch(collated[1]) is not None
    else:
        known = name in _NAMES or name in _INTERVALS or _PARAMETRIC.fullmatch(name) is not None
    if not known:
        raise FormatError(
            f"{_WHAT} holds the type {name[:80]!r}, which no Spark up to 4.3 can parse", None, 0
        )


def _is_decimal(precision: str, scale: str) -> bool:
    """The scale may have been negative, where a session asked for it."""
    if len(precision) > 19 or len(scale) > 20:
        return False
    return int(precision) <= 38 and -38 <= int(scale) <= int(precision)


def _collations(metadata: _Object) -> Mapping[str, Any]:
    found = metadata.get(_COLLATIONS)
    return dict(found.fields) if isinstance(found, _Object) else {}


def _check_collation(text: Any) -> None:
    provider, dot, name = text.partition(".") if isinstance(text, str) else ("", "", "")
    if not dot or provider not in _PROVIDERS or _COLLATION.fullmatch(name) is None:
        raise FormatError(
            f"{_WHAT} names the collation {str(text)[:80]!r}, which no Spark up to 4.3 has", None, 0
        )


def _check_metadata(plain: _Object) -> None:
    """Lists hold values of one kind, and no lists; a value may be null, an item may not."""
    for name, value in plain.fields:
        if isinstance(value, _Object):
            _check_metadata(value)
        elif isinstance(value, list) and value:
            kinds = {type(item) for item in value}
            if len(kinds) > 1 or kinds & {list, type(None)}:
                raise FormatError(
                    f"{_WHAT} has metadata {name[:80]!r} that no Spark can parse", None, 0
                )
            for item in value:
                if isinstance(item, _Object):
                    _check_metadata(item)


def _check_encoder(text: str) -> None:
    plain = _decoded(text)
    kind = plain.get("keyStateEncoderType") if isinstance(plain, _Object) else None
    if not isinstance(kind, str) or kind not in _ENCODERS:
        raise FormatError(
            f"{_WHAT} names no key encoder that a Spark up to 4.3 has: {text[:80]!r}", None, 0
        )
    wanted = _ENCODERS[kind]
    value = plain.get(wanted) if wanted else None
    whole = isinstance(value, int) if wanted == "numColsPrefixKey" else isinstance(value, list)
    if wanted is not None and not whole:
        raise FormatError(f"{_WHAT} has a key encoder without {wanted}: {text[:80]!r}", None, 0)


def _unparsable(plain: Any) -> FormatError:
    shown = json.dumps(plain, default=lambda value: dict(value.fields))[:80]
    return FormatError(
        f"{_WHAT} holds {shown}, which no Spark up to 4.3 can parse as a type", None, 0
    )
