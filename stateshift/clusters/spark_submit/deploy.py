"""Where the driver of a `spark-submit` runs, and what the files of its launcher tell of it. Pure,
but for one record.

    client   the process that we start is the driver
    cluster  the driver runs in the cluster. Our process is its launcher, which waits until the
             application is over,
             or ends as soon as it is accepted (waitAppCompletion)

    <stem>.deployed   {"master": "yarn", "waits": true}: of a driver in the cluster
    <stem>.ended      put there by a person, who has seen that the application is over

A launcher that is gone says little. Exit code 0 of one that waits means that the application is
over, and so does the exception that Spark's YARN client ends with (apache/spark,
deploy/yarn/Client.run). Anything else is not known: the connection to the cluster may have been
lost, and the application runs on.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from stateshift.clusters.detached import Trace
from stateshift.clusters.noted import handed_over
from stateshift.clusters.options import Expected, Options, settings
from stateshift.clusters.protocol import JobState, JobStatus, Submission
from stateshift.clusters.whole_files import write_whole
from stateshift.errors import Complaint, SpecError

_CONNECT_SECONDS: Final = 5.0
DeployMode = Literal["client", "cluster"]

DEPLOY_MODE: Final = Expected("client or cluster", lambda value: value in ("client", "cluster"))
_IN_CONF: Final = "spark.submit.deployMode"
# Whether the launcher waits for the end of the application, and what is so where nothing is said.
_WAITING: Final = {
    "yarn": ("spark.yarn.submit.waitAppCompletion", True),
    "k8s": ("spark.kubernetes.submission.waitAppCompletion", True),
    "spark": ("spark.standalone.submit.waitAppCompletion", False),
}
_ACCEPTED: Final = {
    "yarn": re.compile(r"\bapplication_\d+_\d+\b"),
    "k8s": re.compile(r"pod name: (\S+)"),
    "spark": re.compile(r"\bdriver-\d{14}-\d+\b"),
}
# What stands for an application's id in a command that ends it, if the launcher has said none.
_PLACEHOLDERS: Final = {
    "yarn": "<the id that `yarn application -list` shows>",
    "k8s": "<namespace>:<driver pod>",
}
_OVER: Final = re.compile(
    r"Application \S+ finished with (?:failed|killed) status|final status: "
    r"(?:FAILED|KILLED)|phase: Failed"
)


@dataclass(frozen=True, slots=True)
class Deployed:
    """A driver that runs in the cluster: its master, and whether its launcher waits until it is
    over.
    """

    master: str
    waits: bool

    @property
    def kind(self) -> str:
        return _kind(self.master)

    def write(self, path: Path) -> None:
        plain = {"master": self.master, "waits": self.waits}
        write_whole(path, json.dumps(plain, sort_keys=True).encode())

    @staticmethod
    def read(path: Path) -> Deployed | None:
        """Return what was deployed under this stem; None if the driver runs here."""
        try:
            plain = json.loads(path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        if not isinstance(plain, dict):
            return None
        return Deployed(str(plain.get("master")), bool(plain.get("waits")))

    def accepted_as(self, log: str) -> str | None:
        """Return the id that the cluster gave the application, as far as the launcher has said
        it.
        """
        pattern = _ACCEPTED.get(self.kind)
        if pattern is None:
            return None
        ids = [match[pattern.groups] for match in pattern.finditer(log)]
        return ids[-1] if ids else None

    def to_kill(self, log: str) -> str:
        """Return the command that ends the application."""
        id = self.accepted_as(log) or _PLACEHOLDERS.get(self.kind, "<driver id>")
        if self.kind == "yarn":
            return f"yarn application -kill {id}"
        return f"spark-submit --master {quote(self.master)} --kill {id}"


def is_local(master: str) -> bool:
    """Whether everything of a job runs on this machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def deploy_mode(cluster: Options, given: Options) -> DeployMode:
    """Return the submission's mode, else the cluster's; an option goes before the same in Spark's
    words.
    """
    for options in (given, cluster):
        mode = options.get("deploy_mode") or settings(options.get("conf")).get(_IN_CONF)
        if mode is not None:
            return "cluster" if mode == "cluster" else "client"
    return "client"


def deployed(master: str, conf: Mapping[str, str]) -> Deployed:
    """Return what becomes of a driver that is handed to the cluster."""
    key, usual = _WAITING.get(_kind(master), ("", False))
    return Deployed(master, conf.get(key, str(usual).lower()) == "true")


def identity_in_conf(
    master: str, submission: Submission, conf: Mapping[str, str]
) -> dict[str, str]:
    """Return what a driver in the cluster gets to know of itself by Spark's settings: no variable
    of ours reaches it.
    """
    identity = handed_over(submission)
    if _kind(master) == "yarn" and "spark.yarn.tags" not in conf:
        identity["spark.yarn.tags"] = submission.tag
    return identity


def refuse_impossible(mode: DeployMode, master: str, application: str, pointer: str) -> None:
    """Refuse what spark-submit would refuse, once the old job has been stopped."""
    if mode == "client":
        return
    if is_local(master):
        fact = f"there is no cluster mode with master {master}"
        way_out = "client, or another master"
    elif _kind(master) == "spark" and application.endswith(".py"):
        fact = f"spark-submit hands no Python file to {master} in cluster mode"
        way_out = "client; or a cluster of kind spark_standalone, which does"
    else:
        return
    raise SpecError((Complaint(f"{pointer}/deploy_mode", fact, "cluster", way_out),))


def status_of(driver: Deployed, trace: Trace, log: str, ended: bool) -> JobStatus:
    """Return what is known of a driver in the cluster, once its launcher was started."""
    pid, id = str(trace.pid), driver.accepted_as(log)
    name = "" if id is None else f" as {id}"
    if ended:
        return JobStatus(JobState.FINISHED, pid, "a person has seen that it is over")
    if trace.held:
        return JobStatus(JobState.RUNNING, pid, f"in cluster mode{name}")
    match trace.code:
        case 0 if driver.waits:
            return JobStatus(JobState.FINISHED, pid)
        case 0:
            why = f"the cluster has accepted it{name}, and spark-submit did not wait"
        case None:
            why = f"spark-submit was killed, and the job may run in the cluster{name}"
        case code if id is None or _OVER.search(log):
            return JobStatus(JobState.FAILED, pid, f"exit code {code}")
        case code:
            why = (
                f"spark-submit ended with exit code {code}, and the job may run in the "
                f"cluster{name}"
            )
    return JobStatus(JobState.UNKNOWN, pid, why)


def _kind(master: str) -> str:
    """Return yarn, k8s or spark."""
    return master.partition(":")[0]


def silent_master(master: str) -> str | None:
    """Return why nothing can be submitted to a standalone master; None where one of its addresses
    takes connections, or where it is none.
    """
    if not master.startswith("spark://"):
        return None
    facts = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port or 7077)), _CONNECT_SECONDS):
                return None
        except (OSError, ValueError) as error:
            facts.append(f"{address}: {error}")
    return f"no master answers at {'; '.join(facts)}"
