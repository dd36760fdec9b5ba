"""Flink's jobs of tests/flink/jobs-kafka, compiled with a connector and packed with it.

CONNECTORS            the connector for each Flink, and the client that it was built with
job_jar(lib, connector, folder)   the jar, in the folder
arguments_of(words)   `--name value` of each
started(cluster, jar, main_class, words)   the job's id, once it runs
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.flink import JOBS, Cluster
from tests.support.servers import downloads

CONNECTORS = {"1.20.5": ("3.4.0-1.20", "3.4.0"), "2.3.0": ("5.0.0-2.2", "4.2.0")}


def connector_jars(version: str) -> Path:
    """The folder with the connector of a Flink, and its client."""
    connector, client = CONNECTORS[version]
    return downloads.jars("flink-kafka", client=client, connector=connector)


def job_jar(lib: Path, connector: Path, work: Path) -> Path:
    """Compile the jobs, and pack them with the connector and its client."""
    folder = Path(tempfile.mkdtemp(dir=work))
    sources = [JOBS / f"{name}.java" for name in ("Arguments", "Lines", "Numbers")]
    sources += sorted(JOBS.with_name("jobs-kafka").glob("*.java"))
    if list(lib.glob("flink-dist-1.*.jar")):
        sources += sorted(JOBS.with_name("jobs-kafka-1").glob("*.java"))
    javac = Path(downloads.java()).resolve().with_name("javac")
    path = f"{lib}/*:{connector}/*"
    words = [str(javac), "--release", "11", "-proc:none", "-nowarn", "-cp", path, "-d"]
    subprocess.run([*words, str(folder / "classes"), *map(str, sources)], check=True)
    with zipfile.ZipFile(folder / "jobs.jar", "w") as packed:
        for file in sorted((folder / "classes").rglob("*.class")):
            packed.write(file, str(file.relative_to(folder / "classes")))
        for jar in sorted(connector.glob("*.jar")):
            with zipfile.ZipFile(jar) as library:
                for name in library.namelist():
                    if not name.startswith("META-INF/") and not name.endswith("/"):
                        packed.writestr(name, library.read(name))
    return folder / "jobs.jar"


def arguments_of(words: Mapping[str, object]) -> list[str]:
    """A program's arguments: `--name value` of each."""
    return [word for name, value in words.items() for word in (f"--{name}", str(value))]


def started(
    cluster: Cluster,
    jar: Path,
    main_class: str,
    words: Mapping[str, object],
    savepoint: Path | None = None,
) -> str:
    """The id of a job that runs, of a parallelism of two."""
    body = {"entryClass": main_class, "programArgsList": arguments_of(words), "parallelism": 2}
    if savepoint is not None:
        body["savepointPath"] = str(savepoint)
    job = str(cluster.ask(f"/jars/{cluster.upload(jar)}/run", body)["jobid"])
    while (state := cluster.state(job)) != "RUNNING":
        assert state not in ("FAILED", "FAILING"), cluster.why(job)
        time.sleep(0.5)
    return job
