"""Rows as Spark hands them to a chain, Arrow's or pandas', and the types that a chain promises."""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stateshift.errors import Complaint, Incompatible, PlanError, SpecError
from stateshift.live import code
from stateshift.live.protocol.chains import Version

if TYPE_CHECKING:
    import pyarrow

# Spark hands a function an Arrow batch, or a DataFrame of pandas or of Spark; and its schema.
Rows = Any
Schema = Any

KIND = b"stateshift.kind"


def is_arrow(batch: Rows) -> bool:
    """Whether rows are Arrow's."""
    return not hasattr(batch, "iloc")  # a DataFrame may have a column of any name


def versions_in(batch: Rows, column: str) -> list[Version]:
    """Return the versions that a batch's rows carry, ascending; a row without one has 0."""
    if column not in (batch.schema.names if is_arrow(batch) else list(batch.columns)):
        raise PlanError(
            f"there is no column {column}, which the chain takes each row's version from",
            hint="keep the column on its way from the chain that stamps it",
        )
    if is_arrow(batch):
        values = batch.column(column).unique().to_pylist()
        return sorted({int(value or 0) for value in values})
    return sorted({int(value) for value in batch[column].fillna(0).unique()})


def rows_of(batch: Rows, column: str, version: Version) -> Rows:
    """Return the rows that carry a version."""
    if not is_arrow(batch):
        return batch[batch[column].fillna(0) == version]
    import pyarrow.compute

    values = pyarrow.compute.fill_null(batch.column(column), 0)
    return batch.filter(pyarrow.compute.equal(values, version))


def with_column(rows: Rows, column: str, value: int, at: int) -> Rows:
    """Return rows with a number in one column, at its place."""
    if not is_arrow(rows):
        rows = rows.drop(columns=[column], errors="ignore")
        rows.insert(at, column, value)
        return rows
    import pyarrow

    if column in rows.schema.names:
        rows = rows.drop_columns([column])
    values = pyarrow.array([value] * rows.num_rows, pyarrow.int64())
    return rows.add_column(at, pyarrow.field(column, pyarrow.int64()), values)


def arrow_schema(schema: Schema) -> pyarrow.Schema | None:
    """Return a schema as Arrow's: given as text of DDL, as Spark's, or as Arrow's."""
    import pyarrow

    if schema is None or isinstance(schema, pyarrow.Schema):
        return schema
    simple = _simple(schema) if isinstance(schema, str) else None
    if simple is not None:
        return simple
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    if isinstance(schema, str):
        try:
            schema = StructType.fromDDL(schema)
        except Exception as error:  # it asks a session, and has an error of its own for each case
            fact = f"{schema!r} cannot be read as DDL: {type(error).__name__}: {error}"
            hint = "make the session before the chain and check the text, or give a pyarrow.Schema"
            raise SpecError((Complaint("schema", fact, schema),), hint=hint) from error
    if "timezone" in inspect.signature(to_arrow_schema).parameters:  # from Spark 4.2 on
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def _simple(text: str) -> pyarrow.Schema | None:
    """Return the schema of DDL without types inside types, which needs no session; else None."""
    import pyarrow

    fields = []
    for column in re.split(r",(?![^(]*\))", text):
        found = _COLUMN.fullmatch(column)
        kind = None if found is None else _type_of(found["type"].lower())
        if found is None or kind is None:
            return None
        fields.append(pyarrow.field(found["name"], kind, nullable=found["not_null"] is None))
    return pyarrow.schema(fields)


_COLUMN = re.compile(
    r"\s*(?P<name>\w+)\s*(?::\s*|\s)(?P<type>\w+(?:\s*\([\d,\s]*\))?)"
    r"(?P<not_null>\s+not\s+null)?\s*",
    re.IGNORECASE | re.ASCII,
)
_TYPES = {
    "string": "string",
    "long": "int64",
    "bigint": "int64",
    "int": "int32",
    "integer": "int32",
    "short": "int16",
    "smallint": "int16",
    "byte": "int8",
    "tinyint": "int8",
    "double": "float64",
    "float": "float32",
    "real": "float32",
    "boolean": "bool_",
    "binary": "binary",
    "date": "date32",
}


def _type_of(text: str) -> pyarrow.DataType | None:
    import pyarrow

    if text in _TYPES:
        return getattr(pyarrow, _TYPES[text])()
    if text in ("timestamp", "timestamp_ntz"):
        return pyarrow.timestamp("us", "UTC" if text == "timestamp" else None)
    decimal = re.fullmatch(r"dec(?:imal)?(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", text)
    if decimal is None or int(decimal[1] or 10) not in range(1, 39):
        return None
    return pyarrow.decimal128(int(decimal[1] or 10), int(decimal[2] or 0))


def in_base64(schema: pyarrow.Schema) -> str:
    """Return a schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def input_schema(empty: Rows) -> bytes:
    """Return the schema of a chain's input, with its kind, as bytes."""
    import pyarrow

    kind = b"arrow" if is_arrow(empty) else b"pandas"
    schema = empty.schema if is_arrow(empty) else pyarrow.Schema.from_pandas(empty)
    metadata = {**(schema.metadata or {}), KIND: kind}
    return bytes(schema.with_metadata(metadata).serialize().to_pybytes())


def empty_input(content: bytes) -> Rows:
    """Return no rows of a chain's input, by the bytes of its schema."""
    import pyarrow

    schema = pyarrow.ipc.read_schema(pyarrow.BufferReader(content))
    empty = pyarrow.RecordBatch.from_pylist([], schema=schema)
    if (schema.metadata or {}).get(KIND) == b"pandas":
        try:
            return empty.to_pandas()
        except ImportError:
            raise PlanError(
                "pandas is needed here: the chain is one of mapInPandas, and is tried on no rows",
                hint="pip install pandas",
            ) from None
    return empty


def from_base64(text: str) -> pyarrow.Schema:
    """Return a schema that was written as text."""
    import pyarrow

    return pyarrow.ipc.read_schema(pyarrow.BufferReader(base64.b64decode(text)))


HINT_TYPES = "every function takes what the one before it returns; the last one returns the schema"
HINT_NULL = "on no rows Arrow cannot tell the type: say it, pyarrow.array(values, pyarrow.int64())"


def run_on_no_rows(chain: str, functions: Iterable[code.Function], rows: Rows) -> Rows:
    """Run functions on no rows, one after the other; refuse the one that fails."""
    for function in functions:
        try:
            rows = function(rows)
        except Exception as error:
            fact = f"{chain}: {code.name_of(function)} fails on no rows: "
            raise Incompatible(f"{fact}{type(error).__name__}: {error}", hint=HINT_TYPES) from error
    return rows


def check_returned(chain: str, rows: Rows, output: pyarrow.Schema, stamp: str | None) -> None:
    """Refuse the result of functions on no rows if their chain has promised another, but for the
    column that the chain stamps: that it writes itself, over one that came in.
    """
    promised = without(output, stamp)
    if stamp is not None and not is_arrow(rows):
        rows = rows.drop(columns=[stamp], errors="ignore")
    check_types(chain, promised, without(schema_of(rows, promised), stamp))


def check_types(chain: str, expected: pyarrow.Schema, found: pyarrow.Schema) -> None:
    """Refuse columns that are not those a chain has promised, by name, order and type."""
    if found.names != expected.names:
        raise Incompatible(
            f"{chain}: the columns are {', '.join(found.names) or 'none'}, expected are "
            f"{', '.join(expected.names)}",
            hint=HINT_TYPES,
        )
    for name in expected.names:
        is_type, wanted = found.field(name).type, expected.field(name).type
        if _as_spark_sees(is_type) != _as_spark_sees(wanted):
            fact = f"{chain}: column {name} is {is_type}, expected is {wanted}"
            raise Incompatible(fact, hint=HINT_NULL if str(is_type) == "null" else HINT_TYPES)


def _as_spark_sees(kind: pyarrow.DataType) -> str:
    """Return a type without the traits that Spark ignores: time zones, large offsets, nulls."""
    text = re.sub(r"tz=[^\]]+", "tz=UTC", str(kind))
    return text.replace("large_", "").replace(" not null", "")


def schema_of(rows: Rows, expected: pyarrow.Schema) -> pyarrow.Schema:
    """Return the schema of what functions returned; of pandas as Spark would read it."""
    import pyarrow

    if isinstance(rows, pyarrow.RecordBatch | pyarrow.Table):
        return rows.schema.remove_metadata()
    columns = getattr(rows, "columns", None)
    if columns is None:
        raise Incompatible(f"the last function returned {type(rows).__name__}", hint=HINT_TYPES)
    if list(columns) != expected.names:
        return pyarrow.schema([(str(name), pyarrow.null()) for name in columns])
    try:
        pyarrow.RecordBatch.from_pandas(rows, schema=expected, preserve_index=False)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        fact = f"the last function's columns do not fit: {error}"
        raise Incompatible(fact, hint=HINT_TYPES) from None
    found = pyarrow.Schema.from_pandas(rows, preserve_index=False)
    for field in expected:
        is_type = found.field(field.name).type
        kinds = (_kind(field.type), _kind(is_type))
        # Numbers for texts, and so on: no rows of pandas can be made into anything.
        if None not in kinds and kinds[0] != kinds[1]:
            raise Incompatible(
                f"the last function's columns do not fit: {field.name} is {is_type}, expected is "
                f"{field.type}",
                hint=HINT_TYPES,
            )
    return expected


def _kind(kind: pyarrow.DataType) -> str | None:
    """Return the kind of values; None where pandas cannot say it without rows."""
    import pyarrow.types as types

    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    return "time" if types.is_temporal(kind) else None


def without(schema: pyarrow.Schema, column: str | None) -> pyarrow.Schema:
    """Return a schema without one column."""
    import pyarrow

    return pyarrow.schema([field for field in schema if field.name != column])
