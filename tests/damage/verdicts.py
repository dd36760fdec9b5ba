"""One damaged image, judged: what the commands say of it, held against what a restart would read of it.

    verdict_of("spark-4.3.0/window-hdfs#17")    Verdict

Commands run in this process, through the command line's own entry, so that its mapping of errors to exit codes is part
of what is judged. The image lies on a disk in memory.

    detected     `verify --deep` refuses it: exit 3 or 5
    harmless     it says yes, and a restart reads the same
    earlier      it says yes to an earlier batch, which is as it was
    unchecked    it says yes, a restart reads something else, no checksum covers it, and a note says so
    unnamed      the same, and no note says so
    missed       it says yes, and a restart reads something else
    traceback    a bug of ours: exit 1, or an exception that left the command
    odd          another exit code: a refusal by the wrong name
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from stateshift.clusters.memory import MemoryCluster
from stateshift.migration import Doors
from stateshift.storage.memory import MemoryDisk
from tests.cli.support import Said, StillClock, said
from tests.damage.images import GoldenImage, image, on_a_disk
from tests.damage.meaning import Meaning, differences, meaning
from tests.damage.mutations import Damaged, made
from tests.damage.unchecked import is_named, no_checksum

TARGET = "file:///moved/orders"
REFUSED = (3, 5)
FAILURES = ("missed", "unnamed", "traceback", "odd", "hang", "memory")
"""Results that make the bench fail."""


@dataclass(frozen=True)
class Verdict:
    """What was done, and what came of it. `about` is the first line that says why."""

    id: str
    result: str
    engine: str = ""
    version: str = ""
    provider: str = ""
    kind: str = ""
    role: str = ""
    action: str = ""
    path: str = ""
    what: str = ""
    code: int | None = None
    about: str = ""
    differs: tuple[str, ...] = ()
    same: bool = False  # a restart reads the same
    apply: str = ""  # what `apply` made of it: see `applied`
    seconds: float = 0.0
    mib: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "differs": list(self.differs)}


def verdict_of(id_: str, with_apply: bool = False) -> Verdict:
    """Make the damage that `id_` names, and judge it."""
    name, _, number = id_.rpartition("#")
    golden = image(name)
    damaged = made(golden, int(number))
    found = judged(golden, damaged)
    if with_apply and found.code != 0:
        found = replace(found, apply=applied(golden, damaged))
    return found


def judged(golden: GoldenImage, damaged: Damaged) -> Verdict:
    """What `verify --deep` says, and whether that is so."""
    shown = run(on_a_disk(damaged.files), "verify", golden.location, "--deep", "--json")
    document = document_of(shown)
    after = meaning(golden.engine, golden.location, damaged.files)
    differing = differences(meaning_of(golden.name), after)
    result = "odd"
    if shown.code == 0:
        result = _accepted(golden, damaged, document, after, differing)
    elif shown.code in REFUSED:
        result = "detected"
    elif shown.code in (None, 1):
        result = "traceback"
    return Verdict(
        id=damaged.id,
        result=result,
        engine=golden.engine,
        version=golden.version,
        provider=golden.provider,
        kind=golden.kind,
        role=golden.role_of(damaged.path),
        action=damaged.action,
        path=damaged.path[len(golden.location) + 1 :] if golden.engine == "spark" else damaged.path,
        what=damaged.what,
        code=shown.code,
        about=about(shown, document),
        differs=tuple(differing[:5]),
        same=not differing,
    )


def _accepted(
    golden: GoldenImage, damaged: Damaged, document: Any, after: Meaning, differing: list[str]
) -> str:
    """`verify` said yes."""
    if not differing:
        return "harmless"
    if is_earlier(golden, document, after):
        return "earlier"
    if no_checksum(golden, damaged) is None:
        return "missed"
    return "unchecked" if is_named(document["findings"]) else "unnamed"


def is_earlier(golden: GoldenImage, document: Any, after: Meaning) -> bool:
    """Whether the yes is to an earlier batch by its number, and the image is what it was when
    that batch had ended."""
    whole = meaning_of(golden.name)
    if (
        golden.engine != "spark"
        or document["epoch"] is None
        or document["epoch"] >= whole["batch"][0]
    ):
        return False
    epoch = document["epoch"]
    before = meaning("spark", golden.location, _without_commits(golden, epoch))
    return not differences(before, after)


def _without_commits(golden: GoldenImage, epoch: int) -> dict[str, bytes]:
    top = f"{golden.location}/commits/"
    newer = {
        path
        for path in golden.files
        if path.startswith(top) and int(path.removeprefix(top)) > epoch
    }
    return {path: content for path, content in golden.files.items() if path not in newer}


@lru_cache(maxsize=64)
def meaning_of(name: str) -> Meaning:
    golden = image(name)
    return meaning(golden.engine, golden.location, golden.files)


# ---- commands


def run(disk: MemoryDisk, *argv: str) -> Said:
    """The command as a shell would run it. What leaves it as an exception has exit code None."""
    doors = Doors(disk.open, lambda spec, workdir: MemoryCluster(), StillClock())
    try:
        return said(*argv, doors=doors)
    except Exception as error:  # the command line promises that nothing does
        return Said(None, "", f"{type(error).__name__}: {error}")


def document_of(shown: Said) -> Any:
    try:
        return shown.document
    except ValueError:
        return {}


def about(shown: Said, document: Any) -> str:
    """Why, in a line: the first refusal, or the end of the traceback."""
    if not isinstance(document, dict):
        return ""
    if document.get("traceback"):
        return _traceback(Path(document["traceback"]))
    refusals = [one["message"] for one in document.get("findings", ()) if one["level"] == "refuse"]
    return str(refusals[0] if refusals else document.get("message", shown.err.strip()[-300:]))[:300]


def _traceback(place: Path) -> str:
    """The innermost lines of ours, and the error."""
    lines = place.read_text().splitlines() if place.exists() else []
    place.unlink(missing_ok=True)
    frames = [
        line.strip()
        for line in lines
        if line.strip().startswith('File "') and "/stateshift/" in line
    ]
    where = frames[-1].rpartition("/stateshift/")[2] if frames else ""
    return f"{where}: {lines[-1] if lines else ''}"[:300]


# ---- apply


def applied(golden: GoldenImage, damaged: Damaged) -> str:
    """What `apply` makes of it:

    not asked        the whole image is refused as well: an engine's own reasons
    refused          before anything was touched
    failed           before the job was fenced, nothing published
    fenced           failed once the job was fenced: it was down for nothing
    published        it went through
    traceback        a bug of ours
    """
    waived = waivers(golden.name)
    if waived is None:
        return "not asked"
    folder = tempfile.mkdtemp(prefix="stateshift-damage-", dir=scratch())
    try:
        disk = on_a_disk(damaged.files)
        spec = Path(folder, "spec.json")
        spec.write_text(json.dumps(spec_of(golden, waived)))
        workdir = f"{folder}/run"
        shown = run(disk, "apply", str(spec), "--yes", "--json", "--workdir", workdir)
        _forget_traceback(shown)
        return _outcome(golden, disk, shown, Path(workdir))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def spec_of(golden: GoldenImage, waived: tuple[str, ...]) -> dict[str, Any]:
    ends = {"checkpoint_location": golden.location, "remote_location": TARGET}
    if golden.engine == "flink":
        ends = {"existing_savepoint_paths": [golden.location], "new_savepoint_path": TARGET}  # type: ignore[dict-item]
    return {
        "version": 1,
        "engine": golden.engine,
        "jobs": [{"name": "orders", "waive": list(waived), **ends}],
    }


@lru_cache(maxsize=64)
def waivers(name: str) -> tuple[str, ...] | None:
    """What has to be waived for the whole image to be moved; None where it cannot be moved."""
    golden = image(name)
    with tempfile.TemporaryDirectory(prefix="stateshift-damage-", dir=scratch()) as folder:
        spec = Path(folder, "spec.json")
        spec.write_text(json.dumps(spec_of(golden, ())))
        found = document_of(run(on_a_disk(golden.files), "plan", str(spec), "--json")).get(
            "findings", ()
        )
        waived = tuple(sorted({one["waive"] for one in found if one.get("waive")}))
        spec.write_text(json.dumps(spec_of(golden, waived)))
        again = run(on_a_disk(golden.files), "plan", str(spec), "--json")
    return waived if again.code == 0 else None


def scratch() -> str | None:
    """Where workdirs are made: in memory, where there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _forget_traceback(shown: Said) -> None:
    document: Mapping[str, Any] = document_of(shown)
    if isinstance(document, dict) and document.get("traceback"):
        Path(document["traceback"]).unlink(missing_ok=True)
