"""What a migration promises, held against what was done: each function finds where a promise is
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

from stateshift.live.protocol.configuration import Configuration, Time
from stateshift.live.protocol.messages import END, Applied, Key, Logic, Progress, Record, State
from stateshift.live.protocol.worker import S, apply


def alone(
    logic: Logic, records: Iterable[Record], states: Mapping[Key, State] | None = None
) -> tuple[Applied, ...]:
    """What a single worker applies that has every record from the start."""
    return apply(S((Progress(END, END),), states or {}, tuple(records)), 0, logic)[1]


def incorrect(
    applied: Sequence[Applied],
    logic: Logic,
    records: Iterable[Record],
    states: Mapping[Key, State] | None = None,
    until: Time = END,
) -> Iterator[str]:
    """The keys that have not seen what they had to before `until`, each with the first
    difference.
    """
    wanted = _by_key(one for one in alone(logic, records, states) if one.time < until)
    found = _by_key(applied)
    for key in sorted({*wanted, *found}, key=repr):
        pairs = zip(_padded(wanted[key], found[key]), _padded(found[key], wanted[key]), strict=True)
        for right, seen in pairs:
            if right != seen:
                yield f"key {key!r}: {_said(seen)} instead of {_said(right)}"
                break


def misplaced(
    applied: Iterable[Applied], logic: Logic, configuration: Configuration
) -> Iterator[str]:
    """What was applied elsewhere than the configuration says; it must not be retired."""
    for one in applied:
        place = configuration.worker_of(one.time, logic.hash_of(one.key))
        if place != one.worker:
            yield f"key {one.key!r} at time {one.time}: at worker {one.worker} instead of {place}"


def incomplete(frontiers: Sequence[Time], inputs: Time) -> Iterator[str]:
    """The workers whose outputs have not come as far as the inputs."""
    for number, frontier in enumerate(frontiers):
        if frontier < inputs:
            yield f"worker {number}: outputs wait at {frontier}, inputs are at {inputs}"


Seen = tuple[Time, tuple[object, ...], tuple[object, ...]]


def _by_key(applied: Iterable[Applied]) -> dict[Key, list[Seen]]:
    found: dict[Key, list[Seen]] = defaultdict(list)
    for one in applied:
        found[one.key].append((one.time, one.values, one.outputs))
    return found


def _padded(short: list[Seen], long: list[Seen]) -> list[Seen | None]:
    return [*short, *([None] * (len(long) - len(short)))]


def _said(seen: Seen | None) -> str:
    return (
        f"{list(seen[1])} at time {seen[0]} with outputs {list(seen[2])}"
        if seen
        else "nothing more"
    )
