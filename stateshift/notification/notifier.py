"""The notifications of a run: each is sent in a thread of its own, and the run never waits for a
receiver. At its end the run waits for those that are still under way, for the receivers' time and
no longer. One that fails is tried again, each time after a longer pause; one that nobody got is
kept for the next run. A failure is logged, and changes nothing else.

Notifications that nobody has got yet are kept beside the run until some run has sent them:

    WORKDIR/unsent/failed-1795297031716.json     the notification, and its receiver

The next process that works on the run sends them, and so does any run beside it that notifies the
same receiver: moves by cron have a workdir each, and none of them is resumed.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stateshift.errors import StorageError
from stateshift.notification.event import Event, Notification
from stateshift.notification.sending import NotSent, name_of, send
from stateshift.plain import Misfit, from_plain, to_plain
from stateshift.specification import Receiver, Receivers

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


# The pauses before it is tried again.
PAUSES = (0.5, 2.0, 4.0)
GRACE_SECONDS = 2.0  # a command that is killed, and an answer whose headers come slowly

_log = logging.getLogger(__name__)


@dataclass
class _Sending:
    """A notification under way, kept in `file` until it is sent; of this run if `is_own`."""

    unsent: Unsent
    until: float
    file: Path | None
    is_own: bool = True
    sent: threading.Event = field(default_factory=threading.Event)

    @property
    def event(self) -> Event:
        return self.unsent.notification.event

    def begin(self) -> threading.Thread:
        """Send it in a thread of its own."""
        name = f"notify-{self.event}"
        thread = threading.Thread(target=_send, args=(self,), name=name, daemon=True)
        thread.start()
        return thread


class Notifier:
    """Sends the notifications that a run's spec asks for."""

    def __init__(self, receivers: Receivers | None, outbox: Outbox | None = None) -> None:
        self._receivers = receivers or Receivers()
        self._outbox = outbox
        self._under_way: list[tuple[_Sending, threading.Thread]] = []

    def wants(self, event: Event) -> bool:
        """Whether somebody is to be notified of this event."""
        return self._receiver(event) is not None

    def notify(self, notification: Notification) -> None:
        """Begin to send it; return at once."""
        receiver = self._receiver(notification.event)
        if receiver is None:
            return
        unsent = Unsent(notification, receiver)
        file = None if self._outbox is None else self._outbox.keep(unsent)
        self._begin(unsent, file)

    def send_kept(self) -> frozenset[Event]:
        """Begin to send what earlier processes have kept for the same receivers; return the events
        of this run among them.
        """
        own: set[Event] = set()
        if self._outbox is None:
            return frozenset()
        begun = [sending.file for sending, _ in self._under_way]
        for file, unsent in self._outbox.waiting():
            event = unsent.notification.event
            if file in begun or unsent.receiver != self._receiver(event):
                continue
            self._begin(unsent, file, self._outbox.holds(file))
            if self._outbox.holds(file):
                own.add(event)
        return frozenset(own)

    def _begin(self, unsent: Unsent, file: Path | None, is_own: bool = True) -> None:
        until = time.monotonic() + unsent.receiver.seconds_max + GRACE_SECONDS
        sending = _Sending(unsent, until, file, is_own)
        self._under_way.append((sending, sending.begin()))

    def wait(self) -> frozenset[Event]:
        """Wait for what is under way, as long as it may take. Return the events that were sent."""
        sendings, self._under_way = self._under_way, []
        for sending, thread in sendings:
            thread.join(max(0.0, sending.until - time.monotonic()))
            if thread.is_alive():
                _log.warning("nobody was notified of %s: it takes too long", sending.event)
        own = [sending for sending, _ in sendings if sending.is_own]
        return frozenset(sending.event for sending in own if sending.sent.is_set())

    def _receiver(self, event: Event) -> Receiver | None:
        match event:
            case "ready":
                return self._receivers.ready
            case "failed":
                return self._receivers.failed
            case "finished":
                return self._receivers.finished


def _send(sending: _Sending) -> None:
    """Send it, and try again while that may help, for the receiver's time."""
    for pause in (*PAUSES, None):
        if not _is_tried_again(sending) or pause is None:
            return
        if time.monotonic() + pause > sending.until - GRACE_SECONDS:
            return
        time.sleep(pause)


def _is_tried_again(sending: _Sending) -> bool:
    """Send it once, whatever happens: an error of ours here is no error of the run."""
    notification, receiver = sending.unsent.notification, sending.unsent.receiver
    name = name_of(receiver)
    try:
        send(notification, receiver)
    except NotSent as error:
        _log.warning("%s was not notified of %s: %s", name, notification.event, error)
        return error.again
    except Exception as error:
        # Without its text: a URL may be a part of that.
        kind = type(error).__name__
        _log.warning("%s was not notified of %s: %s", name, notification.event, kind)
        return False
    sending.sent.set()
    if sending.file is not None:
        with suppress(OSError):
            sending.file.unlink()
    _log.info("%s was notified of %s", name, notification.event)
    return False
