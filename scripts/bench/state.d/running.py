"""A command run once and watched: its wall time, its processor time and the most memory that it and
its children had.

    Run   seconds, cpu_seconds, peak_bytes, output

Memory is the sum of what /proc calls resident over the command's process and all that it started,
looked at twenty times a second; processor time is the last that was seen of each of them. A command
may be kept to some of the machine's cores, which its children inherit.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Run:
    began: float
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


def run(
    command: Sequence[str], cores: Iterable[int], environment: dict[str, str], folder: Path
) -> Run:
    """The command's run; its end with another code than 0 ends the program."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began, clock = time.time(), time.perf_counter()
        process = subprocess.Popen(
            ["taskset", "--cpu-list", ",".join(map(str, cores)), *command],
            stdout=out,
            stderr=err,
            text=True,
            cwd=folder,
            env={**os.environ, **environment},
        )
        peak, cpu, seconds = _watched(process, clock)
        out.seek(0), err.seek(0)
        if process.returncode:
            raise SystemExit(
                f"{' '.join(command)} ended with {process.returncode}:\n{err.read()[-4000:]}"
            )
        return Run(began, seconds, cpu, peak, out.read())


def _watched(process: subprocess.Popen[str], clock: float) -> tuple[int, float, float]:
    """Peak memory, processor time and wall time. A JVM outlives the Python that started it: it
    is waited for, too.
    """
    known, cpu, peak, seconds = {process.pid}, {}, 0, None
    while True:
        seen = _tree(known)
        known |= seen.keys()
        cpu |= {pid: ticks for pid, (ticks, _) in seen.items()}
        peak = max(peak, sum(size for _, size in seen.values()))
        if process.poll() is not None:
            seconds = seconds or time.perf_counter() - clock
            if not seen:
                return peak, sum(cpu.values()) / TICK, seconds
        time.sleep(LOOK_SECONDS)


def _tree(known: set[int]) -> dict[int, tuple[int, int]]:
    """Ticks and resident bytes of every process in `known` that lives, and of their children."""
    parents, found = {}, {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] not in "ZX":
                parents[int(name)] = int(fields[1])
                found[int(name)] = (int(fields[11]) + int(fields[12]), int(fields[21]) * PAGE)
    wanted, grown = known & found.keys(), True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in wanted} - wanted
        wanted |= more
        grown = bool(more)
    return {pid: found[pid] for pid in wanted}
