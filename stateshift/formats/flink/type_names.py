"""Types of state in words: what a serializer writes, as Java and SQL call it.

type_name(serializer)   Long, List<Instant>, Tuple3<String, Long, Colour>, jobs.Order,
ROW<f0 BIGINT, f1 STRING>, Kryo of java.util.TreeSet
type_fields(serializer) the fields of an object or a row: (name, type)
unread_name(state)      what hides a state's values, where they cannot be read
sql_shape(serializer)   the same for DuckDB, as its json_transform takes it: {"name": "VARCHAR"}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from stateshift.formats.flink import protobuf
from stateshift.formats.flink.avro_data import avro_fields
from stateshift.formats.flink.keyed_state import StateInfo
from stateshift.formats.flink.logical_types import LogicalType
from stateshift.formats.flink.serializers import Serializer, snapshot_name

_NAMES: Final[Mapping[str, str]] = {
    "BytePrimitiveArraySerializer": "byte[]",
    "ShortPrimitiveArraySerializer": "short[]",
    "IntPrimitiveArraySerializer": "int[]",
    "LongPrimitiveArraySerializer": "long[]",
    "FloatPrimitiveArraySerializer": "float[]",
    "DoublePrimitiveArraySerializer": "double[]",
    "BooleanPrimitiveArraySerializer": "boolean[]",
    "CharPrimitiveArraySerializer": "char[]",
    "StringArraySerializer": "String[]",
    "IntSerializer": "Integer",
    "CharSerializer": "Character",
    "BigIntSerializer": "BigInteger",
    "BigDecSerializer": "BigDecimal",
    "StringDataSerializer": "STRING",
    "NullSerializer": "NULL",
}


def type_name(serializer: Serializer) -> str:
    """Return a type's name, with those of its parts."""
    if serializer.name in _NAMES:
        return _NAMES[serializer.name]
    if serializer.columns and serializer.name != "RowDataSerializer":
        return str(serializer.columns[0])
    name_of = _COMPOSITES.get(serializer.name)
    if name_of is not None:
        return name_of(serializer)
    name = serializer.name.removesuffix("Serializer")
    return f"{name} of {serializer.type}" if serializer.type else name


def type_fields(serializer: Serializer) -> Iterator[tuple[str, str]]:
    """Yield the fields of an object or a row, or of those in a list, with their types."""
    match serializer:
        case Serializer(name="PojoSerializer"):
            for name, inner in zip(serializer.fields, serializer.inner, strict=True):
                yield name, type_name(inner)
        case Serializer(name="RowDataSerializer"):
            for name, column in zip(serializer.fields, serializer.columns, strict=True):
                yield name, str(column)
        case Serializer(name="RowSerializer"):
            for number, inner in enumerate(serializer.inner):
                yield f"f{number}", type_name(inner)
        case Serializer(name="AvroSerializer"):
            yield from avro_fields(serializer.schema or "")
        case Serializer(name="ProtobufSerializer"):
            yield from protobuf.message_fields(serializer.type or "")
        case Serializer(name="ListSerializer" | "TtlSerializer" | "NullableSerializer"):
            yield from type_fields(serializer.inner[-1])


def unread_name(state: StateInfo) -> str:
    """Return the serializer that only the job's classes can read, by its name and type."""
    if state.value is None:
        return snapshot_name(state.unknown) if state.unknown else "a serializer of the job's own"
    opaque = state.value.first_opaque()
    if opaque is None:  # it has met objects of other classes than those that it describes
        return f"subclasses within {type_name(state.value)}"
    return type_name(opaque)


def sql_shape(serializer: Serializer) -> object:
    """Return the shape of a type's values for DuckDB; JSON of what SQL has no type for."""
    inner = serializer.inner
    match serializer.name:
        case "PojoSerializer":
            return dict(zip(serializer.fields, map(sql_shape, inner), strict=True))
        case "TupleSerializer" | "ScalaCaseClassSerializer" | "RowSerializer":
            return {f"f{number}": sql_shape(each) for number, each in enumerate(inner)}
        case "RowDataSerializer":
            return dict(
                zip(serializer.fields, map(_shape_of_column, serializer.columns), strict=True)
            )
        case "AvroSerializer":
            shapes: dict[str, object] = {}
            for name, type_ in avro_fields(serializer.schema or ""):
                branches = json.loads(type_) if type_.startswith("[") else [type_]
                known = [branch for branch in branches if branch != "null"]
                is_simple = len(known) == 1 and isinstance(known[0], str)
                shapes[name] = _SHAPES.get(known[0], "JSON") if is_simple else "JSON"
            return shapes
        case "TtlSerializer":
            return {"last_access": "BIGINT", "value": sql_shape(inner[-1])}
        case "NullableSerializer" | "TtlAwareSerializer":
            return sql_shape(inner[-1])
        case "ListSerializer" | "ArrayListSerializer" | "SetSerializer" | "GenericArraySerializer":
            return [sql_shape(inner[-1])]
    return _SHAPES.get(serializer.name.removesuffix("Serializer"), "JSON")


def _shape_of_column(column: LogicalType) -> object:
    if column.root in ("ROW", "STRUCTURED_TYPE"):
        return dict(zip(column.names, map(_shape_of_column, column.inner), strict=True))
    if column.root == "ARRAY":
        return [_shape_of_column(*column.inner)]
    return (
        f"DECIMAL({column.size}, {column.scale})"
        if column.root == "DECIMAL"
        else _SHAPES.get(column.root, "JSON")
    )


_SHAPES: Final[Mapping[str, object]] = {
    **dict.fromkeys(("Byte", "Short", "Int", "Long", "int", "long", "CountWindow"), "BIGINT"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "BIGINT"),
    **dict.fromkeys(("Float", "Double", "float", "double", "FLOAT", "DOUBLE"), "DOUBLE"),
    **dict.fromkeys(("String", "StringData", "string", "Char", "Enum"), "VARCHAR"),
    **dict.fromkeys(("CHAR", "VARCHAR", "BigDec"), "VARCHAR"),
    **dict.fromkeys(("Boolean", "boolean", "BOOLEAN"), "BOOLEAN"),
    **dict.fromkeys(("Instant", "Date", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"), "TIMESTAMPTZ"),
    **dict.fromkeys(("LocalDateTime", "TIMESTAMP_WITHOUT_TIME_ZONE"), "TIMESTAMP"),
    **dict.fromkeys(("LocalDate", "DATE"), "DATE"),
    **dict.fromkeys(("LocalTime", "TIME_WITHOUT_TIME_ZONE"), "TIME"),
    **{f"{name}PrimitiveArray": ["BIGINT"] for name in ("Short", "Int", "Long")},
    **{f"{name}PrimitiveArray": ["DOUBLE"] for name in ("Float", "Double")},
    "StringArray": ["VARCHAR"],
    "TimeWindow": ["BIGINT"],
}


def _within(serializer: Serializer) -> str:
    return ", ".join(map(type_name, serializer.inner))


def _generic(name: str) -> Callable[[Serializer], str]:
    return lambda serializer: f"{name}<{_within(serializer)}>"


def _inner(serializer: Serializer) -> str:
    return type_name(serializer.inner[-1])


def _own_class(serializer: Serializer) -> str:
    return serializer.type or "an object"


def _tuple(serializer: Serializer) -> str:
    name = (serializer.type or "Tuple").rpartition(".")[2]
    return f"{name}<{_within(serializer)}>"


def _row(serializer: Serializer) -> str:
    return f"ROW<{', '.join(f'{name} {type_}' for name, type_ in type_fields(serializer))}>"


_COMPOSITES: Final[Mapping[str, Callable[[Serializer], str]]] = {
    "TupleSerializer": _tuple,
    "ScalaCaseClassSerializer": _tuple,
    "Tuple2CaseClassSerializer": _tuple,
    "ListSerializer": _generic("List"),
    "SetSerializer": _generic("Set"),
    "ArrayListSerializer": _generic("List"),
    "LinkedListSerializer": _generic("List"),
    "MapSerializer": _generic("Map"),
    "SortedMapSerializer": _generic("Map"),
    "JavaEitherSerializer": _generic("Either"),
    "EitherSerializer": _generic("Either"),
    "ScalaEitherSerializer": _generic("Either"),
    "ScalaOptionSerializer": _generic("Option"),
    "BufferEntrySerializer": _generic("BufferEntry"),
    "UnionSerializer": _generic("Union"),
    "GenericArraySerializer": lambda serializer: f"{_inner(serializer)}[]",
    "NullableSerializer": _inner,
    "TtlSerializer": lambda serializer: f"{_inner(serializer)} with TTL",
    "TtlAwareSerializer": _inner,
    "ExternalSerializer": _inner,
    "TimerSerializer": _generic("Timer"),
    "RowSerializer": _row,
    "RowDataSerializer": _row,
    "PojoSerializer": _own_class,
    "EnumSerializer": _own_class,
    "AvroSerializer": lambda serializer: f"Avro of {serializer.type or 'a record'}",
    "RawValueDataSerializer": lambda serializer: "RAW",
    "LockableTypeSerializer": _generic("Lockable"),
    "NodeIdSerializer": lambda serializer: "NodeId",
    "SharedBufferNodeSerializerSnapshotV2": lambda serializer: "SharedBufferNode",
}
