"""What somebody asks `rebalance` for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stateshift.advise.evaluate.settings import Settings
from stateshift.errors import Complaint, SpecError
from stateshift.specification import RebalancedCluster, Rebalancing, Spec

if TYPE_CHECKING:
    from stateshift.migration import Adapters

# Reaches the outside while jobs are moved: a caller may watch, and stop, what is done meanwhile.
Acting = Callable[[], AbstractContextManager["Adapters"]]


@dataclass(frozen=True)
class RebalanceRequest:
    """A run of rebalance. `acting` makes the moves; None decides only. `folder` is where runs keep
    what they know, `history` where samples are kept if not there.
    """

    spec: Spec
    folder: str
    acting: Acting | None = None
    draining: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    sample_seconds: float = 60.0
    history: str | None = None

    @property
    def section(self) -> Rebalancing:
        """Return what the spec says of rebalancing."""
        assert self.spec.rebalance is not None, "checked by check_request"
        return self.spec.rebalance

    @property
    def clusters(self) -> tuple[RebalancedCluster, ...]:
        """Return the clusters that jobs may be moved between."""
        return clusters_of(self.spec)


def clusters_of(spec: Spec) -> tuple[RebalancedCluster, ...]:
    """Return the clusters between which a spec's jobs may be moved: all of its clusters, unless its
    section names some.
    """
    if spec.rebalance is not None and spec.rebalance.clusters:
        return spec.rebalance.clusters
    return tuple(RebalancedCluster(cluster.name) for cluster in spec.clusters)


def check_request(request: RebalanceRequest) -> None:
    """Refuse a spec without the section, and what does not fit it.

    Raises:
        SpecError: it says what is missing, or wrong.
    """
    if request.spec.rebalance is None:
        message = "'rebalance' is missing: between which clusters may its jobs move?"
        expected = "an object with 'clusters'"
        hint = "stateshift schema > spec.schema.json   # every key and its meaning"
        raise SpecError((Complaint("/rebalance", message, expected=expected),), hint=hint)
    names = [cluster.name for cluster in request.clusters]
    for name in request.draining:
        if name not in names:
            message = f"{name!r} is none of the clusters of the spec's 'rebalance'"
            hint = f"--drain takes one of: {', '.join(names)}"
            raise SpecError((Complaint("--drain", message),), hint=hint)
