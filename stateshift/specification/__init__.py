"""What the user asked for: `parse_spec(text) -> Spec`, and the JSON Schema of what it reads.

    text      JSON to a plain tree: doubled keys, placeholders, passwords in URLs
    keys      every key there is, in one table
    values    single values, and the keys of one object, however they are spelled
    parts     clusters, operators, submissions, data, hashes
    jobs      one job, in the dialect and for the engine of its spec
    checks    what has to hold between the parts
    rebalancing  between which clusters jobs may be moved; `excluded` when not
    dataflow  operators and edges, our JSON of them, and plans of engines
    parse     all of these in their order; `write` is its inverse; `schema` tells editors the same

Pure. Locations are in the normal form of `location`. Each module is imported when something of it
is first asked for: who only names a location waits for no spec.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateshift.specification.model import (
        ClusterSpec,
        DataSpec,
        FlinkJob,
        HashProfile,
        JobSpec,
        KafkaSpec,
        Mode,
        OperatorSpec,
        RebalancedCluster,
        Rebalancing,
        Receiver,
        Receivers,
        SinkSpec,
        SourceSpec,
        Spec,
        SubmitSpec,
        Verify,
    )
    from stateshift.specification.parse import parse_spec, parse_without_dataflow
    from stateshift.specification.schema import schema_text, spec_schema
    from stateshift.specification.write import to_plain_spec

__all__ = [
    "ClusterSpec",
    "DataSpec",
    "FlinkJob",
    "HashProfile",
    "JobSpec",
    "KafkaSpec",
    "Mode",
    "OperatorSpec",
    "RebalancedCluster",
    "Rebalancing",
    "Receiver",
    "Receivers",
    "SinkSpec",
    "SourceSpec",
    "Spec",
    "SubmitSpec",
    "Verify",
    "parse_spec",
    "parse_without_dataflow",
    "schema_text",
    "spec_schema",
    "to_plain_spec",
]

_HOMES = {
    "parse_spec": "parse",
    "parse_without_dataflow": "parse",
    "schema_text": "schema",
    "spec_schema": "schema",
    "to_plain_spec": "write",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'model')}"), name)
