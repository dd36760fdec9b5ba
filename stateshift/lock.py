"""The lock on a target: `<target>.stateshift-lock`, created exclusively, naming the run that holds it.

It outlives the process: a run that was killed still owns its half-written target, until it is resumed or rolled back.
"""

from __future__ import annotations

import json

from stateshift.errors import AlreadyThere, JournalError
from stateshift.formats.marks import LOCK_SUFFIX
from stateshift.storage.protocol import Storage


def take(parent: Storage, name: str, run: str, workdir: str, host: str) -> None:
    """Take the lock for `run`; taking it twice is fine. `parent` is opened one above the target."""
    path = name + LOCK_SUFFIX
    content = json.dumps({"run": run, "workdir": workdir, "host": host}).encode()
    try:
        parent.create(path, content)
    except AlreadyThere as error:
        holder = _holder(parent, path)
        if holder.get("run") == run:
            return
        where = holder.get("workdir", "?")
        raise JournalError(
            f"the target {parent.location}/{name} is held by run {holder.get('run', '?')}"
            f" (workdir {where} on {holder.get('host', '?')})",
            hint=f"stateshift resume {where}, or stateshift rollback {where}; if that workdir is lost, look at the "
            f"target first, then remove {parent.location}/{path}",
        ) from error


def release(parent: Storage, name: str, run: str) -> None:
    """Let go of the lock if it is ours."""
    path = name + LOCK_SUFFIX
    if parent.stat(path) is not None and _holder(parent, path).get("run") == run:
        parent.remove(path)


def _holder(parent: Storage, path: str) -> dict[str, str]:
    try:
        found = json.loads(parent.read(path, 1 << 16))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
