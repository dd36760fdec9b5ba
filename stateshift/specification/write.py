"""`to_plain_spec(spec)`: a spec in our dialect, so that
`parse_spec(json.dumps(to_plain_spec(spec))) == spec`.

What has the model's default is left out. Every `${` is protected: a value is written as it is,
whatever it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stateshift.specification.dataflow.operators import Dataflow
from stateshift.specification.dataflow.write import to_plain
from stateshift.specification.keys.job import JOB
from stateshift.specification.keys.key import Key, Keys
from stateshift.specification.keys.parts import (
    HASH,
    KAFKA,
    ON,
    RECEIVER,
    SINK,
    SOURCE,
    SUBMIT,
    THROTTLE,
    VERIFY,
)
from stateshift.specification.keys.rebalancing import REBALANCE, REBALANCED_CLUSTER
from stateshift.specification.keys.spec import SPEC
from stateshift.specification.model import (
    ClusterSpec,
    DataSpec,
    FlinkJob,
    HashProfile,
    JobSpec,
    KafkaSpec,
    OperatorSpec,
    RebalancedCluster,
    Rebalancing,
    Receiver,
    Receivers,
    SinkSpec,
    SourceSpec,
    Spec,
    SubmitSpec,
)
from stateshift.specification.parts import NAMED_PROFILES
from stateshift.specification.text import protect


def to_plain_spec(spec: Spec) -> dict[str, object]:
    """Return dictionaries, lists and single values, ready for JSON."""
    plain = {"version": 1, "engine": spec.engine, **_top_fields(spec)}
    plain["jobs"] = [_job(job) for job in spec.jobs]
    protected: dict[str, Any] = _protected(plain)
    return protected


def _top_fields(spec: Spec) -> dict[str, object]:
    """Return what stands beside the engine and the jobs."""
    own = [key for key in _keys_of(Spec, SPEC) if key.name not in ("engine", "jobs")]
    fields = _fields(spec, own)
    throttle = _fields(spec, THROTTLE.all)
    if throttle:
        fields["throttle"] = throttle
    return fields


def _keys_of(model: type, keys: Keys) -> list[Key]:
    return [key for key in keys.all if key.of is model]


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
    plain = _fields(job, _keys_of(JobSpec, JOB))
    ends = _fields(job, VERIFY.all)
    if ends:
        plain["verify"] = ends if "source" in ends else ends["target"]
    if job.flink is not None:
        plain |= _flink_fields(job.flink)
    return plain


def _flink_fields(flink: FlinkJob) -> dict[str, object]:
    # Said even where it is false: left out, it would follow from the other keys.
    switch = {"from_existing_savepoint": flink.from_existing_savepoint}
    return {**_fields(flink, _keys_of(FlinkJob, JOB)), **switch}


def plain_value(value: Any) -> Any:
    """Return a value of the model as plain JSON."""
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    make_plain = _PLAIN.get(type(value))
    return value if make_plain is None else make_plain(value)


def _plain_operator(operator: OperatorSpec) -> str | dict[str, object]:
    if operator.directory is None:
        return operator.name
    return {"name": operator.name, "directory": operator.directory}


def _plain_cluster(cluster: ClusterSpec) -> dict[str, object]:
    return {"name": cluster.name, "kind": cluster.kind, **cluster.options}


def _plain_submit(submit: SubmitSpec) -> dict[str, object]:
    return {**submit.options, **_fields(submit, SUBMIT.all)}


def _plain_data(data: DataSpec) -> dict[str, object]:
    return {"source": data.source, "target": data.target, "copy": data.copy}


def _plain_kafka(kafka: KafkaSpec) -> dict[str, object]:
    return _fields(kafka, KAFKA.all)


def _plain_sink(sink: SinkSpec) -> dict[str, object]:
    return _fields(sink, SINK.all)


def _plain_source(source: SourceSpec) -> dict[str, object]:
    return _fields(source, SOURCE.all)


def _plain_receivers(receivers: Receivers) -> dict[str, object]:
    return _fields(receivers, ON.all)


def _plain_receiver(receiver: Receiver) -> dict[str, object]:
    return _fields(receiver, RECEIVER.all)


def _plain_rebalancing(rebalancing: Rebalancing) -> dict[str, object]:
    others = [key for key in REBALANCE.all if key.name != "clusters"]
    fields = _fields(rebalancing, others)
    if rebalancing.clusters:
        clusters = {each.name: _plain_rebalanced(each) for each in rebalancing.clusters}
        fields["clusters"] = clusters
    return fields


def _plain_rebalanced(cluster: RebalancedCluster) -> dict[str, object]:
    fields = _fields(cluster, REBALANCED_CLUSTER.all)
    capacity: dict[str, object] = {}
    if cluster.capacity is not None:
        capacity["slots"] = cluster.capacity
    if cluster.memory is not None:
        capacity["memory"] = cluster.memory
    if capacity:
        fields["capacity"] = capacity
    return fields


def _plain_profile(profile: HashProfile) -> str | dict[str, object]:
    """Return the name of a known profile; of any other its constants."""
    if NAMED_PROFILES.get(profile.name) == profile:
        return profile.name
    return {key.name: getattr(profile, key.name) for key in HASH.all}


_PLAIN: Mapping[type, Callable[[Any], object]] = {
    OperatorSpec: _plain_operator,
    HashProfile: _plain_profile,
    ClusterSpec: _plain_cluster,
    SubmitSpec: _plain_submit,
    DataSpec: _plain_data,
    KafkaSpec: _plain_kafka,
    SinkSpec: _plain_sink,
    SourceSpec: _plain_source,
    Receivers: _plain_receivers,
    Rebalancing: _plain_rebalancing,
    Receiver: _plain_receiver,
    Dataflow: to_plain,
}


def _protected(value: Any) -> Any:
    if isinstance(value, str):
        return protect(value)
    if isinstance(value, Mapping):
        return {key: _protected(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_protected(item) for item in value]
    return value
