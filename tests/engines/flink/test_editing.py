"""Entries of real savepoints changed, and left behind: what the target holds is what the source
held, with the change made, and nothing else is another.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from stateshift import look
from stateshift.engines.flink.entries.image import SETTING, comparable
from stateshift.engines.flink.image import places_of
from stateshift.errors import FormatError, Incompatible, PlanError
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden
from tests.engines.flink.test_moving import TARGET, spec_of
from tests.support.ground import Ground

Held = dict[tuple[str, str], list[tuple[Any, Any]]]
CASE = "flink-2.3.0/typed-canonical"
TABLES = "flink-2.3.0/tables-canonical"
KEYED = "flink-2.3.0/count-canonical-rocksdb"
MORE = [{"name": "extra", "type": "long"}, {"name": "alias", "type": "String", "default": "é☃"}]


def shown(disk: MemoryDisk, location: str) -> Held:
    """The entries of each state, in an order that says nothing."""
    found = defaultdict(list)
    for entry in look.entries(location, disk.open, limit=1000):
        found[entry.operator, entry.store].append((entry.key, entry.value))
    return {name: sorted(pairs, key=json.dumps) for name, pairs in found.items()}


def changed(ground: Ground, *transform: dict[str, Any], case: str = CASE) -> tuple[Held, Held]:
    """What a case held, and what the target holds that is made of it."""
    source = golden.write(ground.disk, case)
    assert ground.apply(spec_of(source, transform=list(transform))).state == "finished"
    judged = look.restartable(TARGET, ground.disk.open, thorough=True)
    assert judged.restartable
    return shown(ground.disk, source), shown(ground.disk, TARGET)


def evolve(operator: str, store: str, **asked: Any) -> dict[str, Any]:
    return {"kind": "evolve", "operator": operator, "store": store, **asked}


def an_id(value: dict[str, Any]) -> dict[str, Any]:
    return {"alias": "é☃", "extra": 0, "name": value["name"], "nr": value["number"]}


def a_row(row: dict[str, Any]) -> dict[str, Any]:
    inner = {"f0": row["f3"]["f0"], "f1": 1.5, "f2": row["f3"]["f1"]}
    return {"f0": None, "f1": row["f0"], "f2": inner, "f3": row["f1"]}


CHANGES: dict[tuple[str, str], tuple[dict[str, Any], Callable[[Any], Any]]] = {
    ("pojos", "ids"): (
        {"add": MORE, "rename": {"number": "nr"}, "widen": {"number": "long"}},
        lambda ids: [an_id(each) for each in ids],
    ),
    ("plain", "row"): (
        {
            "add": [
                {"name": "x", "type": "Long", "after": ""},
                {"name": "f3.y", "type": "Double", "default": 1.5, "after": "f0"},
            ],
            "drop": ["f2"],
            "widen": {"f3.f0": "long"},
            "order": ["x", "f0", "f3", "f1"],
        },
        a_row,
    ),
    ("plain", "tuple"): (
        {"drop": ["f1.f2", "f1.f3"]},
        lambda held: [held[0], {"f0": held[1]["f0"], "f1": held[1]["f1"]}, held[2]],
    ),
    ("plain", "rows"): (
        {"add": [{"name": "x", "type": "boolean", "default": True}]},
        lambda rows: [row if row is None else {**row, "f4": True} for row in rows],
    ),
    ("plain", "integer"): ({"drop": ["*"]}, lambda value: None),
}


@pytest.mark.row("W-28")
def test_objects_and_rows_hold_what_they_held_with_the_change_made(ground: Ground) -> None:
    transform = [evolve(*of, **asked) for of, (asked, _) in CHANGES.items()]
    before, after = changed(ground, *transform)
    assert before.keys() - after.keys() == {("plain", "integer")}
    for of, pairs in after.items():
        _, expected = CHANGES.get(of, ({}, lambda value: value))
        assert pairs == sorted(
            ((key, expected(value)) for key, value in before[of]), key=json.dumps
        ), of


@pytest.mark.parametrize("version", ["1.20.5", "2.0.2", "2.3.0"])
def test_rows_of_sql_hold_what_they_held_with_the_change_made(ground: Ground, version: str) -> None:
    case = f"flink-{version}/tables-canonical"
    source = golden.write(ground.disk, case)
    before = shown(ground.disk, source)
    operators = [of for of, pairs in before.items() if of[1] == "accState"]
    (group,) = [of for of in operators if len(before[of][0][1]) > 5]
    (latest,) = [of for of in before if of[1] == "deduplicate-state"]
    (left,) = [of for of in before if of[1] == "left-records"]
    add = [
        {"name": "n", "type": "BIGINT NOT NULL", "default": 3, "after": "f0"},
        {"name": "a", "type": "STRING", "default": "short"},
        {"name": "b", "type": "VARCHAR(40)", "default": "longer than seven"},
        {"name": "c", "type": "DECIMAL(30, 2)"},
        {"name": "d", "type": "DECIMAL(10, 2)", "default": "-1.25"},
        {"name": "e", "type": "TIMESTAMP(9)"},
    ]
    wider = {"f1": "DECIMAL(38, 13)", "f4": "BIGINT"}
    transform = [
        evolve(*group, add=add, drop=["f2"], widen=wider),
        evolve(*latest, drop=["f1"], nullable=["f0"]),
        evolve(*left, add=[{"name": "map_key.x", "type": "INT", "default": 9, "after": ""}]),
    ]
    assert ground.apply(spec_of(source, transform=transform)).state == "finished"
    after = shown(ground.disk, TARGET)

    def expected(of: tuple[str, str], key: Any, row: Any) -> tuple[Any, Any]:
        kind = {"@kind": row.pop("@kind")} if isinstance(row, dict) and "@kind" in row else {}
        fields = list(row.values()) if isinstance(row, dict) else []
        if of == group:
            end = ["short", "longer than seven", None, "-1.25", None]
            fields = [fields[0], 3, fields[1], *fields[3:], *end]
        elif of == latest:
            del fields[1]
        elif of == left:
            told = [9, *key["map_key"].values()]
            return {**key, "map_key": {f"f{at}": each for at, each in enumerate(told)}}, row
        else:
            return key, {**kind, **row} if kind else row
        return key, {**kind, **{f"f{at}": each for at, each in enumerate(fields)}}

    for of, pairs in before.items():
        wanted = [expected(of, *pair) for pair in pairs]
        assert after[of] == sorted(wanted, key=json.dumps), of


REFUSED = {
    "there is no field nope": evolve("pojos", "ids", drop=["nope"]),
    "there is a field name already": evolve("pojos", "ids", add=[{"name": "name", "type": "long"}]),
    "Long cannot be widened to Int": evolve("plain", "row", widen={"f0": "int"}),
    "'text' is no Long": evolve(
        "pojos", "ids", add=[{"name": "x", "type": "long", "default": "text"}]
    ),
    "'Kryo' is none of": evolve("pojos", "ids", add=[{"name": "x", "type": "Kryo"}]),
    "in the order of their names|fields of an object by their names": evolve(
        "pojos", "ids", order=["number", "name"]
    ),
    "has no names|have no names": evolve("plain", "row", rename={"f0": "a"}),
    "no field would be left": evolve("pojos", "ids", drop=["name", "number"]),
    "there is no field bits; there are value": evolve("mixed", "uuid", drop=["bits"]),
    "it has no state 'nothing'": evolve("pojos", "nothing", drop=["id"]),
    "it has no state 'default'": {"kind": "evolve", "operator": "pojos", "drop": ["id"]},
    "its keys stay": evolve("pojos", "ids", widen_key={"number": "long"}),
    "no operator has the uid or id 'nobody'": evolve("nobody", "ids", drop=["name"]),
    "only the columns of SQL": evolve("pojos", "ids", nullable=["name"]),
    "a tuple has as many fields": evolve("plain", "tuple", drop=["f1"]),
    "its states are none": evolve("lines", "ids", drop=["name"]),
    "prune: .*one operator|one operator with keyed state": {"kind": "prune", "where": "true"},
    "asks country": {"kind": "prune", "where": "country = 'de'", "operator": "pojos"},
    '"country"': {"kind": "prune", "where": "key.key.country = 'de'", "operator": "pojos"},
    "value": {"kind": "prune", "where": "value = 1", "operator": "pojos"},
    "no keyed entries": {"kind": "prune", "where": "true", "operator": "lines"},
    "no name of a field": evolve("pojos", "ids", rename={"number": "Id.nr"}),
    "asks now, which changes": {
        "kind": "prune",
        "where": "now() > '2026-01-01'",
        "operator": "pojos",
    },
    "only the job's classes": {
        "kind": "prune",
        "where": "value is null",
        "operator": "mixed",
        "store": "uuid",
    },
}


@pytest.mark.parametrize(("fact", "change"), REFUSED.items())
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    ground: Ground, fact: str, change: dict[str, Any]
) -> None:
    source = golden.write(ground.disk, CASE)
    before = ground.disk.snapshot()
    with pytest.raises(PlanError, match=fact) as told:
        ground.apply(spec_of(source, transform=[change]))
    assert ground.disk.snapshot() == before
    assert told.value.hint


def test_a_class_that_is_changed_in_one_state_and_not_in_another_is_warned_of(
    ground: Ground,
) -> None:
    source = golden.write(ground.disk, CASE)
    (plan,) = ground.propose(spec_of(source, transform=[evolve("pojos", "ids", add=MORE)])).plans
    told = [finding.message for finding in plan.findings if finding.level == "warn"]
    assert any("jobs.Typed$Id has other fields in its keys and state" in one for one in told)
    (plan,) = ground.propose(spec_of(source, transform=[evolve("plain", "row", drop=["f2"])])).plans
    assert not [one for one in plan.findings if "other fields" in one.message]


@pytest.mark.parametrize("case", ["typed-native-hashmap", "count-native-incremental"])
def test_native_state_is_refused_with_the_way_out(ground: Ground, case: str) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    operator = "pojos" if case.startswith("typed") else "orders-count"
    change = {"kind": "prune", "where": "true", "operator": operator}
    with pytest.raises(PlanError, match="cannot be changed so") as told:
        ground.apply(spec_of(source, transform=[change]))
    assert "canonical savepoint" in str(told.value.hint)


def test_values_of_a_class_that_the_image_does_not_describe_publish_nothing(
    ground: Ground,
) -> None:
    source = golden.write(ground.disk, CASE)
    with pytest.raises(Incompatible, match="Circle"):
        ground.apply(spec_of(source, transform=[evolve("pojos", "shapes", add=MORE)]))
    assert not ground.disk.open(TARGET).stat("_metadata")


PRUNED = {
    ("pojos", "key.key.number >= 4"): lambda key: key["key"]["number"] >= 4,
    ("plain", "key.key.f0 = 'row-1' or key.key.f1 = 2"): lambda key: key["key"]["f1"] > 0,
    ("mixed", "key.key like 'key-_' and key.key <> 'key-3'"): lambda key: key["key"] != "key-3",
}


@pytest.mark.parametrize("of", PRUNED, ids=lambda of: of[0])
def test_all_states_of_an_operator_lose_the_same_keys_and_nothing_else(
    ground: Ground, of: tuple[str, str]
) -> None:
    operator, where = of
    before, after = changed(ground, {"kind": "prune", "where": where, "operator": operator})
    for name, pairs in before.items():
        kept = [pair for pair in pairs if name[0] != operator or not PRUNED[of](pair[0])]
        assert after.get(name, []) == kept, name
        assert name[0] != operator or len(kept) < len(pairs)


def test_pruned_keys_are_in_no_file_of_the_new_image(ground: Ground) -> None:
    """Also where small state is in the metadata, of which other changes keep a copy beside."""
    source = golden.write(ground.disk, "flink-2.3.0/count-inline-hashmap")
    keys = {pair[0]["key"] for pair in shown(ground.disk, source)["orders-count", "count"]}
    gone = sorted(keys)[0]
    prune = {"kind": "prune", "operator": "orders-count", "where": f"key.key = '{gone}'"}
    assert ground.apply(spec_of(source, transform=[prune])).state == "finished"
    left = {pair[0]["key"] for pair in shown(ground.disk, TARGET)["orders-count", "count"]}
    assert left == keys - {gone}
    for path, content in ground.disk.snapshot().items():
        assert not path.startswith(TARGET) or gone.encode() not in content, path


def test_one_state_alone_loses_entries_by_their_values_and_by_keys_in_a_map(
    ground: Ground,
) -> None:
    prune = {"kind": "prune", "operator": "plain", "store": "named", "where": "value.f1 > 57"}
    before, after = changed(ground, prune)
    different = {name for name in before if before[name] != after.get(name)}
    assert different == {("plain", "named")}
    kept = [pair for pair in before["plain", "named"] if pair[1]["f1"] <= 57]
    assert after["plain", "named"] == kept and len(kept) < len(before["plain", "named"])


def test_windows_and_timers_of_sql_are_asked_by_their_keys(ground: Ground) -> None:
    source = golden.write(ground.disk, TABLES)
    before = shown(ground.disk, source)
    (window,) = [of for of in before if of[1] == "session-window-mapping"]
    prune = {"kind": "prune", "operator": window[0], "where": "key.key.f0 in (1, 3)"}
    assert ground.apply(spec_of(source, transform=[prune])).state == "finished"
    after = shown(ground.disk, TARGET)
    for of, pairs in before.items():
        kept = [pair for pair in pairs if of[0] != window[0] or pair[0]["key"]["f0"] not in (1, 3)]
        assert after.get(of, []) == kept, of
    assert len({of[1] for of in before if of[0] == window[0]}) > 2  # timers among them


def test_keys_of_changed_maps_are_read_again_by_the_serializers_of_the_new_image(
    ground: Ground,
) -> None:
    location = golden.write(ground.disk, "flink-2.3.0/kinds-canonical-rocksdb")
    storage, survey = golden.looked_at(ground.disk, location)
    image = survey.images[0]
    (operator,) = [each.id for each in image.operators if each.uid == "collections"]
    (shard,) = [shard for shard in image.shards if shard.operator == operator]

    def read_again(states: list[str]) -> int:
        setting = {**places_of(image).plain(), "read": {operator: states}}
        settings = {SETTING: json.dumps(setting)}
        return sum(len(pairs) for _, pairs in comparable(storage.chunks, shard, settings))

    count = read_again(["digits"])
    for path in shard.files[1:]:
        longer = storage.read(path).replace(b"\x08digit 1", b"\x09digit 1")
        storage.write(path, lambda content=longer: iter((content,)))
    assert read_again([]) == count  # by their bytes alone, nothing is wrong with them
    with pytest.raises(FormatError, match="ends early"):
        read_again(["digits"])
