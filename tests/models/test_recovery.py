"""Functions that change while checkpoints are made and operators fail (F-1, F-17): every
interleaving of small ones, random ones of others. Nothing is lost or read twice, every tuple is met
by old or by new, and each change happens once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.dataflow.schedulers import epoch_barrier, fries, multi_version, naive
from stateshift.errors import SpecError
from stateshift.specification.dataflow.operators import Dataflow
from tests.dataflow.random_dataflows import dataflows, with_targets
from tests.dataflow.samples import drawn
from tests.models.recovery import Change, Reconfiguration, Runtime, State

pytestmark = pytest.mark.row("F-1", "F-17")

CHANGED = "changed"


def logs(number: int) -> Any:
    """A function that writes down what it has met; the state tells everything that has ever
    happened to it.
    """
    return lambda state, item: (*state, (item, number))


def logged(state: Any) -> Any:
    return (*state, CHANGED)


def runtime(
    dataflow: Dataflow,
    *targets: tuple[str, ...],
    tuples: int = 2,
    schedule: Any = fries,
    **more: Any,
) -> Runtime:
    """One reconfiguration after the other; every operator logs."""
    asked = [
        Reconfiguration(
            schedule(dataflow, names),
            tuple(Change(name, logs(number + 1), logged) for name in names),
        )
        for number, names in enumerate(targets)
    ]
    return Runtime(asked, tuples, {name: logs(0) for name in dataflow.names}, **more)


def ends(machine: Runtime, states_max: int = 400_000) -> Iterator[State]:
    """Every state from which nothing happens any more."""
    seen, waiting = {machine.start}, [machine.start]
    while waiting:
        state = waiting.pop()
        after = list(machine.steps(state))
        if not after:
            yield state
        waiting += (new := [one for one in dict.fromkeys(after) if one not in seen])
        seen.update(new)
        assert len(seen) < states_max, "too many to see all of them"


def faults(machine: Runtime, state: State) -> list[str]:
    """What is wrong with the end of a run."""
    found = []
    if state.done < len(machine.reconfigurations) or state.saving is not None or any(state.queues):
        found.append("stuck")
    for number, one in enumerate(machine.reconfigurations):
        found += _changes(machine, state, number, one)
    expected, met = undisturbed(machine), Counter(_met(machine, state))
    found += [f"{what} is missing" for what in expected - met] + [
        f"{what} is one too many" for what in met - expected
    ]
    return found


def _changes(machine: Runtime, state: State, number: int, asked: Reconfiguration) -> Iterator[str]:
    sides: dict[int, set[bool]] = {}
    for (operator, place), worker in zip(machine.wirings[0].workers, state.workers, strict=True):
        log: Any = worker.keeps
        mine = [
            n
            for n, one in enumerate(machine.reconfigurations)
            if operator.name in one.schedule.targets
        ]
        if log.count(CHANGED) != len(mine):
            yield f"{operator.name} {place} has changed {log.count(CHANGED)} times"
        if operator.name in asked.schedule.targets:
            for item, version in (entry for entry in log if entry != CHANGED):
                sides.setdefault(item, set()).add(version > number)
    yield from (f"{item} was met before and after" for item, both in sides.items() if len(both) > 1)


def _met(machine: Runtime, state: State) -> Iterator[tuple[str, int, int]]:
    for (operator, place), worker in zip(machine.wirings[0].workers, state.workers, strict=True):
        log: Any = worker.keeps
        yield from ((operator.name, place, entry[0]) for entry in log if entry != CHANGED)


def undisturbed(machine: Runtime) -> Counter[tuple[str, int, int]]:
    """Who meets what, where nothing changes, nobody saves and nobody fails."""
    plain = Runtime(
        machine.reconfigurations, machine.tuples, machine.functions, checkpoints=0, failures=0
    )
    state = plain.start._replace(done=len(machine.reconfigurations))
    while (after := next(plain.steps(state), None)) is not None:
        state = after
    return Counter(_met(plain, state))


SMALL = {
    "two that follow each other": (drawn("S -> A -> B"), (("A", "B"),)),
    "two heads that meet": (drawn("S -> A -> C; R -> B -> C"), (("A", "B", "C"),)),
    "after a fork": (drawn("S -> A, B -> C", many="S"), (("A", "C"),)),
    "one after the other": (drawn("S -> A -> B"), (("A",), ("A", "B"))),
    "two workers": (drawn("S -> A -> B", workers={"A": 2}), (("A", "B"),)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_whatever_happens_when_nothing_is_lost_and_every_change_happens_once(name: str) -> None:
    dataflow, targets = SMALL[name]
    machine = runtime(dataflow, *targets, tuples=2, checkpoints=2, failures=2)
    found = [faults(machine, state) for state in ends(machine)]
    assert found and not any(found)


def test_a_change_during_a_checkpoint_may_never_end_or_happen_twice() -> None:
    """What `careful` is for: two heads, one of which has saved before it changes."""
    dataflow, targets = SMALL["two heads that meet"]
    machine = runtime(dataflow, *targets, tuples=1, careful=False)
    found = {fault for state in ends(machine) for fault in faults(machine, state)}
    assert "stuck" in found, (
        "whoever waits for both markers on two channels hears them in different orders"
    )
    assert any("has changed 2 times" in fault for fault in found)


def test_naive_messages_are_found_out_here_as_well() -> None:
    machine = runtime(drawn("S -> A -> B"), ("A", "B"), schedule=naive)
    assert any(
        "before and after" in fault for state in ends(machine) for fault in faults(machine, state)
    )


@pytest.mark.sample(15)
@pytest.mark.parametrize("seed", range(40))
def test_an_epoch_barrier_and_fries_survive_failures_of_larger_dataflows(seed: int) -> None:
    chance = random.Random(seed)
    dataflow = drawn(
        "S, R -> A, B; A -> C, D; B -> D -> E; C -> E",
        many="A",
        broadcast="C",
        workers={"B": 2, "D": 3, "E": 2},
    )
    targets = tuple(chance.sample(["A", "B", "C", "D", "E"], 3))
    schedule = chance.choice([fries, epoch_barrier])
    machine = runtime(
        dataflow, targets, ("E",), tuples=8, schedule=schedule, checkpoints=3, failures=3
    )
    assert not faults(machine, walked(machine, chance)), f"seed {seed}"


SENDING = dataflows(size_max=6, kinds=("one-to-one", "one-to-many"), workers_max=2, flags=False)


@settings(max_examples=150, deadline=None)
@given(with_targets(SENDING), st.integers(0, 2**32))
def test_fries_survives_failures_of_any_dataflow(
    chosen: tuple[Dataflow, tuple[str, ...]], seed: int
) -> None:
    dataflow, targets = chosen
    machine = runtime(dataflow, targets, tuples=4, checkpoints=2, failures=2)
    assert not faults(machine, walked(machine, random.Random(seed)))


def walked(machine: Runtime, chance: random.Random) -> State:
    state = machine.start
    while after := list(machine.steps(state)):
        state = chance.choice(after)
    return state


# ---- what is asked for


def last(count: int) -> Any:
    return lambda state, item: (*state, item)[-count:]


def test_a_state_of_the_last_five_grows_to_the_last_ten() -> None:
    """The paper's example: what the old function has kept goes on in the new one."""
    dataflow = drawn("S -> W")
    grown = Reconfiguration(fries(dataflow, ["W"]), (Change("W", last(10)),))
    machine = Runtime([grown], 30, {"W": last(5)}, checkpoints=2, failures=2)
    sizes = set()
    for seed in range(60):
        state, chance = machine.start, random.Random(seed)
        while after := list(machine.steps(state)):
            before, state = state, chance.choice(after)
            if before.workers[1].taken < state.workers[1].taken:
                sizes.add((len(before.workers[1].keeps), len(state.workers[1].keeps)))  # type: ignore[arg-type]
        assert state.workers[1].keeps == tuple(range(20, 30))
    assert (5, 5) in sizes, "nothing of what there was is gone with the change"


def test_a_transformation_may_make_another_state_of_it() -> None:
    def counted(state: Any, item: int) -> Any:
        return state + 1

    dataflow = drawn("S -> W")
    machine = Runtime(
        [Reconfiguration(fries(dataflow, ["W"]), (Change("W", counted, len),))],
        9,
        {"W": last(100)},
        failures=1,
    )
    assert walked(machine, random.Random(3)).workers[1].keeps == 9


def test_only_one_is_under_way_at_a_time() -> None:
    machine = runtime(drawn("S -> A -> B"), ("A",), ("B",), tuples=1)
    seen, waiting = {machine.start}, [machine.start]
    while waiting:
        state = waiting.pop()
        ahead = {worker.taken - state.done for worker in state.workers}
        assert ahead <= {0, 1}, "the next one begins when the last is complete"
        assert state.asked or ahead == {0}
        waiting += (new := [one for one in machine.steps(state) if one not in seen])
        seen.update(new)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["A", "A"], ["'A' is to change twice", "'B' is a target, and has no change"]),
        (["A", "S", "B"], ["'S' is no target of the schedule"]),
        (["A"], ["'B' is a target, and has no change"]),
    ],
)
def test_changes_that_do_not_fit_their_schedule_are_refused_all_at_once(
    names: list[str], expected: list[str]
) -> None:
    with pytest.raises(SpecError) as refused:
        Reconfiguration(
            fries(drawn("S -> A -> B"), ["A", "B"]), tuple(Change(name, logs(1)) for name in names)
        )
    assert [one.message for one in refused.value.complaints] == expected


def test_what_this_runtime_does_not_do_is_refused() -> None:
    changes = (Change("B", logs(1)),)
    with pytest.raises(SpecError, match="blocking"):
        Reconfiguration(fries(drawn("S -> A -> B", blocking="A"), ["B"]), changes)
    with pytest.raises(SpecError, match="no worker keeps both"):
        Reconfiguration(multi_version(drawn("S -> A -> B"), ["B"]), changes)
