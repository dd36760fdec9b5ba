"""A log is told of each phase, and now and then; nothing that is watched can fail because of it."""

import errno
import sys
import threading
import time

import pytest

from stateshift.cli.shell import progress
from stateshift.cli.shell.progress import Bar, Lines, Tally, draws_bar, tell_changes, tell_if_slow
from stateshift.cli.shell.terminal import Terminal


class Watched:
    """Lines with a clock that is turned by hand."""

    def __init__(self) -> None:
        self.seconds, self.lines = 100.0, list[str]()
        self.meter = Lines(self.lines.append, lambda: self.seconds)


def test_each_phase_is_told_when_it_begins() -> None:
    watched = Watched()
    watched.meter.phase("orders", "copy", 3000, 3 << 20)
    watched.meter.phase("orders", "submit", 0, 0)
    assert watched.lines == ["orders: copy (3,000 files, 3.0 MiB)", "orders: submit"]


def test_a_line_is_written_every_five_seconds_and_no_more_often() -> None:
    watched = Watched()
    watched.meter.phase("orders", "copy", 100, 100 << 20)
    for _ in range(48):
        watched.seconds += 0.25
        watched.meter.done(1, 1 << 20)
    assert watched.lines[1:] == [
        "orders: copy: 20 of 100 files, 20.0 MiB of 100 MiB, 4.0 MiB/s, 20 s left",
        "orders: copy: 40 of 100 files, 40.0 MiB of 100 MiB, 4.0 MiB/s, 15 s left",
    ]
    watched.meter.close()
    assert watched.lines[3] == "orders: copy took 48 files, 48.0 MiB in 12 s"


def test_time_left_is_not_guessed_too_early_and_never_negative() -> None:
    tally = Tally("orders", "copy", 10, 1000, began=0.0)
    assert tally.seconds_left(60.0) is None
    assert tally.plus(1, 100).seconds_left(0.5) is None
    assert tally.plus(5, 500).seconds_left(10.0) == 10.0
    assert tally.plus(12, 1200).seconds_left(10.0) == 0.0


def test_what_is_furthest_behind_says_how_much_is_done() -> None:
    assert Tally("orders", "copy", 10, 1000, began=0.0).plus(9, 100).part == 0.1
    assert Tally("orders", "confirm", 0, 0, began=0.0).part == 0.0


def test_credentials_are_not_in_the_log() -> None:
    watched = Watched()
    watched.meter.say("copying from s3://key:hunter2@bucket/x")
    assert "hunter2" not in watched.lines[0]


def test_many_threads_are_counted_without_loss() -> None:
    watched = Watched()
    watched.meter.phase("orders", "copy", 4000, 0)
    threads = [
        threading.Thread(target=lambda: [watched.meter.done(1, 0) for _ in range(1000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watched.seconds += 6
    watched.meter.close()
    assert watched.lines[-1].startswith("orders: copy took 4,000 files")


def test_a_bar_survives_any_name_and_any_count() -> None:
    bar = Bar(verbose=True)
    bar.phase("[red]orders", "copy", 2, 10)
    bar.step("copy/0", "copy [bold]a[/] to b")
    bar.done(5, 50)
    bar.phase("orders", "confirm", 0, 0)
    bar.step("confirm/progress", "wait until [/] has committed")
    bar.say("[/nothing] opened")
    bar.close()


class Gone:
    """A terminal that was closed: nothing can be written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def flush(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_a_terminal_that_has_gone_away_ends_no_run_in_its_middle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    terminal = Terminal(environment={"TERM": "xterm"})
    assert draws_bar(terminal)
    with tell_changes(terminal, str, str) as progress:
        for step in range(3):
            progress(step)


def test_no_bar_is_drawn_into_a_pipe() -> None:
    assert not draws_bar(Terminal(environment={"TERM": "xterm"}))


def test_a_phase_that_moves_no_file_says_its_time_only() -> None:
    watched = Watched()
    watched.meter.phase("orders", "halt", 0, 0)
    watched.seconds += 59
    watched.meter.close()
    assert watched.lines[-1] == "orders: halt took 59 s"


def test_what_lasts_is_told_once_and_what_is_soon_done_never(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BEFORE_WORDS", 0.05)
    for verbose, lasts, said in ((True, 0.5, "still\n"), (True, 0, ""), (False, 0.5, "")):
        with tell_if_slow(Terminal(verbose=verbose), "still"):
            time.sleep(lasts)
        assert capsys.readouterr().err == said, (verbose, lasts)
