"""The golden checkpoints (see scripts/golden/make.py), found and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.formats.spark.offsets import decode_offsets

ROOT = Path(__file__).resolve().parents[1] / "golden"
CASES = sorted(path.parent for path in ROOT.glob("spark-*/*/expected.json"))
IDS = [f"{path.parent.name}/{path.name}" for path in CASES]


@cache
def paths(case: Path) -> tuple[tuple[str, CheckpointPath], ...]:
    """Every file of the case's checkpoint, and what it is."""
    root = case / "checkpoint"
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return tuple((name, classify(name)) for name in names)


def files(case: Path, area: str) -> list[Path]:
    return [case / "checkpoint" / name for name, what in paths(case) if what.area == area]


def expected(case: Path) -> Any:
    return json.loads((case / "expected.json").read_text())


def settings(case: Path) -> dict[str, str]:
    entry = decode_offsets((case / f"checkpoint/offsets/{expected(case)['epoch']}").read_bytes())
    return dict(entry.conf)


def chunks(path: Path, size: int = 1000) -> Iterator[bytes]:
    content = path.read_bytes()
    for start in range(0, len(content), size):
        yield content[start : start + size]


def plain(value: Any) -> Any:
    """A decoded value as `expected.json` has it."""
    match value:
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case tuple():
            return [plain(item) for item in value]
    return value
