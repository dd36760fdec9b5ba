"""Four jobs of one real Flink are spread over two by `stateshift rebalance --once --yes`, run again
and again as cron would; then nothing moves any more. What comes out is what unmoved jobs would have
written, record for record.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import ROOT, stateshift
from tests.advise.rebalance.clusters import uneven
from tests.servers.flink_ground import Ground
from tests.support.flink import until
from tests.support.servers import Servers, group

pytestmark = [
    pytest.mark.servers,
    pytest.mark.row("IF-19", on="Flink"),
    pytest.mark.row("W-12", on="Flink"),
]
# Records a second of jobs that take ten milliseconds over each: their loads are 0.68, 0.53, 0.37
# and 0.21 of a slot, and more on a busy machine. Two and two of them are even.
RATES = {"fraud": 65, "orders": 50, "payments": 35, "audit": 20}
SLOTS = 4
TRIGGER = 1.1
ALL_ON_ONE = 2.0  # of two clusters: as uneven as they can be
# Flink's counters are up to ten seconds old: looks that are closer see nothing new.
PAUSE, SAMPLE = 16.0, "15s"  # a run counts once a sample lies behind the last one


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Two session clusters of four slots, which four jobs fill."""
    folder = tmp_path_factory.mktemp("flinks")
    conf = folder / "more.conf"
    conf.write_text(f"taskmanager.numberOfTaskSlots: {SLOTS}\n")
    with group(folder, "flink-a", "flink-b", STATESHIFT_FLINK_CONF=str(conf)) as servers:
        yield servers


@dataclass
class Fleet:
    """Jobs on two clusters, and what each run of cron has said."""

    ground: Ground
    said: list[Any] = field(default_factory=list)

    def start(self) -> None:
        """All jobs begin on the first cluster; the other one has run a job before: a new JVM takes
        several times as long.
        """
        there = self.ground.there
        there.cancelled(there.run("jobs.Count", "--name", "warm-up", parallelism=1))
        for name, rate in RATES.items():
            self.ground.here.run("jobs.Count", *self._arguments(name, rate), parallelism=1)
        until(lambda: all(self.ground.written(name) for name in RATES))

    def _arguments(self, name: str, rate: int) -> list[str]:
        load = ["--per-second", str(rate), "--slow-us", "10000"]
        return [*self.ground.arguments(name), *load]

    def spec(self, **rebalance: Any) -> Path:
        folder = self.ground.folder
        submit = self.ground.submit("", parallelism=1)
        jobs = [
            {
                "name": name,
                "source_cluster": "west",
                "target_directory": str(folder / "taken"),
                "submit": submit | {"arguments": self._arguments(name, rate)},
            }
            for name, rate in RATES.items()
        ]
        clusters = {
            name: {"kind": "flink_rest", "url": cluster.url, "settle_seconds": 5}
            for name, cluster in zip(("west", "east"), self.ground.clusters, strict=True)
        }
        images = {name: {"images": str(folder / name / "{job}" / "{move}")} for name in clusters}
        plain = {
            "version": 1,
            "engine": "flink",
            "clusters": clusters,
            "jobs": jobs,
            "rebalance": {"clusters": images, **rebalance},
        }
        path = folder / "spec.json"
        path.write_text(json.dumps(plain))
        return path

    def run(self, spec: Path, *words: str, code: int = 0) -> Any:
        """One run, as a line of a crontab has it."""
        ran = stateshift(
            *("rebalance", spec, "--once", "--json", "--sample", SAMPLE),
            *("--set", "stabilization.interval=0"),
            *("--workdir", self.ground.folder / "rebalance"),
            *words,
            cwd=ROOT,
            code=code,
        )
        self.said.append(ran.json)
        return ran.json

    def cron(self, spec: Path, times: int, until_even: bool = False) -> list[Any]:
        """Run so many times, with a pause before each; or until the clusters are even."""
        begun = len(self.said)
        for _ in range(times):
            time.sleep(PAUSE)
            if uneven(self.run(spec, "--yes")) < TRIGGER and until_even:
                break
        return self.said[begun:]

    def homes(self) -> dict[str, str]:
        """Where each job runs, as the clusters themselves tell."""
        names = zip(("west", "east"), self.ground.clusters, strict=True)
        found = [(job["name"], name) for name, cluster in names for job in cluster.running()]
        assert len(found) == len(dict(found)), f"a job runs twice: {found}"
        return dict(found)


@pytest.fixture
def fleet(small: Servers, tmp_path: Path) -> Iterator[Fleet]:
    ground = Ground(small, tmp_path)
    yield Fleet(ground)
    ground.cleared()


def moved(runs: list[Any]) -> list[Any]:
    return [move for run in runs for move in run["moves"]]


def are_as_told(moves: list[Any]) -> bool:
    """Whether jobs were down as long as was told, within a factor of two: all together, since one
    move of a few seconds varies by three on a busy machine.
    """
    print([(move["job"], move["downtime_seconds"], move["was_down_seconds"]) for move in moves])
    told = sum(move["downtime_seconds"] for move in moves)
    return 0.5 <= sum(move["was_down_seconds"] for move in moves) / told <= 2


@pytest.mark.slow
def test_jobs_are_spread_after_two_acting_runs_and_then_stay(fleet: Fleet) -> None:
    fleet.start()
    spec = fleet.spec()
    runs = fleet.cron(spec, 8, until_even=True)
    assert runs[0]["moves"] == [] and "1 of the 2 runs" in runs[0]["reason"]
    acting = [run for run in runs if run["moves"]]
    assert len(acting) <= 2 and uneven(runs[-1]) < TRIGGER
    assert {move["state"] for move in moved(runs)} == {"finished"}
    homes = fleet.homes()
    assert set(homes) == set(RATES)
    later = fleet.cron(spec, 10)
    assert moved(later) == []
    assert max(map(uneven, later)) < TRIGGER, "no cluster is above what triggers"
    assert fleet.homes() == homes
    emptied = fleet.run(spec, "--drain", "east", "--yes")
    assert set(fleet.homes().values()) == {"west"}
    # Nobody had measured a move before the first one: by the plan, it takes half a minute.
    assert are_as_told([*moved(runs)[1:], *emptied["moves"]])
    fleet.ground.goes_on(*RATES)


@pytest.mark.slow
def test_a_dry_run_moves_nothing_and_says_what_would_be_moved(fleet: Fleet) -> None:
    fleet.start()
    planned = fleet.run(fleet.spec(runs=1, moves_max=2))
    # What a restart costs was measured of none: the second move is worth it, or is not.
    assert 1 <= len(planned["moves"]) <= 2
    assert {move["state"] for move in planned["moves"]} == {"planned"}
    assert uneven(planned) < ALL_ON_ONE
    assert set(fleet.homes().values()) == {"west"}
    fleet.ground.goes_on(*RATES)


@pytest.mark.slow
@pytest.mark.row("W-27", on="Flink")
def test_a_drain_says_that_a_cluster_is_empty_only_where_it_is(fleet: Fleet) -> None:
    fleet.start()
    pinned = fleet.spec(pinned=["audit"])
    (held,) = fleet.run(pinned, "--drain", "west", code=4)["drained"]
    assert {each["job"] for each in held["jobs"]} == set(RATES)
    (held,) = fleet.run(pinned, "--drain", "west", "--yes", "--wait", code=4)["drained"]
    assert (held["jobs"], held["others"]) == ([{"job": "audit", "reason": "it is pinned"}], [])
    stray = fleet.ground.here.run("jobs.Count", "--name", "stray", parallelism=1)
    time.sleep(PAUSE)
    (held,) = fleet.run(fleet.spec(), "--drain", "west", "--yes", code=4)["drained"]
    assert (held["jobs"], held["others"]) == ([], ["stray"])
    fleet.ground.here.cancelled(stray)
    assert fleet.run(fleet.spec(), "--drain", "west", "--yes")["drained"][0]["empty"]
    assert set(fleet.homes().values()) == {"east"}
    time.sleep(PAUSE)
    later = fleet.cron(fleet.spec(runs=1, load_max=0.99), 2)
    assert moved(later) == []
    assert [each["cluster"] for each in later[-1]["cordoned"]] == ["west"]
    assert fleet.run(fleet.spec(), "--uncordon", "west")["cordoned"] == []
    fleet.ground.goes_on(*RATES)
