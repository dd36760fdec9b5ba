"""Changes of the state as plans: spec and survey in, steps and findings out; and the transforms
on small contents.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.spark.entries.columnar import hashes_of
from stateshift.engines.spark.entries.encoders import ROW
from stateshift.engines.spark.entries.keys import KeyRule, key_rule
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.files import REWRITE_STATE, reshaping_of
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.rewrite.pieces import (
    TABLE_BYTES,
    components,
    count_of_little_tables,
    is_settled,
    table_count,
)
from stateshift.engines.spark.rewrite.transforms import TRANSFORMS
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import FormatError
from stateshift.formats.blocks import binary
from stateshift.formats.spark.offsets import NAMED_SOURCES, decode_offsets
from stateshift.formats.spark.placement import signed_hash
from stateshift.formats.spark.state_files import decode_snapshot
from stateshift.formats.spark.types import decode_struct
from stateshift.plan import Plan, decode_plan, encode_plan
from stateshift.step import CompareImages, CopyFiles, FenceSource, TransformShard, WriteFile
from stateshift.survey import ClusterFacts, Facts, ShardFiles, Survey
from stateshift.testing.memory_storage import MemoryDisk
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, Ground, changes_of, facts_of, plan_of, spec_of

LONG_KEY = '{"type":"struct","fields":[{"name":"k","type":"long","nullable":true,"metadata":{}}]}'


def surveyed(checkpoint: Checkpoint, changes: list[dict[str, Any]]) -> Survey:
    storage = MemoryDisk().open(SOURCE)
    checkpoint.write(storage)
    return survey.survey(storage, changes=changes_of(*changes))


def planned(checkpoint: Checkpoint, *changes: dict[str, Any], **job: Any) -> Plan:
    found = list(changes)
    return plan_of(spec_of(transform=found, **job), facts_of(surveyed(checkpoint, found)))


def told(plan: Plan, level: str) -> str:
    return "\n".join(finding.message for finding in plan.findings if finding.level == level)


def rewrites(plan: Plan) -> list[TransformShard]:
    return [
        step
        for step in plan
        if isinstance(step, TransformShard) and step.transform == REWRITE_STATE
    ]


def copied(plan: Plan) -> list[str]:
    return [item.path for step in plan if isinstance(step, CopyFiles) for item in step.items]


# ---- rewind


@pytest.mark.row("IS-13")
def test_going_back_takes_what_that_batch_needs_and_nothing_newer() -> None:
    plan = planned(
        Checkpoint(batches=6, snapshots=(2, 5)),
        {"kind": "rewind", "batch": 2},
        planned_batch="drop",
        mode="fork",
    )
    assert plan.epoch == 2
    state = [path for path in copied(plan) if path.startswith("state/0/1")]
    assert state == ["state/0/1/2.snapshot", "state/0/1/3.delta"]
    assert [path for path in copied(plan) if not path.startswith("state")] == [
        "offsets/1",
        "offsets/2",
        "commits/2",
    ]


def test_the_next_batch_runs_again_as_it_was_planned_where_the_spec_keeps_it() -> None:
    refused = planned(Checkpoint(batches=6), {"kind": "rewind", "batch": 2})
    assert "drops every batch under a number that it has" in told(refused, "refuse")
    plan = planned(
        Checkpoint(batches=6), {"kind": "rewind", "batch": 2}, waive=["repeated-batches"]
    )
    assert "offsets/3" in copied(plan) and "commits/3" not in copied(plan)
    assert "goes back from batch 5 to batch 2; the input of batch 3 to 5 is read again" in told(
        plan, "warn"
    )


def test_a_fence_stands_behind_the_newest_batch_also_where_the_job_goes_back() -> None:
    plan = planned(
        Checkpoint(batches=6), {"kind": "rewind", "batch": 2}, waive=["repeated-batches"]
    )
    assert [step.paths for step in plan if isinstance(step, FenceSource)] == [
        ("offsets/6", "commits/6")
    ]


def test_there_is_no_going_back_to_a_batch_that_is_not_there() -> None:
    plan = planned(Checkpoint(batches=3), {"kind": "rewind", "batch": 7})
    assert "batch 7 is not committed in file:///here/orders; the newest is batch 2" in told(
        plan, "refuse"
    )
    assert not plan.phases


def test_a_batch_whose_state_was_tidied_away_is_refused_naming_the_file() -> None:
    storage = MemoryDisk().open(SOURCE)
    Checkpoint(batches=6, snapshots=(4,)).write(storage)
    storage.remove("state/0/1/2.delta")
    changes = [{"kind": "rewind", "batch": 2}]
    plan = plan_of(
        spec_of(transform=changes), facts_of(survey.survey(storage, changes=changes_of(*changes)))
    )
    assert "state/0/1/2.delta is missing: epoch 2 cannot be restored without it" in told(
        plan, "refuse"
    )


def test_going_back_to_the_newest_batch_is_a_move() -> None:
    changed, moved = planned(Checkpoint(), {"kind": "rewind", "batch": 2}), planned(Checkpoint())
    assert changed.phases == moved.phases


# ---- compact


@pytest.mark.row("IS-17")
def test_a_chain_becomes_one_snapshot_and_none_of_it_is_copied() -> None:
    plan = planned(Checkpoint(batches=40, shards=2), {"kind": "compact"})
    (step,) = rewrites(plan)
    assert step.outputs == ("state/0/0/40.snapshot", "state/0/1/40.snapshot")
    assert len(step.inputs) == 80
    assert not [path for path in copied(plan) if path.startswith("state")]
    (compare,) = (step for step in plan if isinstance(step, CompareImages) and step.target_shards)
    assert [shard.files for shard in compare.target_shards or ()] == [
        (path,) for path in step.outputs
    ]


def test_a_snapshot_that_stands_alone_is_copied_as_it_is() -> None:
    plan = planned(Checkpoint(batches=4, snapshots=(4,)), {"kind": "compact"})
    assert not rewrites(plan)
    assert "state/0/0/4.snapshot" in copied(plan)


def test_many_small_shards_become_few_steps() -> None:
    plan = planned(Checkpoint(batches=10, shards=200, keys=1), {"kind": "compact"})
    assert len(rewrites(plan)) == 13
    assert sum(len(step.outputs) for step in rewrites(plan)) == 200


# ---- in general


def test_a_changed_fork_has_an_id_of_its_own_too() -> None:
    plan = planned(Checkpoint(), {"kind": "compact"}, mode="fork")
    assert rewrites(plan) and [
        step for step in plan if isinstance(step, WriteFile) and step.path == "metadata"
    ]
    assert not [step for step in plan if isinstance(step, FenceSource)]


def test_a_changed_plan_is_the_same_for_the_same_facts_and_survives_json() -> None:
    one, other = (planned(Checkpoint(batches=9), {"kind": "compact"}) for _ in range(2))
    assert one.fingerprint == other.fingerprint
    assert decode_plan(json.loads(json.dumps(encode_plan(one)))) == one


@pytest.mark.parametrize("verify", ["entries", "digests"])
def test_state_that_was_written_anew_is_compared_by_entries_whatever_is_asked_of_the_rest(
    verify: str,
) -> None:
    plan = planned(Checkpoint(), {"kind": "compact"}, verify=verify)
    assert [step for step in plan if isinstance(step, CompareImages) and step.target_shards]
    assert not [
        s
        for s in planned(Checkpoint(), {"kind": "compact"}, verify="none")
        if isinstance(s, CompareImages)
    ]


def test_a_repetition_finds_what_it_wrote_and_a_rollback_leaves_nothing(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(batches=9))
    ground.apply(spec_of(transform=[{"kind": "compact"}]))
    held = ground.held(TARGET)
    assert sorted(path for path in held if path.startswith("state")) == [
        "state/0/0/9.snapshot",
        "state/0/1/9.snapshot",
    ]
    assert ground.resume().state == "finished"
    ground.rollback()
    assert ground.held(TARGET) == {}
    assert ground.held(SOURCE) == Checkpoint(batches=9).files()


def test_a_snapshot_holds_what_the_chain_was_folded_to(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(batches=9))
    ground.apply(spec_of(transform=[{"kind": "compact"}]))
    records = list(decode_snapshot((ground.held(TARGET)["state/0/1/9.snapshot"],)))
    assert {record.value for record in records} == {(9).to_bytes(8, "little")}
    assert len(records) == 3


# ---- repartition


def test_entries_move_only_between_shards_of_one_remainder() -> None:
    groups = list(components(6, 4))
    assert [(list(here), list(there)) for here, there in groups] == [
        ([0, 2, 4], [0, 2]),
        ([1, 3, 5], [1, 3]),
    ]
    for before, after in ((200, 17), (7, 64), (200, 100), (5, 5), (1, 3)):
        sources = sorted(n for here, _ in components(before, after) for n in here)
        targets = sorted(n for _, there in components(before, after) for n in there)
        assert (sources, targets) == (list(range(before)), list(range(after)))
        for number in range(-5000, 5000, 7):
            here = next(
                here for here, there in components(before, after) if number % after in there
            )
            assert number % before in here


def keyed(checkpoint: Checkpoint, changes: list[dict[str, Any]], **image: Any) -> Facts:
    """As if the checkpoint had a schema beside its state."""
    found = surveyed(checkpoint, changes)
    schemas = {"0/default": {"key": LONG_KEY, "value": LONG_KEY, "encoder": None, "prefix": 0}}
    details = replace(spark_image(found.images[0]), schemas=schemas)
    return facts_of(replace(found, images=(replace(found.images[0], details=details, **image),)))


def test_a_group_too_large_for_memory_is_read_once_for_each_part_of_its_targets() -> None:
    changes = [{"kind": "repartition", "partitions": 8}]
    facts = keyed(Checkpoint(), changes)
    half = (
        sum(file.size for file in facts.source.files if file.path.startswith("state/0/1/")) // 2 + 1
    )
    spec = spec_of(transform=changes)
    made = reshaping_of(Move(spec, spec.jobs[0], facts), piece_bytes_max=half)
    pieces = [piece for step in made.steps for piece in step.options["pieces"]]
    assert [piece["targets"] for piece in pieces] == [[0, 4], [2, 6], [1, 5], [3, 7]]
    assert [[shard for shard, _ in piece["sources"]] for piece in pieces] == [[0], [0], [1], [1]]
    assert sum(len(step.source_shards) for step in made.compares) == 2, (
        "each source shard is compared once"
    )
    assert sorted(s.shard for step in made.compares for s in step.target_shards or ()) == list(
        range(8)
    )


def test_a_store_without_a_schema_is_refused_by_name() -> None:
    plan = planned(Checkpoint(), {"kind": "repartition", "partitions": 4})
    assert "the keys of operator 0, store default cannot be read: no schema tells" in told(
        plan, "refuse"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "evolve", "operator": "0", "drop": ["nowhere"]},
        {"kind": "split", "column": "nowhere", "values": ["x"]},
        {"kind": "merge", "locations": ["hdfs://here:8020/ck/other"], "sum": ["nowhere"]},
    ],
    ids=lambda change: str(change["kind"]),
)
def test_where_a_column_is_not_there_the_hint_names_the_place_that_has_others(
    change: dict[str, Any],
) -> None:
    plan = plan_of(spec_of(transform=[change], mode="fork"), keyed(Checkpoint(), [change]))
    hints = [finding.hint or "" for finding in plan.refusals]
    assert any(
        hint.startswith(f"stateshift inspect --entries {SOURCE}   # shows ") for hint in hints
    ), hints


@pytest.mark.parametrize("asked", [{"drop": ["k"]}, {"widen_key": {"k": "string"}}])
def test_an_operator_that_is_dropped_does_not_evolve(asked: dict[str, Any]) -> None:
    changes = [{"kind": "evolve", "operator": "0", **asked}, {"kind": "drop", "operators": ["0"]}]
    plan = plan_of(spec_of(transform=changes, mode="fork"), keyed(Checkpoint(), changes))
    assert "operator 0 is dropped, and its rows cannot evolve" in told(plan, "refuse")


def test_the_same_number_of_partitions_is_nothing_to_do() -> None:
    plan = planned(Checkpoint(shards=2), {"kind": "repartition", "partitions": 2})
    assert not plan.refusals and not rewrites(plan)
    assert "has 2 partitions already" in told(plan, "note")


def test_more_partitions_than_a_checkpoint_is_read_with_are_refused() -> None:
    plan = planned(Checkpoint(shards=2), {"kind": "repartition", "partitions": 1_000_000_000})
    assert "1000000000 partitions are more than a job has" in told(plan, "refuse")


# ---- keys


def schema(
    *fields: tuple[str, Any], encoder: dict[str, Any] | None = None, prefix: int = 0
) -> dict[str, Any]:
    plain = {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields],
    }
    return {
        "key": json.dumps(plain),
        "encoder": json.dumps(encoder) if encoder else None,
        "prefix": prefix,
    }


def row(*values: int) -> bytes:
    return bytes(8) + b"".join(value.to_bytes(8, "little", signed=True) for value in values)


LONG = decode_struct(LONG_KEY).types[0]
STRUCT = {
    "type": "struct",
    "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}],
}
ELEMENT = {
    "type": "struct",
    "fields": [
        {"name": name, "type": STRUCT, "nullable": True, "metadata": {}}
        for name in ("key", "userKey")
    ],
}


def nested(*rows: bytes) -> bytes:
    """A row of structs."""
    start, slots, parts = 8 + 8 * len(rows), b"", b""
    for one in rows:
        slots += ((start + len(parts)) << 32 | len(one)).to_bytes(8, "little")
        parts += one
    return bytes(8) + slots + parts


def ordered(value: int) -> bytes:
    """A row of one column that sorts as bytes do: 01, then the value, big-endian."""
    return (
        bytes(8)
        + (16 << 32 | 9).to_bytes(8, "little")
        + b"\1"
        + value.to_bytes(8, "big")
        + bytes(7)
    )


def sized(first: bytes, second: bytes) -> bytes:
    return len(first).to_bytes(4, "little") + first + second


PREFIX = {"keyStateEncoderType": "PrefixKeyScanStateEncoderSpec", "numColsPrefixKey": 1}
RANGE = {"keyStateEncoderType": "RangeKeyScanStateEncoderSpec", "orderingOrdinals": [0]}
PLAIN = {"keyStateEncoderType": "NoPrefixKeyStateEncoderSpec"}


@pytest.mark.parametrize(
    ("store", "told", "framed", "key"),
    [
        ("default", schema(("a", "long")), False, row(7)),
        ("default", schema(("a", "long")), True, b"\0" + row(7)),
        ("left-keyWithIndexToValue", schema(("a", "long"), ("index", "long")), False, row(7, 99)),
        (
            "default/left-keyWithIndexToValue",
            schema(("a", "long"), ("index", "long"), encoder=PLAIN),
            True,
            b"\0" + row(7, 99),
        ),
        ("default", schema(("a", "long"), ("sessionStartTime", "timestamp")), False, row(7, 99)),
        (
            "default",
            schema(("a", "long"), ("t", "timestamp"), prefix=1),
            True,
            sized(b"\0" + row(7), b"\0" + row(99)),
        ),
        (
            "default/m",
            schema(("key", STRUCT), ("userKey", STRUCT), encoder=PREFIX),
            True,
            sized(b"\0" + nested(row(7)), b"\0" + nested(row(99))),
        ),
        (
            "default/$ttl_v",
            schema(("expirationMs", "long"), ("elementKey", STRUCT), encoder=RANGE),
            True,
            sized(b"\0" + ordered(99), b"\0" + nested(row(7))),
        ),
        (
            "default/$ttl_m",
            schema(("expirationMs", "long"), ("elementKey", ELEMENT), encoder=RANGE),
            True,
            sized(b"\0" + ordered(99), b"\0" + nested(nested(row(7), row(99)))),
        ),
        (
            "default/left-keyWithTsToValues",
            schema(
                ("a", "long"),
                ("t", "long"),
                encoder={"keyStateEncoderType": "TimestampAsPostfixKeyStateEncoderSpec"},
            ),
            True,
            b"\0" + row(7) + bytes(8),
        ),
        (
            "default/left-tsWithKey",
            schema(
                ("a", "long"),
                ("t", "long"),
                encoder={"keyStateEncoderType": "TimestampAsPrefixKeyStateEncoderSpec"},
            ),
            True,
            bytes(8) + b"\0" + row(7),
        ),
    ],
    ids=[
        "row",
        "framed row",
        "join index",
        "join index, family",
        "session",
        "session, framed",
        "map state",
        "ttl",
        "ttl of a map",
        "join v4",
        "join v4, by time",
    ],
)
def test_the_grouping_key_decides_however_the_key_is_encoded(
    store: str, told: dict[str, Any], framed: bool, key: bytes
) -> None:
    operator = (
        "transformWithStateInPySparkExec"
        if "/$ttl" in store or "/m" in store
        else "symmetricHashJoin"
    )
    rule = key_rule(operator, store, told, framed)
    assert hashes_of(StoreView.of_rule(store, rule), binary([key])).tolist() == [
        signed_hash((7,), (LONG,))
    ]


def test_an_operator_without_a_key_has_one_shard() -> None:
    assert key_rule("globalLimit", "default", schema(), False).placed == ()
    assert key_rule(None, "default", schema(("key", "void")), True).placed == ()


def test_an_encoder_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(FormatError, match="NewEncoderSpec"):
        key_rule(
            None,
            "default/x",
            schema(("a", "long"), encoder={"keyStateEncoderType": "NewEncoderSpec"}),
            True,
        )
    with pytest.raises(FormatError, match="collated strings"):
        key_rule(None, "default", schema(("a", "string collate UNICODE_CI")), False)
    with pytest.raises(FormatError, match="NewOperatorExec"):
        key_rule("NewOperatorExec", "default", schema(("a", "long")), True)
    with pytest.raises(FormatError, match="the encoding that is known"):
        hashes_of(
            StoreView.of_rule("default", KeyRule(LONG_KEY, ROW, ((0,),))), binary([b"\1" + row(7)])
        )


# ---- convert


def rocksdb_of(version: str) -> ClusterFacts:
    return ClusterFacts("theirs", "memory", version, "absent")


def test_rocksdb_is_written_as_tables_that_every_spark_reads_and_named_after_them() -> None:
    changes = [{"kind": "convert", "provider": "rocksdb"}]
    for version in ("3.3.4", "4.3.0"):
        facts = replace(keyed(Checkpoint(), changes), target_cluster=rocksdb_of(version))
        plan = plan_of(spec_of(transform=changes, waive=["older-target"]), facts)
        assert not plan.refusals
        (step,) = rewrites(plan)
        assert [path.rpartition(".")[2] for path in step.outputs] == ["sst", "zip"] * 2
        assert re.fullmatch(r"state/0/0/SSTs/000002-[0-9a-f-]{36}\.sst", step.outputs[0])
        assert step.options["pieces"][0]["tables"] == [[step.outputs[0].rpartition("/")[2]]]
        assert step.outputs[1] == "state/0/0/3.zip"


def test_a_large_shard_gets_as_many_tables_as_its_files_promise() -> None:
    shard = ShardFiles("0", "default", 0, ("9.zip", *(f"{n}.sst" for n in range(3))))
    assert [table_count(size) for size in (0, 1, TABLE_BYTES, TABLE_BYTES + 1)] == [1, 1, 1, 2]
    assert [table_count(number * TABLE_BYTES) for number in (3, 4, 5, 8, 9)] == [4, 4, 8, 8, 9]
    mebibytes = (0, 15, 16, 33, 64, 400, 1024)
    counts = [count_of_little_tables(size << 20) for size in mebibytes]
    assert counts == [1, 1, 2, 4, 8, 8, 16]
    assert is_settled(shard, 3 * TABLE_BYTES) and not is_settled(shard, 2 * TABLE_BYTES)
    assert not is_settled(replace(shard, files=(*shard.files, "10.changelog")), 3 * TABLE_BYTES)


def test_little_tables_of_ours_are_settled_until_spark_writes_behind_them() -> None:
    """A rewriting has written them: to write them once more would leave the same entries."""

    def shard_of(*more: str) -> ShardFiles:
        ours = [f"SSTs/{number:06}-{uuid.uuid5(uuid.NAMESPACE_URL, 'x')}.sst" for number in (2, 3)]
        return ShardFiles("0", "default", 0, ("9.zip", *ours, *more))

    assert is_settled(shard_of(), 1)
    assert is_settled(shard_of(f"SSTs/000004-{uuid.uuid5(uuid.NAMESPACE_URL, 'y')}.sst"), 1)
    assert not is_settled(shard_of("10.changelog"), 1)
    assert not is_settled(shard_of(f"SSTs/000012-{uuid.uuid4()}.sst"), 1)
    assert not is_settled(shard_of("SSTs/000012.sst"), 1)
    kept_beside = f"SSTs/000002-{uuid.uuid5(uuid.NAMESPACE_URL, 'y')}.sst"
    assert not is_settled(shard_of(kept_beside), 1)


def test_a_provider_that_nobody_here_knows_is_refused_by_name() -> None:
    found = surveyed(Checkpoint(), [{"kind": "compact"}])
    operators = tuple(
        replace(operator, provider="AcmeStateStoreProvider")
        for operator in found.images[0].operators
    )
    facts = facts_of(replace(found, images=(replace(found.images[0], operators=operators),)))
    plan = plan_of(spec_of(transform=[{"kind": "compact"}]), facts)
    assert "AcmeStateStoreProvider, whose files stateshift cannot write" in told(plan, "refuse")


def test_a_log_is_rewritten_and_nothing_else_of_it_changes() -> None:
    log = b'v1\n{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"a":"b","spark.sql.shuffle.partitions":"5"}}\n-'
    changes = {"conf": {"spark.sql.shuffle.partitions": "3"}}
    (content,) = TRANSFORMS["spark.rewrite-offsets"](changes, [lambda: iter((log,))])
    assert b"".join(content()) == log.replace(b'"5"', b'"3"')
    commit = b'v2\n{"nextBatchWatermarkMs":9,"stateUniqueIds":{"0":[["x"]]}}'
    (content,) = TRANSFORMS["spark.rewrite-commit"]({"state_ids": None}, [lambda: iter((commit,))])
    assert b"".join(content()) == b'v1\n{"nextBatchWatermarkMs":9}'
    (content,) = TRANSFORMS["spark.rewrite-commit"](
        {"state_ids": {"0": [["y"], ["z"]]}}, [lambda: iter((commit,))]
    )
    assert b"".join(content()) == commit.replace(b'[["x"]]', b'[["y"],["z"]]')


# ---- rename, drop


def renamed(checkpoint: Checkpoint, **change: Any) -> Plan:
    return planned(checkpoint, {"kind": "rename", **change})


def test_an_operators_files_go_where_its_new_id_is_and_are_compared_there(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(batches=3))
    ground.apply(spec_of(transform=[{"kind": "rename", "operators": {"0": "4"}}]))
    held, before = ground.held(TARGET), Checkpoint(batches=3).files()
    assert {path for path in held if path.startswith("state")} == {
        path.replace("state/0/", "state/4/") for path in before if path.startswith("state")
    }
    assert held["state/4/1/2.delta"] == before["state/0/1/2.delta"]
    plan = renamed(Checkpoint(), operators={"0": "4"})
    compare = next(step for step in plan if isinstance(step, CompareImages) and step.target_shards)
    assert {shard.operator for shard in compare.target_shards or ()} == {"0"}, (
        "it is the same operator's state"
    )


def test_a_renamed_operator_can_be_compacted_on_the_same_way(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(batches=9))
    ground.apply(
        spec_of(transform=[{"kind": "rename", "operators": {"0": "1"}}, {"kind": "compact"}])
    )
    assert {path for path in ground.held(TARGET) if path.startswith("state")} == {
        "state/1/0/9.snapshot",
        "state/1/1/9.snapshot",
    }


def test_an_operator_left_behind_leaves_no_file(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint())
    ground.apply(spec_of(transform=[{"kind": "drop", "operators": ["0"]}]))
    assert sorted(ground.held(TARGET)) == ["commits/2", "metadata", "offsets/1", "offsets/2"]


def test_a_source_gets_another_place_in_the_offsets_and_in_the_logs(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(inputs="file:///in"))
    change = {"kind": "rename", "sources": {"0": "1"}}
    ground.apply(spec_of(transform=[change], waive=["paths-stay"]))
    held, before = ground.held(TARGET), Checkpoint(inputs="file:///in").files()
    assert held["offsets/2"] == before["offsets/2"].replace(
        b'\n{"logOffset":2}', b'\n-\n{"logOffset":2}'
    )
    assert {path: held[path] for path in held if path.startswith("sources")} == {
        f"sources/1/{n}": before[f"sources/0/{n}"] for n in range(3)
    }


def test_sources_of_a_checkpoint_of_version_1_get_names(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(inputs="file:///in"))
    change = {"kind": "rename", "sources": {"0": "orders"}}
    assert "gets names for its sources: 0 (orders)" in told(
        planned(Checkpoint(inputs="file:///in"), change), "note"
    )
    ground.apply(spec_of(transform=[change], waive=["paths-stay"]))
    held, before = ground.held(TARGET), Checkpoint(inputs="file:///in").files()
    for batch in (1, 2):
        old, new = (decode_offsets(each[f"offsets/{batch}"]) for each in (before, held))
        assert new.version == 2
        assert new.conf == {**old.conf, NAMED_SOURCES: "true"}
        assert new.lines == (f'orders:{{"logOffset":{batch}}}',)
        assert new.header.endswith('},"sourceMetadataInfo":{}}')
    assert {path: held[path] for path in held if path.startswith("sources")} == {
        f"sources/orders/{n}": before[f"sources/0/{n}"] for n in range(3)
    }


def test_a_source_that_moves_with_its_data_is_rewritten_under_its_new_name(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint(inputs="file:///in"))
    for number in range(3):
        ground.put(f"file:///in/f{number}.json")
    data = [{"source": "file:///in", "target": "file:///new"}]
    ground.apply(spec_of(transform=[{"kind": "rename", "sources": {"0": "1"}}], data=data))
    assert b"file:///new/f2.json" in ground.held(TARGET)["sources/1/2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "rename", "operators": {"7": "1"}}, "has no operator 7"),
        ({"kind": "rename", "operators": {"0": "one"}}, "'one' is no operator number"),
        ({"kind": "rename", "sources": {"3": "1"}}, "has no source 3"),
        ({"kind": "rename", "sources": {"0": "a-b"}}, "'a-b' is no name of a source in Spark"),
        ({"kind": "rename", "sources": {"0": "9999999999"}}, "is no source number"),
        ({"kind": "drop", "sources": ["0"]}, "would have no source left"),
    ],
    ids=["unknown operator", "no number", "unknown source", "no name", "too large", "no source"],
)
def test_names_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    assert message in told(planned(Checkpoint(), change), "refuse")


def test_two_operators_never_get_one_id(tmp_path: Path) -> None:
    storage = MemoryDisk().open(SOURCE)
    files = Checkpoint().files()
    for path, content in files.items():
        put(storage, path, content)
        if path.startswith("state"):
            put(storage, path.replace("state/0/", "state/1/"), content)
    for names, refused in (({"0": "1"}, True), ({"0": "1", "1": "0"}, False)):
        changes = [{"kind": "rename", "operators": names}]
        plan = plan_of(
            spec_of(transform=changes),
            facts_of(survey.survey(storage, changes=changes_of(*changes))),
        )
        assert ("two of the operators" in told(plan, "refuse")) == refused


# ---- killed and resumed


RENUMBERED = [{"kind": "rewind", "batch": 6, "renumber": True}]
CHANGED_ON_THE_WAY = [
    {"kind": "rewind", "batch": 6},
    {"kind": "compact"},
    {"kind": "rename", "operators": {"0": "1"}},
]


@pytest.mark.parametrize("changes", [CHANGED_ON_THE_WAY, RENUMBERED], ids=["changed", "renumbered"])
def test_a_run_killed_before_and_after_any_effect_ends_where_an_unharmed_one_does(
    tmp_path: Path, changes: list[dict[str, Any]], moments: Callable[[int], range]
) -> None:
    spec = spec_of(transform=changes, waive=["repeated-batches"])
    unharmed = Ground(tmp_path / "unharmed")
    unharmed.write(Checkpoint(batches=9))
    counted = Effects()
    unharmed.wrap = lambda storage: Faulty(storage, counted)
    unharmed.apply(spec)
    assert len(counted.seen) > 20
    for number in moments(len(counted.seen)):
        ground = Ground(tmp_path / str(number))
        ground.write(Checkpoint(batches=9))
        effects = Effects(at(number, Killed))
        ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            ground.apply(spec)
        ground.wrap = lambda storage: storage
        ground.resume()
        assert ground.held(TARGET) == unharmed.held(TARGET), f"killed at effect {number}"


def test_an_operators_metadata_names_places_as_they_are_and_quotes_nothing() -> None:
    """Where it is quoted, Spark takes it for another directory, makes that, and leaves the
    schema unread.
    """
    metadata = (
        b'v2\n{"operatorInfo":{"operatorId":0,"operatorName":"x"},"stateStoreInfo":[{"storeName":"default",'
        b'"numColsPrefixKey":0,"numPartitions":3,"stateSchemaFilePaths":["file:/old '
        b'place/50%25/state/0/s"]}],'
        b'"operatorPropertiesJson":"{}"}'
    )
    mapping = [["file:///old place/50%25", "file:///new place/a%20b"]]
    options = {"mapping": mapping, "unmapped": "keep"}
    (content,) = TRANSFORMS["spark.rewrite-operator-metadata"](options, [lambda: iter((metadata,))])
    assert b"".join(content()) == metadata.replace(
        b"file:/old place/50%25", b"file:/new place/a%20b"
    )
