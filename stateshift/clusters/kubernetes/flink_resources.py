"""FlinkDeployment and FlinkSessionJob of flink-kubernetes-operator (v1beta1) as plain values: their
state by the operator's own words, and the specs that suspend and start their jobs.

    spec.job      {"state": "running" | "suspended", "upgradeMode": "savepoint" | "last-state" |
                  "stateless", "jarURI", "parallelism", "args", "entryClass",
                  "initialSavepointPath", "savepointRedeployNonce", "allowNonRestoredState"}
    status        {"observedGeneration", "lifecycleState", "error": JSON as a text,
                  "jobStatus": {"state", "jobId", "upgradeSavepointPath",
                                "savepointInfo": {"lastSavepoint": {"location"}}},
                  "reconciliationStatus": {"lastReconciledSpec": JSON as a text, with
                                           "resource_metadata": {"metadata": {"generation"}}}}

The operator takes no notice of a spec before it has observed its generation: until then the status
is that of an earlier spec. `suspended` with `upgradeMode: savepoint` stops a job that is RUNNING
with a savepoint; its path is upgradeSavepointPath, before 1.10 the last savepoint. Any other job is
suspended by Flink's own metadata: lastReconciledSpec.job.upgradeMode says how it was done. From a
suspended job `running` goes on from there; a `stateless` one starts empty. Meanwhile
lastReconciledSpec says `suspended` under the new generation, and jobStatus is the last job's.
Another savepoint is started from by initialSavepointPath with a new savepointRedeployNonce (since
1.8); not in a suspended FlinkSessionJob, which has no jobId, without which the operator throws. One
whose first deployment fails has a jobId, and no lastReconciledSpec: suspended, it is left alone.
(apache/flink-kubernetes-operator: AbstractJobReconciler, AbstractFlinkService, JobStatus.)

Annotations of ours, beside those of `resources`:

    stateshift/savepoint                  a digest of the request whose savepoint ends the job
    stateshift/before                     {"upgradeMode", "savepoint"} before that request
    stateshift/replaced                   the savepoint of the suspended job that we started over
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stateshift.clusters.flink.savepoints import lies_below
from stateshift.clusters.flink.values import STATES
from stateshift.clusters.http import Json
from stateshift.clusters.kubernetes.calls import DEPLOYMENT, SESSION_JOB, Definition
from stateshift.clusters.kubernetes.resources import TAG, Resource
from stateshift.clusters.noted import digest, fill_arguments, fill_values
from stateshift.clusters.options import Options, settings
from stateshift.clusters.protocol import JobState, JobStatus, RunningJob, Submission
from stateshift.clusters.redaction import redact

MARK: Final = "stateshift/savepoint"
BEFORE: Final = "stateshift/before"
JOB_KINDS: Final[Mapping[str, Definition]] = {
    "flinkdeployment": DEPLOYMENT,
    "flinksessionjob": SESSION_JOB,
}
SAVEPOINT_FOLDERS: Final = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")
CHECKPOINT_FOLDERS: Final = ("execution.checkpointing.dir", "state.checkpoints.dir")
DRAINS: Final = "kubernetes.operator.job.drain-on-savepoint-deletion"
NATIVE: Final = "kubernetes.operator.savepoint.format.type"
# The operator writes this where it suspended a job without a savepoint, by Flink's own metadata.
_LAST_STATE: Final = "KUBERNETES_OPERATOR_LAST_STATE"
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED")
_ON_ITS_WAY: Final = ("UPGRADING", "ROLLING_BACK")
_CHECKPOINT: Final = re.compile(r"/chk-\d+/?$")
_ERROR_MAX: Final = 400
_NONCES: Final = ("savepointRedeployNonce", "savepointTriggerNonce", "checkpointTriggerNonce")


@dataclass(frozen=True, slots=True)
class FlinkResource(Resource):
    """A resource as the API server has it."""

    @property
    def is_job(self) -> bool:
        return bool(self.job)

    @property
    def job(self) -> Json | None:
        """Return the job of the spec; a session cluster has none."""
        return self.spec.get("job")

    @property
    def is_wanted(self) -> bool:
        return bool((self.job or {}).get("state", "running") == "running")

    @property
    def configuration(self) -> dict[str, str]:
        """Return Flink's configuration with each key in full, also where it is nested (1.13)."""
        return _flat(self.spec.get("flinkConfiguration") or {})

    @property
    def reconciled(self) -> Json:
        """Return the spec that the operator has come to; empty until it has begun the job."""
        return _json((self.status.get("reconciliationStatus") or {}).get("lastReconciledSpec"))

    @property
    def reconciled_job(self) -> Json:
        return dict(self.reconciled.get("job") or {})

    @property
    def is_observed(self) -> bool:
        """Whether the operator has come to this spec."""
        observed = self.status.get("observedGeneration")
        if observed is None:
            metadata = self.reconciled.get("resource_metadata") or {}
            observed = (metadata.get("metadata") or {}).get("generation")
        return observed is not None and int(observed) >= self.generation

    @property
    def is_worked_on(self) -> bool:
        """Whether the status is that of an operator on its way to another spec."""
        return bool(self.error) or self.status.get("lifecycleState") in _ON_ITS_WAY

    @property
    def is_starting(self) -> bool:
        """Whether the operator has come to this spec, and has yet to start its job."""
        is_before = self.reconciled_job.get("state") == "suspended"
        return is_before or self.status.get("lifecycleState") in _ON_ITS_WAY

    @property
    def job_known(self) -> Json:
        """Return the operator's own view of the job."""
        return dict(self.status.get("jobStatus") or {})

    @property
    def flink_state(self) -> str:
        return str(self.job_known.get("state") or "").upper()

    @property
    def runs(self) -> bool:
        """Whether the job of this spec runs well, by the operator."""
        is_there = self.is_wanted and self.is_observed and not self.is_starting
        return is_there and self.flink_state == "RUNNING"

    @property
    def flink_id(self) -> str | None:
        return self.job_known.get("jobId") or None

    @property
    def is_left_cancelled(self) -> bool:
        """Whether the status is what stays of a session job that was suspended without a savepoint:
        the operator does not come to the spec then. While it starts one, it may look the same.
        """
        is_over = self.reconciled_job.get("state") == "suspended" and self.flink_state in _ENDED
        return is_over and not self.is_wanted

    @property
    def is_suspended(self) -> bool:
        """Whether the operator has ended the job, as the spec wants it."""
        if self.is_wanted or not self.is_observed:
            return False
        lifecycle = self.status.get("lifecycleState")
        return lifecycle == "SUSPENDED" or (lifecycle is None and self.flink_state in _ENDED)

    @property
    def savepoint(self) -> str | None:
        """Return the savepoint that the operator would go on from, if it has one."""
        path = self.job_known.get("upgradeSavepointPath")
        return path or self._last_savepoint.get("location") or None

    @property
    def final_savepoint(self) -> str | None:
        """Return the savepoint with which the operator has suspended the job, if it took one."""
        if self.reconciled_job.get("upgradeMode") != "savepoint":
            return None  # it was suspended otherwise, and what the status names is older
        path = self.job_known.get("upgradeSavepointPath")
        if not path and self._last_savepoint.get("triggerType") == "UPGRADE":
            path = self._last_savepoint.get("location")
        return None if path == _LAST_STATE else path or None

    def doubt(self, directory: str, native: bool | None) -> str | None:
        """Return the fact that tells a suspended job from one that ended with the savepoint that
        was asked for, in the format that was, if any was.
        """
        location, written = self.final_savepoint, self._last_savepoint
        if location is None:
            how = self.reconciled_job.get("upgradeMode")
            by = "by Flink's own metadata" if how == "last-state" else f"in the mode {how}"
            return f"was suspended {by}, without a savepoint"
        if location == self.noted_savepoint or _CHECKPOINT.search(location):
            return f"was suspended from {location}, and took no new savepoint"
        if not lies_below(location, directory):
            return f"was suspended with {location}, which is not below {directory}"
        format = str(written.get("formatType") or "").upper()
        if written.get("location") != location or not format or native is None:
            return None
        if (format == "NATIVE") != native:
            return f"was suspended with a savepoint that is {format.lower()}"
        return None

    @property
    def _last_savepoint(self) -> Json:
        info = self.job_known.get("savepointInfo") or {}
        return dict(info.get("lastSavepoint") or {})

    @property
    def error(self) -> str:
        """Return the operator's own words on what went wrong, as one line that is safe to show."""
        said = self.status.get("error") or ""
        plain = _json(said)
        causes = [plain, *(plain.get("throwableList") or ())]
        messages = [str(each["message"]) for each in causes if each.get("message")]
        line = " ".join(redact(": ".join(messages) or str(said), os.environ).split())
        return line[:_ERROR_MAX]

    @property
    def job_status(self) -> JobStatus:
        """Return the status. An unobserved spec's job counts as alive: the operator may act."""
        lifecycle, state = self.status.get("lifecycleState"), self.flink_state
        if self.is_deleting:
            words = f"is being deleted, and its finalizers hold it: {self.error or lifecycle}"
            return JobStatus(JobState.RUNNING, self.id, words)
        if not self.is_wanted:
            was_begun = self.reconciled or self.flink_id is not None
            if self.is_suspended or not was_begun:
                return JobStatus(JobState.FINISHED, self.id, "suspended")
            words = self.error or "the operator has yet to suspend it"
            return JobStatus(JobState.RUNNING, self.id, words)
        if not self.is_observed:
            words = self.error or f"no operator has reconciled generation {self.generation} yet"
            return JobStatus(JobState.QUEUED, self.id, words)
        if self.is_starting:  # whatever it says of the last job
            return JobStatus(JobState.QUEUED, self.id, self.error or "the operator is to start it")
        if lifecycle == "FAILED" or state == "FAILED":
            return JobStatus(JobState.FAILED, self.id, self.error or "failed")
        if state in ("", "RECONCILING", "SUSPENDED"):  # deployed, and Flink has not answered yet
            return JobStatus(JobState.QUEUED, self.id, self.error or lifecycle)
        known = STATES.get(state, JobState.UNKNOWN)
        detail = self.error or (None if state == "RUNNING" else state.lower())
        return JobStatus(known, self.id, detail)

    @property
    def spec_before(self) -> Json:
        """Return the spec as it was before we suspended its job."""
        mode = _json(self.annotations.get(BEFORE)).get("upgradeMode")
        job = {**(self.job or {}), "upgradeMode": mode} if mode else self.job
        return {**self.spec, "job": job}

    @property
    def running_job(self) -> RunningJob:
        configured = self.configuration
        backend = configured.get("state.backend.type") or configured.get("state.backend")
        settings = {"state_backend": backend} if backend else {}
        return RunningJob(self.id, self.name, self.job_status.state, settings)

    def for_stop(self, mode: str, mark: str) -> Json:
        """Return the resource as it is written to end its job, by the request with this mark."""
        spec = {**self.spec, "job": {**(self.job or {}), "state": "suspended", "upgradeMode": mode}}
        known = {"upgradeMode": (self.job or {}).get("upgradeMode"), "savepoint": self.savepoint}
        is_repeated = self.annotations.get(MARK) == mark and not self.is_wanted
        before = self.annotations.get(BEFORE) if is_repeated else None
        return self.with_spec(spec, savepoint=mark, before=before or json.dumps(known))

    def resumed(self) -> Json:
        """Return the resource with a suspension taken back. A stateless job stays with its
        savepoint: the operator may have suspended it by then, and would start it empty.
        """
        mode = _json(self.annotations.get(BEFORE)).get("upgradeMode")
        job = {**(self.job or {}), "state": "running"}
        job["upgradeMode"] = mode if mode == "last-state" else "savepoint"
        return self.with_spec({**self.spec, "job": job}, savepoint=None, before=None)

    @property
    def noted_savepoint(self) -> str | None:
        """Return the savepoint that the operator had before it was to suspend the job."""
        return _json(self.annotations.get(BEFORE)).get("savepoint")

    def for_start(self, submission: Submission, given: Options, spec: Json | None = None) -> Json:
        """Return the resource as it is written to start a job from the submission's image: with
        another spec, or its own.
        """
        new = {**(self.spec_before if spec is None else spec)}
        _override(new, submission, given)
        # Nonces stay the resource's own: the operator does once more what another one asks for.
        nonces = {key: number for key, number in (self.job or {}).items() if key in _NONCES}
        job = {key: value for key, value in new["job"].items() if key not in _NONCES}
        job |= {**nonces, "state": "running"}
        # A job that was suspended stateless would be resumed so, whatever savepoint is known.
        goes_on = self.is_suspended and self.final_savepoint == submission.location
        if job.get("upgradeMode") in (None, "stateless"):
            job["upgradeMode"] = "savepoint"  # the state is kept from now on
        if not submission.location:
            job["upgradeMode"] = "stateless"
            job.pop("initialSavepointPath", None)
        elif not goes_on:
            job["initialSavepointPath"] = submission.location
            if "uid" in self.metadata:
                job["savepointRedeployNonce"] = int(nonces.get("savepointRedeployNonce") or 0) + 1
        new["job"] = job
        plain = self.with_spec(
            new,
            tag=submission.tag,
            location=submission.location,
            savepoint=None,
            before=None,
            replaced=None if goes_on else self.savepoint,
        )
        labels = plain["metadata"].get("labels") or {}
        plain["metadata"]["labels"] = {**labels, TAG: digest(submission.tag)}
        return plain


def _override(spec: Json, submission: Submission, given: Options) -> None:
    """Write the options of a submission over a spec."""
    job = {**(spec.get("job") or {})}
    of_job = {
        "jar_uri": "jarURI",
        "entry_class": "entryClass",
        "parallelism": "parallelism",
        "allow_non_restored_state": "allowNonRestoredState",
    }
    for option, key in of_job.items():
        if option in given:
            job[key] = given[option]
    if "arguments" in given:
        job["args"] = fill_arguments(given, submission)
    spec["job"] = job
    for option, key in {"image": "image", "session": "deploymentName"}.items():
        if option in given:
            spec[key] = given[option]
    configured = fill_values(settings(given.get("flink_configuration")), submission)
    if configured:
        # Each key once: another spelling of it, nested, would go beside ours.
        spec["flinkConfiguration"] = {**_flat(spec.get("flinkConfiguration") or {}), **configured}


def _flat(nested: Mapping[str, Any], above: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{key}.")
        else:
            flat |= settings({f"{above}{key}": value})
    return flat


def _json(text: object) -> Json:
    """Return the object that a text is; none if it is something else."""
    try:
        plain = json.loads(str(text or ""))
    except ValueError:
        return {}
    return plain if isinstance(plain, dict) else {}
