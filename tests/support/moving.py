"""A checkpoint that goes from one place to another by the command line, and is taken back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stateshift.storage.protocol import Storage
from tests.look.golden_images import NEWEST, contents, write

CASES = ["window-hdfs", "window-rocksdb"]


def said(environment: Mapping[str, str], *words: str, code: int = 0) -> Any:
    """What the command line answers, as JSON."""
    run = subprocess.run(
        [sys.executable, "-m", "stateshift", *words, "--json"],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == code, run.stdout[-2000:] + run.stderr[-2000:]
    return json.loads(run.stdout)


def spec(tmp_path: Path, source: str, target: str, **more: Any) -> str:
    """The path of a spec with one job; `more` stands beside its jobs."""
    job = {"name": "orders", "checkpoint_location": source, "remote_location": target, "waive": ["paths-stay"]}
    (tmp_path / "spec.json").write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job], **more}))
    return str(tmp_path / "spec.json")


def put(storage: Storage, case: str) -> None:
    """A checkpoint that a real Spark wrote, its files at once where each waits for a network."""
    with ThreadPoolExecutor(storage.traits.at_once) as threads:
        list(threads.map(lambda file: write(storage, dict([file])), contents(NEWEST[case]).items()))


def there_and_back(
    environment: Mapping[str, str], tmp_path: Path, case: str, source: str, target: str,
    opening: Callable[[str], Storage],
) -> None:  # fmt: skip
    """Moved, verified, compared and rolled back: then all is as it was."""
    storage = opening(source)
    put(storage, case)
    before = {info.path: storage.read(info.path) for info in storage.list()}
    workdir = str(tmp_path / "run")
    done = said(environment, "apply", spec(tmp_path, source, target), "--yes", "--workdir", workdir)
    assert done["state"] == "finished"
    assert said(environment, "verify", target, "--deep")["restartable"]
    assert said(environment, "diff", source, target)["equal"]
    said(environment, "verify", workdir)
    assert said(environment, "rollback", workdir, "--yes")["state"] == "rolled-back"
    assert {info.path: storage.read(info.path) for info in storage.list()} == before
    assert list(opening(target).list()) == []
