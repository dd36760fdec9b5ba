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
is that of an earlier spec. `suspended` with `upgradeMode: savepoint` stops the job with a
savepoint, once it runs; its path is upgradeSavepointPath, before 1.10 the last savepoint. From a
suspended job `running` goes on from there; a `stateless` one starts empty. Another savepoint is
started from by initialSavepointPath with a new savepointRedeployNonce (since 1.8).
(apache/flink-kubernetes-operator: AbstractJobReconciler, JobStatus, CommonStatus.)

Annotations of ours, beside the label stateshift/tag, which is a digest of the tag:

    stateshift/tag, stateshift/location   the tag and the image of whom we started last
    stateshift/savepoint                  a digest of the request whose savepoint ends the job
    stateshift/before                     {"upgradeMode", "savepoint"} before that request
    stateshift/replaced                   the savepoint of the suspended job that we started over
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stateshift.clusters.flink.values import STATES
from stateshift.clusters.http import OTHER_FIELDS, Json
from stateshift.clusters.kubernetes.calls import DEPLOYMENT, SESSION_JOB, Definition
from stateshift.clusters.noted import fill_arguments, fill_values
from stateshift.clusters.options import Options, settings
from stateshift.clusters.protocol import JobState, JobStatus, RunningJob, Submission
from stateshift.clusters.redaction import redact
from stateshift.errors import ClusterError

TAG: Final = "stateshift/tag"
LOCATION: Final = "stateshift/location"
MARK: Final = "stateshift/savepoint"
BEFORE: Final = "stateshift/before"
JOB_KINDS: Final[Mapping[str, Definition]] = {
    "flinkdeployment": DEPLOYMENT,
    "flinksessionjob": SESSION_JOB,
}
SAVEPOINT_FOLDERS: Final = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")
NATIVE: Final = "kubernetes.operator.savepoint.format.type"
# The operator writes this where it suspended a job without a savepoint, by Flink's own metadata.
_LAST_STATE: Final = "KUBERNETES_OPERATOR_LAST_STATE"
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED")
_ERROR_MAX: Final = 400
_NONCES: Final = ("savepointRedeployNonce", "savepointTriggerNonce", "checkpointTriggerNonce")
# Marks of tools that write a resource back as their repository has it.
_KEEPERS: Final[Mapping[str, str]] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}


@dataclass(frozen=True, slots=True)
class FlinkResource:
    """A resource as the API server has it."""

    definition: Definition
    plain: Json

    @property
    def id(self) -> str:
        return f"{self.definition.kind.lower()}/{self.name}"

    @property
    def name(self) -> str:
        return str(self.plain["metadata"]["name"])

    @property
    def spec(self) -> Json:
        return dict(self.plain.get("spec") or {})

    @property
    def job(self) -> Json | None:
        """Return the job of the spec; a session cluster has none."""
        return self.spec.get("job")

    @property
    def is_wanted(self) -> bool:
        return bool((self.job or {}).get("state", "running") == "running")

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.plain["metadata"].get("annotations") or {}

    @property
    def keeper(self) -> str | None:
        """Return the tool that keeps this resource as its repository has it."""
        metadata = self.plain["metadata"]
        marks = {**(metadata.get("labels") or {}), **self.annotations}
        return next((tool for mark, tool in _KEEPERS.items() if mark in marks), None)

    @property
    def configuration(self) -> dict[str, str]:
        """Return Flink's configuration with each key in full, also where it is nested (1.13)."""
        return _flat(self.spec.get("flinkConfiguration") or {})

    @property
    def status(self) -> Json:
        return dict(self.plain.get("status") or {})

    @property
    def generation(self) -> int:
        return int(self.plain["metadata"].get("generation") or 1)

    @property
    def is_observed(self) -> bool:
        """Whether the operator has come to this spec."""
        observed = self.status.get("observedGeneration")
        if observed is None:
            reconciled = (self.status.get("reconciliationStatus") or {}).get("lastReconciledSpec")
            metadata = _json(reconciled).get("resource_metadata") or {}
            observed = (metadata.get("metadata") or {}).get("generation")
        return observed is not None and int(observed) >= self.generation

    @property
    def is_worked_on(self) -> bool:
        """Whether the status is that of an operator on its way to another spec."""
        return bool(self.error) or self.status.get("lifecycleState") == "UPGRADING"

    @property
    def flink_state(self) -> str:
        return str((self.status.get("jobStatus") or {}).get("state") or "").upper()

    @property
    def flink_id(self) -> str | None:
        id = (self.status.get("jobStatus") or {}).get("jobId")
        return str(id) if id else None

    @property
    def is_deleting(self) -> bool:
        return "deletionTimestamp" in self.plain["metadata"]

    @property
    def is_untouched(self) -> bool:
        """Whether no operator has ever begun its job."""
        reconciled = (self.status.get("reconciliationStatus") or {}).get("lastReconciledSpec")
        return not reconciled and self.flink_id is None

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
        job = self.status.get("jobStatus") or {}
        last = (job.get("savepointInfo") or {}).get("lastSavepoint") or {}
        return job.get("upgradeSavepointPath") or last.get("location") or None

    @property
    def has_last_state(self) -> bool:
        """Whether the operator goes on from Flink's own metadata, and knows no path."""
        return self.savepoint == _LAST_STATE

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
            if self.is_suspended or self.is_untouched:
                return JobStatus(JobState.FINISHED, self.id, "suspended")
            words = self.error or "the operator has yet to suspend it"
            return JobStatus(JobState.RUNNING, self.id, words)
        if not self.is_observed:
            words = self.error or f"no operator has reconciled generation {self.generation} yet"
            return JobStatus(JobState.QUEUED, self.id, words)
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

    def with_spec(self, spec: Json, **annotations: str | None) -> Json:
        """Return the resource with another spec; an annotation that is None is taken away."""
        plain: Json = copy.deepcopy(self.plain)
        plain["spec"] = spec
        metadata = plain["metadata"]
        notes = {**(metadata.get("annotations") or {})}
        for name, value in annotations.items():
            notes[f"stateshift/{name}"] = value
        metadata["annotations"] = {key: value for key, value in notes.items() if value is not None}
        return plain

    def for_stop(self, mode: str, mark: str) -> Json:
        """Return the resource as it is written to end its job, by the request with this mark."""
        spec = {**self.spec, "job": {**(self.job or {}), "state": "suspended", "upgradeMode": mode}}
        known = {"upgradeMode": (self.job or {}).get("upgradeMode"), "savepoint": self.savepoint}
        before = self.annotations.get(BEFORE) if self.annotations.get(MARK) == mark else None
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
        keeps_state = (self.job or {}).get("upgradeMode") == "savepoint"
        goes_on = self.is_suspended and keeps_state and self.savepoint == submission.location
        if job.get("upgradeMode") in (None, "stateless"):
            job["upgradeMode"] = "savepoint"  # the state is kept from now on
        if not submission.location:
            job["upgradeMode"] = "stateless"
            job.pop("initialSavepointPath", None)
        elif not goes_on:
            job["initialSavepointPath"] = submission.location
            if "uid" in self.plain["metadata"]:
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


def new_resource(definition: Definition, name: str, namespace: str) -> FlinkResource:
    """Return a resource that the API server does not have yet."""
    metadata = {"name": name, "namespace": namespace}
    return FlinkResource(
        definition, {"apiVersion": definition.api, "kind": definition.kind, "metadata": metadata}
    )


def read_manifest(path: str) -> tuple[Definition, str, Json]:
    """Return the kind, the name and the spec of a job in a file, or raise ClusterError."""
    import yaml

    try:
        plain = yaml.safe_load(Path(path).read_text("utf-8"))
        definition = JOB_KINDS[str(plain["kind"]).lower()]
        if plain["apiVersion"] != definition.api:
            raise ValueError(definition.api)
        return definition, str(plain["metadata"]["name"]), dict(plain["spec"])
    except (OSError, yaml.YAMLError, *OTHER_FIELDS) as error:
        fact = f"{path} is no manifest of a job ({type(error).__name__})"
        hint = '"manifest" is a file with one FlinkDeployment or FlinkSessionJob of v1beta1'
        raise ClusterError(fact, hint=hint) from error


def digest(text: str) -> str:
    """Return a text as the value of a label."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


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
