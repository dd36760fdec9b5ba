"""Every change on every golden checkpoint: the run's own comparison holds, the result could be
restarted, and its keys are where placement puts them. That a real Spark goes on from the results is
shown in acceptance/test_transforms.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.engines.spark.entries.columnar import hashes_of, texts_of
from stateshift.engines.spark.entries.keys import nameable
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite.comparison import SUMS, comparable
from stateshift.engines.spark.rewrite.stores import stores_of
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import FormatError
from stateshift.formats.blocks import binary
from stateshift.formats.spark.commits import decode_commit
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.operator_metadata import decode_operator_metadata
from stateshift.formats.spark.types import decode_struct
from stateshift.formats.spark.unsafe_row import decode_row
from stateshift.specification.transform import Compact
from stateshift.step import CompareImages
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, ShardFiles
from tests.formats.golden import CASES, IDS
from tests.support.checkpoints import put
from tests.support.ground import TARGET, Ground, spec_of

NEWEST = "spark-4.3.0"
STATES = [case for case in CASES if (case / "checkpoint" / "state").is_dir()]
STATEFUL = [case for case in STATES if case.parent.name == NEWEST]
ALL = [
    pytest.param(
        case, id=IDS[CASES.index(case)], marks=() if case in STATEFUL else pytest.mark.slow
    )
    for case in STATES
]

# What of the state is encoded in a way that the other provider has not.
OWN_ENCODING = ("join-rocksdb-v", "tws-", "chained-")

SEVERAL = ("window-hdfs", "join-rocksdb-v3", "window-rocksdb-format2")

CHANGES: dict[str, list[dict[str, Any]]] = {
    "compact": [{"kind": "compact"}],
    "1 partition": [{"kind": "repartition", "partitions": 1}],
    "2 partitions": [{"kind": "repartition", "partitions": 2}],
    "6 partitions": [{"kind": "repartition", "partitions": 6}],
    "7 partitions": [{"kind": "repartition", "partitions": 7}],
    "zstd": [{"kind": "convert", "codec": "zstd"}],
    "rocksdb": [{"kind": "convert", "provider": "rocksdb"}],
    "hdfs": [{"kind": "convert", "provider": "hdfs-backed"}],
    "v1": [{"kind": "convert", "checkpoint_format": "v1"}],
    "v2": [{"kind": "convert", "provider": "rocksdb", "checkpoint_format": "v2"}],
    "several": [
        {"kind": "rewind", "batch": 1},
        {"kind": "repartition", "partitions": 2},
        {"kind": "convert", "codec": "snappy"},
    ],
    "other numbers": [{"kind": "rewind", "batch": 1, "renumber": True}],
    "other numbers, several": [
        {"kind": "rewind", "batch": 1, "renumber": True},
        {"kind": "repartition", "partitions": 2},
        {"kind": "convert", "codec": "snappy"},
    ],
}


def brought(folder: Path, case: Path, changes: list[dict[str, Any]], **keys: Any) -> Ground | str:
    """The golden checkpoint, changed on its way to TARGET; the first refusal where the plan is
    refused.
    """
    ground = Ground(folder)
    # What names the checkpoint itself absolutely has been made here (scripts/golden/make.py).
    source = ground.disk.open(f"file:///tmp/stateshift-golden/{case.name}/checkpoint")
    for path in sorted((case / "checkpoint").rglob("*")):
        if path.is_file():
            put(source, path.relative_to(case / "checkpoint").as_posix(), path.read_bytes())
    proposal = ground.propose(
        spec_of(
            source.location, transform=changes, waive=["paths-stay", "repeated-batches"], **keys
        )
    )
    if proposal.refusals:
        return proposal.refusals[0].message
    ground.apply(proposal)
    return ground


def assert_rightly_refused(case: Path, change: str, message: str) -> None:
    if "cannot be converted to" in message:
        assert change in ("hdfs", "rocksdb", "v2") and case.name.startswith(OWN_ENCODING)
    else:
        assert (
            case.name == "exotic"
            and "collated" in message
            and ("partition" in change or change == "several")
        )


def image_at(storage: Storage) -> Image:
    return survey.survey(storage, changes=(Compact(),)).images[0]


def misplaced(storage: Storage) -> Iterator[str]:
    """Keys that are not in the shard of their hash."""
    image = image_at(storage)
    count = int(image.settings["spark.sql.shuffle.partitions"])
    for store in stores_of(image, image.operators[0].provider == ROCKSDB):
        views = {name: StoreView.of_rule(name, rule) for name, rule in (store.rules or {}).items()}
        for shard in store.shards:
            for name, block in comparable(storage.chunks, shard, image.settings):
                for key, number in zip(
                    block.keys.to_pylist(), hashes_of(views[name], block.keys), strict=True
                ):
                    if number % count != shard.shard:
                        yield f"{key.hex()} in shard {shard.shard}"


@pytest.mark.row("IS-12")
@pytest.mark.sample(50)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", ALL)
def test_what_a_change_leaves_holds_the_same_entries_and_can_be_restarted(
    tmp_path: Path, case: Path, change: str
) -> None:
    ground = brought(tmp_path, case, CHANGES[change])
    if isinstance(ground, str):
        assert_rightly_refused(case, change, ground)
        return
    judged = look.restartable(TARGET, ground.open, thorough=True)
    assert judged.restartable, judged.findings
    assert list(misplaced(ground.open(TARGET))) == []


@pytest.mark.row("IS-17")
@pytest.mark.parametrize("case", ALL)
def test_a_compacted_shard_has_one_file_or_what_rocksdb_calls_one(
    tmp_path: Path, case: Path
) -> None:
    ground = brought(tmp_path, case, CHANGES["compact"])
    assert isinstance(ground, Ground)
    for shard in image_at(ground.open(TARGET)).shards:
        endings = sorted(path.rpartition(".")[2] for path in shard.files)
        assert endings in (["snapshot"], ["sst", "zip"], ["zip"])
    assert not [path for path in ground.held(TARGET) if path.endswith(".delta")]


@pytest.mark.parametrize(
    "case", [case for case in STATEFUL if case.name in SEVERAL], ids=lambda case: case.name
)
def test_a_repartition_says_so_wherever_spark_reads_the_number(tmp_path: Path, case: Path) -> None:
    ground = brought(tmp_path, case, CHANGES["7 partitions"])
    assert isinstance(ground, Ground)
    held = ground.held(TARGET)
    logs = [
        decode_offsets(content) for path, content in held.items() if path.startswith("offsets/")
    ]
    assert len(logs) == 2
    assert {log.conf["spark.sql.shuffle.partitions"] for log in logs} == {"7"}
    told = [
        decode_operator_metadata(content)
        for path, content in held.items()
        if "/_metadata/" in path and not path.endswith("schema")
    ]
    assert told and {store.partitions for one in told for store in one.stores} == {7}
    commit = next(
        decode_commit(content) for path, content in held.items() if path.startswith("commits/")
    )
    assert [len(shards) for shards in commit.state_ids.values()] == (
        [7] if case.name.endswith("format2") else []
    )


def test_operators_that_name_their_schemas_absolutely_name_them_where_they_are(
    tmp_path: Path,
) -> None:
    case = next(case for case in STATEFUL if case.name == "join-rocksdb-v3")
    ground = brought(tmp_path, case, [{"kind": "rename", "operators": {"0": "2"}}])
    assert isinstance(ground, Ground)
    held = ground.held(TARGET)
    told = decode_operator_metadata(held["state/2/_metadata/v2/0"])
    assert told.operator == 2
    for path in told.stores[0].schema_paths:
        assert path.startswith("file:/there/orders/state/2/_stateSchema/")
        assert path.removeprefix("file:/there/orders/") in held
    judged = look.restartable(TARGET, ground.open, thorough=True)
    refusals = [finding for finding in judged.findings if finding.level == "refuse"]
    assert [finding.waive for finding in refusals] == ["operator-numbers"]


@pytest.mark.parametrize(("change", "names"), [("v1", {"6.zip"}), ("hdfs", {"6.snapshot"})])
def test_checkpoint_format_1_has_no_ids_left(tmp_path: Path, change: str, names: set[str]) -> None:
    case = next(case for case in STATEFUL if case.name == "window-rocksdb-format2")
    ground = brought(tmp_path, case, CHANGES[change])
    assert isinstance(ground, Ground)
    held = ground.held(TARGET)
    commit = next(content for path, content in held.items() if path.startswith("commits/"))
    assert commit.startswith(b"v1\n") and b"stateUniqueIds" not in commit
    assert {
        Path(path).name for path in held if path.startswith("state/0/1/") and "SSTs" not in path
    } == names


def test_a_key_in_a_shard_that_is_not_its_own_is_refused_by_name(tmp_path: Path) -> None:
    case = next(case for case in STATEFUL if case.name == "window-hdfs")
    ground = Ground(tmp_path)
    source = ground.disk.open("file:///here/orders")
    for path in sorted((case / "checkpoint").rglob("*")):
        name = path.relative_to(case / "checkpoint").as_posix()
        if path.is_file():  # shards 1 and 2 change places
            swapped = name.replace("state/0/1/", "state/0/_/").replace("state/0/2/", "state/0/1/")
            put(source, swapped.replace("state/0/_/", "state/0/2/"), path.read_bytes())
    with pytest.raises(Exception, match="belongs to shard") as caught:
        ground.apply(
            spec_of(
                transform=CHANGES["2 partitions"], waive=["paths-stay"], verify={"source": "names"}
            )
        )
    assert type(caught.value).__name__ == "Incompatible"
    ground.rollback()
    assert ground.held(TARGET) == {}


def test_a_damaged_file_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    case = next(case for case in STATEFUL if case.name == "window-hdfs")
    ground = Ground(tmp_path)
    source = ground.disk.open("file:///here/orders")
    for path in sorted((case / "checkpoint").rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            name = path.relative_to(case / "checkpoint").as_posix()
            damaged = name.startswith("state/0/1/") and name.endswith((".delta", ".snapshot"))
            put(source, name, content[:-9] + b"x" + content[-8:] if damaged else content)
    with pytest.raises(FormatError) as caught:
        ground.apply(
            spec_of(transform=CHANGES["compact"], waive=["paths-stay"], verify={"source": "names"})
        )
    assert (caught.value.path or "").startswith("state/0/1/")
    assert not [
        path for path in ground.held(TARGET) if path.startswith(("commits", "offsets", "metadata"))
    ]


def entries_at(ground: Ground, location: str) -> dict[tuple[str, str, bytes], bytes]:
    storage = ground.open(location)
    image = image_at(storage)
    found = {}
    for shard in image.shards:
        for store, block in comparable(storage.chunks, shard, image.settings):
            for key, value in block.records():
                assert value is not None
                found[shard.operator, store, key] = value
    return found


def source_of(ground: Ground, case: Path) -> str:
    location = f"file:///tmp/stateshift-golden/{case.name}/checkpoint"
    source = ground.disk.open(location)
    for path in sorted((case / "checkpoint").rglob("*")):
        if path.is_file():
            put(source, path.relative_to(case / "checkpoint").as_posix(), path.read_bytes())
    return location


@pytest.mark.long
@pytest.mark.row("IS-16")
@pytest.mark.parametrize(
    "case", [case for case in STATEFUL if case.name in SEVERAL], ids=lambda case: case.name
)
@pytest.mark.parametrize("by", [2, 3])
def test_the_parts_of_a_split_by_shards_hold_every_entry_once(
    tmp_path: Path, case: Path, by: int
) -> None:
    ground = Ground(tmp_path)
    location, whole = source_of(ground, case), {}
    for part in range(by):
        changes = [{"kind": "split", "by": by, "part": part}]
        target = f"{TARGET}-{part}"
        ground.apply(
            spec_of(location, target, transform=changes, mode="fork", waive=["paths-stay"]),
            f"run-{part}",
        )
        assert look.restartable(target, ground.open, thorough=True).restartable
        found = entries_at(ground, target)
        assert not found.keys() & whole.keys()
        whole |= found
    assert whole == entries_at(ground, location)


@pytest.mark.row("IS-16")
@pytest.mark.parametrize(
    "case", [case for case in STATEFUL if case.name in SEVERAL], ids=lambda case: case.name
)
def test_the_parts_of_a_split_by_a_column_hold_the_keys_with_their_values(
    tmp_path: Path, case: Path
) -> None:
    ground = Ground(tmp_path)
    location = source_of(ground, case)
    column = "field0" if case.name.startswith("join") else "word"
    rules = {
        (s.operator, name): rule
        for s in stores_of(image_at(ground.open(location)), "rocksdb" in case.name)
        for name, rule in (s.rules or {}).items()
    }
    columns = {place: nameable(rule, column) for place, rule in rules.items()}
    everything = entries_at(ground, location)
    words = {}
    for operator, store, key in everything:
        at = columns[operator, store]
        assert at is not None
        view = StoreView.of_rule(store, rules[operator, store])
        words[operator, store, key] = texts_of(view, at, binary([key]))[0]
    chosen = sorted({word for word in words.values() if word is not None})[::2]
    changes = [{"kind": "split", "column": column, "values": chosen}]
    ground.apply(spec_of(location, transform=changes, mode="fork", waive=["paths-stay"]))
    wanted = {place: value for place, value in everything.items() if words[place] in chosen}
    assert 0 < len(wanted) < len(everything)
    assert entries_at(ground, TARGET) == wanted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "split", "by": 4, "part": 0}, "has 3 shards: they cannot make 4 parts"),
        (
            {"kind": "split", "column": "nowhere", "values": ["x"]},
            "default has no key column nowhere",
        ),
        (
            {"kind": "split", "column": "window", "values": ["x"]},
            "default has no key column window of text",
        ),
    ],
    ids=["too many parts", "no such column", "no value to name"],
)
def test_a_split_that_cannot_be_made_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    ground = Ground(tmp_path)
    location = source_of(ground, next(case for case in STATEFUL if case.name == "window-hdfs"))
    proposal = ground.propose(
        spec_of(location, transform=[change], mode="fork", waive=["paths-stay"])
    )
    assert any(message in finding.message for finding in proposal.refusals), proposal.refusals


def test_a_split_by_a_column_says_whose_keys_it_leaves_behind(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    location = source_of(ground, next(case for case in STATEFUL if case.name == "window-hdfs"))
    change = {"kind": "split", "column": "word", "values": ["alpha", None]}
    proposal = ground.propose(
        spec_of(location, transform=[change], mode="fork", waive=["paths-stay"])
    )
    told = [
        finding.message
        for plan in proposal.plans
        for finding in plan.findings
        if finding.level == "warn"
    ]
    assert any(
        "whose word is none of 'alpha', null are not in this part" in message for message in told
    )


# ---- merge: what was split is put together again


def parts_of(ground: Ground, location: str, by: int) -> list[str]:
    targets = [f"{TARGET}-{part}" for part in range(by)]
    for part, target in enumerate(targets):
        changes = [{"kind": "split", "by": by, "part": part}]
        ground.apply(
            spec_of(location, target, transform=changes, mode="fork", waive=["paths-stay"]),
            f"run-{part}",
        )
    return targets


@pytest.mark.long
@pytest.mark.row("IS-16")
@pytest.mark.parametrize(
    "case", [case for case in STATEFUL if case.name in SEVERAL], ids=lambda case: case.name
)
def test_checkpoints_of_disjoint_keys_become_one_that_holds_all_of_them(
    tmp_path: Path, case: Path
) -> None:
    ground = Ground(tmp_path)
    location = source_of(ground, case)
    first, *others = parts_of(ground, location, 3)
    merge = [{"kind": "merge", "locations": others}]
    ground.apply(spec_of(first, transform=merge, waive=["paths-stay"]), "merge")
    assert entries_at(ground, TARGET) == entries_at(ground, location)
    assert look.restartable(TARGET, ground.open, thorough=True).restartable
    held = ground.held(TARGET)
    own = decode_offsets(ground.held(location)["offsets/5"])
    assert decode_offsets(held["offsets/5"]).lines == own.lines * 3
    logs = {path.split("/")[1] for path in held if path.startswith("sources/")}
    assert logs == {str(number) for number in range(3 * len(own.lines))}
    assert not [path for path in held if path.endswith(".delta")]
    for place in (first, *others):
        assert not look.restartable(place, ground.open).restartable, "what was merged is fenced"
    ground.rollback("merge")
    assert ground.held(TARGET) == {}
    assert all(look.restartable(place, ground.open).restartable for place in (first, *others))


def test_a_key_in_two_checkpoints_is_refused_by_name(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    case = next(case for case in STATEFUL if case.name == "window-hdfs")
    location = source_of(ground, case)
    ground.apply(spec_of(location, f"{TARGET}-0", mode="fork", waive=["paths-stay"]), "fork")
    merge = [{"kind": "merge", "locations": [f"{TARGET}-0"]}]
    with pytest.raises(Exception, match="is in another of the merged checkpoints, too") as caught:
        ground.apply(spec_of(location, transform=merge, waive=["paths-stay"]), "merge")
    assert type(caught.value).__name__ == "Incompatible"


def test_values_of_common_keys_are_added_where_the_spec_names_their_columns(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    case = next(case for case in STATEFUL if case.name == "window-hdfs")
    location = source_of(ground, case)
    ground.apply(spec_of(location, f"{TARGET}-0", mode="fork", waive=["paths-stay"]), "fork")
    image = image_at(ground.open(location))
    value = decode_struct(spark_image(image).schemas["0/default"]["value"])
    columns = [name for name in dict.fromkeys(value.names) if name.startswith(("count", "sum"))]
    merge = [{"kind": "merge", "locations": [f"{TARGET}-0"], "sum": columns}]
    ground.apply(spec_of(location, transform=merge, waive=["paths-stay"]), "merge")
    before, after = entries_at(ground, location), entries_at(ground, TARGET)
    assert before.keys() == after.keys()
    for place in before:
        one, both = decode_row(before[place], value), decode_row(after[place], value)
        for name, single, double in zip(value.names, one, both, strict=True):
            assert double == (single if name not in columns or single is None else 2 * single)


@pytest.mark.parametrize("name", ["window-hdfs", "window-rocksdb-changelog"])
def test_what_was_added_is_held_against_the_sum_of_the_sources(tmp_path: Path, name: str) -> None:
    ground = Ground(tmp_path)
    location = source_of(ground, next(case for case in STATEFUL if case.name == name))
    ground.apply(spec_of(location, f"{TARGET}-0", mode="fork", waive=["paths-stay"]), "fork")
    merge = [{"kind": "merge", "locations": [f"{TARGET}-0"], "sum": ["count", "sum"]}]
    proposed = ground.propose(spec_of(location, transform=merge, waive=["paths-stay"]))
    ground.apply(proposed, "merge")
    (step,) = [
        step
        for step in proposed.plans[-1]
        if isinstance(step, CompareImages) and step.source_shards
    ]

    def folded(
        place: str, shards: tuple[ShardFiles, ...], settings: Mapping[str, str]
    ) -> Counter[tuple[Any, ...]]:
        storage = ground.open(place)
        blocks = (pair for shard in shards for pair in comparable(storage.chunks, shard, settings))
        return Counter((store, *record) for store, block in blocks for record in block.records())

    sums = folded(step.source, step.source_shards, step.settings)
    assert sums == folded(step.target, step.target_shards or (), step.target_settings or {})
    assert set(sums.values()) == {1}
    place = json.loads(step.settings[SUMS])["places"][0]
    one = tuple(
        replace(s, files=tuple(p for p in s.files if p.startswith(place)))
        for s in step.source_shards
    )
    assert not folded(step.source, one, step.settings) & sums, "one source alone is not their sum"


@pytest.mark.parametrize(
    ("other", "change", "message"),
    [
        ("window-rocksdb", {}, "has spark.sql.streaming.stateStore.providerClass ="),
        ("dedup-zstd", {}, "has other operators than"),
        (None, {"sum": ["nothing"]}, "no state has columns nothing that can be added"),
        ("nothing-there", {}, "is no checkpoint with a committed batch (empty)"),
    ],
    ids=["another provider", "another query", "nothing to add", "nothing there"],
)
def test_checkpoints_that_are_not_alike_are_not_merged(
    tmp_path: Path, other: str | None, change: dict[str, Any], message: str
) -> None:
    ground = Ground(tmp_path)
    cases = {case.name: case for case in STATEFUL}
    location = source_of(ground, cases["window-hdfs"])
    there = f"{TARGET}-0"
    if other in cases:
        there = source_of(ground, cases[other])
    elif other is None:
        ground.apply(spec_of(location, there, mode="fork", waive=["paths-stay"]), "fork")
    merge = [{"kind": "merge", "locations": [there], **change}]
    proposal = ground.propose(spec_of(location, transform=merge, waive=["paths-stay"]))
    assert any(message in finding.message for finding in proposal.refusals), proposal.refusals


@pytest.mark.row("IS-16")
def test_operators_that_change_places_keep_their_state_under_the_other_id(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    location = source_of(ground, next(case for case in CASES if case.name == "chained-rocksdb"))
    swap = [{"kind": "rename", "operators": {"0": "2", "2": "0"}}]
    ground.apply(spec_of(location, transform=swap, waive=["paths-stay"]))
    before, after = (image_at(ground.open(place)) for place in (location, TARGET))
    names = {operator.id: operator.name for operator in before.operators}
    assert {o.id: o.name for o in after.operators} == {
        "0": names["2"],
        "1": names["1"],
        "2": names["0"],
    }
    swapped = {"0": "2", "1": "1", "2": "0"}
    found = {
        place: sorted(
            (ids[shard.operator], store, *record)
            for shard in image.shards
            for store, block in comparable(ground.open(place).chunks, shard, image.settings)
            for record in block.records()
        )
        for place, image, ids in (
            (location, before, swapped),
            (TARGET, after, {o: o for o in swapped}),
        )
    }
    assert found[location] == found[TARGET] and found[TARGET]
    assert look.restartable(TARGET, ground.open, thorough=True).restartable
    for number in swapped:
        metadata = ground.open(TARGET).read(f"state/{number}/_metadata/metadata", 1 << 20)
        assert decode_operator_metadata(metadata).operator == int(number)


def shown_by(ground: Ground) -> dict[str, Any]:
    """What each step of the run has shown, as its journal has it."""
    lines = (ground.folder / "run" / "journal").read_text().splitlines()
    records = [json.loads(line.partition(" ")[2]) for line in lines]
    return {record["step"]: record["evidence"] for record in records if "evidence" in record}


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("change", ["compact", "7 partitions", "rocksdb", "hdfs"])
def test_a_source_comes_to_the_same_read_once_and_read_twice(
    tmp_path: Path, case: Path, change: str
) -> None:
    once = brought(tmp_path / "once", case, CHANGES[change])
    twice = brought(tmp_path / "twice", case, CHANGES[change], verify="twice")
    if isinstance(once, str) or isinstance(twice, str):
        assert once == twice
        return
    shown_once, shown_twice = shown_by(once), shown_by(twice)
    for step, evidence in shown_once.items():
        if step.startswith("compare/"):
            assert evidence == shown_twice[step]
        if step.startswith("transform/state"):
            assert evidence["read"] and "read" not in shown_twice[step]
