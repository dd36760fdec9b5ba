"""A scripted controller: it does with FlinkDeployments and FlinkSessionJobs what the documentation
of flink-kubernetes-operator 1.12 says that the operator does, as far as jobs are suspended and
started. It is not the operator: tests with it show that we speak the API and survive faults, not
that the operator behaves as documented.

    status = reconciled(plain, flink)   the status to write; `flink` runs the jobs
"""

from __future__ import annotations

import copy
import json
from typing import Any, Protocol

LAST_STATE = "KUBERNETES_OPERATOR_LAST_STATE"


class RunsJobs(Protocol):
    def start(self, plain: dict[str, Any], savepoint: str | None) -> str: ...

    def stop_with_savepoint(self, id: str, plain: dict[str, Any]) -> str | None:
        """The savepoint; none while it is under way."""
        ...

    def cancel(self, id: str) -> None: ...

    def state(self, id: str) -> str: ...


class Failed(Exception):
    """Why a job was not started, or not stopped."""


def reconciled(plain: dict[str, Any], flink: RunsJobs) -> dict[str, Any]:
    """The status of a resource after one round of the controller."""
    status = copy.deepcopy(plain.get("status") or {})
    job = status.setdefault("jobStatus", {})
    known = status.get("reconciliationStatus", {}).get("lastReconciledSpec")
    last = json.loads(known) if known else None
    if job.get("jobId") and last is not None and last["job"]["state"] == "running":
        job["state"] = flink.state(job["jobId"])
    generation = plain["metadata"]["generation"]
    if last is not None and last["resource_metadata"]["metadata"]["generation"] == generation:
        return _with_lifecycle(status, last)
    wanted = {"state": "running", "upgradeMode": "stateless", **plain["spec"]["job"]}
    before = {} if last is None else last["job"]
    try:
        mode = _moved_on(plain, job, wanted, before, flink)
    except Failed as failed:
        message = {"type": "ReconciliationException", "message": str(failed)}
        status["error"] = json.dumps(message)
        status["lifecycleState"] = "FAILED" if last is None else "UPGRADING"
        return status
    if mode is None:
        status["lifecycleState"] = "UPGRADING"
        return status
    metadata = {"apiVersion": plain["apiVersion"], "metadata": {"generation": generation}}
    last = {**plain["spec"], "job": {**wanted, "upgradeMode": mode}, "resource_metadata": metadata}
    status["reconciliationStatus"] = {"state": "DEPLOYED", "lastReconciledSpec": json.dumps(last)}
    status["observedGeneration"] = generation
    status.pop("error", None)
    return _with_lifecycle(status, last)


def _moved_on(
    plain: dict[str, Any],
    job: dict[str, Any],
    wanted: dict[str, Any],
    before: dict[str, Any],
    flink: RunsJobs,
) -> str | None:
    """The upgrade mode that a resource has come to its spec with; none if it has not yet."""
    mode, was, will = wanted["upgradeMode"], before.get("state"), wanted["state"]
    is_another = wanted.get("savepointRedeployNonce") != before.get("savepointRedeployNonce")
    if will == "suspended":
        if was is None:
            raise Failed("Job must start in running state")
        if was == "running" and not _suspended(plain, job, mode, flink):
            return None
        return str(mode)
    if was is None or is_another:
        if was == "running" and job["state"] not in ("FAILED", "FINISHED", "CANCELED"):
            flink.cancel(job["jobId"])
        _start(plain, job, wanted.get("initialSavepointPath"), flink)
        return str(mode)
    if was == "running":
        if {**wanted, "upgradeMode": ""} == {**before, "upgradeMode": ""}:
            return str(mode)  # nothing that the operator would upgrade for
        if not _suspended(plain, job, mode, flink):
            return None
    inherited = mode if mode == "stateless" or was == "running" else before["upgradeMode"]
    _start(plain, job, None if inherited == "stateless" else job["upgradeSavepointPath"], flink)
    return str(mode)


def _suspended(plain: dict[str, Any], job: dict[str, Any], mode: str, flink: RunsJobs) -> bool:
    is_over = job["state"] in ("FAILED", "FINISHED", "CANCELED")
    if mode == "stateless":
        if not is_over:
            flink.cancel(job["jobId"])
        job |= {"state": "CANCELED", "upgradeSavepointPath": None}
        return True
    if job["state"] != "RUNNING":
        if is_over:
            raise Failed("JobManager deployment is missing and HA data is not available")
        return False
    location = flink.stop_with_savepoint(job["jobId"], plain)
    if location is None:
        return False
    job |= {"state": "FINISHED", "upgradeSavepointPath": location}
    return True


def _start(
    plain: dict[str, Any], job: dict[str, Any], savepoint: str | None, flink: RunsJobs
) -> None:
    job |= {"jobId": flink.start(plain, savepoint), "state": "RECONCILING"}


def _with_lifecycle(status: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    state = status["jobStatus"].get("state")
    if last["job"]["state"] == "suspended":
        lifecycle = "SUSPENDED"
    elif state == "FAILED":
        lifecycle = "FAILED"
    else:
        lifecycle = "STABLE" if state == "RUNNING" else "DEPLOYED"
    return {**status, "lifecycleState": lifecycle}
