"""A real job whose functions change (jobs/live.py), and what came out of it.

with running(folder, "arrow") as job:
    job.until_batches("arrow", 2)
    changed = job.change("arrow", Edit("score", "replace", giving(1)))
    job.outputs("arrow")         what each batch has put out, the same for all its runs
    job.expected_ks("arrow")     by the group's history: which k each batch's seal asks for
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateshift.live.acts import ChangeResult, Edit, Manner, change, open_group
from stateshift.live.folder import Folder
from tests.acceptance.support import JOBS, environment, wait_until

SECONDS_MAX = 240.0
PATIENCE = Manner(timeout_seconds=60.0, wait_seconds=90.0)


@dataclass
class Living:
    """A job in a folder, running or not. `gives` has the k of each change's function."""

    folder: Path
    kinds: tuple[str, ...]
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    gives: dict[int, int] = field(default_factory=dict)

    # ---------------------------------------------------------------- the job

    def start(self) -> None:
        (self.folder / "stop").unlink(missing_ok=True)
        words = ("--folder", str(self.folder), "--kinds", ",".join(self.kinds), *self.options)
        self.starts += 1
        with open(self.folder / f"job-{self.starts}.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(JOBS / "live.py"), *words],
                env={**environment(), "PYSPARK_DRIVER_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> None:
        """Let the job end as it would by itself; kill it where it does not."""
        if self.process is None:
            return
        (self.folder / "stop").touch()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.kill()

    def kill(self) -> None:
        """End the job and all that it has started by SIGKILL."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    @property
    def workers(self) -> list[int]:
        """The processes that run Python for Spark's tasks: children of its daemon."""
        assert self.process is not None
        started = _descendants(self.process.pid)
        daemons = [pid for pid in started if "pyspark.daemon" in _command(pid)]
        return [pid for pid in daemons if _parent(pid) in daemons]

    def wait(self, done: Any, otherwise: str) -> None:
        """Wait for something while the job runs."""
        wait_until(lambda: self._alive() and done(), otherwise, SECONDS_MAX, self.folder)

    def _alive(self) -> bool:
        failed = self.folder / "failed.json"
        assert not failed.exists(), failed.read_text()
        assert self.process is not None and self.process.poll() is None, "the job has ended"
        return True

    # ---------------------------------------------------------------- its functions

    def location(self, kind: str) -> str:
        return str(self.folder / kind / "group")

    def group(self, kind: str) -> Folder:
        return open_group(self.location(kind))

    def change(
        self, kind: str, edit: Edit, manner: Manner = PATIENCE, gives: int = -1
    ) -> ChangeResult:
        """Change a chain, and note which k rows have by its new function."""
        changed = change(self.location(kind), [edit], manner)
        if gives >= 0:
            assert changed.carried is not None
            self.gives[changed.carried.change.number] = gives
        return changed

    # ---------------------------------------------------------------- what came out

    def batches(self, kind: str) -> tuple[int, ...]:
        """The batches that Spark has committed."""
        commits = self.folder / kind / "checkpoint" / "commits"
        if not commits.exists():
            return ()
        return tuple(sorted(int(name) for name in os.listdir(commits) if name.isdigit()))

    def until_batches(self, kind: str, count: int) -> int:
        """Wait for so many more committed batches, and return the last one's number."""
        last = max(self.batches(kind), default=-1)
        self.wait(
            lambda: max(self.batches(kind), default=-1) >= last + count, f"no batches of {kind}"
        )
        return max(self.batches(kind))

    def runs(self, kind: str) -> Mapping[int, list[Any]]:
        """What every run of each committed batch has put out."""
        committed = set(self.batches(kind))
        found: dict[int, list[Any]] = {}
        for path in sorted((self.folder / kind / "output").glob("[0-9]*.json")):
            number = int(path.name.split(".")[0])
            if number in committed or kind == "batch":
                found.setdefault(number, []).append(json.loads(path.read_text()))
        return found

    def outputs(self, kind: str) -> Mapping[int, list[list[int]]]:
        """What each committed batch has put out; all runs of one the same."""
        outputs = {}
        for number, runs in self.runs(kind).items():
            assert all(run == runs[0] for run in runs), f"batch {number} ran differently"
            outputs[number] = runs[0]
        return outputs

    def expected_ks(self, kind: str) -> Mapping[int, int]:
        """The k that each committed batch's seal asks for, read from the group's files alone."""
        holding = self.holding(kind)
        seals = self.seals(kind)
        found = {}
        for number in self.batches(kind):
            begun = [self.gives[version] for version in holding if version <= seals[number]]
            found[number] = begun[-1] if begun else 0
        return found

    def holding(self, kind: str) -> list[int]:
        """The numbers of the changes that were applied and not taken back."""
        found = []
        for folder in sorted((Path(self.location(kind)) / "changes").glob("*")):
            decided = folder / "decided.json"
            applied = decided.exists() and json.loads(decided.read_text())["outcome"] == "applied"
            if applied and not (folder / "reverted.json").exists():
                found.append(int(folder.name))
        return found

    def seals(self, kind: str) -> Mapping[int, int]:
        """The version that each batch was sealed with."""
        files = (Path(self.location(kind)) / "batches").glob("*/*.json")
        return {int(file.stem): json.loads(file.read_text())["version"] for file in files}


@contextmanager
def running(folder: Path, *kinds: str, options: tuple[str, ...] = ()) -> Iterator[Living]:
    """A job of these kinds, running, with a batch of each committed."""
    job = Living(folder, kinds, options)
    job.start()
    try:
        for kind in kinds:
            job.until_batches(kind, 1)
        yield job
    finally:
        if job.process is not None:
            job.end()


def by_k(rows: list[list[int]]) -> set[int]:
    """The k of rows."""
    return {k for _, k in rows}


def _descendants(of: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found = [of]
    while more := [pid for pid in _processes() if pid not in found and _parent(pid) in found]:
        found += more
    return found[1:]


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def _parent(pid: int) -> int:
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0
