"""Real Flinks under four loads, as their REST API answered (tests/golden/advise, made by
tests/servers/test_advise_flink.py): the decisions are those of the formulas.

In each job a source of 20, 300, 420 and any number of records a second feeds two subtasks that take
two milliseconds over each record. The machine was busy: an edge is where it happened to be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stateshift.advise.evaluate.flink_formulas import decide
from stateshift.advise.evaluate.inputs import Circumstances, FlinkInputs
from stateshift.advise.evaluate.loads import loads_of
from stateshift.advise.evaluate.samples import JobSample, Unusable
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.verdicts import Verdict, verdict_on
from stateshift.advise.metrics.flink import FlinkJob
from stateshift.clusters.flink.calls import FlinkCalls
from tests.advise.reference import reference, told
from tests.clusters.faulty_server import StandIn, serving
from tests.support.ground import Clock

pytestmark = [pytest.mark.row("IF-19", on="Flink"), pytest.mark.row("W-11", on="Flink")]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "advise"
FILES = sorted(GOLDEN.glob("flink-*.json"))
EAGER = Settings(stabilization_interval=0.0)


@dataclass
class Recorded(StandIn):
    """Answers what was answered at a look."""

    looks: list[dict[str, Any]] = field(default_factory=list)
    turn: int = 0

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        whole = f"{path}?get={query['get'][0]}" if "get" in query else path
        answers = self.looks[self.turn]
        return (200, answers[whole]) if whole in answers else (404, {"errors": ["Not found."]})


def samples_of(file: Path) -> tuple[JobSample, ...]:
    """Return the looks of a file, read as those of a cluster."""
    recorded = json.loads(file.read_text())
    flink = Recorded(looks=recorded["looks"])
    samples = []
    with serving(flink):
        job = FlinkJob(FlinkCalls("flink", flink.url), recorded["job"], Clock())
        for turn in range(len(flink.looks)):
            flink.turn = turn
            samples.append(job.look())
    return tuple(samples)


def judged(file: Path) -> Verdict:
    samples = samples_of(file)
    around = Circumstances("job", samples[-1].time, EAGER)
    return verdict_on(FlinkInputs(around, samples))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_decisions_from_recorded_metrics_are_those_of_the_formulas(file: Path) -> None:
    loads = loads_of(samples_of(file), EAGER)
    assert not isinstance(loads, Unusable)
    decisions = decide(loads, EAGER, 300.0)
    assert [told(each) for each in decisions] == reference(list(loads), EAGER, 300.0)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_counters_of_a_look_are_new(file: Path) -> None:
    first, last = samples_of(file)
    for before, after in zip(first.vertices, last.vertices, strict=True):
        apart = [
            (later.clock_ms or 0) - (earlier.clock_ms or 0)
            for earlier, later in zip(before.subtasks, after.subtasks, strict=True)
        ]
        assert min(apart) / 1000 == pytest.approx(last.time - first.time, abs=12)


@pytest.mark.parametrize("version", sorted({file.stem.rpartition("-")[0] for file in FILES}))
def test_each_load_gets_the_verdict_that_it_should(version: str) -> None:
    idle, fits, edge, drowning = (
        judged(GOLDEN / f"{version}-{load}.json") for load in ("idle", "fits", "edge", "drowning")
    )
    assert idle.word == "fits"
    assert idle.headroom is not None
    assert idle.headroom > 0.8
    assert fits.word == "fits"
    assert fits.headroom is not None
    assert 0.1 < fits.headroom < 0.6
    assert edge.headroom is not None
    assert edge.headroom < fits.headroom
    assert drowning.word == "scale"
    assert "does not tell what waits" in "\n".join(drowning.reasons)
    (count,) = drowning.changes.values()
    assert count > 2
