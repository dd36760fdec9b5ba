"""The notifications of a run: each is sent in a thread of its own, and the run never waits for a
receiver. At its end the run waits for those that are still under way, for the receivers' time and
no longer. One that fails is tried again, each time after a longer pause; one that nobody got is
kept for the next run. A failure is logged, and changes nothing else.

Notifications that nobody has got yet are kept beside the run until some run has sent them:

    WORKDIR/unsent/failed-1795297031716.json     the notification, and its receiver

The next process that works on the run sends them, and so does any run beside it that notifies the
same receiver: moves by cron have a workdir each, and none of them is resumed.

A command gets the document on its standard input, and the event in STATESHIFT_EVENT. A webhook gets
it by POST; whatever 2xx it answers will do. No message of a failure has the URL in it: a token may
be a part of it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from stateshift.clusters.redaction import last_lines, redact, redact_words
from stateshift.errors import StorageError
from stateshift.notification.event import Event, Notification, document_of, slack_text
from stateshift.plain import Misfit, from_plain, to_plain
from stateshift.specification import Receiver, Receivers

FOLDER = "unsent"
# An older one is no news any more.
KEPT_SECONDS = 7 * 86400.0
# The pauses before it is tried again.
PAUSES = (0.5, 2.0, 4.0)
GRACE_SECONDS = 2.0  # a command that is killed, and an answer whose headers come slowly
SECONDS_TO_CONNECT = 5.0
STDERR_BYTES_MAX = 4096

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unsent:
    """A notification, and its receiver."""

    notification: Notification
    receiver: Receiver


@dataclass(frozen=True)
class Outbox:
    """Unsent notifications in and beside a workdir; `is_held`: whether a process works on one."""

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
        """Yield kept notifications: this user's, whole, not too old, of no run still at work."""
        for file in sorted(self.workdir.absolute().parent.glob(f"*/{FOLDER}/*.json")):
            with suppress(OSError, ValueError, Misfit):
                status = file.lstat()
                is_old = time.time() - status.st_mtime > KEPT_SECONDS
                is_another_users = status.st_uid != os.geteuid()
                is_under_way = not self.holds(file) and self.is_held(file.parent.parent)
                if not (is_old or is_another_users or is_under_way):
                    yield file, from_plain(Unsent, json.loads(file.read_text("utf-8")))

    def holds(self, file: Path) -> bool:
        return file.parent.parent == self.workdir.absolute()


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
        return self._receiver(event) is not None

    def notify(self, notification: Notification) -> None:
        receiver = self._receiver(notification.event)
        if receiver is None:
            return
        unsent = Unsent(notification, receiver)
        file = None if self._outbox is None else self._outbox.keep(unsent)
        self._begin(unsent, file)

    def send_kept(self) -> frozenset[Event]:
        """Begin to send what earlier processes kept for these receivers, and return ours."""
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
            case "rpo-passed" | "rpo-kept":
                return self._receivers.rpo


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


class NotSent(Exception):
    """Nobody was notified: no secret is in the reason. `again` is whether that may pass."""

    def __init__(self, why: str, again: bool = False) -> None:
        super().__init__(why)
        self.again = again


def send(notification: Notification, receiver: Receiver) -> None:
    """Notify a receiver.

    Raises:
        NotSent: the command failed or hung; the webhook refused, or did not answer.
    """
    if receiver.command:
        _run(notification, receiver)
        return
    document = document_of(notification)
    document["text"] = slack_text(document["text"])
    post(_url_of(receiver), document, receiver.seconds_max)


def name_of(receiver: Receiver) -> str:
    """Return the name of a receiver for a log: never its URL."""
    if receiver.command:
        return f"the command {' '.join(redact_words(receiver.command))}"
    if receiver.url_variable is not None:
        return f"the webhook of the variable {receiver.url_variable}"
    return f"the webhook of {receiver.url_file}"


def _run(notification: Notification, receiver: Receiver) -> None:
    environment = {**os.environ, "STATESHIFT_EVENT": notification.event}
    # Files and no pipes: nobody waits for a command that does not read, or that leaves a child.
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(json.dumps(document_of(notification)).encode("ascii") + b"\n")
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                receiver.command,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise NotSent(f"it cannot be started: {_reason(error)}") from error
        try:
            code = process.wait(receiver.seconds_max)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.wait()
            why = f"it took longer than {receiver.seconds_max:g} s, and was killed"
            raise NotSent(why, again=True) from error
        if code != 0:
            raise NotSent(f"exit code {code}{_said(stderr)}", again=True)


def _said(stderr: IO[bytes]) -> str:
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - STDERR_BYTES_MAX))
    line = last_lines(stderr.read().decode("utf-8", "replace"), 1)
    return f": {redact(line, os.environ)}" if line else ""


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)


def post(url: str, document: object, seconds_max: float, bearer: str = "") -> None:
    """Send a document as JSON, once; raise NotSent where it was refused, or not answered."""
    import requests  # whoever notifies nobody does not wait for this import

    host = urlsplit(url).hostname
    timeouts = (min(SECONDS_TO_CONNECT, seconds_max), seconds_max)
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else None
    try:
        # A redirect is not followed: the document would go to somebody whom nobody named.
        with requests.post(
            url,
            json=document,
            timeout=timeouts,
            headers=headers,
            allow_redirects=False,
            stream=True,
        ) as response:
            status = response.status_code
    except requests.Timeout as error:
        why = f"no answer from {host} within {seconds_max:g} s"
        raise NotSent(why, again=True) from error
    except (requests.RequestException, ValueError) as error:
        why = f"no answer from {host}: {type(error).__name__}"
        raise NotSent(why, again=isinstance(error, requests.ConnectionError)) from error
    if not 200 <= status < 300:
        passes = status >= 500 or status in (408, 425, 429)
        raise NotSent(f"{host} answered {status}", again=passes)


def _url_of(receiver: Receiver) -> str:
    if receiver.url_variable is not None:
        url = os.environ.get(receiver.url_variable, "").strip()
        place = f"the variable {receiver.url_variable}"
    else:
        path = Path((receiver.url_file or "").removeprefix("file://"))
        place = f"the file {path}"
        try:
            url = path.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise NotSent(f"{place} cannot be read: {_reason(error)}") from error
    is_url = False
    with suppress(ValueError):
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    if not is_url:
        raise NotSent(f"{place} holds no http:// or https:// URL")
    return url
