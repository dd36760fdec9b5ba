"""Flink's job of tests/flink/jobs-evolving, of which a class is another in the job that goes on.

jars_of(lib, folder) -> (before, after)    compiled and packed with the format of Avro
"""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

from tests.support.flink import JOBS
from tests.support.servers import downloads


def jars_of(lib: Path, folder: Path) -> tuple[Path, Path]:
    """The jar that the savepoint is taken of, and that of the job that goes on."""
    avro = downloads.jars("flink-avro", flink="2.3.0")
    javac = Path(downloads.java()).resolve().with_name("javac")
    names = ("Arguments", "Lines", "Numbers", "Json", "Versions")
    shared = [JOBS / f"{name}.java" for name in names]
    shared += sorted(JOBS.with_name("jobs-evolving").glob("*.java"))
    made = []
    for number in (1, 2):
        own = sorted(JOBS.with_name(f"jobs-evolving-{number}").glob("*.java"))
        classes = folder / f"classes-{number}"
        words = [str(javac), "--release", "11", "-proc:none", "-nowarn", "-cp", f"{lib}/*:{avro}/*"]
        subprocess.run([*words, "-d", str(classes), *map(str, [*shared, *own])], check=True)
        made.append(folder / f"jobs-{number}.jar")
        with zipfile.ZipFile(made[-1], "w") as packed:
            for file in sorted(classes.rglob("*.class")):
                packed.write(file, str(file.relative_to(classes)))
            for jar in sorted(avro.glob("*.jar")):
                with zipfile.ZipFile(jar) as library:
                    for name in library.namelist():
                        if not name.endswith("/") and name not in packed.namelist():
                            packed.writestr(name, library.read(name))
    return made[0], made[1]
