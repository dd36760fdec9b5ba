"""`apply` over a damaged image: from where it lies to another folder, nothing running on any
cluster.

applied(golden, damaged)     refused | failed | fenced | published | traceback | not asked

not asked        the whole image is refused as well: an engine's own reasons
refused          before anything was touched
failed           before the job was fenced, nothing published
fenced           failed once the job was fenced: it was down for nothing
published        it went through
traceback        a bug of ours
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from stateshift.testing.memory_storage import MemoryDisk
from tests.cli.support import Said
from tests.damage.commands import document_of, forget_traceback, run
from tests.damage.images import GoldenImage, image, on_a_disk
from tests.damage.mutations import Damaged

TARGET = "file:///moved/orders"


def applied(golden: GoldenImage, damaged: Damaged) -> str:
    """What `apply` makes of it, in a word."""
    waived = waivers(golden.name)
    if waived is None:
        return "not asked"
    disk = on_a_disk(damaged.files)
    with spec_file(golden, waived) as (spec, workdir):
        shown = run(disk, "apply", spec, "--yes", "--json", "--workdir", workdir)
        forget_traceback(shown)
        return _outcome(golden, disk, shown, Path(workdir))


def _outcome(golden: GoldenImage, disk: MemoryDisk, shown: Said, workdir: Path) -> str:
    if shown.code in (None, 1):
        return "traceback"
    marker = "_metadata" if golden.engine == "flink" else "metadata"
    if shown.code == 0 or f"{TARGET}/{marker}" in disk.snapshot():
        return "published"
    journal = workdir / "journal"
    if not journal.exists():
        return "refused"
    return "fenced" if '"fence' in journal.read_text() else "failed"


@contextmanager
def spec_file(golden: GoldenImage, waived: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The path of a spec that moves the image, and of a workdir that is not there yet."""
    folder = tempfile.mkdtemp(prefix="stateshift-damage-", dir=scratch())
    try:
        spec = Path(folder, "spec.json")
        spec.write_text(json.dumps(spec_of(golden, waived)))
        yield str(spec), f"{folder}/run"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def spec_of(golden: GoldenImage, waived: tuple[str, ...]) -> dict[str, Any]:
    ends: dict[str, Any] = {"checkpoint_location": golden.location, "remote_location": TARGET}
    if golden.engine == "flink":
        ends = {"existing_savepoint_paths": [golden.location], "new_savepoint_path": TARGET}
    job = {"name": "orders", "waive": list(waived), **ends}
    return {"version": 1, "engine": golden.engine, "jobs": [job]}


@lru_cache(maxsize=64)
def waivers(name: str) -> tuple[str, ...] | None:
    """What has to be waived for the whole image to be moved; None where it cannot be moved."""
    golden = image(name)
    with spec_file(golden, ()) as (spec, _):
        planned = run(on_a_disk(golden.files), "plan", spec, "--json")
    findings = document_of(planned).get("findings", ())
    waived = tuple(sorted({one["waive"] for one in findings if one.get("waive")}))
    with spec_file(golden, waived) as (spec, _):
        again = run(on_a_disk(golden.files), "plan", spec, "--json")
    return waived if again.code == 0 else None


def scratch() -> str | None:
    """Where workdirs are made: in memory, where there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
