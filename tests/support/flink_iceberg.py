"""Flink's job of tests/flink/jobs-iceberg, and the jars with which a cluster reads Iceberg's tables.

RUNTIMES                   the runtime of Iceberg for each Flink
class_path(version)        for the server's STATESHIFT_FLINK_JARS
job_jar(lib, folder)       the job's jar, in the folder
"""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

from tests.support.flink import JOBS
from tests.support.servers import downloads

RUNTIMES = {"1.20.5": "1.20", "2.0.2": "2.0"}
SPARK_OF_HADOOP = "4.0.5"  # which brings Hadoop's classes: the catalog needs them


def class_path(version: str) -> str:
    """The jars that a cluster needs, parted by colons."""
    runtime = downloads.jars("flink-iceberg", flink=RUNTIMES[version])
    hadoop = downloads.spark(SPARK_OF_HADOOP) / "jars"
    jars = [*runtime.glob("*.jar"), *sorted(hadoop.glob("hadoop-client-*.jar"))]
    return os.pathsep.join(map(str, jars))


def job_jar(lib: Path, folder: Path) -> Path:
    """Compile the job; Iceberg's classes are the cluster's."""
    sources = [JOBS / f"{name}.java" for name in ("Arguments", "Lines", "Numbers")]
    sources += sorted(JOBS.with_name("jobs-iceberg").glob("*.java"))
    javac, classes = Path(downloads.java()).resolve().with_name("javac"), folder / "classes"
    words = [str(javac), "--release", "11", "-proc:none", "-nowarn", "-cp", f"{lib}/*", "-d"]
    subprocess.run([*words, str(classes), *map(str, sources)], check=True)
    with zipfile.ZipFile(folder / "jobs.jar", "w") as packed:
        for file in sorted(classes.rglob("*.class")):
            packed.write(file, str(file.relative_to(classes)))
    return folder / "jobs.jar"
