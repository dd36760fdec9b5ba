"""Damaged checkpoints, judged by us and by a real Spark.

    ours     what `stateshift verify --deep` says: works, or refused (and of what)
    Spark's  works: it restarts and puts out what the untouched one does; fails; or wrong: it puts out something else

The two agree where both say that it works, or where we refuse and Spark does anything but work.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.matrix.damage import LAST, Damage, Files, copied, damaged
from tests.acceptance.matrix.ground import Ground, Order, quietly, rows_of

# Where the two may differ, and why: an action on a role (any action where it is empty).
EXCEPTIONS: Mapping[tuple[str, str], str] = {}


@dataclass(frozen=True)
class Verdicts:
    """Of one damaged checkpoint. `path` is the damaged file."""

    path: str
    ours: str
    sparks: str

    @property
    def agree(self) -> bool:
        return (self.ours == "works") == (self.sparks == "works")


def exception_to(damage: Damage) -> str | None:
    return EXCEPTIONS.get((damage.action, damage.role)) or EXCEPTIONS.get(("", damage.role))


def prepared(ground: Ground, damage: Damage) -> tuple[Order, str]:
    """The damaged checkpoint and the job that goes on from it, and which file is damaged."""
    source = ground.place(damage.base.name, "whole") / "checkpoint"
    folder = ground.folder / "damaged" / "".join(c if c.isalnum() else "-" for c in damage.name)
    target = folder / "checkpoint"
    shutil.rmtree(folder, ignore_errors=True)
    files, path = damaged(copied(files_of(source), str(source), str(target)), damage)
    write_files(target, files)
    inputs, conf = ground.inputs(), damage.base.conf
    return Order(damage.name, damage.base.query, inputs, target, folder / "output", conf), path


def our_verdict(order: Order) -> str:
    """What the command line says of it."""
    code, out, err = quietly(["verify", str(order.checkpoint), "--deep", "--json"])
    if code == 0:
        return "works"
    said = json.loads(out or err)
    refused = [finding["message"] for finding in said.get("findings", ()) if finding["level"] == "refuse"]
    return "refused: " + (refused[0] if refused else str(said.get("error", said))).replace(str(order.checkpoint), "…")


def sparks_verdict(ground: Ground, damage: Damage, order: Order, failure: str | None) -> str:
    if failure is not None:
        return "fails: " + " ".join(failure.split())[:200].replace(str(order.checkpoint), "…")
    expected, found = ground.expected(damage.base, LAST), rows_of(order.output, LAST)
    if found == expected and not rows_of(order.output, -1) - found:
        return "works"
    return f"wrong: {sum((expected - found).values())} rows lost, {sum((found - expected).values())} others instead"


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
