"""The part of a bug report about the machine: versions, as `stateshift --version -v` prints
them, and where a report goes. Both are read from the installed package's metadata.

Nothing is imported to learn its version, and no process is started.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from stateshift import __version__

PACKAGE = "stateshift"
DEVELOPMENT = frozenset(("dev", "bench", "fuzz", "servers"))

# `s3fs>=2024.12; extra == 's3'`: a name, and the extra that asks for it.
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)")
_AT_LEAST = re.compile(r">=\s*([0-9][0-9.]*)")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


@dataclass(frozen=True)
class Requirement:
    """A package that stateshift asks for; `extra` names the optional feature that needs it."""

    name: str
    extra: str | None = None
    at_least: str = ""


def version_lines() -> Iterator[str]:
    """Yield the lines of `stateshift --version -v`."""
    import platform

    yield f"stateshift {__version__}"
    yield f"  Python        {platform.python_version()} ({platform.python_implementation()})"
    yield f"  platform      {platform.platform()}"
    yield f"  Java          {java_version() or 'not found (JAVA_HOME, PATH)'}"
    always = [each.name for each in requirements() if each.extra is None]
    extras: dict[str, None] = {}  # each once
    for each in requirements():
        if each.extra is not None and installed_version(each.name) is not None:
            extras[each.name] = None
    extras_alone = [name for name in extras if name not in always]
    yield f"  dependencies  {_versions(always) or 'not known: the package is not installed'}"
    yield f"  extras        {_versions(extras_alone) or 'none'}"
    address = issues_address()
    if address is not None:
        yield f"  report        {address}"


def requirements() -> list[Requirement]:
    """Return the packages that stateshift asks for, those of extras for users included."""
    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        lines = []
    every = sorted(set(map(parse_requirement, lines)), key=lambda needed: needed.name)
    return [each for each in every if each.extra not in DEVELOPMENT]


def issues_address() -> str | None:
    """Return the address for bug reports: `Issues` of `[project.urls]`; None if it is not known."""
    try:
        entries = metadata.metadata(PACKAGE).get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    for entry in entries:
        label, _, address = entry.partition(",")
        if label.strip() == "Issues":
            return str(address.strip())
    return None


def parse_requirement(text: str) -> Requirement:
    """Return the name and the extra in one `Requires-Dist` line."""
    name = _REQUIREMENT.match(text)
    extra, at_least = _EXTRA.search(text), _AT_LEAST.search(text)
    return Requirement(
        name[1] if name else text,
        extra[1] if extra else None,
        at_least[1] if at_least else "",
    )


def java_version(home: str | None = None) -> str | None:
    """Return the version of Spark's Java by its `release`: JAVA_HOME's, else that of `java`."""
    home = home or os.environ.get("JAVA_HOME")
    if home is None:
        program = shutil.which("java")
        if program is None:
            return None
        home = str(Path(program).resolve().parent.parent)
    try:
        release = Path(home, "release").read_text("utf-8", "replace")
    except OSError:
        return f"unknown version in {home}"
    version = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    return f"{version[1]} ({home})" if version else f"unknown version in {home}"


def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _versions(names: list[str]) -> str:
    return ", ".join(f"{name} {installed_version(name) or 'missing'}" for name in names)
