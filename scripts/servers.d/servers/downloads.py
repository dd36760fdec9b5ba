"""What servers are made of, fetched once and kept outside the checkout. Another pom or extra is
fetched anew.

    java()          the JDK's java
    program("kubernetes")  the program that scripts/servers.d/kubernetes is, built by Go
    jars("hdfs")    everything scripts/servers.d/hdfs/pom.xml names, and what that needs, by Maven;
                    what a pom leaves
                    open is said: jars("flink-sql", flink="2.3.0")
    python()        a Python of its own with the packages of the extra `servers` in pyproject.toml,
                    by pip
    spark("3.5.9")  the home of a pyspark that scripts/sparks made
    flink("2.3.0")  the jars of that Flink's distribution, by pip, from the package that carries
                    them

What cannot be had raises Unavailable with the reason.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from servers import pins
from servers.faults import Unavailable

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
PINS = ROOT / "scripts" / "pins.d"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
JAVA_VERSION_MIN = 17
# So long a tool may say nothing, and so often it is told what it is at.
SECONDS_MAX = 1200.0
SECONDS_BETWEEN_LINES = 15.0
# The file that pip or Maven fetches: never its address, which may be that of a private registry.
FETCHED = re.compile(r"Download(?:ing|ed) .*?([^/\s]+\.(?:jar|pom|whl|tar\.gz|zip))\b")
# In wheels (since 2.2) below pyflink/lib, before in deps/lib. Nothing of ours is written in Scala.
FLINK_JAR = re.compile(r"(?:^pyflink|/deps)/lib/((?!flink-scala)[^/]+\.jar)$")


def cache_folder() -> Path:
    named = os.environ.get("STATESHIFT_SERVERS_CACHE")
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else user / "stateshift" / "servers"


@cache
def java() -> str:
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    for candidate in filter(None, (home and f"{home}/bin/java", found)):
        if Path(candidate).exists() and _java_version(candidate) >= JAVA_VERSION_MIN:
            return candidate
    raise Unavailable(f"a JDK {JAVA_VERSION_MIN} or newer is missing: set JAVA_HOME or install one")


def jars(name: str, **properties: str) -> Path:
    """The folder that holds them."""
    pom = HERE / name / "pom.xml"
    open_ones = [f"-D{key}={value}" for key, value in sorted(properties.items())]

    def fetch(place: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable(
                f"Maven is missing, which fetches {name}'s jars: install it (Debian, Ubuntu: maven)"
            )
        (place / "pom.xml").write_bytes(pom.read_bytes())
        _run(
            [
                maven,
                "-B",
                COPY,
                "-DincludeScope=runtime",
                f"-DoutputDirectory={place / 'jars'}",
                *open_ones,
            ],
            place,
            name,
        )
        pins.check(place / "jars", name, properties)

    return _once("-".join([name, *properties.values(), _sign(pom.read_bytes())]), fetch) / "jars"


def program(name: str) -> Path:
    """The program that scripts/servers.d/<name> is, in Go; modules are held to its go.sum."""
    sources = [HERE / name / file for file in ("main.go", "go.mod", "go.sum")]

    def fetch(place: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise Unavailable(f"Go is missing, which builds {name}: install Go 1.26 or newer")
        for source in sources:
            shutil.copy(source, place)
        command = [
            "build",
            "-p=2",
            "-v",
            "-trimpath",
            "-ldflags=-s -w",
            "-mod=readonly",
            "-o",
            name,
        ]
        _run(["nice", "-n", "15", go, *command, "."], place, name)

    content = b"".join(source.read_bytes() for source in sources)
    return _once(f"{name}-{_sign(content)}", fetch) / name


def python() -> Path:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages: list[str] = project["optional-dependencies"]["servers"]

    wanted = _pinned("servers", packages)

    def fetch(place: Path) -> None:
        _run([sys.executable, "-m", "venv", str(place)], place, "the servers' Python")
        # No server imports the hundredth part of it: what is imported, is compiled then.
        pip = [
            str(place / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--progress-bar=off",
            "--disable-pip-version-check",
            "--no-compile",
        ]
        _run([*pip, *wanted], place, "the servers' Python")

    # The list's content, not where it lies: all checkouts with one list share one Python.
    listed = wanted if wanted == packages else [PINS.joinpath("servers.txt").read_text()]
    sign = _sign("\n".join([sys.version, *packages, *listed]).encode())
    return _once(f"python-{sign}", fetch, moves=False) / "bin" / "python"


def packages(*names: str) -> Path:
    """A folder of Python packages, without what they need that everybody has."""

    def fetch(place: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--progress-bar=off", "--no-deps"]
        _run([*pip, "--disable-pip-version-check", "--target", str(place), *names], place, names[0])

    name = names[0].partition("==")[0]
    return _once(f"{name}-{_sign(repr((sys.version, names)).encode())}", fetch)


def _pinned(name: str, packages: Sequence[str]) -> list[str]:
    """Return pip's words for packages: the files that scripts/pins wrote down, where it did."""
    listed = PINS / f"{name}.txt"
    if not listed.exists() or os.environ.get("STATESHIFT_UNPINNED"):
        return list(packages)
    return ["--require-hashes", "--no-deps", "--requirement", str(listed)]


def spark(version: str) -> Path:
    """Our own, where it is of that version."""
    own = find_spec("pyspark")
    if own is not None and own.origin is not None and metadata.version("pyspark") == version:
        return Path(own.origin).parent
    script = ROOT / "scripts" / "sparks"
    sparks = Path(os.environ.get("STATESHIFT_SPARKS") or cache_folder().parent / "sparks")
    if not (sparks / version / "ready").exists():
        _run([str(script), str(sparks), version], ROOT, f"Spark {version}")
    (home,) = (sparks / version).glob("lib/python3*/site-packages/pyspark")
    return home


def flink(version: str) -> Path:
    """The folder that holds its jars: what clusters run with, and what jobs are compiled
    against.
    """

    def fetch(place: Path) -> None:
        package = place / "package"
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--progress-bar=off",
            "--disable-pip-version-check",
            "--no-cache-dir",
        ]
        wanted = _pinned(f"flink-{version}", [f"apache-flink-libraries=={version}"])
        words = [*pip, "--no-deps", "--dest", str(package), *wanted]
        _run(words, place, f"Flink {version}")
        (carrier,) = package.iterdir()
        (place / "lib").mkdir()
        for name, content in _members(carrier):
            kept = FLINK_JAR.search(name)
            if kept is not None:
                with (place / "lib" / kept[1]).open("wb") as jar:
                    shutil.copyfileobj(content, jar, 1 << 20)
        shutil.rmtree(package)

    return _once(f"flink-{version}-{_sign(FLINK_JAR.pattern.encode())}", fetch) / "lib"


def _members(package: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Of a wheel, or of an archive of sources."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            for name in wheel.namelist():
                with wheel.open(name) as content:
                    yield name, content
    else:
        with tarfile.open(package) as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:  # a folder has no content
                    yield member.name, file


def _once(name: str, fetch: Callable[[Path], None], moves: bool = True) -> Path:
    """A folder that is there whole or not at all: one that holds `ready`. `moves` is false where
    paths are written into it, so that it must be made where it stays.
    """
    place = cache_folder() / name
    if (place / "ready").exists():
        return place
    with _alone(name):
        if not (place / "ready").exists():
            made = place.with_name(f"{name}.new") if moves else place
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir(parents=True)
            began = time.monotonic()
            _say(f"fetching {name.rpartition('-')[0]} into {place}, this once")
            fetch(made)
            _say(f"{name.rpartition('-')[0]} is there, after {time.monotonic() - began:.0f} s")
            (made / "ready").touch()
            if moves:
                shutil.rmtree(place, ignore_errors=True)
                made.replace(place)
    return place


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Others that want the same wait until it is there."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{name.rpartition('-')[0]}: somebody else fetches it, and is waited for")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], folder: Path, name: str) -> None:
    """Run a tool that fetches something, and say what it is at. It is given up where it says
    nothing for too long.
    """
    told: list[str] = []
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise Unavailable(f"{name} cannot be had: {error}") from error
    assert process.stdout is not None
    reader = threading.Thread(target=told.extend, args=(process.stdout,), daemon=True)
    reader.start()
    began = said = heard = time.monotonic()
    lines = 0
    while reader.is_alive():
        reader.join(1.0)
        now = time.monotonic()
        if len(told) > lines:
            lines, heard = len(told), now
        if now - said >= SECONDS_BETWEEN_LINES:
            said = now
            _say(f"{name}: {now - began:.0f} s so far{_at(told)}")
        if now - heard > SECONDS_MAX:
            process.kill()
            raise Unavailable(f"{name} cannot be had: silent for {SECONDS_MAX:.0f} s{_at(told)}")
    if process.wait():
        raise Unavailable(f"{name} cannot be had: {_plain(''.join(told))}")


def _at(told: Sequence[str]) -> str:
    """What a tool is at by its last lines: the file that it fetches, and how many it has fetched."""
    files = [found[1] for line in told if (found := FETCHED.search(line))]
    return f", {len(files)} files, now {files[-1]}" if files else ""


def _say(line: str) -> None:
    print(f"servers: {line}", file=sys.stderr, flush=True)


def _plain(told: str) -> str:
    """The gist of what a tool said. Addresses are left out: a registry may be a private one."""
    lines = [line for line in told.splitlines() if line.strip()]
    gist = [line for line in lines if "ERROR" in line][:2] or lines[-3:]
    return re.sub(r"[a-z+]+://[^\s'\",)]+", "(address)", " ".join(gist))[:800] or "it says nothing"


def _java_version(java: str) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def _sign(content: bytes) -> str:
    return sha256(content).hexdigest()[:12]
