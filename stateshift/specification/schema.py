"""`spec_schema() -> dict`: the JSON Schema (2020-12) of what `parse_spec` reads, made from the same
table of keys.

    properties         the canonical keys: what an editor offers
    patternProperties  their other spellings (camelCase, with blanks, ...), referring to the
                       canonical ones
    $defs              one per object, and one per kind of value that is more than a line

What the schema accepts has the right shape; whether its parts fit each other, only `parse_spec`
tells.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stateshift.specification.keys.changes import COLUMN, TRANSFORMS
from stateshift.specification.keys.job import JOB
from stateshift.specification.keys.key import Key, Keys
from stateshift.specification.keys.parts import (
    CLUSTER,
    DATA,
    HASH,
    KAFKA,
    ON,
    OPERATOR,
    PROFILES,
    RECEIVER,
    SINK,
    SOURCE,
    STOP,
    SUBMIT,
    THROTTLE,
    VERIFY,
)
from stateshift.specification.keys.rebalancing import CAPACITY, REBALANCE, REBALANCED_CLUSTER
from stateshift.specification.keys.spec import SPEC
from stateshift.specification.options import (
    CLUSTER_OPTIONS,
    STOP_OPTIONS,
    SUBMIT_OPTIONS,
    Option,
)
from stateshift.specification.write import plain_value

Schema = dict[str, Any]

_PLACEHOLDER = r"\$\{"
_TRUE_OR_FALSE = rf"^\s*([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])\s*$|{_PLACEHOLDER}"
_WHOLE = rf"^\s*-?[0-9]{{1,16}}\s*$|{_PLACEHOLDER}"
_DECIMAL = rf"^\s*[0-9]{{1,16}}(\.[0-9]{{1,16}})?\s*$|{_PLACEHOLDER}"
_UNTIL = rf"^\s*[Rr][Ee][Mm][Aa][Ii][Nn][Ii][Nn][Gg]\s*<\s*[0-9.]+\s*[A-Za-z]+\s*$|{_PLACEHOLDER}"
_HOURS = r"[0-9]+:[0-9]+\s*-\s*[0-9]+:[0-9]+(\s*[Uu][Tt][Cc])?"
_CUTOVER_WORDS = (
    "[Rr][Ee][Aa][Dd][Yy]|[Mm][Aa][Nn][Uu][Aa][Ll]|[Nn][Ee][Vv][Ee][Rr]|[Tt][Oo][Ll][Dd]"
)
_CUTOVER = rf"^\s*({_CUTOVER_WORDS}|{_HOURS})\s*$|{_PLACEHOLDER}"
_CONNECTION = rf"^\s*([A-Za-z][A-Za-z0-9+.-]*://\S+|[^\s/@]+:[0-9]{{1,5}})\s*$|{_PLACEHOLDER}"


def schema_text() -> str:
    """Return the schema as it is checked in and as `stateshift schema` prints it."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=False) + "\n"


def spec_schema() -> Schema:
    """Return the JSON schema of specs, made from the table of keys."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "stateshift/spec.schema.json",
        "title": "stateshift spec",
        "description": "Which streaming jobs move, from where to where. Keys may be spelled in "
        "snake_case, camelCase or with blanks; ${NAME} in a text stands for an environment "
        "variable, $${NAME} for these characters.",
        **object_schema(SPEC, "#"),
        "anyOf": _one_spelling("jobs"),
        "$defs": {
            "job": object_schema(JOB, "#/$defs/job"),
            "cluster": _open_object(CLUSTER, "#/$defs/cluster", CLUSTER_OPTIONS)
            | {"anyOf": _one_spelling("kind")},
            "submit": _open_object(SUBMIT, "#/$defs/submit", SUBMIT_OPTIONS),
            "stop": _open_object(STOP, "#/$defs/stop", STOP_OPTIONS),
            "datum": object_schema(DATA, "#/$defs/datum"),
            "kafka": object_schema(KAFKA, "#/$defs/kafka"),
            "sink": object_schema(SINK, "#/$defs/sink"),
            "source": object_schema(SOURCE, "#/$defs/source"),
            "operator": object_schema(OPERATOR, "#/$defs/operator"),
            "verify_ends": object_schema(VERIFY, "#/$defs/verify_ends"),
            "on": object_schema(ON, "#/$defs/on"),
            "webhook_or_command": object_schema(RECEIVER, "#/$defs/webhook_or_command"),
            "rebalance": object_schema(REBALANCE, "#/$defs/rebalance"),
            "rebalanced_cluster": object_schema(REBALANCED_CLUSTER, "#/$defs/rebalanced_cluster"),
            "capacity_of": object_schema(CAPACITY, "#/$defs/capacity_of"),
            "throttle": object_schema(THROTTLE, "#/$defs/throttle"),
            "hash": object_schema(HASH, "#/$defs/hash"),
            "column": object_schema(COLUMN, "#/$defs/column"),
            "change": {"anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in TRANSFORMS]},
            **{kind: _change(kind, keys) for kind, keys in TRANSFORMS.items()},
            **VALUES,
        },
    }


def object_schema(keys: Keys, place: str) -> Schema:
    """Return an object of these keys, in any spelling, and no others; `place` is where in the
    document it will stand.
    """
    return {**_open_object(keys, place, ()), "additionalProperties": False}


def _change(kind: str, keys: Keys) -> Schema:
    """Return one kind of change, which its `kind` tells from the others."""
    changed = object_schema(keys, f"#/$defs/{kind}")
    named = {
        "title": "kind",
        "description": keys["kind"].about,
        **_value(replace(keys["kind"], choices=(kind,))),
    }
    return {
        **changed,
        "properties": {**changed["properties"], "kind": named},
        "anyOf": _one_spelling("kind"),
    }


def _open_object(keys: Keys, place: str, options: Iterable[Option]) -> Schema:
    """Return an object of these keys in any spelling. The options are carried as given, so any
    other may stand beside.
    """
    properties = {key.name: _property(key) for key in keys.all}
    properties |= {option.name: _option(option) for option in options}
    patterns: Schema = {}
    for key in keys.all:
        for pattern in _spellings(key):
            patterns[pattern] = {"$ref": f"{place}/properties/{key.name}"}
    return {"type": "object", "properties": properties, "patternProperties": patterns}


def _option(option: Option) -> Schema:
    kind = list(option.type) if isinstance(option.type, tuple) else option.type
    return {"title": option.name, "description": option.description, "type": kind}


def _property(key: Key) -> Schema:
    described: Schema = {"title": key.name.replace("_", " "), "description": key.about}
    value = key.default
    has_default = value is not dataclasses.MISSING and value is not None
    if has_default and not key.implied:
        described["default"] = plain_value(value)
    return {**described, **_value(key)}


def _value(key: Key) -> Schema:
    """Return the shape of the key's value. A key that a blank turns off takes null and blank texts
    as well.
    """
    if key.kind == "choice":
        spelled = {"type": "string", "pattern": _any_case((*key.choices, *key.aliases))}
        return {"anyOf": [{"enum": list(key.choices)}, spelled]}
    shape = _INLINE.get(key.kind) or {"$ref": f"#/$defs/{key.kind}"}
    if not key.blank_is_off:
        return shape
    return {"anyOf": [shape, {"type": "null"}, {"$ref": "#/$defs/blank"}]}


def _spellings(key: Key) -> list[str]:
    """Return patterns for every name of the key in any case, its words apart by blanks,
    underscores, hyphens or nothing. The canonical spelling is left to `properties`.
    """
    return [f"^(?!{key.name}$){_loosely(name)}$" for name in key.names if name != "$schema"]


def _loosely(name: str) -> str:
    return "[ _-]*".join(_letters(word) for word in name.replace("-", "_").split("_"))


def _letters(word: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" for letter in word)


def _any_case(choices: Iterable[str]) -> str:
    return f"^({'|'.join(_loosely(choice) for choice in choices)})$|{_PLACEHOLDER}"


def _one_spelling(name: str) -> list[Schema]:
    """Require one of the usual spellings."""
    return [{"required": [spelling]} for spelling in (name, name.capitalize(), name.upper())]


def _list_or_map(of: str) -> list[Schema]:
    return [
        {"type": "array", "items": {"$ref": f"#/$defs/{of}"}},
        {"type": "object", "additionalProperties": {"$ref": f"#/$defs/{of}"}},
    ]


_TEXT = {"type": "string", "pattern": r"\S"}
_TEXTS = {"anyOf": [{"type": "array", "items": _TEXT}, {"type": "string"}]}

_WORDS: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 1}

_STRATEGY = "|".join(
    (
        *map(_loosely, ("all_at_once", "fluid", "optimised", "optimized")),
        rf"{_loosely('batched')}\s*\(\s*[0-9]{{1,9}}\s*\)",
    )
)

_INLINE: dict[str, Schema] = {
    "text": _TEXT,
    "texts": _TEXTS,
    "location": _TEXT,
    "locations": _TEXTS,
    "directory": {"type": ["string", "null"], "pattern": r"^[^./\\][^/\\]*$"},
    "folders": _TEXTS,
    "version": {"const": 1},
    "jobs": {"anyOf": _list_or_map("job"), "minItems": 1, "minProperties": 1},
    "clusters": {"anyOf": _list_or_map("cluster")},
    "waves": {"type": "array", "items": {"type": "array", "items": _TEXT, "minItems": 1}},
    "data": {"type": "array", "items": {"$ref": "#/$defs/datum"}},
    "sources": {"type": "array", "items": {"$ref": "#/$defs/source"}},
    "transform": {"type": "array", "items": {"$ref": "#/$defs/change"}},
    "batch": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _WHOLE}]},
    "values": {
        "anyOf": [
            {"type": "array", "items": {"type": ["string", "integer", "boolean", "null"]}},
            {"type": "string"},
        ]
    },
    "names": {"type": "object", "additionalProperties": _TEXT},
    "types": {"type": "object", "additionalProperties": _TEXT},
    "columns": {"type": "array", "items": {"$ref": "#/$defs/column"}},
    "json": {"type": ["string", "number", "boolean", "null", "array", "object"]},
    "type": {"anyOf": [_TEXT, {"type": "object"}]},
    "name": {"type": "string"},
    "verify": {
        "anyOf": [
            {"enum": list(VERIFY["target"].choices)},
            {"type": "string", "pattern": _any_case(VERIFY["target"].choices)},
            {"$ref": "#/$defs/verify_ends"},
        ]
    },
    "words": _WORDS,
    "receiver": {"anyOf": [_WORDS, {"$ref": "#/$defs/webhook_or_command"}]},
    "until": {"type": "string", "pattern": _UNTIL},
    "strategy": {"type": "string", "pattern": rf"^\s*({_STRATEGY})\s*$|{_PLACEHOLDER}"},
    "dataflow": {"anyOf": [_TEXT, {"type": "object"}]},
    "cutover": {"type": "string", "pattern": _CUTOVER},
    "environment": {"type": "object", "additionalProperties": {"type": "string"}},
    "rebalanced_clusters": {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/rebalanced_cluster"},
    },
    "together": {"type": "array", "items": {"type": "array", "items": _TEXT, "minItems": 1}},
    "excluded": {"anyOf": [{"type": "array", "items": _TEXT}, _TEXT]},
    "duration": {"anyOf": [{"type": "number", "minimum": 0}, _TEXT]},
    "size": {"anyOf": [{"type": "integer", "minimum": 1}, _TEXT]},
}

VALUES: dict[str, Schema] = {
    "blank": {"type": "string", "pattern": r"^\s*$"},
    "boolean": {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": _TRUE_OR_FALSE}]},
    "integer": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": _WHOLE}]},
    "count": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _WHOLE}]},
    "number": {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": _DECIMAL},
        ]
    },
    "amount": {
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _DECIMAL}]
    },
    "share": {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            {"type": "string", "pattern": _DECIMAL},
        ]
    },
    "capacity": {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": _DECIMAL},
            {"$ref": "#/$defs/capacity_of"},
        ]
    },
    "port": {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": 65535},
            {"type": "string", "pattern": _WHOLE},
        ]
    },
    "connection": {"type": "string", "pattern": _CONNECTION},
    "page": {"type": "string", "pattern": rf"^https?://|{_PLACEHOLDER}"},
    "operators": {
        "anyOf": [
            {"type": "array", "items": {"anyOf": [_TEXT, {"$ref": "#/$defs/operator"}]}},
            {"type": "object", "additionalProperties": _INLINE["directory"]},
        ]
    },
    "uid_hash": {
        "anyOf": [
            {"enum": list(PROFILES)},
            {"type": "string", "pattern": _any_case(PROFILES)},
            {"$ref": "#/$defs/hash"},
        ]
    },
}
