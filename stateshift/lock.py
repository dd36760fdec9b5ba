"""The lock on a target: `<target>.stateshift-lock`, created exclusively, naming the run that holds it.

It outlives the process: a run that was killed still owns its half-written target, until it is resumed or rolled back.
"""

from __future__ import annotations

import json
from shlex import quote

from stateshift.errors import AlreadyThere, JournalError, MissingFile
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
        if holder is None:  # let go of in the meantime
            return take(parent, name, run, workdir, host)
        if holder.get("run") == run:
            return None
        here = parent.location.rstrip("/")
        where, by_hand = holder.get("workdir"), f"look at the target first, then remove {here}/{path}"
        if where is None:
            raise JournalError(f"the target {here}/{name} is held, and its lock does not say by whom",
                               hint=by_hand) from error  # fmt: skip
        raise JournalError(
            f"the target {here}/{name} is held by run {holder.get('run', '?')} (workdir {where} on "
            f"{holder.get('host', '?')})",
            hint=f"stateshift resume {quote(where)}, or stateshift rollback {quote(where)}; if that workdir is lost, "
            + by_hand,
        ) from error
    return None


def refuse_source(parent: Storage, name: str, run: str) -> None:
    """Refuse to move on from a place that another run is still bringing an image to, or taking one back from."""
    path = name + LOCK_SUFFIX
    holder = _holder(parent, path)
    if holder is not None and holder.get("run") != run:
        where = holder.get("workdir", "?")
        raise JournalError(
            f"the source {parent.location.rstrip('/')}/{name} is the target of run {holder.get('run', '?')}, which has "
            f"not ended (workdir {where} on {holder.get('host', '?')})",
            hint=f"let it finish first: stateshift resume {quote(where)}",
        )


def release(parent: Storage, name: str, run: str) -> None:
    """Let go of the lock if it is ours."""
    path = name + LOCK_SUFFIX
    holder = _holder(parent, path)
    if holder is not None and holder.get("run") == run:
        parent.remove(path)


def _holder(parent: Storage, path: str) -> dict[str, str] | None:
    """What the lock says of itself; None where there is none."""
    try:
        found = json.loads(parent.read(path, 1 << 16))
    except MissingFile:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
