"""Changes are proposed to everybody, one at a time; what is not decided is aborted."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace

from stateshift.errors import (
    AlreadyThere,
    PlanError,
    StalePlan,
    StorageError,
    TransientStorageError,
)
from stateshift.live import signing
from stateshift.live.folder import Folder
from stateshift.live.member import decided_here, process_name
from stateshift.live.protocol.chains import Change, KnownChange, encode
from stateshift.live.standing import ChangeRequest, GroupState

SETTLED_EVERY = 10  # changes; as many are read one by one by a worker that begins


def propose(folder: Folder, now: GroupState, asked: ChangeRequest) -> Change:
    """Ship the code, then propose the change; one at a time."""
    close_overdue(folder, now)
    change = Change(
        group=now.group,
        number=len(now.changes) + 1,
        act=asked.act,
        chains=asked.chains,
        at=time.time(),
        timeout_seconds=asked.timeout_seconds,
        scheduler=asked.scheduler,
        on_error=asked.on_error,
        by=process_name(),
    )
    signature = None if asked.key is None else signing.sign(encode(change), asked.key)
    try:
        _settle(folder, now)
        for package in asked.packages:
            folder.write_code(package.digest, package.content)
        folder.propose(change, signature)
    except AlreadyThere:
        raise PlanError(
            f"somebody else has proposed change {change.number} in this moment",
            hint=_command("status", folder),
        ) from None
    except TransientStorageError:
        raise
    except StorageError as error:
        hint = "nothing has changed: when that is mended, run this command again"
        raise error.with_hint(hint) from None
    return change


def _settle(folder: Folder, now: GroupState) -> None:
    """Write the changes that nobody can alter any more into one file, now and then."""
    settled = [known for known in now.changes if known.number < now.version]
    if len(settled) % SETTLED_EVERY == 0 and settled:
        folder.settle(settled)


def close_overdue(folder: Folder, now: GroupState) -> None:
    """Abort the change that is under way if its time is over; refuse if it is not."""
    if not now.changes or now.changes[-1].decided is not None:
        return
    change = now.changes[-1].change
    if time.time() < change.expires:
        raise PlanError(
            f"change {change.number} is under way since {max(0.0, time.time() - change.at):.0f} s",
            hint=f"wait for it, or: {_command('abort', folder)}",
        )
    if folder.decide(change.number, decided_here("aborted", change.overdue)).outcome == "applied":
        raise StalePlan(
            f"change {change.number} was applied in this moment",
            hint="run this command again: it goes by what runs now",
        )


def abort(folder: Folder, now: GroupState) -> KnownChange:
    """Abort what is under way; return what it was, and what became of it."""
    if not now.changes or now.changes[-1].decided is not None:
        raise PlanError("nothing is under way", hint=_way_back(folder, now.changes))
    known = now.changes[-1]
    held = folder.decide(known.number, decided_here("aborted", "stateshift live abort"))
    known = replace(known, decided=held)
    if known.applied:
        raise PlanError(
            f"change {known.number} was applied in this moment",
            hint=_way_back(folder, (known,)),
        )
    return known


def _way_back(folder: Folder, changes: Sequence[KnownChange]) -> str:
    """Return the command that takes the newest change back; where there is none, the one that
    shows what runs.
    """
    held = [known for known in changes if known.holds]
    if not held:
        return _command("status", folder)
    return _command("revert", folder, *held[-1].change.chains)


def _command(name: str, folder: Folder, *chains: str) -> str:
    """Return a command about the group, to be pasted."""
    return shlex.join(("stateshift", "live", name, folder.location, *chains))
