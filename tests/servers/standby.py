"""`apply --continuous` of a standby as a process of its own, and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS_MAX = 240.0
LOST = "its source cannot be followed"


class Following:
    """A standby at work, whose spec and workdir are in `folder`."""

    def __init__(
        self, folder: Path, spec: Path, target: Path, environment: Mapping[str, str]
    ) -> None:
        self.workdir, self.target = folder / "run", target
        self.environment = {**os.environ, **environment}
        self.told = folder / "told"
        self.begin("apply", str(spec), "--continuous", "--yes", "--workdir", str(self.workdir))

    def begin(self, *words: str) -> None:
        with self.told.open("w") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stateshift", *words],
                env=self.environment, stdout=told, stderr=told,
            )  # fmt: skip

    def says(self, words: str) -> str:
        """Wait until it has said so; the line."""
        until = time.monotonic() + SECONDS_MAX
        while True:
            told = self.told.read_text()
            lines = [line for line in told.splitlines() if words in line]
            if lines:
                return lines[-1]
            assert time.monotonic() < until and self.process.poll() is None, told
            time.sleep(0.2)

    def asked(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stateshift", *words],
            env=self.environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
        )  # fmt: skip

    def lost(self) -> dict[str, Any] | None:
        """Since when its source is lost, as `status` says it; None where it is not."""
        status = json.loads(self.asked("status", str(self.workdir), "--json").stdout)
        (job,) = status["report"]["jobs"]
        lost: dict[str, Any] | None = job["source_lost"]
        return lost

    def image(self) -> dict[str, bytes]:
        files = sorted(path for path in self.target.rglob("*") if path.is_file())
        found = {path.relative_to(self.target).as_posix(): path.read_bytes() for path in files}
        return {path: content for path, content in found.items() if path[0] not in "._"}

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS_MAX)


@contextmanager
def following(
    folder: Path, spec: Path, target: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Following]:
    made = Following(folder, spec, target, environment or {})
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
