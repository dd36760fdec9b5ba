"""The command line, driven as a program would: argv in; exit code, stdout and stderr out. The
outside is in memory.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateshift.cli import main
from stateshift.cli.commands import NAMES, members_of
from stateshift.migration import Adapters
from stateshift.testing.memory_cluster import MemoryCluster
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import Clock, Ground

SOURCE, TARGET = "hdfs://here:8020/ck/orders", "hdfs://there:8020/ck/orders"


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int | None
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass
class Outside(Ground):
    """A ground of old files, on which a job that is started commits its next batch at once."""

    clock: Clock = field(default_factory=lambda: Clock(1_772_000_000.0, tick=0.25))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.disk.now = lambda: 0.0
        self.cluster = MemoryCluster(on_start=self._commit)

    def _commit(self, submission: Any) -> None:
        storage = self.disk.open(submission.location)
        last = max(int(file.path.split("/")[1]) for file in storage.list("commits"))
        put(storage, f"commits/{last + 1}", b'v1\n{"nextBatchWatermarkMs":0}')

    def run(self, *argv: str) -> Said:
        return said(*argv, adapters=self.adapters)


def whole_names() -> Iterator[str]:
    """Yield the names of all commands that do something, those of a group with its name before."""
    for name in NAMES:
        members = [f"{name} {member}" for member in members_of(name)]
        yield from members or (name,)


def said(*argv: str, adapters: Adapters | None = None) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv, adapters)
    return Said(code, out.getvalue(), err.getvalue())


def without_times(document: Any) -> Any:
    """A document of `verify` without how long its stages took."""
    stages = document.get("checked", {}).get("stages", ())
    for stage in stages:
        assert stage.pop("seconds") >= 0
    return document


def with_checkpoint(checkpoint: Checkpoint | None = None) -> Outside:
    outside = Outside()
    (checkpoint or Checkpoint()).write(outside.disk.open(SOURCE))
    return outside


def write_spec(folder: Path, **job: Any) -> str:
    """A spec of one job that moves from SOURCE to TARGET."""
    path = folder / "spec.json"
    path.write_text(json.dumps(spec_of(**job)))
    return str(path)


def spec_of(**job: Any) -> dict[str, Any]:
    moved = {
        "job_name": "Orders (eu)",
        "checkpoint_location": SOURCE,
        "remote_location": TARGET,
        **job,
    }
    return {"version": 1, "engine": "spark", "jobs": [moved]}


def submitting() -> dict[str, Any]:
    """What makes the job start on the target."""
    return {"target_cluster": "b", "submit": {"command": "start"}}
