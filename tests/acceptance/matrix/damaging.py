"""Damaged checkpoints, judged by us and by a real Spark.

    ours     what `stateshift verify --deep` says: works, or refused (and of what)
    Spark's  works: it restarts and puts out what the untouched one does; fails; or wrong: it puts
             out something else

The two agree where both say that it works, or where we refuse and Spark does anything but work.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.acceptance.matrix.damage import LAST, WITHOUT, Damage, Files, copied, damaged
from tests.acceptance.matrix.ground import Ground, Order, later, quietly, rows_of
from tests.acceptance.matrix.outcomes import Outcome

# Where the two differ, and why: an action on a role.
_TAIL = (
    "Spark stops at the last record; nothing of Spark's ends so, and what else is wrong "
    "with it nobody can tell"
)
_STALE = (
    "a checksum that does not fit does not say which of the two is damaged, and Spark "
    "does not look at it"
)
_OLDER = (
    "what another version left is a file of the same kind: without a checksum beside it, "
    "nothing tells"
)
_PROPERTIES = "RocksDB does without a table's properties; they are part of what we read it by"
EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("twice in one file", "newest changes"): _TAIL,
    ("garbage at the end", "newest changes"): _TAIL,
    ("flip a bit behind the last record", "newest changes"): _TAIL,
    ("flip a bit in the properties" + WITHOUT, "table"): _PROPERTIES,
    ("stale .crc of Hadoop", "newest changes"): _STALE,
    ("stale .crc of Hadoop", "last offsets"): _STALE,
    ("that of the version before" + WITHOUT, "newest changes"): _OLDER,
    ("that of the version before" + WITHOUT, "snapshot"): _OLDER,
}


def outcome(damage: Damage, path: str, ours: str, sparks: str) -> Outcome:
    """`passed` where both say the same, or differ for a reason that is known. Told: path, ours,
    Spark's, the reason.
    """
    agree = (ours == "works") == (sparks == "works")
    reason = "" if agree else exception_to(damage) or ""
    told = json.dumps([path, ours, sparks, reason], ensure_ascii=False)
    return Outcome(damage.name, "passed" if agree or reason else "failed", told)


def not_run(failure: str) -> str:
    """Told of a damage whose base did not run."""
    return json.dumps(["", "", f"the base did not run: {cause_of(failure)}", ""])


def exception_to(damage: Damage) -> str | None:
    bare = damage.action.removesuffix(WITHOUT)
    return EXCEPTIONS.get((damage.action, damage.role)) or EXCEPTIONS.get((bare, damage.role))


def prepared(ground: Ground, damage: Damage) -> tuple[Order, str]:
    """The damaged checkpoint and the job that goes on from it, and which file is damaged."""
    source = ground.place(damage.base.name, "whole") / "checkpoint"
    folder = ground.folder / "damaged" / "".join(c if c.isalnum() else "-" for c in damage.name)
    target = folder / "checkpoint"
    shutil.rmtree(folder, ignore_errors=True)
    files, path = damaged(copied(files_of(source), str(source), str(target)), damage)
    write_files(target, files)
    inputs, conf = ground.inputs(), later(damage.base.conf)
    return Order(damage.name, damage.base.query, inputs, target, folder / "output", conf), path


def our_verdict(order: Order) -> str:
    """What the command line says of it."""
    code, out, err = quietly(["verify", str(order.checkpoint), "--deep", "--json"])
    if code == 0:
        return "works"
    said = json.loads(out or err)
    refused = [
        finding["message"] for finding in said.get("findings", ()) if finding["level"] == "refuse"
    ]
    return "refused: " + (refused[0] if refused else str(said.get("error", said))).replace(
        str(order.checkpoint), "…"
    )


def sparks_verdict(ground: Ground, damage: Damage, order: Order, failure: str | None) -> str:
    if failure is not None:
        return "fails: " + cause_of(failure).replace(str(order.checkpoint), "…")
    # Where the last commit is gone, its batch runs again: its output has to be the same, too.
    first = min([LAST + 1, *(int(path.stem) for path in order.output.glob("*.json"))])
    expected, found = ground.expected(damage.base, first - 1), rows_of(order.output)
    if found == expected:
        return "works"
    return (
        f"wrong: {sum((expected - found).values())} rows lost, "
        f"{sum((found - expected).values())} others instead"
    )


def cause_of(failure: str) -> str:
    """What Spark said, without what it was wrapped into."""
    classes = re.findall(r"\[([A-Z][A-Z_0-9]{8,}(?:\.[A-Z_0-9]+)?)\] ([^\n]{0,120})", failure)
    classes = [found for found in classes if found[0] != "STREAM_FAILED"]
    causes = re.findall(r"Caused by: ([^\n]{0,160})", failure)
    if not classes and "Python Proxy" in failure:  # all of it is the way through Python
        return "a batch"
    return " ".join(classes[0] if classes else causes[-1:] or [" ".join(failure.split())[:160]])


def clear(orders: Sequence[Order]) -> None:
    for order in orders:
        shutil.rmtree(order.checkpoint.parent, ignore_errors=True)


def files_of(checkpoint: Path) -> Files:
    paths = (path for path in sorted(checkpoint.rglob("*")) if path.is_file())
    return {path.relative_to(checkpoint).as_posix(): path.read_bytes() for path in paths}


def write_files(checkpoint: Path, files: Files) -> None:
    for path, content in files.items():
        place = checkpoint / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
