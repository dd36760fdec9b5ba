"""One notification to one receiver, within its time.

A command gets the document on its standard input, and the event in STATESHIFT_EVENT. A webhook gets
it by POST; whatever 2xx it answers will do. No message of a failure has the URL in it: a token may
be a part of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from stateshift.clusters.redaction import last_lines, redact, redact_words
from stateshift.notification.event import Notification, document_of, slack_text
from stateshift.specification import Receiver

SECONDS_TO_CONNECT = 5.0
STDERR_BYTES_MAX = 4096


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
    else:
        _post(notification, receiver)


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
    """Return the last line that a command has written to stderr."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - STDERR_BYTES_MAX))
    line = last_lines(stderr.read().decode("utf-8", "replace"), 1)
    return f": {redact(line, os.environ)}" if line else ""


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)


def _post(notification: Notification, receiver: Receiver) -> None:
    import requests  # whoever notifies nobody does not wait for this import

    url = _url_of(receiver)
    host = urlsplit(url).hostname
    document = document_of(notification)
    document["text"] = slack_text(document["text"])
    timeouts = (min(SECONDS_TO_CONNECT, receiver.seconds_max), receiver.seconds_max)
    try:
        # A redirect is not followed: the document would go to somebody whom nobody named.
        with requests.post(
            url, json=document, timeout=timeouts, allow_redirects=False, stream=True
        ) as response:
            status = response.status_code
    except requests.Timeout as error:
        why = f"no answer from {host} within {receiver.seconds_max:g} s"
        raise NotSent(why, again=True) from error
    except (requests.RequestException, ValueError) as error:
        why = f"no answer from {host}: {type(error).__name__}"
        raise NotSent(why, again=isinstance(error, requests.ConnectionError)) from error
    if not 200 <= status < 300:
        passes = status >= 500 or status in (408, 425, 429)
        raise NotSent(f"{host} answered {status}", again=passes)


def _url_of(receiver: Receiver) -> str:
    """Return the URL that a variable or a file holds."""
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
