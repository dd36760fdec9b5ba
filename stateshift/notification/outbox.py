"""Notifications that nobody has got yet: kept beside the run until some run has sent them.

    WORKDIR/unsent/failed-1795297031716.json     the notification, and its receiver

The next process that works on the run sends them, and so does any run beside it that notifies the
same receiver: moves by cron have a workdir each, and none of them is resumed.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stateshift.errors import StorageError
from stateshift.notification.event import Notification
from stateshift.plain import Misfit, from_plain, to_plain
from stateshift.specification import Receiver

FOLDER = "unsent"
# An older one is no news any more.
KEPT_SECONDS = 7 * 86400.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unsent:
    """A notification, and its receiver."""

    notification: Notification
    receiver: Receiver


@dataclass(frozen=True)
class Outbox:
    """The unsent notifications of the run in a workdir, and of those beside it. `write` writes a
    file of the workdir, `is_held` is whether a process is at work on one.
    """

    workdir: Path
    write: Callable[[str, object], None]
    is_held: Callable[[Path], bool]

    def keep(self, unsent: Unsent) -> Path | None:
        """Keep a notification before it is sent; return its file, None where it cannot be kept."""
        at = round(unsent.notification.at * 1000)
        name = f"{FOLDER}/{unsent.notification.event}-{at}.json"
        try:
            self.write(name, to_plain(unsent))
        except StorageError as error:
            _log.warning("a notification cannot be kept: %s", error.fact)
            return None
        return self.workdir.absolute() / name

    def waiting(self) -> Iterator[tuple[Path, Unsent]]:
        """Yield the notifications that this run and those beside it have kept: those of this user
        that are whole, not too old, and of no run that a process is at work on.
        """
        for file in sorted(self.workdir.absolute().parent.glob(f"*/{FOLDER}/*.json")):
            with suppress(OSError, ValueError, Misfit):
                status = file.lstat()
                is_old = time.time() - status.st_mtime > KEPT_SECONDS
                is_another_users = status.st_uid != os.geteuid()
                is_under_way = not self.holds(file) and self.is_held(file.parent.parent)
                if not (is_old or is_another_users or is_under_way):
                    yield file, from_plain(Unsent, json.loads(file.read_text("utf-8")))

    def holds(self, file: Path) -> bool:
        """Whether a file is of this run."""
        return file.parent.parent == self.workdir.absolute()
