"""What types a state schema may hold: every answer is that of Spark 4.3.0's
StructType.fromString.
"""

from __future__ import annotations

import json

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.schema import SchemaFile, StoreSchema, decode_schema
from stateshift.formats.spark.type_json import check_schema, check_struct
from tests.formats.golden import CASES

pytestmark = pytest.mark.every_case

PARSED = (
    "void",
    "null",
    "date",
    "timestamp",
    "timestamp_ltz",
    "timestamp_ntz",
    "binary",
    "integer",
    "boolean",
    "long",
    "double",
    "float",
    "short",
    "byte",
    "string",
    "interval",
    "interval day",
    "interval day to hour",
    "interval day to minute",
    "interval day to second",
    "interval hour",
    "interval hour to minute",
    "interval hour to second",
    "interval minute",
    "interval minute to second",
    "interval second",
    "interval year",
    "interval month",
    "interval year to month",
    "variant",
    "time(6)",
    "time(0)",
    "time(7)",
    "time(9)",
    "decimal",
    "decimal(10,2)",
    "decimal( 10 , 2 )",
    "decimal(38,38)",
    "decimal(0,0)",
    "decimal(010,2)",
    "decimal(10, 2)",
    "char(5)",
    "char( 5 )",
    "char(0)",
    "varchar(5)",
    "varchar( 5 )",
    "varchar(0)",
    "string collate UTF8_LCASE",
    "string collate UNICODE",
    "string  collate  UNICODE_CI",
    "string collate en_USA_CI",
    "geometry",
    "geometry(OGC:CRS84)",
    "geography",
    "geography(OGC:CRS84, SPHERICAL)",
    "geometry(SRID:0)",
    "geometry(EPSG:3857)",
    "timestamp_ntz(6)",
    "timestamp_ltz(9)",
    "timestamp_ntz(9)",
    "timestamp_ltz(6)",
)
REFUSED = (
    "int",
    "bigint",
    "calendarinterval",
    "calendar",
    "interval month to year",
    "interval second to day",
    "time",
    "time( 3 )",
    "time(10)",
    "decimal(10)",
    "decimal(39,2)",
    "decimal(5,6)",
    "decimal(+1,2)",
    "DECIMAL(10,2)",
    "char()",
    "varchar(99999999999)",
    "string collate INDETERMINATE",
    "string collate NOPE",
    "string collate null",
    "geometry(4326)",
    "geometry(any)",
    "geometry(ANY)",
    "geography(4326)",
    "geography(any, spherical)",
    "geometry(0)",
    "geography(ANY, SPHERICAL)",
    "string(5)",
    "object",
    "unknown",
    "String",
    "struct<a:int>",
    "array<int>",
    "char varying",
    "long ",
    "Decimal(10,2)",
    "user",
    "float8",
    "numeric",
    "udt",
    "hllsketch",
    "timestamp_nanos",
)

ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
FIELD = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
JVM = {
    "type": "udt",
    "class": "org.apache.spark.ml.linalg.VectorUDT",
    "pyClass": None,
    "sqlType": "nope",
}
PYTHON = {"type": "udt", "pyClass": "m.P", "serializedClass": "abc", "sqlType": ARRAY}


def struct(*fields: object, **more: object) -> str:
    return json.dumps({"type": "struct", "fields": list(fields), **more})


def field(**changes: object) -> dict[str, object]:
    return {**FIELD, **changes}


def less(plain: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in plain.items() if key != name}


def of(kind: object) -> str:
    return struct(field(type=kind))


def noted(metadata: object) -> str:
    return struct(field(metadata=metadata))


def collated(name: str, kind: object = "string", path: str = "a") -> str:
    return struct(field(type=kind, metadata={"__COLLATIONS": {path: name}}))


GOOD = [
    struct(),
    of(ARRAY),
    of(MAP),
    of(PYTHON),
    of(JVM),
    of({**MAP, "keyType": "variant"}),
    of(json.loads(struct())),
    struct(less(FIELD, "metadata")),
    struct(less(less(FIELD, "metadata"), "nullable")),
    struct(FIELD, FIELD),
    noted(
        {
            "k": None,
            "l": [1, 2],
            "m": [1.5],
            "n": ["a"],
            "o": [True],
            "p": [{}],
            "q": [],
            "r": {"s": 1},
        }
    ),
    noted({"t": 1 << 70}),
    of("long") + "garbage",
    of("long") + "}",
    " \n" + of("long"),
    "StructType(List(StructField(a,LongType,true)))",
    collated("icu.UNICODE_CI"),
    collated("icu.UNICODE_CI", path="b"),
    collated("icu.UNICODE_CI", {**ARRAY, "elementType": "string"}, "a.element"),
]
BAD = [
    of(less(ARRAY, "containsNull")),
    of({**ARRAY, "x": 1}),
    of({**ARRAY, "containsNull": 1}),
    of(less(MAP, "valueContainsNull")),
    of({**MAP, "x": 1}),
    struct(x=1),
    of(json.loads(struct(x=1))),
    struct(less(FIELD, "nullable")),
    struct(field(x=1)),
    struct(field(nullable="true")),
    struct(field(nullable=1)),
    noted([]),
    noted(None),
    noted({"k": [1, "a"]}),
    noted({"k": [[1]]}),
    noted({"k": [None]}),
    struct(field(name=None)),
    struct(field(name=1)),
    struct("long"),
    of(None),
    of(7),
    '{"type":"struct","fields":[{"name":"a","name":"b","type":"long","nullable":true,"metadata":{}}]}',
    '{"type":"struct","fields":[],"fields":[]}',
    '"long"',
    json.dumps(ARRAY),
    "",
    "{    }",
    "{}",
    "[]",
    of({"type": "udt", "class": None, "pyClass": "m.P", "sqlType": ARRAY}),
    of(less(JVM, "pyClass")),
    of({**PYTHON, "sqlType": "nope"}),
    of({**ARRAY, "elementType": "strinh"}),
    of({**MAP, "valueType": "strinh"}),
    collated("icu.NOPE"),
    collated("UNICODE_CI"),
    collated("zzz.UNICODE_CI"),
    collated("icu.UNICODE_CI", "long"),
    of("long").replace('"', "'"),
    of("long").replace("{}", '{"k":NaN}'),
    of("long").replace("{}", '{"k":01}'),
    of("long").replace('"a"', '"a\tb"'),
    '{"type":"struct",/*x*/"fields":[]}',
    '{"type":"struct","fields":[],}',
]


@pytest.mark.parametrize("name", PARSED)
def test_a_name_that_spark_parses_is_taken(name: str) -> None:
    check_struct(of(name))


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_spark_cannot_parse_is_refused(name: str) -> None:
    with pytest.raises(FormatError):
        check_struct(of(name))


@pytest.mark.parametrize("text", GOOD)
def test_a_schema_that_spark_parses_is_taken(text: str) -> None:
    check_struct(text)


@pytest.mark.parametrize("text", BAD)
def test_a_schema_that_spark_cannot_parse_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        check_struct(text)


def test_what_is_nested_without_end_is_refused_and_what_is_nested_deeply_taken() -> None:
    kind: object = "long"
    for _ in range(100):
        kind = {**ARRAY, "elementType": kind}
    check_struct(of(kind))
    with pytest.raises(FormatError):
        check_struct('{"type":"struct","fields":[' * 100_000)


@pytest.mark.parametrize(
    ("encoder", "known"),
    [
        ('{"keyStateEncoderType":"NoPrefixKeyStateEncoderSpec"}', True),
        ('{"keyStateEncoderType":"PrefixKeyScanStateEncoderSpec","numColsPrefixKey":1}', True),
        ('{"keyStateEncoderType":"RangeKeyScanStateEncoderSpec","orderingOrdinals":[0]}', True),
        ('{"keyStateEncoderType":"PrefixKeyScanStateEncoderSpec"}', False),
        ('{"keyStateEncoderType":"RangeKeyScanStateEncoderSpec"}', False),
        ('{"keyStateEncoderType":"NoPrefixKeyStateEncoderSped"}', False),
        ("{}", False),
        ("", False),
    ],
)
def test_a_key_encoder_is_one_that_spark_has(encoder: str, known: bool) -> None:
    schema = SchemaFile(3, (StoreSchema(of("long"), of("long"), encoder=encoder),))
    if known:
        check_schema(schema)
        return
    with pytest.raises(FormatError):
        check_schema(schema)


SCHEMAS = [
    path
    for case in CASES
    for path in (case / "checkpoint/state").rglob("*")
    if path.is_file() and (path.name == "schema" or path.parent.parent.name == "_stateSchema")
]


def test_every_schema_that_a_spark_wrote_is_taken() -> None:
    assert len(SCHEMAS) > 100
    for path in SCHEMAS:
        check_schema(decode_schema(path.read_bytes()))
