"""Open a cluster of the spec: `open_cluster(spec, workdir) -> Cluster`, its options checked.

    manual             a person, at the terminal or through marker files
    command            any shell commands
    spark_submit       spark-submit on this machine, with any master URL
    livy               Apache Livy's REST API, batches
    spark_standalone   a standalone master's REST API: the driver runs on a worker
    flink_rest         Flink's REST API: sessions, and what runs in application clusters

What a cluster has to remember is kept in `<workdir>/clusters/<name>`, unless an option says where
else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stateshift.clusters import command, manual
from stateshift.clusters.detached import file_name
from stateshift.clusters.flink import cluster as flink_rest
from stateshift.clusters.flink.submit import one_application, read_submit
from stateshift.clusters.jars import complaints_about
from stateshift.clusters.livy import cluster as livy
from stateshift.clusters.options import Expected, read_options
from stateshift.clusters.protocol import Cluster
from stateshift.clusters.spark_submit import cluster as spark_submit
from stateshift.clusters.standalone import cluster as standalone
from stateshift.clusters.stopping import OpenStorage
from stateshift.errors import Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.suggestion import BRACKETED, did_you_mean

KINDS: Mapping[str, Mapping[str, Expected]] = {
    "manual": manual.CLUSTER_OPTIONS,
    "command": command.CLUSTER_OPTIONS,
    "spark_submit": spark_submit.CLUSTER_OPTIONS,
    "livy": livy.CLUSTER_OPTIONS,
    "spark_standalone": standalone.CLUSTER_OPTIONS,
    "flink_rest": flink_rest.CLUSTER_OPTIONS,
}
_SUBMITTING: Mapping[str, Mapping[str, Expected]] = {
    "spark_submit": spark_submit.SUBMIT_OPTIONS,
    "livy": livy.SUBMIT_OPTIONS,
    "spark_standalone": standalone.SUBMIT_OPTIONS,
}


def open_cluster(
    spec: ClusterSpec,
    workdir: str,
    *,
    open_storage: OpenStorage | None = None,
    ask: manual.Ask | None = None,
    say: Callable[[str], None] | None = None,
    interrupt: threading.Event | None = None,
) -> Cluster:
    """`open_storage` reaches the stop marker of a job whose image is not on a local path; `ask` and
    `say` talk to the person behind a manual cluster; `interrupt` cuts every wait short.
    """
    options = check_cluster(spec)
    state_dir = Path(
        options.get("state_dir") or Path(workdir) / "clusters" / file_name(spec.name)
    ).absolute()
    match spec.kind:
        case "manual":
            marker_dir = Path(options.get("marker_dir") or state_dir)
            seconds_max = float(options.get("seconds_max", 3600.0))
            return manual.Manual(
                spec.name, marker_dir, options.get("version"), seconds_max, ask, say, interrupt
            )
        case "command":
            return command.Command(
                spec.name, state_dir, str(Path(workdir).absolute()), options, interrupt
            )
        case "spark_submit":
            return spark_submit.SparkSubmit(spec.name, state_dir, options, open_storage, interrupt)
        case "livy":
            return livy.Livy(spec.name, state_dir, options, open_storage, interrupt)
        case "spark_standalone":
            return standalone.Standalone(spec.name, state_dir, options, open_storage, interrupt)
        case "flink_rest":
            return flink_rest.FlinkRest(spec.name, state_dir, options, interrupt)
    raise AssertionError(f"kind {spec.kind!r} has options and nothing that opens it")


def check_cluster(spec: ClusterSpec) -> dict[str, Any]:
    """The options, if the kind is known and knows them all. Opens nothing."""
    pointer = f"/clusters/{_escaped(spec.name)}"
    if spec.kind not in KINDS:
        message = f"unknown kind {spec.kind!r}{did_you_mean(spec.kind, KINDS, BRACKETED)}"
        raise SpecError((Complaint(f"{pointer}/kind", message, spec.kind, ", ".join(KINDS)),))
    return read_options(spec.options, KINDS[spec.kind], pointer)


def check_submit(
    cluster: ClusterSpec, options: Mapping[str, Any], pointer: str, connection: str | None = None
) -> None:
    """Whether this cluster would understand how a job is to be submitted: asked before anything
    moves. Commands and people get whatever the spec says. `connection` overrides where the cluster
    is reached.
    """
    if cluster.kind == "flink_rest" and cluster.options.get("application"):
        way_out = "a session cluster; or nothing here, and it is started by hand"
        raise SpecError((Complaint(pointer, one_application(cluster.name), None, way_out),))
    if cluster.kind == "flink_rest":
        given = read_submit(options, pointer, cluster.options)
        jar = given.get("jar")
        complaints = (
            tuple(complaints_about(Path(str(jar)), given.get("entry_class"), pointer))
            if jar
            else ()
        )
        if complaints:
            raise SpecError(complaints)
    elif cluster.kind in _SUBMITTING:
        read_options(options, _SUBMITTING[cluster.kind], pointer)
    if cluster.kind == "spark_submit":
        spark_submit.refuse_missing(options, pointer)
        spark_submit.refuse_impossible(cluster.options, options, pointer, connection)


def _escaped(name: str) -> str:
    """RFC 6901."""
    return name.replace("~", "~0").replace("/", "~1")
