"""The settings that are not typed, and the profiles: `stateshift.toml` in the working directory,
then in the user's config directory.

    json = true               as --json
    parallel = 8              as --parallel
    throttle = "50MB"         as --throttle
    workdirs = "/var/runs"    as --workdirs
    fleet = "spark://m:7077"  as --fleet
    memory = "2GiB"           how much memory a process may take for what it reads
    policy = "policy.json"    rules that every new run has to keep; beside this file, if relative
    [profile.dr]              what --profile dr uses (`stateshift.specification.profile`)

Flags come first, then the environment (`STATESHIFT_PARALLEL`, …), then these files, then what a
command does by itself. STATESHIFT_PROFILE, or `--profile`, names the profile in use. It is taken
whole from the first file that has it. Policies add up: none takes another's place. Without a
file nothing more is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift.errors import SpecError
from stateshift.suggestion import did_you_mean

if TYPE_CHECKING:
    from stateshift.specification.profile import Profile

NAME = "stateshift.toml"
OF_THE_MACHINE = "/etc/stateshift/policy.json"


def settings_directories() -> tuple[str, str]:
    """Return the folders of the files of settings; the first one counts most."""
    from typer import get_app_dir

    return os.getcwd(), get_app_dir("stateshift")


def profile_in_use() -> Profile | None:
    """Return the profile that the environment names; None if it names none.

    Raises:
        SpecError: no file has it, or it is not valid; with file and line of each mistake.
    """
    name = os.environ.get("STATESHIFT_PROFILE")
    return named_profile(name) if name else None


def policies_in_use() -> tuple[str, ...]:
    """Return the files of the rules that a new run has to keep: the machine's, and those named by
    the environment, by the profile and by each file of settings.

    Raises:
        SpecError: a file of settings is not valid, or the environment's path is relative.
        OSError: nobody can tell whether the machine has one.
    """
    paths = []
    with suppress(FileNotFoundError, NotADirectoryError):
        os.lstat(OF_THE_MACHINE)  # one that is there and hidden is an error
        paths.append(OF_THE_MACHINE)
    own = os.environ.get("STATESHIFT_POLICY")
    if own and not os.path.isabs(own):
        expected = "a path from the root on"
        raise SpecError.of("STATESHIFT_POLICY", f"{own} is another file elsewhere", own, expected)
    paths += [own] if own else []
    profile = profile_in_use()
    named = [(profile.file, profile.settings)] if profile else []
    for folder in settings_directories():
        named.append((os.path.join(folder, NAME), settings((folder,))))
    for file, values in named:
        if "policy" in values:
            folder = os.path.dirname(os.path.abspath(file))
            paths.append(os.path.join(folder, str(values["policy"])))
    return tuple(dict.fromkeys(paths))


def settings(directories: tuple[str, ...]) -> dict[str, object]:
    """Return the settings of these directories' files, without profiles; the first counts most."""
    values: dict[str, object] = {}
    for path in reversed(_files(directories)):
        from stateshift.specification.profile import read_settings

        text, table = _table(path)
        table.pop("profile", None)
        with _naming_lines(path, text):
            values |= read_settings(table, os.environ)
    return values


def named_profile(name: str) -> Profile:
    """Return the profile of this name."""
    from stateshift.extensions import names_added
    from stateshift.specification.profile import read_profile

    seen: list[str] = []
    for path in _files(settings_directories()):
        text, table = _table(path)
        profiles = table.get("profile")
        if isinstance(profiles, dict) and name in profiles:
            with _naming_lines(path, text):
                return read_profile(name, path, profiles[name], os.environ, names_added)
        seen += profiles if isinstance(profiles, dict) else ()
    fact = f"there is no profile {name!r}{did_you_mean(name, seen)}"
    places = " or ".join(os.path.join(each, NAME) for each in settings_directories())
    hint = f"--profile {seen[0]}" if seen else f"write [profile.{name}] in {places}"
    expected = f"one of {', '.join(seen)}" if seen else None
    raise SpecError.of("--profile", fact, name, expected, hint=hint)


def _files(directories: tuple[str, ...]) -> list[str]:
    """Return the files of settings that are there."""
    paths = [os.path.join(directory, NAME) for directory in directories]
    return [path for path in paths if os.path.isfile(path)]


def _table(path: str) -> tuple[str, dict[str, object]]:
    """Return a file's text, and its content."""
    import tomllib

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError.of(path, f"not TOML: {error}", hint=f"correct {path}") from error


@contextmanager
def _naming_lines(path: str, text: str) -> Iterator[None]:
    """Let errors name the file, and each mistake its line."""
    try:
        yield
    except SpecError as error:
        lines = [line_in_toml(text, each.pointer) for each in error.complaints]
        pairs = zip(error.complaints, lines, strict=True)
        error.complaints = tuple(replace(each, line=line) for each, line in pairs)
        error.hint = f"correct {path}"
        error.where["path"] = path
        raise


def line_in_toml(text: str, pointer: str) -> int | None:
    """Return the line on which the value of a JSON pointer begins, or the deepest one that is
    there. The parser keeps no places: the file is read again, from its first lines on.
    """
    import tomllib

    wanted = [name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:]]
    lines = text.splitlines(keepends=True)
    found: tuple[int, int] | None = None
    whole_until = 0
    for count in range(1, len(lines) + 1):
        try:
            tree: object = tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue  # within a value of several lines
        depth = 0
        for name in wanted:
            if not isinstance(tree, dict) or name not in tree:
                break
            tree, depth = tree[name], depth + 1
        if depth and (found is None or depth > found[0]):
            found = (depth, whole_until + 1)
        whole_until = count
    return None if found is None else found[1]
