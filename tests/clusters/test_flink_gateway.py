"""A job of SQL: what the SQL gateway is told, where it does not answer or answers oddly, and
what is refused before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.flink.cluster import FlinkRest
from stateshift.clusters.flink.jobs import job_id
from stateshift.clusters.flink.sql_submit import target_of
from stateshift.clusters.kind import check_submit, open_cluster
from stateshift.clusters.protocol import JobProgress, JobState, Submission
from stateshift.errors import ClusterError, Interrupted, SpecError
from stateshift.specification.model import ClusterSpec
from tests.clusters.fake_flink import FakeFlink, serving

SAVEPOINT = "file:///savepoints/savepoint-1"
CREATE = "CREATE TABLE totals (n BIGINT) WITH ('connector' = 'kafka', 'a' = ';')"
INSERT = "INSERT INTO totals\nSELECT COUNT(*) FROM orders"
SQL = f"-- totals\n{CREATE};\nSET 'table.exec.state.ttl' = '1 d';\n{INSERT};\n"
NOT_FOUND = (
    "org.apache.flink.table.api.ValidationException: SQL validation failed.",
    "org.apache.calcite.runtime.CalciteContextException: From line 2, column 22 to line "
    "2, column 27: Object 'orders' "
    "not found",
    "org.apache.calcite.sql.validate.SqlValidatorException: Object 'orders' not found",
)
MISFIT = (
    "java.lang.IllegalStateException: Cannot map checkpoint/savepoint state for operator "
    "07 to the new program"
)
TARGET = ("execution.target", "rest.address", "rest.port")


@pytest.fixture
def server() -> Iterator[FakeFlink]:
    with serving() as flink:
        flink.faulty = "/statements"
        yield flink


@pytest.fixture
def orders(tmp_path: Path) -> Submission:
    (tmp_path / "orders.sql").write_text(SQL)
    return Submission(
        "run-1.orders", "orders", SAVEPOINT, options={"sql": str(tmp_path / "orders.sql")}
    )


def cluster(server: FakeFlink, tmp_path: Path, **options: Any) -> FlinkRest:
    known = {
        "url": server.url,
        "sql_gateway": server.url,
        "settle_seconds": 0.3,
        "request_seconds": 60,
        "outage_seconds": 0.2,
        "state_dir": str(tmp_path / "state"),
    }
    opened = open_cluster(ClusterSpec("flink", "flink_rest", {**known, **options}), str(tmp_path))
    assert isinstance(opened, FlinkRest)
    return opened


def test_a_job_is_started_by_the_last_statement_which_alone_says_that_it_is_ours(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    options = {
        **orders.options,
        "parallelism": 3,
        "allow_non_restored_state": True,
        "claim_mode": "legacy",
        "flink_configuration": {"a.b": True, "c": 1},
    }
    flink = cluster(server, tmp_path, flink_configuration={"c": "2", "d": "3"})
    id = flink.submit(replace(orders, options=options))
    assert id == job_id(orders.tag)
    assert server.gateway.properties == [
        {"pipeline.name": "orders", "parallelism.default": "3", "a.b": "true", "c": "1", "d": "3"}
    ]
    host, _, port = server.url.removeprefix("http://").partition(":")
    ours = {
        "$internal.pipeline.job-id": id,
        "execution.state-recovery.path": SAVEPOINT,
        "execution.state-recovery.claim-mode": "LEGACY",
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "execution.runtime-mode": "streaming",
        "table.dml-sync": "false",
        "execution.target": "remote",
        "rest.address": host,
        "rest.port": port,
    }
    assert server.gateway.asked == [
        (CREATE, {}),
        ("SET 'table.exec.state.ttl' = '1 d'", {}),
        (INSERT, ours),
    ]
    assert server.gateway.sessions == {}
    assert (server.jobs[id].name, server.jobs[id].parallelism) == ("orders", 3)
    server.jobs[id].checkpointed(8, "file:///ck/chk-8")
    assert flink.progress(orders.tag) == JobProgress(SAVEPOINT, 7, 8, True)


@pytest.mark.parametrize(
    ("version", "prefix", "mode", "ignore"),
    [
        (
            "1.19.3",
            "execution.savepoint.",
            "execution.savepoint-restore-mode",
            "ignore-unclaimed-state",
        ),
        (
            "1.20.5",
            "execution.state-recovery.",
            "execution.state-recovery.claim-mode",
            "ignore-unclaimed-state",
        ),
    ],
)
def test_the_savepoint_is_told_in_the_versions_own_words(
    server: FakeFlink,
    orders: Submission,
    tmp_path: Path,
    version: str,
    prefix: str,
    mode: str,
    ignore: str,
) -> None:
    server.version = version
    cluster(server, tmp_path).submit(orders)
    told = server.gateway.asked[-1][1]
    assert (told[f"{prefix}path"], told[mode], told[f"{prefix}{ignore}"]) == (
        SAVEPOINT,
        "NO_CLAIM",
        "false",
    )
    assert len([key for key in told if "savepoint" in key or "recovery" in key]) == 3


def test_without_an_image_nothing_is_said_of_one(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    flink.submit(replace(orders, location=""))
    assert not [
        key for key in server.gateway.asked[-1][1] if "recovery" in key or "savepoint" in key
    ]
    assert flink.progress(orders.tag).restored is None


def test_a_flink_that_is_older_than_its_gateway_is_refused(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    server.version = "1.15.4"
    with pytest.raises(ClusterError, match=r"Flink 1.15.4 has no SQL gateway: it came with 1.16"):
        cluster(server, tmp_path).submit(orders)
    assert server.gateway.properties == []


@pytest.mark.parametrize(
    ("url", "options", "configuration", "target"),
    [
        ("http://jm:8081", {}, {}, ("remote", "jm", "8081")),
        ("http://jm:8081/", {}, {"rest.port": "1"}, ("remote", "jm", "8081")),
        ("http://[::1]", {}, {}, ("remote", "::1", "80")),
        ("http://jm:8081", {}, {"rest.address": "other"}, None),
        ("http://jm:8081", {}, {"execution.target": "yarn-session"}, None),
        ("https://jm:8081", {}, {}, None),
        ("http://proxy/flink-a", {}, {}, None),
        ("http://jm:8081", {"auth": "basic"}, {}, None),
        ("http://jm:8081", {"auth": "none"}, {}, ("remote", "jm", "8081")),
    ],
)
def test_the_job_goes_to_the_cluster_of_the_spec_unless_that_is_reached_otherwise(
    url: str,
    options: dict[str, Any],
    configuration: dict[str, str],
    target: tuple[str, str, str] | None,
) -> None:
    assert target_of(url, options, configuration) == (
        dict(zip(TARGET, target, strict=True)) if target else {}
    )


def test_a_job_that_the_gateway_started_on_another_cluster_is_cancelled_there(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    server.gateway.elsewhere = []
    flink = cluster(server, tmp_path, flink_configuration={"rest.address": "other"})
    server.gateway.fails.append(
        ("STOP", ("org.apache.flink.table.api.SqlParserException: SQL parse failed.",))
    )
    with pytest.raises(
        ClusterError, match=r"another cluster .*; cancel it there, .* does not: .* parse"
    ):
        flink.submit(orders)
    with pytest.raises(
        ClusterError, match=r"on another cluster than that at .*; it was cancelled there"
    ) as raised:
        flink.submit(orders)
    assert "rest.address" in str(raised.value.hint)
    assert server.gateway.elsewhere == [job_id(orders.tag)]  # that which was not cancelled
    assert server.gateway.asked[-1][0] == f"STOP JOB '{job_id(orders.tag)}'"
    assert flink.find(orders.tag).state is JobState.ABSENT
    server.gateway.elsewhere = None
    assert flink.submit(orders) == job_id(orders.tag)


@pytest.mark.parametrize(
    ("options", "pointer", "fact"),
    [
        ({"jar_id": "x"}, "/jar", "needs a jar, or the id of one that is there, or a file of SQL"),
        ({"jar": __file__}, "/jar", "and not both"),
        ({"entry_class": "Orders"}, "/entry_class", "is of a jar"),
        ({"arguments": []}, "/arguments", "is of a jar"),
        ({"sql": "/nowhere.sql"}, "/sql", "cannot be read: No such file"),
        ({"claim_mode": "claim"}, "/claim_mode", "lets Flink delete the image"),
        ({"parallelism": 0}, "/parallelism", "does not fit"),
        (
            {"flink_configuration": {"execution.state-recovery.path": "s3://a"}},
            "/flink_configuration",
            "by stateshift",
        ),
        (
            {"flink_configuration": {"execution.runtime-mode": "batch"}},
            "/flink_configuration",
            "a streaming one",
        ),
        (
            {"flink_configuration": {"table.exec.uid.generation": "ALWAYS"}},
            "/flink_configuration",
            "other uids",
        ),
        ({"flink_configuration": {"table.exec.state.ttl": "2 d"}}, "/sql", "line 3: SET"),
    ],
)
def test_how_it_is_submitted_is_checked_before_anything_moves(
    orders: Submission, options: dict[str, Any], pointer: str, fact: str
) -> None:
    spec = ClusterSpec(
        "flink", "flink_rest", {"url": "http://jm:8081", "sql_gateway": "http://gw:8083"}
    )
    check_submit(spec, orders.options, "/jobs/0/submit")
    with pytest.raises(SpecError) as raised:
        check_submit(spec, {**orders.options, **options}, "/jobs/0/submit")
    assert [complaint.pointer for complaint in raised.value.complaints] == [
        f"/jobs/0/submit{pointer}"
    ]
    assert fact in raised.value.complaints[0].message


def test_all_that_is_wrong_with_a_file_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "all.sql"
    file.write_bytes(
        b"\xef\xbb\xbfSELECT 1;\nINSERT INTO a SELECT 1;\nINSERT INTO a SELECT 1;\nUSE b"
    )
    with pytest.raises(SpecError) as raised:
        check_submit(ClusterSpec("flink", "flink_rest"), {"sql": str(file)}, "/submit")
    told = [complaint.message for complaint in raised.value.complaints]
    no_gateway = "the cluster has no gateway that takes SQL"
    assert [fact.partition(":")[0] for fact in told] == [no_gateway, "line 1", "line 3"]
    assert "STATEMENT SET" in str(raised.value.complaints[2].expected)
    file.write_bytes(b"INSERT INTO a SELECT '\xff'")
    with pytest.raises(SpecError, match="it is no UTF-8"):
        check_submit(
            ClusterSpec("flink", "flink_rest", {"sql_gateway": "x"}), {"sql": str(file)}, "/submit"
        )
    file.write_text("INSERT INTO a SELECT '")
    with pytest.raises(SpecError, match="line 1: the ' here is never closed"):
        check_submit(
            ClusterSpec("flink", "flink_rest", {"sql_gateway": "x"}), {"sql": str(file)}, "/submit"
        )


@pytest.mark.parametrize(
    ("where", "line", "place"), [("CREATE", 2, "line 3"), ("INSERT", 4, "line 5")]
)
def test_a_statement_that_fails_is_told_in_a_line_with_its_place_in_the_file_and_a_way_out(
    server: FakeFlink, orders: Submission, tmp_path: Path, where: str, line: int, place: str
) -> None:
    server.gateway.fails.append((where, NOT_FOUND))
    flink = cluster(server, tmp_path, settle_seconds=60)
    with pytest.raises(ClusterError) as raised:
        flink.submit(orders)
    assert (
        f"orders.sql, line {line} ({where} " in raised.value.fact and "\n" not in raised.value.fact
    )
    assert (
        f"From {place}, column 22 to {place}, column 27: Object 'orders' not found"
        in raised.value.fact
    )
    assert "create each table" in str(raised.value.hint)
    assert flink.find(orders.tag).state is JobState.ABSENT
    assert server.gateway.sessions == {}
    assert flink.submit(orders) == job_id(orders.tag)


def test_a_savepoint_that_does_not_fit_is_told_and_the_next_attempt_has_another_id(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    server.refuses.append(MISFIT)
    flink = cluster(server, tmp_path)
    with pytest.raises(
        ClusterError, match="Cannot map checkpoint/savepoint state for operator 07"
    ) as raised:
        flink.submit(orders)
    assert "allow_non_restored_state" in str(raised.value.hint)
    assert flink.find(orders.tag).state is JobState.ABSENT
    assert flink.submit(orders) == job_id(orders.tag, 1)


def test_a_gateway_that_is_not_there_is_named(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    with serving() as gone:
        url = gone.url
    with pytest.raises(ClusterError, match=f"{url} does not answer") as raised:
        cluster(server, tmp_path, sql_gateway=url).submit(orders)
    assert '"sql_gateway" right' in str(raised.value.hint)
    assert cluster(server, tmp_path).find(orders.tag).state is JobState.ABSENT


def test_what_is_no_gateway_is_told(server: FakeFlink, orders: Submission, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"Not found: /elsewhere/v1/sessions") as raised:
        cluster(server, tmp_path, sql_gateway=f"{server.url}/elsewhere").submit(orders)
    assert '"sql_gateway" has to be that of' in str(raised.value.hint)


def test_a_gateway_that_is_started_anew_while_it_prepares_has_had_no_effect(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    server.gateway.forgets = 1
    flink = cluster(server, tmp_path)
    with pytest.raises(
        ClusterError,
        match=r"line 2 \(CREATE TABLE\): it was taken, and then .* Session 'x' does not",
    ):
        flink.submit(orders)
    assert server.started == {}
    assert flink.submit(orders) == job_id(orders.tag)


def test_a_gateway_that_is_started_anew_while_it_starts_the_job_does_not_start_it_twice(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    server.gateway.forgets = 3
    flink = cluster(server, tmp_path)
    assert flink.submit(orders) == flink.submit(orders) == job_id(orders.tag)
    assert server.started == {job_id(orders.tag): 1}


def test_a_statement_that_comes_to_no_end_is_told(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    server.gateway.slow = 10_000
    for seconds in (0.1, 1, 20):  # a slow machine does not answer any request before
        with pytest.raises(ClusterError) as raised:
            cluster(server, tmp_path, request_seconds=seconds).submit(orders)
        if "does not answer" not in raised.value.fact:
            break
    assert "line 2 (CREATE TABLE): " in raised.value.fact
    assert f" has taken more than {3 * seconds:g} s" in raised.value.fact
    server.gateway.slow, server.gateway.ends_as = 0, "CANCELED"
    with pytest.raises(ClusterError, match="it ended as CANCELED"):
        cluster(server, tmp_path).submit(orders)
    assert server.started == {}


def test_waiting_for_a_statement_is_cut_short_by_an_interruption(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    server.gateway.slow = 10_000
    flink = replace(cluster(server, tmp_path), interrupt=threading.Event())
    assert flink.interrupt is not None
    flink.interrupt.set()
    with pytest.raises(Interrupted):
        flink.submit(orders)
    assert server.gateway.sessions == {} and server.started == {}


def test_the_gateway_is_asked_as_the_person_that_the_cluster_is_asked_as(
    server: FakeFlink, orders: Submission, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("tok-123\n")
    cluster(server, tmp_path, token_file=str(tmp_path / "token")).submit(orders)
    assert {headers.get("Authorization") for headers in server.headers} == {"Bearer tok-123"}
