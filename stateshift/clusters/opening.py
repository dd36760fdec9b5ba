"""Open a cluster of the spec: `open_cluster(spec, workdir) -> Cluster`, its options checked.

    manual             a person, at the terminal or through marker files
    command            any shell commands
    spark_submit       spark-submit on this machine, with any master URL
    livy               Apache Livy's REST API, batches
    spark_standalone   a standalone master's REST API: the driver runs on a worker
    flink_rest         Flink's REST API: sessions, and what runs in application clusters

Other packages add kinds by entry points (see `kind`). A kind is imported when it is asked for.

What a cluster has to remember is kept in `<workdir>/clusters/<name>`, unless an option says where
else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from stateshift import extensions
from stateshift.clusters.detached import file_name
from stateshift.clusters.kind import Ask, ClusterKind, Submit, Surroundings
from stateshift.clusters.options import Options, read_options
from stateshift.clusters.protocol import Cluster
from stateshift.clusters.stopping import OpenStorage
from stateshift.errors import Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.suggestion import BRACKETED, did_you_mean

BUILT_IN: Mapping[str, str] = {
    "manual": "stateshift.clusters.manual",
    "command": "stateshift.clusters.command",
    "spark_submit": "stateshift.clusters.spark_submit.cluster",
    "livy": "stateshift.clusters.livy.cluster",
    "spark_standalone": "stateshift.clusters.standalone.cluster",
    "flink_rest": "stateshift.clusters.flink.cluster",
}


def kind_names() -> tuple[str, ...]:
    """Return the kinds that a spec may name: stateshift's own first."""
    added = (name for name in extensions.names_added(extensions.CLUSTERS) if name not in BUILT_IN)
    return (*BUILT_IN, *added)


def kind_of(spec: ClusterSpec) -> ClusterKind:
    """Return the kind of a cluster.

    Raises:
        SpecError: nobody knows the kind.
        PlanError: another package adds it, and cannot be loaded.
    """
    if spec.kind in BUILT_IN:
        kind: ClusterKind = import_module(BUILT_IN[spec.kind]).KIND
        return kind
    names = kind_names()
    if spec.kind not in names:
        message = f"unknown kind {spec.kind!r}{did_you_mean(spec.kind, names, BRACKETED)}"
        pointer = f"/clusters/{_escaped(spec.name)}/kind"
        raise SpecError((Complaint(pointer, message, spec.kind, ", ".join(names)),))
    added = extensions.load(extensions.CLUSTERS, spec.kind)
    if not isinstance(added, ClusterKind):
        lacks = f"is no ClusterKind, but a {type(added).__name__}"
        raise extensions.refuse(extensions.CLUSTERS, spec.kind, lacks)
    return added


@dataclass(frozen=True, slots=True)
class Contacts:
    """Whom a cluster may turn to: the part of `kind.Surroundings` that is the caller's."""

    open_storage: OpenStorage | None = None
    ask: Ask | None = None
    say: Callable[[str], None] | None = None
    interrupt: threading.Event | None = None


def open_cluster(spec: ClusterSpec, workdir: str, contacts: Contacts | None = None) -> Cluster:
    """Open a cluster of the spec."""
    options = check_cluster(spec)
    contacts = contacts or Contacts()
    remembers = options.get("state_dir") or Path(workdir) / "clusters" / file_name(spec.name)
    surroundings = Surroundings(
        workdir=Path(workdir),
        state_dir=Path(remembers).absolute(),
        open_storage=contacts.open_storage,
        ask=contacts.ask,
        say=contacts.say,
        interrupt=contacts.interrupt,
    )
    return kind_of(spec).open(spec.name, options, surroundings)


def check_cluster(spec: ClusterSpec) -> Options:
    """Return the options, if the kind is known and knows them all. Opens nothing."""
    kind = kind_of(spec)
    return read_options(spec.options, kind.options, f"/clusters/{_escaped(spec.name)}")


def check_submit(
    cluster: ClusterSpec, options: Options, pointer: str, connection: str | None = None
) -> None:
    """Check whether this cluster would understand how a job is to be submitted: asked before
    anything moves. `connection` overrides where the cluster is reached.
    """
    kind_of(cluster).check_submit(cluster, Submit(options, pointer, connection))


def _escaped(name: str) -> str:
    """Escape a name for a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
