"""One run keeps the standbys of several jobs: what befalls one of them does not end the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.api.failovers import standby_at
from stateshift.errors import StorageError
from stateshift.migration import waves
from stateshift.standby.location import failover_spec
from stateshift.storage.protocol import Storage
from tests.support.checkpoints import put
from tests.support.several import SeveralJobs, here, there


@pytest.fixture
def ground(tmp_path: Path) -> SeveralJobs:
    return SeveralJobs(tmp_path, ("orders", "totals"))


class Failing:
    """A storage on which some calls fail."""

    def __init__(self, storage: Storage, *names: str) -> None:
        self._storage, self._names = storage, names

    def __getattr__(self, name: str) -> object:
        if name not in self._names:
            return getattr(self._storage, name)

        def refuse(*arguments: object) -> None:
            where = self._storage.location
            raise StorageError(f"{where}: no space left", location=where)

        return refuse


@pytest.mark.row("W-21", "W-22")
def test_all_standbys_of_a_spec_are_fed(ground: SeveralJobs) -> None:
    """They are one wave, the last: another wave would wait for its end for ever."""
    assert [[job.name for job in wave] for wave in waves(ground.spec())] == [["orders", "totals"]]
    in_two = ground.spec(waves=[["totals"], ["orders"]])
    assert len(waves(in_two)) == 1
    ground.feed()
    assert (ground.kept("orders"), ground.kept("totals")) == ([2], [2])
    ground.batch("orders", "totals")
    ground.feed(200)
    assert (ground.kept("orders"), ground.kept("totals")) == ([3, 2], [3, 2])


@pytest.mark.row("W-22")
@pytest.mark.parametrize("fault", ["cannot be read", "is damaged", "target is full"])
def test_a_round_that_fails_keeps_the_other_standby_going(ground: SeveralJobs, fault: str) -> None:
    ground.feed()
    ground.batch("orders", "totals")
    broken = "state/0/0/4.delta"
    content = ground.disk.open(here("orders")).read(broken)
    match fault:
        case "cannot be read":
            ground.wrap = lambda storage: (
                Failing(storage, "chunks") if storage.location == here("orders") else storage
            )  # type: ignore[assignment, return-value]
        case "is damaged":
            put(ground.disk.open(here("orders")), broken, b"\0" * 10)
        case "target is full":
            ground.wrap = lambda storage: (
                Failing(storage, "write", "create")
                if storage.location == there("orders")
                else storage
            )  # type: ignore[assignment, return-value]
    ground.feed(400)
    assert ground.kept("totals") == [3, 2]
    assert ground.kept("orders") == [2]
    ground.batch("totals")
    ground.feed(400)
    assert ground.kept("totals") == [4, 3] and ground.kept("orders") == [2]
    lost = [line for line in ground.said if line.startswith("orders: its source cannot be")]
    assert 1 <= len(lost) <= 4, lost
    assert not any(line.startswith("totals: its source cannot be") for line in ground.said)
    ground.wrap = lambda storage: storage
    put(ground.disk.open(here("orders")), broken, content)
    ground.batch("orders")
    ground.feed(800)
    assert ground.kept("orders")[0] == 4


@pytest.mark.row("W-22")
def test_where_no_standby_can_be_written_the_run_ends(ground: SeveralJobs) -> None:
    ground.feed()
    ground.batch("orders", "totals")
    ground.wrap = lambda storage: (
        Failing(storage, "write", "create") if "/there/" in storage.location else storage
    )  # type: ignore[assignment, return-value]
    ground.looks = 400
    with pytest.raises(StorageError, match="no space left"):
        ground.resume()


@pytest.mark.row("W-22")
def test_one_is_taken_over_and_the_other_is_fed_on(ground: SeveralJobs) -> None:
    def take_over() -> None:
        found = standby_at(there("orders"), ground.adapters)
        ground.looks = 10**6
        ground.apply(failover_spec(found, primary_is_down=True), "failover")
        ground.batch("totals")
        ground.looks = 300

    ground.acts[100] = take_over
    ground.feed(200)
    assert ground.started == {"orders": 2}
    assert ground.kept("totals") == [3, 2]
    ground.batch("totals")
    ground.feed(300)
    assert ground.kept("totals") == [4, 3]
    assert any("orders is followed no longer" in line for line in ground.said)
    assert ground.cluster.stops == []
