"""The request of a user: `parse_spec(text) -> Spec`, and the JSON Schema of specs.

    text         JSON to a plain tree: doubled keys, placeholders, passwords in URLs
    key          the words of all tables: Kind, Key, Keys; and Reader, which reads objects by them
    values       kinds of single values, however they are spelled; `grammars` has the longer ones
    job_keys, spec_keys
                 the keys of a job, of the spec itself, and of the objects inside them
    changes, rebalancing
                 likewise, of the larger objects
    jobs         one job, in the dialect and for the engine of its spec
    checks       rules between the parts
    dataflow     operators and edges, our JSON of them, and plans of engines
    parse        all of these in their order, and where a misplaced key belongs; `write` is its
                 inverse; `schema` is for editors
    job_relations
                 jobs that share a source, or places that they are copied to

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
    from stateshift.specification.schema import spec_schema
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
    "spec_schema",
    "to_plain_spec",
]

_HOMES = {
    "parse_spec": "parse",
    "parse_without_dataflow": "parse",
    "spec_schema": "schema",
    "to_plain_spec": "write",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'model')}"), name)
