"""What processes use, by /proc: the peak of a process's memory, and the CPU of it and its children."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MIB = 1024.0  # KiB
TICKS = os.sysconf("SC_CLK_TCK")


class Peaks:
    """The memory of a Python process, from now on: it itself, and its children of Python."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.before: dict[int, float] = {}
        for one in self._pythons():
            # resets what VmHWM has
            Path(f"/proc/{one}/clear_refs").write_text("5")
            self.before[one] = memory(one, "VmRSS")

    def found(self) -> dict[str, float]:
        """Return MiB: before, and at most since then; of several processes the sum of each."""
        peak = sum(memory(one, "VmHWM") for one in self.before)
        now = sum(memory(one, "VmRSS") for one in self.before)
        return {
            "before": round(sum(self.before.values()), 1),
            "peak": round(peak, 1),
            "after": round(now, 1),
        }

    def _pythons(self) -> list[int]:
        found = (self.process, *descendants(self.process))
        return [one for one in found if "python" in _text(one, "comm")]


def descendants(process: int) -> Iterator[int]:
    for child in _text(process, f"task/{process}/children").split():
        yield int(child)
        yield from descendants(int(child))


def cpu_seconds(process: int) -> float:
    """Return what a process and all below it have used, those that have ended among them."""
    used = 0
    for one in (process, *descendants(process)):
        fields = _text(one, "stat").rsplit(")", 1)[-1].split()
        if fields:
            used += sum(map(int, fields[11:15]))
    return used / TICKS


def memory(process: int, what: str) -> float:
    """Return a line of a process's status in MiB; 0 where it has ended."""
    for line in _text(process, "status").splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / MIB
    return 0.0


def _text(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
