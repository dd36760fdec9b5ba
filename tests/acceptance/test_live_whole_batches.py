"""Batches of a real Spark, four tasks of twenty Arrow batches each: a change that fails in the middle
of one puts out none of it, and two functions of one chain change together.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.live.acts import Edit, change
from tests.acceptance import live_functions as functions
from tests.acceptance.living import PATIENCE, Living, by_k, running
from tests.acceptance.test_live import FLOW
from tests.conftest import SEED

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

ROWS, ARROW_ROWS, PARTITIONS = 800, 10, 4
OPTIONS = (
    *("--rows", str(ROWS), "--arrow-rows", str(ARROW_ROWS), "--partitions", str(PARTITIONS)),
    "--keep-running",
)
FAULTS = 25  # for each of two ways to try tasks again: fifty together
REVERT = replace(PATIENCE, on_error="revert", timeout_seconds=120.0, wait_seconds=0.0)


@pytest.mark.row("T-3", "F-17")
@pytest.mark.parametrize("tries", ["1", "4"])
def test_a_change_that_fails_within_a_batch_puts_out_none_of_it(tmp_path: Path, tries: str) -> None:
    chance = random.Random(f"{SEED}:{tries}")
    torn = 0
    with running(tmp_path, "arrow", options=(*OPTIONS, "--tries", tries)) as job:
        for number in range(1, FAULTS + 1):
            torn += fail(job, number, chance)
            if number % 8 == 0:
                job.kill()
                job.start()
                job.until_batches("arrow", 1)
        job.until_batches("arrow", 2)
    outputs = job.outputs("arrow")
    mixed = [batch for batch, rows in outputs.items() if len(by_k(rows)) != 1]
    assert mixed == []
    for batch, rows in outputs.items():
        assert [value for value, _ in rows] == list(range(batch * ROWS, (batch + 1) * ROWS))
    new = sum(by_k(rows) != {0} for rows in outputs.values())
    starts = len((tmp_path / "starts").read_text().splitlines())
    print(
        f"tries {tries}: {FAULTS} faults, {torn} within rows, {starts} starts, {len(outputs)} "
        f"batches, {new} of them new, {len(mixed)} mixed"
    )
    assert new > 0 and torn > 0 and job.holding("arrow") == []


def fail(job: Living, number: int, chance: random.Random) -> bool:
    """Bring in a change that fails at some row of one of the next batches; wait until it is taken
    back and the query has gone on. Return whether it failed behind rows that were put out.
    """
    first = (max(job.batches("arrow")) + chance.randrange(2, 5)) * ROWS
    function = functions.raising_from(number, first, ROWS, chance.randrange(ROWS))
    carried = job.change("arrow", Edit("score", "replace", function, at=0), REVERT).carried
    assert carried is not None and carried.decided is not None
    assert carried.decided.outcome == "applied", carried.decided.reason
    group = job.group("arrow")
    job.wait(lambda: group.reverted(number) is not None, f"change {number} did not fail")
    job.until_batches("arrow", 1)
    reverted = group.reverted(number)
    assert reverted is not None
    return group.claim(reverted.query, reverted.batch, reverted.run, number, False)


@pytest.mark.row("T-1", "F-6", "F-16")
@pytest.mark.parametrize("scheduler", ["epoch", "fries"])
def test_two_functions_of_a_chain_change_together_under_load(
    tmp_path: Path, scheduler: str
) -> None:
    trio = replace(FLOW, operators=(replace(FLOW.operators[1], name="trio"),), edges=())
    asked = {"scheduler": "fries", "dataflow": trio} if scheduler == "fries" else {}
    with running(tmp_path, "trio", options=OPTIONS) as job:
        for number in range(1, 16):
            both = [
                Edit("trio", "replace", functions.first_of_two(number, 0.005), 0),
                Edit("trio", "replace", functions.second_of_two(number), 2),
            ]
            manner = replace(PATIENCE, expect=number - 1, **asked)  # type: ignore[arg-type]
            changed = change(job.location("trio"), both, manner)
            assert changed.carried is not None
            assert changed.carried.state == "finished"
        job.until_batches("trio", 1)
    outputs = job.outputs("trio")
    torn = [(value, k) for rows in outputs.values() for value, k in rows if k // 1000 != k % 1000]
    several = sum(len(by_k(rows)) > 1 for rows in outputs.values())
    rows = sum(map(len, outputs.values()))
    print(
        f"{scheduler}: {rows} rows in {len(outputs)} batches, {several} of them by two versions, "
        f"{len(torn)} rows met both"
    )
    assert torn == []
    assert {k % 1000 for rows in outputs.values() for _, k in rows} == set(range(16))
    assert (several > 0) == (scheduler == "fries")
