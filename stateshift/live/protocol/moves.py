"""What differs between two assignments: moves of bins from the worker that has them to one that
shall have them.

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
    """In the order of the bins; a bin that stays is none."""
    found = [
        Complaint(f"/{name}", not_a_count(len(bins)), len(bins))
        for name, bins in (("before", before), ("after", after))
        if not is_count(len(bins))
    ]
    if len(before) != len(after):
        found.append(
            Complaint("/after", f"{len(after)} bins, but {len(before)} before", len(after))
        )
    if found:
        raise SpecError(
            tuple(found), hint="split or merge bins first: both sides need as many of them"
        )
    pairs = enumerate(zip(before, after, strict=True))
    return tuple(Move(bin, source, target) for bin, (source, target) in pairs if source != target)


def check_moves(moves: Sequence[Move], configuration: Configuration, time: Time) -> None:
    """Refuse moves that cannot be made at a time, with all that is wrong with any of them."""
    found = [
        c for index, move in enumerate(moves) for c in _complaints(index, move, configuration, time)
    ]
    often = Counter(move.bin for move in moves)
    for index, move in enumerate(moves):
        if often[move.bin] > 1:
            found.append(
                Complaint(
                    f"/{index}/bin",
                    f"bin {move.bin} moves {often[move.bin]} times at once",
                    move.bin,
                )
            )
    if found:
        raise SpecError(
            tuple(found), hint="take the moves from where the bins are: moves_between(now, wanted)"
        )


def _complaints(
    index: int, move: Move, configuration: Configuration, time: Time
) -> Iterator[Complaint]:
    if time < configuration.since:
        yield Complaint(
            f"/{index}/time", f"time runs backwards, from {configuration.since} to {time}", time
        )
    for name, worker in (("source", move.source), ("target", move.target)):
        if not 0 <= worker < configuration.workers:
            yield unknown_worker(f"/{index}/{name}", worker, configuration.workers)
    if not 0 <= move.bin < configuration.bins:
        yield Complaint(
            f"/{index}/bin", f"there is no bin {move.bin} among {configuration.bins}", move.bin
        )
    elif (
        time >= configuration.since
        and (owner := configuration.worker(time, move.bin)) != move.source
    ):
        message = (
            f"worker {move.source} does not own bin {move.bin}: worker {owner} does at time {time}"
        )
        yield Complaint(f"/{index}/source", message, move.source, str(owner))
    if move.source == move.target:
        yield Complaint(
            f"/{index}/target", f"bin {move.bin} is at worker {move.target} already", move.target
        )


def updates_of(step: Step, time: Time) -> tuple[Update, ...]:
    """The step as updates of the configuration."""
    return tuple(Update(time, move.bin, move.target) for move in step)
