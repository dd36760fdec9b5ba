"""Spark jobs whose drivers are pods: `spark-submit` of this machine starts them, with a master
k8s://… in cluster mode. The master's API server finds a driver, tells how it is, and ends it. It is
asked as spark-submit asks it (`spark.kubernetes.context` and `.namespace`, see `credentials`).

    <state_dir>/<tag>.log, .lock, .pid, .exit   of spark-submit, see `detached`
    <state_dir>/<tag>.json                      {"begun", "options", "place": namespace and server,
                                                "id": the pod once it is seen, "ended": [state,
                                                detail] once that is, "stopped", "died"}, `noted`
    <state_dir>/<tag>.deployed, .ended          see `deploy`; runs of older versions have no .json
    <state_dir>/<pod>.pod.log                   what a driver has said, read before it is deleted

Two labels go with a driver, which any run finds it by: stateshift/tag and stateshift/place, digests
of the tag and of the location. A label's value has at most 63 letters, digits, `-`, `_` and `.`; a
digest has 32 hexadecimal digits. The pod's name is made of the tag, too: the API server makes no
second one of a name, whoever submits again. `spark-submit` makes the pod first, and then what the
pod mounts (apache/spark: deploy/k8s/submit Client.run): one that is killed in between leaves a pod
that waits for it. It ends once the pod is there (waitAppCompletion=false), unless the spec says
otherwise; what it is and says is of no account once the pod is seen.

A pod is deleted by its uid, with Kubernetes' own time to end. Its restart policy is Never: a driver
is over when its container is, also where a sidecar runs on, and when its pod is gone from where it
was. One that is not seen from anywhere else says nothing: the job is `unknown`. A job without a tag
is unknown, too, where it has no pod: it may be in another namespace.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from shlex import quote
from typing import ClassVar, Final

from stateshift.clusters import detached
from stateshift.clusters.http import Json, Refused, host_of
from stateshift.clusters.kind import ClusterKind, Submit, Surroundings
from stateshift.clusters.kubernetes.calls import EVENT, POD, KubernetesCalls
from stateshift.clusters.kubernetes.resources import TAG
from stateshift.clusters.kubernetes.spark_resources import APP, PLACE, one_line, place_of, words_of
from stateshift.clusters.logged import logs_stop
from stateshift.clusters.noted import Record, digest, noted_origin
from stateshift.clusters.options import Options, read_options, settings
from stateshift.clusters.protocol import (
    JobFailure,
    JobState,
    JobStatus,
    Origin,
    Remedy,
    StopRequest,
    Submission,
    Trial,
)
from stateshift.clusters.redaction import last_lines, redact
from stateshift.clusters.spark_causes import LOG_BYTES, LOG_LINES, failure_of
from stateshift.clusters.spark_submit import deploy
from stateshift.clusters.spark_submit.cluster import (
    IN_SPARK,
    DriversElsewhere,
    SparkSubmit,
    check_submit,
    master_of,
)
from stateshift.clusters.tagged import TaggedCluster
from stateshift.clusters.whole_files import write_whole
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.model import ClusterSpec

_MASTER: Final = "k8s://"
_NAMESPACE: Final = "spark.kubernetes.namespace"
_CONTEXT: Final = "spark.kubernetes.context"
_POD_NAME: Final = "spark.kubernetes.driver.pod.name"
_WAITS: Final = "spark.kubernetes.submission.waitAppCompletion"
_UPLOADS: Final = "spark.kubernetes.file.upload.path"
_OTHER_ACCESS: Final = (
    "spark.kubernetes.authenticate.submission.",
    "spark.kubernetes.trust.certificates",
)
_SOMEBODY_ELSE: Final = "spark-submit would be somebody else there than we are"
_AS_CONTEXT: Final = f"a kubeconfig that has it, and the cluster's {_CONTEXT} names its context"
_APP_NAME: Final = "spark-app-name"  # labels of Spark's own, this one since 3.3
_ROLE: Final = "spark-role"
_CONTAINER: Final = "spark-kubernetes-driver"
_PYTHONS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_LABEL_MAX: Final = 63
_OVER: Final = ("Succeeded", "Failed")  # phases
_KEPT: Final = ".pod.log"
_SIGNALLED: Final = 128  # above it, the shell says which signal ended it
_UNANSWERED: Final = re.compile(r"Operation: \[create\]|An error has occurred|timed? ?out", re.I)
_GONE: Final = "its pod is gone, and how it ended was not seen: it was deleted, or its node drained"
_CONF_VOLUME: Final = "spark-conf-volume-driver"  # BasicDriverFeatureStep, KubernetesUtils
_RIGHTS: Final = "configs/deploy/kubernetes-rbac-pods.yaml"


class DriverPods(DriversElsewhere):
    """See the module."""

    service: ClassVar[str] = "the API server"
    handed_over: ClassVar[str] = "it had made the pod"

    @cached_property
    def calls(self) -> KubernetesCalls:
        """Return the calls of the API server that spark-submit asks, as whoever it asks."""
        conf, master = settings(self.options.get("conf")), self.master(None)
        url = master.removeprefix(_MASTER)
        url = url if "://" in url else f"https://{url}"
        if not url.startswith("https://") and host_of(url) != "":
            fact, hint = f"the master {redact(master)} is not https", "tokens go over TLS alone"
            raise ClusterError(fact, cluster=self.name, hint=hint)
        for key in _other_access(conf):
            fact, hint = f"{key} is not done: {_SOMEBODY_ELSE}", _AS_CONTEXT
            raise ClusterError(fact, cluster=self.name, hint=hint)
        if _NAMESPACE not in conf:
            fact = f'its "conf" has no {_NAMESPACE}: its drivers may be in any namespace'
            hint = "say it there, also where it is default, or spark-defaults.conf has it"
            raise ClusterError(fact, cluster=self.name, hint=hint)
        of_jobs = settings(self.options.get("environment"))
        access = {
            **self.options,
            "server": url,
            "kubeconfig": of_jobs.get("KUBECONFIG"),
            "context": conf.get(_CONTEXT),
            "namespace": conf[_NAMESPACE],
        }
        return KubernetesCalls(self.name, access, self.interrupt, _RIGHTS)

    # ---- finding

    def find(self, tag: str) -> JobStatus:
        # Before the API server is asked: what a spark-submit that is over has made is there then.
        trace, record = detached.trace(self._stem(tag)), self.notes.read(tag) or {}
        pod = self._of_tag(tag)
        if pod is None:
            status = self._of_launcher(tag, trace, record)
        else:
            status = self._status(pod)
            seen: Record = {"id": status.id}
            if status.state in (JobState.FINISHED, JobState.FAILED):
                seen["ended"] = [str(status.state), status.detail]
            if not record:
                seen |= {"begun": time.time(), "place": self.calls.place}
            is_ours = bool(record) or trace.started
            if is_ours and any(record.get(key) != value for key, value in seen.items()):
                self.notes.add(tag, **seen)
        if record.get("stopped") and status.state is JobState.FAILED:
            return JobStatus(JobState.FINISHED, status.id, "stopped")
        if status.state is JobState.UNKNOWN and self._notes.ended_path(tag).exists():
            return JobStatus(JobState.FINISHED, status.id, "a person has seen that it is over")
        return status

    def id_of(self, tag: str) -> str | None:
        pod = self._of_tag(tag)
        return None if pod is None else _name(pod)

    def of_tag(self, tag: str) -> JobStatus | None:
        pod = self._of_tag(tag)
        return None if pod is None else self._status(pod)

    def _of_tag(self, tag: str) -> Json | None:
        """Return the driver that is alive, else the newest, by its label, else by its name."""
        pods = self.calls.every(POD, TAG, digest(tag))
        if pods:
            alive = [pod for pod in pods if _phase(pod) not in _OVER]
            return _newest(alive or pods)
        record, driver = self.notes.read(tag), self._notes.deployed(tag)
        name = (record or {}).get("id")
        if record is None and driver is not None:  # of an older version, which wrote no labels
            name = driver.accepted_as(detached.output_of(self._stem(tag), bytes_max=1 << 26))
        return None if name is None else self.calls.get(POD, str(name))

    def _of_launcher(self, tag: str, trace: detached.Trace, record: Record) -> JobStatus:
        """Return the status of a job whose pod is not seen."""
        place, known = self.calls.place, record.get("id")
        id = str(known or trace.pid)
        if not record and trace.started:
            status = super().find(tag)  # of an older version, which knew the launcher alone
            why = f"spark-submit waits for it, and no pod of it is seen in {place}"
            return JobStatus(JobState.UNKNOWN, id, why) if status.state.alive else status
        if known is None and (trace.held or not trace.started):
            return JobStatus(JobState.QUEUED if trace.held else JobState.ABSENT)
        if "ended" in record:
            state, detail = record["ended"]
            return JobStatus(JobState(state), id, detail)
        if record.get("place", place) != place:
            why = f"it was submitted to {record['place']}, and is not seen in {place}"
            return JobStatus(JobState.UNKNOWN, id, why)
        said = detached.output_of(self._stem(tag))
        is_refused = trace.code and trace.code <= _SIGNALLED and not _UNANSWERED.search(said)
        if is_refused:  # then Spark also deletes a pod that it has made
            return JobStatus(JobState.FAILED, id, f"spark-submit ended with {trace.code}")
        if known is not None or trace.code == 0:
            return JobStatus(JobState.FAILED, id, _GONE)

        return self.settled(tag, record, id)

    def find_untagged(self, request: StopRequest) -> JobStatus:
        """Return the driver that the spec names, else the one for this location, else the one that
        is alive with the name. One that another location's label is on is not it.
        """
        options, calls = self.stop_options(request), self.calls
        if options.get("pod"):
            pod = calls.get(POD, str(options["pod"]))
            if pod is None:
                return JobStatus(JobState.ABSENT)
            self._refuse_kept(pod, request.job)
            return self._status(pod)
        pods = calls.every(POD, PLACE, place_of(request.location))
        app = str(options.get("app_name") or request.job)
        label = _label(app)
        named: list[Json] = []
        executors: list[str] = []
        if label and request.tag is None and all(_phase(pod) in _OVER for pod in pods):
            named, executors = self._named(label)
        alive = [pod for pod in (*pods, *named) if _phase(pod) not in _OVER]
        names = ", ".join(map(_name, alive))
        why, stopped = "", self._notes.stopped(request)
        if alive and named and label != app:
            why = f"{names} may be it: Spark labels {app} as {label}, and others so as well; "
            why += f'"stop": {{"pod": …}} says which it is, or {{"app_name": "{label}"}}'
        elif len(alive) > 1:
            why = f'several are alive: {names}; "stop": {{"pod": …}} says which it is'
        elif executors and not alive:
            why = f"executors of it run ({executors[0]}), and no driver of it: it may be in "
            why += "client mode, elsewhere"
        elif stopped and not alive:
            return JobStatus(JobState.FINISHED, stopped[0], "stopped")
        last = _newest(alive or pods or (named if label == app else []))
        if last is None and not why and request.tag is not None:
            return JobStatus(JobState.ABSENT)
        if last is None or why:
            nowhere = f"no driver of it is in {calls.place}, and it may run elsewhere"
            return JobStatus(JobState.UNKNOWN, None, why or nowhere)
        self._refuse_kept(last, request.job)
        return self._status(last)

    def _named(self, label: str) -> tuple[list[Json], list[str]]:
        """Return the drivers with a name, without those of ours, and its executors that run."""
        drivers: list[Json] = []
        executors: list[str] = []
        for pod in self.calls.every(POD, _APP_NAME, label):
            labels = _labels(pod)
            if labels.get(_ROLE) == "executor" and _phase(pod) not in _OVER:
                executors.append(_name(pod))
            elif labels.get(_ROLE) == "driver" and PLACE not in labels:
                drivers.append(pod)
        return drivers, executors

    def _refuse_kept(self, pod: Json, job: str) -> None:
        """Refuse a driver that somebody would start again once it has ended, and what is none."""
        if _labels(pod).get(_ROLE) != "driver":
            fact = f"the pod {_name(pod)} is no driver of Spark's: it has no label {_ROLE}=driver"
            raise self.error(job, fact, 'correct "pod" of its "stop"')
        keepers = [f"the SparkApplication {_labels(pod)[APP]}"] if APP in _labels(pod) else []
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                keepers.append(f"{owner.get('kind')} {owner.get('name')}")
        if keepers and _phase(pod) not in _OVER:
            fact = f"{_name(pod)} is kept by {keepers[0]}, which may start it again"
            hint = "a cluster of kind spark_operator stops a SparkApplication; or one of kind "
            raise self.error(job, fact, f"{hint}command, with commands of your own")

    def _status(self, pod: Json) -> JobStatus:
        """Return the status by the pod's own words, and by its events' while it waits."""
        name, phase, words = _name(pod), _phase(pod), words_of(pod)
        is_deleting = "deletionTimestamp" in pod["metadata"]
        match phase:
            case "Running" | "Pending":
                if phase == "Pending" and not words:
                    words = "; ".join(self._warnings(name))
                if is_deleting:
                    words = f"is being deleted, and has yet to end; {words}".rstrip("; ")
                state = JobState.RUNNING if phase == "Running" else JobState.QUEUED
                return JobStatus(state, name, words or None)
            case "Succeeded":
                return JobStatus(JobState.FINISHED, name)
            case "Failed":
                return JobStatus(JobState.FAILED, name, words or "failed, and does not say why")
        why = f"its pod {name} is {phase}, for its node does not answer ({words}); once that is "
        why += f"off: kubectl delete pod {name} -n {self.calls.access.namespace} --force"
        return JobStatus(JobState.UNKNOWN, name, why)

    def _warnings(self, name: str) -> list[str]:
        """Return the warnings of a pod's events; none where we may not see them."""
        with suppress(ClusterError):
            events = self.calls.every(EVENT, fields=f"involvedObject.name={name}")
            warnings = [each for each in events if each.get("type") == "Warning"]
            return [one_line(f"{each.get('reason')}: {each.get('message')}") for each in warnings]
        return []

    def origin(self, request: StopRequest, like: Options | None) -> Origin:
        why = "a pod tells neither its file nor its settings, and stateshift did not start it"
        return noted_origin(self.notes, self.find_source(request).id, why)

    # ---- starting

    def try_start(self, submission: Submission) -> Trial:
        """Have a plain pod of the name admitted, as far as that says something of a driver."""
        trial = super().try_start(submission)
        if trial.refused:
            return trial
        untried = [trial.untried] if trial.untried else []
        container = {"name": _CONTAINER, "image": "spark"}
        pod = {
            "apiVersion": POD.api,
            "kind": POD.kind,
            "metadata": {"name": self._settings(submission, submission.options)[_POD_NAME]},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        try:
            self.calls.create(POD, pod, trial=True)
        except Refused as refused:
            # A webhook may miss something in this pod that the job's template has.
            is_sure = any(each in refused.fact for each in ("cannot create", "being terminated"))
            if is_sure or refused.status in (401, 404):
                return Trial(refused.fact, refused.hint)
            untried.append(f"a plain pod would not be admitted: {refused.fact}")
        except ClusterError as error:
            return Trial(error.fact, error.hint)
        else:
            untried.append("whether its image can be pulled shows when the pod is there")
        return Trial(untried="; ".join(untried))

    def prepare(self, submission: Submission, given: Options) -> Callable[[int | None], str]:
        noted = {"options": dict(submission.options), "place": self.calls.place}
        conf = self._settings(submission, given)
        return self.hand_over(submission, {**given, "conf": conf}, noted)

    def _settings(self, submission: Submission, given: Options) -> dict[str, str]:
        variables = {**submission.environment, **settings(given.get("environment"))}
        usual = {f"spark.kubernetes.driverEnv.{name}": each for name, each in variables.items()}
        of_cluster = settings(self.options.get("conf"))
        label = "spark.kubernetes.driver.label."
        job = _label(submission.job)[:30].strip("-") or "job"
        return {
            **usual,
            _WAITS: "false",
            **of_cluster,
            **settings(given.get("conf")),
            # Also where spark-defaults.conf has another one. Without a name, it is the current one.
            _NAMESPACE: self.calls.access.namespace,
            _CONTEXT: of_cluster.get(_CONTEXT, ""),
            _POD_NAME: f"{job}-{digest(submission.tag)[:24]}-driver",  # at most 63 letters
            f"{label}{TAG}": digest(submission.tag),
            f"{label}{PLACE}": place_of(submission.location),
        }

    def _environment(self, submission: Submission, given: Options) -> dict[str, str]:
        """Return the launcher's, without a Python of this machine: it would be the driver's."""
        of_cluster = settings(self.options.get("environment"))
        wanted = {**of_cluster, **submission.environment, **settings(given.get("environment"))}
        every = super()._environment(submission, given)
        unwanted = set(_PYTHONS) - wanted.keys()
        return {key: each for key, each in every.items() if key not in unwanted}

    # ---- stopping

    @logs_stop
    def stop(self, request: StopRequest) -> JobStatus:
        self.end_launcher(request)
        status = self._known(request)
        if status.state.alive and status.id is not None:
            self._notes.stopping(request, [status.id])

        def kill(id: str) -> None:
            pod = self.calls.get(POD, id)
            if pod is not None and _phase(pod) not in _OVER:
                text = self._said(pod, LOG_LINES)
                with suppress(OSError):  # a full disk keeps nobody from stopping
                    kept = self.state_dir / f"{id}{_KEPT}"
                    write_whole(kept, text.encode("utf-8", "replace"))
                self.calls.delete(POD, pod)

        namespace = self.calls.access.namespace
        look = f"kubectl describe pod {{id}} -n {namespace}; if its node is gone for good: kubectl "
        look += f"delete pod {{id}} -n {namespace} --force; then: stateshift resume WORKDIR"
        return self.end(request, kill, look)

    def _known(self, request: StopRequest) -> JobStatus:
        status = self.find_source(request)
        if status.state is not JobState.UNKNOWN:
            return status
        hint = 'say which it is: "stop": {"pod": …}; or see that it does not run, and use a '
        hint += "cluster of kind manual for the source"
        if request.tag is not None and status.id is not None:
            ended = quote(str(self._notes.ended_path(request.tag)))
            hint = f"once it runs no more: touch {ended}; then: stateshift resume WORKDIR"
        fact = f"cannot tell whether {request.job} runs: {status.detail}"
        raise self.error(request.job, fact, hint)

    def has_ended(self, request: StopRequest) -> bool:
        """Whether the driver has, also through an outage of the API server."""
        return bool(self.calls.wait_for(lambda: TaggedCluster.has_ended(self, request), math.inf))

    # ---- reasons

    def log(self, tag: str, lines_max: int = 50) -> str:
        """Return the end of what the driver said; of spark-submit, where there was none."""
        if lines_max <= 0:
            return ""
        pod, record = self._of_tag(tag), self.notes.read(tag) or {}
        kept = self.state_dir / f"{record.get('id')}{_KEPT}"
        if pod is not None:
            return last_lines(self._said(pod, lines_max), lines_max)
        if kept.is_file():
            return last_lines(kept.read_text("utf-8", "replace"), lines_max)
        said = detached.output_of(self._stem(tag), bytes_max=LOG_BYTES)
        return last_lines(redact(said, os.environ), lines_max)

    def _said(self, pod: Json, lines_max: int) -> str:
        """Return the end of a driver's log, and the reasons of its pod, without secrets."""
        said: list[str] = []
        try:
            text = self.calls.pod_log(_name(pod), lines_max, _driver_of(pod))
            # More takes long to redact, while the job writes on.
            said.append(text if len(text) <= LOG_BYTES else text[-LOG_BYTES:].partition("\n")[2])
        except ClusterError as error:
            said.append(f"(the log of {_name(pod)}: {error.fact})")
        said += [words_of(pod), *self._warnings(_name(pod))]
        return redact("\n".join(filter(None, said)), os.environ)

    def failure(self, tag: str, alive: bool = False) -> JobFailure | None:
        failure = failure_of(self.log(tag, LOG_LINES), alive)
        if failure is not None:  # spark-submit says a refusal in words, and then as a value
            return replace(failure, fact=failure.fact.partition(". Received status: ")[0])
        if alive:
            return None
        status = self.find(tag)
        if status.state not in (JobState.QUEUED, JobState.FAILED):
            return None
        remedy = Remedy.UNKNOWN if status.detail == _GONE else Remedy.OTHER_SUBMIT
        return JobFailure(status.detail or str(status.state), remedy)


def _name(pod: Json) -> str:
    return str(pod["metadata"]["name"])


def _labels(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _newest(pods: Sequence[Json]) -> Json | None:
    ordered = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    return ordered[-1] if ordered else None


def _driver_of(pod: Json) -> str:
    """Return the container of the driver. A pod template names it as it likes, and sidecars stand
    before and after it; Spark mounts its settings into it alone (BasicDriverFeatureStep).
    """
    containers = (pod.get("spec") or {}).get("containers") or ()
    names = [str(each["name"]) for each in containers]
    for each in containers:
        mounts = each.get("volumeMounts") or ()
        if any(mount.get("name") == _CONF_VOLUME for mount in mounts):
            return str(each["name"])
    return _CONTAINER if _CONTAINER in names or not names else names[-1]


def _phase(pod: Json) -> str:
    """Return the phase of a pod; of one in which only sidecars run on, by its driver's end."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if container.get("name") == _driver_of(pod) and ended:
            return "Failed" if ended.get("exitCode") else "Succeeded"
    return str(status.get("phase"))


def _label(name: str) -> str:
    """Return Spark's label for an application's name (KubernetesConf.getAppNameLabel)."""
    plain = re.sub(r"[^a-z0-9-]", "-", name.strip().lower())
    return re.sub("-+", "-", plain)[:_LABEL_MAX].removeprefix("-").removesuffix("-")


def _other_access(conf: Mapping[str, str]) -> list[str]:
    """Return the settings by which spark-submit would be somebody else than a kubeconfig says."""
    names = (name for name in conf if name.startswith(_OTHER_ACCESS))
    return [name for name in names if conf[name] != "false"]


def is_driver_pods(options: Options, given: Options, connection: str | None = None) -> bool:
    """Whether a submission to a cluster with these options makes a pod of its driver."""
    is_of_cluster = master_of(options, connection).startswith(_MASTER)
    return is_of_cluster and deploy.deploy_mode(options, given) == "cluster"


def open_launcher(name: str, options: Options, surroundings: Surroundings) -> SparkSubmit:
    """Open a cluster whose jobs this machine's spark-submit starts, by where its drivers run."""
    kind = DriverPods if is_driver_pods(options, {}) else SparkSubmit
    return kind.open(name, options, surroundings)


def check_start(cluster: ClusterSpec, submit: Submit) -> None:
    """Refuse also a pod that we would look for in another place, or could not name."""
    check_submit(cluster, submit)
    given = read_options(submit.options, SparkSubmit.takes.submit, submit.pointer)
    is_pod = is_driver_pods(cluster.options, given, submit.connection)
    is_looked_for = is_driver_pods(cluster.options, {})
    if is_pod or is_looked_for:
        complaints = tuple(_unlike_cluster(cluster.options, given, submit.pointer))
        if submit.connection or is_pod != is_looked_for:
            fact = "pods of drivers are looked for where the cluster itself makes them"
            expected = '"master" and "deploy_mode" of the cluster alone'
            complaints += (Complaint(submit.pointer, fact, submit.connection, expected),)
        if complaints:
            raise SpecError(complaints)


def _unlike_cluster(options: Options, given: Options, pointer: str) -> Iterator[Complaint]:
    of_cluster, own = settings(options.get("conf")), settings(given.get("conf"))
    for key in _other_access(own):
        yield Complaint(f"{pointer}/conf", f"it is not done: {_SOMEBODY_ELSE}", key, _AS_CONTEXT)
    for key in (_NAMESPACE, _CONTEXT):
        if key in own and own[key] != of_cluster.get(key):
            fact = f"the cluster's {key} is where the job would be looked for"
            yield Complaint(f"{pointer}/conf", fact, own[key], "the cluster's own, or none")
    if "KUBECONFIG" in settings(given.get("environment")):
        fact = "the cluster's KUBECONFIG is by which the job would be looked for"
        yield Complaint(f"{pointer}/environment", fact, "KUBECONFIG", "that of the cluster alone")
    if _POD_NAME in {**of_cluster, **own}:
        fact = f"{_POD_NAME} is made of the tag, so that no job is started twice"
        yield Complaint(f"{pointer}/conf", fact, _POD_NAME, 'none; a "stop" may name a "pod"')
    if _UPLOADS not in {**of_cluster, **own}:
        for file in (str(given["application"]), *map(str, given.get("py_files", ()))):
            is_here = "{" not in file and file.rpartition(":")[0] in ("", "file")
            if is_here and file not in IN_SPARK:
                fact = f"a file of this machine does not reach a pod without {_UPLOADS}"
                expected = "local:///… in the image, s3a://…, or it in conf, not in "
                yield Complaint(pointer, fact, file, f"{expected}spark-defaults.conf alone")


KIND = ClusterKind("spark_submit", SparkSubmit.takes.cluster, open_launcher, check_start)
