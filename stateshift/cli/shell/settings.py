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
    """Return the settings of these directories' files; the first one counts most."""
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
            hint = f"correct or remove {path}"
            raise SpecError.of(path, f"not TOML: {error}", hint=hint) from error
    wrong = []
    for name, value in settings.items():
        where, key = f"{path}: {name}", KEYS.get(name)
        if key is None:
            expected = f"one of {', '.join(KEYS)}"
            wrong.append(Complaint(where, "no such setting", value, expected))
        elif type(value) is not key.type:
            wrong.append(Complaint(where, "not of the right type", value, key.words))
    if wrong:
        raise SpecError(tuple(wrong), hint=f"correct or remove {path}")
    return settings
