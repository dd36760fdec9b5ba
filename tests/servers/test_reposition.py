"""Real Spark jobs that read on in another topic: two topics of one broker stand for two clusters.
The second one holds the same records at other offsets: behind others, with the ends of transactions
between them, without those that were read long ago, and with a partition more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.servers.shop import Shop, planned_again, sums
from tests.support.servers import Servers, Unavailable, downloads, group

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.row("W-5")]
SHOWN_ON = "Spark, Kafka"

OLD, NEW = "orders", "shop-orders"
READ, ALL, GONE = 100, 140, 20  # records of the old topic; those that the new one has no more


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    try:
        downloads.jars("kafka-spark-4.3")
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    with group(tmp_path_factory.mktemp("reposition"), "kafka") as servers:
        yield servers


def test_a_job_reads_on_in_another_topic_without_a_loss_and_without_a_repetition(
    servers: Servers, tmp_path: Path
) -> None:
    shop = Shop(servers.exports()["STATESHIFT_KAFKA"], tmp_path, OLD)
    there = replace(shop, topic=NEW)
    shop.make(OLD, 2)
    shop.feed(OLD, range(READ))
    source = tmp_path / "source"
    (read,) = shop.run((source, OLD))
    assert read == sums(*range(READ))
    planned = planned_again(source, tmp_path / "planned")

    shop.feed(OLD, range(READ, ALL))
    shop.make(NEW, 3)
    foreign = [-2 - number for number in range(35)]
    shop.feed(NEW, foreign)
    shop.feed(NEW, range(GONE, ALL), in_transactions=True)
    new = range(1000, 1008)  # of the third partition, which the job has not read before
    shop.feed(NEW, new)
    expected = sums(*range(ALL), *new)

    ways: dict[str, tuple[str, ...]] = {
        "records": ("--by", "records"),
        "timestamp": ("--by", "timestamp"),
    }
    targets = {name: tmp_path / f"by-{name}" for name in ways}
    told: dict[str, Any] = {}
    for name, flags in ways.items():
        told[name] = shop.reposition(source, targets[name], there, *flags).json["sources"]
        assert [each["partition"] for each in told[name]] == [f"{NEW}/{n}" for n in range(3)]
        assert {(each["again"], each["skipped"]) for each in told[name]} == {(0, 0)}
    offsets = {each["partition"]: each["to"] for each in told["records"]}
    assert offsets[f"{NEW}/0"] != READ // 2, "they stand elsewhere there"

    file = tmp_path / "offsets.csv"
    lines = [f"{NEW},{number},{offsets[f'{NEW}/{number}']}" for number in range(3)]
    file.write_text("topic,partition,offset\n" + "\n".join(lines[:2]))
    by_file = ("--by", "offsets", "--offsets", str(file))
    targets["offsets"] = tmp_path / "by-offsets"
    refused = shop.reposition(source, targets["offsets"], there, *by_file, code=4)
    assert f"does not name {NEW}/2" in refused.out
    assert not targets["offsets"].exists()
    file.write_text("\n".join(lines))
    shop.reposition(source, targets["offsets"], there, *by_file)

    targets["planned"] = tmp_path / "by-planned"
    shop.reposition(planned, targets["planned"], there, "--by", "records")
    assert NEW in (targets["planned"] / "offsets" / _newest(targets["planned"])).read_text()

    targets["latest"] = tmp_path / "by-latest"
    unread = ALL - READ
    refused = shop.reposition(source, targets["latest"], there, "--by", "latest", code=4)
    assert f"{unread} records would be skipped" in refused.out
    accepted = ("--by", "latest", "--accept-skipped", str(unread))
    shop.reposition(source, targets["latest"], there, *accepted)

    names = list(targets)
    ended = dict(zip(names, shop.run(*((targets[name], NEW) for name in names)), strict=True))
    for name in ("records", "timestamp", "offsets", "planned"):
        assert ended[name] == expected, name
    assert ended["latest"] == sums(*range(READ), *new)


def _newest(checkpoint: Path) -> str:
    names = [name for name in os.listdir(checkpoint / "offsets") if name.isdecimal()]
    return max(names, key=int)
