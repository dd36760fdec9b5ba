"""What came of a combination, and how it is kept: a file of JSON lines that a killed process
leaves readable.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """`passed`, `failed`, or `refused`, with what there is to say of it."""

    cell: str
    result: str
    told: str = ""


class Lines:
    """A file of JSON lines, one for each name; the last one counts. A line that was cut short
    does not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: dict[str, Any] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                name, value = json.loads(line)
            except ValueError:
                continue
            self.held[name] = value

    def add(self, name: str, value: Any) -> None:
        self.held[name] = value
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write("\n" * (not _ends_a_line(self.path)) + json.dumps([name, value]) + "\n")


def _ends_a_line(path: Path) -> bool:
    content = path.read_bytes()[-1:] if path.exists() else b""
    return content in (b"", b"\n")
