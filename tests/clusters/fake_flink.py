"""A stand-in that answers as Flink 2.3.0 was seen to answer (tests/servers/test_flink_rest.py asks
the real one), and that can be told to misbehave: what is tested with it are lost answers and odd
ones, not Flink.
"""

from __future__ import annotations

import ssl
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.clusters import faulty_server
from tests.clusters.fake_gateway import FakeGateway
from tests.clusters.faulty_server import StandIn

SOURCE, COUNT = "ca88eee0095684d687a1b6495617f957", "b71731f1c0df9c3076c4a455334d0ad6"
ENDED = ("FINISHED", "CANCELED", "FAILED")


def stack(*causes: str) -> str:
    """As Java tells it: the outermost first."""
    frames = "\n\tat org.apache.flink.runtime.X.y(X.java:7)\n\t... 4 more"
    return "\n".join(
        ("Caused by: " if number else "") + cause + frames for number, cause in enumerate(causes)
    )


def errors(*causes: str) -> dict[str, Any]:
    return {"errors": [stack(*causes)]}


def server_error(*causes: str) -> dict[str, Any]:
    said = f"<Exception on server side:\n{stack(*causes)}\n\nEnd of exception on server side>"
    return {"errors": ["Internal server error.", said]}


@dataclass
class FakeJob:
    id: str
    name: str
    state: str = "RUNNING"
    task_state: str = "RUNNING"
    parallelism: int = 2
    parallelism_max: int = 128
    restored: dict[str, Any] | None = None
    made: list[dict[str, Any]] = field(
        default_factory=list
    )  # its checkpoints and savepoints, oldest first
    exceptions: list[str] = field(default_factory=list)  # newest first
    settings: dict[str, Any] = field(
        default_factory=lambda: {"state_backend": "HashMapStateBackend"}
    )
    born: bool = True  # it came as far as having tasks
    lingers: int = 0  # times it is still told to run after it was stopped
    ends_as: str = ""
    asks_async: bool = False  # its state (V2)
    fails_with: str = ""  # the stack of its task, when a savepoint of it is given up
    result: str = ""  # the stack that it has failed with
    ended_ms: int = -1

    def checkpointed(
        self, id: int, path: str, kind: str = "CHECKPOINT", triggered: int = 0
    ) -> None:
        self.made.append(
            {
                "id": id,
                "status": "COMPLETED",
                "is_savepoint": kind != "CHECKPOINT",
                "checkpoint_type": kind,
                "external_path": path,
                "trigger_timestamp": triggered,
            }
        )


def _in_overview(job: FakeJob) -> dict[str, Any]:
    """A job on the page of all; source: Flink, JobDetails."""
    return {"jid": job.id, "name": job.name, "state": job.state, "end-time": job.ended_ms}


@dataclass
class FakeFlink(StandIn):
    """`refuses` is why the next run is refused; `fails` are the stacks of the next savepoints that
    fail, `fails_behind` why the next jobs fail that are stopped, once their savepoint is there;
    `slow` is how often a savepoint is asked about before it is done, `lingers` how often its job
    after that before it has ended. `stale` is how often a job's checkpoints are told as they were
    the first time, `miscounts` how often they are not told because somebody else asks as well.
    """

    version: str = "2.3.0"
    scheduler: str = "Adaptive"
    started: Counter[str] = field(
        default_factory=Counter
    )  # by the last argument: the tag; in SQL, by the job's id
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    jars: dict[str, str] = field(default_factory=dict)
    uploads: list[bytes] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # for savepoints
    triggers: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    refuses: deque[str] = field(default_factory=deque)
    fails: deque[str] = field(default_factory=deque)
    fails_behind: deque[str] = field(default_factory=deque)
    slow: int = 1
    lingers: int = 2
    takes_jars: bool = True
    takes_checkpoints: bool = True
    tells_state: bool = True
    stale: int = 0
    refresh_milliseconds: int = 200
    miscounts: int = 0
    checkpoints: list[dict[str, Any]] = field(default_factory=list)  # that were asked for
    slots: int = 8
    configured: dict[str, str] = field(default_factory=dict)
    gathers: int = 0  # how many questions about metrics that takes
    initializes: int = 0  # how many questions about a job that is INITIALIZING that takes
    faulty: str = "/run"
    now: Iterator[int] = field(default_factory=lambda: count(1_000))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.gateway = FakeGateway(self)

    def submits(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith(self.faulty)

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        with self.lock:
            match (method, path.strip("/").split("/")):
                case ("GET", ["config"]):
                    return 200, {
                        "flink-version": self.version,
                        "refresh-interval": self.refresh_milliseconds,
                        "features": {},
                    }
                case (_, ["jars", *rest]) if self.takes_jars:
                    return self._jars(rest, body)
                case ("GET", ["overview"]):
                    return 200, {"slots-total": self.slots, "slots-available": self.slots}
                case ("GET", ["jobmanager", "config"]):
                    return 200, [
                        {"key": key, "value": value} for key, value in self.configured.items()
                    ]
                case ("GET", ["jobs", "overview"]):
                    every = [*self.jobs.values()][::-1]
                    return 200, {"jobs": [_in_overview(j) for j in every]}
                case (_, ["v1", *rest]):
                    return self.gateway.answer(method, rest, body)
                case (_, ["jobs", id, *rest]):
                    return self._job(method, id, rest, body)
        return 404, {"errors": [f"Not found: {path}"]}

    def begin(self, id: str, name: str = "orders", **more: Any) -> FakeJob:
        """A job of somebody else."""
        self.jobs[id] = FakeJob(id, name, **more)
        return self.jobs[id]

    def forget(self) -> None:
        """What it knew: as a JobManager that was started anew."""
        with self.lock:
            self.jobs.clear()
            self.triggers.clear()

    def _jars(self, rest: list[str], body: Any) -> tuple[int, Any]:
        match rest:
            case []:
                return 200, {"files": [{"id": id, "name": name} for id, name in self.jars.items()]}
            case ["upload"]:
                self.uploads.append(body)
                name = body.partition(b'filename="')[2].partition(b'"')[0].decode()
                self.jars[f"{len(self.uploads)}_{name}"] = name
                return 200, {
                    "filename": f"/tmp/flink-web-upload/{len(self.uploads)}_{name}",
                    "status": "success",
                }
            case [jar, "run"] if jar in self.jars:
                return self._run(body)
        missing = (
            "org.apache.flink.runtime.rest.handler.RestHandlerException: Jar file "
            f"/tmp/{rest[0]} does not exist"
        )
        return 500, server_error(f"java.util.concurrent.CompletionException: {missing}", missing)

    def _run(self, body: dict[str, Any]) -> tuple[int, Any]:
        id, tag = body["jobId"], (body["programArgsList"] or [""])[-1]
        failed = (
            "org.apache.flink.client.program.ProgramInvocationException: The main method "
            "caused an error: Failed."
        )
        if id in self.jobs:
            known = (
                "org.apache.flink.runtime.client.DuplicateApplicationSubmissionException: "
                "Application has already "
            )
            return 400, errors(failed, f"{known}been submitted.")
        self.bodies.append(body)
        why = self._born(id, "orders", tag, body.get("savepointPath"), body.get("parallelism", 2))
        return (200, {"jobid": id}) if why is None else (400, errors(failed, why))

    def started_by_sql(
        self, id: str, name: str, path: str | None, parallelism: int
    ) -> tuple[str, ...]:
        """Why it could not be."""
        failed = "org.apache.flink.util.FlinkException: Failed to execute job 'orders'."
        if id in self.jobs:
            known = (
                "org.apache.flink.runtime.client.DuplicateApplicationSubmissionException: "
                "Application has already "
            )
            return failed, f"{known}been submitted."
        why = self._born(id, name, id, path, parallelism)
        return () if why is None else (failed, why)

    def _born(self, id: str, name: str, tag: str, path: str | None, parallelism: int) -> str | None:
        """Why it was not."""
        if self.refuses:
            why = self.refuses.popleft()
            failed_at = stack("x.JobInitializationException: Could not start the JobMaster.", why)
            self.jobs[id] = FakeJob(id, name, "FAILED", exceptions=[failed_at], born=False)
            return why
        self.started[tag] += 1
        said = stack("java.lang.IllegalStateException: no connection with password=hunter22")
        self.jobs[id] = FakeJob(id, name, parallelism=parallelism, exceptions=[said])
        if path:
            self.jobs[id].restored = {"id": 7, "external_path": path, "is_savepoint": True}
        return None

    def _measured(self, job: FakeJob, vertex: str) -> list[str]:
        """Of a job that asks its state asynchronously, once that was gathered."""
        if self.gathers > 0:
            self.gathers -= 1
            return []
        own = (
            ["0.orders_count.asyncStateProcessing.numInFlightRecords"]
            if job.asks_async and vertex == COUNT
            else []
        )
        return ["0.busyTimeMsPerSecond", *own]

    def _job(self, method: str, id: str, rest: list[str], body: Any) -> tuple[int, Any]:
        job = self.jobs.get(id)
        if job is not None and self.initializes and job.state == "INITIALIZING":
            self.initializes -= 1
            job.state = job.state if self.initializes else "RUNNING"
        if rest[:1] in (["savepoints"], ["stop"]):
            return self._savepoints(method, id, rest, body)
        if job is None:
            return 404, errors(
                f"org.apache.flink.runtime.rest.NotFoundException: Job {id} not found"
            )
        if job.state == "INITIALIZING" and rest not in ([], ["status"]):
            name = "org.apache.flink.runtime.dispatcher.UnavailableDispatcherOperationException"
            return 500, server_error(
                f"{name}: It is not available while the JobManager is initializing."
            )
        match (method, rest):
            case ("POST", ["checkpoints"]) if self.takes_checkpoints:
                self.checkpoints.append({"polls": self.slow, "job": job})
                return 202, {"request-id": f"{len(self.checkpoints):032d}"}
            case ("POST", ["checkpoints"]):
                return 405, {"errors": ["Method not allowed"]}
            case ("GET", ["checkpoints", trigger]) if trigger.isdigit():
                return 200, self._completed(self.checkpoints[int(trigger) - 1])
            case ("PATCH", []):
                if job.state not in ENDED:
                    job.lingers, job.ends_as = self.lingers, "CANCELED"
                return 202, {}
            case (_, []):
                return 200, self.told(job)
            case (_, ["status"]) if self.tells_state:
                return 200, {"status": job.state}
            case (_, ["status"]):
                return 404, {"errors": [f"Not found: /jobs/{id}/status"]}
            case (_, ["checkpoints"]) if self.miscounts:
                self.miscounts -= 1
                failed = "org.apache.commons.math3.exception.NullArgumentException: input array"
                return 500, server_error(
                    f"java.util.concurrent.CompletionException: {failed}", failed
                )
            case (_, ["checkpoints"]):
                self.stale -= 1
                made = job.made if self.stale < 0 else job.made[:1]
                latest = {"completed": None, "savepoint": None, "restored": job.restored}
                for one in made:
                    latest["savepoint" if one["is_savepoint"] else "completed"] = one
                return 200, {"latest": latest, "history": made[::-1]}
            case (_, ["checkpoints", "config"]):
                return 200, job.settings
            case (_, ["execution-result"]):
                failed = (
                    {"failure-cause": {"class": "x.Y", "stack-trace": job.result}}
                    if job.result
                    else {}
                )
                ended = job.state in ENDED
                status = {"status": {"id": "COMPLETED" if ended else "IN_PROGRESS"}}
                return 200, {
                    **status,
                    "job-execution-result": {"id": id, **failed} if ended else None,
                }
            case ("GET", ["vertices", vertex, "metrics"]):
                return 200, [{"id": name} for name in self._measured(job, vertex)]
            case (_, ["exceptions"]):
                common = {"timestamp": 1795333803008, "taskName": "count (1/2)"}
                return 200, {
                    "exceptionHistory": {
                        "entries": [{"stacktrace": e, **common} for e in job.exceptions]
                    }
                }
        return self._requirements(method, job, body)

    def _completed(self, asked: dict[str, Any]) -> dict[str, Any]:
        asked["polls"] -= 1
        if asked["polls"] >= 0:
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        if "operation" not in asked and self.fails:
            failed = "java.util.concurrent.CompletionException"
            told = {"class": failed, "stack-trace": stack(failed, self.fails.popleft())}
            asked["operation"] = {"failureCause": told}
        elif "operation" not in asked:
            job, number = asked["job"], len(asked["job"].made) + 1
            job.checkpointed(number, f"file:/ck/{job.id}/chk-{number}", triggered=next(self.now))
            asked["operation"] = {"checkpointId": number}
        return {"status": {"id": "COMPLETED"}, "operation": asked["operation"]}

    def told(self, job: FakeJob) -> dict[str, Any]:
        if job.ends_as:
            job.lingers -= 1
            if job.lingers < 0:
                job.state = job.task_state = job.ends_as
                job.ends_as = ""
        vertices = [
            {
                "id": id,
                "name": name,
                "parallelism": job.parallelism,
                "maxParallelism": job.parallelism_max,
                "status": job.task_state,
            }
            for id, name in ((SOURCE, "Source: numbers"), (COUNT, "count -> none: Writer"))
            if job.born
        ]
        return {
            "jid": job.id,
            "name": job.name,
            "state": job.state,
            "now": next(self.now),
            "vertices": vertices,
            "schedulerType": self.scheduler,
        }

    def _savepoints(self, method: str, id: str, rest: list[str], body: Any) -> tuple[int, Any]:
        if method == "GET":
            asked = self.triggers.get((id, rest[1]))
            if asked is None:
                why = f"There is no savepoint operation with triggerId={rest[1]} for job {id}."
                return 404, errors(
                    f"org.apache.flink.runtime.rest.handler.RestHandlerException: {why}"
                )
            return 200, self._done(self.jobs[id], asked)
        if (id, body["triggerId"]) not in self.triggers:
            self.asked.append((rest[0], body))
            self.triggers[id, body["triggerId"]] = {
                "polls": self.slow,
                "stop": rest == ["stop"],
                "body": body,
            }
        return 202, {"request-id": body["triggerId"]}

    def _done(self, job: FakeJob, asked: dict[str, Any]) -> dict[str, Any]:
        asked["polls"] -= 1
        if asked["polls"] >= 0:
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        if "operation" not in asked:
            asked["operation"] = self._taken(job, asked["stop"], asked["body"])
        return {"status": {"id": "COMPLETED"}, "operation": asked["operation"]}

    def _taken(self, job: FakeJob, stop: bool, body: dict[str, Any]) -> dict[str, Any]:
        if self.fails:
            why = self.fails.popleft()
            if job.fails_with:
                job.exceptions.insert(0, job.fails_with)
            failed = "java.util.concurrent.CompletionException"
            return {"failure-cause": {"class": failed, "stack-trace": stack(failed, why)}}
        directory = body.get("targetDirectory" if stop else "target-directory", "file:/savepoints")
        location = f"{directory.replace('///', '/')}/savepoint-{len(job.made)}"
        job.checkpointed(
            len(job.made) + 1, location, "SYNC_SAVEPOINT" if stop else "SAVEPOINT", next(self.now)
        )
        if stop and self.fails_behind:
            why = self.fails_behind.popleft()
            package = "org.apache.flink.runtime.scheduler.stopwithsavepoint"
            said = (
                f"A savepoint has been created at: {location}, but the corresponding job "
                f"{job.id} failed"
            )
            told = stack(f"{package}.StopWithSavepointStoppingException: {said}", why)
            job.exceptions.insert(0, stack(why))  # as the adaptive scheduler has it
            job.result = told
            job.state, job.lingers, job.ends_as = "FAILING", self.lingers, "FAILED"
            failed = "java.util.concurrent.CompletionException"
            return {
                "failure-cause": {
                    "class": failed,
                    "stack-trace": f"{stack(failed)}\nCaused by: {told}",
                }
            }
        if stop or body.get("cancel-job"):
            job.lingers, job.ends_as = self.lingers, "FINISHED" if stop else "CANCELED"
        return {"location": location}

    def _requirements(self, method: str, job: FakeJob, body: Any) -> tuple[int, Any]:
        if self.scheduler != "Adaptive":
            name = "java.lang.UnsupportedOperationException"
            return 500, server_error(
                f"{name}: The DefaultScheduler does not support changing the parallelism"
            )
        if method == "PUT":
            job.parallelism = min(
                self.slots, max(one["parallelism"]["upperBound"] for one in body.values())
            )
            return 200, {}
        now = {"parallelism": {"lowerBound": 1, "upperBound": job.parallelism}}
        return 200, {SOURCE: now, COUNT: now}


@contextmanager
def serving(seconds: float = 0.0, tls: ssl.SSLContext | None = None) -> Iterator[FakeFlink]:
    """Such a server; `seconds` is how long it takes over a run."""
    flink = FakeFlink(seconds)
    with faulty_server.serving(flink, tls):
        yield flink
