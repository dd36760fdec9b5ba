"""Whose the files of a local disk are. By name where the machine knows one: numbers mean
somebody else elsewhere.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat as modes
from collections.abc import Iterator

from stateshift.storage.temporaries import is_temporary
from stateshift.survey import Owned


def owners(root: str) -> Iterator[Owned]:
    """Everything below, and the place itself. A link is what it leads to, as everywhere else."""
    if not os.path.exists(root):
        return
    yield _owned(root, "")
    if not os.path.isdir(root):
        return
    for folder, folders, files in os.walk(root, followlinks=True):
        for name in [*folders, *(file for file in files if not is_temporary(file))]:
            full = os.path.join(folder, name)
            yield _owned(full, os.path.relpath(full, root))


def own(full: str, owned: Owned) -> None:
    """The permissions first: who has given a file away may not change them any more."""
    if owned.mode is not None:
        os.chmod(full, owned.mode)
    for key, name in (("user", owned.owner), ("group", owned.group)):
        if name is not None:
            try:
                shutil.chown(full, **{key: int(name) if name.isdecimal() else name})
            except LookupError as error:
                raise PermissionError(0, f"this machine has no {key} {name}", full) from error


def _owned(full: str, path: str) -> Owned:
    found = os.stat(full)
    owner, group = _name(pwd.getpwuid, found.st_uid), _name(grp.getgrgid, found.st_gid)
    return Owned(path, owner, group, modes.S_IMODE(found.st_mode))


def _name(ask: object, number: int) -> str:
    try:
        return str(ask(number)[0])  # type: ignore[operator]
    except KeyError:
        return str(number)
