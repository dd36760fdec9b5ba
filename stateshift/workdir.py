"""The workdir: the folder with spec, plans, journal and report of a migration.

WORKDIR/
  spec.json       the spec as it was given (our dialect)
  corrected.json  the same with another `submit`, where `resume --spec` gave one
  signed.json     the saved plan as somebody signed it; nothing reads it to go on
  origins.json    how jobs were started where they ran, as clusters told before they were stopped
  journal         one record a line, each on disk before the next effect
  plans/0.json …  the adopted plans, each on disk before the record that adopts it
  commands        who gave which command for the run, one a line; none is read to go on
  report.json     the last report
  report.html     the same as a page for people
  notified.json   whether it was sent that the run is finished (`on` of the spec)
  unsent/         notifications that nobody has got yet
  trace.json      the span of the last attempt, where traces are sent
  steer/          requests to the process at work, and live.json its answer (`steering`)
  log             what the processes at work on it did, at DEBUG; log.1 is what came before (`logs`)
  rows/           files of state that an import made of rows
  held            flocked by the process at work: it lets go when it dies, however it dies
  jobs/           what the clusters keep of the jobs they started
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import IO

from stateshift import plain
from stateshift.errors import JournalError, NoSuchRun, SpecError, StorageError
from stateshift.formats.marks import TEMPORARY
from stateshift.journal import GivenCommand
from stateshift.plan import Plan, decode_plan, encode_plan
from stateshift.private_files import make_folder, open_private
from stateshift.steering import Steering

OURS = frozenset(
    (
        *("spec.json", "corrected.json", "proposal.json", "origins.json", "journal", "plans"),
        "signed.json",
        *("jobs", "steer", "held", "live.json", "report.json", "report.html", "notified.json"),
        *("commands", "unsent", "trace.json", "fleet.log", "log", "log.1", "clusters", "rows"),
        "lost+found",
    )
)


class FileLines:
    """The journal's lines in a local file, each synced before `append` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._named = False  # whether we have seen to it that the file's name is durable

    def read(self) -> bytes:
        if not os.path.lexists(self._path):
            return b""
        with _telling(self._path), open_private(self._path, os.O_RDONLY) as file:
            return file.read()

    def append(self, line: bytes) -> None:
        with _telling(self._path):
            with open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                self._write(file.fileno(), line)
                self._sync(file.fileno())
            if not self._named:
                _sync_folder(self._path.parent)
                self._named = True

    def cut(self, size: int) -> None:
        with _telling(self._path), open_private(self._path, os.O_RDWR) as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def replace(self, content: bytes) -> None:
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with _telling(self._path):
            with open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
                self._write(file.fileno(), content)
                self._sync(file.fileno())
            temporary.replace(self._path)
        _sync_folder(self._path.parent)

    def _write(self, descriptor: int, line: bytes) -> None:
        rest = memoryview(line)
        while rest:  # a disk that fills takes a part of it, and complains the next time
            rest = rest[os.write(descriptor, rest) :]

    def _sync(self, descriptor: int) -> None:
        os.fsync(descriptor)


class Workdir:
    """The folder in which a run keeps everything."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(path))  # a hint that names it may be pasted elsewhere

    @property
    def exists(self) -> bool:
        return (self.path / "journal").exists()

    @property
    def lines(self) -> FileLines:
        return FileLines(self.path / "journal")

    @property
    def jobs(self) -> Path:
        return self.path / "jobs"

    @property
    def steering(self) -> Steering:
        return Steering(self.path)

    def create(self) -> None:
        """Make the directory, so that a crash of the machine does not take it away with the journal
        in it. One that holds anything else, such as an image, is not for us to write to.
        """
        with _telling(self.path):
            names = set(os.listdir(self.path)) if self.path.exists() and not self.exists else set()
            others = sorted(name for name in names - OURS if not name.startswith("."))
            if others:
                more = f" and {len(others) - 1} more" if len(others) > 1 else ""
                fact = f"{self.path} holds {others[0]}{more}: it is no workdir"
                hint = "name a directory that is empty, or not there yet"
                raise SpecError.of("--workdir", fact, hint=hint)
            above = (self.path, *self.path.absolute().parents)
            new = [path for path in above if not path.exists()]
            if not self.path.is_dir():
                make_folder(self.path)
            make_folder(self.path / "plans")
            make_folder(self.jobs)
            _sync_folder(self.path)
            for path in new:
                _sync_folder(path.absolute().parent)

    def list_in(self, workdirs: str, run: str) -> None:
        """Let `runs` find it, and the run's name mean it, also if it is not below `workdirs`: by a
        link there, if that folder is in use. A run does not fail for want of it.
        """
        folder, real = Path(workdirs).resolve(), self.path.resolve()
        if folder not in (real, real.parent) and folder.is_dir():
            with suppress(OSError):
                (folder / run).symlink_to(real)

    def require(self) -> None:
        """Refuse a place that is no workdir of ours."""
        if not self.exists:
            fact = f"{self.path} is not the workdir of a run: it holds no journal"
            hint = "stateshift runs lists the runs and their workdirs; of one that is lost, see "
            raise NoSuchRun(fact, hint=f'{hint}"A workdir that is lost" in the runbook')

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the only process that works on this run. The kernel lets go when we are killed."""
        with _telling(self.path / "held"):
            opened = open_private(self.path / "held", os.O_RDWR | os.O_APPEND | os.O_CREAT)
        with opened, io.TextIOWrapper(opened) as file:
            if not _locked(file):
                file.seek(0)
                process = file.read().strip().removeprefix("process ")
                by = f"process {process}" if process else "another process"
                raise JournalError(
                    f"{self.path} is held by {by}",
                    hint=f"wait for it{f', or stop it (kill -INT {process})' if process else ''}; "
                    f"watch it with: stateshift status {quote(str(self.path))}",
                )
            with suppress(OSError):  # whom to ask is good to know, and no more than that
                file.truncate(0)
                file.write(f"process {os.getpid()}")
                file.flush()
            with suppress(OSError):
                of_clusters = self.path.glob(f"*/**/{TEMPORARY}*.tmp")
                ours = (self.path.glob(f"{folder}.*.tmp") for folder in ("", "plans/", "steer/"))
                for left in (*chain.from_iterable(ours), *of_clusters):
                    left.unlink(missing_ok=True)  # what a killed process had not finished
            self.steering.begin()
            try:
                yield
            finally:
                self.steering.over()
                with suppress(OSError):
                    file.truncate(0)

    @property
    def held(self) -> bool:
        """Whether a process is at work on it now."""
        path = self.path / "held"
        if not os.path.lexists(path):
            return False
        with _telling(path), open_private(path, os.O_RDONLY) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def write(self, name: str, value: object) -> None:
        """Write a JSON file whole and durably."""
        with self._whole(name) as file:
            json.dump(value, file, indent=1, ensure_ascii=False)
            file.write("\n")

    def write_page(self, text: str) -> Path:
        """Write `report.html` whole; where it is now."""
        with self._whole("report.html") as file:
            file.write(text)
        return self.path / "report.html"

    @property
    def page_told(self) -> str | None:
        """The place of the page, if it has been written."""
        place = self.path / "report.html"
        return str(place) if place.is_file() else None

    @contextmanager
    def _whole(self, name: str) -> Iterator[IO[str]]:
        """A file that is there under its name once it is whole, and durable."""
        path = self.path / name
        temporary = path.with_name(f".{path.name}.tmp")
        with _telling(path):
            if path.parent != self.path:
                make_folder(path.parent)
            raw = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with raw, io.TextIOWrapper(raw, encoding="utf-8", errors="surrogatepass") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        _sync_folder(path.parent)

    def read(self, name: str) -> object:
        try:
            with _telling(self.path / name), open_private(self.path / name, os.O_RDONLY) as file:
                return json.loads(file.read().decode("utf-8", "surrogatepass"))
        except FileNotFoundError:
            raise JournalError(
                f"{self.path / name} is missing", hint="restore it from a copy"
            ) from None
        except (ValueError, RecursionError) as error:
            raise JournalError(
                f"{self.path / name} is damaged: {error}", hint="restore it from a copy"
            ) from error

    def note_command(self, given: GivenCommand) -> None:
        """Write down who gave a command, before it does anything."""
        FileLines(self.path / "commands").append(f"{plain.canonical(given)}\n".encode())

    def commands(self) -> Iterator[GivenCommand]:
        """Yield the commands that were given, but for lines that cannot be read: a run goes on."""
        content = b""
        with suppress(StorageError, OSError):
            content = FileLines(self.path / "commands").read()
        for line in content.splitlines():
            with suppress(ValueError, RecursionError):
                yield plain.from_plain(GivenCommand, json.loads(line))

    def write_plan(self, number: int, plan: Plan) -> str:
        """Return its fingerprint. One line is written: an indent takes ten times as long."""
        encoded = encode_plan(plan)
        with self._whole(f"plans/{number}.json") as file:
            file.write(json.dumps(encoded, ensure_ascii=False) + "\n")
        return str(encoded["fingerprint"])

    def forget_plan(self, number: int) -> None:
        """One that no record names any more."""
        with suppress(OSError):
            (self.path / "plans" / f"{number}.json").unlink(missing_ok=True)

    def read_plan(self, number: int, fingerprint: str) -> Plan:
        plan = decode_plan(self.read(f"plans/{number}.json"))
        if plan.fingerprint != fingerprint:
            raise JournalError(
                f"plan {number} in {self.path} is not the one that the journal adopted"
            )
        return plan


def _locked(file: IO[str]) -> bool:
    """Take the lock; ask more than once, since a process that only asks has it for a moment."""
    for attempt in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.005 * attempt)
        else:
            return True
    return False


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """The machine's own errors in our words, but for a missing file: a full disk, no permission."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        place = quote(str(path.absolute().parent))
        hint = f"namei -l {place}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = f"df -h {place}; free some space, then stateshift resume WORKDIR"
        named = error.filename if isinstance(error.filename, str) else str(path)
        raise StorageError(
            f"{named}: {error.strerror or error}", location=str(path), hint=hint
        ) from error


def _sync_folder(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
