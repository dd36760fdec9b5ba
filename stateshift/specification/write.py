"""`to_plain_spec(spec)`: a spec in our dialect, so that
`parse_spec(json.dumps(to_plain_spec(spec))) == spec`.

What has the model's default is left out. Every `${` is protected: a value is written as it is,
whatever it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stateshift.specification.keys import (
    HASH,
    JOB,
    KAFKA,
    SINK,
    SPEC,
    SUBMIT,
    THROTTLE,
    VERIFY,
    Key,
    Keys,
)
from stateshift.specification.model import (
    ClusterSpec,
    DataSpec,
    FlinkJob,
    HashProfile,
    JobSpec,
    KafkaSpec,
    OperatorSpec,
    SinkSpec,
    Spec,
    SubmitSpec,
)
from stateshift.specification.parts import NAMED_PROFILES
from stateshift.specification.text import protect


def to_plain_spec(spec: Spec) -> dict[str, Any]:
    """Return dictionaries, lists and single values, ready for JSON."""
    own = [key for key in _keys_of(Spec, SPEC) if key.name not in ("engine", "jobs")]
    plain = {"version": 1, "engine": spec.engine, **_fields(spec, own)}
    throttle = _fields(spec, THROTTLE.all)
    if throttle:
        plain["throttle"] = throttle
    plain["jobs"] = [_job(job) for job in spec.jobs]
    protected: dict[str, Any] = _protected(plain)
    return protected


def _keys_of(model: type, keys: Keys) -> list[Key]:
    return [key for key in keys.all if key.of is model]


def _fields(value: object, keys: Iterable[Key]) -> dict[str, Any]:
    """Return the keys whose field differs from the model's default."""
    fields = {}
    for key in keys:
        if key.field is not None:
            item = getattr(value, key.field)
            if item != key.default:
                fields[key.name] = plain_value(item)
    return fields


def _job(job: JobSpec) -> dict[str, Any]:
    plain = _fields(job, _keys_of(JobSpec, JOB))
    ends = _fields(job, VERIFY.all)
    if ends:
        plain["verify"] = ends if "source" in ends else ends["target"]
    if job.flink is not None:
        # Said even where it is false: left out, it would follow from the other keys.
        switch = {"from_existing_savepoint": job.flink.from_existing_savepoint}
        plain |= {**_fields(job.flink, _keys_of(FlinkJob, JOB)), **switch}
    return plain


def plain_value(value: Any) -> Any:
    """Return a value of the model as plain JSON."""
    match value:
        case OperatorSpec(name=name, directory=None):
            return name
        case OperatorSpec(name=name, directory=directory):
            return {"name": name, "directory": directory}
        case HashProfile():
            return _plain_profile(value)
        case ClusterSpec(name=name, kind=kind, options=options):
            return {"name": name, "kind": kind, **options}
        case SubmitSpec(options=options):
            return {**options, **_fields(value, SUBMIT.all)}
        case tuple():
            return [plain_value(item) for item in value]
        case DataSpec(source=source, target=target, copy=copy):
            return {"source": source, "target": target, "copy": copy}
        case KafkaSpec():
            return _fields(value, KAFKA.all)
        case SinkSpec():
            return _fields(value, SINK.all)
        case _:
            return value


def _plain_profile(profile: HashProfile) -> str | dict[str, object]:
    """Return the name of a known profile; of any other its constants."""
    if NAMED_PROFILES.get(profile.name) == profile:
        return profile.name
    return {key.name: getattr(profile, key.name) for key in HASH.all}


def _protected(value: Any) -> Any:
    if isinstance(value, str):
        return protect(value)
    if isinstance(value, Mapping):
        return {key: _protected(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_protected(item) for item in value]
    return value
