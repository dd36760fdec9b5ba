"""The machine's cores and memory, and the number of processes of ours that fit.

cores      those that this process may use, and no more than its container is given time for
memory     all of it, or its container's
boot       a name of its own for each time that it is started; Linux gives one
processes  one a core, at most as many as `parallel` says; together they take no more memory
           than STATESHIFT_MEMORY, or else 60 % of the machine's, at PROCESS_BYTES each; at what
           the largest has taken, once one has taken more. One is this process itself: then none
           is started
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from stateshift.formats import bounds

PROCESS_BYTES = 350 * 1024 * 1024
PERCENT_OF_MEMORY = 60

_CGROUP = Path("/sys/fs/cgroup")
_UNBOUNDED = "max"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STATUS, _PEAK = Path("/proc/self/status"), "VmHWM:"


def cores() -> int:
    """Return the number of cores that this process may use, where the system says it."""
    usable = getattr(os, "sched_getaffinity", None)
    count = len(usable(0)) if usable else os.cpu_count() or 1
    quota = _words_of(_CGROUP / "cpu.max")
    if len(quota) == 2 and quota[0] != _UNBOUNDED:
        return max(1, min(count, int(quota[0]) // int(quota[1])))
    return count


def memory() -> int:
    """Return the most bytes of memory that this process could have."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    bound = _words_of(_CGROUP / "memory.max")
    if len(bound) == 1 and bound[0] != _UNBOUNDED:
        return min(size, int(bound[0]))
    return size


def memory_taken() -> int:
    """Return the peak memory of this process. Linux's `getrusage` begins with its parent's."""
    words = _words_of(_STATUS)
    if _PEAK in words:
        return int(words[words.index(_PEAK) + 1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def boot() -> str:
    """Return the name of this start of the machine; empty where the system gives none."""
    words = _words_of(_BOOT)
    return words[0] if words else ""


def process_count(parallel: int | None, cores: int, memory: int, asked: int | None) -> int:
    """Return the number of processes that share the work; `asked` bounds the memory of all."""
    wanted = cores if parallel is None else min(parallel, cores)
    return min(wanted, fitting(PROCESS_BYTES, _together(memory, asked)))


def fitting(process_bytes: int, together: int) -> int:
    """Return the number of processes of this size that fit into the memory of all; at least 1."""
    return max(1, together // process_bytes)


def together() -> int:
    """Return the bytes that all processes together may take on this machine."""
    return _together(memory(), bounds.request())


def _together(memory: int, asked: int | None) -> int:
    return memory * PERCENT_OF_MEMORY // 100 if asked is None else asked


def processes_here(parallel: int | None) -> int:
    """Return the number of processes that share the work on this machine."""
    return process_count(parallel, cores(), memory(), bounds.request())


def _words_of(path: Path) -> list[str]:
    """Return the words of a file of the system, none where there is none."""
    try:
        return path.read_text().split()
    except OSError:
        return []
