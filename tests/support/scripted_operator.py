"""A scripted controller: it does with FlinkDeployments and FlinkSessionJobs what the documentation
of flink-kubernetes-operator 1.12 says that the operator does, as far as jobs are suspended and
started. It is not the operator: tests with it show that we speak the API and survive faults, not
that the operator behaves as documented.

    status = reconciled(plain, flink)   the status to write; `flink` runs the jobs

A job is started in two rounds: the spec is noted as suspended first. Only a RUNNING job is stopped
with a savepoint, and the status does not change before that is there. Any other is suspended by
Flink's metadata. A session job has no jobId after its savepoint, and cannot be given another one
then; without a savepoint it is cancelled, and its status stays UPGRADING.
"""

from __future__ import annotations

import copy
import json
from typing import Any, Protocol

LAST_STATE = "KUBERNETES_OPERATOR_LAST_STATE"
ENDED = ("FAILED", "FINISHED", "CANCELED")


class RunsJobs(Protocol):
    def start(self, plain: dict[str, Any], savepoint: str | None) -> str: ...

    def stop_with_savepoint(self, id: str, plain: dict[str, Any]) -> str | None:
        """The savepoint; none while it is under way."""
        ...

    def cancel(self, id: str) -> None: ...

    def state(self, id: str) -> str: ...


class Refuses(Exception):
    """Why a first deployment came to nothing, after the job's id was written."""


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
    wanted = {"state": "running", "upgradeMode": "stateless", **plain["spec"]["job"]}
    if last is None:
        if wanted["state"] == "suspended":
            return status
        job["upgradeSavepointPath"] = wanted.get("initialSavepointPath")
        mode = "savepoint" if wanted.get("initialSavepointPath") else "stateless"
        return _noted(plain, status, {**wanted, "state": "suspended", "upgradeMode": mode})
    was, mode = last["job"]["state"], str(wanted["upgradeMode"])
    is_known = last["resource_metadata"]["metadata"]["generation"] == generation
    try:
        if is_known and was == "suspended" and wanted["state"] == "running":
            _started(plain, job, last["job"]["upgradeMode"], flink)
            return _noted(plain, status, {**wanted, "upgradeMode": last["job"]["upgradeMode"]})
        if is_known:
            return _with_lifecycle(status, last)
        nonce = wanted.get("savepointRedeployNonce")
        if nonce is not None and nonce != last["job"].get("savepointRedeployNonce"):
            if job.get("jobId") is None:
                raise Failed('Cannot parse JobID from "null".')
            if was == "running" and job["state"] not in ENDED:
                flink.cancel(job["jobId"])
            job["upgradeSavepointPath"] = wanted.get("initialSavepointPath")
            _started(plain, job, "savepoint", flink)
            return _noted(plain, status, {**wanted, "upgradeMode": "savepoint"})
        plainly = {"upgradeMode": "", "savepointRedeployNonce": None}
        is_same = {**wanted, **plainly} == {**last["job"], **plainly}
        if is_same and status["reconciliationStatus"]["state"] != "UPGRADING":
            return _noted(plain, status, last["job"])  # nothing to upgrade for
        if was == "running":
            return _suspended(plain, status, wanted, last, flink)
        if wanted["state"] == "suspended":
            return status  # it is so, and is not come to
        inherited = mode if mode == "stateless" else last["job"]["upgradeMode"]
        return _noted(plain, status, {**wanted, "state": "suspended", "upgradeMode": inherited})
    except Refuses as refused:
        job["jobId"] = "ab" * 16
        status["reconciliationStatus"] = {"state": "UPGRADING"}
        status |= {"error": json.dumps({"message": str(refused)}), "lifecycleState": "FAILED"}
        return status
    except Failed as failed:
        message = {"type": "ReconciliationException", "message": str(failed)}
        status["error"] = json.dumps(message)
        return status


def _suspended(
    plain: dict[str, Any],
    status: dict[str, Any],
    wanted: dict[str, Any],
    last: dict[str, Any],
    flink: RunsJobs,
) -> dict[str, Any]:
    """The status of a running job that is to be suspended, or upgraded."""
    job, mode = status["jobStatus"], str(wanted["upgradeMode"])
    is_of_session = plain["kind"] == "FlinkSessionJob"
    if mode == "stateless":
        if job["state"] not in ENDED:
            flink.cancel(job["jobId"])
        if is_of_session:
            old = {**last, "job": {**last["job"], "state": "suspended", "upgradeMode": mode}}
            job["state"] = "CANCELED"
            known = {"state": "UPGRADING", "lastReconciledSpec": json.dumps(old)}
            return {**status, "reconciliationStatus": known, "lifecycleState": "UPGRADING"}
    elif job["state"] != "RUNNING":
        mode = "last-state"
        flink.cancel(job["jobId"])
    else:
        location = flink.stop_with_savepoint(job["jobId"], plain)
        if location is None:
            return dict(plain.get("status") or {})
        if location == LAST_STATE:  # it was not RUNNING any more
            mode = "last-state"
        else:
            format = "CANONICAL"
            saved = {"location": location, "triggerType": "UPGRADE", "formatType": format}
            job |= {"upgradeSavepointPath": location, "savepointInfo": {"lastSavepoint": saved}}
            if is_of_session:
                job["jobId"] = None
    job["state"] = "FINISHED"
    return _noted(plain, status, {**wanted, "state": "suspended", "upgradeMode": mode})


def _started(plain: dict[str, Any], job: dict[str, Any], mode: str, flink: RunsJobs) -> None:
    savepoints = {"savepoint": job.get("upgradeSavepointPath"), "last-state": LAST_STATE}
    job |= {"jobId": flink.start(plain, savepoints.get(mode)), "state": "RECONCILING"}


def _noted(plain: dict[str, Any], status: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """The status once the operator has come to a spec: with this job."""
    generation = plain["metadata"]["generation"]
    metadata = {"apiVersion": plain["apiVersion"], "metadata": {"generation": generation}}
    last = {**plain["spec"], "job": job, "resource_metadata": metadata}
    is_on_its_way = job["state"] != plain["spec"]["job"].get("state", "running")
    state = "UPGRADING" if is_on_its_way else "DEPLOYED"
    status["reconciliationStatus"] = {"state": state, "lastReconciledSpec": json.dumps(last)}
    status["observedGeneration"] = generation
    status.pop("error", None)
    if is_on_its_way:
        return {**status, "lifecycleState": "UPGRADING"}
    return _with_lifecycle(status, last)


def _with_lifecycle(status: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    state = status["jobStatus"].get("state")
    if last["job"]["state"] == "suspended":
        lifecycle = "SUSPENDED"
    elif state == "FAILED":
        lifecycle = "FAILED"
    else:
        lifecycle = "STABLE" if state == "RUNNING" else "DEPLOYED"
    return {**status, "lifecycleState": lifecycle}
