"""`stateshift advise` on a stand-in of Flink: what it says, keeps and makes of what is missing."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.advise import advising
from stateshift.advise.advising import Observation
from stateshift.advise.evaluate.inputs import inputs_from
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.verdicts import verdict_on
from stateshift.api.rebalancing.past import restart_times
from tests.advise.making import sample, vertex
from tests.advise.measured_flink import BEGAN, Measured, MeasuredFlink, Part
from tests.cli.support import Outside, Said
from tests.clusters import fake_flink_yarn, fake_kubernetes
from tests.clusters.faulty_server import serving

pytestmark = pytest.mark.row("IF-19", "W-11", on="Flink")

ORDERS = Measured(
    "orders",
    [
        Part("read", 1000, 0.1, parallelism=2, lag=60_000, lag_rate=200, partitions=8),
        Part("count", 1000, 1.0, inputs=("read",)),
    ],
)
CALM = Measured(
    "calm",
    [Part("read", 500, 0.1, parallelism=1, lag=0), Part("count", 500, 0.6, inputs=("read",))],
)


@dataclass
class FlinkGround(Outside):
    """A Flink, and the command before it."""

    flink: MeasuredFlink = field(default_factory=MeasuredFlink)

    def advise(self, *argv: str, given: str | None = "") -> Said:
        self.clock = self.flink.clock
        place = self.flink.url if given == "" else given
        arguments = [] if place is None else [place]
        return self.run("advise", *arguments, *argv, "--workdirs", str(self.folder))

    def document(self, *argv: str) -> Any:
        ran = self.advise(*argv, "--json")
        assert ran.code == 0, ran.err
        return ran.document

    def only(self, *argv: str) -> Any:
        (told,) = self.document(*argv)
        return told

    def spec(self, clusters: Any = None, **job: Any) -> str:
        path = self.folder / "spec.json"
        plain = {
            "version": 1,
            "engine": "flink",
            "clusters": clusters or {"a": {"kind": "flink_rest", "url": self.flink.url}},
            "jobs": [
                {
                    "name": "orders",
                    "checkpoint_location": "/data/orders",
                    "remote_location": "/data/moved",
                    "source_cluster": "a",
                    **job,
                }
            ],
        }
        path.write_text(json.dumps(plain))
        return str(path)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[FlinkGround]:
    flink = MeasuredFlink(jobs=[replace(ORDERS), replace(CALM)])
    with serving(flink):
        yield FlinkGround(tmp_path, flink=flink)


def test_each_job_that_runs_gets_a_verdict_with_its_reasons(ground: FlinkGround) -> None:
    ran = ground.advise()
    assert ran.code == 0, ran.err
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[:3] == [
        "job verdict now advised headroom waits",
        "orders scale 4 8 -20% 72,000",
        "calm fits 4 4 40% 0",
    ]
    assert "orders: scale to 8" in lines
    assert "count: 4 -> 8: it can take 1,000 records/s and needs at least 1,240" in lines
    assert "72,000 records wait, +200 a second: never drained at today's capacity" in lines
    assert "a restart takes 5 min 00 s (assumed: nothing has measured it)" in lines


def test_the_document_holds_the_verdict_and_what_it_was_made_from(ground: FlinkGround) -> None:
    orders, calm = ground.document()
    assert (orders["verdict"], orders["parallelism"], orders["wanted"]) == ("scale", 4, 8)
    assert calm["headroom"] == pytest.approx(0.4, abs=0.01)
    inputs = inputs_from(orders["inputs"])
    assert verdict_on(inputs).word == "scale"
    assert len(inputs.samples) == 2


def test_a_verdict_is_made_again_from_a_file(ground: FlinkGround) -> None:
    before = ground.document()
    file = ground.folder / "advice.json"
    file.write_text(json.dumps(before))
    ground.flink.asked.clear()
    ran = ground.advise("--replay", str(file), "--json", given=None)
    assert ran.document == before
    assert ground.flink.asked == []


def test_a_file_that_was_changed_gets_another_verdict(ground: FlinkGround) -> None:
    told = ground.only("--job", "orders")
    told["inputs"]["around"]["settings"]["vertex_max_parallelism"] = 5
    file = ground.folder / "advice.json"
    file.write_text(json.dumps(told))
    (again,) = ground.advise("--replay", str(file), "--json", given=None).document
    assert again["wanted"] == 5
    assert "bounded by 5 vertex.max-parallelism" in "\n".join(again["reasons"])


@pytest.mark.parametrize("text", ["", "[]x", '{"inputs": {"engine": "storm"}}', '[{"job": "a"}]'])
def test_a_file_without_inputs_is_refused(ground: FlinkGround, text: str) -> None:
    file = ground.folder / "advice.json"
    file.write_text(text)
    ran = ground.advise("--replay", str(file), given=None)
    assert ran.code == 2
    assert "no verdict with its inputs" in ran.err


def test_a_job_on_yarn_is_measured_at_its_own_jobmanager(ground: FlinkGround) -> None:
    with fake_flink_yarn.serving() as server:
        server.begin("application_1796022664147_0900", "other")
        server.begin("application_1796022664147_0901", "Flink Application Cluster")
        app = server.applications["application_1796022664147_0901"]
        app["amRPCAddress"] = ground.flink.url.partition("://")[2]
        clusters = {"a": {"kind": "flink_yarn", "url": server.url, "outage_seconds": 0.3}}
        (told,) = ground.advise("--json", given=ground.spec(clusters=clusters)).document
        assert (told["job"], told["verdict"], told["wanted"]) == ("orders", "scale", 8)
        app.update({"state": "FINISHED", "finalStatus": "SUCCEEDED"})
        (told,) = ground.advise("--json", given=ground.spec(clusters=clusters)).document
        assert told["verdict"] == "unknown" and "0 jobs of the id or name" in str(told["reasons"])
    assert not (ground.folder / "clusters").exists(), "it only looks"


def test_a_job_of_the_operator_is_measured_at_its_own_jobmanager(ground: FlinkGround) -> None:
    with fake_kubernetes.serving() as server:
        resource = server.deploy("shop-orders")
        ground.flink.jobs[0].id = resource["status"]["jobStatus"]["jobId"]
        options = {"kubeconfig": server.kubeconfig(ground.folder), "rest_url": ground.flink.url}
        clusters = {"a": {"kind": "flink_operator", **options}}
        stop = {"resource": "shop-orders"}
        spec = ground.spec(clusters=clusters, stop=stop)
        (told,) = ground.advise("--json", given=spec).document
        assert (told["job"], told["verdict"], told["wanted"]) == ("orders", "scale", 8)
        missing = ground.spec(clusters=clusters, stop={"resource": "payments"})
        (told,) = ground.advise("--json", given=missing).document
        assert told["verdict"] == "unknown" and "payments is not there" in str(told["reasons"])


def test_one_job_is_named_by_its_name_or_its_id(ground: FlinkGround) -> None:
    assert ground.only("--job", "calm")["job"] == "calm"
    assert ground.only("--job", ground.flink.jobs[1].id)["job"] == "calm"
    missing = ground.only("--job", "payments")
    assert (missing["job"], missing["verdict"]) == ("payments", "unknown")


def test_a_spec_says_where_a_job_runs_and_under_which_name(ground: FlinkGround) -> None:
    assert ground.advise("--json", given=ground.spec()).document[0]["verdict"] == "scale"
    other = ground.spec(stop={"job_name": "calm"})
    (told,) = ground.advise("--json", given=other).document
    assert (told["job"], told["verdict"]) == ("orders", "fits")
    ran = ground.advise("--job", "order", given=other)
    assert ran.code == 2
    assert "did you mean" in ran.err


def test_every_formula_is_shown_with_its_numbers(ground: FlinkGround) -> None:
    out = ground.advise("--job", "orders", "--explain").out
    for line in (
        "lambda   = max(0, input rate 1,000 + lag rate 200) = 1,200",
        "catchup  = lag 72,000 / catch-up.duration 1,800 s = 40",
        "TPR      = input rate 1,000 / busy 100.0% (MAX of subtasks) = 1,000",
        "up       = catchup 40 + lambda 1,200 / 1 = 1,240",
        "p'       = ceil(1.954 * 4) = 8, aligned (BALANCED) -> 8",
        "TPR is below: too little",
        "lambda   = of read by its output ratio = 1,200",
    ):
        assert line in out


def test_settings_are_those_of_the_operator(ground: FlinkGround) -> None:
    lenient = ("--set", "utilization.max=2", "--set", "job.autoscaler.utilization.target=1.5")
    assert ground.only("--job", "orders", *lenient)["verdict"] == "fits"
    ran = ground.advise("--set", "utilization.targte=1")
    assert ran.code == 2
    assert "utilization.target" in ran.err
    assert ground.advise("--set", "utilization.target").code == 2


def test_a_price_is_told_where_one_is_given(ground: FlinkGround) -> None:
    told = ground.only("--job", "orders", "--set", "cost-per-hour=0.5")
    assert (told["cost_per_hour"], told["cost_per_hour_wanted"]) == (2.0, 4.0)


# ---------------------------------------------------------------------------------- by cron


def test_the_first_run_waits_and_the_next_measures_from_it_on(ground: FlinkGround) -> None:
    history = str(ground.folder / "history")
    assert ground.only("--job", "orders", "--history", history)["verdict"] == "scale"
    assert ground.flink.clock.time == pytest.approx(BEGAN + 60, abs=5)
    ground.flink.clock.time += 600
    before = ground.flink.clock.time
    again = ground.only("--job", "orders", "--history", history)
    assert again["verdict"] == "scale"
    assert ground.flink.clock.time == before
    (file,) = (ground.folder / "history").iterdir()
    assert len(file.read_text().splitlines()) == 3


def test_fewer_are_advised_an_hour_later(ground: FlinkGround) -> None:
    ground.flink.jobs = [
        Measured("big", [Part("read", 1000, 0.1, parallelism=10, lag=0)], runs_for=7200)
    ]
    words = []
    for _ in range(8):
        words.append(ground.only("--history", str(ground.folder / "history")))
        ground.flink.clock.time += 600
    assert [told["verdict"] for told in words] == ["fits"] * 6 + ["scale"] * 2
    assert words[-1]["wanted"] == 4


def test_samples_of_before_a_restart_are_void(ground: FlinkGround) -> None:
    history = str(ground.folder / "history")
    ground.only("--job", "orders", "--history", history)
    ground.flink.clock.time += 600
    job = ground.flink.jobs[0]
    ground.flink.jobs[0] = replace(job, runs_for=BEGAN + 100 - ground.flink.clock.time)
    told = ground.only("--job", "orders", "--history", history)
    assert told["verdict"] == "unknown"
    assert "the job runs for 100 s" in told["reasons"][0]


def test_a_history_that_is_damaged_is_made_anew(ground: FlinkGround) -> None:
    history = ground.folder / "history"
    ground.only("--job", "orders", "--history", str(history))
    (file,) = history.iterdir()
    whole = file.read_text().splitlines()
    odd = [
        re.sub('"lag":[0-9.]+', f'"lag":{number}', line)
        for line in whole
        for number in ("NaN", "1e999", "-1e30")
    ]
    assert not set(odd) & set(whole)
    deep = '{"engine":"flink","sample":' + "[" * 100_000
    file.write_bytes(
        b'{"engine": "flink"\n\xff\xfe[]\n{"engine": "flink", "sample": 7}\n'
        + "\n".join([*odd, deep]).encode()
    )
    assert ground.only("--job", "orders", "--history", str(history))["verdict"] == "scale"
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "name", ["\u8a02\u55ae" * 40, "insert-into_" + ",".join(["a.b"] * 90), "half \ud800"]
)
def test_a_job_whose_name_no_file_could_have_has_a_history(ground: FlinkGround, name: str) -> None:
    history = ground.folder / "history"
    ground.flink.jobs = [replace(ORDERS, name=name), replace(CALM, name=f"{name}x")]
    for _ in range(2):
        told = ground.document("--history", str(history))
        assert [each["verdict"] for each in told] == ["scale", "fits"]
        ground.flink.clock.time += 600
    assert sorted(len(file.read_text().splitlines()) for file in history.iterdir()) == [3, 3]


def test_a_history_that_cannot_be_written_is_an_error(ground: FlinkGround) -> None:
    (ground.folder / "file").write_text("")
    ran = ground.advise("--history", str(ground.folder / "file"))
    assert ran.code == 6
    assert "--history" in ran.err


# ------------------------------------------------------------------------- what cannot be told


def test_old_counters_are_not_taken_for_new_ones(ground: FlinkGround) -> None:
    ground.flink.stale_looks = 20  # Flink gathers every ten seconds
    assert ground.only("--job", "orders")["verdict"] == "scale"
    ground.flink.partial_looks = 3
    assert ground.only("--job", "orders")["verdict"] == "scale"


def test_counters_that_never_come_are_not_waited_for_forever(ground: FlinkGround) -> None:
    ground.flink.partial_looks = 10_000
    told = ground.only("--job", "orders")
    assert told["verdict"] == "unknown"
    assert "tells no records in" in told["reasons"][0]
    assert ground.flink.clock.time < BEGAN + 60 + 2 * 13


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": "FINISHED"}, "count is FINISHED"),
        ({"busy_text": "NaN"}, "Flink tells no busy time"),
    ],
)
def test_a_vertex_that_does_not_tell_makes_no_verdict(
    ground: FlinkGround, change: dict[str, Any], why: str
) -> None:
    read, count = ORDERS.parts
    ground.flink.jobs = [replace(ORDERS, parts=[read, replace(count, **change)])]
    told = ground.only()
    assert told["verdict"] == "unknown"
    assert why in told["reasons"][0]


def test_a_cluster_that_does_not_answer_makes_no_verdict(ground: FlinkGround) -> None:
    ground.flink.odd["/jobs/overview"] = (503, {"errors": ["Service temporarily unavailable"]})
    told = ground.only()
    assert (told["job"], told["verdict"]) == (ground.flink.url, "unknown")
    (told,) = ground.advise("--json", given=ground.spec()).document
    assert (told["job"], told["verdict"]) == ("orders", "unknown")
    (told,) = ground.advise("--json", given="http://127.0.0.1:9").document
    assert told["verdict"] == "unknown"


@pytest.mark.parametrize(
    "answer", [[], {"subtasks": 7}, {"subtasks": [{}]}, {"now": 1e999, "subtasks": []}, "<html>"]
)
def test_an_odd_answer_makes_no_verdict(ground: FlinkGround, answer: Any) -> None:
    job = ground.flink.jobs[0]
    ground.flink.odd[f"/jobs/{job.id}/vertices/count"] = (200, answer)
    assert ground.only("--job", "orders")["verdict"] == "unknown"


def test_a_job_that_restarts_makes_no_verdict(ground: FlinkGround) -> None:
    ground.flink.jobs = [replace(ORDERS, state="RESTARTING")]
    (told,) = ground.advise("--json", given=ground.spec()).document
    assert told["verdict"] == "unknown"


def test_a_job_that_vanishes_between_two_looks_makes_no_verdict(ground: FlinkGround) -> None:
    ground.flink.clock.on_sleep = lambda: ground.flink.jobs.clear()
    told = ground.only("--job", "orders")
    assert told["verdict"] == "unknown"
    assert "knows no such job" in told["reasons"][0]


def test_a_spec_without_a_cluster_makes_no_verdict(ground: FlinkGround) -> None:
    (told,) = ground.advise("--json", given=ground.spec(source_cluster=None)).document
    assert told["verdict"] == "unknown"
    assert "source_cluster" in told["reasons"][0]


@pytest.mark.parametrize(
    "argv", [("--sample", "soon"), ("--sample", "0"), ("--replay", "x", "--watch")]
)
def test_options_that_do_not_fit_are_refused(ground: FlinkGround, argv: tuple[str, ...]) -> None:
    assert ground.advise(*argv).code == 2


def test_something_to_look_at_is_needed(ground: FlinkGround) -> None:
    assert ground.advise(given=None).code == 2


# ------------------------------------------------------------------------------ what else is told


def test_flinks_own_rescales_say_what_a_restart_takes(ground: FlinkGround) -> None:
    ground.flink.rescales = [
        {
            "startTimestampInMillis": 1000,
            "endTimestampInMillis": 9000,
            "terminalState": "COMPLETED",
        },
        {
            "startTimestampInMillis": 1000,
            "endTimestampInMillis": 5000,
            "terminalState": "COMPLETED",
        },
        {"startTimestampInMillis": 1000, "endTimestampInMillis": 99_000, "terminalState": "FAILED"},
        {"startTimestampInMillis": 1000, "endTimestampInMillis": None, "terminalState": None},
    ]
    told = ground.only("--job", "orders")
    assert (told["restart_seconds"], told["restart_from"]) == (8.0, "flink")


def test_looks_from_before_a_clock_was_set_back_are_void(ground: FlinkGround) -> None:
    history = str(ground.folder / "history")
    assert ground.only("--job", "orders", "--history", history)["verdict"] == "scale"
    ground.flink.clock.time -= 86400
    read, count = ORDERS.parts
    calm = [replace(read, busy=0.6, lag=0, lag_rate=0), replace(count, busy=0.6)]
    ground.flink.jobs = [Measured("orders", calm, runs_for=2 * 86400.0, id="f" * 32)]
    for _ in range(3):
        assert ground.only("--job", "orders", "--history", history)["verdict"] == "fits"
        ground.flink.clock.time += 600


@pytest.mark.parametrize("began", ["soon", {}, -1e999, 9000])
def test_rescales_that_tell_no_time_say_nothing_of_a_restart(
    ground: FlinkGround, began: Any
) -> None:
    rescale = {"endTimestampInMillis": 1000, "terminalState": "COMPLETED"}
    ground.flink.rescales = [{"startTimestampInMillis": began, **rescale}]
    told = ground.only("--job", "orders")
    assert (told["verdict"], told["restart_from"]) == ("scale", "default")
    assert told["inputs"]["around"]["slots"] is not None


def test_less_than_no_records_that_wait_are_none(ground: FlinkGround) -> None:
    """Else a negative backlog would be taken off what arrives."""
    read, count = CALM.parts
    ground.flink.jobs = [replace(CALM, parts=[replace(read, lag=-1_800_000), count])]
    told = ground.only()
    assert told["lag"] == 0
    assert {vertex["catchup_rate"] for vertex in told["vertices"]} == {0}


def test_a_full_cluster_makes_a_job_move(ground: FlinkGround) -> None:
    ground.flink.slots = (10, 2)
    told = ground.only("--job", "orders")
    assert told["verdict"] == "move"
    ground.flink.configured["execution.target"] = "kubernetes-application"
    assert ground.only("--job", "orders")["verdict"] == "scale"


def test_skew_is_told(ground: FlinkGround) -> None:
    read, count = ORDERS.parts
    ground.flink.jobs = [replace(ORDERS, parts=[read, replace(count, skew=2.0)])]
    assert "2.0 times the mean" in "\n".join(ground.only()["reasons"])


def lose_patience(ground: FlinkGround) -> None:
    if ground.flink.clock.time > BEGAN + 200:
        raise KeyboardInterrupt


def test_watching_prints_a_document_a_line_until_it_is_stopped(ground: FlinkGround) -> None:
    ground.flink.clock.on_sleep = lambda: lose_patience(ground)
    ran = ground.advise("--job", "orders", "--watch", "--json")
    assert ran.code == 130
    documents = [json.loads(line) for line in ran.out.splitlines() if line.startswith("[")]
    assert [told[0]["verdict"] for told in documents] == ["scale"] * len(documents)
    assert len(documents) > 1


def test_watching_shows_the_figures_and_the_formulas_if_asked(ground: FlinkGround) -> None:
    ground.flink.clock.on_sleep = lambda: lose_patience(ground)
    ran = ground.advise("--job", "orders", "--watch", "--explain")
    assert "orders: scale to 8, headroom -20%, 72,000 wait: " in ran.out
    assert "      TPR is below: too little" in ran.out


def test_a_place_that_is_not_there_is_no_spec_alone(ground: FlinkGround) -> None:
    ran = ground.advise(given=str(ground.folder / "checkpoint"))
    assert ran.code == 2
    assert "or a checkpoint of Spark" in ran.err
    assert "saved plan" not in ran.err


def test_one_long_restart_is_forgotten_after_three_more_runs() -> None:
    measured = [("orders", 10.0 * number, 5.0 + number) for number in range(5)]
    measured.append(("orders", 15.0, 3600.0))  # the night on which nothing went right
    measured.append(("audit", 0.0, 2.0))
    assert restart_times(measured) == {"orders": 9.0, "audit": 2.0}
    assert restart_times(measured[:3] + measured[5:6])["orders"] == 3600.0


# ------------------------------------------------------------------------------- several at once


def test_looks_that_another_process_has_added_meanwhile_stay(tmp_path: Path) -> None:
    settings = Settings()
    looks = [Observation(sample(at, vertex(at, 1000, 0.5))) for at in (400.0, 460.0, 470.0, 520.0)]
    first = advising.keep(tmp_path, "orders", looks[:1], (), settings)
    assert advising.keep(tmp_path, "orders", looks[:2], [400.0], settings) == looks[:2]
    # Another one had read the file before the second look was written.
    merged = advising.keep(tmp_path, "orders", [*first, looks[2]], [400.0], settings)
    assert merged == looks[:3]
    # A look that this one has taken out stays out: its clock was set back.
    kept = advising.keep(tmp_path, "orders", [looks[0], looks[3]], [400.0, 460.0, 470.0], settings)
    assert kept == [looks[0], looks[3]] == advising.looks_at(tmp_path, "orders")


def _look_at(folder: Path, begin: int, count: int) -> None:
    for number in range(begin, begin + count):
        before = advising.looks_at(folder, "orders")
        look = Observation(sample(400.0 + number, vertex(400.0 + number, 1000, 0.5)))
        times = [each.sample.time for each in before]
        advising.keep(folder, "orders", [*before, look], times, Settings())


def test_several_processes_lose_no_look(tmp_path: Path) -> None:
    """Each reads, looks, and writes what it has read and its own look."""
    others = [
        multiprocessing.get_context("spawn").Process(target=_look_at, args=(tmp_path, first, 25))
        for first in (0, 100, 200)
    ]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert [other.exitcode for other in others] == [0, 0, 0]
    times = [look.sample.time - 400 for look in advising.looks_at(tmp_path, "orders")]
    assert times == [*range(25), *range(100, 125), *range(200, 225)]


def test_a_writer_waits_for_another_and_readers_do_not(tmp_path: Path) -> None:
    _look_at(tmp_path, 0, 1)
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    writing = threading.Thread(target=_look_at, args=(tmp_path, 1, 1))
    writing.start()
    assert len(advising.looks_at(tmp_path, "orders")) == 1
    writing.join(0.3)
    assert writing.is_alive()
    os.close(lock)
    writing.join()
    assert len(advising.looks_at(tmp_path, "orders")) == 2
