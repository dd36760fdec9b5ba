"""`transform` of a job: every kind is read whatever its spelling, and every misfit has its
complaint.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from stateshift.errors import SpecError
from stateshift.specification import Spec, parse_spec, spec_schema, to_plain_spec
from stateshift.specification.changes import TRANSFORMS
from stateshift.specification.transform import Compact, Convert, Rewind, Split

VALIDATOR = jsonschema.Draft202012Validator(spec_schema())

GOOD = [
    {"kind": "rewind", "batch": 0},
    {"kind": "rewind", "batch": 41, "renumber": True},
    {"kind": "compact"},
    {"kind": "repartition", "partitions": 17},
    {"kind": "convert", "provider": "rocksdb", "codec": "zstd", "checkpoint_format": "v1"},
    {"kind": "rename", "operators": {"0": "1", "1": "0"}, "sources": {"0": "orders"}},
    {"kind": "drop", "operators": ["1"], "sources": ["2"]},
    {"kind": "split", "by": 4, "part": 0},
    {"kind": "split", "column": "country", "values": ["de", "fr", "", None]},
    {"kind": "prune", "where": "key.country = 'de'", "operator": "0"},
    {"kind": "merge", "locations": ["file:///there"], "sum": ["count"]},
    {
        "kind": "evolve",
        "operator": "0",
        "store": "default/seen",
        "drop": ["c"],
        "rename": {"a": "b", "d": "b2"},
        "add": [
            {"name": "last", "type": "long", "default": -1, "after": "count"},
            {"name": "n", "type": "int"},
            {"name": "s", "type": {"type": "struct", "fields": []}, "after": ""},
        ],
        "widen": {"count": "long", "other": "long"},
        "widen_key": {"id": "long"},
        "rename_key": {"id": "number"},
        "nullable": ["*"],
        "nullable_key": ["id"],
    },
    {
        "kind": "reposition",
        "source": "0",
        "table": "file:///lake/orders-2",
        "version": 1,
        "from_table": "file:///lake/orders",
        "accept_skipped": 2,
    },
    {"kind": "import", "batch": 4, "take": {"state/0/1/5.snapshot": "/work/rows"}},
    {
        "kind": "repair",
        "batch": 4,
        "leave": ["state/0/1/5.snapshot"],
        "take": {"state/0/1/6.delta": "file:///dr/orders"},
        "rebuild": {"commits/4": 'v1\n{"nextBatchWatermarkMs":0}'},
    },
]
OF_KAFKA = [
    {"kind": "reposition", "by": "records", "topics": {"orders": "shop"}, "window": 100},
    {"kind": "reposition", "source": "1", "by": "timestamp:1795179852328", "accept_again": 3},
    {"kind": "reposition", "source": "2", "by": "offsets", "offsets": "file:///desk/offsets.csv"},
]
OF_FLINK = [
    {"kind": "rescale", "parallelism": 3, "max_parallelism": 256},
    {"kind": "convert", "flink": "1.20"},
    {"kind": "union", "operators": ["count"]},
    {"kind": "repair", "files": ["file:///savepoints/savepoint-1"]},
]


def spec(changes: Any, **job: Any) -> dict[str, Any]:
    ends = {"checkpoint_location": "/here", "remote_location": "/new"}
    return {"version": 1, "jobs": [{"name": "orders", **ends, "transform": changes, **job}]}


def written(read: Spec) -> list[Any]:
    """The changes of a spec as its document has them, its protection of `$` taken away."""
    document: Any = to_plain_spec(read)
    changes: list[Any] = document["jobs"][0]["transform"]
    return changes


def refused(changes: Any, **job: Any) -> list[tuple[str, str]]:
    with pytest.raises(SpecError) as caught:
        parse_spec(json.dumps(spec(changes, **job)))
    return [(complaint.pointer, complaint.message) for complaint in caught.value.complaints]


@pytest.mark.parametrize("change", GOOD, ids=json.dumps)
def test_a_change_is_read_as_it_is_written(change: dict[str, Any]) -> None:
    VALIDATOR.validate(spec([change]))
    read = parse_spec(json.dumps(spec([change])))
    assert written(read) == [change]


@pytest.mark.parametrize("change", OF_FLINK, ids=json.dumps)
def test_a_change_of_flink_s_images_is_read_for_a_job_of_flink_s_and_for_no_other(
    change: dict[str, Any],
) -> None:
    asked = {**spec([change]), "engine": "flink"}
    VALIDATOR.validate(asked)
    assert written(parse_spec(json.dumps(asked))) == [change]
    assert refused([change]) == [
        ("/jobs/0/transform", "a change of Flink's images, for a job of Spark")
    ]


@pytest.mark.parametrize("change", OF_KAFKA, ids=json.dumps)
def test_new_offsets_of_a_topic_need_the_brokers_of_both_sides(change: dict[str, Any]) -> None:
    brokers = {"bootstrap_servers": "new:9092", "source_bootstrap_servers": "old:9092"}
    asked = spec([change], kafka=brokers)
    VALIDATOR.validate(asked)
    assert written(parse_spec(json.dumps(asked))) == [change]
    ((pointer, message),) = refused([change])
    assert (pointer, message) == (
        "/jobs/0/transform/0",
        "a topic's new offsets without 'kafka'",
    )
    if change["by"] == "records":
        ((_, message),) = refused([change], kafka={"bootstrap_servers": "new:9092"})
        assert message == "by 'records' without 'source_bootstrap_servers' of 'kafka'"


def test_brokers_of_a_flink_job_are_named_with_its_reposition() -> None:
    kafka = {"bootstrap_servers": "new:9092", "source_bootstrap_servers": "old:9092"}
    flink = {**spec([OF_KAFKA[0]], kafka=kafka), "engine": "flink"}
    parse_spec(json.dumps(flink))
    with pytest.raises(SpecError, match="'kafka' of a Flink job whose topics stay"):
        parse_spec(json.dumps({**spec([], kafka=kafka), "engine": "flink"}))


def test_files_in_another_folder_are_those_of_a_flink_job() -> None:
    change = {"kind": "reposition", "root": "file:///new/in", "from_root": "file:///old/in"}
    flink = {**spec([change]), "engine": "flink"}
    VALIDATOR.validate(flink)
    assert written(parse_spec(json.dumps(flink))) == [change]
    assert refused([change]) == [("/jobs/0/transform/0", "'root' of a Spark job")]
    one = {**spec([{"kind": "reposition", "root": "/in"}]), "engine": "flink"}
    with pytest.raises(SpecError, match="'from_root' is missing"):
        parse_spec(json.dumps(one))
    both = {**spec([{**change, "by": "records"}]), "engine": "flink"}
    with pytest.raises(SpecError, match="'by' beside 'from_root'"):
        parse_spec(json.dumps(both))


def test_each_source_is_repositioned_once() -> None:
    first = {"kind": "reposition", "source": "0", "table": "/lake/a"}
    other = {**first, "source": "1"}
    parse_spec(json.dumps(spec([first, other])))
    assert refused([first, other, first]) == [("/jobs/0/transform/2", "a second 'reposition'")]


def test_there_is_an_example_of_every_kind() -> None:
    assert {change["kind"] for change in (*GOOD, *OF_FLINK)} == set(TRANSFORMS)


def test_keys_kinds_and_numbers_may_be_spelled_loosely() -> None:
    changes = [
        {"Kind": "Rewind", "Batch": "41"},
        {"KIND": "convert", "checkpointFormat": "V1", "codec": "LZ4"},
    ]
    VALIDATOR.validate(spec(changes))
    assert parse_spec(json.dumps(spec(changes))).jobs[0].transform == (
        Rewind(41),
        Convert(codec="lz4", checkpoint_format="v1"),
    )


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        ({"kind": "shrink"}, "/jobs/0/transform/0/kind", '"shrink" is not one of'),
        ({"batch": 3}, "/jobs/0/transform/0", "'kind' is missing"),
        ("compact", "/jobs/0/transform/0", '"compact" is not an object'),
        ({"kind": "rewind"}, "/jobs/0/transform/0", "'batch' is missing"),
        (
            {"kind": "rewind", "batch": -1},
            "/jobs/0/transform/0/batch",
            "-1 is not an integer from 0 on",
        ),
        (
            {"kind": "repartition", "partitions": 0},
            "/jobs/0/transform/0/partitions",
            "0 is not an integer of at least",
        ),
        ({"kind": "compact", "batch": 1}, "/jobs/0/transform/0/batch", "unknown key 'batch'"),
        ({"kind": "convert"}, "/jobs/0/transform/0", "nothing is asked for"),
        ({"kind": "convert", "codec": "gzip"}, "/jobs/0/transform/0/codec", '"gzip" is not one of'),
        (
            {"kind": "rename", "operators": {"0": "2", "1": "2"}},
            "/jobs/0/transform/0/operators/1",
            "name of two",
        ),
        ({"kind": "split", "by": 2}, "/jobs/0/transform/0", "'part' is missing"),
        ({"kind": "split"}, "/jobs/0/transform/0", "a split by shards or by a column"),
        ({"kind": "import", "batch": 4}, "/jobs/0/transform/0", "'take' is missing"),
        ({"kind": "repair"}, "/jobs/0/transform/0", "a repair of a Flink image, or of a Spark"),
        (
            {"kind": "split", "by": 2, "part": 2},
            "/jobs/0/transform/0/part",
            "there is no part 2 of 2",
        ),
        ({"kind": "evolve"}, "/jobs/0/transform/0", "'operator' is missing"),
        ({"kind": "evolve", "operator": "0"}, "/jobs/0/transform/0", "nothing is asked for"),
        (
            {"kind": "evolve", "operator": "0", "widen": {"a": 1}},
            "/jobs/0/transform/0/widen/a",
            "a type or a name",
        ),
        (
            {"kind": "evolve", "operator": "0", "add": [{"name": "a"}]},
            "/jobs/0/transform/0/add/0",
            "'type' is missing",
        ),
        (
            {"kind": "evolve", "operator": "0", "add": [{"name": "a", "type": 1}]},
            "/jobs/0/transform/0/add/0/type",
            "a type's name",
        ),
        ({"kind": "merge"}, "/jobs/0/transform/0", "'locations' is missing"),
        ({"kind": "reposition"}, "/jobs/0/transform/0", "'by' is missing"),
        ({"kind": "reposition", "version": 1}, "/jobs/0/transform/0", "'table' is missing"),
        (
            {"kind": "reposition", "table": "/lake/a", "topics": {"a": "b"}},
            "/jobs/0/transform/0",
            "'topics' beside 'table'",
        ),
        ({"kind": "reposition", "by": "guess"}, "/jobs/0/transform/0/by", "is not offsets"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_what_does_not_fit_has_its_complaint(change: Any, pointer: str, message: str) -> None:
    found = refused([change])
    assert [where for where, _ in found] == [pointer]
    assert message in found[0][1]


@pytest.mark.parametrize(
    ("values", "read"),
    [("a, b", ("a", "b")), ([1, True, "x"], ("1", "true", "x"))],
    ids=["text", "list"],
)
def test_the_values_of_a_column_are_texts(values: Any, read: tuple[str, ...]) -> None:
    changes = [{"kind": "split", "column": "c", "values": values}]
    VALIDATOR.validate(spec(changes))
    assert parse_spec(json.dumps(spec(changes))).jobs[0].transform == (
        Split(column="c", values=read),
    )
    assert (
        refused([{"kind": "split", "column": "c", "values": [1.5]}])[0][0]
        == "/jobs/0/transform/0/values/0"
    )


def test_a_compaction_in_place_needs_no_place_and_is_read_however_its_keys_are_ordered() -> None:
    for change in ({"kind": "compact", "in_place": True}, {"inPlace": "true", "kind": "compact"}):
        VALIDATOR.validate(spec([change], remote_location=None))
        read = parse_spec(json.dumps(spec([change], remote_location=None))).jobs[0]
        assert (read.target, read.transform) == (None, (Compact(in_place=True),))
    assert (
        refused([{"kind": "compact", "in_place": True}])[0][1]
        == "a compaction in place with 'remote_location'"
    )


def test_an_evolution_stands_once_for_each_store() -> None:
    one, other = (
        {"kind": "evolve", "operator": "0", "store": store, "drop": ["c"]}
        for store in ("left", "right")
    )
    assert written(parse_spec(json.dumps(spec([one, other])))) == [one, other]
    assert refused([one, other, one]) == [("/jobs/0/transform/2", "a second 'evolve'")]


def test_a_kind_stands_once() -> None:
    assert refused([{"kind": "compact"}, {"kind": "compact"}]) == [
        ("/jobs/0/transform/1", "a second 'compact'")
    ]


def test_a_change_needs_a_place_of_its_own() -> None:
    assert refused([{"kind": "compact"}], remote_location=None) == [
        ("/jobs/0/transform", "a transform without 'remote_location'")
    ]


@pytest.mark.parametrize(
    ("locations", "message"),
    [
        (["/here"], "is the checkpoint location"),
        (["/there", "file:///there/"], "is 'file:///there', which is merged, too"),
        (["/new/old"], "lies inside the remote location"),
        (["/"], "holds the checkpoint location"),
    ],
)
def test_what_is_merged_lies_apart(locations: list[str], message: str) -> None:
    where, told = refused([{"kind": "merge", "locations": locations}])[0]
    assert where == "/jobs/0/transform"
    assert message in told
