"""The schedules S1 ... S5 of the Fries paper, and what the checker says of those that fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.history import Data, Operation, Update, Verdict, check, scope, transactions

# phi and mu as the paper writes them: "t1@FC" is a data operation, "!FM" a function update.
S1 = "t1@FC !FM t1@FM !MC t1@MC"
S2 = "!FM !MC t1@FC t1@FM t1@MC"
S3 = "t1@FC t1@FM !FM !MC t1@MC"
S4 = "t1@X !C t1@C t2@X !D t2@D"
S5 = "t1@FC t1@J t2@SP t3@SP t4@SP t5@FMX !FMX t6@FMX t7@FMY t8@U t9@U t10@U"
# Join makes t2, t3 and t4 of t1; Split sends them on as t5, t6 and t7, and the two FM make t8, t9
# and t10 of them.
MADE_OF = {
    "t2": "t1",
    "t3": "t1",
    "t4": "t1",
    "t5": "t2",
    "t6": "t3",
    "t7": "t4",
    "t8": "t5",
    "t9": "t6",
    "t10": "t7",
}


def written(text: str) -> list[Operation]:
    return [_operation(word) for word in text.split()]


def _operation(word: str) -> Operation:
    if word.startswith("!"):
        return Update(word[1:])
    name, _, operator = word.partition("@")
    return Data(name, operator)


@pytest.mark.row("F-5", "F-4")
@pytest.mark.parametrize(
    ("text", "derived", "serialisable"),
    [(S1, {}, True), (S2, {}, True), (S3, {}, False), (S4, {}, True), (S5, MADE_OF, False)],
    ids=["S1", "S2", "S3", "S4", "S5"],
)
def test_s1_s2_and_s4_pass_s3_and_s5_fail(
    text: str, derived: dict[str, str], serialisable: bool
) -> None:
    assert check(written(text), derived).serialisable is serialisable


@pytest.mark.row("F-5")
def test_a_failing_schedule_is_told_by_its_transactions_and_operations() -> None:
    assert str(check(written(S3))) == (
        "not conflict-serialisable: t1 -> update -> t1\n"
        "  t1 before update: FM processes t1, and then FM takes its new function\n"
        "  update before t1: MC takes its new function, and then MC processes t1"
    )
    assert "FMX processes t5" in str(check(written(S5), MADE_OF))
    assert str(check(written(S1))) == "conflict-serialisable"


@pytest.mark.row("F-4")
def test_s5_is_serialisable_where_its_tuples_are_strangers() -> None:
    assert check(written(S5)).serialisable


@pytest.mark.row("F-4")
def test_the_scope_of_a_source_tuple_is_all_that_was_made_of_it() -> None:
    assert scope("t1", MADE_OF) == frozenset(("t1", *MADE_OF))
    assert set(transactions(written(S5), MADE_OF)) == {"t1", "update"}
    assert set(transactions(written(S4), {})) == {"t1", "t2", "update"}


def test_two_updates_that_cross_are_a_cycle_without_any_data() -> None:
    crossed = [
        Update("A", transaction="u1"),
        Update("A", transaction="u2"),
        Update("B", transaction="u2"),
        Update("B", transaction="u1"),
    ]
    found = check(crossed)
    assert [conflict.before for conflict in found.cycle] == ["u1", "u2"]


def test_workers_of_one_operator_are_places_of_their_own() -> None:
    assert check(
        [Data("t1", "A", 0), Update("A", 0), Update("A", 1), Data("t2", "A", 1)]
    ).serialisable
    assert not check(
        [Data("t1", "A", 0), Update("A", 0), Update("A", 1), Data("t1", "A", 1)]
    ).serialisable


def test_where_tuples_carry_versions_these_decide() -> None:
    late = [Update("A"), Update("B"), Data("t1", "A", version=0), Data("t1", "B", version=0)]
    assert check(late).serialisable
    mixed = check(
        [Update("A"), Update("B"), Data("t1", "A", version=0), Data("t1", "B", version=1)]
    )
    assert "A processes t1 with its old function" in str(mixed)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    tuples, operators = st.sampled_from(("t1", "t2", "t3")), st.sampled_from("ABC")
    data = st.builds(Data, tuples, operators)
    updates = draw(st.permutations([Update(operator) for operator in "ABC"]))
    history: list[Operation] = draw(st.lists(data, max_size=8))
    for update in updates:
        history.insert(draw(st.integers(0, len(history))), update)
    return history


def by_definition(history: list[Operation]) -> Verdict | None:
    """With a single update, a serial order exists exactly when no transaction is on both sides
    of it.
    """
    sides: dict[str, set[bool]] = {}
    for place, operation in enumerate(history):
        if isinstance(operation, Data):
            sides.setdefault(operation.tuple, set()).add(
                Update(operation.operator) in history[:place]
            )
    return None if any(len(side) > 1 for side in sides.values()) else Verdict()


@given(histories())
def test_the_checker_agrees_with_the_definition(history: list[Operation]) -> None:
    assert check(history).serialisable is (by_definition(history) is not None)
