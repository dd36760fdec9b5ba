"""`dataflow_schema() -> dict`: the JSON Schema (2020-12) of a dataflow, made from the same table of
keys that reads it.

An accepted document has the right shape. Only the reader checks that names are known and that there
is no cycle.
"""

from __future__ import annotations

import json

from stateshift.specification.dataflow import keys
from stateshift.specification.key import Schema
from stateshift.specification.schema import object_schema, objects_schema
from stateshift.specification.values import BOOLEAN, COUNT, NUMBER

_SHARED = (
    *(keys.OPERATOR_LIST, keys.EDGE_LIST, keys.JOB_LIST, keys.ONE_PER_EDGE, keys.PLAN),
    *(BOOLEAN, COUNT, NUMBER),
)


def schema_text() -> str:
    """Return the schema as it is checked in: configs/dataflow.schema.json."""
    return json.dumps(dataflow_schema(), indent=2, ensure_ascii=False) + "\n"


def dataflow_schema() -> Schema:
    """Return the JSON Schema of a dataflow."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "stateshift/dataflow.schema.json",
        "title": "stateshift dataflow",
        "description": (
            "Operators, and which of them sends to which: what `stateshift dataflow` is "
            "asked about."
        ),
        **object_schema(keys.DATAFLOW, "#"),
        "$defs": {
            **objects_schema(operator=keys.OPERATOR, edge=keys.EDGE, job=keys.JOB),
            **{kind.name: kind.schema for kind in _SHARED},
        },
    }
