"""A master of Spark: checks of it and of locations before anything is started, and the meaning of
its jobs' failures. Pure but for the one connection that is tried.

    master                              kind         its executors are
    local, local[N], local[*]           local        processes of this machine
    spark://host:port[,host:port…]      standalone   elsewhere
    yarn                                yarn         elsewhere
    k8s://https://host:port             kubernetes   elsewhere

Our orders never fail as a task: an error of the work itself is in the answer. Spark's reports are
about executors and their Python; most of them pass when the order is given again, the rest is
recognised here.
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

_VERSIONS = re.compile(
    r"Python in worker has different version:? *(?P<there>[\d.]*\d) than that in driver:? *"
    r"(?P<here>[\d.]*\d)"
)
_NO_PROGRAM = re.compile(r'Cannot run program "(?P<program>[^"]+)"')
_NO_PYSPARK = re.compile(r"No module named '?(?P<module>pyspark[\w.]*)")
_ENDED = re.compile(
    r"SparkContext was shut down|stopped SparkContext|Master removed our application|"
    r"All masters are unresponsive|Job aborted .*application",
    re.IGNORECASE,
)
_REASONS = (
    re.compile(
        r"ExecutorLostFailure \(.*?\) Reason: (?P<reason>[^\n]+?)(?: Driver stacktrace.*)?$",
        re.MULTILINE,
    ),
    re.compile(r"(?P<reason>Python worker exited unexpectedly[^\n]*)"),
    re.compile(r"Lost task [^\n:]*: (?P<reason>[^\n]+)"),
)
_LONGEST = 160


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
    fact = f"{master!r} is no master of a Spark"
    complaint = Complaint("--fleet", fact, None, EXPECTED)
    raise SpecError((complaint,), hint=hint)


def check_places(master: str, places: Iterable[str]) -> Iterator[str]:
    """Refuse locations that no executor can ever reach; yield the warnings of the others."""
    normal = sorted({locations.normal(place) for place in places})
    for place in normal:
        if locations.scheme(place) == "memory":
            fact = f"{place} is in the memory of this process, and no executor can reach it"
            hint = "leave out --fleet, or use a storage that the executors can reach"
            raise PlanError(fact, hint=hint)
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


def hopeless(message: str, master: str) -> ClusterError | None:
    """Return the error if giving the order again cannot help."""
    versions = _VERSIONS.search(message)
    if versions is not None:
        return ClusterError(
            f"the executors run Python {versions['there']}, and the driver Python "
            f"{versions['here']}",
            cluster=master,
            hint="name a Python that both have: PYSPARK_PYTHON=/path/to/python3 (the path on "
            "the executors), or start stateshift with the executors' version",
        )
    program = _NO_PROGRAM.search(message)
    if program is not None:
        fact = f"the executors have no Python at {program['program']}"
        hint = "name the one they have: PYSPARK_PYTHON=/path/to/python3"
        return ClusterError(fact, cluster=master, hint=hint)
    module = _NO_PYSPARK.search(message)
    if module is not None:
        return ClusterError(
            "the executors' Python does not find Spark's own package "
            f"{module['module'].partition('.')[0]!r}",
            cluster=master,
            hint="their SPARK_HOME has to hold python/lib, or their Python pyspark of the "
            "cluster's version",
        )
    if _ENDED.search(message):
        return end_error(master, reason_of(message))
    return None


def end_error(master: str, reason: str) -> ClusterError:
    """Return the error for an application of the fleet that ended before its orders were done."""
    fact = f"the fleet's application on {master} has ended: {reason}"
    hint = "see why at the master, then go on with or without it: stateshift resume WORKDIR"
    return ClusterError(fact, cluster=master, hint=hint)


def reason_of(message: str) -> str:
    """Return the cause in one line: the last line of a Java trace says least."""
    first_line = next(iter(message.strip().splitlines()), "no reason given")
    matches = (pattern.search(message) for pattern in _REASONS)
    reasons = (match["reason"] for match in matches if match is not None)
    reason = next(reasons, first_line).strip()
    return reason if len(reason) <= _LONGEST else reason[: _LONGEST - 1] + "…"
