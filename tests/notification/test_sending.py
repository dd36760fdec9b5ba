"""Notifications to real commands and a real server of this machine, and to those that fail."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stateshift.cli.views.documents import schema_of
from stateshift.notification.event import Notification, RunFailure, document_of, slack_text
from stateshift.notification.notifier import Notifier, NotSent, name_of, send
from stateshift.specification import Receiver, Receivers
from tests.support.listening import listening
from tests.support.processes import in_time, runs

TOKEN = "T0123/B4567/hunter2hunter2"

FINISHED = Notification(
    "finished", "run-1", "finished", ("orders",), "/srv/run", "here", 5.0, "down for 3.2 s", 3.2
)
FAILED = Notification(
    event="failed",
    run="run-1",
    state="failed",
    jobs=("orders", "payments"),
    workdir="/srv/run",
    host="here",
    at=5.0,
    detail="no space (exit code 6)",
    failure=RunFailure("StorageError", "no space", "df -h /srv", 6),
)


class Server:
    """A webhook: what it was sent, and what it answers."""

    def __init__(self, status: int = 200, hangs: bool = False) -> None:
        self.status, self.hangs = status, hangs
        self.over = threading.Event()
        self.got: list[tuple[str, Any]] = []

    @contextmanager
    def running(self) -> Iterator[str]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.got.append((self.path, json.loads(body)))
                if server.hangs:
                    server.over.wait(30)
                    return
                self.send_response(server.status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Keep quiet."""

        with listening(Handler) as address:
            try:
                yield f"http://{address}/services/{TOKEN}"
            finally:
                self.over.set()


def webhook(monkeypatch: pytest.MonkeyPatch, url: str, seconds_max: float = 60.0) -> Receiver:
    monkeypatch.setenv("TEAM_URL", url)
    return Receiver(url_variable="TEAM_URL", seconds_max=seconds_max)


def kept(path: Path, seconds_max: float = 60.0, then: str = "") -> Receiver:
    """A command that keeps what it gets."""
    script = f'echo "$STATESHIFT_EVENT" > "$0.event"; cat > "$0"; {then}'
    return Receiver(("sh", "-c", script, str(path)), seconds_max=seconds_max)


@pytest.mark.parametrize("notification", [FINISHED, FAILED])
def test_a_command_gets_the_document_on_its_standard_input(
    notification: Notification, tmp_path: Path
) -> None:
    send(notification, kept(tmp_path / "got"))
    document = json.loads((tmp_path / "got").read_text())
    assert document == document_of(notification)
    jsonschema.validate(document, schema_of("notification", strict=True))
    assert (tmp_path / "got.event").read_text() == f"{notification.event}\n"


def test_a_webhook_gets_the_document_with_a_text_that_slack_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    with server.running() as url:
        send(FINISHED, webhook(monkeypatch, url))
    ((path, document),) = server.got
    assert path == f"/services/{TOKEN}"
    assert document == document_of(FINISHED)
    assert document["text"] == ("stateshift: orders finished: down for 3.2 s; run run-1 on here")


def test_slack_sees_no_markup_in_a_name() -> None:
    assert slack_text("<!channel> a & b") == "&lt;!channel&gt; a &amp; b"


def test_the_url_may_stand_in_a_file(tmp_path: Path) -> None:
    server = Server(status=204)
    with server.running() as url:
        (tmp_path / "url").write_text(f"{url}\n")
        send(FINISHED, Receiver(url_file=f"file://{tmp_path}/url"))
    assert len(server.got) == 1


@pytest.mark.parametrize("status", [302, 400, 404, 500])
def test_an_answer_that_is_no_success_is_told_without_the_url(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(status)
    with server.running() as url, pytest.raises(NotSent) as caught:
        send(FINISHED, webhook(monkeypatch, url))
    assert str(caught.value) == f"127.0.0.1 answered {status}"
    assert len(server.got) == 1, "a redirect is not followed"


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(hangs=True)
    with server.running() as url, pytest.raises(NotSent) as caught:
        send(FINISHED, webhook(monkeypatch, url, seconds_max=0.2))
    assert str(caught.value) == "no answer from 127.0.0.1 within 0.2 s"


def test_a_server_that_is_not_there_is_told_without_the_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(NotSent) as caught:
        send(FINISHED, webhook(monkeypatch, f"http://127.0.0.1:1/services/{TOKEN}"))
    assert "127.0.0.1" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "hunter2", "ftp://a/hunter2", "http://[hunter2", "http://"])
def test_a_variable_without_a_url_is_named_and_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotSent) as caught:
        send(FINISHED, webhook(monkeypatch, url))
    assert str(caught.value) == "the variable TEAM_URL holds no http:// or https:// URL"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotSent, match="none cannot be read: No such file"):
        send(FINISHED, Receiver(url_file=f"file://{tmp_path}/none"))


def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "got.child"
    for seconds_max in (0.3, 5.0, 50.0):  # a slow machine has not started it before it is killed
        receiver = kept(tmp_path / "got", seconds_max, 'sleep 600 & echo $! > "$0.child"; wait')
        with pytest.raises(NotSent, match="it took longer than"):
            send(FINISHED, receiver)
        if child.exists() and child.read_text():
            break
    assert in_time(lambda: not runs(int(child.read_text())))


def test_a_command_that_reads_nothing_and_leaves_a_child_is_not_waited_for() -> None:
    receiver = Receiver(("sh", "-c", "sleep 60 & exit 0"), seconds_max=60.0)
    began = time.monotonic()
    send(FINISHED, receiver)
    assert time.monotonic() - began < 60


def test_a_command_that_fails_is_told_with_its_last_line_without_secrets() -> None:
    receiver = Receiver(("sh", "-c", "echo one >&2; echo password=hunter2 bad >&2; exit 3"))
    with pytest.raises(NotSent) as caught:
        send(FINISHED, receiver)
    assert str(caught.value) == "exit code 3: password=*** bad"


@pytest.mark.parametrize("program", ["/no/such/program", "/", "a\0b"])
def test_a_command_that_is_not_there_is_told(program: str) -> None:
    with pytest.raises(NotSent, match="cannot be started"):
        send(FINISHED, Receiver((program,)))


def test_a_receiver_is_called_by_what_holds_its_url() -> None:
    assert name_of(Receiver(url_variable="TEAM_URL")) == "the webhook of the variable TEAM_URL"
    assert name_of(Receiver(url_file="file:///etc/url")) == "the webhook of file:///etc/url"
    assert name_of(Receiver(("a", "--token", "x"))) == "the command a --token ***"


def test_a_run_goes_on_while_a_receiver_hangs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ready = Notification("ready", "r", "running", ("a",), "/w", "here", 1.0)
    until_told = 'until [ -e "$0.go" ]; do sleep 0.02; done'
    notifier = Notifier(Receivers(ready=kept(tmp_path / "got", 60.0, until_told)))
    notifier.notify(ready)
    (tmp_path / "got.go").touch()  # it is not told before `notify` has come back
    assert notifier.wait() == {"ready"}
    notifier = Notifier(Receivers(ready=kept(tmp_path / "got", 0.3, then="sleep 60")))
    with caplog.at_level(logging.INFO, "stateshift"):
        notifier.notify(ready)
        assert notifier.wait() == frozenset()
    assert re.search("notified of ready: it (took longer than 0.3 s|takes too long)", caplog.text)


def test_what_was_sent_is_known_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = Notifier(Receivers(finished=kept(tmp_path / "got"), failed=Receiver(("false",))))
    with caplog.at_level(logging.INFO, "stateshift"):
        notifier.notify(FINISHED)
        notifier.notify(FAILED)
        notifier.notify(Notification("ready", "r", "running", ("a",), "/w", "here", 1.0))
        assert notifier.wait() == {"finished"}
    assert "the command false was not notified of failed: exit code 1" in caplog.text
    assert "was notified of finished" in caplog.text


def test_a_command_has_the_environment_of_the_run(tmp_path: Path) -> None:
    script = f'printenv PATH > "{tmp_path}/path"'
    send(FINISHED, Receiver(("sh", "-c", script)))
    assert (tmp_path / "path").read_text().strip() == os.environ["PATH"]
