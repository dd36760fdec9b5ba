"""A kind of cluster, as the rest of the program sees it: one value, `ClusterKind`.

The kinds that come with stateshift are `KIND` of each adapter. Another package adds its own by an
entry point of the group `stateshift.clusters` that names a `ClusterKind`:

    from stateshift.clusters.kind import ClusterKind, Surroundings
    from stateshift.clusters.options import NEEDED_TEXT

    KIND = ClusterKind("nomad", {"url": NEEDED_TEXT}, open_nomad)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stateshift.clusters.options import Expected, Options, read_options
from stateshift.clusters.protocol import Cluster
from stateshift.clusters.stopping import OpenStorage
from stateshift.specification.model import ClusterSpec

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
    """The things that a cluster is opened with, besides its options: the run's directory, and the
    cluster's own for its notes, which is made when it is first needed.
    """

    workdir: Path
    state_dir: Path


@dataclass(frozen=True, slots=True)
class Submit:
    """How a job is to be submitted, and where in the spec that stands. `connection` overrides where
    the cluster is reached.
    """

    options: Options
    pointer: str
    connection: str | None = None


def takes_anything(cluster: ClusterSpec, submit: Submit) -> None:
    """Accept whatever the spec says of a submission: a person or a command reads it."""


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """A kind of cluster. `open` takes a name, checked options and surroundings, and asks nothing.
    `check_submit` raises SpecError where the cluster would not understand a submission; it is
    called before anything moves.
    """

    name: str  # as a spec writes it: `"kind": "livy"`
    options: Mapping[str, Expected]  # of a cluster of this kind, each with its test
    open: Callable[[str, Options, Surroundings], Cluster]
    check_submit: Callable[[ClusterSpec, Submit], None] = takes_anything
    can_stop: Callable[[Options], bool] = lambda options: True  # with these options
    stops_unseen: bool = False  # can be asked to stop a job that it does not see


def submit_options(known: Mapping[str, Expected]) -> Callable[[ClusterSpec, Submit], None]:
    """Return a `check_submit` that accepts these options and no others."""

    def check(cluster: ClusterSpec, submit: Submit) -> None:
        read_options(submit.options, known, submit.pointer)

    return check
