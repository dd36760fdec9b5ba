"""A real YARN (one ResourceManager, one NodeManager) runs a real Flink in application mode: its job
moves there as a whole, killed in two steps, and warm; it is rolled back; a start that YARN or Flink
ends leaves the old job running. Each number is counted once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.clusters.yarn.flink import OnYarn
from stateshift.specification.model import ClusterSpec
from tests.acceptance.support import ROOT, stateshift
from tests.servers.flink_ground import KEYS, incremental
from tests.support.flink import faults, jar, lines, until
from tests.support.moving import killed_at
from tests.support.servers import LOG4J, MODULES, Servers, downloads, group, hadoop

pytestmark = [pytest.mark.servers, pytest.mark.slow]
SHOWN_ON = "YARN"
VERSIONS = ("2.3.0", "1.20.5")
PROGRAMS = {
    "flink": "org.apache.flink.client.cli.CliFrontend",
    "yarn-session.sh": "org.apache.flink.yarn.cli.FlinkYarnSessionCli",
}
MEMORY = {
    "jobmanager.memory.process.size": "700m",
    "jobmanager.memory.jvm-metaspace.size": "160m",
    "taskmanager.memory.process.size": "768m",
    "taskmanager.memory.jvm-metaspace.size": "160m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.numberOfTaskSlots": "2",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("yarn"), "yarn") as servers:
        yield servers


def distribution(servers: Servers, home: Path, version: str) -> dict[str, Any]:
    """A home of Flink with two scripts, as its archive has them, and what a client of this YARN
    is told; both as options of a cluster.
    """
    lib, yarn = downloads.flink(version), downloads.jars("yarn")
    hadoop_conf, conf = home / "hadoop-conf", home / "conf"
    shutil.copytree(servers.exports()["STATESHIFT_YARN_CONF"], hadoop_conf)
    site = (hadoop_conf / "yarn-site.xml").read_text()
    name = "yarn.application.classpath"
    classes = f"<property><name>{name}</name><value>{hadoop_conf},{yarn}/*</value></property>"
    (hadoop_conf / "yarn-site.xml").write_text(
        site.replace("</configuration>", f"{classes}</configuration>")
    )
    for folder in ("bin", "conf", "plugins"):
        (home / folder).mkdir(parents=True)
    (home / "lib").symlink_to(lib)
    own = {
        **MEMORY,
        "env.java.opts.all": " ".join([*MODULES, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]),
        "web.refresh-interval": "500",
        "classloader.check-leaked-classloader": "false",
        "yarn.staging-directory": (home / "staging").as_uri(),
        "yarn.application-attempts": "1",
    }
    text = "".join(f"{key}: {value}\n" for key, value in own.items())
    (conf / ("config.yaml" if version.startswith("2.") else "flink-conf.yaml")).write_text(text)
    (conf / "log4j.properties").write_text(LOG4J)
    words = [downloads.java(), "-Xmx256m", *hadoop.SMALL, *MODULES]
    words.append(f"-Dlog4j.configurationFile={(conf / 'log4j.properties').as_uri()}")
    for name, program in PROGRAMS.items():
        script = home / "bin" / name
        script.write_text(
            "#!/bin/sh\n"
            f"export FLINK_CONF_DIR={conf} FLINK_LIB_DIR={lib} FLINK_PLUGINS_DIR={home / 'plugins'}\n"
            f'exec {" ".join(words)} -cp "$HADOOP_CONF_DIR:{lib}/*:{yarn}/*" {program} "$@"\n'
        )
        script.chmod(0o755)
    return {
        "url": servers.exports()["STATESHIFT_YARN"],
        "flink": str(home / "bin" / "flink"),
        "environment": {"HADOOP_CONF_DIR": str(hadoop_conf)},
        "settle_seconds": 10,
        "state_dir": str(home / "jobs"),
    }


@dataclass(frozen=True)
class Ground:
    folder: Path
    options: dict[str, Any]
    lib: Path

    @property
    def cluster(self) -> OnYarn:
        cluster = open_cluster(ClusterSpec("yarn", "flink_yarn", self.options), str(self.folder))
        assert isinstance(cluster, OnYarn)
        return cluster

    def in_session(self, name: str) -> Ground:
        """Start a session, which takes the jobs from now on."""
        script = Path(self.options["flink"]).with_name("yarn-session.sh")
        environment = {**os.environ, **self.options["environment"]}
        words = [script, "--detached", "--name", name]
        subprocess.run(words, env=environment, check=True, timeout=300, capture_output=True)
        options = {key: self.options[key] for key in ("url", "settle_seconds", "state_dir")}
        return replace(self, options={**options, "session": name})

    def submit(self, **more: Any) -> dict[str, Any]:
        usual = {"jar": str(jar(self.lib)), "entry_class": "jobs.Count", "parallelism": 2}
        return {**usual, "arguments": self.words("orders"), **more}

    def words(self, name: str) -> list[str]:
        words = ["--counters", name, "--keys", str(KEYS), "--output", str(self.folder / "out")]
        return [*words, "--checkpoint-ms", "300", "--name", name, *incremental(self.folder)]

    @property
    def written(self) -> list[Any]:
        return lines(self.folder / "out" / "orders")

    def started(self) -> str:
        """The id of a job that counts in an application of its own, started by hand."""
        id = self.cluster.submit(
            Submission(f"by-hand {self.folder}", "orders", "", options=self.submit())
        )
        until(lambda: len(self.written) > 100)
        shutil.rmtree(self.options["state_dir"])  # nobody has noted it
        return id

    def spec(self, id: str, *, submit: dict[str, Any], **more: Any) -> Path:
        job = {
            "name": "orders",
            "job_ids": [id],
            "source_cluster": "yarn",
            "target_cluster": "yarn",
            "target_directory": str(self.folder / "taken"),
            "new_savepoint_path": str(self.folder / "moved"),
            "submit": {**submit, "seconds_max": 120},
            "source_submit": {**self.submit(), "seconds_max": 120},
            **more,
        }
        clusters = {"yarn": {"kind": "flink_yarn", **self.options}}
        plain = {"version": 1, "engine": "flink", "clusters": clusters, "jobs": [job]}
        path = self.folder / "spec.json"
        path.write_text(json.dumps(plain))
        return path

    @property
    def workdir(self) -> Path:
        return self.folder / "run"

    def said(self, *words: str | Path, code: int = 0) -> Any:
        return stateshift(*words, "--json", cwd=ROOT, code=code).json

    def goes_on(self, twice: bool = False) -> None:
        """One job runs, and after it nothing is lost, counted wrongly or, but for a warm move's
        last records, written twice.
        """
        before = len(self.written)
        until(lambda: len(self.written) > before + 100)
        (job,) = (job for job in self.cluster.running("orders") if job.state.alive)
        self.cluster.stop(StopRequest("orders", "", None, 60.0, {"job_id": job.id}))
        found = self.written
        found = sorted(set(found), key=lambda line: line.number) if twice else found
        assert faults(found, KEYS, 0, len(found)) == []


@pytest.fixture
def ground(servers: Servers, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ground]:
    version = getattr(request, "param", VERSIONS[0])
    made = Ground(
        tmp_path, distribution(servers, tmp_path / "flink", version), downloads.flink(version)
    )
    yield made
    for application in made.cluster.yarn.alive():
        made.cluster.yarn.kill(application.id)


@pytest.mark.row("W-19")
@pytest.mark.parametrize("ground", VERSIONS, indirect=True)
def test_a_job_moves_killed_in_two_steps_and_is_rolled_back(ground: Ground) -> None:
    id = ground.started()
    spec, workdir = ground.spec(id, submit=ground.submit()), ground.workdir
    killed_at("halt/", ("apply", str(spec), "--yes", "--workdir", str(workdir)), workdir, {})
    killed_at("submit/", ("resume", str(workdir)), workdir, {})
    assert ground.said("resume", workdir)["state"] == "finished"
    (job,) = ground.cluster.alive()
    assert job.id != id
    words = ("rollback", workdir, "--yes", "--discard-progress")
    ground.said(*words)
    (back,) = ground.cluster.alive()
    assert back.id not in (id, job.id)
    ground.goes_on(twice=True)  # what the moved job wrote since its last checkpoint is done again


@pytest.mark.row("W-19")
def test_a_job_moves_within_a_session_that_others_use(ground: Ground) -> None:
    session = ground.in_session("shop")
    beside = session.submit(arguments=[*session.words("payments")])
    session.cluster.submit(Submission("beside", "payments", "", options=beside))
    spec, workdir = session.spec(session.started(), submit=session.submit()), session.workdir
    killed_at("submit/", ("apply", str(spec), "--yes", "--workdir", str(workdir)), workdir, {})
    assert session.said("resume", workdir)["state"] == "finished"
    session.said("rollback", workdir, "--yes", "--discard-progress")
    assert sorted(job.name for job in session.cluster.alive()) == ["orders", "payments"]
    session.goes_on(twice=True)
    assert [job.name for job in session.cluster.alive()] == ["payments"]


@pytest.mark.row("W-19")
def test_a_warm_move_goes_on_from_the_last_checkpoint(ground: Ground) -> None:
    spec = ground.spec(ground.started(), submit=ground.submit(), mode="warm")
    report = ground.said("apply", spec, "--yes", "--workdir", ground.workdir)
    assert report["state"] == "finished" and report["report"]["downtime_seconds"] > 0
    ground.goes_on(twice=True)


@pytest.mark.row("W-19")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"env.java.opts.jobmanager": "-XX:+UseG1GC"}, "garbage collectors"),
        ({"jobmanager.memory.process.size": "9m"}, "flink ended with 1"),
    ],
)
def test_a_start_that_fails_leaves_the_old_job_running(
    ground: Ground, more: dict[str, str], words: str
) -> None:
    submit = ground.submit(flink_configuration=more)
    spec = ground.spec(ground.started(), submit=submit)
    failed = ground.said("apply", spec, "--yes", "--workdir", ground.workdir, code=7)
    assert words in json.dumps(failed)
    ground.goes_on()


@pytest.mark.row("W-19")
def test_a_queue_that_takes_nothing_is_refused_before_the_stop(ground: Ground) -> None:
    id = ground.started()
    for queue, fact in (("nope", "YARN has no queue nope"), ("closed", "queue closed is stopped")):
        spec = ground.spec(id, submit=ground.submit(queue=queue))
        refused = ground.said("apply", spec, "--yes", "--workdir", ground.folder / queue, code=4)
        assert fact in refused["message"]
    assert [job.id for job in ground.cluster.alive()] == [id]
    ground.goes_on()
