"""Settings that are not typed: `stateshift.toml` in the working directory, then in the user's
config directory.

    json = true               as --json
    parallel = 8              as --parallel
    throttle = "50MB"         as --throttle
    workdirs = "/var/runs"    as --workdirs
    fleet = "spark://m:7077"  as --fleet
    memory = "2GiB"           how much memory a process may take for what it reads

Flags come first, then the environment (`STATESHIFT_PARALLEL`, …), then these files, then what a
command does by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from stateshift.errors import Complaint, SpecError

NAME = "stateshift.toml"
KEYS: Mapping[str, tuple[type, str]] = {
    "json": (bool, "true or false"),
    "parallel": (int, "a number"),
    "throttle": (str, 'a rate, such as "50MB"'),
    "workdirs": (str, "a directory"),
    "fleet": (str, "a Spark master"),
    "memory": (str, 'a size, such as "2GiB"'),
}


def read(directories: tuple[str, ...]) -> dict[str, Any]:
    """The settings of the files in these directories, the first one's before the second one's."""
    settings: dict[str, Any] = {}
    for directory in reversed(directories):
        path = os.path.join(directory, NAME)
        if os.path.isfile(path):
            settings |= _file(path)
    return settings


def _file(path: str) -> dict[str, Any]:
    import tomllib

    with open(path, "rb") as file:
        try:
            found = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SpecError(
                (Complaint(path, f"not TOML: {error}"),), hint=f"correct or remove {path}"
            ) from error
    complaints = tuple(c for key, value in found.items() for c in _complaints(path, key, value))
    if complaints:
        raise SpecError(complaints, hint=f"correct or remove {path}")
    return found


def _complaints(path: str, key: str, value: Any) -> list[Complaint]:
    if key not in KEYS:
        return [Complaint(f"{path}: {key}", "no such setting", value, f"one of {', '.join(KEYS)}")]
    wanted, words = KEYS[key]
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        return [Complaint(f"{path}: {key}", "not of the right type", value, words)]
    return []
