"""The digests of the servers' jars, beside the pom that names them.

    check(folder, "hdfs")   raises Unavailable where a jar is not the one that is written down
    python -m servers.pins  fetches all of them and writes their digests down anew

A file has one line a jar, `<sha256>  <name>`, as sha256sum writes it. Jars of another version than
the default have no such file; they are taken as Maven brings them.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

from servers.faults import Unavailable

HERE = Path(__file__).resolve().parents[1]
# What each pom leaves open, as the default servers fill it in.
DEFAULTS: dict[str, dict[str, str]] = {
    "flink-avro": {"flink": "2.3.0"},
    "flink-iceberg": {"flink": "2.0"},
    "flink-kafka": {"client": "4.2.0", "connector": "5.0.0-2.2"},
    "flink-sql": {"flink": "2.3.0"},
    "flink-tests": {"flink": "2.3.0"},
}


def digests_file(name: str, properties: dict[str, str]) -> Path:
    """Return where the digests of a pom's jars are written down."""
    return HERE / name / ("-".join(["jars", *properties.values()]) + ".sha256")


def check(folder: Path, name: str, properties: dict[str, str]) -> None:
    """Hold the jars in a folder against their digests, where those are written down."""
    file = digests_file(name, properties)
    if not file.exists() or os.environ.get("STATESHIFT_UNPINNED"):
        return
    expected = read_digests(file)
    actual = digests_of(folder)
    for jar in sorted({*expected, *actual}):
        if expected.get(jar) != actual.get(jar):
            raise Unavailable(f"{name} cannot be had: {jar} is not the file that {file.name} names")


def read_digests(file: Path) -> dict[str, str]:
    digests = {}
    for line in file.read_text("utf-8").splitlines():
        digest, jar = line.split("  ", 1)
        digests[jar] = digest
    return digests


def digests_of(folder: Path) -> dict[str, str]:
    return {jar.name: sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}


def main() -> int:
    from servers import downloads  # which asks check of every folder that it makes

    os.environ["STATESHIFT_UNPINNED"] = "1"
    for pom in sorted(HERE.glob("*/pom.xml")):
        name = pom.parent.name
        properties = DEFAULTS.get(name, {})
        digests = digests_of(downloads.jars(name, **properties))
        lines = [f"{digests[jar]}  {jar}\n" for jar in sorted(digests)]
        digests_file(name, properties).write_text("".join(lines), "utf-8")
        print(f"pins: {digests_file(name, properties).name} of {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
