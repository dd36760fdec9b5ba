"""A name of a file or a job that holds a newline or an escape never starts a line of its own,
whatever the command.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
IMAGES = {
    "spark": GOLDEN / "spark-4.3.0" / "window-hdfs" / "checkpoint",
}
FAKE = "error: everything is lost"
NAMES = (f"1\n{FAKE}", f"1\r{FAKE}", f"1\x1b[2J\x1b[H{FAKE}", f"1\u2028{FAKE}", f"1:\n{FAKE}")


def commands(image: Path, spec: Path, tmp_path: Path) -> dict[str, list[str]]:
    return {
        "inspect": ["inspect", str(image), "--files"],
        "verify": ["verify", "--deep", str(image)],
        "plan": ["plan", str(spec)],
        "apply": ["apply", str(spec), "--yes", "--workdir", str(tmp_path / "run"), "-v"],
        "export": ["export", str(image), "--to", "-"],
        "diff": ["diff", str(image), str(image)],
    }


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", NAMES, ids=["newline", "return", "escape", "separator", "log"])
@pytest.mark.parametrize("command", ["inspect", "verify", "plan", "apply", "export", "diff"])
def test_a_hostile_name_starts_no_line(tmp_path: Path, command: str, name: str) -> None:
    image = tmp_path / f"orders{name}"
    shutil.copytree(IMAGES["spark"], image)
    for folder in ("state/0/0", "commits", "offsets", "."):
        (image / folder / name).write_bytes(b"v1\n{}")
    job = {
        "name": f"job{name}",
        "checkpoint_location": str(image),
        "remote_location": str(tmp_path / f"moved{name}"),
        "waive": ["paths-stay"],
    }
    spec = tmp_path / "move.json"
    spec.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
    environment = dict(os.environ, PYTHONPATH=str(ROOT), TERM="dumb")
    words = commands(image, spec, tmp_path)[command]
    done = subprocess.run(
        [sys.executable, "-m", "stateshift", *words],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=600,
    )
    shown = done.stdout + done.stderr
    assert b"\x1b" not in shown
    for line in shown.decode().splitlines():
        assert not line.startswith(FAKE), shown.decode()
    assert done.returncode != 1, shown.decode()
