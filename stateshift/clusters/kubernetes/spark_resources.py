"""SparkApplication of kubeflow's spark-operator (v1beta2) as a plain value: its state by the
operator's own words, the specs that stop and start its job, and what its driver's pod says.

    spec      {"suspend": true, "mainApplicationFile", "mainClass", "arguments", "sparkConf",
              "image", "restartPolicy": {"type": "Never" | "OnFailure" | "Always"},
              "driver": {"podName", "memory", "env", "envVars"}, "executor": {"instances"}}
    status    {"applicationState": {"state", "errorMessage"}, "submissionID",
              "executionAttempts", "submissionAttempts", "driverInfo": {"podName"}}

    ""  SUBMITTED  RUNNING  SUCCEEDING  COMPLETED  FAILING  FAILED  PENDING_RERUN
    SUBMISSION_FAILED  INVALIDATING  SUSPENDING  SUSPENDED  RESUMING  UNKNOWN

`suspend` (since 2.4) ends the job, whatever its restart policy, and is its fence: the operator
starts nothing of it. It deletes the driver's pod, and says SUSPENDED while that still ends. An
application that is COMPLETED or FAILED stays so. Any other change of a spec, the restart policy
included, ends a job and starts it once more (INVALIDATING); so a job is fenced by nothing else.
A status does not say which spec it is of. But each start has a submissionID of its own: as long as
it is that of the job before, the operator has yet to come to the new one. (kubeflow/spark-operator:
controller/sparkapplication controller.go, event_filter.go.)

One that is COMPLETED or FAILED is deleted `timeToLiveSeconds` later, which may be changed like
`suspend`: a job that we stop keeps its application.

The operator may also be wrong: if it ends between spark-submit and its status, it submits again,
meets the pod of before, and says FAILED while that runs. A job has ended once its pod has.

Marks of ours, beside those of `resources`: the label stateshift/place, a digest of the location, by
which any run finds the job that has its checkpoint there; and the annotations

    stateshift/replaced   the submissionID before our start
    stateshift/suspended  the generation that we have suspended
    stateshift/fenced     that of a suspended spec that the operator was seen to leave alone
    stateshift/ttl        the seconds that we have taken out
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from stateshift.clusters.http import Json
from stateshift.clusters.kubernetes.resources import TAG, Resource
from stateshift.clusters.noted import digest, fill, fill_values, identity_settings
from stateshift.clusters.options import Options, settings
from stateshift.clusters.protocol import JobState, JobStatus, Submission
from stateshift.clusters.redaction import redact
from stateshift.formats.marks import WAIT
from stateshift.specification.location import NoLocation, normal

PLACE: Final = "stateshift/place"
REPLACED: Final = "stateshift/replaced"
APP: Final = "sparkoperator.k8s.io/app-name"  # of a pod
SUSPENDED: Final = "stateshift/suspended"
_FENCED: Final = "stateshift/fenced"
_TTL: Final = "stateshift/ttl"
SCHEDULED: Final = "sparkoperator.k8s.io/scheduled-app-name"
TERMINATED: Final = ("COMPLETED", "FAILED")
_STATES: Final[Mapping[str, JobState]] = {
    "": JobState.QUEUED,
    "SUBMITTED": JobState.QUEUED,
    "RUNNING": JobState.RUNNING,
    "SUCCEEDING": JobState.RUNNING,
    "COMPLETED": JobState.FINISHED,
    "FAILING": JobState.RUNNING,
    "FAILED": JobState.FAILED,
    "PENDING_RERUN": JobState.QUEUED,
    "SUBMISSION_FAILED": JobState.QUEUED,  # it is submitted again, or FAILED next
    "INVALIDATING": JobState.QUEUED,
    "SUSPENDING": JobState.RUNNING,
    "SUSPENDED": JobState.QUEUED,  # which is not to be: it is resumed next
    "RESUMING": JobState.QUEUED,
}
_MAIN: Final = "mainApplicationFile"
_POD_NAME: Final = "spark.kubernetes.driver.pod.name"
_CHECKPOINT: Final = "spark.stateshift.checkpoint"
_SIZES: Final = {
    "driver_memory": ("driver", "memory"),
    "driver_cores": ("driver", "cores"),
    "executor_memory": ("executor", "memory"),
    "executor_cores": ("executor", "cores"),
    "num_executors": ("executor", "instances"),
}
_FIELDS: Final = {"image": "image", "application": _MAIN, "class": "mainClass"}
_IDENTITY: Final = ("STATESHIFT_CHECKPOINT", "STATESHIFT_JOB", "STATESHIFT_TAG", WAIT)
_USUAL_WAITS: Final = ("ContainerCreating", "PodInitializing")
_WORDS_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class SparkResource(Resource):
    """A SparkApplication as the API server has it."""

    @property
    def is_job(self) -> bool:
        return bool(self.spec.get(_MAIN))

    @property
    def is_stopped(self) -> bool:
        """Whether the operator is to start nothing of it."""
        return self.spec.get("suspend") is True

    @property
    def spec_before(self) -> Json:
        """Return the spec as it was before we suspended its job."""
        spec = {key: value for key, value in self.spec.items() if key != "suspend"}
        if _TTL in self.annotations:
            spec["timeToLiveSeconds"] = int(self.annotations[_TTL])
        return spec

    def suspended(self) -> Json:
        """Return the application as it is written to end its job, and to be kept."""
        spec = {**self.spec, "suspend": True}
        seconds = spec.pop("timeToLiveSeconds", None)
        ttl = self.annotations.get(_TTL) if seconds is None else str(seconds)
        return self.with_spec(spec, ttl=ttl, suspended=str(self.generation))

    def resumed(self) -> Json:
        """Return the application with a suspension taken back."""
        return self.with_spec(self.spec_before, ttl=None, suspended=None)

    def fenced(self) -> Json:
        """Return the application as it is written once its job is known not to be begun."""
        return self.with_spec(self.spec, fenced=str(self.generation))

    @property
    def is_suspended_by_us(self) -> bool:
        return self.is_stopped and SUSPENDED in self.annotations

    @property
    def is_pruned(self) -> bool:
        """Whether our suspension has come without `suspend`, which its definition lacks."""
        return not self.is_stopped and self.annotations.get(SUSPENDED) == str(self.generation)

    @property
    def place(self) -> str | None:
        """Return the label of the location, unless somebody has given it another one since."""
        place = self.labels.get(PLACE)
        location = (self.spec.get("sparkConf") or {}).get(_CHECKPOINT)
        is_stale = location is None or place_of(str(location)) != place
        return None if is_stale else place

    @property
    def state(self) -> str:
        """Return the state in the operator's own word; empty for one that it has not seen."""
        return str((self.status.get("applicationState") or {}).get("state") or "").upper()

    @property
    def submission_id(self) -> str:
        return str(self.status.get("submissionID") or "")

    @property
    def is_unseen(self) -> bool:
        """Whether the operator has not come to the job that was started last."""
        replaced = self.annotations.get(REPLACED)
        return not self.state or (replaced is not None and replaced == self.submission_id)

    @property
    def driver_pod(self) -> str:
        """Return the name of the driver's pod; the status forgets it when it is suspended."""
        named = (self.status.get("driverInfo") or {}).get("podName")
        given = (self.spec.get("driver") or {}).get("podName")
        in_conf = (self.spec.get("sparkConf") or {}).get(_POD_NAME)
        return str(named or given or in_conf or f"{self.name}-driver")

    @property
    def error(self) -> str:
        """Return the operator's own words on what went wrong, as one line that is safe to show."""
        return one_line((self.status.get("applicationState") or {}).get("errorMessage"))

    @property
    def job_status(self) -> JobStatus:
        """Return the status, as far as the operator tells it. A suspended job that it has not come
        to may be about to start, by the spec of before.
        """
        state, id = self.state, self.id
        if self.is_deleting:
            return JobStatus(JobState.RUNNING, id, "is being deleted, and its finalizers hold it")
        if self.is_stopped:
            is_ours = bool({TAG, SUSPENDED} & self.annotations.keys())
            is_left = self.annotations.get(_FENCED) == str(self.generation)
            is_over = state in ("", "SUSPENDED", *TERMINATED) and not (is_ours and self.is_unseen)
            if is_left or is_over:
                word = state if state in TERMINATED else "suspended"
                return JobStatus(JobState.FINISHED, id, word.lower())
            return JobStatus(JobState.RUNNING, id, "the operator has yet to suspend it")
        if self.is_unseen:
            yet = "the operator has yet to start it"
            if state in TERMINATED:
                patch = """{"spec": {"sparkConf": {"spark.stateshift.attempt": "2"}}}"""
                yet += ", and does not see that by itself if it was restarted since: kubectl "
                yet += f"patch sparkapplication {self.name} --type merge -p '{patch}'"
            return JobStatus(JobState.QUEUED, id, yet)
        words = [] if state == "RUNNING" else [state.lower().replace("_", " ")]
        attempts = int(self.status.get("executionAttempts") or 0)
        if attempts > 1:
            words.append(f"attempt {attempts}: the operator has started its driver again")
        detail = ": ".join(filter(None, (*words, self.error)))
        return JobStatus(_STATES.get(state, JobState.UNKNOWN), id, detail or None)

    def for_start(self, submission: Submission, given: Options, spec: Json | None = None) -> Json:
        """Return the resource as it is written to start a job from the submission's image: with
        another spec, or its own.
        """
        new = copy.deepcopy(self.spec_before if spec is None else spec)
        new.pop("suspend", None)
        _override(new, submission, given)
        plain = self.with_spec(
            new,
            tag=submission.tag,
            location=submission.location,
            replaced=self.submission_id if self.uid is not None else None,
            ttl=None,
            suspended=None,
            fenced=None,
        )
        ours = {TAG: digest(submission.tag), PLACE: place_of(submission.location)}
        plain["metadata"]["labels"] = {**self.labels, **ours}
        return plain


def _override(spec: Json, submission: Submission, given: Options) -> None:
    """Write the options of a submission, and its identity, over a spec."""
    for option, key in _FIELDS.items():
        if option in given:
            spec[key] = given[option]
    for option, (part, key) in _SIZES.items():
        if option in given:
            spec[part] = {**(spec.get(part) or {}), key: given[option]}
    arguments = given.get("arguments", spec.get("arguments"))
    if arguments is not None:
        spec["arguments"] = [fill(str(argument), submission) for argument in arguments]
    if "py_files" in given:
        spec["deps"] = {**(spec.get("deps") or {}), "pyFiles": list(given["py_files"])}
    conf = {**settings(spec.get("sparkConf")), **settings(given.get("conf"))}
    conf.pop("spark.stateshift.wait", None)
    for name in _IDENTITY:  # a job would read an earlier one before its settings
        conf.pop(f"spark.kubernetes.driverEnv.{name}", None)
    variables = {**submission.environment, **settings(given.get("environment"))}
    for name, value in variables.items():
        if name not in _IDENTITY:  # which is in the settings
            conf[f"spark.kubernetes.driverEnv.{name}"] = value
    spec["sparkConf"] = {**fill_values(conf, submission), **identity_settings(submission)}
    spec["driver"] = _without_identity(spec.get("driver") or {})


def _without_identity(driver: Json) -> Json:
    """Return a driver without an earlier identity, which a job would read before its settings."""
    cleared = dict(driver)
    if driver.get("env"):
        cleared["env"] = [each for each in driver["env"] if each.get("name") not in _IDENTITY]
    if driver.get("envVars"):
        named = driver["envVars"].items()
        cleared["envVars"] = {name: value for name, value in named if name not in _IDENTITY}
    return cleared


def without_pod_name(spec: Json) -> Json:
    """Return a spec without the name of its driver's pod, which only one application may have."""
    driver, conf = dict(spec.get("driver") or {}), dict(spec.get("sparkConf") or {})
    driver.pop("podName", None)
    conf.pop(_POD_NAME, None)
    return {**spec, "driver": driver, "sparkConf": conf}


def place_of(location: str) -> str:
    """Return the label of a location, however it is written: `/a`, `file:///a/`."""
    with suppress(NoLocation):
        location = normal(location, os.getcwd())
    return digest(location.rstrip("/"))


def has_ended(pod: Json | None) -> bool:
    """Whether nothing of a pod runs any more."""
    return pod is None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def words_of(pod: Json) -> str:
    """Return the reasons why a pod does not run, or has ended, as its status has them."""
    status = pod.get("status") or {}
    facts = [(status.get("reason"), status.get("message"))]
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            facts.append((condition.get("reason"), condition.get("message")))
    for group in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(group) or ():
            state = container.get("state") or {}
            waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
            if waiting and waiting.get("reason") not in _USUAL_WAITS:
                facts.append((waiting.get("reason"), waiting.get("message")))
            if ended.get("exitCode"):
                code = f"{container.get('name')} ended with exit code {ended['exitCode']}"
                facts.append((f"{code} ({ended.get('reason')})", ended.get("message")))
    sentences = [": ".join(str(each) for each in fact if each) for fact in facts]
    return one_line("; ".join(filter(None, sentences)))


def one_line(said: object) -> str:
    """Return a text as one line that is safe to show."""
    return " ".join(redact(str(said or ""), os.environ).split())[:_WORDS_MAX]
