"""Plan files as the published writer of Megaphone has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from stateshift.dataflow.move_steps import Step
from stateshift.live.protocol.configuration import Time
from stateshift.live.protocol.plan_file import Changes, Line, WholeMap


def encode_plan_file(lines: Sequence[Line]) -> str:
    """Return a plan file as the published writer has it, byte for byte."""
    return "".join(" ".join((*map(str, _values(line)), "\n")) for line in lines)


def as_lines(
    before: Sequence[int], start: Time, steps: Sequence[Step], time: Time
) -> tuple[Line, ...]:
    """Return the plan that begins with `before` at `start` and sends the steps one by one from
    `time` on.
    """
    lines: list[Line] = [WholeMap(start, tuple(before))]
    for step in steps:
        pairs = sorted((move.bin, move.target) for move in step)
        lines.append(Changes(time, tuple(pairs)))
    return tuple(lines)


def _values(line: Line) -> Iterator[str | int]:
    match line:
        case WholeMap():
            yield "M"
            yield line.time
            yield from line.workers
        case Changes():
            yield "D"
            yield line.time
            yield from chain.from_iterable(line.pairs)
