"""Checkpoints of the queries of scripts/golden/old, and a real Spark 4.3 that goes on from them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.support import ROOT, job

JOB_SECONDS = 1800


@dataclass(frozen=True)
class Start:
    """A query to start, and where its input and its checkpoint lie."""

    query: str
    input: Path
    checkpoint: Path


@dataclass(frozen=True)
class Ended:
    """What came of a start: the error, if any, and the rows of each batch."""

    error: str | None
    output: list[Any]


def write_inputs(folder: Path, first: int, count: int) -> None:
    """Write files of events, always the same for the same number."""
    script = ROOT / "scripts/golden/old_inputs.py"
    command = [sys.executable, str(script), str(folder), str(count), str(first)]
    subprocess.run(command, check=True)


def go_on(folder: Path, starts: Sequence[Start]) -> list[Ended]:
    """Start each query, one after the other, in one Spark; return how each ended."""
    orders = [
        {"query": one.query, "input": str(one.input), "checkpoint": str(one.checkpoint)}
        for one in starts
    ]
    path = folder / "orders.json"
    path.write_text(json.dumps(orders))
    answers = job("go_on.py", path, cwd=folder, seconds=JOB_SECONDS).json
    return [Ended(**answers[order["checkpoint"]]) for order in orders]
