"""The JSON Schemas (2020-12) of specs and dataflows, made from the tables of keys that read them.

    properties         the canonical keys: what an editor offers
    patternProperties  their other spellings (camelCase, with blanks, ...), referring to the
                       canonical ones
    $defs              one per object, and one per kind of value that is more than a line

A text that a schema accepts has the right shape. Only the reader tells whether its parts fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import replace

from stateshift.specification import values
from stateshift.specification.changes import TRANSFORMS
from stateshift.specification.dataflow import keys as dataflow
from stateshift.specification.job_keys import JOB, OPERATOR_LIST
from stateshift.specification.key import Key, Keys, Schema, either, loosely, reference
from stateshift.specification.options import CLUSTER_OPTIONS, STOP_OPTIONS, SUBMIT_OPTIONS, Option
from stateshift.specification.rebalancing import CAPACITY_VALUE
from stateshift.specification.spec_keys import OBJECTS, SPEC, UID_HASH_VALUE
from stateshift.specification.values import BOOLEAN, CHOICE, COUNT, INTEGER, NUMBER
from stateshift.specification.write import plain_value

# Objects in which options of clusters stand beside the keys.
_OPEN = {"cluster": CLUSTER_OPTIONS, "submit": SUBMIT_OPTIONS, "stop": STOP_OPTIONS}
# Schemas that stand once, in this order.
_SHARED = (
    *(BOOLEAN, INTEGER, COUNT, NUMBER, values.AMOUNT, values.SHARE, CAPACITY_VALUE, values.PORT),
    *(values.CONNECTION, values.PAGE, OPERATOR_LIST, UID_HASH_VALUE),
)
_SHARED_BY_DATAFLOWS = (
    *(dataflow.OPERATOR_LIST, dataflow.EDGE_LIST, dataflow.JOB_LIST, dataflow.ONE_PER_EDGE),
    *(dataflow.PLAN, BOOLEAN, COUNT, NUMBER),
)


def spec_schema() -> Schema:
    """Return the JSON schema of specs, made from the table of keys."""
    definitions: dict[str, Schema] = {"job": _object(JOB, "#/$defs/job")}
    for name, (keys, _) in OBJECTS.items():
        if name in _OPEN:
            definitions[name] = _open_object(keys, f"#/$defs/{name}", _OPEN[name])
        else:
            definitions[name] = _object(keys, f"#/$defs/{name}")
    definitions["cluster"]["anyOf"] = _one_spelling("kind")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "stateshift/spec.schema.json",
        "title": "stateshift spec",
        "description": "Which streaming jobs move, from where to where. Keys may be spelled in "
        "snake_case, camelCase or with blanks; ${NAME} in a text stands for an environment "
        "variable, $${NAME} for these characters.",
        **_object(SPEC, "#"),
        "anyOf": _one_spelling("jobs"),
        "$defs": {
            **definitions,
            "change": either(*map(reference, TRANSFORMS)),
            **{kind: _change(kind, keys) for kind, keys in TRANSFORMS.items()},
            "blank": values.BLANK,
            **{kind.name: kind.schema for kind in _SHARED},
        },
    }


def dataflow_schema() -> Schema:
    """Return the schema of a dataflow. Only the reader checks names, and that there is no cycle."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "stateshift/dataflow.schema.json",
        "title": "stateshift dataflow",
        "description": (
            "Operators, and which of them sends to which: what `stateshift dataflow` is "
            "asked about."
        ),
        **_object(dataflow.DATAFLOW, "#"),
        "$defs": {
            "operator": _object(dataflow.OPERATOR, "#/$defs/operator"),
            "edge": _object(dataflow.EDGE, "#/$defs/edge"),
            "job": _object(dataflow.JOB, "#/$defs/job"),
            **{kind.name: kind.schema for kind in _SHARED_BY_DATAFLOWS},
        },
    }


def _object(keys: Keys, place: str) -> Schema:
    """Return an object of these keys, in any spelling; `place` is where it will stand."""
    return {**_open_object(keys, place), "additionalProperties": False}


def _change(kind: str, keys: Keys) -> Schema:
    """Return one kind of change, which its `kind` tells from the others."""
    named = {key.name: replace(key, of=None) for key in keys.all}
    changed = _object(Keys(None, **named), f"#/$defs/{kind}")
    changed["properties"]["kind"] = _property(replace(keys["kind"], choices=(kind,)))
    return {**changed, "anyOf": _one_spelling("kind")}


def _open_object(keys: Keys, place: str, options: Iterable[Option] = ()) -> Schema:
    """Return an object of these keys in any spelling, and of any others beside `options`."""
    properties = {key.name: _property(key) for key in keys.all}
    for option in filter(lambda option: option.about, options):
        kind = option.expected.type
        properties[option.name] = {
            "title": option.name,
            "description": option.description,
            "type": list(kind) if isinstance(kind, tuple) else kind,
        }
    patterns: Schema = {}
    for key in keys.all:
        # The canonical spelling is left to `properties`.
        for name in () if key.name == "$schema" else key.names:
            pattern = f"^(?!{key.name}$){loosely(name)}$"
            patterns[pattern] = {"$ref": f"{place}/properties/{key.name}"}
    return {"type": "object", "properties": properties, "patternProperties": patterns}


def _property(key: Key) -> Schema:
    """Return the schema of a key. One that a blank turns off takes null and blank texts as well."""
    described: Schema = {"title": key.name.replace("_", " "), "description": key.about}
    value = key.default
    has_default = value is not dataclasses.MISSING and value is not None
    if has_default and not key.implied:
        described["default"] = plain_value(value)
    shape = reference(key.kind.name) if key.kind.shared else key.kind.schema
    if key.kind is CHOICE:
        words = values.words_in_any_case((*key.choices, *key.aliases))
        shape = either({"enum": list(key.choices)}, words)
    elif key.blank_is_off:
        shape = either(shape, {"type": "null"}, reference("blank"))
    return {**described, **shape}


def _one_spelling(name: str) -> list[Schema]:
    """Require one of the usual spellings."""
    return [{"required": [spelling]} for spelling in (name, name.capitalize(), name.upper())]
