"""Errors for Spark jobs that ended without an answer, by the message of the failure. Pure.

Our orders never fail as a task: an error of the work itself is in the answer. Spark's reports are
about executors and their Python; most of them pass when the order is given again, the rest is
recognised here.
"""

from __future__ import annotations

import re

from stateshift.errors import ClusterError

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
        return ClusterError(
            f"the executors have no Python at {program['program']}",
            cluster=master,
            hint="name the one they have: PYSPARK_PYTHON=/path/to/python3",
        )
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
    return ClusterError(
        f"the fleet's application on {master} has ended: {reason}",
        cluster=master,
        hint="see why at the master, then go on with or without it: stateshift resume WORKDIR",
    )


def reason_of(message: str) -> str:
    """Return the cause in one line: the last line of a Java trace says least."""
    first_line = next(iter(message.strip().splitlines()), "no reason given")
    matches = (pattern.search(message) for pattern in _REASONS)
    reasons = (match["reason"] for match in matches if match is not None)
    reason = next(reasons, first_line).strip()
    return reason if len(reason) <= _LONGEST else reason[: _LONGEST - 1] + "…"
