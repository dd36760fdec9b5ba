"""Moves of bins from the worker that has them to one that shall have them: the difference between
two assignments.

    before   0 0 2 2        Move(1, 0, 1), Move(3, 2, 3)
    after    0 1 2 3
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from stateshift.dataflow.move_steps import Move, Step
from stateshift.errors import Complaint, SpecError
from stateshift.live.protocol.bins import is_count, not_a_count
from stateshift.live.protocol.configuration import Configuration, Time, Update, unknown_worker


def moves_between(before: Sequence[int], after: Sequence[int]) -> tuple[Move, ...]:
    """Return the moves in the order of the bins; a bin that stays is none."""
    wrong = tuple(_count_complaints(len(before), len(after)))
    if wrong:
        raise SpecError(wrong, hint="split or merge bins first: both sides need as many of them")
    pairs = enumerate(zip(before, after, strict=True))
    return tuple(Move(bin, source, target) for bin, (source, target) in pairs if source != target)


def _count_complaints(before: int, after: int) -> Iterator[Complaint]:
    """Yield what is wrong with the numbers of bins on both sides."""
    for name, bins in (("before", before), ("after", after)):
        if not is_count(bins):
            yield Complaint(f"/{name}", not_a_count(bins), bins)
    if before != after:
        yield Complaint("/after", f"{after} bins, but {before} before", after)


def check_moves(moves: Sequence[Move], configuration: Configuration, time: Time) -> None:
    """Refuse moves that cannot be made at a time, with all that is wrong with any of them."""
    wrong: list[Complaint] = []
    for index, move in enumerate(moves):
        wrong += _complaints(index, move, configuration, time)
    wrong += _repeated(moves)
    if wrong:
        hint = "take the moves from where the bins are: moves_between(now, wanted)"
        raise SpecError(tuple(wrong), hint=hint)


def _repeated(moves: Sequence[Move]) -> Iterator[Complaint]:
    """Yield a complaint about each move of a bin that moves several times."""
    often = Counter(move.bin for move in moves)
    for index, move in enumerate(moves):
        if often[move.bin] > 1:
            message = f"bin {move.bin} moves {often[move.bin]} times at once"
            yield Complaint(f"/{index}/bin", message, move.bin)


def _complaints(
    index: int, move: Move, configuration: Configuration, time: Time
) -> Iterator[Complaint]:
    is_early = time < configuration.since
    if is_early:
        message = f"time runs backwards, from {configuration.since} to {time}"
        yield Complaint(f"/{index}/time", message, time)
    yield from _unknown_ends(index, move, configuration.workers)
    if not 0 <= move.bin < configuration.bins:
        message = f"there is no bin {move.bin} among {configuration.bins}"
        yield Complaint(f"/{index}/bin", message, move.bin)
    elif not is_early:
        owner = configuration.worker(time, move.bin)
        if owner != move.source:
            message = (
                f"worker {move.source} does not own bin {move.bin}: "
                f"worker {owner} does at time {time}"
            )
            yield Complaint(f"/{index}/source", message, move.source, str(owner))
    if move.source == move.target:
        message = f"bin {move.bin} is at worker {move.target} already"
        yield Complaint(f"/{index}/target", message, move.target)


def _unknown_ends(index: int, move: Move, workers: int) -> Iterator[Complaint]:
    for name, worker in (("source", move.source), ("target", move.target)):
        if not 0 <= worker < workers:
            yield unknown_worker(f"/{index}/{name}", worker, workers)


def updates_of(step: Step, time: Time) -> tuple[Update, ...]:
    """Return the step as updates of the configuration."""
    return tuple(Update(time, move.bin, move.target) for move in step)
