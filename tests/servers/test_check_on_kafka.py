"""Spark's own example of words in Kafka, as a stranger would check it: other topics, other names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateshift import api
from stateshift.check.verdict import CheckedQuery
from tests.acceptance.support import _run
from tests.servers.shop import SECONDS_MAX, Shop
from tests.support.servers import Servers, Unavailable, downloads, group, spark

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.row("W-24", on="Spark")]
JOB = Path(__file__).with_name("topic_words_job.py")
TWO = {"subscribe": "orders,returns"}
LOSS = {"failOnDataLoss": "false"}
CODE: dict[str, tuple[dict[str, str], str]] = {
    "the same": (TWO, "starts"),
    "a topic more": ({"subscribe": "orders,returns,gifts"}, "starts"),
    "a topic less": ({"subscribe": "orders"}, "starts-after"),
    "a topic less, losses allowed": ({"subscribe": "orders"} | LOSS, "starts-but"),
    "another topic": ({"subscribe": "gifts"}, "starts-after"),
    "a pattern of both": ({"subscribePattern": "(orders|returns)"}, "starts"),
    "a pattern of one": ({"subscribePattern": "ord.*"}, "starts-after"),
    "all partitions": ({"assign": '{"orders": [0, 1], "returns": [0, 1]}'}, "starts"),
    "a partition less": ({"assign": '{"orders": [0, 1], "returns": [1]}'}, "starts-after"),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    try:
        downloads.jars("kafka-spark-4.3")
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    with group(tmp_path_factory.mktemp("words"), "kafka") as servers:
        yield servers


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_check_says_of_other_topics_what_spark_does_with_them(
    servers: Servers, tmp_path: Path
) -> None:
    shop = Shop(servers.exports()["STATESHIFT_KAFKA"], tmp_path)
    for topic in ("orders", "returns", "gifts"):
        shop.make(topic, 2)
        shop.feed(topic, range(20))
    source = tmp_path / "words"
    copies = [
        [str(tmp_path / f"words-{n}"), options] for n, (options, _) in enumerate(CODE.values())
    ]
    path = spark.class_path(spark.installed_home(), downloads.jars("kafka-spark-4.3"))
    env = {
        "PYSPARK_SUBMIT_ARGS": f"--conf spark.driver.extraClassPath={path} pyspark-shell",
        "CHECKPOINTS": json.dumps(copies),
    }
    words = [shop.brokers, str(source), json.dumps(TWO)]
    ran = _run([sys.executable, str(JOB), *words], tmp_path, 0, env, SECONDS_MAX)
    ends = dict(zip(CODE, json.loads(ran.out.splitlines()[-1]), strict=True))

    def check(options: dict[str, str]) -> CheckedQuery:
        arguments = [shop.brokers, str(source), json.dumps(options)]
        done = api.check(str(source), str(JOB), arguments=arguments, stub=True)
        (query,) = done.checked.queries
        return query

    for name, (options, verdict) in CODE.items():
        query = check(options)
        assert query.verdict == verdict, (name, query.differences)
        if verdict == "starts-after":
            assert "Some data may have been lost" in ends[name], name
        else:
            assert ends[name] == "started", name

    renamed = tmp_path / "renamed.py"
    renamed.write_text(JOB.read_text().replace('"WORD", "word"', '"WORD", "term"'))
    again = api.check(
        str(source), str(renamed), arguments=words, stub=True, before=str(JOB)
    ).checked.queries
    assert [query.verdict for query in again] == ["starts"]
