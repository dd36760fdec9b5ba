"""The driver of a `spark-submit`: where it runs, and what is known of one that runs in the cluster.

    client   the process that we start is the driver
    cluster  the driver runs in the cluster. Our process is its launcher, which waits until the
             application is over, or ends as soon as it is accepted (waitAppCompletion)

    <state_dir>/<tag>.deployed          {"master": "yarn", "waits": true}: of a driver in the
                                        cluster
    <state_dir>/<tag>.ended             put there by a person, who has seen that the application is
                                        over
    <state_dir>/<location>.source.json  {"job", "location", "workdir", "pids"}: processes, or the
                                        pod, of a job that we did not submit, written before they
                                        are stopped.
                                        They count for the run of this workdir alone: after it
                                        anybody may have started the job again

A launcher that is gone says little. Exit code 0 of one that waits means that the application is
over, and so does the exception that Spark's YARN client ends with (apache/spark,
deploy/yarn/Client.run). Anything else is not known: the connection to the cluster may have been
lost, and the application runs on.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Final, Literal

from stateshift.clusters.detached import Trace, file_name
from stateshift.clusters.http import is_local
from stateshift.clusters.noted import identity_settings
from stateshift.clusters.options import Options, settings
from stateshift.clusters.protocol import JobState, JobStatus, StopRequest, Submission
from stateshift.clusters.whole_files import read_object, write_object
from stateshift.errors import Complaint, SpecError

_CONNECT_SECONDS: Final = 5.0
DeployMode = Literal["client", "cluster"]

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
# The application's id in a command that ends it, if the launcher has said none.
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
    """A driver in the cluster: its master, and whether its launcher waits until it is over."""

    master: str
    waits: bool

    @property
    def kind(self) -> str:
        return _kind(self.master)

    def accepted_as(self, log: str) -> str | None:
        """Return the cluster's id of the application, as far as the launcher has said it."""
        pattern = _ACCEPTED.get(self.kind)
        if pattern is None:
            return None
        ids = [match[pattern.groups] for match in pattern.finditer(log)]
        return ids[-1] if ids else None

    def to_kill(self, log: str) -> str:
        id = self.accepted_as(log) or _PLACEHOLDERS.get(self.kind, "<driver id>")
        if self.kind == "yarn":
            return f"yarn application -kill {id}"
        return f"spark-submit --master {quote(self.master)} --kill {id}"


@dataclass(frozen=True, slots=True)
class DriverNotes:
    """The notes of drivers, beside the files of their processes."""

    state_dir: Path
    workdir: str

    def deployed(self, tag: str | None) -> Deployed | None:
        noted = read_object(self._of_tag(tag, "deployed")) if tag is not None else None
        if noted is None:
            return None
        return Deployed(str(noted.get("master")), bool(noted.get("waits")))

    def submitting(self, submission: Submission, driver: Deployed | None) -> None:
        """Note a submission before its process is there, for whoever looks for the tag later."""
        self.ended_path(submission.tag).unlink(missing_ok=True)
        self._of_source(submission.location).unlink(missing_ok=True)
        path = self._of_tag(submission.tag, "deployed")
        if driver is None:
            path.unlink(missing_ok=True)
        else:
            write_object(path, asdict(driver))

    def ended_path(self, tag: str) -> Path:
        return self._of_tag(tag, "ended").absolute()

    def stopping(self, request: StopRequest, pids: Sequence[int | str]) -> None:
        """Note processes, or a pod, before they are gone: a repeated stop would know nothing."""
        if pids:
            plain = {**self._stopped_by(request), "pids": list(pids)}
            write_object(self._of_source(request.location), plain)

    def stopped(self, request: StopRequest) -> tuple[str, ...]:
        plain = read_object(self._of_source(request.location)) or {}
        noted = {name: plain.get(name) for name in ("job", "location", "workdir")}
        return tuple(map(str, plain["pids"])) if noted == self._stopped_by(request) else ()

    def _stopped_by(self, request: StopRequest) -> dict[str, object]:
        return {"job": request.job, "location": request.location, "workdir": self.workdir}

    def _of_tag(self, tag: str, suffix: str) -> Path:
        return self.state_dir / f"{file_name(tag)}.{suffix}"

    def _of_source(self, location: str) -> Path:
        return self.state_dir / f"{file_name(location.rstrip('/'))}.source.json"


def deploy_mode(cluster: Options, given: Options, usual: DeployMode = "client") -> DeployMode:
    """Return the submission's mode, else the cluster's; an option goes before Spark's setting."""
    for options in (given, cluster):
        mode = options.get("deploy_mode") or settings(options.get("conf")).get(_IN_CONF)
        if mode is not None:
            return "cluster" if mode == "cluster" else "client"
    return usual


def driver_in_cluster(master: str, conf: Mapping[str, str]) -> Deployed:
    """Return the driver that a master and settings make of a submission in cluster mode."""
    key, usual = _WAITING.get(_kind(master), ("", False))
    return Deployed(master, conf.get(key, str(usual).lower()) == "true")


def identity_in_conf(
    master: str, submission: Submission, conf: Mapping[str, str]
) -> dict[str, str]:
    """Return the identity of a driver in the cluster, which gets no variables of ours."""
    identity = identity_settings(submission)
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
    """Return the status of a driver in the cluster, once its launcher was started."""
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
    return master.partition(":")[0]


def silent_master(master: str) -> str | None:
    """Return the reason why a standalone master takes no submission; None where it answers."""
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
