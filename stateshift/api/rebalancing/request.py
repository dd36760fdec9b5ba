"""A request for `rebalance`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stateshift.advise.evaluate.settings import Settings
from stateshift.errors import Complaint, SpecError
from stateshift.specification import RebalancedCluster, Rebalancing, Spec

if TYPE_CHECKING:
    from stateshift.migration import Adapters

_log = logging.getLogger(__name__)

# Reaches the outside while jobs are moved: a caller may watch, and stop, what is done meanwhile.
Acting = Callable[[], AbstractContextManager["Adapters"]]


@dataclass(frozen=True)
class RebalanceRequest:
    """A run of rebalance. `acting` makes the moves; None decides only. `folder` is where runs keep
    what they know, `history` where samples are kept if not there. Another run is waited for
    `wait_seconds`, and `say` says so. Clusters of `uncordoned` may get jobs again from now on.
    """

    spec: Spec
    folder: str
    acting: Acting | None = None
    draining: tuple[str, ...] = ()
    uncordoned: tuple[str, ...] = ()
    wait_seconds: float = 0.0
    say: Callable[[str], None] = _log.info
    settings: Settings = field(default_factory=Settings)
    sample_seconds: float = 60.0
    history: str | None = None

    @property
    def section(self) -> Rebalancing:
        """Return the spec's section on rebalancing."""
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
    for option, given in (("--drain", request.draining), ("--uncordon", request.uncordoned)):
        for name in given:
            if name not in names:
                message = f"{name!r} is none of the clusters of the spec's 'rebalance'"
                hint = f"{option} takes one of: {', '.join(names)}"
                raise SpecError((Complaint(option, message),), hint=hint)
    for name in request.uncordoned:
        if name in request.draining:
            message = f"{name!r} is to be drained, and a drain cordons it"
            raise SpecError((Complaint("--uncordon", message),), hint="leave one of the two out")
        if name in request.section.cordon:
            message = f"{name!r} is cordoned by the spec"
            hint = "take it out of 'cordon' in 'rebalance' of the spec"
            raise SpecError((Complaint("--uncordon", message),), hint=hint)
