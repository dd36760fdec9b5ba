"""Flink's jobs of tests/flink/jobs and jobs-2, compiled against a distribution, and a plain client
of Flink's REST API.

    jar(lib) -> Path                        compiled once for each distribution; skipped where there
                                            is no javac
    cluster = Cluster(url, lib)
    job = cluster.run("jobs.Count", "--keys", "10", savepoint=..., parallelism=2)
    cluster.stopped(job, folder)            stop with savepoint: where it is
    cluster.checkpointed(job)               a checkpoint's folder, once one has been completed
    cluster.retained(job)                   the last one's, of a job that has ended
    changes(folder), has_seen(folder, 60)   what Kinds wrote; whether it is through with sixty
                                            numbers
    lines(folder) -> [Line(key, count, number), ...]     what Count wrote
    faults(lines, keys, first, end)         what is lost, doubled or counted wrongly in them;
                                            nothing if all is well

This client is the tests' own: what it says is held against what the product says.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.servers import Servers, downloads

JOBS = Path(__file__).resolve().parents[1] / "flink" / "jobs"
JOBS_OF_2 = JOBS.with_name("jobs-2")  # what Flink 1.x does not know
SECONDS_MAX = 120.0
ENDED = ("FINISHED", "FAILED", "CANCELED", "SUSPENDED")
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Line(NamedTuple):
    key: str
    count: int
    number: int


class Refused(Exception):
    """An answer of 400 and more: its code, and what Flink says of it."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(f"{code}: {told}")
        self.code, self.told = code, told


def jar(lib: Path) -> Path:
    newer = any(dist.name.startswith("flink-dist-2.") for dist in lib.glob("flink-dist-*.jar"))
    sources = [*sorted(JOBS.glob("*.java")), *(sorted(JOBS_OF_2.glob("*.java")) if newer else ())]
    sign = sha256(
        b"".join(source.read_bytes() for source in sources) + str(lib).encode()
    ).hexdigest()[:16]
    made = Path(tempfile.gettempdir()) / f"stateshift-flink-jobs-{os.getuid()}" / f"{sign}.jar"
    if made.exists():
        return made
    javac = Path(downloads.java()).resolve().with_name("javac")
    if not javac.exists():
        pytest.skip(f"{javac.parent} has no javac, which compiles Flink's jobs: install a JDK")
    made.parent.mkdir(exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        words = [
            str(javac),
            "--release",
            "11",
            "-proc:none",
            "-nowarn",
            "-cp",
            f"{lib}/*",
            "-d",
            f"{folder}/classes",
        ]
        done = subprocess.run(
            [*words, *map(str, sources)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        classes = Path(folder) / "classes"
        with zipfile.ZipFile(f"{folder}/jobs.jar", "w") as packed:
            for file in sorted(classes.rglob("*.class")):
                packed.write(file, str(file.relative_to(classes)))
        os.replace(f"{folder}/jobs.jar", made)
    return made


def cluster_of(servers: Servers, name: str) -> Cluster:
    exports, prefix = (
        servers.state(name).exports,
        "STATESHIFT_" + name.replace("-", "_").replace(".", "_").upper(),
    )
    return Cluster(exports[prefix], Path(exports[f"{prefix}_LIB"]))


@dataclass(frozen=True)
class Cluster:
    url: str
    lib: Path

    def ask(
        self, path: str, body: Mapping[str, Any] | None = None, method: str | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        return _answer(request)

    def upload(self, file: Path) -> str:
        """Its id."""
        boundary = uuid.uuid4().hex
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; '
            f'filename="{file.name}"\r\n'
            "Content-Type: application/x-java-archive\r\n\r\n"
        )
        body = head.encode() + file.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        told = _answer(urllib.request.Request(f"{self.url}/jars/upload", body, kind))
        return str(told["filename"]).rpartition("/")[2]

    def run(
        self,
        main: str,
        *words: str,
        parallelism: int = 1,
        savepoint: str | Path | None = None,
        **fields: Any,
    ) -> str:
        """The job's id, once all its tasks are running; `fields` are the request's own."""
        body: dict[str, Any] = {
            "entryClass": main,
            "programArgsList": list(words),
            "parallelism": parallelism,
        }
        body |= fields
        if savepoint is not None:
            body["savepointPath"] = str(savepoint)
        id = str(self.ask(f"/jars/{self.upload(jar(self.lib))}/run", body)["jobid"])
        until(lambda: self._runs(id))
        return id

    def running(self) -> list[dict[str, Any]]:
        """What runs there, as the overview tells it."""
        return [job for job in self.ask("/jobs/overview")["jobs"] if job["state"] == "RUNNING"]

    def stopped(
        self, job: str, folder: str | Path, kind: str = "CANONICAL", drain: bool = False
    ) -> Path:
        """Where the savepoint is, once the job has finished."""
        body = {"targetDirectory": str(folder), "formatType": kind, "drain": drain}
        place = self._done(job, self.ask(f"/jobs/{job}/stop", body)["request-id"])
        self.ended(job, "FINISHED")
        return place

    def saved(self, job: str, folder: str | Path, kind: str = "CANONICAL") -> Path:
        """A savepoint of a job that goes on."""
        body = {"target-directory": str(folder), "formatType": kind}
        return self._done(job, self.ask(f"/jobs/{job}/savepoints", body)["request-id"])

    def checkpointed(self, job: str, after: int = 0) -> Path:
        """The folder of a completed checkpoint whose id is above `after`."""

        def latest() -> Any:
            found = self.ask(f"/jobs/{job}/checkpoints")["latest"]["completed"]
            return found if found is not None and found["id"] > after else None

        return _path(until(latest)["external_path"])

    def retained(self, job: str) -> Path:
        """The last checkpoint of a job that has ended, as the disk has it: Flink's list of them may
        be some time old, and what it has be deleted since.
        """
        whole = [place.parent for place in self.checkpointed(job).parent.glob("chk-*/_metadata")]
        return max(whole, key=lambda place: int(place.name.removeprefix("chk-")))

    def cancelled(self, job: str) -> None:
        self.ask(f"/jobs/{job}?mode=cancel", {}, "PATCH")
        self.ended(job, "CANCELED")

    def ended(self, job: str, state: str) -> None:
        found = until(lambda: (told := self.state(job)) in ENDED and told)
        assert found == state, f"{found}: {self.why(job)}"

    def state(self, job: str) -> str:
        """As it is now, where this Flink tells it alone: with the job's parts it is some time
        old.
        """
        try:
            return str(self.ask(f"/jobs/{job}/status")["status"])
        except Refused as refused:
            if refused.code != 404:
                raise
            return str(self.ask(f"/jobs/{job}")["state"])

    def why(self, job: str) -> str:
        """Why it failed last."""
        told = self.ask(f"/jobs/{job}/exceptions")
        entries = told.get("exceptionHistory", {}).get("entries", [])
        stack = str(told.get("root-exception") or (entries[0]["stacktrace"] if entries else ""))
        return "\n".join(line for line in stack.splitlines() if not line.startswith("\tat "))[:3000]

    def _runs(self, job: str) -> bool:
        told = self.ask(f"/jobs/{job}")
        assert told["state"] not in ("FAILED", "FAILING", "RESTARTING"), self.why(job)
        return told["state"] in ENDED or all(
            one["status"] in ("RUNNING", "FINISHED") for one in told["vertices"]
        )

    def _done(self, job: str, trigger: str) -> Path:
        def answer() -> Any:
            told = self.ask(f"/jobs/{job}/savepoints/{trigger}")
            return told["operation"] if told["status"]["id"] == "COMPLETED" else None

        told = until(answer)
        assert "location" in told, told["failure-cause"]["stack-trace"][:3000]
        return _path(told["location"])


def lines(folder: Path) -> list[Line]:
    """Those that end: a job may be writing one."""
    texts = [file.read_text() for file in sorted(folder.glob("*.txt"))]
    whole = [line.split("\t") for text in texts for line in text.split("\n")[:-1]]
    return [Line(key, int(count), int(number)) for key, count, number in whole]


def faults(found: Iterable[Line], keys: int, first: int, end: int) -> list[str]:
    """Of the lines about numbers from `first` to before `end`."""
    found = list(found)
    numbers = sorted(line.number for line in found)
    wrong = [
        f"{line} is its key's {line.number // keys + 1}th"
        for line in found
        if line.count != line.number // keys + 1
    ]
    twice = [f"{one} is there twice" for one, other in pairwise(numbers) if one == other]
    lost = [f"{number} is missing" for number in sorted(set(range(first, end)) - set(numbers))]
    return wrong + twice + lost


def changes(folder: Path) -> list[tuple[str, str, str, str]]:
    """What Kinds wrote: operator, state, key, value."""
    texts = [file.read_text() for file in sorted(folder.glob("*.txt"))]
    return [(*line.split("\t"),) for text in texts for line in text.split("\n")[:-1]]  # type: ignore[misc]


def has_seen(folder: Path, numbers: int) -> bool:
    """Whether Kinds has seen so many, and the time of the last one: a timer of ten seconds fires a
    millisecond later than time is, so that of number - 12 is the last. Time comes to all operators,
    but not to all at once.
    """
    before = changes(folder)
    if not any(
        line[:2] == ("timers", f"event {(numbers - 2) * 1000}") and line[3] == "fired"
        for line in before
    ):
        return False
    time.sleep(1)
    return len(changes(folder)) == len(before)


def until(happens: Callable[[], Any], seconds_max: float = SECONDS_MAX) -> Any:
    last = time.monotonic() + seconds_max
    while not (found := happens()):
        assert time.monotonic() < last
        time.sleep(0.1)
    return found


def _answer(request: urllib.request.Request) -> Any:
    try:
        with _open(request, timeout=60) as response:
            return json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        with error:
            told = error.read().decode(errors="replace")
        raise Refused(error.code, told) from error


def _path(url: str) -> Path:
    return Path("/" + url.removeprefix("file:").lstrip("/"))
