"""Verdicts as they come, so that a run that was ended goes on where it was.

    <cache>/verdicts-<digest>.jsonl     a verdict a line

The digest is of the code and the goldens: verdicts over other code are never mixed with these. A
last line that a killed run left half written is judged again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.damage.verdicts import Verdict

JUDGED = ("stateshift", "tests")
"""What a verdict depends on."""


@dataclass
class VerdictLog:
    place: Path
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path, digest: str) -> VerdictLog:
        """Read what an earlier run over the same code left."""
        folder.mkdir(parents=True, exist_ok=True)
        log = cls(folder / f"verdicts-{digest}.jsonl")
        if not log.place.exists():
            return log
        lines = log.place.read_bytes().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        log.place.write_bytes(b"".join(whole))
        for line in whole:
            verdict = _decoded(json.loads(line))
            log.verdicts[verdict.id] = verdict
        return log

    def add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.id] = verdict
        with self.place.open("a") as file:
            file.write(f"{json.dumps(verdict.as_json())}\n")


def _decoded(row: dict[str, object]) -> Verdict:
    differs = row.pop("differs")
    assert isinstance(differs, list)
    return Verdict(**row, differs=tuple(differs))  # type: ignore[arg-type]


def code_digest(root: Path) -> str:
    """Return a digest of what verdicts depend on: committed, changed and new files."""
    digest = hashlib.sha256()
    for command in (
        ["rev-parse", *(f"HEAD:{folder}" for folder in JUDGED)],
        ["diff", "HEAD", "--", *JUDGED],
        ["ls-files", "--others", "--exclude-standard", "--", *JUDGED],
    ):
        digest.update(_git(root, command))
    for name in _git(root, ["ls-files", "--others", "--exclude-standard", "--", *JUDGED]).split(
        b"\n"
    ):
        if name:
            digest.update((root / name.decode()).read_bytes())
    return digest.hexdigest()[:16]


def _git(root: Path, command: list[str]) -> bytes:
    return subprocess.run(["git", *command], cwd=root, capture_output=True, check=True).stdout
