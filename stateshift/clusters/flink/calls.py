"""Flink's REST API (1.15 to 2.3), as plain values.

    GET   /config                                {"flink-version", "refresh-interval", ...}
    GET   /jobs/overview                         {"jobs": [{"jid", "name", "state"}, ...]}
    GET   /jobs/<id>                             {"jid", "name", "state", "now",
                                                 "vertices": [VERTEX], ...}; 404
    GET   /jobs/<id>/status                      {"status": "RUNNING"}: as it is now
    PATCH /jobs/<id>?mode=cancel                 202, also of one that has ended; 404
    GET   /jobs/<id>/checkpoints                 {"latest": {"completed", "savepoint", "restored"},
                                                 "history": [...]}
    GET   /jobs/<id>/checkpoints/config          {"state_backend": "HashMapStateBackend", ...}
    GET   /jobs/<id>/execution-result            {"job-execution-result": {"failure-cause":
                                                 {"stack-trace"}}}, once over
    GET   /jobs/<id>/exceptions                  {"exceptionHistory": {"entries": [{"stacktrace",
                                                 "timestamp"}]}}
    POST  /jobs/<id>/savepoints, /jobs/<id>/stop 202 {"request-id"}; twice with one triggerId: one
                                                 savepoint
    GET   /jobs/<id>/savepoints/<trigger>        {"status": {"id": "COMPLETED"},
                                                 "operation": {"location"} or
                                                 {"failure-cause": {"stack-trace"}}};
                                                 404 of one not known or forgotten
    POST  /jobs/<id>/checkpoints                 202 {"request-id"}; not before 1.17
    GET   /jobs/<id>/checkpoints/<trigger>       {"status": {"id": "COMPLETED"},
                                                 "operation": {"checkpointId"} or
                                                 {"failureCause": {"stack-trace"}}}
    GET   /jobs/<id>/vertices/<vertex>/metrics   [{"id": "0.name.group.metric"}, ...]; empty until
                                                 gathered
    GET   /jobs/<id>/vertices/<vertex>           {"now", "subtasks": [{"metrics", "duration"}]}
    GET   /jobs/<id>/vertices/<vertex>/subtasks/metrics?get=<names>&agg=sum
                                                 [{"id": "name", "sum": 7.0}, ...]
    GET   /jobs/<id>/rescales/history            [{"startTimestampInMillis", "terminalState", ...}];
                                                 from 2.3 on, where it is kept
    GET   /overview                              {"slots-total", "slots-available", ...}
    GET   /jobmanager/config                     [{"key", "value"}, ...]
    GET   /jobs/<id>/config                      {"execution-config": {"job-parallelism",
                                                 "restart-strategy", "object-reuse-mode",
                                                 "user-config": {...}}}
    GET   /jars, POST /jars/upload, POST /jars/<id>/run
    POST  /jars/<id>/plan                        {"plan": {"name", "nodes": [{"id", ...}]}}: main
                                                 was run up to its `execute`
    GET, PUT /jobs/<id>/resource-requirements    {"<vertex>": {"parallelism": {"lowerBound",
                                                 "upperBound"}}}

Flink answers for a job's parts and its checkpoints with what it has gathered within the last
web.refresh-interval, three seconds by default (DefaultExecutionGraphCache,
AbstractCheckpointStatsHandler): a job that is long over may seem to run. Its state alone
(JobStatusHandler), a savepoint and a checkpoint that were asked for are answered as they are.

A job that fails before it runs, as one whose savepoint does not fit, stays there FAILED, without
vertices; its id can be given to no other until Flink forgets it (jobstore.expiration-time, an
hour). A refusal carries a Java stack (`flink_causes`), in an HTTP 500 as well: one that says what
is wrong has had no effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar, Unpack
from urllib.parse import quote

from stateshift.clusters.flink.causes import cause_of
from stateshift.clusters.flink.values import (
    ENDED,
    STATES,
    Checkpoints,
    Job,
    Triggered,
    checkpoints_of,
    job_of,
    savepoint_of,
    triggered_checkpoint_of,
)
from stateshift.clusters.http import (
    OTHER_FIELDS,
    FileForm,
    Json,
    Query,
    Refused,
    Service,
    Unanswered,
    authentication,
    secret_headers,
)
from stateshift.clusters.options import Options
from stateshift.clusters.protocol import RunningJob
from stateshift.clusters.redaction import redact
from stateshift.errors import ClusterError

T = TypeVar("T")

OUTAGE_SECONDS: Final = 30.0
LISTED_MAX: Final = 8  # jobs that a hint names
_PASSWORD: Final = "STATESHIFT_FLINK_PASSWORD"
_CREDENTIALS: Final = (
    'give the cluster "auth" and "user", with the password in STATESHIFT_FLINK_PASSWORD or a '
    '"password_file"; or a "token_file"; or "header_files" for a gateway before it'
)


@dataclass(frozen=True)
class Asking:
    """Requests to Flink over HTTP, to its JobManager or the SQL gateway before it: the credentials,
    and the meaning of a "no" with a stack. A failure that says what is wrong is a refusal, whatever
    its code. `options` are the cluster's, checked; `option` is the one that says where this is.
    """

    cluster: str
    url: str
    options: Options = field(default_factory=dict)
    words: str = "Flink"
    api: str = "Flink's REST API"
    example: str = "http://jobmanager:8081"
    option: str = "url"

    def call(
        self,
        method: str,
        path: str,
        failed: str | None = None,
        hints: Mapping[int, str] | None = None,
        **query: Unpack[Query],
    ) -> Json:
        """Return the answer's object; `failed` says what a refusal means, `hints` ways out."""
        service, url = self.service(), self.place(path)
        return self._in_its_words(lambda: service.json(method, url, **query), failed, hints or {})

    def listed(self, path: str, **query: Unpack[Query]) -> list[Json]:
        service, url = self.service(), self.place(path)
        return self._in_its_words(lambda: service.listed("GET", url, **query), None, {})

    def service(self) -> Service:
        """Return Flink as requests go there, with the credentials."""
        return Service(
            cluster=self.cluster,
            words=self.words,
            example=self.example,
            said="errors",
            ways_out={
                401: _CREDENTIALS,
                403: "this user may not do that: ask who runs the gateway before Flink",
                404: self._right,
            },
            options=self.options,
            headers=secret_headers(self.options, self.cluster),
            authentication=authentication(self.options, self.cluster, _PASSWORD),
            option=self.option,
        )

    def _in_its_words(
        self, ask: Callable[[], T], failed: str | None, hints: Mapping[int, str]
    ) -> T:
        try:
            return ask()
        except (Refused, Unanswered) as error:
            cause = cause_of(error.answer)
            if cause is None:
                raise
            # The same error with the cause that Flink names.
            status = error.status or 0
            hint = cause.hint or hints.get(status) or error.hint
            means = f"{failed}: " if failed else ""
            is_refusal = isinstance(error, Refused) or (status == 500 and cause.certain)
            kind = Refused if is_refusal else Unanswered
            raise kind(
                f"{redact(self.url)}: {means}{cause.fact}",
                status,
                error.answer,
                cluster=self.cluster,
                hint=hint or "the JobManager's log has all of it",
            ) from error

    def place(self, path: str) -> str:
        return self.url.rstrip("/") + path

    @contextmanager
    def read(self, path: str) -> Iterator[None]:
        """Report whoever answers with other fields than Flink does: an answer is read in here."""
        try:
            yield
        except OTHER_FIELDS as error:
            raise Unanswered(
                f"{redact(self.place(path))} does not answer as {self.words} does there: "
                f"{type(error).__name__} {error}",
                cluster=self.cluster,
                hint=self._right,
            ) from error

    @property
    def _right(self) -> str:
        return f'"{self.option}" has to be that of {self.api}, such as {self.example}'


class FlinkCalls(Asking):
    """The calls of a JobManager."""

    @property
    def of_one_application(self) -> bool:
        """Whether the cluster goes when its job has ended."""
        return bool(self.options.get("application"))

    def has_gone(self, silent: Unanswered) -> bool:
        """Whether an answer that did not come means that the cluster has gone with its job."""
        return self.of_one_application

    def unless_gone(self, ask: Callable[[], T], gone: T) -> T:
        """Return an answer, or what holds of a cluster that has gone with its job."""
        try:
            return ask()
        except Unanswered as silent:
            if not self.has_gone(silent):
                raise
            return gone

    @property
    def outage_seconds(self) -> float:
        """How long Flink may be silent: a JobManager takes a while to restart."""
        return float(self.options.get("outage_seconds", OUTAGE_SECONDS))

    def version(self) -> str | None:
        version = self.call("GET", "/config").get("flink-version")
        return str(version) if version else None

    def refresh_seconds(self) -> float:
        """Return the age that the pages of a job's parts and checkpoints may have."""
        with self.read("/config"):
            return float(self.call("GET", "/config").get("refresh-interval", 3000)) / 1000

    def jobs(self) -> tuple[tuple[str, str, str], ...]:
        """Return (id, name, state) of each that Flink knows of, in its words."""
        with self.read("/jobs/overview"):
            jobs = self.call("GET", "/jobs/overview")["jobs"]
            return tuple((str(job["jid"]), str(job["name"]), str(job["state"])) for job in jobs)

    def alive(self) -> tuple[RunningJob, ...]:
        jobs = self.jobs()
        running = [RunningJob(id, name, STATES[word]) for id, name, word in jobs if word in STATES]
        return tuple(job for job in running if job.state.alive)

    def ended_as(self, name: str) -> str | None:
        """Return the state in which this name's last job ended; None if unknown."""
        ended = []
        with self.read("/jobs/overview"):
            for job in self.call("GET", "/jobs/overview")["jobs"]:
                if str(job["name"]) == name and str(job["state"]) in ENDED:
                    ended.append((int(job["end-time"]), str(job["state"]).lower()))
        return max(ended)[1] if ended else None

    def unknown(self, id: str) -> ClusterError:
        running = ", ".join(f"{job.id} ({job.name})" for job in self.alive()[:LISTED_MAX])
        return ClusterError(
            f"Flink at {self.url} knows no job {id}",
            cluster=self.cluster,
            job=id,
            hint=f"{f'jobs that run there: {running}' if running else 'no job runs there'}; one "
            "that ended is forgotten after a while: name what it left, its savepoint or last "
            'checkpoint, in "existing_savepoint_paths"',
        )

    def job(self, id: str) -> Job | None:
        answer = self._call_or_none(f"/jobs/{id}")
        with self.read(f"/jobs/{id}"):
            job = None if answer is None else job_of(answer)
        # A job that has come to nothing is known by having no parts: both at one time.
        if job is None or not job.vertices:
            return job
        return replace(job, flink_state=self.state(id) or job.flink_state)

    def state(self, id: str) -> str | None:
        """Return Flink's own word for a job's state; None if it knows no such job, or no page."""
        try:
            answer = self._call_or_none(f"/jobs/{id}/status")
        except Refused as refused:
            if refused.status in (404, 405):
                return None
            raise
        return None if answer is None else str(answer.get("status"))

    def cancel(self, id: str) -> None:
        """Cancel a job; one that is not there, or has ended, is fine."""
        try:
            self.call("PATCH", f"/jobs/{id}", params={"mode": "cancel"})
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    def checkpoints(self, id: str) -> Checkpoints:
        # With them come quantiles of how long they took, which Flink computes for whoever asks
        # first: another who asks meanwhile gets a NullArgumentException (seen of 2.3).
        for _ in range(5):
            try:
                answer = self._known_of(id, "checkpoints")
                break
            except Refused as refused:
                if "NullArgumentException" not in refused.fact:
                    raise
            time.sleep(0.05)
        else:
            answer = self._known_of(id, "checkpoints")
        if answer is None:
            return Checkpoints(None, None, ())
        with self.read(f"/jobs/{id}/checkpoints"):
            return checkpoints_of(answer)

    def takes_savepoint(self, id: str) -> bool:
        """Whether a savepoint of this job is under way."""
        with self.read(f"/jobs/{id}/checkpoints"):
            history = (self._known_of(id, "checkpoints") or {}).get("history") or ()
            under_way = [made for made in history if made["status"] == "IN_PROGRESS"]
            return any(made["is_savepoint"] for made in under_way)

    def state_size(self, id: str) -> int | None:
        latest = (self._known_of(id, "checkpoints") or {}).get("latest") or {}
        with self.read(f"/jobs/{id}/checkpoints"):
            made = latest.get("completed") or latest.get("savepoint") or {}
            size = made.get("state_size")
            return None if size is None else int(size)

    def settings(self, id: str) -> Json:
        return self._known_of(id, "checkpoints/config") or {}

    def exceptions(self, id: str) -> list[Json]:
        """Return the exceptions of a job, newest first: stacktrace, timestamp, taskName."""
        page = self._known_of(id, "exceptions") or {}
        history = (page.get("exceptionHistory") or {}).get("entries")
        entries = history if isinstance(history, list) else []
        entries = [entry for entry in entries if isinstance(entry, dict)]
        root = page.get("root-exception")  # before 2.0, also of one that is not in the history
        if entries or not root:
            return entries
        return [{"stacktrace": root, "timestamp": page.get("timestamp")}]

    def failure(self, id: str) -> Json:
        """Return the failure that a job ended with, which its exceptions do not always have."""
        with self.read(f"/jobs/{id}/execution-result"):
            page = self._known_of(id, "execution-result") or {}
            return (page.get("job-execution-result") or {}).get("failure-cause") or {}

    def metrics(self, id: str, vertex: str) -> tuple[str, ...]:
        path = f"/jobs/{id}/vertices/{vertex}/metrics"
        with self.read(path):
            return tuple(str(metric["id"]) for metric in self.listed(path))

    def page(self, id: str) -> Json | None:
        return self._call_or_none(f"/jobs/{id}")

    def vertex_page(self, id: str, vertex: str) -> Json:
        """Return a vertex's counts by subtask; asking makes Flink gather newer ones."""
        return self.call("GET", f"/jobs/{id}/vertices/{vertex}")

    def sums(self, id: str, vertex: str, metrics: Sequence[str]) -> dict[str, float]:
        """Return the sum of each metric over a vertex's subtasks, as far as Flink has it."""
        path = f"/jobs/{id}/vertices/{vertex}/subtasks/metrics"
        with self.read(path):
            asked = {"get": ",".join(metrics), "agg": "sum"}
            answer = self.listed(path, params=asked)
            return {str(metric["id"]): float(metric["sum"]) for metric in answer}

    def rescales(self, id: str) -> list[Json]:
        try:
            return self.listed(f"/jobs/{id}/rescales/history")
        except (Refused, Unanswered):
            return []

    def slots(self) -> tuple[int, int]:
        with self.read("/overview"):
            overview = self.call("GET", "/overview")
            return int(overview["slots-total"]), int(overview["slots-available"])

    def memory(self) -> tuple[int, int] | None:
        """Return the bytes that the TaskManagers have for tasks, and how many of them, at most, no
        slot has taken; None where there is none, or one does not tell. Source: TaskManagerInfo,
        ResourceProfileInfo (1.15 to 2.3): whole MiB, rounded down.
        """
        with self.read("/taskmanagers"):
            managers = self.call("GET", "/taskmanagers")["taskmanagers"]
            pairs = [(each.get("totalResource"), each.get("freeResource")) for each in managers]
            if not pairs or any(total is None or free is None for total, free in pairs):
                return None
            every = unused = 0
            for total, free in pairs:
                for kind in _TASK_MEMORY:
                    every += int(total[kind])
                    # At most: less than a MiB of each kind was left out. Four slots have 383 and
                    # 512 MiB of Flink's default memory, and one of them 95 and 128.
                    if int(free[kind]) > 0:
                        unused += min(int(total[kind]), int(free[kind]) + 1)
        return (every << 20, unused << 20) if every > 0 else None

    def configuration(self) -> dict[str, str]:
        with self.read("/jobmanager/config"):
            settings = self.listed("/jobmanager/config")
            return {str(setting["key"]): str(setting["value"]) for setting in settings}

    def trigger(self, id: str, stop: bool, body: Json) -> None:
        self.call("POST", f"/jobs/{id}/{'stop' if stop else 'savepoints'}", json=body)

    def triggered(self, id: str, trigger: str) -> Triggered | None:
        """Return a savepoint that was asked for; Flink forgets it five minutes after its end."""
        answer = self._call_or_none(f"/jobs/{id}/savepoints/{trigger}")
        with self.read(f"/jobs/{id}/savepoints/{trigger}"):
            return None if answer is None else savepoint_of(answer)

    def trigger_checkpoint(self, id: str) -> str:
        """Ask for a checkpoint of the kind that the job takes anyway. Return the request's id."""
        with self.read(f"/jobs/{id}/checkpoints"):
            return str(self.call("POST", f"/jobs/{id}/checkpoints", json={})["request-id"])

    def triggered_checkpoint(self, id: str, trigger: str) -> Triggered | None:
        """Return a checkpoint that was asked for; None if Flink does not know it any more."""
        answer = self._call_or_none(f"/jobs/{id}/checkpoints/{trigger}")
        with self.read(f"/jobs/{id}/checkpoints/{trigger}"):
            return None if answer is None else triggered_checkpoint_of(answer)

    def jar_of(self, name: str) -> str | None:
        ids = (id for id, called in self.jars().items() if called == name)
        return next(ids, None)

    def jars(self) -> dict[str, str]:
        with self.read("/jars"):
            files = self.call("GET", "/jars", hints=_NO_JARS)["files"]
            return {str(file["id"]): str(file["name"]) for file in files}

    def upload(self, jar: Path, name: str) -> str:
        with (
            FileForm.of(jar, "jarfile", name, "application/x-java-archive") as form,
            self.read("/jars/upload"),
        ):
            headers, failed = {"Content-Type": form.content_type}, "the jar was not taken"
            answer = self.call("POST", "/jars/upload", failed, _NO_JARS, data=form, headers=headers)
            return str(answer["filename"]).rpartition("/")[2]

    def run(self, jar: str, body: Json) -> str:
        path = f"/jars/{quote(jar, safe='')}/run"
        with self.read(path):
            answer = self.call("POST", path, "the job was not started", _NO_JARS, json=body)
            return str(answer["jobid"])

    def plan(self, jar: str, body: Json) -> Json:
        path = f"/jars/{quote(jar, safe='')}/plan"
        with self.read(path):
            failed = "the program was refused"
            return dict(self.call("POST", path, failed, _NO_JARS, json=body)["plan"])

    def job_config(self, id: str) -> Json:
        return (self._known_of(id, "config") or {}).get("execution-config") or {}

    def parallelism(self, id: str) -> Json:
        """Return each vertex's: {"<vertex>": {"parallelism": {"lowerBound", "upperBound"}}}."""
        return self.call("GET", f"/jobs/{id}/resource-requirements")

    def set_parallelism(self, id: str, wanted: Json) -> None:
        self.call("PUT", f"/jobs/{id}/resource-requirements", json=wanted)

    def _known_of(self, id: str, what: str) -> Json | None:
        """Return a job's page; none while it is INITIALIZING: Flink answers 500 to all of them."""
        try:
            return self._call_or_none(f"/jobs/{id}/{what}")
        except Refused as refused:
            if "while the JobManager is initializing" in refused.fact:
                return None
            raise

    def _call_or_none(self, path: str) -> Json | None:
        try:
            return self.call("GET", path)
        except Refused as refused:
            errors = refused.answer.get("errors") if isinstance(refused.answer, dict) else None
            if refused.status != 404 or not isinstance(errors, list):
                raise
            # A server that has no such page answers 404 as well: that is not Flink's word.
            if any(str(error).startswith("Not found: ") for error in errors):
                raise
            return None


_TASK_MEMORY: Final = ("taskHeapMemory", "taskOffHeapMemory", "managedMemory")


_NO_JARS: Final = {
    404: "this Flink takes no jars: it is a cluster of one application, or web.submit.enable "
    "is false; submit to a "
    "session cluster, or start the job by a cluster of kind command"
}
