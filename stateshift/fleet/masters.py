"""What can be said of a master and of the locations before anything is started. Pure but for the
one connection that is tried.

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
    """What kind of master this is; anything else is refused."""
    found = next((kind for kind, pattern in _MASTERS if pattern.fullmatch(master)), None)
    if found is None:
        connect = master.startswith("sc://")
        hint = (
            "Spark Connect takes no tasks of ours: name the cluster's own master"
            if connect
            else None
        )
        raise SpecError(
            (Complaint("--fleet", f"{master!r} is no master of a Spark", None, EXPECTED),),
            hint=hint,
        )
    return found


def check_places(master: str, places: Iterable[str]) -> Iterator[str]:
    """Refuse locations that no executor can ever reach; what has to be said of the others."""
    normal = sorted({locations.normal(place) for place in places})
    for place in normal:
        if locations.scheme(place) == "memory":
            raise PlanError(
                f"{place} is in the memory of this process, and no executor can reach it",
                hint="leave out --fleet, or use a storage that the executors can reach",
            )
    if kind_of(master) != "local":
        local = [place for place in normal if locations.scheme(place) == "file"]
        if local:
            more = f" (and {len(local) - 1} more)" if len(local) > 1 else ""
            yield (
                f"each executor must see the same disk at {local[0]}{more}: what they write is "
                "looked for from here"
            )


def refuse_unreachable(master: str) -> None:
    """Spark waits a minute for a standalone master that is not there; we ask first."""
    if kind_of(master) != "standalone":
        return
    tried = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_CONNECT).close()
            return
        except (OSError, OverflowError) as error:
            tried.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    raise ClusterError(
        f"no master answers at {master} ({'; '.join(tried)})",
        cluster=master,
        hint=(
            "start it (sbin/start-master.sh), or name another with --fleet; without --fleet "
            "everything is done here"
        ),
    )
