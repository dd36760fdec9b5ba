"""Functions of a real job are replaced, introduced, removed and reverted while it runs.

A batch's output says which version it ran: rows have the k of the function that they met. The
group's folder says which version it was sealed with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import live
from stateshift.errors import Incompatible
from stateshift.live.acts import Edit
from stateshift.specification.dataflow.operators import Dataflow, DataflowOperator, Edge
from tests.acceptance import live_functions as functions
from tests.acceptance.living import PATIENCE, Living, by_k, running

pytestmark = pytest.mark.spark

FLOW = Dataflow(
    (DataflowOperator("read"), DataflowOperator("score"), DataflowOperator("write")),
    (Edge("read", "score"), Edge("score", "write")),
)
FRIES = replace(PATIENCE, scheduler="fries", dataflow=FLOW)
SLOW_SECONDS = 0.15  # of each Arrow batch: ten of them make a long batch of Spark's


@pytest.mark.row("T-1", "T-2", "T-11")
def test_a_replaced_function_runs_in_all_batches_from_its_seal_on(tmp_path: Path) -> None:
    with running(tmp_path, "arrow") as job:
        carried = job.change("arrow", replacing(1), gives=1).carried
        assert carried is not None
        assert (carried.state, carried.running) == ("finished", carried.workers)
        job.until_batches("arrow", 2)
    assert_as_sealed(job)
    assert {0, 1} == by_k(all_rows(job)), "both versions have run"


# ------------------------------------------------------------------------- one job for all of these


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    with running(tmp_path_factory.mktemp("live"), "arrow", "pandas", "batch") as job:
        yield job


@pytest.mark.slow
@pytest.mark.row("T-1", "T-10", "T-18")
def test_a_filter_is_introduced_and_removed(job: Living) -> None:
    introduced = job.change("arrow", Edit("score", "introduce", functions.even)).carried
    assert introduced is not None and introduced.state == "finished"
    with_filter = job.until_batches("arrow", 2)
    removed = job.change("arrow", Edit("score", "remove", at=0)).carried
    assert removed is not None and removed.state == "finished"
    last = job.until_batches("arrow", 2)
    outputs = job.outputs("arrow")
    assert len(outputs[with_filter]) * 2 == len(outputs[last]) == ROWS
    job.gives |= {introduced.change.number: 0, removed.change.number: 0}


@pytest.mark.slow
@pytest.mark.row("F-16")
def test_a_message_changes_a_function_inside_a_batch(job: Living) -> None:
    slow = functions.giving(1, SLOW_SECONDS)
    job.change("arrow", replacing_by(slow), gives=1)
    job.until_batches("arrow", 2)
    changed = job.change("arrow", replacing_by(functions.giving(2, SLOW_SECONDS)), FRIES, gives=2)
    assert changed.checked.choice.scheduler == "fries"
    job.change("arrow", replacing(3), FRIES, gives=3)
    job.until_batches("arrow", 2)
    outputs = job.outputs("arrow")
    both = [number for number, rows in outputs.items() if len(by_k(rows)) > 1]
    assert both, "some batch has met the old and the new function"
    for number in both:
        for part in halves(outputs[number]):
            ks = [k for _, k in part]
            assert ks == sorted(ks), "who has changed does not go back"


@pytest.mark.slow
@pytest.mark.row("T-10")
def test_a_function_of_the_wrong_type_is_refused_and_the_job_goes_on(job: Living) -> None:
    before = len(list((Path(job.location("arrow")) / "changes").glob("*")))
    with pytest.raises(Incompatible, match="column k is string, expected is int64"):
        job.change("arrow", replacing_by(functions.of_wrong_type))
    assert len(list((Path(job.location("arrow")) / "changes").glob("*"))) == before
    job.until_batches("arrow", 1)


@pytest.mark.slow
@pytest.mark.row("T-3")
def test_a_function_that_raises_takes_itself_back(job: Living) -> None:
    start = replacing(4)
    job.change("arrow", start, gives=4)
    manner = replace(PATIENCE, on_error="revert")
    changed = job.change("arrow", replacing_by(functions.raising), manner)
    assert changed.carried is not None
    number = changed.carried.change.number
    last = job.until_batches("arrow", 2)
    reverted = job.group("arrow").reverted(number)
    assert reverted is not None and "the model is not there" in reverted.error
    assert job.seals("arrow")[last] >= number and by_k(job.outputs("arrow")[last]) == {4}


@pytest.mark.slow
def test_a_chain_is_reverted_to_an_earlier_version(job: Living) -> None:
    version = job.change("arrow", replacing(5), gives=5).carried
    job.change("arrow", replacing(6), gives=6)
    assert version is not None
    back = Edit("score", "revert", to=version.change.number)
    job.change("arrow", back, gives=5)
    last = job.until_batches("arrow", 2)
    assert by_k(job.outputs("arrow")[last]) == {5}


@pytest.mark.slow
def test_functions_of_pandas_are_replaced(job: Living) -> None:
    edit = Edit("clean", "replace", functions.giving_in_pandas(1))
    carried = job.change("pandas", edit, gives=1).carried
    assert carried is not None and carried.state == "finished"
    job.until_batches("pandas", 2)
    assert_as_sealed(job, "pandas")
    assert by_k(all_rows(job, "pandas")) == {0, 1}


@pytest.mark.slow
@pytest.mark.row("F-1")
def test_the_state_of_a_function_is_transformed_with_it(job: Living) -> None:
    keep_five = live.stateful("last", initial=[])(functions.last_five)
    edit = Edit("write", "replace", keep_five, at=0, state=functions.with_two_more)
    job.until_batches("batch", 3)
    carried = job.change("batch", edit).carried
    assert carried is not None and carried.state == "finished"
    job.until_batches("batch", 1)
    states = [runs[0] for _, runs in sorted(job.runs("batch").items())]
    first = next(number for number, state in enumerate(states) if len(state) == 5)
    before = states[first - 1]
    assert len(before) == 3
    assert states[first][:4] == [-1, *before], "what was kept is there, and what came with it"


@pytest.mark.slow
@pytest.mark.row("F-17")
def test_a_restart_runs_a_batch_again_with_the_version_that_it_was_sealed_with(
    tmp_path: Path,
) -> None:
    with running(tmp_path, "arrow") as job:
        job.change("arrow", replacing_by(functions.giving(1, SLOW_SECONDS)), gives=1)
        job.until_batches("arrow", 1)
        job.change("arrow", replacing_by(functions.giving(2, SLOW_SECONDS)), gives=2)
        killed = torn(job)
        assert killed not in job.batches("arrow")
        job.start()
        job.until_batches("arrow", 2)
        job.change("arrow", replacing(3), gives=3)
        job.until_batches("arrow", 1)
    assert_as_sealed(job)
    assert job.seals("arrow")[killed] == 2 == min(by_k(job.outputs("arrow")[killed]))


def torn(job: Living) -> int:
    """Kill the job while a batch is under way, and return its number."""
    offsets = job.folder / "arrow" / "checkpoint" / "offsets"
    last = max(job.batches("arrow"))
    job.wait(lambda: (offsets / str(last + 1)).exists() and (last + 1) in job.seals("arrow"), "")
    time.sleep(SLOW_SECONDS)
    job.kill()
    return max(job.seals("arrow"))


# ------------------------------------------------------------------------------------ what is held

ROWS = 200  # of a batch


def replacing(k: int) -> Edit:
    return replacing_by(functions.giving(k))


def replacing_by(function: object) -> Edit:
    return Edit("score", "replace", function, at=0)  # type: ignore[arg-type]


def all_rows(job: Living, kind: str = "arrow") -> list[list[int]]:
    return [row for rows in job.outputs(kind).values() for row in rows]


def assert_as_sealed(job: Living, kind: str = "arrow") -> None:
    """Every batch has all of its rows, and each the k that the batch's seal asks for."""
    expected = job.expected_ks(kind)
    for number, rows in job.outputs(kind).items():
        values = range(number * ROWS, (number + 1) * ROWS)
        assert rows == [[value, expected[number]] for value in values], f"batch {number}"


def halves(rows: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """The rows of each partition: the source deals numbers out in turn."""
    return rows[::2], rows[1::2]
