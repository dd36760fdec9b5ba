"""What the driver of a query says, as a real Spark said it (tests/golden/advise, made by
tests/acceptance/test_driver_page.py), and who is believed about the cores.
"""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from stateshift.advise.evaluate.spark_batches import DriverReport
from stateshift.advise.metrics.driver import Driver
from stateshift.errors import ClusterError
from stateshift.formats.spark.progress import QueryProgress, ReportedBatch, encode_progress
from tests.advise.spark_ground import QueryGround, batches
from tests.cli.support import SOURCE
from tests.clusters.faulty_server import StandIn, serving

pytestmark = [pytest.mark.row("IF-19", on="Spark"), pytest.mark.row("W-11", on="Spark")]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "advise" / "spark-4.3.0-driver.json"
RECORDED = json.loads(GOLDEN.read_text())
UNNAMED, NAMED = RECORDED["queries"][""], RECORDED["queries"]["per region"]
(APPLICATION,) = [each["id"] for each in RECORDED["answers"]["/api/v1/applications"]]
EXECUTORS = f"/api/v1/applications/{APPLICATION}/executors"
JOBS = f"/api/v1/applications/{APPLICATION}/jobs"
# The newest batch that the driver lists of the query with a name.
LAST = 9
METRICS = "/metrics/json/"
NESTED = "[" * 100_000


@dataclass
class Page(StandIn):
    """Answers as the driver did."""

    answers: dict[str, Any] = field(default_factory=lambda: deepcopy(RECORDED["answers"]))

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        found = self.answers.get(path)
        if isinstance(found, tuple):
            return found
        return (404, {"message": "no such page"}) if found is None else (200, found)

    def has(self, *cores: int) -> None:
        """List executors of so many cores, and a driver that has none."""
        driver, *_ = self.answers[EXECUTORS]
        counts = enumerate(cores)
        executors = [{**driver, "id": str(number), "totalCores": each} for number, each in counts]
        self.answers[EXECUTORS] = [{**driver, "totalCores": 0}, *executors]


@pytest.fixture
def page() -> Iterator[Page]:
    page = Page()
    with serving(page):
        yield page


@pytest.fixture
def ground(tmp_path: Path) -> QueryGround:
    ground = QueryGround(tmp_path)
    ground.write_batches(batches(20, 10, 6, 10_000, first=5))
    ground.storage().write("metadata", lambda: iter([json.dumps({"id": UNNAMED}).encode()]))
    return ground


@pytest.mark.parametrize(("query", "gauges"), [(UNNAMED, UNNAMED), (NAMED, "per region")])
def test_a_driver_tells_cores_rates_and_state_of_a_query(
    page: Page, query: str, gauges: str
) -> None:
    told = RECORDED["answers"][METRICS]["gauges"]

    def gauge(name: str) -> Any:
        return told[f"{APPLICATION}.driver.spark.streaming.{gauges}.{name}"]["value"]

    assert Driver(page.url).report(query, LAST) == DriverReport(
        application=APPLICATION,
        executors=1,
        cores=1,
        input_rate=gauge("inputRate-total"),
        processing_rate=gauge("processingRate-total"),
        batch_seconds=gauge("latency") / 1000,
        state_rows=gauge("states-rowsTotal"),
        state_bytes=gauge("states-usedBytes"),
    )


@pytest.mark.parametrize("query", [NAMED, UNNAMED])
@pytest.mark.parametrize(
    "metrics", [{"gauges": {}}, None, (302, ""), "<html>a log-in</html>", (503, {}), NESTED]
)
def test_cores_are_told_without_gauges(page: Page, metrics: Any, query: str) -> None:
    page.answers[METRICS] = metrics
    page.has(4, 4)
    report = Driver(page.url).report(query, LAST)
    assert (report.executors, report.cores, report.input_rate) == (2, 8, None)


@pytest.mark.parametrize("value", ["NaN", 10**400, math.inf, [], None])
def test_a_gauge_that_is_no_number_is_not_told(page: Page, value: Any) -> None:
    name = f"{APPLICATION}.driver.spark.streaming.{UNNAMED}.inputRate-total"
    page.answers[METRICS]["gauges"][name] = {"value": value}
    assert Driver(page.url).report(UNNAMED, LAST).input_rate is None


def test_the_driver_of_another_query_is_not_believed(page: Page) -> None:
    url = page.url.replace("//", "//me:hidden@")
    with pytest.raises(ClusterError, match="lists is of query 00000000") as refused:
        Driver(url).report("00000000-1111-2222-3333-444444444444", LAST)
    assert "hidden" not in str(refused.value)


def test_a_driver_that_the_query_has_left_is_not_believed(page: Page) -> None:
    with pytest.raises(ClusterError, match=f"since {LAST}, and {LAST + 1} is committed"):
        Driver(page.url).report(NAMED, LAST + 1)
    for job in page.answers[JOBS]:  # as a query of continuous processing is described
        job["description"] = job["description"].replace(f"batch = {LAST}", "batch = init")
        job["description"] = job["description"].replace(f"batch = {LAST - 1}", "batch = init")
    assert Driver(page.url).report(NAMED, LAST + 1).cores == 1


# ---------------------------------------------------------------------------- by the command


def advised(ground: QueryGround, *argv: str) -> Any:
    ran = ground.advise(*argv, "--json")
    assert ran.code == 0, ran.err
    (told,) = ran.document
    return told


def test_what_a_driver_says_is_told_with_the_verdict(page: Page, ground: QueryGround) -> None:
    page.has(4, 4)
    told = advised(ground, SOURCE, "--driver-ui", page.url)
    assert (told["verdict"], told["parallelism"]) == ("fits", 8)
    driver = told["inputs"]["samples"][0]["driver"]
    rates = f"{driver['input_rate']:.3g} records/s came in, {driver['processing_rate']:.3g}"
    took = f"it took {driver['batch_seconds']:.3g} s"
    assert [reason for reason in told["reasons"] if reason.startswith("its driver")] == [
        "its driver counts cores: 8, executors: 2",
        f"its driver says of the last batch: {rates} records/s were processed, {took}",
        f"its driver says of the state: 7 rows in {driver['state_bytes']:,} bytes of memory",
    ]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda page: page.answers.clear(),
        lambda page: page.answers.update({"/api/v1/applications": []}),
        lambda page: page.answers.update({EXECUTORS: [{"id": "driver"}]}),
        lambda page: page.answers.update({EXECUTORS: [{"totalCores": math.inf}]}),
        lambda page: page.answers.update({EXECUTORS: [{"totalCores": 10**400}]}),
        lambda page: page.answers.update({EXECUTORS: [None]}),
        lambda page: page.answers.update({EXECUTORS: NESTED}),
        lambda page: page.answers.update({METRICS: {}, JOBS: ["x"]}),
        lambda page: page.answers.update({"/api/v1/applications": ["x"]}),
        lambda page: page.answers.update({"/api/v1/applications": [{"id": "\ud800"}]}),
        lambda page: page.answers.update({METRICS: {"gauges": None}, EXECUTORS: {}}),
        lambda page: page.answers.update({"/api/v1/applications": "<html>a log-in</html>"}),
        lambda page: setattr(page, "url", "http://127.0.0.1:9"),
    ],
)
def test_a_driver_that_does_not_answer_is_a_note(
    page: Page, ground: QueryGround, break_it: Any
) -> None:
    break_it(page)
    told = advised(ground, SOURCE, "--cores", "8", "--driver-ui", page.url)
    assert (told["verdict"], told["parallelism"]) == ("fits", 8)
    (note,) = [reason for reason in told["reasons"] if "driver" in reason]
    assert note.startswith("its driver does not tell: ")


def test_a_spec_says_where_the_driver_is(page: Page, ground: QueryGround) -> None:
    page.has(3)
    spec = ground.spec(driver_ui=page.url)
    assert advised(ground, spec)["parallelism"] == 3


@pytest.mark.parametrize("named_by", ["option", "spec", "nobody", "another"])
def test_only_a_driver_whose_authority_is_named_is_trusted(
    tmp_path: Path, ground: QueryGround, named_by: str
) -> None:
    authority, file = trustme.CA(), tmp_path / "ca.pem"
    named = trustme.CA() if named_by == "another" else authority
    named.cert_pem.write_to_path(str(file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    page = Page()
    page.has(3)
    with serving(page, context):
        if named_by == "spec":
            told = advised(ground, ground.spec(driver_ui=page.url, driver_ca_file=str(file)))
        else:
            argv = [] if named_by == "nobody" else ["--driver-ca-file", str(file)]
            told = advised(ground, SOURCE, "--driver-ui", page.url, *argv)
    if named_by in ("option", "spec"):
        assert told["parallelism"] == 3
    else:
        assert told["parallelism"] is None
        (note,) = [reason for reason in told["reasons"] if "driver" in reason]
        assert "shows a certificate that is not trusted" in note


@pytest.mark.parametrize("url", ["me:hidden@driver:4040", "hidden", "file:///hidden", ""])
def test_a_driver_without_http_before_it_is_refused_and_not_repeated(
    ground: QueryGround, url: str
) -> None:
    for argv in ([SOURCE, "--driver-ui", url], [ground.spec(driver_ui=url)]):
        for more in ([], ["--json"]):
            refused = ground.advise(*argv, *more)
            assert refused.code == 2
            assert "http://driver:4040" in refused.err + refused.out
            assert "hidden" not in refused.err + refused.out


def test_the_driver_belongs_to_one_job(page: Page, ground: QueryGround) -> None:
    spec = Path(ground.spec())
    plain = json.loads(spec.read_text())
    plain["jobs"].append(
        {
            **plain["jobs"][0],
            "name": "b",
            "checkpoint_location": f"{SOURCE}-b",
            "remote_location": "hdfs://there:8020/b",
        }
    )
    spec.write_text(json.dumps(plain))
    refused = ground.advise(str(spec), "--driver-ui", page.url)
    assert (refused.code, "--job orders" in refused.err) == (2, True)
    assert (
        advised(ground, str(spec), "--driver-ui", page.url, "--job", "orders")["parallelism"] == 1
    )


def test_a_flink_has_no_such_driver(page: Page, ground: QueryGround) -> None:
    assert ground.advise("http://jobmanager:8081", "--driver-ui", page.url).code == 2


# ---------------------------------------------------------------------------- who is believed


def with_every_word(ground: QueryGround, page: Page) -> list[str]:
    """The driver says 3 cores, the query 4, and the spec asked for 6."""
    page.has(3)
    progress = QueryProgress(
        "run-1",
        ground.clock.time - 100,
        tuple(
            ReportedBatch(batch.id, batch.started, 6.0, 5.0, 10_000)
            for batch in batches(20, 10, 6, 10_000, first=5)
        ),
        cores=4,
    )
    content = encode_progress(progress)
    ground.storage().write("_stateshift/progress", lambda: iter([content]))
    spec = Path(ground.spec())
    plain = json.loads(spec.read_text())
    plain["clusters"] = {"a": {"kind": "spark_submit", "master": "local[2]"}}
    submit = {"application": "x.py", "conf": {"spark.cores.max": "6"}}
    plain["jobs"][0] |= {"target_cluster": "a", "submit": submit}
    del plain["jobs"][0]["kafka"]
    spec.write_text(json.dumps(plain))
    return [str(spec), "--driver-ui", page.url]


@pytest.mark.parametrize(
    ("silent", "argv", "cores", "source", "said"),
    [
        ((), ["--cores", "2"], 2, "option", "as the caller says (--cores)"),
        ((), [], 3, "driver", "as its driver says"),
        (("driver",), [], 4, "query", "as the query says itself (stateshift.job)"),
        (("driver", "query"), [], 6, "spec", "as `conf` of its submission asks for"),
    ],
)
def test_whoever_is_nearer_to_the_query_is_believed_about_its_cores(
    page: Page,
    ground: QueryGround,
    silent: tuple[str, ...],
    argv: list[str],
    cores: int,
    source: str,
    said: str,
) -> None:
    given = [*with_every_word(ground, page), *argv]
    if "driver" in silent:
        page.answers.clear()
    if "query" in silent:
        ground.storage().remove("_stateshift/progress")
    told = advised(ground, *given)
    assert (told["parallelism"], told["inputs"]["cores_from"]) == (cores, source)
    explained = ground.advise(*given, "--explain").out
    assert f"cores    = {cores}, {said}" in explained


def test_an_executor_that_has_not_come_yet_leaves_the_cores_to_others(
    page: Page, ground: QueryGround
) -> None:
    given = with_every_word(ground, page)
    page.has()
    assert advised(ground, *given)["parallelism"] == 4
