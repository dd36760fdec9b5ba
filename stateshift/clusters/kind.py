"""A kind of cluster, as the rest of the program sees it: one value, `ClusterKind`; and a cluster of
the spec opened: `open_cluster(spec, workdir) -> Cluster`, its options checked.

The kinds that come with stateshift are `KIND` of each adapter, by
`specification.options.CLUSTER_MODULES`, and are imported when they are asked for. Another package
adds its own by an entry point of the group `stateshift.clusters` that names a `ClusterKind`:

    from stateshift.clusters.kind import ClusterKind, Surroundings
    from stateshift.clusters.options import NEEDED_TEXT

    KIND = ClusterKind("nomad", {"url": NEEDED_TEXT}, open_nomad)

A cluster keeps its notes in `<workdir>/clusters/<name>`, unless an option says where else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from stateshift import extensions
from stateshift.clusters.detached import file_name
from stateshift.clusters.options import Expected, Options, read_options
from stateshift.clusters.protocol import Cluster
from stateshift.clusters.stopping import OpenStorage
from stateshift.errors import Complaint, SpecError
from stateshift.specification.model import ClusterSpec
from stateshift.specification.options import CLUSTER_MODULES
from stateshift.suggestion import BRACKETED, did_you_mean

Ask = Callable[[str], str]


@dataclass(frozen=True)
class Contacts:
    """The caller's part of the surroundings: the contacts that a cluster may turn to."""

    # reaches the stop marker of a job whose image is not on a local path
    open_storage: OpenStorage | None = None
    ask: Ask | None = None  # the person at the terminal; None where there is none
    say: Callable[[str], None] | None = None
    interrupt: threading.Event | None = None  # when it is set, every wait ends


@dataclass(frozen=True, kw_only=True)
class Surroundings(Contacts):
    """The run's directory and one for the cluster's notes, made when it is needed."""

    workdir: Path
    state_dir: Path


@dataclass(frozen=True, slots=True)
class Submit:
    """A job's submission and its place in the spec; `connection` overrides the cluster's."""

    options: Options
    pointer: str
    connection: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """A kind of cluster. `open` takes a name, checked options and surroundings, and asks nothing.
    `check_submit` raises SpecError where the cluster would not understand a submission; it is
    called before anything moves.
    """

    name: str  # as a spec writes it: `"kind": "livy"`
    options: Mapping[str, Expected]  # of a cluster of this kind, each with its test
    open: Callable[[str, Options, Surroundings], Cluster]
    check_submit: Callable[[ClusterSpec, Submit], None] = lambda cluster, submit: None
    can_stop: Callable[[Options], bool] = lambda options: True  # with these options
    stops_unseen: bool = False  # can be asked to stop a job that it does not see


def submit_options(known: Mapping[str, Expected]) -> Callable[[ClusterSpec, Submit], None]:
    """Return a `check_submit` that accepts these options and no others."""

    def check(cluster: ClusterSpec, submit: Submit) -> None:
        read_options(submit.options, known, submit.pointer)

    return check


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
    """Check a job's submission before anything moves; `connection` overrides the cluster's."""
    kind_of(cluster).check_submit(cluster, Submit(options, pointer, connection))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
