"""The settings that a Flink job runs under, as keys of Flink's configuration.

Source: Flink 2.3, CheckpointConfigHandler and JobConfigHandler, held against the defaults of
CheckpointingOptions: what is as Flink has it by itself is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.http.rest import Json, Refused, Unanswered
from stateshift.clusters.options import Options, settings

_CHECKPOINTING: Final = "execution.checkpointing."
# A page's field, its key, and what it is by itself.
_TIMES: Final = (("timeout", "timeout", 600_000), ("min_pause", "min-pause", 0))
_NUMBERS: Final = (
    ("max_concurrent", "max-concurrent-checkpoints", 1),
    ("tolerable_failed_checkpoints", "tolerable-failed-checkpoints", 0),
)
_BACKENDS: Final = {
    "EmbeddedRocksDBStateBackend": "rocksdb",
    "RocksDBStateBackend": "rocksdb",
    "ForStStateBackend": "forst",
}
# Of a cluster's own configuration, what it gives to jobs.
_GIVEN: Final = (
    _CHECKPOINTING,
    "restart-strategy",
    "state.backend",
    "parallelism.default",
    "pipeline.object-reuse",
)
_OF_CLUSTER: Final = ("dir", "savepoint-dir", "storage")
_NEVER: Final = 1 << 62
_BY_CLUSTER: Final = "cluster level default"


def is_off(page: Options) -> bool:
    """Whether a job completes no checkpoints by itself, by the page of their settings."""
    interval = page.get("interval")
    return isinstance(interval, int) and not 0 < interval < _NEVER


def job_settings(calls: FlinkCalls, id: str) -> dict[str, str]:
    """Return the settings that a job runs under, where they are not Flink's own."""
    page, config = calls.settings(id), calls.job_config(id)
    if not config:
        return {}
    found = dict(_of_checkpoints(page)) if page and not is_off(page) else {}
    if str(page.get("state_backend")) in _BACKENDS:
        found["state.backend.type"] = _BACKENDS[str(page["state_backend"])]
    if config.get("object-reuse-mode") is True:
        found["pipeline.object-reuse"] = "true"
    parallelism = config.get("job-parallelism")
    if isinstance(parallelism, int) and parallelism > 0:
        found["parallelism.default"] = str(parallelism)
    by_cluster = _of_cluster(calls)
    for key, value in by_cluster.items():
        is_restart = key.startswith("restart-strategy")
        if is_restart and _BY_CLUSTER in str(config.get("restart-strategy", "")).lower():
            found[key] = value
        if key.endswith(".incremental"):
            found[key] = value
    return found


def given_settings(calls: FlinkCalls) -> dict[str, str]:
    """Return the settings that a cluster gives to each of its jobs."""
    return {**_of_cluster(calls), **settings(calls.options.get("flink_configuration"))}


def _of_cluster(calls: FlinkCalls) -> dict[str, str]:
    try:
        configured = calls.configuration()
    except (Refused, Unanswered):  # who may not see it
        return {}
    return {
        key: value
        for key, value in configured.items()
        if key.startswith(_GIVEN) and key.removeprefix(_CHECKPOINTING) not in _OF_CLUSTER
    }


def _of_checkpoints(page: Json) -> Iterator[tuple[str, str]]:
    yield f"{_CHECKPOINTING}interval", f"{page['interval']} ms"
    if str(page.get("mode", "")).lower() == "at_least_once":
        yield f"{_CHECKPOINTING}mode", "AT_LEAST_ONCE"
    for field, key, usual in _TIMES:
        if page.get(field, usual) != usual:
            yield f"{_CHECKPOINTING}{key}", f"{page[field]} ms"
    for field, key, usual in _NUMBERS:
        if page.get(field, usual) != usual:
            yield f"{_CHECKPOINTING}{key}", str(page[field])
    kept = page.get("externalization") or {}
    if kept.get("enabled") is True and kept.get("delete_on_cancellation") is False:
        yield f"{_CHECKPOINTING}externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION"
    if page.get("unaligned_checkpoints") is True:
        yield f"{_CHECKPOINTING}unaligned.enabled", "true"
