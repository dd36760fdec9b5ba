"""A real Flink under four loads: what `stateshift advise` says of each; recorded on the way.

STATESHIFT_RECORD=1 writes what Flink answered to tests/golden/advise.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stateshift.advise.metrics.flink import FlinkJob
from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.storage.opening import SystemClock
from tests.cli.support import said
from tests.support.flink import Cluster, cluster_of, jar, until
from tests.support.servers import group

pytestmark = [
    pytest.mark.servers,
    pytest.mark.slow,
    pytest.mark.row("IF-19", on="Flink"),
    pytest.mark.row("W-11", on="Flink"),
]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "advise"
# Records a second of a source before two subtasks that take two milliseconds over each.
LOADS = {"idle": 20, "fits": 300, "edge": 420, "drowning": 0}  # 0: as many as it can
SAMPLE = 40.0
# A busy machine takes longer over each record, so that the first advice may not suffice.
RESTARTS_MAX = 2
# What came while it was down may take it a while.
LOOKS_MAX = 5


@pytest.fixture(scope="module", params=["flink-a", "flink-1.20"])
def flink(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("flink")
    conf = folder / "more.conf"
    # Small buffers are soon full: only then is a source held back.
    conf.write_text("taskmanager.memory.segment-size: 4kb\n")
    with group(folder, request.param, STATESHIFT_FLINK_CONF=str(conf)) as servers:
        yield cluster_of(servers, request.param)


@dataclass(frozen=True)
class Taking(FlinkCalls):
    """Keeps what Flink answers, by the path that it was asked at."""

    taken: dict[str, Any] = field(default_factory=dict)

    def page(self, id: str) -> dict[str, Any] | None:
        return self._took(f"/jobs/{id}", super().page(id))

    def vertex_page(self, id: str, vertex: str) -> dict[str, Any]:
        return self._took(f"/jobs/{id}/vertices/{vertex}", super().vertex_page(id, vertex))

    def metrics(self, id: str, vertex: str) -> tuple[str, ...]:
        names = super().metrics(id, vertex)
        self._took(f"/jobs/{id}/vertices/{vertex}/metrics", [{"id": name} for name in names])
        return names

    def sums(self, id: str, vertex: str, metrics: Sequence[str]) -> dict[str, float]:
        values = super().sums(id, vertex, metrics)
        path = f"/jobs/{id}/vertices/{vertex}/subtasks/metrics?get={','.join(metrics)}"
        self._took(path, [{"id": name, "sum": value} for name, value in values.items()])
        return values

    def _took(self, path: str, answer: Any) -> Any:
        self.taken[path] = answer
        return answer


def record(flink: Cluster, jobs: Mapping[str, str]) -> None:
    """Write two looks at each job to the golden files."""
    calls = FlinkCalls("flink", flink.url, {"url": flink.url})
    version = calls.version()
    looks: dict[str, list[dict[str, Any]]] = {load: [] for load in jobs}
    for turn in range(2):
        time.sleep(SAMPLE * turn)
        for load, id in jobs.items():
            taking = Taking("flink", flink.url, {"url": flink.url})
            FlinkJob(taking, id, SystemClock()).look()
            looks[load].append(taking.taken)
    for load, id in jobs.items():
        plain = {"version": version, "load": load, "job": id, "looks": looks[load]}
        (GOLDEN / f"flink-{version}-{load}.json").write_text(json.dumps(plain))


def test_each_load_gets_the_verdict_that_it_should(flink: Cluster) -> None:
    jobs = {
        load: flink.run(
            "jobs.Count",
            *("--counters", load, "--keys", "40"),
            *("--per-second", str(rate), "--slow-us", "2000"),
            parallelism=2,
        )
        for load, rate in LOADS.items()
    }
    time.sleep(10)
    if os.environ.get("STATESHIFT_RECORD"):
        record(flink, jobs)
    ran = said(
        *("advise", flink.url, "--sample", f"{SAMPLE}s", "--json"),
        *("--set", "stabilization.interval=0"),
    )
    assert ran.code == 0, ran.err
    told = {each["job"]: each for each in ran.document}
    unknown = [each["reasons"] for each in ran.document if each["verdict"] == "unknown"]
    assert not unknown
    assert told["idle"]["verdict"] == "fits"
    assert told["idle"]["headroom"] > told["fits"]["headroom"] > told["drowning"]["headroom"]
    # Four jobs of two take all of the cluster's eight slots.
    assert told["drowning"]["verdict"] == "move"
    assert told["drowning"]["wanted"] > 2
    assert "does not tell what waits" in "\n".join(told["drowning"]["reasons"])


def advised(flink: Cluster, job: str) -> Any:
    """What `advise` says of a job that has just been started."""
    time.sleep(10)
    ran = said(
        *("advise", flink.url, "--job", job, "--sample", f"{SAMPLE}s", "--json"),
        *("--set", "stabilization.interval=0"),
    )
    assert ran.code == 0, ran.err
    (told,) = ran.document
    print({key: told[key] for key in told if key not in ("inputs", "vertices")}, flush=True)
    return told


def held_back_ms(flink: Cluster, job: str) -> float:
    """For how long the job's source has been held back so far."""
    source = flink.ask(f"/jobs/{job}")["vertices"][0]
    return float(source["metrics"]["accumulated-backpressured-time"])


def test_what_waits_gets_less_once_a_job_runs_as_advised(flink: Cluster, tmp_path: Path) -> None:
    """Its source tells what waits. It is restarted by stateshift."""
    for running in flink.running():
        flink.cancelled(running["jid"])
    since = str(round(time.time() * 1000))
    words = ("--keys", "400", "--per-second", "250", "--slow-us", "5000", "--since-ms", since)
    words = (*words, "--checkpoint-ms", "1000")
    job = flink.run("jobs.Count", *words, parallelism=1)
    until(lambda: held_back_ms(flink, job) > 2000)
    before = advised(flink, job)
    assert (before["verdict"], before["parallelism"]) == ("scale", 1)
    assert before["drain_seconds"] is None
    submit = {
        "jar": str(jar(flink.lib)),
        "entry_class": "jobs.Count",
        "parallelism": before["wanted"],
        "arguments": list(words),
    }
    plain = {
        "version": 1,
        "engine": "flink",
        "clusters": {"here": {"kind": "flink_rest", "url": flink.url, "settle_seconds": 5}},
        "source_cluster": "here",
        "target_cluster": "here",
        "jobs": [
            {
                "name": "orders",
                "job_ids": [job],
                "target_directory": str(tmp_path / "taken"),
                "new_savepoint_path": str(tmp_path / "moved"),
                "submit": submit,
            }
        ],
    }
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(plain))
    applied = said("apply", str(spec), "--yes", "--workdir", str(tmp_path / "run"))
    assert applied.code == 0, applied.err
    (running,) = flink.running()
    told = [before]
    while told[-1]["lag"] >= before["lag"] and len(told) <= LOOKS_MAX:
        told.append(advised(flink, running["jid"]))
        assert told[-1]["parallelism"] == before["wanted"]
    assert told[-1]["lag"] < before["lag"]
    rates = [each["vertices"][-1]["true_rate"] for each in (before, told[1])]
    assert rates[1] > 1.4 * rates[0]


def test_a_job_that_drowns_fits_once_it_runs_as_advised(flink: Cluster, tmp_path: Path) -> None:
    for running in flink.running():
        flink.cancelled(running["jid"])
    # More than one subtask can take, which sleeps for five milliseconds over each; two can, though a
    # busy machine takes almost two milliseconds more.
    words = ("jobs.Count", "--keys", "400", "--per-second", "250", "--slow-us", "5000")
    job = flink.run(*words, parallelism=1)
    # Until the buffers between them are full, neither source nor sink shows that it falls back.
    until(lambda: held_back_ms(flink, job) > 2000)
    told = [advised(flink, job)]
    assert (told[0]["verdict"], told[0]["parallelism"]) == ("scale", 1)
    assert told[0]["headroom"] < 0.05
    # What waits before such a source is not seen: what is advised is the least that it needs.
    while told[-1]["verdict"] == "scale" and len(told) <= RESTARTS_MAX:
        savepoint = flink.stopped(job, tmp_path)
        job = flink.run(*words, parallelism=told[-1]["wanted"], savepoint=savepoint)
        told.append(advised(flink, job))
        assert told[-1]["parallelism"] == told[-2]["wanted"]
    assert told[-1]["verdict"] == "fits"
    assert told[-1]["headroom"] > told[0]["headroom"]
    taken = [each["vertices"][-1]["true_rate"] for each in told]
    assert taken[-1] > 1.4 * taken[0]
