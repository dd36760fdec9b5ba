"""Real images moved, merged, split and renamed on a disk in memory: what the target holds, read
as Flink reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stateshift.engines.flink import jvm
from stateshift.engines.flink.entries.image import (
    SETTING,
    Broadcast,
    canonical_sections,
    is_canonical,
    numbered_entries,
    of_operator,
)
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.rewrite import rescale
from stateshift.engines.flink.streams import Streams
from stateshift.engines.flink.survey import image as survey_of_image
from stateshift.errors import Incompatible, PlanError
from stateshift.formats.flink import key_groups
from stateshift.formats.flink.java_data import DataInput, Longs
from stateshift.formats.flink.key_groups import (
    groups_of,
    hash_of,
    hash_string,
    key_group,
    key_start,
    prefix_bytes,
)
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.keyed_state import Header, decode_header, encode_section
from stateshift.formats.flink.keyed_state import entries as keyed_entries
from stateshift.formats.flink.metadata import SubtaskState, decode_metadata, encode_metadata
from stateshift.formats.flink.operator_handles import BROADCAST
from stateshift.formats.flink.serializers import Serializer, read_snapshot, value
from stateshift.formats.flink.stream_handles import Inline, RelativeFile
from stateshift.formats.uid import flink_operator_id
from stateshift.plan import Plan
from stateshift.specification import Spec, parse_spec
from stateshift.step import TransformShard
from stateshift.step.images import CompareImages
from stateshift.testing.memory_storage import MemoryDisk
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.engines.flink import golden
from tests.support.ground import Ground

TARGET = "file:///there/savepoint"
TWO, ONE, OTHER = "count-two", "count-canonical-hashmap", "count-one-payments"
CANONICAL = [
    *(f"count-canonical-{kind}" for kind in ("hashmap", "rocksdb", "tuple", "int-200", "long-200")),
    *("kinds-canonical-hashmap", "kinds-canonical-rocksdb"),
    *("sql-canonical-hashmap", "sql-plan", "tables-canonical"),
]


def spec_of(*sources: str, **job: Any) -> Spec:
    plain = {
        "name": "orders",
        "existing_savepoint_paths": list(sources),
        "new_savepoint_path": TARGET,
        **job,
    }
    return parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [plain]}))


def entries(
    disk: MemoryDisk, location: str, whole: bool = False, once: bool = False
) -> dict[str, list[tuple[str, bytes, bytes]]]:
    """By operator, in an order that says nothing. `once`: broadcast state, of which each subtask
    has a copy.
    """
    storage, survey = golden.looked_at(disk, location)
    image = survey.images[0]
    streams = Streams(storage.chunks, places_of(image))
    operators = metadata_of(image).operators
    return {o.id.hex(): sorted(of_operator(o, streams, whole, Broadcast(once))) for o in operators}


@pytest.mark.row("IF-6", "IF-8", "IF-9", "IF-10", "IF-11", "IF-12")
@pytest.mark.parametrize("name", golden.NAMES)
def test_any_image_becomes_one_folder_that_holds_the_same_and_can_lie_anywhere(
    ground: Ground, name: str
) -> None:
    source = golden.write(ground.disk, name)
    before = ground.disk.snapshot()
    wanted = entries(ground.disk, source)
    assert ground.apply(spec_of(source)).state == "finished"
    assert {
        path: content for path, content in ground.disk.snapshot().items() if path in before
    } == before
    held = ground.held(TARGET)
    for place in list(ground.disk.snapshot()):
        ground.remove(place if "://" in place else f"file://{place}")
    for path, content in held.items():
        ground.put(f"file:///moved/again/{path}", content)
    assert entries(ground.disk, "file:///moved/again") == wanted
    storage, survey = golden.looked_at(ground.disk, "file:///moved/again")
    assert survey.images[0].embedded == ()
    assert [f for f in survey.images[0].findings if f.level != "note"] == []
    assert golden.damages(storage, survey) == []


@pytest.mark.parametrize(
    "case", ["count-canonical-rocksdb", "count-native-hashmap", "kinds-compressed"]
)
def test_key_groups_copied_as_they_are_differ_if_one_byte_of_their_file_does(
    ground: Ground, case: str
) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    ground.apply(spec_of(source))
    wanted = entries(ground.disk, source, whole=True)
    assert entries(ground.disk, TARGET, whole=True) == wanted
    own = [
        o
        for o in metadata_of(golden.looked_at(ground.disk, TARGET)[1].images[0]).operators
        if o.subtasks
    ]
    handles = [(o.id.hex(), s.managed_keyed) for o in own for s in o.subtasks or ()]
    files = [(id_, h.stream) for id_, h in handles if isinstance(h, KeyGroups)]
    for id_, stream in files:
        assert isinstance(stream, RelativeFile)
        held = ground.held(TARGET)[stream.path]
        for place in (0, stream.size // 2, stream.size - 1):
            ground.put(
                f"{TARGET}/{stream.path}",
                held[:place] + bytes((held[place] ^ 1,)) + held[place + 1 :],
            )
            assert entries(ground.disk, TARGET, whole=True)[id_] != wanted[id_]
        ground.put(f"{TARGET}/{stream.path}", held)
    assert files and entries(ground.disk, TARGET, whole=True) == wanted


@pytest.mark.parametrize(
    ("change", "whole"), [({}, True), ({"parallelism": 3}, False), ({"max_parallelism": 32}, False)]
)
def test_only_operators_that_are_dealt_anew_are_compared_entry_by_entry(
    ground: Ground, change: dict[str, int], whole: bool
) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{ONE}")
    transform = [{"kind": "rescale", **change}] if change else []
    steps = [
        s
        for p in ground.propose(spec_of(source, transform=transform)).plans[0].phases
        for s in p.steps
    ]
    (compare,) = [step for step in steps if isinstance(step, CompareImages)]
    counted = flink_operator_id("orders-count")
    assert [counted in json.loads(side.settings[SETTING])["whole"] for side in compare.sides] == [
        whole,
        whole,
    ]


@pytest.mark.row("IF-7")
def test_two_savepoints_become_one(ground: Ground) -> None:
    one, other = (golden.write(ground.disk, f"flink-2.3.0/{case}") for case in (ONE, OTHER))
    ground.apply(spec_of(one, other))
    assert entries(ground.disk, TARGET) == entries(ground.disk, one) | entries(ground.disk, other)


def halves(ground: Ground, case: str, source: str = "") -> tuple[str, str]:
    """An image as two, each with all operators and the keys of every other entry's."""
    source = source or golden.write(ground.disk, f"flink-2.3.0/{case}")
    storage, survey = golden.looked_at(ground.disk, source)
    image = metadata_of(survey.images[0])
    streams = Streams(storage.chunks, places_of(survey.images[0]))
    places = []
    for half in (0, 1):
        operators = []
        for operator in image.operators:
            subtasks = []
            for subtask in operator.subtasks or ():
                handle = subtask.managed_keyed
                if is_canonical(handle, streams):
                    assert isinstance(handle, KeyGroups)
                    cut = halved(handle, streams, operator.max_parallelism, half)
                    handle = replace(
                        handle,
                        offsets=Longs.of(cut[0]),
                        stream=Inline("", cut[1]) if cut[1] else None,
                    )
                subtask = replace(subtask, managed_keyed=handle)
                subtasks.append(subtask)
            coordinator = operator.coordinator if not half else None
            operators.append(replace(operator, subtasks=tuple(subtasks), coordinator=coordinator))
        place = f"file:///half/{half}"
        for path, content in ground.held(source).items():
            if path != "_metadata":
                ground.put(f"{place}/{path}", content)
        ground.put(
            f"{place}/_metadata", encode_metadata(replace(image, operators=tuple(operators)))
        )
        places.append(place)
    return places[0], places[1]


def in_both(ground: Ground, places: tuple[str, str]) -> list[str]:
    """Operators that have state in both images."""
    one, other = (golden.looked_at(ground.disk, place)[1].images[0].operators for place in places)
    return sorted(
        {operator.id for operator in one if operator.stores} & {o.id for o in other if o.stores}
    )


def halved(handle: KeyGroups, streams: Streams, most: int, half: int) -> tuple[list[int], bytes]:
    found = {
        group: (header, content) for header, group, content in canonical_sections(handle, streams)
    }
    if not found or handle.stream is None:
        return list(handle.offsets), b""
    header = next(iter(found.values()))[0]
    content = bytearray(streams.head(handle.stream, header.size))
    content[4] = 0  # uncompressed from here on
    offsets = []
    for group in range(handle.first, handle.first + handle.count):
        kept = [
            (state, key, raw)
            for state, key, raw in (
                keyed_entries(found[group][1], prefix_bytes(most), group) if group in found else ()
            )
            if hash_of(header, state, key[prefix_bytes(most) :]) % 2 == half
        ]
        offsets.append(len(content) if kept else 0)
        content += encode_section(kept)
    return offsets, bytes(content)


@pytest.mark.long
@pytest.mark.row("IF-7", "IF-12")
@pytest.mark.parametrize(
    "change", [{}, {"parallelism": 3}, {"parallelism": 1, "max_parallelism": 200}], ids=str
)
@pytest.mark.parametrize("case", CANONICAL)
def test_an_operator_of_two_images_becomes_one_where_their_keys_differ(
    ground: Ground, case: str, change: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescale, "EVIDENCE", 1)
    places = halves(ground, case)
    wanted: dict[str, set[Any]] = {}
    for place in places:
        for operator, found in entries(ground.disk, place, once=True).items():
            wanted.setdefault(operator, set()).update(found)
    operators = in_both(ground, places)
    changes = [{"kind": "rescale", **change}] if change else []
    ground.apply(spec_of(*places, transform=[{"kind": "union", "operators": operators}, *changes]))
    assert {
        own: set(found) for own, found in entries(ground.disk, TARGET, once=True).items()
    } == wanted
    assert_owned(ground.disk, TARGET, change.get("parallelism"))
    storage, survey = golden.looked_at(ground.disk, TARGET)
    assert golden.damages(storage, survey) == []
    before = ground.disk.snapshot()
    ground.rollback()
    assert ground.held(TARGET) == {} and ground.disk.snapshot() != before


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("kinds-compressed-rocksdb", "operator state is compressed"),
        ("count-native-hashmap", "hashmap backend's own format"),
        ("count-native-rocksdb", "files of RocksDB"),
    ],
)
def test_what_cannot_become_one_is_refused_before_anything_is(
    ground: Ground, case: str, why: str
) -> None:
    places = halves(ground, case)
    operators = in_both(ground, places)
    with pytest.raises(PlanError, match=why):
        ground.apply(spec_of(*places, transform=[{"kind": "union", "operators": operators}]))


def test_a_key_that_is_in_two_images_is_named_and_nothing_is_published(ground: Ground) -> None:
    case = f"flink-2.3.0/{ONE}"
    one, other = golden.write(ground.disk, case), golden.write(ground.disk, case, "file:///other")
    changes: list[Any] = [{"kind": "drop", "of": other, "operators": ["orders-source"]}]
    changes.append({"kind": "union", "operators": ["orders-count"]})
    assert any(
        "1 operators with state are left behind" in finding.message
        for finding in ground.propose(spec_of(one, other, transform=changes)).plans[0].findings
    )
    with pytest.raises(Incompatible, match=r"key 'key-[0-9].* is in two images"):
        ground.apply(spec_of(one, other, transform=changes))
    assert "_metadata" not in ground.held(TARGET)
    ground.rollback()
    assert ground.held(TARGET) == {}


def test_keys_of_other_types_do_not_become_one(ground: Ground) -> None:
    one, other = (golden.write(ground.disk, f"flink-2.3.0/{case}") for case in (ONE, OTHER))
    changes = [
        {"kind": "rename", "of": other, "operators": {"payments-count": "orders-count"}},
        {"kind": "union", "operators": ["orders-count"]},
    ]
    with pytest.raises(Incompatible, match="the images have keys of other types"):
        ground.apply(spec_of(one, other, transform=changes))


def test_a_rename_of_one_image_leaves_the_other_s_operators_alone(ground: Ground) -> None:
    case = f"flink-2.3.0/{ONE}"
    one, other = golden.write(ground.disk, case), golden.write(ground.disk, case, "file:///other")
    parts = ("source", "count", "lines")
    changes = [
        {
            "kind": "rename",
            "of": other,
            "operators": {f"orders-{part}": f"south-{part}" for part in parts},
        }
    ]
    ground.apply(spec_of(one, other, transform=changes))
    held = entries(ground.disk, TARGET)
    before = entries(ground.disk, one)
    for part in ("source", "count"):
        ids = [flink_operator_id(f"{name}-{part}") for name in ("orders", "south")]
        assert held[ids[0]] == held[ids[1]] == before[ids[0]]


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        (
            [{"kind": "rename", "of": "file:///nowhere", "operators": {"orders-count": "x"}}],
            "which is none of the images",
        ),
        (
            [{"kind": "union", "operators": ["orders-cuont"]}],
            "no operator has the uid or id 'orders-cuont'",
        ),
        ([{"kind": "union", "operators": ["orders-count", "payments-count"]}], "in one image only"),
        (
            [{"kind": "rename", "operators": {"orders-count": "payments-count"}}],
            "comes from two images",
        ),
        (
            [{"kind": "rename", "operators": {"orders-count": "x" * 65_536}}],
            "longer than Flink can write a uid",
        ),
    ],
)
def test_a_union_or_rename_that_means_nothing_is_refused(
    ground: Ground, changes: Any, fact: str
) -> None:
    one, other = (golden.write(ground.disk, f"flink-2.3.0/{case}") for case in (ONE, OTHER))
    with pytest.raises(PlanError, match=fact):
        ground.apply(spec_of(one, other, transform=changes))


@pytest.mark.row("IF-3", "IF-4", "IF-7", "IF-13")
def test_one_savepoint_becomes_two_by_the_uids_of_operators(ground: Ground) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{TWO}")
    wanted = entries(ground.disk, source)
    uids = [f"payments-{part}" for part in ("source", "count", "lines")]
    ground.apply(spec_of(source, operators=uids))
    ids = {flink_operator_id(uid) for uid in uids}
    assert entries(ground.disk, TARGET) == {own: held for own, held in wanted.items() if own in ids}


@pytest.mark.row("IF-15")
def test_what_is_dropped_is_left_behind_with_its_files(ground: Ground) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{TWO}")
    uids = [f"orders-{part}" for part in ("source", "count", "lines")]
    ground.apply(spec_of(source, transform=[{"kind": "drop", "operators": uids}]))
    assert len(ground.held(TARGET)) < len(ground.held(source))
    assert not set(map(flink_operator_id, uids)) & entries(ground.disk, TARGET).keys()


@pytest.mark.row("IF-15")
def test_a_renamed_operator_has_the_id_of_its_new_uid_and_the_same_state(ground: Ground) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{ONE}")
    ground.apply(
        spec_of(source, transform=[{"kind": "rename", "operators": {"orders-count": "counted"}}])
    )
    old, new = entries(ground.disk, source), entries(ground.disk, TARGET)
    assert new.pop(flink_operator_id("counted")) == old.pop(flink_operator_id("orders-count"))
    assert new == old
    operator = next(
        o for o in decode_metadata(ground.held(TARGET)["_metadata"]).operators if o.uid == "counted"
    )
    assert operator.id.hex() == flink_operator_id("counted")


@pytest.mark.row("IF-18")
@pytest.mark.parametrize(("flink", "version"), [("1.20", 4), ("2.0.1", 5), ("2.3", 6)])
@pytest.mark.parametrize("case", [ONE, "count-unaligned-merging"])
def test_metadata_is_written_for_an_older_flink(
    ground: Ground, flink: str, version: int, case: str
) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    wanted = entries(ground.disk, source)
    ground.apply(spec_of(source, transform=[{"kind": "convert", "flink": flink}]))
    assert decode_metadata(ground.held(TARGET)["_metadata"]).version == version
    assert entries(ground.disk, TARGET) == wanted


@pytest.mark.parametrize("case", [*CANONICAL, "count-native-hashmap", "kinds-compressed"])
@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_key_groups_are_cut_and_joined_for_another_parallelism(
    ground: Ground, case: str, parallelism: int
) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    wanted = entries(ground.disk, source, once=True)
    ground.apply(spec_of(source, transform=[{"kind": "rescale", "parallelism": parallelism}]))
    assert entries(ground.disk, TARGET, once=True) == wanted
    assert_owned(ground.disk, TARGET, parallelism if case != "kinds-compressed" else None)


@pytest.mark.row("IF-15")
@pytest.mark.parametrize("case", [*CANONICAL, "kinds-compressed-rocksdb"])
@pytest.mark.parametrize("groups", [4, 32, 128, 129, 300])
def test_keys_are_dealt_into_another_number_of_groups(
    ground: Ground, case: str, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescale, "EVIDENCE", 1)  # five keys in eight key groups
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    wanted = entries(ground.disk, source)
    ground.apply(spec_of(source, transform=[{"kind": "rescale", "max_parallelism": groups}]))
    assert entries(ground.disk, TARGET) == wanted
    assert_owned(ground.disk, TARGET, None)
    storage, survey = golden.looked_at(ground.disk, TARGET)
    assert {o.details["max_parallelism"] for o in survey.images[0].operators} == {groups}
    assert golden.damages(storage, survey) == []


def test_what_is_set_to_one_key_group_stays_so_beside_operators_of_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQL sets the aggregate of all rows so: Flink restores no other max parallelism then."""
    monkeypatch.setattr(rescale, "EVIDENCE", 1)
    grounds = [Ground(tmp_path / str(number)) for number in range(4)]
    ground = grounds[0]
    for other in grounds[1:]:
        other.disk = ground.disk
    tables = golden.write(ground.disk, "flink-2.3.0/tables-canonical")
    single, both = "file:///there/single", "file:///there/both"
    one = [{"kind": "rescale", "max_parallelism": 1}]
    grounds[0].apply(spec_of(tables, new_savepoint_path=single, transform=one))
    sql = golden.write(ground.disk, "flink-2.3.0/count-canonical-hashmap")
    grounds[1].apply(spec_of(single, sql, new_savepoint_path=both))
    more = [{"kind": "rescale", "max_parallelism": 32}]
    grounds[2].apply(spec_of(both, transform=more))
    assert entries(ground.disk, TARGET) == entries(ground.disk, both)
    groups = {True: set[int](), False: set[int]()}
    image = golden.looked_at(ground.disk, single)[1].images[0]
    of_tables = {operator.id for operator in metadata_of(image).operators}
    for operator in metadata_of(golden.looked_at(ground.disk, TARGET)[1].images[0]).operators:
        groups[operator.id in of_tables].add(operator.max_parallelism)
    assert groups == {True: {1}, False: {32}}
    with pytest.raises(PlanError, match="one key group does not show how this one does"):
        grounds[3].apply(spec_of(single, new_savepoint_path="file:///there/alone", transform=more))


def test_what_is_set_to_one_key_group_stays_so_where_it_alone_has_keys(tmp_path: Path) -> None:
    """As `select count(*)`, whose source has the max parallelism of the job; also of two images."""
    grounds = [Ground(tmp_path / str(number)) for number in range(3)]
    ground = grounds[0]
    for other in grounds[1:]:
        other.disk = ground.disk
    source, single = golden.write(ground.disk, f"flink-2.3.0/{ONE}"), "file:///there/single"
    drop = {"kind": "drop", "operators": ["orders-lines"]}
    one = {"kind": "rescale", "max_parallelism": 1, "parallelism": 1}
    grounds[0].apply(spec_of(source, new_savepoint_path=single, transform=[drop, one]))
    counted, operators = flink_operator_id("orders-count"), []
    image = decode_metadata(ground.held(single)["_metadata"])
    for operator in image.operators:
        most = 1 if operator.id.hex() == counted else 8
        operators.append(replace(operator, max_parallelism=most))
    ground.put(f"{single}/_metadata", encode_metadata(replace(image, operators=tuple(operators))))
    more = {"kind": "rescale", "max_parallelism": 32, "parallelism": 2}
    places, united = halves(ground, ONE, single), "file:///there/united"
    union = {"kind": "union", "operators": in_both(ground, places)}
    grounds[1].apply(spec_of(single, transform=[more]))
    grounds[2].apply(spec_of(*places, new_savepoint_path=united, transform=[union, more]))
    several = spec_of(places[0], source, transform=[{**union, "operators": ["orders-count"]}, more])
    (plan,) = grounds[1].propose(several).plans
    (told,) = [
        each for each in plan.refusals if "in one key group, as its code says" in each.message
    ]
    assert '{"kind": "drop", "operators": ["UID"], "of": ' in (told.hint or "")
    for target in (TARGET, united):
        assert entries(ground.disk, target)[counted] == entries(ground.disk, single)[counted]
        for operator in decode_metadata(ground.held(target)["_metadata"]).operators:
            is_set = operator.id.hex() == counted
            assert operator.max_parallelism == (1 if is_set else 32)
            assert operator.parallelism == 1 or not is_set


@pytest.mark.row("W-9")
def test_rows_as_keys_are_dealt_by_their_hash(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescale, "EVIDENCE", 9)  # three keys in eight key groups
    source = golden.write(ground.disk, "flink-2.3.0/typed-canonical")
    drop = {"kind": "drop", "operators": ["pojos"]}
    change = {"kind": "rescale", "max_parallelism": 300}
    ground.apply(spec_of(source, transform=[drop, change]))
    wanted = entries(ground.disk, source)
    found = entries(ground.disk, TARGET)
    assert found and found == {own: of for own, of in wanted.items() if own in found}
    assert len(wanted) == len(found) + 1


@pytest.mark.parametrize(
    ("case", "groups", "shown"),
    [
        ("typed-canonical", 1, "one key group does not"),
        ("typed-canonical", 2, "3 keys in 2 key groups do not"),
        ("typed-canonical", 64, "3 keys in 64 key groups do not"),
        ("typed-canonical", 128, ""),
        ("tables-canonical", 1, "one key group does not"),
        ("tables-canonical", 8, "5 keys in 8 key groups do not"),
        ("tables-canonical", 16, ""),
    ],
)
def test_keys_that_jobs_hash_in_several_ways_have_to_show_how_by_their_key_groups(
    case: str, groups: int, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Row.withNames() and Row.of() the bytes are the same, and the hash is another; so it is of
    RowData of a DataStream. By chance each key stands where it is looked for."""
    first, second = Ground(tmp_path / "1"), Ground(tmp_path / "2")
    second.disk = first.disk
    source, dealt = golden.write(first.disk, f"flink-2.3.0/{case}"), "file:///there/dealt"
    changes: list[Any] = [{"kind": "rescale", "max_parallelism": groups, "parallelism": 1}]
    if case == "typed-canonical":
        changes.append({"kind": "drop", "operators": ["pojos", "lines"]})
    with monkeypatch.context() as lowered:
        lowered.setattr(rescale, "EVIDENCE", 1)
        first.apply(spec_of(source, new_savepoint_path=dealt, transform=changes))
    asked = spec_of(dealt, transform=[{"kind": "rescale", "max_parallelism": 256}])
    if not shown:
        assert second.apply(asked).state == "finished"
        return
    before = first.disk.snapshot()
    with pytest.raises(PlanError, match=shown) as refused:
        second.apply(asked)
    wanted = (
        "leave it behind"
        if groups == 1
        else f"once it has {-(-20 // (groups.bit_length() - 1))} keys"
    )
    assert wanted in (refused.value.hint or "") and first.disk.snapshot() == before


def test_few_keys_that_agree_with_the_hash_are_dealt_where_a_user_waives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that do not agree, or of which nothing is shown, are dealt by no waiver."""
    grounds = [Ground(tmp_path / str(number)) for number in range(3)]
    source = golden.write(grounds[0].disk, "flink-2.3.0/typed-canonical")
    for other in grounds[1:]:
        other.disk = grounds[0].disk
    drop = {"kind": "drop", "operators": ["pojos", "lines"]}
    waived = {"transform": [drop, {"kind": "rescale", "max_parallelism": 300}]}
    waived["waive"] = ["key-hash"]  # type: ignore[list-item]
    proposal = grounds[0].propose(spec_of(source, **waived))
    (plan,) = proposal.plans
    told = [each for each in plan.findings if "key groups do not show" in each.message]
    assert {each.level for each in told} == {"warn"}
    assert all(each.message.endswith("(waived: key-hash)") for each in told)
    assert grounds[0].apply(proposal).state == "finished"
    with monkeypatch.context() as other_hash:
        other_hash.setattr(key_groups, "code_of", lambda serializer, key: 4)
        with pytest.raises(PlanError, match="hashes its keys in a way of its own"):
            grounds[1].apply(spec_of(source, new_savepoint_path="file:///there/2", **waived))


def code_of_id(content: Any, starts: Any, ends: Any, snapshot: bytes, times: int = 31) -> Any:
    """The hash codes of keys by the class jobs.Typed.Id, as its source has it."""
    serializer = read_snapshot(DataInput(snapshot, "a serializer"), nested=True)
    codes = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        own = value(serializer, DataInput(content[start:end].tobytes(), "a key"))
        assert isinstance(own, dict)
        codes.append(times * hash_string(own["name"]) + own["number"] & 0xFFFFFFFF)
    return np.array(codes, np.uint32)


@pytest.mark.parametrize("united", [False, True])
def test_objects_are_dealt_by_the_hash_codes_of_the_jobs_own_classes(
    united: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grounds = [Ground(tmp_path / str(number)) for number in range(2)]
    ground, case = grounds[0], "typed-canonical"
    grounds[1].disk = ground.disk
    sources = [golden.write(ground.disk, f"flink-2.3.0/{case}")]
    wanted = entries(ground.disk, sources[0])[flink_operator_id("pojos")]
    asked: list[tuple[dict[str, str], str | None]] = []
    times, jar = 31, tmp_path / "job.jar"
    jar.write_bytes(b"its classes")

    def hashing(digests: dict[str, str], flink: str | None) -> Any:
        asked.append((digests, flink))
        return lambda snapshot: partial(code_of_id, snapshot=snapshot, times=times)

    for module in (jvm, survey_of_image):
        monkeypatch.setattr(module, "hashing", hashing)
    monkeypatch.setattr(rescale, "EVIDENCE", 9)  # a few keys in eight key groups
    rescaled = {"kind": "rescale", "max_parallelism": 300, "classes": [str(jar)], "flink": "/f"}
    changes: list[Any] = [rescaled, {"kind": "drop", "operators": ["plain", "mixed"]}]
    if united:
        sources = [*halves(ground, case)]
        changes.append({"kind": "union", "operators": ["pojos"]})
        changes[1]["of"] = sources[0]
        leave = [*changes[1]["operators"], "numbers"]
        changes.append({"kind": "drop", "operators": leave, "of": sources[1]})
    spec = spec_of(*sources, transform=changes)
    assert ground.apply(spec).state == "finished"
    digest = hashlib.sha256(b"its classes").hexdigest()
    assert asked and all(each == ({str(jar): digest}, "file:///f") for each in asked)
    assert entries(ground.disk, TARGET)[flink_operator_id("pojos")] == wanted
    image = golden.looked_at(ground.disk, TARGET)[1].images[0]
    operator = next(each for each in metadata_of(image).operators if each.uid == "pojos")
    streams = Streams(golden.looked_at(ground.disk, TARGET)[0].chunks, places_of(image))
    seen = 0
    for subtask in operator.subtasks or ():
        handle = subtask.managed_keyed
        if not isinstance(handle, KeyGroups) or handle.stream is None:
            continue
        head = streams.head(handle.stream, min(offset for offset in handle.offsets if offset))
        header = decode_header(head, len(head))
        assert header.key is not None
        for entry in numbered_entries(handle, prefix_bytes(300), streams):
            begin = key_start(header, entry.state)
            own = np.frombuffer(entry.key, np.uint8)
            where = np.array([begin]), np.array([len(own)])
            (code,) = code_of_id(own, *where, head[slice(*header.key.span)]).tolist()
            assert key_group(code, 300) == entry.group
            seen += 1
    assert seen == len(wanted) > 0
    times = 33  # other classes
    with pytest.raises(
        PlanError, match=r"of \d+ of \d+ entries at hand the keys are not in the key group that the"
    ):
        grounds[1].apply(spec_of(*sources, new_savepoint_path="file:///there/2", transform=changes))


def test_classes_that_cannot_read_an_operators_keys_keep_no_other_from_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is dropped no key is read; of one that goes along it is told as a refusal."""
    ground, jar = Ground(tmp_path / "0"), tmp_path / "job.jar"
    source = golden.write(ground.disk, "flink-2.3.0/typed-canonical")
    jar.write_bytes(b"its classes")
    asked: list[bytes] = []

    def hashing(digests: dict[str, str], flink: str | None) -> Any:
        def hash_by(snapshot: bytes) -> Any:
            asked.append(snapshot)
            raise PlanError("the classes that hash the keys cannot restore their serializer")

        return hash_by

    for module in (jvm, survey_of_image):
        monkeypatch.setattr(module, "hashing", hashing)
    monkeypatch.setattr(rescale, "EVIDENCE", 1)
    rescaled = {"kind": "rescale", "max_parallelism": 300, "classes": [str(jar)], "flink": "/f"}
    (plan,) = ground.propose(spec_of(source, transform=[rescaled])).plans
    told = [each for each in plan.refusals if "cannot restore their serializer" in each.message]
    (refused,) = told
    assert flink_operator_id("pojos") in refused.message and '"drop"' in (refused.hint or "")
    asked.clear()
    left = {"kind": "drop", "operators": ["pojos"]}
    proposal = ground.propose(spec_of(source, transform=[rescaled, left]))
    (plan,) = proposal.plans
    assert not asked and not [each for each in plan.findings if "runs in a JVM" in each.message]
    assert not [step for step in copies_of(plan) if "classes" in step.options]
    assert ground.apply(proposal).state == "finished"


def copies_of(plan: Plan) -> list[TransformShard]:
    steps = [step for phase in plan.phases for step in phase.steps]
    return [step for step in steps if isinstance(step, TransformShard)]


def test_few_keys_that_may_hold_an_enum_are_dealt_by_no_waiver() -> None:
    """Of an enum's hash codes, which are another in each JVM, one of M agrees by chance."""
    text, enum = Serializer("StringSerializer", 3), Serializer("EnumSerializer", 3)
    uuid = Serializer("KryoSerializer", 2, type="java.util.UUID")
    plain = Serializer("PojoSerializer", 3, inner=(text, uuid))
    assert not rescale._may_have_enum(plain)
    for key in (
        Serializer("KryoSerializer", 2, type="jobs.Holder"),  # its fields are in no snapshot
        Serializer("ProtobufSerializer", 2, type="jobs.Wire"),  # its hash is of its descriptor
        Serializer("TupleSerializer", 2, (Serializer("KryoSerializer", 2, type="jobs.Colour"),)),
        Serializer("PojoSerializer", 3, inner=(text, Serializer("ListSerializer", 3, (enum,)))),
        Serializer("PojoSerializer", 3, inner=(text,), others=(("Sub", enum),)),
    ):
        assert rescale._may_have_enum(key)


@pytest.mark.parametrize("has_enum", [False, True])
def test_few_objects_are_dealt_by_a_waiver_that_tells_its_price(
    has_enum: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground, jar = Ground(tmp_path / "0"), tmp_path / "job.jar"
    source = golden.write(ground.disk, "flink-2.3.0/typed-canonical")
    jar.write_bytes(b"its classes")

    def hashing(digests: dict[str, str], flink: str | None) -> Any:
        return lambda snapshot: partial(code_of_id, snapshot=snapshot)

    for module in (jvm, survey_of_image):
        monkeypatch.setattr(module, "hashing", hashing)
    monkeypatch.setattr(rescale, "EVIDENCE", 10_000)
    monkeypatch.setattr(rescale, "_may_have_enum", lambda key: has_enum)
    rescaled = {"kind": "rescale", "max_parallelism": 300, "classes": [str(jar)], "flink": "/f"}
    changes = [rescaled, {"kind": "drop", "operators": ["plain", "mixed", "lines"]}]
    asked = ground.propose(spec_of(source, transform=changes)).plans[0].refusals
    (refused,) = (each for each in asked if flink_operator_id("pojos") in each.message)
    price = "the hashCode of --classes"
    assert (price in (refused.hint or "")) == (not has_enum)
    assert ("never finds these keys again" in (refused.hint or "")) == (not has_enum)
    waived = ground.propose(spec_of(source, transform=changes, waive=["key-hash"]))
    assert bool(waived.plans[0].refusals) == has_enum


def assert_owned(disk: MemoryDisk, location: str, parallelism: int | None) -> None:
    """Every subtask has its own key groups and no others; operators without state of another
    kind are as many.
    """
    for operator in metadata_of(golden.looked_at(disk, location)[1].images[0]).operators:
        keyed = [s for s in operator.subtasks or () if isinstance(s.managed_keyed, KeyGroups)]
        for subtask in keyed:
            handle = subtask.managed_keyed
            assert isinstance(handle, KeyGroups)
            groups = groups_of(subtask.index, operator.max_parallelism, operator.parallelism)
            assert range(handle.first, handle.first + handle.count) == groups
        if keyed and parallelism is not None:
            assert operator.parallelism == parallelism
        handles = [
            handle for s in operator.subtasks or () if (handle := s.managed_operator) is not None
        ]
        broadcast = [
            [state.name for state in handle.states if state.mode == BROADCAST] for handle in handles
        ]
        if keyed and any(broadcast):
            assert len(broadcast) == operator.parallelism and len(set(map(tuple, broadcast))) == 1


@pytest.mark.parametrize(
    ("case", "change", "why"),
    [
        ("count-native-rocksdb", {"parallelism": 3}, "files of RocksDB"),
        ("count-native-hashmap", {"max_parallelism": 32}, "hashmap backend's own format"),
        ("count-changelog-memory", {"parallelism": 1}, "a changelog"),
        ("count-canonical-hashmap", {"parallelism": 9}, "more than 8 key groups"),
        ("typed-canonical", {"max_parallelism": 32}, r"objects of jobs.Typed\$Id: only the job's"),
        # Row.withNames() and GenericRowData, as a real Flink has hashed them.
        ("count-canonical-named", {"max_parallelism": 32}, "hashes its keys in a way of its own"),
        ("count-canonical-generic", {"max_parallelism": 32}, "hashes its keys in a way of its own"),
    ],
)
def test_state_that_cannot_be_dealt_out_is_refused_with_the_reason(
    ground: Ground, case: str, change: dict[str, int], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescale, "EVIDENCE", 1)
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    before = ground.disk.snapshot()
    with pytest.raises(PlanError, match=why):
        ground.apply(spec_of(source, transform=[{"kind": "rescale", **change}]))
    assert ground.disk.snapshot() == before


def test_keys_that_hold_rows_of_sql_are_refused_by_what_they_hold() -> None:
    sql, text = (Serializer(f"{name}Serializer", 3) for name in ("RowData", "String"))
    row = Serializer("RowSerializer", 3, inner=(text, sql))
    header = Header(2, False, Serializer("TupleSerializer", 3, inner=(text, row)), (), 0)
    assert rescale._of_keys(header).fact.startswith("its keys are written by RowDataSerializer")


def raw(subtask: SubtaskState) -> SubtaskState:
    return replace(subtask, raw_keyed=subtask.managed_keyed, managed_keyed=None)


def sent_alone(subtask: SubtaskState) -> SubtaskState:
    return replace(subtask, inputs=())


def without_the_second(subtask: SubtaskState) -> SubtaskState:
    return replace(subtask, managed_keyed=None) if subtask.index == 1 else subtask


@pytest.mark.parametrize(
    ("case", "as_it_is", "change", "why"),
    [
        ("count-canonical-hashmap", raw, {"max_parallelism": 32}, "raw keyed state"),
        ("count-unaligned", sent_alone, {"max_parallelism": 32}, "records were in flight in its"),
        ("count-unaligned", sent_alone, {"parallelism": 1}, "records were in flight in its job"),
        ("count-native-hashmap", without_the_second, {"parallelism": 1}, "not every subtask has"),
    ],
)
def test_what_flink_would_not_find_by_its_key_group_any_more_is_refused(
    ground: Ground,
    case: str,
    as_it_is: Callable[[SubtaskState], SubtaskState],
    change: dict[str, int],
    why: str,
) -> None:
    """Raw keyed state alone; records that lie with their sender alone; key groups of the hashmap
    backend that no file has.
    """
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    image = decode_metadata(ground.held(source)["_metadata"])
    operators = tuple(
        replace(operator, subtasks=tuple(map(as_it_is, operator.all_subtasks)))
        for operator in image.operators
    )
    ground.put(f"{source}/_metadata", encode_metadata(replace(image, operators=operators)))
    with pytest.raises(PlanError, match=why):
        ground.apply(spec_of(source, transform=[{"kind": "rescale", **change}]))
    assert ground.held(TARGET) == {}


@pytest.mark.parametrize("case", ["count-native-rocksdb", "count-canonical-hashmap"])
def test_files_that_lie_elsewhere_are_found_and_brought_together(ground: Ground, case: str) -> None:
    """As FLINK-39964 leaves a checkpoint: its metadata has beside itself what lies in the
    savepoint it came from.
    """
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    wanted = entries(ground.disk, source)
    held = ground.disk.snapshot(source)
    aside = "file:///tmp/savepoints/one"
    for path in sorted(path for path in held if path != "_metadata")[1:]:
        ground.remove(f"{source}/{path}")
        ground.put(f"{aside}/{path}", held[path])
    with pytest.raises(PlanError, match="is missing, where the metadata has it beside itself"):
        ground.apply(spec_of(source), "without")
    ground.apply(spec_of(source, transform=[{"kind": "repair", "files": [aside]}]))
    assert entries(ground.disk, TARGET) == wanted
    assert golden.looked_at(ground.disk, TARGET)[1].images[0].epochs != ()


def test_files_that_are_nowhere_are_refused(ground: Ground) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{ONE}")
    path = next(path for path in ground.disk.snapshot(source) if path != "_metadata")
    ground.remove(f"{source}/{path}")
    with pytest.raises(PlanError, match=f"{path} is missing"):
        ground.apply(
            spec_of(source, transform=[{"kind": "repair", "files": ["file:///tmp/nothing"]}])
        )


def test_a_rolled_back_move_leaves_nothing(ground: Ground) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{ONE}")
    before = ground.disk.snapshot()
    ground.apply(spec_of(source))
    ground.rollback()
    assert ground.disk.snapshot() == before


@pytest.mark.parametrize(
    ("job", "fact"),
    [
        (
            {"operators": ["orders-cuont"]},
            "no operator has the uid or id 'orders-cuont': did you mean 'orders-count'",
        ),
        (
            {"transform": [{"kind": "drop", "operators": ["nobody"]}]},
            "no operator has the uid or id 'nobody'",
        ),
        ({"transform": [{"kind": "compact"}]}, "cannot be changed by 'compact'"),
        ({"transform": [{"kind": "rewind", "batch": 1}]}, "cannot be changed by 'rewind'"),
        ({"transform": [{"kind": "convert", "flink": "new"}]}, "'new' is no version of Flink"),
        (
            {"transform": [{"kind": "rescale", "max_parallelism": 32769}]},
            "a max parallelism of 32769 is more than Flink takes",
        ),
        ({"transform": [{"kind": "convert", "flink": "1.18"}]}, None),
    ],
)
@pytest.mark.row("IF-5")
def test_what_cannot_be_done_is_refused_before_anything_is(
    ground: Ground, job: Any, fact: str | None
) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{ONE}")
    before = ground.disk.snapshot()
    if fact is None:
        assert ground.apply(spec_of(source, **job)).state == "finished"
        return
    with pytest.raises(PlanError, match=fact):
        ground.apply(spec_of(source, **job))
    assert ground.disk.snapshot() == before


def test_two_savepoints_with_one_operator_are_refused(ground: Ground) -> None:
    one, other = (golden.write(ground.disk, f"flink-2.3.0/{case}") for case in (ONE, TWO))
    with pytest.raises(PlanError, match="comes from two images"):
        ground.apply(spec_of(one, other))


def test_operators_with_several_numbers_of_key_groups_are_told_and_can_be_given_one(
    ground: Ground,
) -> None:
    """As Flink leaves them after a restore that took its max parallelism from the savepoint: a job
    that sets it then is refused.
    """
    source = golden.write(ground.disk, f"flink-2.3.0/{ONE}")
    image = decode_metadata(ground.held(source)["_metadata"])
    others = tuple(
        o if any(s.managed_keyed for s in o.subtasks or ()) else replace(o, max_parallelism=128)
        for o in image.operators
    )
    ground.put(f"{source}/_metadata", encode_metadata(replace(image, operators=others)))
    found = ground.propose(spec_of(source)).plans[0].findings
    assert any("have 8 key groups, others 128" in finding.message for finding in found)
    change = [{"kind": "rescale", "max_parallelism": 8}]
    found = ground.propose(spec_of(source, transform=change)).plans[0].findings
    assert not any("key groups, others" in finding.message for finding in found)
    ground.apply(spec_of(source, transform=change))
    assert {
        o.max_parallelism for o in decode_metadata(ground.held(TARGET)["_metadata"]).operators
    } == {8}


def test_a_drained_savepoint_is_moved_with_a_warning(ground: Ground) -> None:
    proposal = ground.propose(spec_of(golden.write(ground.disk, "flink-2.3.0/count-drained")))
    assert any("was drained" in f.message for f in proposal.plans[0].findings if f.level == "warn")


def test_a_place_that_is_taken_is_refused(ground: Ground) -> None:
    ground.put(f"{TARGET}/something")
    with pytest.raises(PlanError, match="must not exist"):
        ground.apply(spec_of(golden.write(ground.disk, f"flink-2.3.0/{ONE}")))


KILLED = {
    "merge": ([ONE, OTHER], {}),
    "gather": (["count-merging-incremental"], {}),
    "rescale": (
        [TWO],
        {"transform": [{"kind": "rescale", "parallelism": 3, "max_parallelism": 300}]},
    ),
    "edit": (
        [ONE],
        {
            "transform": [
                {"kind": "prune", "operator": "orders-count", "where": "key.key in ('k1', 'k2')"}
            ]
        },
    ),
    "union": (
        [],
        {"transform": [{"kind": "union", "operators": ["orders-source", "orders-count"]}]},
    ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", KILLED)
@pytest.mark.parametrize("ending", ["resume", "rollback"])
def test_a_run_killed_before_and_after_any_effect_goes_on_or_is_taken_back(
    tmp_path: Path, name: str, ending: str, moments: Callable[[int], range]
) -> None:
    cases, job = KILLED[name]

    def begun(folder: str) -> tuple[Ground, Spec]:
        ground = Ground(tmp_path / folder)
        places = [golden.write(ground.disk, f"flink-2.3.0/{case}") for case in cases] or halves(
            ground, ONE
        )
        return ground, spec_of(*places, **job)

    unharmed, spec = begun("unharmed")
    before, counted = unharmed.disk.snapshot(), Effects()
    unharmed.wrap = lambda storage: Faulty(storage, counted)
    unharmed.apply(spec)
    assert len(counted.seen) > 20
    for number in moments(len(counted.seen)):
        ground, spec = begun(str(number))
        effects = Effects(at(number, Killed))
        ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            ground.apply(spec)
        ground.wrap = lambda storage: storage
        if ending == "resume":
            ground.resume()
            assert ground.disk.snapshot() == unharmed.disk.snapshot(), f"killed at effect {number}"
        else:
            ground.rollback()
            assert ground.disk.snapshot() == before, f"killed at effect {number}"


def test_a_sound_image_is_never_visible_before_all_of_it_is_there(ground: Ground) -> None:
    """Flink looks for `_metadata` and nothing else: it is the last thing that is written."""
    source = golden.write(ground.disk, f"flink-2.3.0/{ONE}")
    counted = Effects()
    ground.wrap = lambda storage: Faulty(storage, counted)
    ground.apply(spec_of(source))
    written = [
        m.path
        for m in counted.seen
        if m.location == TARGET and m.kind in ("write", "create", "move")
    ]
    assert written[-1] == "_metadata"
    assert written.count("_metadata") <= 3  # before, inside and after its one creation
