"""Open a cluster of the spec: `open_cluster(spec, workdir) -> Cluster`, its options checked.

The kinds of ours are in `specification.options.CLUSTER_MODULES`; other packages add kinds by entry
points (see `kind`). A kind is imported when it is asked for. A cluster keeps its notes in
`<workdir>/clusters/<name>`, unless an option says where else.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from stateshift import extensions
from stateshift.clusters.detached import file_name
from stateshift.clusters.kind import ClusterKind, Contacts, Submit, Surroundings
from stateshift.clusters.options import Options, read_options
from stateshift.clusters.protocol import Cluster
from stateshift.errors import Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import CLUSTER_MODULES
from stateshift.suggestion import BRACKETED, did_you_mean


def kind_names() -> tuple[str, ...]:
    """Return the kinds that a spec may name: stateshift's own first."""
    added = extensions.names_added(extensions.CLUSTERS)
    return (*CLUSTER_MODULES, *(name for name in added if name not in CLUSTER_MODULES))


def kind_of(spec: ClusterSpec) -> ClusterKind:
    """Return the kind of a cluster.

    Raises:
        SpecError: nobody knows the kind.
        PlanError: another package adds it, and cannot be loaded.
    """
    if spec.kind in CLUSTER_MODULES:
        kind: ClusterKind = import_module(CLUSTER_MODULES[spec.kind]).KIND
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


def open_cluster(spec: ClusterSpec, workdir: str, contacts: Contacts | None = None) -> Cluster:
    """Open a cluster of the spec."""
    options = check_cluster(spec)
    notes = options.get("state_dir") or Path(workdir) / "clusters" / file_name(spec.name)
    contacts = contacts or Contacts()
    surroundings = Surroundings(
        workdir=Path(workdir), state_dir=Path(notes).absolute(), **vars(contacts)
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
