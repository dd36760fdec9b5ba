"""Checks of a master and of locations, before anything is started. Pure but for the one connection
that is tried.

    master                              kind         its executors are
    local, local[N], local[*]           local        processes of this machine
    spark://host:port[,host:port…]      standalone   elsewhere
    yarn                                yarn         elsewhere
    k8s://https://host:port             kubernetes   elsewhere
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator

from stateshift.errors import ClusterError, Complaint, PlanError, SpecError
from stateshift.storage import locations

_MASTERS = (
    ("local", re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?")),
    ("standalone", re.compile(r"spark://[^/\s,]+:\d+(,[^/\s,]+:\d+)*")),
    ("yarn", re.compile(r"yarn")),
    ("kubernetes", re.compile(r"k8s://\S+")),
)
EXPECTED = "local[N], spark://host:port, yarn or k8s://https://host:port"
SECONDS_TO_CONNECT = 5.0


def kind_of(master: str) -> str:
    """Return the kind of a master.

    Raises:
        SpecError: it is none.
    """
    for kind, pattern in _MASTERS:
        if pattern.fullmatch(master):
            return kind
    hint = None
    if master.startswith("sc://"):
        hint = "Spark Connect takes no tasks of ours: name the cluster's own master"
    complaint = Complaint("--fleet", f"{master!r} is no master of a Spark", None, EXPECTED)
    raise SpecError((complaint,), hint=hint)


def check_places(master: str, places: Iterable[str]) -> Iterator[str]:
    """Refuse locations that no executor can ever reach; yield the warnings of the others."""
    normal = sorted({locations.normal(place) for place in places})
    for place in normal:
        if locations.scheme(place) == "memory":
            raise PlanError(
                f"{place} is in the memory of this process, and no executor can reach it",
                hint="leave out --fleet, or use a storage that the executors can reach",
            )
    local = [place for place in normal if locations.scheme(place) == "file"]
    if local and kind_of(master) != "local":
        more = f" (and {len(local) - 1} more)" if len(local) > 1 else ""
        yield (
            f"each executor must see the same disk at {local[0]}{more}: what they write is "
            "looked for from here"
        )


def refuse_unreachable(master: str) -> None:
    """Refuse a standalone master that is not there; Spark would wait a minute for it."""
    if kind_of(master) != "standalone":
        return
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_CONNECT).close()
            return
        except (OSError, OverflowError) as error:
            failures.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise ClusterError(
        f"no master answers at {master} ({'; '.join(failures)})",
        cluster=master,
        hint="start it (sbin/start-master.sh), or name another with --fleet; without --fleet "
        "everything is done here",
    )
