"""`to_plain_spec(spec)`: a spec in our dialect, so that
`parse_spec(json.dumps(to_plain_spec(spec))) == spec`.

A value that is the model's default is left out. Every `${` is protected: a value is written as it
is, whatever it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from stateshift.specification.changes import TRANSFORMS
from stateshift.specification.dataflow.document import to_plain
from stateshift.specification.dataflow.operators import Dataflow
from stateshift.specification.job_keys import (
    DRILL,
    JOB,
    KAFKA,
    SINK,
    SOURCE,
    STANDBY,
    SUBMIT,
    TAKE_BACK,
    TAKE_OVER,
    VERIFY,
)
from stateshift.specification.key import Key
from stateshift.specification.model import (
    ClusterSpec,
    DataSpec,
    FlinkJob,
    HashProfile,
    JobSpec,
    OperatorSpec,
    Rebalancing,
    Spec,
    SubmitSpec,
)
from stateshift.specification.rebalancing import REBALANCE, REBALANCED_CLUSTER
from stateshift.specification.spec_keys import HASH, NAMED_PROFILES, ON, RECEIVER, SPEC, THROTTLE
from stateshift.specification.text import protect
from stateshift.specification.transform import Change


def to_plain_spec(spec: Spec) -> dict[str, object]:
    """Return dictionaries, lists and single values, ready for JSON."""
    fields = _fields(spec, SPEC.filling(Spec))
    jobs = fields.pop("jobs")
    throttle = _fields(spec, THROTTLE.all)
    if throttle:
        fields["throttle"] = throttle
    protected: dict[str, object] = protect({"version": 1, **fields, "jobs": jobs})
    return protected


def _fields(value: object, keys: Iterable[Key]) -> dict[str, object]:
    """Return the keys whose field differs from the model's default."""
    fields: dict[str, object] = {}
    for key in keys:
        if key.field is not None:
            item = getattr(value, key.field)
            if item != key.default:
                fields[key.name] = plain_value(item)
    return fields


def _job(job: JobSpec) -> dict[str, object]:
    plain = _fields(job, JOB.filling(JobSpec))
    ends = _fields(job, VERIFY.all)
    if ends:
        plain["verify"] = ends if "source" in ends else ends["target"]
    if job.flink is not None:
        plain |= _fields(job.flink, JOB.filling(FlinkJob))
        # Said even where it is false: left out, it would follow from the other keys.
        plain["from_existing_savepoint"] = job.flink.from_existing_savepoint
    return plain


def plain_value(value: Any) -> Any:
    """Return a value of the model as plain JSON."""
    match value:
        case tuple():
            return [plain_value(item) for item in value]
        case OperatorSpec(name, None):
            return name
        case OperatorSpec() | DataSpec():
            return asdict(value)
        case ClusterSpec():
            return {"name": value.name, "kind": value.kind, **value.options}
        case SubmitSpec():
            return {**value.options, **_fields(value, SUBMIT.all)}
        case HashProfile() if NAMED_PROFILES.get(value.name) == value:
            return value.name
        case HashProfile():
            return {key.name: getattr(value, key.name) for key in HASH.all}
        case _ if isinstance(value, Change):
            keys = TRANSFORMS[value.kind].filling(type(value))
            return {"kind": value.kind, **_fields(value, keys)}
        case _ if type(value) in _KEYS:
            return _fields(value, _KEYS[type(value)].all)
    make_plain = _PLAIN.get(type(value))
    return value if make_plain is None else make_plain(value)


# Objects that hold the values of their keys and nothing else.
_KEYS = {
    keys.model: keys
    for keys in (DRILL, KAFKA, SINK, SOURCE, STANDBY, TAKE_BACK, TAKE_OVER, ON, RECEIVER)
}


def _plain_rebalancing(rebalancing: Rebalancing) -> dict[str, object]:
    fields = _fields(rebalancing, REBALANCE.all)
    if fields.pop("clusters", None):
        clusters = fields["clusters"] = {}
        for cluster in rebalancing.clusters:
            plain = clusters[cluster.name] = _fields(cluster, REBALANCED_CLUSTER.all)
            plain.pop("capacity", None)
            capacity = {"slots": cluster.capacity, "memory": cluster.memory}
            given = {name: count for name, count in capacity.items() if count is not None}
            if given:
                plain["capacity"] = given
    return fields


_PLAIN: Mapping[type, Callable[[Any], object]] = {
    JobSpec: _job,
    Rebalancing: _plain_rebalancing,
    Dataflow: to_plain,
}
