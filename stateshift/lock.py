"""The lock on a target: `<target>.stateshift-lock`, created exclusively, naming the run that holds
it.

It outlives the process: a run that was killed still owns its half-written target, until it is
resumed or rolled back.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from shlex import quote

from stateshift.errors import AlreadyThere, JournalError, MissingFile
from stateshift.formats.marks import LOCK_SUFFIX
from stateshift.storage.locations import redact
from stateshift.storage.protocol import Storage

ATTEMPTS = 3  # each fails only where somebody else takes the lock and releases it in between
_log = logging.getLogger(__name__)

BEGINNING = 60  # bytes of a lock that is none of ours which its error quotes


def take(parent: Storage, name: str, run: str, workdir: str, host: str) -> None:
    """Take the lock for `run`; taking it twice is fine. `parent` is opened one above the target."""
    path = name + LOCK_SUFFIX
    content = json.dumps({"run": run, "workdir": workdir, "host": host}).encode()
    for _ in range(ATTEMPTS):
        # Looked at first: a full disk must not keep us from a lock that is ours already.
        holder = _holder(parent, path)
        if holder is not None and holder.get("run") == run:
            return
        if holder is not None:
            raise _held(parent, name, holder)
        with suppress(AlreadyThere):  # somebody took it since we looked: look again
            parent.create(path, content)
            _log.info("lock taken: %s/%s", redact(parent.location.rstrip("/")), path)
            return
    # A name that can be neither read nor created, as that of a link to nothing.
    lock = f"{parent.location.rstrip('/')}/{path}"
    raise JournalError(
        f"the lock {lock} cannot be read, and cannot be created: the name is taken by "
        "something that is no file, "
        "such as a link that leads nowhere",
        hint=f"look at it (ls -l); if no run has made it, remove {lock}",
    )


def refuse_held(parent: Storage, name: str, but: str | None = None) -> None:
    """Refuse to plan for a target that a run still works on, and changes, `but` this one."""
    holder = _holder(parent, name + LOCK_SUFFIX)
    if holder is not None and (but is None or holder.get("run") != but):
        raise _held(parent, name, holder)


def _held(parent: Storage, name: str, holder: dict[str, str]) -> JournalError:
    here, where = parent.location.rstrip("/"), holder.get("workdir")
    by_hand = f"look at the target first, then remove {here}/{name}{LOCK_SUFFIX}"
    if where is None:
        fact = f"the target {here}/{name} is held, and its lock does not say by whom"
        if holder.get("begins"):
            fact += f"; it begins {holder['begins']!r}"
        return JournalError(fact, hint=by_hand)
    run, host = holder.get("run", "?"), holder.get("host", "?")
    return JournalError(
        f"the target {here}/{name} is held by run {run} (workdir {where} on {host})",
        hint=f"{_ways_out(where)}; if that workdir is lost, {by_hand}",
    )


def _ways_out(workdir: str) -> str:
    """Return the commands that end the run of a lock, or show why it has not ended."""
    where = quote(workdir)
    return (
        f"stateshift status {where} tells whether it is at work; "
        f"else stateshift resume {where}, or stateshift rollback {where}"
    )


def refuse_source(parent: Storage, name: str, run: str) -> None:
    """Refuse a source to which another run still brings an image, or takes one back from."""
    path = name + LOCK_SUFFIX
    holder = _holder(parent, path)
    if holder is not None and holder.get("run") != run:
        where = holder.get("workdir")
        if where is None:
            raise _held(parent, name, holder)
        source = f"{parent.location.rstrip('/')}/{name}"
        raise JournalError(
            f"the source {source} is the target of run {holder.get('run', '?')}, which has "
            f"not ended (workdir {where} on {holder.get('host', '?')})",
            hint=f"{_ways_out(where)}; of a standby, stateshift failover {quote(source)} starts "
            f"its job; if that workdir is lost, stateshift verify {quote(source)} --deep tells "
            f"what is there: then remove {source}{LOCK_SUFFIX}",
        )


def release(parent: Storage, name: str, run: str) -> None:
    """Let go of the lock if it is ours."""
    path = name + LOCK_SUFFIX
    holder = _holder(parent, path)
    if holder is not None and holder.get("run") == run:
        parent.remove(path)
        _log.info("lock released: %s/%s", redact(parent.location.rstrip("/")), path)


def _holder(parent: Storage, path: str) -> dict[str, str] | None:
    """Return the content of the lock, or its begin if it is none of ours; None without one."""
    try:
        content = parent.read(path, 1 << 16)
    except MissingFile:
        return None
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        holder = None
    if isinstance(holder, dict) and all(isinstance(value, str) for value in holder.values()):
        return holder
    return {"begins": content[:BEGINNING].decode("utf-8", "replace")}
