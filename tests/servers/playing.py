"""The ground on which a scene is played: its job's input and output, and the command line that
moves it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.journal import StepFinished, decode_records
from stateshift.step.evidence import JobStopped
from stateshift.storage.opening import open_storage
from tests.acceptance.shop import data
from tests.acceptance.support import ROOT, stateshift, write_records
from tests.servers.scene_specs import SECONDS_MAX, Specs
from tests.servers.scenes import Scene, expected, is_last, records
from tests.support import s3
from tests.support.moving import killed_at
from tests.support.servers import Servers, in_their_python

FEEDING = Path(__file__).with_name("feeding_kafka.py")
KILLED_AT = ("halt/stop", "copy/", "submit/")


@dataclass(frozen=True)
class Ground(Specs):
    def play(self) -> Any:
        """The whole of it; returns the report of the move."""
        self.feed(0, 20)
        self.start()
        self.until(lambda: self.committed(self.here), "the job has not started")
        self.feed(20, 30)
        self.until(lambda: self.recognise().total() > 0, "nothing comes out")
        workdir = self.folder / "runs" / "move"
        report = self.moved(self.move(), workdir)
        assert report["state"] == "finished"
        assert self.was_stopped(workdir)
        assert self.committed(self.there)
        self.said("verify", workdir)
        self.feed(30, 40)
        self.close(40)
        due = expected(self.scene.check, 40)
        self.until(lambda: self.recognise().total() >= due.total(), "the results are not complete")
        assert self.recognise() == due
        return report

    def start(self) -> None:
        self.said(
            "apply",
            self.spec("first", restart=False),
            "--yes",
            "--workdir",
            self.folder / "runs" / "first",
        )

    def move(self) -> Path:
        return self.spec("move")

    def moved(self, spec: Path, workdir: Path) -> Any:
        words = ("apply", str(spec), "--yes", "--workdir", str(workdir))
        if self.scene.fate == "plain":
            return self.said(*words)
        for step in KILLED_AT:
            killed_at(step, words, workdir, self.exports)
            words = ("resume", str(workdir))
        return self.said(*words)

    def was_stopped(self, workdir: Path) -> bool:
        """Whether the run found the job running, and stopped it. A repeated halt may find it
        stopped already.
        """
        kept, _ = decode_records((workdir / "journal").read_bytes())
        stops = [
            one.evidence
            for one in kept
            if isinstance(one, StepFinished) and one.step == "halt/stop"
        ]
        killed = self.scene.fate == "killed"
        ran = [
            one for one in stops if isinstance(one, JobStopped) and one.state_before == "running"
        ]
        return bool(ran) or (killed and bool(stops))

    def said(self, *words: str | Path) -> Any:
        return stateshift(*words, "--json", cwd=ROOT, env=self.exports).json

    def committed(self, location: str) -> bool:
        return any(info.path.startswith("commits/") for info in open_storage(location).list())

    # What the job reads and writes.

    def feed(self, first: int, last: int) -> None:
        self._give(
            [(f"{number:04}", records(self.scene.check, number)) for number in range(first, last)]
        )

    def close(self, number: int) -> None:
        """An hour later comes one more of each, which closes all that is open."""
        last = data.last(number)
        wanted = ("payments", "orders") if self.scene.check == "join" else ("orders",)
        self._give([(f"{number:04}", {name: last[name] for name in wanted})])

    def _give(self, steps: list[tuple[str, dict[str, list[dict[str, Any]]]]]) -> None:
        if self.scene.source == "files":
            for number, step in steps:
                for name, lines in step.items():
                    write_records(self.folder / "input" / name / f"{number}.json", lines)
            return
        file = self.folder / "to-feed.jsonl"
        plain = [
            [
                [f"{self.name}-{name}", line["order"], json.dumps(line)]
                for name, lines in step.items()
                for line in lines
            ]
            for _, step in steps
        ]
        file.write_text("".join(json.dumps(step) + "\n" for step in plain))
        in_their_python(FEEDING, self.exports["STATESHIFT_KAFKA"], str(file))

    def recognise(self) -> Counter[str]:
        """Everything that came out of what is not the last, which closes the rest."""
        lines = [
            line
            for path in sorted(self.output.glob("*.json"))
            for line in path.read_text().splitlines()
        ]
        plain = [json.loads(line) for line in lines]
        return Counter(json.dumps(one, sort_keys=True) for one in plain if not is_last(one))

    # How it ends.

    def until(self, done: Callable[[], bool], otherwise: str) -> None:
        last = time.monotonic() + SECONDS_MAX
        while not done():
            assert time.monotonic() < last, f"{otherwise}\n{self.logs()}"
            time.sleep(0.5)

    def logs(self) -> str:
        """The end of what each driver said."""
        found = [
            *self.folder.glob("*/*.log"),
            *self.servers.root.glob("spark-?/work/*/driver-*/std*"),
        ]
        found += self.servers.root.glob("livy/logs/livy.log")
        return "\n".join(
            f"{path}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(found)
        )

    def end(self) -> None:
        """Whatever of it still runs is asked as a person would, and ended if it does not hear."""
        for location in (self.here, self.there):
            open_storage(location).write("_stateshift/stop", lambda: iter((b"",)))
        until = time.monotonic() + 30
        while (left := _running(str(self.output))) and time.monotonic() < until:
            time.sleep(0.2)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _running(word: str) -> list[int]:
    """The processes with this among their arguments: drivers, which are told where to put what
    comes out.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in process.joinpath("cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


@contextmanager
def ready(scene: Scene, servers: Servers, *more: str) -> Iterator[dict[str, str]]:
    """With the servers that it needs, and the environment set for whatever is opened in this
    process.
    """
    for name in (*scene.servers, *more):
        servers.up(name)
    with pytest.MonkeyPatch.context() as here:
        for key, value in servers.exports().items():
            here.setenv(key, value)
        s3.forget()
        yield servers.exports()
        s3.forget()


@contextmanager
def ground(scene: Scene, servers: Servers, folder: Path) -> Iterator[Ground]:
    with ready(scene, servers) as exports:
        made = Ground(scene, servers, exports, folder)
        try:
            yield made
        finally:
            made.end()
