"""A scripted controller: it does with SparkApplications what the source of kubeflow's spark-operator
2.5 says that the operator does, as far as jobs are suspended and started. It is not the operator:
tests with it show that we speak the API and survive faults, not that the operator behaves so.

    status = reconciled(plain, seen, drivers)   the status to write; `seen` is the spec that the
                                                controller knew, `drivers` runs the pods

A spec that has changed in more than `suspend` is run once more. Pods are deleted, and not waited
for, when a job is suspended. An application that is COMPLETED or FAILED stays so.
"""

from __future__ import annotations

import copy
import uuid
from typing import Any, Protocol

TERMINATED = ("COMPLETED", "FAILED")


class RunsDrivers(Protocol):
    def submit(self, pod: str, plain: dict[str, Any]) -> None: ...

    def phase_of(self, pod: str) -> str | None: ...

    def delete(self, pod: str) -> None: ...


class Failed(Exception):
    """Why spark-submit came to nothing."""


def driver_pod(plain: dict[str, Any]) -> str:
    spec = plain["spec"]
    in_conf = (spec.get("sparkConf") or {}).get("spark.kubernetes.driver.pod.name")
    named = spec["driver"].get("podName") or in_conf
    return str(named or f"{plain['metadata']['name']}-driver")


def reconciled(
    plain: dict[str, Any], seen: dict[str, Any] | None, drivers: RunsDrivers
) -> dict[str, Any]:
    """The status of an application after one round of the controller."""
    status = copy.deepcopy(plain.get("status") or {})
    spec, pod = plain["spec"], driver_pod(plain)
    told = status.get("applicationState", {})
    state, message = told.get("state", ""), told.get("errorMessage", "")
    if seen is not None and _without_suspend(seen) != _without_suspend(spec):
        state = "INVALIDATING"
    if spec.get("suspend") and state not in (*TERMINATED, "SUSPENDED", "SUSPENDING"):
        return _with(status, "SUSPENDING")
    policy = spec.get("restartPolicy") or {}
    retries = policy.get("type") == "Always"
    match state:
        case "" | "RESUMING":
            return _submitted(plain, status, drivers)
        case "SUBMITTED" | "RUNNING":
            phase = drivers.phase_of(pod)
            if phase is None and state == "RUNNING":
                return _with(status, "FAILING", "driver pod not found")
            if phase == "Failed":
                return _with(status, "FAILING", "driver container failed with ExitCode: 1")
            states = {"Running": "RUNNING", "Succeeded": "SUCCEEDING"}
            return _with(status, states.get(str(phase), state))
        case "SUCCEEDING" if not retries:
            return _with(status, "COMPLETED")
        case "FAILING" if not retries:
            most = policy.get("onFailureRetries", 0)
            if policy.get("type") != "OnFailure" or status["executionAttempts"] > most:
                return _with(status, "FAILED", message)
        case "SUBMISSION_FAILED":
            return (
                _submitted(plain, status, drivers) if retries else _with(status, "FAILED", message)
            )
        case "PENDING_RERUN":
            gone = drivers.phase_of(pod) is None
            return _submitted(plain, status, drivers) if gone else status
        case "SUSPENDED":
            is_free = drivers.phase_of(pod) is None and not spec.get("suspend")
            return _with(status, "RESUMING") if is_free else status
    if state in TERMINATED:
        return status
    # SUCCEEDING and FAILING with a retry, INVALIDATING, SUSPENDING
    drivers.delete(pod)
    status["driverInfo"] = {}
    if state == "INVALIDATING":
        status |= {"executionAttempts": 0, "submissionAttempts": 0}
    return _with(status, "SUSPENDED" if state == "SUSPENDING" else "PENDING_RERUN")


def _without_suspend(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key != "suspend"}


def _with(status: dict[str, Any], state: str, message: str = "") -> dict[str, Any]:
    told = {"state": state, "errorMessage": message}
    return {"driverInfo": {}, **status, "applicationState": told}


def _submitted(
    plain: dict[str, Any], status: dict[str, Any], drivers: RunsDrivers
) -> dict[str, Any]:
    pod = driver_pod(plain)
    status |= {"submissionID": uuid.uuid4().hex, "driverInfo": {"podName": pod}}
    status["submissionAttempts"] = status.get("submissionAttempts", 0) + 1
    try:
        drivers.submit(pod, plain)
    except Failed as failed:
        message = f"failed to submit spark application: {failed}"
        return _with(status, "SUBMISSION_FAILED", message)
    status["executionAttempts"] = status.get("executionAttempts", 0) + 1
    return _with(status, "SUBMITTED")
