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
from itertools import filterfalse

from stateshift.storage.temporaries import is_temporary
from stateshift.survey import Owned


def owners(root: str) -> Iterator[Owned]:
    """Yield the place itself, and all below. A link is what it leads to, as everywhere else."""
    if not os.path.exists(root):
        return
    yield _owned(root, "")
    # What is no directory is walked, too: it has nothing below.
    for directory, directories, files in os.walk(root, followlinks=True):
        for name in [*directories, *filterfalse(is_temporary, files)]:
            full = os.path.join(directory, name)
            yield _owned(full, os.path.relpath(full, root))


def own(full: str, owned: Owned) -> None:
    """Set the permissions first: who has given a file away may not change them any more."""
    if owned.mode is not None:
        os.chmod(full, owned.mode)
    if owned.owner is not None:
        _give_to_user(full, owned.owner)
    if owned.group is not None:
        _give_to_group(full, owned.group)


def _give_to_user(full: str, user: str) -> None:
    try:
        shutil.chown(full, user=_id_or_name(user))
    except LookupError as error:
        raise PermissionError(0, f"this machine has no user {user}", full) from error


def _give_to_group(full: str, group: str) -> None:
    try:
        shutil.chown(full, group=_id_or_name(group))
    except LookupError as error:
        raise PermissionError(0, f"this machine has no group {group}", full) from error


def _id_or_name(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _owned(full: str, path: str) -> Owned:
    status = os.stat(full)
    owner, group = _user_name(status.st_uid), _group_name(status.st_gid)
    return Owned(path, owner, group, modes.S_IMODE(status.st_mode))


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
