"""State of every type that Flink has a serializer for, as its own jobs wrote it: shown as the job
itself told it, and what is unreadable hides no more than itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from stateshift import look
from stateshift.engines.views import ShownEntry, StateRead
from stateshift.formats.uid import flink_operator_id
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden

pytestmark = pytest.mark.row("W-9")

TYPED = [name for name in golden.NAMES if "/typed-" in name]
TABLES = [name for name in golden.NAMES if "/tables-" in name]
CANONICAL = [name for name in TYPED if name.endswith("canonical")]


def shown(name: str) -> list[ShownEntry]:
    disk = MemoryDisk()
    return list(look.entries(golden.write(disk, name), disk.open, limit=1000))


def read(name: str) -> dict[tuple[str, str], StateRead]:
    disk = MemoryDisk()
    judged = look.restartable(golden.write(disk, name), disk.open, thorough=True)
    assert judged.restartable and judged.checked is not None
    return {
        (UIDS.get(each.operator, each.operator), each.state): each for each in judged.checked.read
    }


def told(name: str) -> dict[tuple[str, str, str], Any]:
    """What the job said each state of each key holds; keys as JSON."""
    found = {}
    for operator, states in golden.told(name)["held"].items():
        for state, held in states.items():
            for key, value in held.items():
                found[operator, state, json.dumps(json.loads(key))] = json.loads(value)
    return found


# What images of Flink 1.x do not tell.
UIDS = {flink_operator_id(uid): uid for uid in ("pojos", "plain", "mixed")}


def name_of(entry: ShownEntry) -> tuple[str, str, str]:
    key: Any = entry.key
    own = {"shapes": f"shapes {json.dumps(key.get('map_key'), separators=(',', ':'))}"}
    operator = UIDS.get(entry.operator, entry.operator)
    return operator, own.get(entry.store, entry.store), json.dumps(key["key"])


@pytest.mark.parametrize("name", TYPED)
def test_what_flink_has_a_type_for_is_shown_as_the_job_told_it(name: str) -> None:
    wanted, seen = told(name), defaultdict(int)
    for entry in shown(name):
        is_hidden = isinstance(entry.key, dict) and "key_group" in entry.key
        if entry.store == "SourceReaderState" or entry.store.startswith("_timer") or is_hidden:
            continue
        value: Any = entry.value
        if entry.store == "living" and "value" in value:
            value = value["value"]
        expected = wanted[name_of(entry)]
        if isinstance(value, dict) and "bytes" in value:
            assert entry.store in ("order", "living", "shapes", "tree", "uuid")
            continue
        if entry.store in ("order", "living"):  # whose first fields are read in any case
            value = {field: held for field, held in value.items() if not has_bytes(held)}
            assert len(value) >= 5
            expected = {field: expected[field] for field in value}
        assert value == expected, (entry.operator, entry.store)
        seen[entry.store] += 1
    assert set(seen) >= {"row", "tuple", "either", "decimal", "integer", "rows", "map", "eithers"}
    assert seen["ids"] == 6 and seen["order"]
    if name.endswith("canonical"):
        assert seen["order"] == seen["living"] == 6


@pytest.mark.parametrize("name", [name for name in TYPED if name.endswith("hashmap")])
def test_what_kryo_wrote_hides_no_other_state_of_the_hashmap_backend(name: str) -> None:
    states = read(name)
    for state in ("text", "count", "instants"):
        each = states["mixed", state]
        assert (each.decoded, each.framed, each.hidden, each.hidden_by) == (6, 0, 0, None)
    for state in ("tree", "uuid"):
        each = states["mixed", state]
        assert each.decoded == 0 and each.framed + each.hidden == 6 and each.framed
    assert states["pojos", "count"].decoded == 6 and states["pojos", "ids"].decoded == 6
    assert not any(each.hidden for (operator, _), each in states.items() if operator == "plain")


@pytest.mark.parametrize("name", CANONICAL)
def test_canonical_state_that_is_not_read_is_checked_by_its_lengths(name: str) -> None:
    states = read(name)
    assert states["mixed", "tree"].sized == 6 and states["mixed", "text"].decoded == 6
    assert not any(each.framed or each.hidden for each in states.values())


def test_the_hashmap_backend_holds_what_a_canonical_savepoint_does() -> None:
    disk = MemoryDisk()
    one, other = (
        golden.write(disk, f"flink-2.3.0/typed-{kind}", f"mem://{kind}")
        for kind in ("canonical", "native-hashmap")
    )
    found = look.diff(one, other, disk.open)
    different = {each.store for each in found.stores if not each.equal}
    hidden = {store for _, store, _ in found.incomparable}
    assert hidden == {"order", "shapes", "tree", "uuid"}
    assert different == {"living"}  # when it was written, for its time to live
    assert sum(each.same for each in found.stores) > 80
    assert all("only the job's classes" in why for _, _, why in found.incomparable)


def has_bytes(value: object) -> bool:
    match value:
        case dict():
            return "bytes" in value or any(map(has_bytes, value.values()))
        case list():
            return any(map(has_bytes, value))
    return False


@pytest.mark.parametrize("name", TABLES)
def test_every_keyed_operator_of_sql_is_decoded(name: str) -> None:
    of_state = defaultdict(list)
    for entry in shown(name):
        if entry.store != "SourceReaderState":
            assert not has_bytes(entry.key) and not has_bytes(entry.value), entry
            of_state[entry.store].append(entry)
    assert set(of_state) >= {
        "accState",  # GROUP BY, OVER
        "distinctAcc_0",
        "window-aggs",  # of slices, and of sessions
        "session-window-mapping",
        "left-records",  # of a join
        "right-records",
        "IntervalJoinLeftCache",
        "deduplicate-state",
        "data-state-with-append",  # the first N
    }
    groups: list[Any] = [each.value for each in of_state["accState"] if len(each.value) > 5]
    assert [each["f0"] for each in groups] == [12] * 5  # COUNT(*)
    assert sum(float(each["f1"]) for each in groups) == sum(range(60)) / 4  # SUM(amount)
    assert {each["f7"] for each in groups} == set(range(55, 60))  # MAX(id)
    joined: list[Any] = [each.key for each in of_state["left-records"]]
    row = next(each["map_key"] for each in joined if each["key"]["f0"] == 35)
    assert row["f1"] == ["tag 35", None, "é☃"] and row["f2"] == [["n", 35], ["none", None]]
    assert "-35000000000000.00000" in row.values() and "1970-01-01T00:00:35" in row.values()
    assert {"f0": 35, "f1": "r35"} in [
        {f"f{at}": item for at, item in enumerate(value.values())}
        for value in row.values()
        if isinstance(value, dict)
    ]


@pytest.mark.parametrize("name", [name for name in golden.NAMES if "/sql-" in name])
def test_older_images_of_sql_are_decoded(name: str) -> None:
    entries = [each for each in shown(name) if each.store in ("accState", "left-records")]
    assert entries and not any(has_bytes(each.key) or has_bytes(each.value) for each in entries)
