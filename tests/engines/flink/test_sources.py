"""The sources of a Flink savepoint: topics, partitions and offsets, as the brokers counted them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, look
from stateshift.formats.flink.kafka import KafkaSplit, decode_split, encode_split
from stateshift.formats.flink.metadata import Metadata, decode_metadata, encode_metadata
from stateshift.formats.flink.stream_handles import Inline

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kafka"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/told.json"))
SOURCES = [name for name in CASES if "-source" in name]


def told(name: str) -> Any:
    return json.loads((GOLDEN / name / "told.json").read_text())


def image(name: str) -> Path:
    return GOLDEN / name / told(name)["image"]


def inspected(location: Path) -> Any:
    uids = ["orders-source", "files-source"]
    return api.inspect(str(location), uids=uids, sources=True).to_dict()


@pytest.mark.parametrize("name", CASES)
def test_offsets_are_those_of_the_brokers(name: str) -> None:
    """Everything was read, and nothing of orders/2, which is empty."""
    ends = told(name)["ends"]
    shown = inspected(image(name))
    (source,) = [end for end in shown["images"][0]["endpoints"] if end["kind"] == "kafka"][:1]
    assert (source["role"], source["index"], source["replayable"]) == (
        "source",
        "orders-source",
        True,
    )
    read = source["details"]["offsets"]
    if name.endswith("-consumer"):
        assert read == ends
        return
    assert source["details"]["marks"] == {"orders": {"2": "earliest"}}
    assert {**read["orders"], "2": 0} == ends["orders"]
    assert read["late.orders_2"] == ends["late.orders_2"]


@pytest.mark.parametrize("name", SOURCES)
def test_each_partition_and_file_is_listed(name: str) -> None:
    positions = inspected(image(name))["sources"]
    ends = told(name)["ends"]
    kafka = [at for at in positions if at["kind"] == "kafka"]
    assert [(at["partition"], at["position"]) for at in kafka] == [
        ("late.orders_2/0", ends["late.orders_2"]["0"]),
        ("orders/0", ends["orders"]["0"]),
        ("orders/1", ends["orders"]["1"]),
        ("orders/2", "earliest"),
    ]
    assert {at["source"] for at in kafka} == {"orders-source"}
    files = [at for at in positions if at["kind"] == "file"]
    assert [at["partition"].rpartition("/")[2] for at in files] == ["a.txt", "b.txt"]
    for at in files:
        records, words = at["position"].split(" ", 1)
        assert 0 < int(records) < 4_000
        assert words == "records read"


@pytest.mark.parametrize("name", SOURCES)
def test_transactions_that_are_not_committed_are_told(name: str) -> None:
    ends = inspected(image(name))["images"][0]["endpoints"]
    (sink,) = [end for end in ends if end["role"] == "sink"]
    ids = [each["id"] for each in sink["details"]["transactions"]]
    assert len(ids) == (4 if name.endswith("-later") else 2)
    assert all(each.startswith("copies-") for each in ids)


def test_splits_are_shown_as_partitions_and_not_as_bytes() -> None:
    shown = list(look.entries(str(image("2.3.0-source")), limit=9))
    values = [entry.value for entry in shown if entry.store == "SourceReaderState"]
    assert {"partition": "orders/0", "position": 5} in values
    assert {"partition": "orders/2", "position": "earliest"} in values


def test_offsets_are_compared_by_partition() -> None:
    found = look.diff(str(image("2.3.0-source")), str(image("2.3.0-source-later")), show=9)
    (store,) = [each for each in found.stores if each.store == "positions"]
    assert (store.changed, store.same, store.added, store.removed) == (2, 2, 0, 0)
    shown = {}
    for each in found.shown:
        if each.store == "positions":
            assert isinstance(each.key, dict)
            shown[each.key["partition"]] = (each.before, each.after)
    assert shown == {"late.orders_2/0": (2, 3), "orders/0": (5, 9)}


def test_the_same_offsets_of_other_connectors_are_the_same() -> None:
    found = look.diff(str(image("1.20.5-source-later")), str(image("1.20.5-consumer")), show=9)
    shown = [each for each in found.shown if each.store == "positions"]
    assert [(each.key, each.before, each.after) for each in shown] == [
        ({"partition": "orders/2"}, "earliest", 0)
    ]


def changed(tmp_path: Path, change: Any) -> Path:
    """Write a golden savepoint whose Kafka source's subtasks are changed."""
    metadata = decode_metadata((image("2.3.0-source") / "_metadata").read_bytes())
    operators = []
    for operator in metadata.operators:
        if operator.uid == "orders-source":
            operator = change(operator)
        operators.append(operator)
    written: Metadata = replace(metadata, operators=tuple(operators))
    (tmp_path / "_metadata").write_bytes(encode_metadata(written))
    return tmp_path


def exchange(operator: Any) -> Any:
    one, other = operator.all_subtasks
    subtasks = (replace(other, index=0), replace(one, index=1))
    return replace(operator, subtasks=subtasks)


def test_a_split_that_another_subtask_has_is_no_difference(tmp_path: Path) -> None:
    found = look.diff(str(image("2.3.0-source")), str(changed(tmp_path, exchange)))
    assert found.equal


def edit(old: bytes, new: bytes) -> Any:
    assert len(old) == len(new)

    def change(operator: Any) -> Any:
        subtasks = []
        for subtask in operator.all_subtasks:
            handle = subtask.managed_operator
            content = handle.stream.content.replace(old, new)
            stream = Inline(handle.stream.name, content)
            subtasks.append(replace(subtask, managed_operator=replace(handle, stream=stream)))
        return replace(operator, subtasks=tuple(subtasks))

    return change


ORDERS_0 = encode_split(KafkaSplit("orders", 0, 5))


def test_an_offset_of_one_record_less_is_a_difference(tmp_path: Path) -> None:
    less = encode_split(replace(decode_split(0, ORDERS_0), offset=4))
    other = changed(tmp_path, edit(ORDERS_0, less))
    found = look.diff(str(image("2.3.0-source")), str(other), show=9)
    assert [(each.key, each.before, each.after) for each in found.shown] == [
        ({"partition": "orders/0"}, 5, 4)
    ]


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(ORDERS_0.replace(b"orders", b"ord rs"), id="no topic"),
        pytest.param(ORDERS_0[:12] + b"\xff" + ORDERS_0[13:], id="a negative offset"),
    ],
)
def test_a_damaged_split_makes_a_source_of_no_kind(tmp_path: Path, new: bytes) -> None:
    shown = inspected(changed(tmp_path, edit(ORDERS_0, new)))
    (source,) = [end for end in shown["images"][0]["endpoints"] if end["index"] == "orders-source"]
    assert source["kind"] == "unknown"
    assert source["details"] == {"splits": 4, "split_versions": [0]}
    assert all(at["source"] != "orders-source" for at in shown["sources"])


def test_frames_that_cannot_be_read_do_not_keep_anybody_from_looking(tmp_path: Path) -> None:
    frame = (len(ORDERS_0)).to_bytes(4, "big") + ORDERS_0
    longer = (len(ORDERS_0) + 99).to_bytes(4, "big") + ORDERS_0
    shown = inspected(changed(tmp_path, edit(frame, longer)))
    (source,) = [end for end in shown["images"][0]["endpoints"] if end["index"] == "orders-source"]
    assert (source["kind"], source["details"]) == ("unknown", {})


@pytest.mark.parametrize(
    "content", [b"\xac\xed\0\5sr", bytes.fromhex("00000001 00000003 00000000")]
)
def test_an_operator_with_another_coordinator_is_no_source(tmp_path: Path, content: bytes) -> None:
    """Of a sink that decides about its commits in one place."""

    def change(operator: Any) -> Any:
        coordinator = Inline("coordinator", content)
        return replace(operator, coordinator=coordinator, subtasks=())

    shown = inspected(changed(tmp_path, change))
    assert all(end["index"] != "orders-source" for end in shown["images"][0]["endpoints"])
