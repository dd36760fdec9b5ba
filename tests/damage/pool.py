"""Judges in processes of their own, so that one that hangs or eats memory is seen, ended and
replaced.

    for verdict in verdicts(ids, workers=2): ...

Each judge has one damage at a time. One that takes longer than SECONDS_MAX is a `hang`; one whose
process grew by more than MIB_MAX is one of `memory`; one whose process died is a `hang` as well,
with the exit code for a reason.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.damage.verdicts import Verdict, verdict_of

SECONDS_MAX = (
    60.0  # hundreds of times what a whole image takes, on a machine that is busy with other things
)
START_SECONDS_MAX = 300.0  # of a process that has to import everything first
MIB_MAX = 1024.0
ADDRESS_MAX = 8 << 30  # the machine's own protection

READY = "ready"

Judge = Callable[[str], Verdict]


def judge(id_: str) -> Verdict:
    return verdict_of(id_)


def judge_and_apply(id_: str) -> Verdict:
    return verdict_of(id_, with_apply=True)


def verdicts(
    ids: Sequence[str], workers: int = 2, asked: Judge = judge, seconds_max: float = SECONDS_MAX
) -> Iterator[Verdict]:
    """Every verdict as it comes."""
    left = deque(ids)
    pool = [_Worker(asked, left) for _ in range(min(workers, len(ids)))]
    try:
        while any(worker.id is not None for worker in pool):
            wait([worker.pipe for worker in pool if worker.id is not None], timeout=1.0)
            for worker in pool:
                found = worker.answer(seconds_max)
                if found is not None:
                    yield found
    finally:
        for worker in pool:
            worker.end()


class _Worker:
    """A process, and the damage that it judges."""

    def __init__(self, asked: Judge, left: deque[str]) -> None:
        self._asked, self._left = asked, left
        self.id: str | None = None
        self._start()
        self._next()

    def answer(self, seconds_max: float) -> Verdict | None:
        """The verdict, once there is one; the next damage is begun."""
        if self.id is None:
            return None
        found = self._received()
        if found is None:
            if not self._waits_too_long(seconds_max) and self._process.is_alive():
                return None
            found = self._replaced()
        self._next()
        return found

    def end(self) -> None:
        with suppress(OSError):
            self.pipe.send(None)
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, inner = context.Pipe()
        self._process = context.Process(target=_serve, args=(inner, self._asked), daemon=True)
        self._process.start()
        inner.close()
        self._ready = False

    def _next(self) -> None:
        self.id = self._left.popleft() if self._left else None
        self._since = time.monotonic()
        if self.id is not None:
            self.pipe.send(self.id)

    def _waits_too_long(self, seconds_max: float) -> bool:
        """From when it was given its damage, or is there at all: to import everything takes a
        while.
        """
        limit = seconds_max if self._ready else START_SECONDS_MAX
        return time.monotonic() - self._since > limit

    def _received(self) -> Verdict | None:
        try:
            found = self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, ConnectionError):
            return None
        if found != READY:
            return found
        self._ready, self._since = True, time.monotonic()
        return None

    def _replaced(self) -> Verdict:
        """A verdict over a process that is ended here, or has ended by itself; another takes its
        place."""
        assert self.id is not None
        died = not self._process.is_alive()
        self._process.kill()
        self._process.join()
        about = (
            f"its process died: {self._process.exitcode}"
            if died
            else f"no end after {SECONDS_MAX:.0f} s"
        )
        found = Verdict(self.id, "hang", about=about, **_of(self.id))
        self._start()
        return found


def _of(id_: str) -> dict[str, str]:
    """What is known of a damage without judging it."""
    from tests.damage.images import image
    from tests.damage.mutations import made

    name, _, number = id_.rpartition("#")
    golden = image(name)
    damaged = made(golden, int(number))
    return {
        "engine": golden.engine,
        "version": golden.version,
        "provider": golden.provider,
        "kind": golden.kind,
        "role": golden.role_of(damaged.path),
        "action": damaged.action,
        "path": damaged.path,
        "what": damaged.what,
    }


# ---- in the process


def _serve(pipe: Connection, asked: Judge) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_MAX, ADDRESS_MAX))
    pipe.send(READY)
    while (id_ := pipe.recv()) is not None:
        pipe.send(_measured(asked, id_))


def _measured(asked: Judge, id_: str) -> Verdict:
    before, began = _reset_peak(), time.process_time()
    found = asked(id_)
    grown = _status("VmHWM") - before
    found = replace(found, seconds=round(time.process_time() - began, 3), mib=round(grown, 1))
    if grown > MIB_MAX:
        found = replace(
            found, result="memory", about=f"{grown:.0f} MiB; {found.result}: {found.about}"
        )
    return found


def _reset_peak() -> float:
    """What the process holds now, in MiB; its peak is counted from here on, where Linux lets us."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0
