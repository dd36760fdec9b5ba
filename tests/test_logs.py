"""Log records: what is in them, who hears them, and that no secret is in them."""

from __future__ import annotations

import logging
import os
import random
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stateshift import logs
from stateshift.clusters.command import Shell
from stateshift.clusters.http import Service
from stateshift.clusters.logged import log_command
from stateshift.errors import TransientStorageError
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import LOCAL_MILLISECONDS, Patience, Retrying
from stateshift.survey import FileInfo
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.cli.support import SOURCE, TARGET, Outside
from tests.support.checkpoints import Checkpoint
from tests.support.ground import Clock, Ground, spec_of

log = logging.getLogger("stateshift.of_a_test")


class Kept(logging.Handler):
    """A handler as a program that embeds the package has one."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@contextmanager
def embedding(level: int, name: str = "stateshift") -> Iterator[Kept]:
    logger, kept = logging.getLogger(name), Kept()
    before = logger.level
    logger.addHandler(kept)
    logger.setLevel(level)
    try:
        yield kept
    finally:
        logger.removeHandler(kept)
        logger.setLevel(before)


# -- the log of a run


def test_the_log_of_a_run_has_its_phases_steps_and_locks(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.apply(spec_of())
    text = (ground.workdir().path / "log").read_text()
    steps = [name for plan in _steps(ground) for name in plan]
    assert steps
    for name in steps:
        assert f"step {name} begins: " in text
        assert f"step {name} ends: " in text
    for words in ("apply of ", "wave orders begins", "phase copy of orders begins: ", "lock taken"):
        assert words in text
    assert text.index("lock taken") < text.index("phase copy") < text.index("lock released")
    assert "evidence: files " in text


def _steps(ground: Ground) -> list[list[str]]:
    from stateshift.migration import progress_of

    return [list(plan.steps) for plan in progress_of(ground.workdir()).plans]


def test_resume_and_rollback_go_on_in_the_same_log_and_only_its_owner_reads_it(
    tmp_path: Path,
) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.apply(spec_of())
    ground.resume()
    ground.rollback()
    path = ground.workdir().path / "log"
    begun = [
        line.split(" of ")[0].split(": ")[-1] for line in _lines(path) if " begins: sta" in line
    ]
    assert begun == ["apply", "resume", "rollback"]
    assert " is undone: " in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_run_goes_on_without_a_log_where_a_link_stands_in_its_place(tmp_path: Path) -> None:
    ground, other = Ground(tmp_path), tmp_path / "other"
    ground.write()
    workdir = ground.workdir()
    workdir.create()
    (workdir.path / "log").symlink_to(other)
    assert ground.apply(spec_of()).state == "finished"
    assert not other.exists()
    assert [line for line in ground.said if line.startswith("there is no log: ")]


def test_a_failure_and_an_error_of_ours_are_in_the_log(tmp_path: Path) -> None:
    class Broken(MemoryStorage):
        def write(self, *args: Any) -> int:
            raise ZeroDivisionError("of ours")

    ground = Ground(tmp_path)
    ground.write()
    proposal = ground.propose(spec_of())
    ground.wrap = lambda storage: Broken(ground.disk, storage.location)
    with pytest.raises(ZeroDivisionError):
        ground.apply(proposal)
    text = (ground.workdir().path / "log").read_text()
    assert "apply ends in an error of ours\nTraceback" in text
    assert "ZeroDivisionError: of ours" in text


def test_the_log_is_bounded(tmp_path: Path) -> None:
    handler = logs.RunLogHandler(tmp_path / "log", bytes_max=1000)
    with logs.listen(handler):
        for number in range(200):
            log.debug("record %d", number)
    handler.close()
    assert sorted(os.listdir(tmp_path)) == ["log", "log.1"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert "record 199" in (tmp_path / "log").read_text()
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_a_log_that_was_full_before_goes_on_in_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 999)
    handler = logs.RunLogHandler(tmp_path / "log", bytes_max=1000)
    with logs.listen(handler):
        log.debug("new")
    handler.close()
    assert (tmp_path / "log.1").read_bytes() == b"x" * 999
    assert "new" in (tmp_path / "log").read_text()


def test_a_disk_that_is_full_ends_the_log_and_nothing_else(tmp_path: Path) -> None:
    handler = logs.RunLogHandler(tmp_path / "log")
    with open("/dev/full", "wb", buffering=0) as full, logs.listen(handler):
        handler._file = full
        log.debug("one")
        log.debug("two")
    handler.close()
    assert (tmp_path / "log").read_text() == ""


def test_a_record_is_one_line_whatever_a_file_is_called(tmp_path: Path) -> None:
    handler = logs.RunLogHandler(tmp_path / "log")
    with logs.listen(handler):
        log.info("read %s", "a\nb\x1b[2J\udc80")
    handler.close()
    (line,) = _lines(tmp_path / "log")
    assert line.endswith("INFO stateshift.of_a_test: read a\\nb\\x1b[2J\\udc80")


# -- retries and requests


class Passing(MemoryStorage):
    """Fails the first two times that something is read."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk, "memory://me:hunter2@m/ck")
        self.failures = 2

    def read(self, path: str, size_max: int | None = None) -> bytes:
        if self.failures:
            self.failures -= 1
            raise TransientStorageError("503 for ?X-Amz-Signature=hunter2", location="memory://m")
        return super().read(path, size_max)


def retried(disk: MemoryDisk) -> Storage:
    disk.open("memory://me:hunter2@m/ck").write("a", lambda: iter([b"xy"]))
    return Retrying(Passing(disk), Clock(), random.Random(1), Patience(4, 1.0, 8.0))


def test_a_retry_is_logged_with_its_attempt_its_wait_and_its_reason() -> None:
    with embedding(logging.DEBUG) as heard:
        assert retried(MemoryDisk()).read("a") == b"xy"
    first, second, done = heard.texts
    assert first.startswith(
        "read memory://me:***@m/ck/a: attempt 1 of 4 failed, again in 0.1 s: 503"
    )
    assert "attempt 2 of 4 failed, again in 1.7 s: 503" in second
    assert [record.levelname for record in heard.records] == ["WARNING", "WARNING", "DEBUG"]
    assert done.startswith("read memory://me:***@m/ck/a: ") and done.endswith(" ms, 2 bytes")
    assert "hunter2" not in "".join(heard.texts)


def test_the_wait_that_is_logged_is_the_wait() -> None:
    clock, disk = Clock(), MemoryDisk()
    disk.open("memory://me:hunter2@m/ck").write("a", lambda: iter([b"xy"]))
    slept: list[float] = []
    clock.sleep = slept.append  # type: ignore[method-assign]
    with embedding(logging.WARNING) as heard:
        Retrying(Passing(disk), clock, random.Random(1), Patience(4, 1.0, 8.0)).read("a")
    assert [record.args[5] for record in heard.records if record.args] == slept


def test_a_request_is_logged_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        status_code, content, headers = 200, b"{}", {"Content-Type": "json"}

        def json(self) -> dict[str, Any]:
            return {}

    import requests

    monkeypatch.setattr(requests, "request", lambda *args, **more: Answer())
    service = Service("livy", "Livy", "http://h", "msg", {}, {}, {})
    with embedding(logging.DEBUG) as heard:
        service.json("GET", "http://me:hunter2@livy:8998/batches?token=hunter2")
    (text,) = heard.texts
    assert text.startswith("GET http://me:***@livy:8998/batches?token=***: HTTP 200, ")
    assert text.endswith(" ms, 2 bytes")


def test_commands_are_logged_without_their_secrets() -> None:
    words = ["spark-submit", "--conf", "fs.azure.account.key.x=hunter2", "--password", "hunter2"]
    shell = Shell("own", "/w", {"find": "echo absent; : --token hunter2"}, 10.0)
    with embedding(logging.DEBUG) as heard:
        log_command(log, "own", words)
        shell.run("find", {})
    command, begun, ended = heard.texts
    assert "hunter2" not in command + begun
    assert command == "own: run spark-submit --conf 'fs.azure.account.key.x=***' --password ***"
    assert begun == "own: `find`: echo absent; : --token ***"
    assert ended.startswith("own: `find` ended with 0, ")


# -- secrets

SECRET_TEXTS = [
    "password=hunter2 def",
    "spark.hadoop.fs.s3a.secret.key=hunter2",
    '{"api_key": "hunter2", "user": "u"}',
    "curl --token hunter2 http://h",
    "run.sh --passphrase hunter2",
    "fs.azure.account.key.me.blob.core.windows.net=hunter2",
    "Authorization: Bearer hunter2hunter2",
    "jdbc:pg://me:hunter2@h:5432/d",
    "a=1&sas_token=hunter2&b=2",
    "https://b.s3.amazonaws.com/k?X-Amz-Credential=hunter2&X-Amz-Signature=hunter2&x=1",
    "https://b.s3.amazonaws.com/k?AWSAccessKeyId=A&Signature=hunter2&Expires=1",
    "https://me.blob.core.windows.net/k?sv=2024&sig=hunter2",
    "https://storage.googleapis.com/b/k?X-Goog-Signature=hunter2",
    "http://nn:9870/webhdfs/v1/a?op=OPEN&delegation=hunter2",
    'args: ["--password", "hunter2", "--input", "x"]',
    "said hunter2-of-the-environment aloud",
]


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_no_secret_is_in_a_log(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stateshift.cli.shell.progress import on_stderr

    monkeypatch.setenv("DB_PASSWORD", "hunter2-of-the-environment")
    with logs.keep_log(tmp_path / "log"), on_stderr(2):
        log.info("%s", text)
        try:
            raise ValueError(text)
        except ValueError:
            log.info("failed", exc_info=True)
    kept = (tmp_path / "log").read_text()
    assert "hunter2" not in kept + capsys.readouterr().err
    assert "***" in kept and "ValueError" in kept


@pytest.mark.parametrize(
    "text",
    [
        "INFO TokenManager started in 3 s",
        "hdfs://nn:8020/user/a:b@c",
        "key=7 partitions=200",
        "step copy/state-0 begins: CopyFiles",
    ],
)
def test_what_is_no_secret_stays_in_a_log(text: str) -> None:
    assert logs.clean(text) == text


# -- -v and -vv


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    outside = Outside()
    Checkpoint().write(outside.disk.open(SOURCE))
    outside.wrap = lambda storage: Retrying(storage, Clock())
    return outside


def spec(tmp_path: Path) -> str:
    path = tmp_path / "spec.json"
    path.write_text(
        '{"version": 1, "engine": "spark", "jobs": [{"name": "orders", "checkpoint_location": '
        f'"{SOURCE}", "remote_location": "{TARGET}"}}]}}'
    )
    return str(path)


@pytest.mark.parametrize(
    ("flags", "levels"), [([], []), (["-v"], ["INFO"]), (["-vv"], ["DEBUG", "INFO"])]
)
def test_v_shows_info_and_vv_debug_on_stderr(
    flags: list[str], levels: list[str], outside: Outside, tmp_path: Path
) -> None:
    said = outside.run(
        "apply", spec(tmp_path), "--yes", "--json", "--workdir", str(tmp_path / "run"), *flags
    )
    lines = [line.split(" ") for line in said.err.splitlines() if " stateshift." in line]
    assert said.code == 0 and said.document["state"] == "finished"
    assert sorted({words[1] for words in lines}) == levels
    kept = (tmp_path / "run" / "log").read_text()
    assert " DEBUG stateshift.storage.wrappers: " in kept


def test_nobody_listens_any_more_when_a_command_has_ended(outside: Outside) -> None:
    logger = logging.getLogger("stateshift")
    before = (logger.level, logger.propagate, list(logger.handlers))
    outside.run("inspect", SOURCE, "-vv")
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    assert outside.run("inspect", SOURCE).err == ""


# -- programs that embed the package


def test_a_program_hears_what_it_asked_for_also_while_a_run_keeps_its_log(tmp_path: Path) -> None:
    ground = Ground(tmp_path, wrap=lambda storage: Retrying(storage, Clock()))
    ground.write()
    proposal = ground.propose(spec_of())
    root = Kept()
    logging.getLogger().addHandler(root)
    try:
        with embedding(logging.INFO) as own:
            ground.apply(proposal)
    finally:
        logging.getLogger().removeHandler(root)
    for heard in (own, root):
        assert {record.levelname for record in heard.records} == {"INFO"}
        assert any(text.startswith("step ") for text in heard.texts)
    assert own.texts == root.texts


def test_a_program_that_has_decided_nothing_sees_nothing() -> None:
    program = (
        "import logging, stateshift, tempfile, pathlib\n"
        "from stateshift import logs\n"
        "log = logging.getLogger('stateshift.x')\n"
        "log.warning('aloud')\n"
        "with logs.keep_log(pathlib.Path(tempfile.mkdtemp()) / 'log'): log.warning('aloud')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout + run.stderr == ""


def test_two_runs_at_once_leave_the_logger_as_it_was(tmp_path: Path) -> None:
    logger = logging.getLogger("stateshift")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with logs.keep_log(tmp_path / "a"), logs.keep_log(tmp_path / "b"):
        log.debug("both")
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    assert all("both" in (tmp_path / name).read_text() for name in "ab")


def test_what_nobody_hears_is_not_formatted() -> None:
    class Watched(str):
        """A path that notes when somebody formats it."""

        def __str__(self) -> str:
            seen.append("formatted")
            return "a"

    seen: list[str] = []
    storage = retried(MemoryDisk())
    storage.read("a")  # whose failures are logged as warnings
    storage.read(Watched("a"))
    assert seen == []
    with embedding(logging.DEBUG) as heard:
        storage.read(Watched("a"))
        assert heard.texts
    assert seen


def test_what_a_local_disk_does_at_once_is_not_logged_and_what_takes_long_is() -> None:
    class Slow(MemoryStorage):
        def stat(self, path: str) -> FileInfo | None:
            time.sleep(LOCAL_MILLISECONDS / 1000)
            return super().stat(path)

    disk = MemoryDisk()
    disk.open("file:///ck").write("a", lambda: iter([b"x"]))
    storage = Retrying(Slow(disk, "file:///ck"), Clock())
    for _ in range(20):  # now and then a machine is as slow as that itself
        with embedding(logging.DEBUG) as heard:
            storage.read("a")
            storage.stat("a")
        if len(heard.texts) == 1:
            break
    (text,) = heard.texts
    assert text.startswith("stat file:///ck/a: ")
