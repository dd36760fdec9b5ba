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
from dataclasses import dataclass

from stateshift.errors import Complaint, SpecError

NAME = "stateshift.toml"

Settings = dict[str, object]


@dataclass(frozen=True)
class Key:
    """The type of a setting, and its name."""

    type: type
    words: str


KEYS: Mapping[str, Key] = {
    "json": Key(bool, "true or false"),
    "parallel": Key(int, "a number"),
    "throttle": Key(str, 'a rate, such as "50MB"'),
    "workdirs": Key(str, "a directory"),
    "fleet": Key(str, "a Spark master"),
    "memory": Key(str, 'a size, such as "2GiB"'),
}


def read(directories: tuple[str, ...]) -> Settings:
    """Return the settings of the files in these directories, the first one's before the second
    one's.
    """
    settings: Settings = {}
    for directory in reversed(directories):
        path = os.path.join(directory, NAME)
        if os.path.isfile(path):
            settings |= _file(path)
    return settings


def _file(path: str) -> Settings:
    import tomllib

    with open(path, "rb") as file:
        try:
            settings = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SpecError(
                (Complaint(path, f"not TOML: {error}"),), hint=f"correct or remove {path}"
            ) from error
    complaints = [_complaint(path, key, value) for key, value in settings.items()]
    wrong = tuple(complaint for complaint in complaints if complaint is not None)
    if wrong:
        raise SpecError(wrong, hint=f"correct or remove {path}")
    return settings


def _complaint(path: str, name: str, value: object) -> Complaint | None:
    where = f"{path}: {name}"
    key = KEYS.get(name)
    if key is None:
        return Complaint(where, "no such setting", value, f"one of {', '.join(KEYS)}")
    if type(value) is not key.type:
        return Complaint(where, "not of the right type", value, key.words)
    return None
