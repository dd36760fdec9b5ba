"""Make the golden savepoints of a job whose state is messages of protobuf, written by Kryo with
chill's serializer.

./scripts/golden-flink protobuf [VERSION...]

tests/golden/protobuf/<version>-canonical, <version>-native    RocksDB's, and the hashmap's own
    image/           the savepoint, as Flink left it
    told.json        {"flink", "image": where _metadata is, "held": {STATE: {KEY: VALUE}}}, values as
                     protobuf's own JsonFormat prints them
tests/golden/protobuf/orders.binpb      the descriptors, as protoc writes them
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.flink import JOBS, Cluster, cluster_of, until
from tests.support.flink_kafka import started
from tests.support.servers import downloads, group

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "protobuf"
WORK = Path("/tmp/golden-flink-protobuf")
SOURCES = JOBS.with_name("jobs-protobuf")
PROTOC = "com.google.protobuf:protoc:3.25.5:exe:linux-x86_64"
LIBRARIES = (
    "com.google.protobuf:protobuf-java:3.25.5",
    "com.google.protobuf:protobuf-java-util:3.25.5",
    "com.twitter:chill-protobuf:0.10.0",
    "com.google.code.gson:gson:2.10.1",
    "com.google.guava:guava:32.0.1-jre",
)
CASES = {"canonical": ("rocksdb", "CANONICAL"), "native": ("hashmap", "NATIVE")}
NUMBERS, KEYS = 12, 6


def main(versions: Sequence[str]) -> None:
    for version in versions or ("1.20.5", "2.3.0"):
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir()
        with group(WORK / "servers", "flink-a", STATESHIFT_FLINK_VERSION_A=version) as up:
            cluster = cluster_of(up, "flink-a")
            jar = job_jar(cluster.lib, WORK)
            for name, (backend, kind) in CASES.items():
                make(cluster, jar, version, name, backend, kind)
    shutil.copy(WORK / "orders.binpb", GOLDEN / "orders.binpb")
    shutil.rmtree(WORK)


def make(cluster: Cluster, jar: Path, version: str, name: str, backend: str, kind: str) -> None:
    output = WORK / f"out-{name}"
    job = started(cluster, jar, "jobs.Messages", words(backend, output))
    until(lambda: len([line for line in told_in(output) if line[0] == "count"]) == NUMBERS)
    place = cluster.stopped(job, WORK / "saved", kind)
    held: dict[str, dict[str, Any]] = {}
    for state, key, value in told_in(output):
        if state != "before":
            held.setdefault(state, {})[key] = json.loads(value)
    folder = GOLDEN / f"{version}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place, folder / "image" / place.name)
    told = {"flink": version, "image": f"image/{place.name}", "held": held}
    (folder / "told.json").write_text(json.dumps(told, ensure_ascii=False) + "\n")
    print(f"{version} {name}", flush=True)


def words(backend: str, output: Path) -> dict[str, object]:
    return {
        "output": output,
        "keys": KEYS,
        "per-second": 100,
        "hold": NUMBERS,
        "max-parallelism": 8,
        "flink.state.backend.type": backend,
    }


def told_in(folder: Path) -> list[tuple[str, str, str]]:
    texts = [file.read_text() for file in sorted(folder.glob("*.txt"))]
    return [(*line.split("\t"),) for text in texts for line in text.split("\n")[:-1]]  # type: ignore[misc]


def job_jar(lib: Path, folder: Path) -> Path:
    """Compile messages, descriptors and the job; the jar brings protobuf's classes."""
    jars = folder / "jars"
    for artifact in (PROTOC, *LIBRARIES):
        goal = ["dependency:copy", f"-Dartifact={':'.join(packed_as(artifact))}"]
        subprocess.run(["mvn", "-q", *goal, f"-DoutputDirectory={jars}"], check=True)
    (protoc,) = jars.glob("protoc-*")
    protoc.chmod(0o755)
    java = folder / "java"
    java.mkdir()
    outputs = [f"--java_out={java}", f"--descriptor_set_out={folder}/orders.binpb"]
    protos = map(str, sorted(SOURCES.glob("*.proto")))
    subprocess.run([protoc, "-I", SOURCES, "--include_imports", *outputs, *protos], check=True)
    sources = [JOBS / f"{name}.java" for name in ("Arguments", "Lines", "Numbers")]
    sources += [*SOURCES.glob("*.java"), *java.rglob("*.java")]
    javac, classes = Path(downloads.java()).resolve().with_name("javac"), folder / "classes"
    options = ["--release", "11", "-proc:none", "-nowarn", "-cp", f"{lib}/*:{jars}/*", "-d"]
    subprocess.run([str(javac), *options, str(classes), *map(str, sources)], check=True)
    with zipfile.ZipFile(folder / "jobs.jar", "w") as packed:
        for file in sorted(classes.rglob("*.class")):
            packed.write(file, str(file.relative_to(classes)))
        for library in sorted(jars.glob("*.jar")):
            with zipfile.ZipFile(library) as own:
                for name in own.namelist():
                    if name.endswith(".class") and name not in packed.namelist():
                        packed.writestr(name, own.read(name))
    return folder / "jobs.jar"


def packed_as(artifact: str) -> list[str]:
    """Maven's parts of an artifact: group, name, version, and what it is packed as."""
    parts = artifact.split(":")
    return parts if len(parts) > 3 else [*parts, "jar"]


if __name__ == "__main__":
    main(sys.argv[1:])
