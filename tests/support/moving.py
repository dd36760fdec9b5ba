"""A checkpoint that goes from one place to another by the command line, and is taken back; the
command line, killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stateshift.journal import StepStarted, decode_records
from stateshift.storage.protocol import Storage
from tests.acceptance.support import ROOT, environment
from tests.look.golden_images import NEWEST, contents, write

CASES = ["window-hdfs", "window-rocksdb"]


def said(more: Mapping[str, str], *words: str, code: int = 0) -> Any:
    """What the command line answers, as JSON."""
    run = subprocess.run(
        [sys.executable, "-m", "stateshift", *words, "--json"],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == code, run.stdout[-2000:] + run.stderr[-2000:]
    return json.loads(run.stdout)


def spec(tmp_path: Path, source: str, target: str, **more: Any) -> str:
    """The path of a spec with one job; `more` stands beside its jobs."""
    job = {
        "name": "orders",
        "checkpoint_location": source,
        "remote_location": target,
        "waive": ["paths-stay"],
    }
    (tmp_path / "spec.json").write_text(
        json.dumps({"version": 1, "engine": "spark", "jobs": [job], **more})
    )
    return str(tmp_path / "spec.json")


def put(storage: Storage, case: str) -> None:
    """A checkpoint that a real Spark wrote, its files at once where each waits for a network."""
    with ThreadPoolExecutor(storage.traits.at_once) as threads:
        list(threads.map(lambda file: write(storage, dict([file])), contents(NEWEST[case]).items()))


def there_and_back(
    environment: Mapping[str, str],
    tmp_path: Path,
    case: str,
    source: str,
    target: str,
    opening: Callable[[str], Storage],
) -> None:
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


def killed_at(step: str, words: tuple[str, ...], workdir: Path, more: Mapping[str, str]) -> None:
    """Run the command line, and kill it as soon as its journal says that a step of this name has
    begun.
    """
    run = subprocess.Popen(
        [sys.executable, "-m", "stateshift", *words],
        cwd=ROOT,
        env={**environment(), **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while run.poll() is None and not has_begun(workdir, step):
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    _, told = run.communicate()
    assert run.returncode == -signal.SIGKILL, (
        f"ended with {run.returncode} before {step}\n{told[-3000:]}"
    )


def has_begun(workdir: Path, step: str) -> bool:
    """A line that is being written does not count yet."""
    journal = workdir / "journal"
    if not journal.exists():
        return False
    records, _ = decode_records(journal.read_bytes())
    return any(isinstance(one, StepStarted) and one.step.startswith(step) for one in records)
