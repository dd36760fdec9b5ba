"""Whether Spark can parse the types of a state schema: the grammar of StructType.fromString, rule
by rule.

    "long"   "decimal(10,2)"   "varchar(5)"   "interval day to second"   "time(6)"
    "geometry(OGC:CRS84)"
    {"type":"struct","fields":[FIELD...]}
    {"type":"array","elementType":TYPE,"containsNull":BOOL}
    {"type":"map","keyType":TYPE,"valueType":TYPE,"valueContainsNull":BOOL}
    {"type":"udt","class":TEXT,"pyClass":ANY,"sqlType":ANY}                a class of the JVM's
    {"type":"udt","pyClass":TEXT,"serializedClass":TEXT,"sqlType":TYPE}    a class of Python's
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
from collections.abc import Callable, Mapping
from itertools import combinations

from stateshift.errors import FormatError
from stateshift.formats.spark.schema import SchemaFile
from stateshift.formats.spark.text import JsonFields

_NAMES = frozenset(
    (
        *("void", "null", "boolean", "byte", "short", "integer", "long", "float", "double"),
        *("string", "binary", "date", "timestamp", "timestamp_ltz", "timestamp_ntz", "interval"),
        *("variant", "decimal", "geometry", "geography"),
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
    r"(?:UTF8_BINARY|UTF8_LCASE|UNICODE|[A-Z]{2,3}(?:_[A-Z]{4})?(?:_[A-Z]{3})?)"
    r"(?:_(?:CI|CS|AI|AS|RTRIM))*",
    re.IGNORECASE,
)
_PROVIDERS = ("spark", "icu")
_COLLATIONS = "__COLLATIONS"
_INT_MAX = (1 << 31) - 1

# Key encoders of schema version 3, and the field that each must have, if any, with its type.
_ENCODERS: dict[str, tuple[str, type] | None] = {
    "NoPrefixKeyStateEncoderSpec": None,
    "PrefixKeyScanStateEncoderSpec": ("numColsPrefixKey", int),
    "RangeKeyScanStateEncoderSpec": ("orderingOrdinals", list),
    "TimestampAsPrefixKeyStateEncoderSpec": None,
    "TimestampAsPostfixKeyStateEncoderSpec": None,
}

# The fields that a struct's field may consist of.
_FIELD_FORMS = (
    ("name", "type"),
    ("name", "type", "nullable"),
    ("name", "type", "nullable", "metadata"),
)

# The flag of a type with types inside, and the keys of those, with their names in paths.
_CONTAINERS = {
    "array": ("containsNull", {"elementType": "element"}),
    "map": ("valueContainsNull", {"keyType": "key", "valueType": "value"}),
}

_WHAT = "a state schema"


def check_schema(schema: SchemaFile) -> None:
    """Raise FormatError if Spark cannot parse the keys, values or keys' encoders of the file."""
    for store in schema.stores:
        check_struct(store.key)
        check_struct(store.value)
        if schema.version == 3:
            _check_encoder(store.encoder or "")


def check_struct(text: str) -> None:
    """Raise FormatError if Spark cannot parse the text as the JSON of a struct."""
    if text.startswith("StructType(List("):
        return  # as Spark 1.1 wrote types, which is still taken
    plain = _decoded(text)
    try:
        _check_struct(plain)
    except RecursionError as error:
        raise FormatError(f"{_WHAT} is nested too deeply", None, 0) from error


def _decoded(text: str) -> object:
    start = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        return _DECODER.raw_decode(text, start)[0]
    except json.JSONDecodeError as error:
        raise FormatError(f"{_WHAT} is not JSON: {error.msg}", None, 0) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{_WHAT} is not JSON: {error}", None, 0) from error


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=JsonFields, parse_constant=_refuse_constant)


def _check_struct(plain: object) -> None:
    parts = plain.exactly("fields", "type") if isinstance(plain, JsonFields) else None
    if parts is None or parts["type"] != "struct":
        raise _unparsable(plain)
    fields = parts["fields"]
    if not isinstance(fields, list):
        raise _unparsable(plain)
    for field in fields:
        forms = []
        if isinstance(field, JsonFields):
            forms = [field.exactly(*names) for names in _FIELD_FORMS]
        parts = next(filter(None, forms), None)
        if parts is None:
            raise _unparsable(field)
        name = parts["name"]
        nullable = parts.get("nullable", True)
        metadata = parts.get("metadata", JsonFields([]))
        if not isinstance(name, str) or not isinstance(nullable, bool):
            raise _unparsable(field)
        if not isinstance(metadata, JsonFields):
            raise _unparsable(field)
        _check_metadata(metadata)
        by_path = metadata.get(_COLLATIONS)
        collations = dict(by_path.fields) if isinstance(by_path, JsonFields) else {}
        _check_type(parts["type"], name, collations)


def _check_type(plain: object, path: str, collations: Mapping[str, object]) -> None:
    if path in collations:
        if plain != "string":
            fact = f"{_WHAT} gives {path[:80]!r} a collation, which is no string"
            raise FormatError(fact, None, 0)
        _check_collation(collations[path])
        return
    if isinstance(plain, str):
        if not _is_known(plain):
            fact = f"{_WHAT} holds the type {plain[:80]!r}, which no Spark up to 4.3 can parse"
            raise FormatError(fact, None, 0)
        return
    if not isinstance(plain, JsonFields):
        raise _unparsable(plain)
    match plain.get("type"):
        case "struct":
            _check_struct(plain)
        case "array" | "map" as kind:
            _check_parts(plain, kind, path, collations)
        case "udt":
            _check_udt(plain)
        case _:
            raise _unparsable(plain)


def _check_parts(plain: JsonFields, kind: str, path: str, collations: Mapping[str, object]) -> None:
    flag, inner = _CONTAINERS[kind]
    parts = plain.exactly("type", flag, *inner)
    if parts is None or not isinstance(parts[flag], bool):
        raise _unparsable(plain)
    for key, step in inner.items():
        _check_type(parts[key], f"{path}.{step}", collations)


def _check_udt(plain: JsonFields) -> None:
    """Check a class of Python's; the JVM's are on a class path that we cannot see."""
    of_jvm = plain.exactly("class", "pyClass", "sqlType", "type")
    if of_jvm is not None and isinstance(of_jvm["class"], str):
        return
    of_python = plain.exactly("pyClass", "serializedClass", "sqlType", "type")
    if of_python is None:
        raise _unparsable(plain)
    names = (of_python["pyClass"], of_python["serializedClass"])
    if not all(isinstance(name, str) for name in names):
        raise _unparsable(plain)
    _check_type(of_python["sqlType"], "", {})


def _is_known(name: str) -> bool:
    for pattern, is_valid in _PARAMETERS:
        parameters = pattern.fullmatch(name)
        if parameters is not None:
            return is_valid(*parameters.groups())
    return name in _NAMES or name in _INTERVALS or _PARAMETRIC.fullmatch(name) is not None


def _is_decimal(precision: str, scale: str) -> bool:
    """Whether a decimal may have these; some sessions allow a negative scale."""
    if len(precision) > 19 or len(scale) > 20:
        return False
    return int(precision) <= 38 and -38 <= int(scale) <= int(precision)


def _is_collation(name: str) -> bool:
    return _COLLATION.fullmatch(name) is not None


# Types with parameters that have limits of their own.
_PARAMETERS: tuple[tuple[re.Pattern[str], Callable[..., bool]], ...] = (
    (_DECIMAL, _is_decimal),
    (_TEXT, lambda length: len(length) < 20 and int(length) <= _INT_MAX),
    (_COLLATED, _is_collation),
)


def _check_collation(text: object) -> None:
    provider, _, name = text.partition(".") if isinstance(text, str) else ("", "", "")
    if provider not in _PROVIDERS or not _is_collation(name):
        fact = f"{_WHAT} names the collation {str(text)[:80]!r}, which no Spark up to 4.3 has"
        raise FormatError(fact, None, 0)


def _check_metadata(plain: JsonFields) -> None:
    """Check that lists hold values of one kind, no lists and no nulls."""
    for name, value in plain.fields:
        if isinstance(value, JsonFields):
            _check_metadata(value)
        if isinstance(value, list):
            kinds = {type(item) for item in value}
            if len(kinds) > 1 or kinds & {list, type(None)}:
                raise FormatError(
                    f"{_WHAT} has metadata {name[:80]!r} that no Spark can parse", None, 0
                )
            for item in value:
                if isinstance(item, JsonFields):
                    _check_metadata(item)


def _check_encoder(text: str) -> None:
    decoded = _decoded(text)
    plain = decoded if isinstance(decoded, JsonFields) else JsonFields([])
    kind = plain.get("keyStateEncoderType")
    if not isinstance(kind, str) or kind not in _ENCODERS:
        fact = f"{_WHAT} names no key encoder that a Spark up to 4.3 has: {text[:80]!r}"
        raise FormatError(fact, None, 0)
    wanted = _ENCODERS[kind]
    if wanted is None:
        return
    name, value_type = wanted
    if not isinstance(plain.get(name), value_type):
        raise FormatError(f"{_WHAT} has a key encoder without {name}: {text[:80]!r}", None, 0)


def _unparsable(plain: object) -> FormatError:
    shown = json.dumps(plain, default=lambda value: dict(value.fields))[:80]
    fact = f"{_WHAT} holds {shown}, which no Spark up to 4.3 can parse as a type"
    return FormatError(fact, None, 0)
