"""Functions with a state, in a chain that a job hands to foreachBatch.

    @live.stateful("last", initial=[])
    def keep_last(batch, state):            a batch's DataFrame, and the state before it
        return batch, (state + [...])[-5:]  what the next function gets, and the state after it

The state is whatever JSON can say; it is kept in the group's folder, once after each batch, and
found again by the name of its slot. So a batch that is run again begins with the state that it
began with. A function that is put in the place of another one finds the state of its slot,
transformed by what came with the change (`stateshift live replace … --state grow:to_ten`): F-1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stateshift.errors import FormatError, PlanError
from stateshift.live.code import Function
from stateshift.live.folder import Folder
from stateshift.live.protocol.chains import Version

KEPT_STATES = 10  # batches; Spark runs the last one again, a rewind perhaps an older one

# What a user's function keeps: whatever JSON can say.
State = object


@dataclass(frozen=True)
class Stateful:
    """A function and the slot of its state."""

    function: Function
    slot: str
    initial: State

    @property
    def __wrapped__(self) -> Function:
        """The user's function, as Python's own tools ask for what was decorated."""
        return self.function

    def __call__(self, batch: object, state: State) -> tuple[object, State]:
        after = self.function(batch, state)
        if not isinstance(after, tuple) or len(after) != 2:
            raise PlanError(
                f"{self.slot}: a stateful function returns the batch and the state",
                hint="return batch, state",
            )
        return after


def stateful(slot: str, initial: State = None) -> Callable[[Function], Stateful]:
    """Declare a function that keeps a state from batch to batch, in a slot of this name."""
    return lambda function: Stateful(function, slot, initial)


@dataclass(frozen=True, slots=True)
class Kept:
    """The states of a chain's slots after a batch, and the version that made them."""

    version: Version
    slots: dict[str, State]


def load(folder: Folder, query: str, chain: str, batch: int) -> Kept:
    """Return the states that a batch begins with: those after the last one before it."""
    earlier = [number for number in folder.state_batches(query, chain) if number < batch]
    content = folder.state(query, chain, earlier[-1]) if earlier else None
    if content is None:
        return Kept(0, {})
    try:
        values = json.loads(content)
        return Kept(int(values["version"]), dict(values["slots"]))
    except (ValueError, KeyError, TypeError) as error:
        path = f"states/{query}/{chain}/{earlier[-1]}"
        raise FormatError(f"not the state of a chain: {error}", path) from None


def store(folder: Folder, query: str, chain: str, batch: int, kept: Kept) -> None:
    """Keep the states after a batch, and remove those that no batch can begin with any more."""
    try:
        content = json.dumps({"version": kept.version, "slots": kept.slots})
    except (TypeError, ValueError) as error:
        raise PlanError(
            f"a state of {chain} is nothing that JSON can say: {error}",
            hint="keep numbers, texts, lists and dictionaries with text keys",
        ) from None
    folder.write_state(query, chain, batch, content.encode())
    for number in folder.state_batches(query, chain)[:-KEPT_STATES]:
        folder.remove_state(query, chain, number)


def run(
    functions: Sequence[Function], batch: object, slots: dict[str, State]
) -> tuple[object, dict[str, State]]:
    """Run a chain over a batch; return what its last function returned, and the states after."""
    after = dict(slots)
    for function in functions:
        if isinstance(function, Stateful):
            state = after.get(function.slot, function.initial)
            batch, after[function.slot] = function(batch, state)
        else:
            batch = function(batch)
    return batch, after
