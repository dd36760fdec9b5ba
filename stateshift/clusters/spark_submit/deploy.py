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
        """What was deployed under this stem; None of a driver that runs here."""
        try:
            plain = json.loads(path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return (
            Deployed(str(plain.get("master")), bool(plain.get("waits")))
            if isinstance(plain, dict)
            else None
        )

    def accepted_as(self, log: str) -> str | None:
        """The id that the cluster gave the application, as far as the launcher has said it."""
        pattern = _ACCEPTED.get(self.kind)
        found = list(pattern.finditer(log)) if pattern is not None else []
        return found[-1][pattern.groups if pattern is not None else 0] if found else None

    def to_kill(self, log: str) -> str:
        """The command that ends the application."""
        id = self.accepted_as(log)
        if self.kind == "yarn":
            return f"yarn application -kill {id or '<the id that `yarn application -list` shows>'}"
        known = id or ("<namespace>:<driver pod>" if self.kind == "k8s" else "<driver id>")
        return f"spark-submit --master {quote(self.master)} --kill {known}"


def is_local(master: str) -> bool:
    """Whether everything of a job runs on this machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def deploy_mode(cluster: Options, given: Options) -> DeployMode:
    """What the submission says, else what the cluster says; an option goes before the same in
    Spark's words.
    """
    for options in (given, cluster):
        said = options.get("deploy_mode") or settings(options.get("conf")).get(_IN_CONF)
        if said is not None:
            return "cluster" if said == "cluster" else "client"
    return "client"


def deployed(master: str, conf: Mapping[str, str]) -> Deployed:
    """What becomes of a driver that is handed to the cluster."""
    key, usual = _WAITING.get(_kind(master), ("", False))
    return Deployed(master, conf.get(key, str(usual).lower()) == "true")


def told_in_conf(master: str, submission: Submission, conf: Mapping[str, str]) -> dict[str, str]:
    """What a driver in the cluster is told by Spark's settings: no variable of ours reaches it."""
    told = handed_over(submission)
    if _kind(master) == "yarn" and "spark.yarn.tags" not in conf:
        told["spark.yarn.tags"] = submission.tag
    return told


def refuse_impossible(mode: DeployMode, master: str, application: str, pointer: str) -> None:
    """What spark-submit would refuse, once the old job has been stopped."""
    if mode == "client":
        return
    if is_local(master):
        fact, way_out = (
            f"there is no cluster mode with master {master}",
            "client, or another master",
        )
    elif _kind(master) == "spark" and application.endswith(".py"):
        fact = f"spark-submit hands no Python file to {master} in cluster mode"
        way_out = "client; or a cluster of kind spark_standalone, which does"
    else:
        return
    raise SpecError((Complaint(f"{pointer}/deploy_mode", fact, "cluster", way_out),))


def status_of(driver: Deployed, trace: Trace, log: str, ended: bool) -> JobStatus:
    """What is known of a driver in the cluster, once its launcher was started."""
    pid, id = str(trace.pid), driver.accepted_as(log)
    name = f" as {id}" if id is not None else ""
    if ended:
        return JobStatus(JobState.FINISHED, pid, "a person has seen that it is over")
    if trace.held:
        return JobStatus(JobState.RUNNING, pid, f"in cluster mode{name}")
    if trace.code == 0 and driver.waits:
        return JobStatus(JobState.FINISHED, pid)
    if trace.code == 0:
        return JobStatus(
            JobState.UNKNOWN,
            pid,
            f"the cluster has accepted it{name}, and spark-submit did not wait",
        )
    if trace.code is not None and (_OVER.search(log) or id is None):
        return JobStatus(JobState.FAILED, pid, f"exit code {trace.code}")
    how = "was killed" if trace.code is None else f"ended with exit code {trace.code}"
    return JobStatus(
        JobState.UNKNOWN, pid, f"spark-submit {how}, and the job may run in the cluster{name}"
    )


def _kind(master: str) -> str:
    """yarn, k8s or spark."""
    return master.partition(":")[0]
