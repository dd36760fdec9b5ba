"""The ground on which a scene is played: its job's input and output, its specs, and the command line that moves it."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.journal import StepFinished
from stateshift.journal.lines import decode_records
from stateshift.storage.opening import open_storage
from tests.acceptance.shop import data
from tests.acceptance.support import ROOT, stateshift, write_records
from tests.servers.scenes import Scene, expected, is_last, records
from tests.support import s3
from tests.support.moving import killed_at
from tests.support.servers import Servers, downloads, in_their_python, spark

APPLICATION = Path(__file__).with_name("scene_job.py")
FEEDING = Path(__file__).with_name("feeding_kafka.py")
SECONDS_MAX = 240.0
KILLED_AT = ("halt/stop", "copy/", "submit/")
PROVIDERS = {
    "3.5": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
    "4.3": "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
}
SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # and quick to start
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Ground:
    """`exports` is the environment of a user who has asked the servers for it."""

    scene: Scene
    servers: Servers
    exports: Mapping[str, str]
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def here(self) -> str:
        local = self.scene.route == "file-hdfs"
        return f"file://{self.folder}/here" if local else f"hdfs://hdfs-a/scenes/{self.name}/here"

    @property
    def there(self) -> str:
        places = {"hdfs-hdfs": "hdfs://hdfs-b", "hdfs-s3": f"s3a://{s3.BUCKET}", "file-hdfs": "hdfs://hdfs-a"}
        return f"{places[self.scene.route]}/scenes/{self.name}/there"

    def play(self) -> Any:
        """The whole of it; returns the report of the move."""
        self.feed(0, 20)
        self.start()
        self.until(lambda: self.committed(self.here), "the job has not started")
        self.feed(20, 30)
        self.until(lambda: self.recognise().total() > 0, "nothing comes out")
        workdir = self.folder / "runs" / "move"
        report = self.moved(self.move(), workdir)
        assert report["state"] == "finished"
        assert self.was_stopped(workdir)
        assert self.committed(self.there)
        self.said("verify", workdir)
        self.feed(30, 40)
        self.close(40)
        due = expected(self.scene.check, 40)
        self.until(lambda: self.recognise().total() >= due.total(), "the results are not complete")
        assert self.recognise() == due
        return report

    def start(self) -> None:
        self.said("apply", self.spec("first", restart=False), "--yes", "--workdir", self.folder / "runs" / "first")

    def moved(self, spec: Path, workdir: Path) -> Any:
        words = ("apply", str(spec), "--yes", "--workdir", str(workdir))
        if self.scene.fate == "plain":
            return self.said(*words)
        for step in KILLED_AT:
            killed_at(step, words, workdir, self.exports)
            words = ("resume", str(workdir))
        return self.said(*words)

    def was_stopped(self, workdir: Path) -> bool:
        """Whether the run found the job running, and stopped it. A repeated halt may find it stopped already."""
        kept, _ = decode_records((workdir / "journal").read_bytes())
        stops = [one.evidence for one in kept if isinstance(one, StepFinished) and one.step == "halt/stop"]
        killed = self.scene.fate == "killed"
        return any(evidence["state_before"] == "running" or killed for evidence in stops)

    def said(self, *words: str | Path) -> Any:
        return stateshift(*words, "--json", cwd=ROOT, env=self.exports).json

    def committed(self, location: str) -> bool:
        return any(info.path.startswith("commits/") for info in open_storage(location).list())

    # What the job reads and writes.

    def feed(self, first: int, last: int) -> None:
        self._give([(f"{number:04}", records(self.scene.check, number)) for number in range(first, last)])

    def close(self, number: int) -> None:
        """An hour later comes one more of each, which closes all that is open."""
        last = data.last(number)
        wanted = ("payments", "orders") if self.scene.check == "join" else ("orders",)
        self._give([(f"{number:04}", {name: last[name] for name in wanted})])

    def _give(self, steps: list[tuple[str, dict[str, list[dict[str, Any]]]]]) -> None:
        if self.scene.source == "files":
            for number, step in steps:
                for name, lines in step.items():
                    write_records(self.folder / "input" / name / f"{number}.json", lines)
            return
        file = self.folder / "to-feed.jsonl"
        plain = [
            [[f"{self.name}-{name}", line["order"], json.dumps(line)] for name, lines in step.items() for line in lines]
            for _, step in steps
        ]
        file.write_text("".join(json.dumps(step) + "\n" for step in plain))
        in_their_python(FEEDING, self.exports["STATESHIFT_KAFKA"], str(file))

    def recognise(self) -> Counter[str]:
        """Everything that came out of what is not the last, which closes the rest."""
        lines = [line for path in sorted(self.output.glob("*.json")) for line in path.read_text().splitlines()]
        plain = [json.loads(line) for line in lines]
        return Counter(json.dumps(one, sort_keys=True) for one in plain if not is_last(one))

    @property
    def output(self) -> Path:
        return self.folder / "output"

    # What the specs say.

    def move(self) -> Path:
        return self.spec("move")

    def spec(self, name: str, restart: bool = True) -> Path:
        job: dict[str, Any] = {
            "name": self.name,
            "checkpoint_location": self.here,
            "target_cluster": "new" if restart else "old",
            "submit": {**self.submit, "seconds_max": SECONDS_MAX},
        }
        if restart:
            job |= {"remote_location": self.there, "source_cluster": "old", "verify": "entries"}
            job |= {"stop": {"seconds_max": 60}, "waive": ["paths-stay"]}
        clusters = {which: {**self.cluster, "state_dir": str(self.folder / which)} for which in ("old", "new")}
        path = self.folder / f"{name}.json"
        plain = {"version": 1, "engine": "spark", "restart": restart, "clusters": clusters, "jobs": [job]}
        path.write_text(json.dumps(plain, indent=1))
        return path

    @property
    def cluster(self) -> dict[str, Any]:
        if self.scene.by == "livy":
            return {"kind": "livy", "url": self.exports["STATESHIFT_LIVY"], "conf": self.settings}
        if self.scene.by == "standalone":
            prefix = "STATESHIFT_" + self.scene.standalone.upper().replace("-", "_")
            urls = {"url": self.exports[f"{prefix}_REST"], "ui_url": self.exports[f"{prefix}_UI"]}
            sized = {"spark.executor.memory": "512m", "spark.cores.max": 1}
            return {"kind": "spark_standalone", **urls, "conf": {**self.settings, **sized}}
        sized = {"spark.driver.memory": "512m"}
        return {"kind": "spark_submit", "master": "local[2]", "conf": {**self.settings, **sized}, **self._spark}

    @property
    def _spark(self) -> dict[str, Any]:
        """Another one than that of the Python that runs stateshift."""
        if self.scene.version == "4.3":
            return {}
        home = self._home
        python = spark.python_of(home)
        environment = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        return {"spark_submit": str(home / "bin" / "spark-submit"), "environment": environment}

    @property
    def _home(self) -> Path:
        return downloads.spark("3.5.9") if self.scene.version == "3.5" else spark.installed_home()

    @property
    def submit(self) -> dict[str, Any]:
        kafka = f"kafka:{self.exports.get('STATESHIFT_KAFKA')}/{self.name}"
        source = kafka if self.scene.source == "kafka" else f"files:{self.folder}/input"
        words = ["--check", self.scene.check, "--source", source, "--output", str(self.output)]
        sized = {} if self.scene.by == "submit" else {"driver_memory": "512m"}
        return {"application": str(APPLICATION), "arguments": words, **sized}

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"spark.ui.enabled": False, "spark.sql.codegen.wholeStage": False}
        settings |= {f"spark.{process}.extraJavaOptions": SMALL for process in ("driver", "executor")}
        if self.scene.check in ("dedup", "pandas"):
            settings["spark.sql.streaming.stateStore.providerClass"] = ROCKSDB
        wanted = [f"kafka-spark-{self.scene.version}"] if self.scene.source == "kafka" else []
        if self.scene.route == "hdfs-s3":
            wanted.append(f"s3a-spark-{self.scene.version}")
            settings |= self._s3a
        found = [jar for name in wanted for jar in sorted(downloads.jars(name).glob("*.jar"))]
        known = {_artifact(jar) for jar in self._home.joinpath("jars").glob("*.jar")}
        jars = [jar for jar in found if _artifact(jar) not in known]  # what Spark has itself may be of another version
        path = ":".join(map(str, jars))
        return settings | ({f"spark.{one}.extraClassPath": path for one in ("driver", "executor")} if jars else {})

    @property
    def _s3a(self) -> dict[str, Any]:
        """The keys are in the environment of whatever runs."""
        s3a = {
            "endpoint": self.exports["AWS_ENDPOINT_URL_S3"],
            "endpoint.region": self.exports["AWS_DEFAULT_REGION"],
            "path.style.access": True,
            "connection.ssl.enabled": False,
            "aws.credentials.provider": PROVIDERS[self.scene.version],
        }
        return {f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}

    # How it ends.

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        last = time.monotonic() + SECONDS_MAX
        while not done():
            assert time.monotonic() < last, f"{otherwise}\n{self.logs()}"
            time.sleep(0.5)

    def logs(self) -> str:
        """The end of what each driver said."""
        found = [*self.folder.glob("*/*.log"), *self.servers.root.glob("spark-?/work/*/driver-*/std*")]
        found += self.servers.root.glob("livy/logs/livy.log")
        return "\n".join(f"{path}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(found))

    def end(self) -> None:
        """Whatever of it still runs is asked as a person would, and ended if it does not hear."""
        for location in (self.here, self.there):
            open_storage(location).write("_stateshift/stop", lambda: iter((b"",)))
        until = time.monotonic() + 30
        while (left := _running(str(self.output))) and time.monotonic() < until:
            time.sleep(0.2)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _artifact(jar: Path) -> str:
    return re.sub(r"-\d.*", "", jar.name)


def _running(word: str) -> list[int]:
    """The processes with this among their arguments: drivers, which are told where to put what comes out."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in process.joinpath("cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


@contextmanager
def ready(scene: Scene, servers: Servers, *more: str) -> Iterator[dict[str, str]]:
    """With the servers that it needs, and the environment set for whatever is opened in this process."""
    for name in (*scene.servers, *more):
        servers.up(name)
    with pytest.MonkeyPatch.context() as here:
        for key, value in servers.exports().items():
            here.setenv(key, value)
        s3.forget()
        yield servers.exports()
        s3.forget()


@contextmanager
def ground(scene: Scene, servers: Servers, folder: Path) -> Iterator[Ground]:
    with ready(scene, servers) as exports:
        made = Ground(scene, servers, exports, folder)
        try:
            yield made
        finally:
            made.end()
