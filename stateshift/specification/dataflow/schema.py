"""`dataflow_schema() -> dict`: the JSON Schema (2020-12) of a dataflow, made from the same table of
keys that reads it.

What it accepts has the right shape. Only the reader checks that names are known and that there is
no cycle.
"""

from __future__ import annotations

import json

from stateshift.specification.dataflow.keys import DATAFLOW, EDGE, JOB, OPERATOR
from stateshift.specification.schema import VALUES, Schema, object_schema

_TEXT = {"type": "string", "pattern": r"\S"}
_ARROWS = {"type": "string", "pattern": r"\S\s*->\s*\S"}


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
        **object_schema(DATAFLOW, "#"),
        "$defs": {
            "operator": object_schema(OPERATOR, "#/$defs/operator"),
            "edge": object_schema(EDGE, "#/$defs/edge"),
            "job": object_schema(JOB, "#/$defs/job"),
            "operators": {"type": "array", "items": {"$ref": "#/$defs/operator"}},
            "edges": {"type": "array", "items": {"anyOf": [_ARROWS, {"$ref": "#/$defs/edge"}]}},
            "planned_jobs": {"type": "array", "items": {"$ref": "#/$defs/job"}},
            "one_per_edge": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": _TEXT}]},
            "plan": {"anyOf": [_TEXT, {"type": "object"}]},
            **{kind: VALUES[kind] for kind in ("boolean", "count", "number")},
        },
    }
