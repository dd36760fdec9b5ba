"""Notifications that fail: tried again while that may help, kept, and sent by the next run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stateshift.notification.notifier import FOLDER, KEPT_SECONDS, Notifier, Outbox
from stateshift.specification import Receiver, Receivers
from stateshift.workdir import Workdir
from tests.notification.test_sending import FAILED, FINISHED, Server, webhook

pytestmark = pytest.mark.row("W-13")


def outbox(path: Path) -> Outbox:
    return Outbox(path, Workdir(path).write, lambda other: Workdir(other).held)


def failing(tmp_path: Path, times: int) -> Receiver:
    """A command that fails so often, then writes what it gets."""
    script = f"""
        cd {tmp_path}; echo x >> tries
        [ $(wc -l < tries) -gt {times} ] && cat >> got
    """
    return Receiver(("sh", "-c", script))


def tries(tmp_path: Path) -> int:
    return len((tmp_path / "tries").read_text().splitlines())


def notifier(workdir: Path, receiver: Receiver) -> Notifier:
    workdir.mkdir(exist_ok=True, parents=True)
    return Notifier(Receivers(finished=receiver, failed=receiver), outbox(workdir))


def kept(workdir: Path) -> list[str]:
    folder = workdir / FOLDER
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def test_a_receiver_that_fails_twice_gets_it_at_the_third_try(tmp_path: Path) -> None:
    sender = notifier(tmp_path / "run", failing(tmp_path, 2))
    sender.notify(FINISHED)
    assert sender.wait() == {"finished"}
    assert tries(tmp_path) == 3
    assert kept(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("status", "tried"), [(503, True), (429, True), (403, False), (404, False)]
)
def test_an_answer_is_tried_again_only_where_that_may_help(
    status: int, tried: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(status)
    with server.running() as url:
        sender = notifier(tmp_path / "run", webhook(monkeypatch, url, 3.0))
        began = time.monotonic()
        sender.notify(FINISHED)
        assert sender.wait() == frozenset()
        assert time.monotonic() - began < 3.0 + 2.5
    assert (len(server.got) > 1) is tried
    assert len(kept(tmp_path / "run")) == 1, "whoever mends it gets it from the next run"


def test_what_nobody_got_is_sent_by_the_next_run_beside_it_and_once(tmp_path: Path) -> None:
    receiver = failing(tmp_path, 4)
    first = notifier(tmp_path / "runs" / "0001-a", receiver)
    first.notify(FAILED)
    assert first.wait() == frozenset()
    assert len(kept(tmp_path / "runs" / "0001-a")) == 1
    for workdir in ("0002-b", "0003-c"):
        later = notifier(tmp_path / "runs" / workdir, receiver)
        later.send_kept()
        later.send_kept()
        assert later.wait() == frozenset(), "none of them is of this run"
        assert kept(tmp_path / "runs" / "0001-a") == []
    assert (tmp_path / "got").read_text().count("no space (exit code 6)") == 1


def test_another_receiver_does_not_get_what_was_meant_for_this_one(tmp_path: Path) -> None:
    """Nor is a command run that stands in a file and not in the spec."""
    first = notifier(tmp_path / "a", failing(tmp_path, 9))
    first.notify(FINISHED)
    first.wait()
    before = tries(tmp_path)
    other = notifier(tmp_path / "b", Receiver(("touch", str(tmp_path / "touched"))))
    other.send_kept()
    other.wait()
    assert not (tmp_path / "touched").exists()
    assert tries(tmp_path) == before
    assert len(kept(tmp_path / "a")) == 1


def test_what_a_process_is_at_work_on_or_is_old_or_damaged_is_left_alone(tmp_path: Path) -> None:
    receiver = failing(tmp_path, 4)
    first = notifier(tmp_path / "a", receiver)
    first.notify(FINISHED)
    first.wait()
    (tmp_path / "a" / FOLDER / "failed-1.json").write_text("{")
    beside = outbox(tmp_path / "b")
    with Workdir(tmp_path / "a").hold():
        assert not list(beside.waiting())
        assert len(list(outbox(tmp_path / "a").waiting())) == 1, "its own process"
    assert len(list(beside.waiting())) == 1
    for file in (tmp_path / "a" / FOLDER).iterdir():
        os.utime(file, times=(0, time.time() - KEPT_SECONDS - 60))
    assert not list(beside.waiting())
