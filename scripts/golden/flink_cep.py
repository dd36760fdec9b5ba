"""Make the golden savepoints of a job that looks for a pattern (CEP), and holds it open.

./scripts/golden-flink cep [VERSION...]

tests/golden/cep/<version>-canonical, <version>-native    RocksDB's, and the hashmap's own
    image/           the savepoint, as Flink left it
    told.json        {"flink", "image": where _metadata is, "keys", "numbers": those that the job read}
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.flink import JOBS, Cluster, cluster_of, until
from tests.support.flink_kafka import started
from tests.support.servers import downloads, group

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "cep"
WORK = Path("/tmp/golden-flink-cep")
CASES = {"canonical": ("rocksdb", "CANONICAL"), "native": ("hashmap", "NATIVE")}
NUMBERS, KEYS = 14, 2


def main(versions: Sequence[str]) -> None:
    for version in versions or ("1.20.5", "2.3.0"):
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir()
        with group(WORK / "servers", "flink-a", STATESHIFT_FLINK_VERSION_A=version) as up:
            cluster = cluster_of(up, "flink-a")
            jar = job_jar(cluster.lib, WORK)
            for name, (backend, kind) in CASES.items():
                make(cluster, jar, version, name, backend, kind)
    shutil.rmtree(WORK)


def make(cluster: Cluster, jar: Path, version: str, name: str, backend: str, kind: str) -> None:
    output = WORK / f"out-{name}"
    words: dict[str, object] = {
        "output": output,
        "keys": KEYS,
        "hold": NUMBERS,
        "max-parallelism": 8,
        "flink.state.backend.type": backend,
    }
    job = started(cluster, jar, "jobs.Patterns", words)
    until(lambda: len(numbers_in(output)) == NUMBERS)
    time.sleep(2)  # until the watermark has come behind the last number
    place = cluster.stopped(job, WORK / "saved", kind)
    folder = GOLDEN / f"{version}-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place, folder / "image" / place.name)
    told = {
        "flink": version,
        "image": f"image/{place.name}",
        "keys": KEYS,
        "numbers": numbers_in(output),
    }
    (folder / "told.json").write_text(json.dumps(told) + "\n")
    print(f"{version} {name}", flush=True)


def numbers_in(folder: Path) -> list[int]:
    lines = [line for file in folder.glob("*.txt") for line in file.read_text().splitlines()]
    return sorted(int(line.removeprefix("number\t")) for line in lines)


def job_jar(lib: Path, folder: Path) -> Path:
    sources = [JOBS / f"{name}.java" for name in ("Arguments", "Lines", "Numbers")]
    sources += JOBS.with_name("jobs-cep").glob("*.java")
    javac, classes = Path(downloads.java()).resolve().with_name("javac"), folder / "classes"
    options = ["--release", "11", "-proc:none", "-nowarn", "-cp", f"{lib}/*", "-d"]
    subprocess.run([str(javac), *options, str(classes), *map(str, sources)], check=True)
    with zipfile.ZipFile(folder / "jobs.jar", "w") as packed:
        for file in sorted(classes.rglob("*.class")):
            packed.write(file, str(file.relative_to(classes)))
    return folder / "jobs.jar"


if __name__ == "__main__":
    main(sys.argv[1:])
