"""The plan files of Megaphone's experiments: when which bin goes to which worker, as lines of text.

    M time worker worker worker …         the worker of every bin, from bin 0 on
    D time bin worker bin worker …        these bins go to these workers, the others stay

Times are nanoseconds since the job began and never run backwards. A line is a step: one of the same
time as the line before is sent as soon as that is complete, so that a fluid migration is many lines
of one time. Values are divided by blanks, and the published writer ends each line with one.

Source: strymon-system/megaphone at 45d31e2, experiments/nexmark/patterns.py (PatternGenerator,
which writes) and nexmark/src/tools.rs (ExperimentMapMode::File, which reads) with
nexmark/src/bin/word_count.rs (which sends).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stateshift.dataflow.move_steps import Step
from stateshift.errors import Complaint, SpecError
from stateshift.live.protocol.configuration import (
    BINS_MAX,
    Configuration,
    Time,
    initial_configuration,
    is_count,
    moves_between,
    not_a_count,
    unknown_worker,
)

# As many as the reader's u64 holds; more digits are no number of anything.
_NUMBER = re.compile(r"\+?[0-9]{1,19}\Z", re.ASCII)
_HINT = "a line is `M time worker …` for all bins, or `D time bin worker …` for some"


@dataclass(frozen=True, slots=True)
class WholeMap:
    """M: the worker of every bin."""

    time: Time
    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """D: pairs of a bin and its new worker."""

    time: Time
    pairs: tuple[tuple[int, int], ...]


Line = WholeMap | Changes


def decode_plan_file(
    text: str, bins: int | None = None, workers: int | None = None
) -> tuple[Line, ...]:
    """Return the lines of a plan file. Complaints name the numbers of their lines, and come all at
    once; bins and workers are held against those of the job, if they are known.
    """
    reader = _Reader(bins, workers)
    lines: list[Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        lines += reader.read(number, line)
    if not lines and not reader.complaints:
        reader.complaints.append(
            Complaint("line 1", "there is no plan in the file", expected="M time worker …")
        )
    if reader.complaints:
        raise SpecError(tuple(reader.complaints), hint=_HINT)
    return tuple(lines)


def steps_of_plan(
    lines: Sequence[Line], workers: int
) -> tuple[Configuration, tuple[tuple[Time, Step], ...]]:
    """Return the configuration that a job begins with, and its steps with the times before which
    they are not sent. The first line is a whole map; lines that change nothing are no step.
    """
    first, *rest = lines
    assert isinstance(first, WholeMap), "decoded without a number of bins"
    assigned, steps = list(first.workers), []
    for line in rest:
        if isinstance(line, WholeMap):
            after = list(line.workers)
        else:
            after = list(assigned)
            for bin, worker in line.pairs:
                after[bin] = worker
        moves = moves_between(assigned, after)
        if moves:
            steps.append((line.time, moves))
        assigned = after
    return initial_configuration(first.workers, workers, first.time - 1), tuple(steps)


@dataclass(eq=False)
class _Reader:
    """A reader that reads on after every complaint."""

    bins: int | None
    workers: int | None
    time: Time = field(default=0, init=False)
    complaints: list[Complaint] = field(default_factory=list, init=False)
    place: str = field(default="", init=False)

    def read(self, number: int, text: str) -> Iterator[Line]:
        self.place = f"line {number}"
        if not text.split():
            self.refuse("a line with nothing in it", text, "M or D")
            return
        kind, *numbers = text.split()
        if kind not in ("M", "D"):
            self.refuse(f"{kind!r} begins no line", text, "M or D")
            return
        wrong = [word for word in numbers if not _NUMBER.match(word)]
        if wrong:
            self.refuse(f"{wrong[0][:20]!r} is no number from 0 on", text)
            return
        if not numbers:
            self.refuse("a line without a time", text)
            return
        time, *values = map(int, numbers)
        if time < self.time:
            self.refuse(f"time runs backwards, from {self.time} to {time}", text)
        self.time = max(self.time, time)
        if kind == "M":
            if not is_count(len(values)):
                self.refuse(not_a_count(len(values)), text, f"a power of two up to {BINS_MAX:,}")
            elif self.bins not in (None, len(values)):
                self.refuse(f"workers for {len(values)} bins, but there are {self.bins}", text)
            self.bins = self.bins or len(values)
            self._check_workers(values)
            yield WholeMap(time, tuple(values))
        else:
            yield from self._changes(time, values, text)

    def _changes(self, time: Time, values: list[int], text: str) -> Iterator[Line]:
        if not values:
            self.refuse("no bin and no worker", text)
            return
        if len(values) % 2:
            self.refuse("a bin without its worker", text)
            return
        bins, workers = values[::2], values[1::2]
        if self.bins is None:
            message = "bins change before the line that says where they are"
            self.refuse(message, text, "a line M before it")
        for bin, often in Counter(bins).items():
            if self.bins is not None and bin >= self.bins:
                self.refuse(f"there is no bin {bin} among {self.bins}", bin)
            if often > 1:
                self.refuse(f"bin {bin} goes {often} ways in one line", bin)
        self._check_workers(workers)
        yield Changes(time, tuple(zip(bins, workers, strict=True)))

    def _check_workers(self, workers: list[int]) -> None:
        if self.workers is None:
            return
        for worker in dict.fromkeys(workers):
            if worker >= self.workers:
                self.complaints.append(unknown_worker(self.place, worker, self.workers))

    def refuse(self, message: str, read: str | int, expected: str | None = None) -> None:
        shown = read[:80] if isinstance(read, str) else read
        self.complaints.append(Complaint(self.place, message, shown, expected))
