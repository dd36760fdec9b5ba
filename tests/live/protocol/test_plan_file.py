"""Plan files as the published writer makes them, read and written; malformed ones refused line
by line.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.dataflow.move_steps import AllAtOnce, Fluid, Optimised, degree, in_steps
from stateshift.errors import SpecError
from stateshift.live.protocol.configuration import moves_between
from stateshift.live.protocol.plan_file import (
    Changes,
    Line,
    WholeMap,
    decode_plan_file,
    steps_of_plan,
)
from tests.models.plan_writer import as_lines, encode_plan_file

GOLDEN = Path(__file__).parent / "golden"
THIRD = 400_000_000_000
pytestmark = pytest.mark.row("M-25")


def _golden(name: str) -> str:
    return (GOLDEN / f"{name}-64-bins-8-workers").read_text()


@pytest.mark.parametrize("name", ["sudden", "fluid", "batched"])
def test_a_published_file_is_rewritten_byte_for_byte(name: str) -> None:
    text = _golden(name)
    assert encode_plan_file(decode_plan_file(text, bins=64, workers=8)) == text


@pytest.mark.parametrize(
    ("name", "steps"),
    [("sudden", AllAtOnce()), ("fluid", Fluid()), ("batched", Optimised())],
    ids=str,
)
def test_what_a_published_file_says_is_what_our_strategy_does_in_as_many_steps(
    name: str, steps: Optimised
) -> None:
    """There and back again: a quarter of the bins, to half of the workers."""
    configuration, found = steps_of_plan(decode_plan_file(_golden(name)), workers=8)
    there = [step for time, step in found if time == THIRD]
    before = list(configuration.at(0))
    after = [*before]
    for move in (move for step in there for move in step):
        after[move.bin] = move.target
    wanted = moves_between(before, after)
    assert len(wanted) == 16
    assert (
        len(there)
        == len(in_steps(steps, wanted))
        == {"sudden": 1, "fluid": 16, "batched": degree(wanted)}[name]
    )
    assert sorted(move for step in there for move in step) == sorted(wanted)
    if name != "batched":  # a matching may be another one
        assert tuple(there) == in_steps(steps, wanted)
    assert {move.bin for time, step in found if time == 2 * THIRD for move in step} == {
        move.bin for move in wanted
    }


@st.composite
def plans(draw: st.DrawFn) -> tuple[Line, ...]:
    bins, times = (
        1 << draw(st.integers(0, 4)),
        sorted(draw(st.lists(st.integers(0, 1 << 40), min_size=1))),
    )
    workers = st.integers(0, 99)
    whole = st.tuples(*[workers] * bins)
    pairs = st.dictionaries(st.integers(0, bins - 1), workers, min_size=1).map(
        lambda pairs: tuple(pairs.items())
    )
    lines: list[Line] = [WholeMap(times[0], draw(whole))]
    for time in times[1:]:
        changed = st.builds(Changes, st.just(time), pairs)
        lines.append(draw(st.one_of(st.builds(WholeMap, st.just(time), whole), changed)))
    return tuple(lines)


@given(plans())
@settings(deadline=None)
def test_a_plan_comes_back_from_its_file_as_it_was(lines: tuple[Line, ...]) -> None:
    assert decode_plan_file(encode_plan_file(lines)) == lines


def test_steps_of_ours_are_a_plan_that_does_the_same() -> None:
    before, after = (0, 0, 1, 1), (1, 0, 0, 1)
    steps = in_steps(Fluid(), moves_between(before, after))
    text = encode_plan_file(as_lines(before, 0, steps, 7))
    assert text == "M 0 0 0 1 1 \nD 7 0 1 \nD 7 2 0 \n"
    configuration, found = steps_of_plan(decode_plan_file(text), 2)
    assert (configuration.at(0), [step for _, step in found]) == (before, list(steps))


def test_a_line_that_changes_nothing_is_no_step() -> None:
    assert steps_of_plan(decode_plan_file("M 0 0 1\nM 5 0 1\nD 6 0 0\nM 7 1 1"), 2)[1] == (
        (7, ((0, 0, 1),)),
    )


MALFORMED = """\
M 0 0 1 0
X 1 2 3
M 5 0 1 0 1

D 4 0 1
D 6 0
D 7 9 1 0 9
D 8 0 1 0 0
M 9 0 1
D
D -1 0 1
D 10 0 0x1
M 99999999999999999999 0 0 0 0
D 11"""


def test_everything_wrong_with_a_file_is_told_at_once_by_line() -> None:
    with pytest.raises(SpecError) as refused:
        decode_plan_file(MALFORMED, bins=4, workers=2)
    assert [(complaint.pointer, complaint.message) for complaint in refused.value.complaints] == [
        ("line 1", "3 bins are no power of two: take 2 or 4"),
        ("line 2", "'X' begins no line"),
        ("line 4", "a line with nothing in it"),
        ("line 5", "time runs backwards, from 5 to 4"),
        ("line 6", "a bin without its worker"),
        ("line 7", "there is no bin 9 among 4"),
        ("line 7", "there is no worker 9 among 2"),
        ("line 8", "bin 0 goes 2 ways in one line"),
        ("line 9", "workers for 2 bins, but there are 4"),
        ("line 10", "a line without a time"),
        ("line 11", "'-1' is no number from 0 on"),
        ("line 12", "'0x1' is no number from 0 on"),
        ("line 13", "'99999999999999999999' is no number from 0 on"),
        ("line 14", "no bin and no worker"),
    ]
    assert "D time bin worker" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("text", "told"), [("", "no plan"), ("D 0 0 1", "before the line"), ("\0", "begins no line")]
)
def test_a_file_that_is_none_is_refused_on_line_1(text: str, told: str) -> None:
    with pytest.raises(SpecError, match="line 1: ") as refused:
        decode_plan_file(text)
    assert told in str(refused.value)


@given(st.text(alphabet="MD 0123456789\n-x", max_size=60))
@settings(deadline=None)
def test_whatever_is_in_a_file_it_is_a_plan_or_refused(text: str) -> None:
    try:
        lines = decode_plan_file(text)
    except SpecError as refused:
        assert refused.complaints
        assert all(complaint.pointer.startswith("line ") for complaint in refused.complaints)
    else:
        assert decode_plan_file(encode_plan_file(lines)) == lines
