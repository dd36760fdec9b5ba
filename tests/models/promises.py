"""The promises of a migration, held against what was done: each function yields where one is
broken.

    correctness  every key has seen the values, at the times, with the outputs that one worker alone
                 would have given
    migration    whatever is applied for a key at a time is applied where the configuration has it
                 at that time
    completion   once the inputs have come to a time and all messages have arrived, so have the
                 outputs

They are the properties 1 to 3 of Megaphone (M-8), and speak of what was applied: of the model, or
of a runtime.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from stateshift.live.protocol.applying import Key, State
from stateshift.live.protocol.configuration import Configuration, Time
from tests.models.bin_messages import END, Applied, Logic, Progress, Record, worker_of
from tests.models.bin_worker import S, apply


def alone(
    logic: Logic, records: Iterable[Record], states: Mapping[Key, State] | None = None
) -> tuple[Applied, ...]:
    """Return what a single worker applies that has every record from the start."""
    everything = S((Progress(END, END),), states or {}, tuple(records))
    _, applied = apply(everything, 0, logic)
    return applied


def incorrect(
    applied: Sequence[Applied],
    logic: Logic,
    records: Iterable[Record],
    states: Mapping[Key, State] | None = None,
    until: Time = END,
) -> Iterator[str]:
    """Yield the keys that have not seen what they had to before `until`, each with the first
    difference.
    """
    due = [fold for fold in alone(logic, records, states) if fold.time < until]
    wanted, seen = _by_key(due), _by_key(applied)
    for key in sorted({*wanted, *seen}, key=repr):
        difference = _first_difference(wanted[key], seen[key])
        if difference is not None:
            right, wrong = difference
            yield f"key {key!r}: {_described(wrong)} instead of {_described(right)}"


def _first_difference(
    wanted: Iterable[Seen], seen: Iterable[Seen]
) -> tuple[Seen | None, Seen | None] | None:
    pairs = zip_longest(wanted, seen)
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def misplaced(
    applied: Iterable[Applied], logic: Logic, configuration: Configuration
) -> Iterator[str]:
    """Yield what was applied elsewhere than the configuration says; it must not be retired."""
    for worker, time, key, _, _ in applied:
        place = worker_of(configuration, time, logic.hash_of(key))
        if place != worker:
            yield f"key {key!r} at time {time}: at worker {worker} instead of {place}"


def incomplete(frontiers: Sequence[Time], inputs: Time) -> Iterator[str]:
    """Yield the workers whose outputs have not come as far as the inputs."""
    for number, frontier in enumerate(frontiers):
        if frontier < inputs:
            yield f"worker {number}: outputs wait at {frontier}, inputs are at {inputs}"


Seen = tuple[Time, tuple[object, ...], tuple[object, ...]]


def _by_key(applied: Iterable[Applied]) -> dict[Key, list[Seen]]:
    by_key: dict[Key, list[Seen]] = defaultdict(list)
    for fold in applied:
        by_key[fold.key].append((fold.time, fold.values, fold.outputs))
    return by_key


def _described(seen: Seen | None) -> str:
    if seen is None:
        return "nothing more"
    time, values, outputs = seen
    return f"{list(values)} at time {time} with outputs {list(outputs)}"
