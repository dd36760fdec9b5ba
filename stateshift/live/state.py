"""Functions with a state, in a chain that a job hands to foreachBatch.

    @live.stateful("last", initial=[])
    def keep_last(batch, state):            a batch's DataFrame, and the state before it
        return batch, (state + [...])[-5:]  what the next function gets, and the state after it

The state is whatever JSON can say; it is kept in the group's folder after each batch, and found
again by the name of its slot. A batch that is run again begins with the state that it began with. A
function that is put in the place of another one finds the state of its slot, transformed by the
change (`stateshift live replace … --state grow:to_ten`): F-1.

States of the last batches are kept, for a query that goes back to an older checkpoint. One that
goes back further is refused: a state that begins anew would be a wrong one, and nobody would see
it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stateshift.errors import FormatError, Incompatible, PlanError
from stateshift.live.code import Function
from stateshift.live.folder import Folder
from stateshift.live.protocol.chains import Link, Version

KEPT_STATES = 10  # batches; Spark runs the last one again, a rewind perhaps an older one

# Kept by a user's function: whatever JSON can say.
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
class Around:
    """A function that was put around another one: it is given the rows and the inner function."""

    outer: Function
    inner: Function

    def __call__(self, rows: object) -> object:
        return self.outer(rows, self.inner)


def around(outer: Function, inner: Function) -> Around:
    """Put a function around another one. The inner one may have a state, the outer one has none."""
    if isinstance(outer, Stateful):
        raise Incompatible(
            f"{outer.slot}: a stateful function cannot be put around another one",
            hint="introduce it before or after",
        )
    return Around(outer, inner)


def function_of(link: Link, load: Callable[[Link], Function]) -> Function:
    """Return a link's function, around its inner ones; `load` returns the link's own."""
    if link.inner is None:
        return load(link)
    return around(load(link), function_of(link.inner, load))


@dataclass(frozen=True, slots=True)
class SlotStates:
    """The states of a chain's slots after a batch, their version, and their first batch."""

    version: Version
    slots: dict[str, State]
    since: int


def load(folder: Folder, query: str, chain: str, batch: int) -> SlotStates:
    """Return the states that a batch begins with: those after the last one before it."""
    numbers = folder.state_batches(query, chain)
    earlier = [number for number in numbers if number < batch]
    if earlier:
        return _read(folder, query, chain, earlier[-1])
    for number in numbers[:1]:
        if _read(folder, query, chain, number).since < batch:
            raise PlanError(
                f"the state of {chain} before batch {batch} is not kept any more, only those from "
                f"batch {number} on",
                hint=f"start the query from a checkpoint after batch {number}; from a new "
                "checkpoint its state begins anew",
            )
    return SlotStates(0, {}, batch)


def newest(folder: Folder, query: str, chain: str) -> SlotStates | None:
    """Return the states after the last batch of a query; None if there are none."""
    numbers = folder.state_batches(query, chain)
    return _read(folder, query, chain, numbers[-1]) if numbers else None


def _read(folder: Folder, query: str, chain: str, batch: int) -> SlotStates:
    path = f"{folder.location}/states/{query}/{chain}/{batch}"
    content = folder.state(query, chain, batch)
    try:
        values = json.loads(content or b"")
        return SlotStates(int(values["version"]), dict(values["slots"]), int(values["since"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "put the file back, or start the query from a new checkpoint: its state begins anew"
        raise FormatError(f"not the state of a chain: {error!r}", path, hint=hint) from None


def store(folder: Folder, query: str, chain: str, batch: int, kept: SlotStates) -> None:
    """Keep the states after a batch, and remove those that no batch can begin with any more: of
    batches long ago, and of later ones, which the query had run before it went back.
    """
    folder.write_state(query, chain, batch, encode(chain, kept))
    numbers = folder.state_batches(query, chain)
    earlier = [number for number in numbers if number <= batch]
    for number in numbers:
        if number > batch or number in earlier[:-KEPT_STATES]:
            folder.remove_state(query, chain, number)


def encode(chain: str, kept: SlotStates) -> bytes:
    """Return states as a file of the folder holds them; refuse what JSON cannot say."""
    values = {"version": kept.version, "since": kept.since, "slots": kept.slots}
    try:
        content = json.dumps(values).encode()
        error = None if _has_text_keys(kept.slots) else "a key is no text"
    except (TypeError, ValueError, RecursionError) as problem:
        error = str(problem)
    if error is not None:
        raise PlanError(
            f"a state of {chain} is nothing that JSON can say: {error}",
            hint="keep numbers, texts, lists and dictionaries with text keys",
        )
    return content


def _has_text_keys(value: State) -> bool:
    """Whether all dictionaries in a state have texts as keys: JSON would make texts of others."""
    match value:
        case Mapping():
            has_texts = all(isinstance(key, str) for key in value)
            return has_texts and all(_has_text_keys(item) for item in value.values())
        case list() | tuple():
            return all(_has_text_keys(item) for item in value)
        case _:
            return True


def transform_slots(transforms: Sequence[Function], slots: Mapping[str, State]) -> dict[str, State]:
    """Return the states of all slots, transformed by one function after the other."""
    after = dict(slots)
    for transform in transforms:
        after = {slot: transform(slot, state) for slot, state in after.items()}
    return after


def run(
    functions: Sequence[Function], batch: object, slots: Mapping[str, State]
) -> tuple[object, dict[str, State]]:
    """Run a chain over a batch; return what its last function returned, and the states after."""
    after = dict(slots)
    for function in functions:
        batch = _run(function, batch, after)
    return batch, after


def _run(function: Function, batch: object, slots: dict[str, State]) -> object:
    match function:
        case Stateful(_, slot, initial):
            # A copy: the next batch, or this one when it is run again, begins with nothing, too.
            state = slots[slot] if slot in slots else copy.deepcopy(initial)
            result, slots[slot] = function(batch, state)
            return result
        case Around(outer, inner):
            return outer(batch, lambda rows: _run(inner, rows, slots))
        case _:
            return function(batch)
