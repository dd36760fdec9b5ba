"""How many bytes a move of a job has to bring, as far as that is told before it is planned."""

from __future__ import annotations

from collections.abc import Callable

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.opening import check_cluster
from stateshift.errors import StateshiftError
from stateshift.specification.model import ClusterSpec
from stateshift.storage.protocol import Storage


def size_on_flink(cluster: ClusterSpec, job_id: str) -> int:
    """Return the bytes of a job's last checkpoint; 0 where Flink does not tell."""
    url = str(cluster.options.get("url"))
    try:
        return FlinkCalls(cluster.name, url, check_cluster(cluster)).state_size(job_id) or 0
    except StateshiftError:
        return 0


def size_of_checkpoint(open_storage: Callable[[str], Storage], location: str) -> int:
    """Return the bytes of all files of a checkpoint of Spark; 0 where they cannot be listed."""
    try:
        return sum(file.size for file in open_storage(location).list())
    except StateshiftError:
        return 0
