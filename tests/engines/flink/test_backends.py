"""The same state compares equal whichever backend wrote it: canonical, hashmap, RocksDB, ForSt,
held against each other and against what the job itself said it held.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.engines.flink.entries.keyed import hidden_states_of, keyed_entries, why_opaque
from stateshift.engines.flink.entries.operators import backend_of
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.places import Places
from stateshift.engines.flink.streams import Streams
from stateshift.engines.views import Differences
from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.keyed_handles import KEY_GROUPS, Incremental, KeyGroups
from stateshift.formats.flink.metadata import SubtaskState, decode_metadata, encode_metadata
from stateshift.formats.flink.stream_handles import Inline
from stateshift.formats.uid import flink_operator_id
from stateshift.specification import Spec, parse_spec
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden
from tests.support.ground import Ground

pytestmark = pytest.mark.row("W-10")

VERSIONS = ("1.15.4", "1.18.1", "1.20.5", "2.0.2", "2.3.0")
WRITTEN = "file:///there/orders"
Entries = dict[str, Counter[tuple[str, bytes, bytes]]]


def keyed(name: str) -> Entries:
    """The entries of each operator, by its uid."""
    disk = MemoryDisk()
    storage, survey = golden.looked_at(disk, golden.write(disk, name))
    (image,) = survey.images
    streams = Streams(storage.chunks, places_of(image))
    found: Entries = {}
    for operator in metadata_of(image).operators:
        own = Counter[tuple[str, bytes, bytes]]()
        for subtask in operator.subtasks or ():
            if why_opaque(subtask.managed_keyed, streams) is None:
                most = operator.max_parallelism
                for entry in keyed_entries(subtask.managed_keyed, most, streams):
                    own[entry.state.name, entry.key, entry.value] += 1
        if own:
            found[operator.id.hex()] = own
    return found


def hidden_in(name: str) -> dict[str, set[str]]:
    """The states of each operator, by its id, of which not all entries can be separated."""
    disk = MemoryDisk()
    storage, survey = golden.looked_at(disk, golden.write(disk, name))
    streams = Streams(storage.chunks, places_of(survey.images[0]))
    return {
        operator.id.hex(): {
            state for hidden in hidden_states_of(operator, streams) for state in hidden.states
        }
        for operator in metadata_of(survey.images[0]).operators
    }


def without(
    states: set[str], entries: Counter[tuple[str, bytes, bytes]]
) -> Counter[tuple[str, bytes, bytes]]:
    return Counter({entry: count for entry, count in entries.items() if entry[0] not in states})


def having(prefix: str) -> list[str]:
    return [name for name in golden.NAMES if name.split("/")[1].startswith(prefix)]


@pytest.mark.parametrize(
    "name",
    [
        *having("count-native"),
        *having("count-forst"),
        *having("count-merging"),
        *having("count-checkpoint-rocksdb"),
        *having("count-inline"),
        *having("count-changelog-canonical"),
    ],
)
def test_a_count_is_the_same_in_every_backend(name: str) -> None:
    canonical = name.split("/")[0] + "/count-canonical-hashmap"
    assert keyed(name) == keyed(canonical)
    assert sum(map(len, keyed(name).values())) == 10


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "case",
    [
        "native-incremental",
        "checkpoint-incremental",
        "native-hashmap",
        "checkpoint-hashmap",
        "compressed-native",
    ],
)
def test_every_kind_of_state_is_the_same_in_every_backend(version: str, case: str) -> None:
    """Values, lists that were merged, maps, timers, windows and sessions. TTL holds when it was
    written.
    """
    canonical = {}
    for name in (
        "canonical-rocksdb",
        "canonical-hashmap",
    ):  # maps have null values in the former alone
        for operator, entries in keyed(f"flink-{version}/kinds-{name}").items():
            canonical.setdefault(operator, []).append(entries)
    ttl = golden_id(f"flink-{version}/kinds-canonical-rocksdb", "ttl")
    native, hidden = (
        keyed(f"flink-{version}/kinds-{case}"),
        hidden_in(f"flink-{version}/kinds-{case}"),
    )
    assert len(native) >= 2
    for operator, entries in native.items():
        if hidden[operator]:  # of what Kryo wrote, the entries that could be separated
            assert any(not entries - own for own in canonical[operator])
            shown = [without(hidden[operator], own) for own in canonical[operator]]
            assert without(hidden[operator], entries) in shown
        elif operator == ttl:
            assert {key[:2] for key in entries} == {key[:2] for key in canonical[operator][0]}
        else:
            assert entries in canonical[operator]


def golden_id(name: str, uid: str) -> str:
    assert uid in golden.told(name)["uids"]
    return flink_operator_id(uid)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in (*having("count-native"), *having("count-forst"), *having("count-checkpoint"))
        if "orders-count" in golden.told(name).get("held", {})
    ],
)
def test_native_state_is_shown_as_what_the_job_held(name: str) -> None:
    disk = MemoryDisk()
    location = golden.write(disk, name)
    shown = [e for e in look.entries(location, disk.open, limit=1000) if e.store == "count"]
    wanted = golden.told(name)["held"]["orders-count"]["count"]
    assert {str(entry.key["key"]): entry.value for entry in shown} == wanted


@pytest.mark.parametrize(
    "name", [*having("kinds-native-incremental"), *having("kinds-checkpoint-incremental")]
)
def test_lists_and_maps_of_rocksdb_are_shown_as_what_the_job_held(name: str) -> None:
    disk = MemoryDisk()
    location = golden.write(disk, name)
    held = golden.told(name)["held"]["collections"]
    shown = [
        e
        for e in look.entries(location, disk.open, limit=1000)
        if e.store in ("recent", "words", "sum")
    ]
    lists = {(e.store, str(e.key["key"])): e.value for e in shown}
    wanted = {
        (state, key): value
        for state in ("recent", "words", "sum")
        for key, value in held[state].items()
    }
    assert {place: as_told(value) for place, value in lists.items()} == wanted


def as_told(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def compared(one: str, other: str) -> Differences:
    """Of two images on one disk, each where it was written."""
    disk = MemoryDisk()
    return look.diff(golden.write(disk, one), golden.write(disk, other), disk.open)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", ["count-native-incremental", "count-native-hashmap"])
def test_diff_of_one_state_in_two_backends_finds_its_keyed_entries_equal(
    version: str, case: str
) -> None:
    found = compared(f"flink-{version}/count-canonical-hashmap", f"flink-{version}/{case}")
    (count,) = (store for store in found.stores if store.store == "count")
    assert (count.same, count.equal) == (10, True) and not found.incomparable


def test_a_changelog_cannot_be_compared_with_another_format_and_is_not_called_different() -> None:
    found = compared("flink-2.3.0/count-canonical-hashmap", "flink-2.3.0/count-changelog-hashmap")
    assert [(store, "changelog" in why) for _, store, why in found.incomparable] == [
        ("keyed", True)
    ]
    assert "count" not in {store.store for store in found.stores}


def test_a_changelog_is_equal_to_itself() -> None:
    name = "flink-2.3.0/count-changelog-hashmap"
    found = compared(name, name)
    assert found.equal and found.different is False


def test_broadcast_state_counts_once_however_many_subtasks_have_a_copy(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    source = golden.write(ground.disk, "flink-2.3.0/kinds-canonical-rocksdb")
    ground.apply(rescaled(source, parallelism=3))
    found = look.diff(source, WRITTEN, ground.disk.open)
    assert found.equal
    assert [store.same for store in found.stores if store.store == "rules"] == [1]


def test_keys_outside_of_a_handles_groups_are_not_entries() -> None:
    """A database that was cut down to fewer key groups still holds the others."""
    name, disk = "flink-2.3.0/count-native-rocksdb", MemoryDisk()
    storage, survey = golden.looked_at(disk, golden.write(disk, name))
    streams = Streams(storage.chunks, places_of(survey.images[0]))
    handle = next(
        s.managed_keyed
        for o in metadata_of(survey.images[0]).operators
        for s in o.subtasks or ()
        if isinstance(s.managed_keyed, Incremental)
    )
    every = {entry.group for entry in keyed_entries(handle, 8, streams)}
    less = {
        entry.group for entry in keyed_entries(replace(handle, first=min(every) + 1), 8, streams)
    }
    assert less and less == every - {min(every)}


PAIR = golden.FOLDER / "flink-2.3.0" / "pair-rocksdb"


def test_a_canonical_and_a_native_savepoint_of_one_job_are_equal() -> None:
    """Taken of one waiting job, behind each other; made by tests/servers/test_flink_backends.py,
    which takes them anew. Values, lists, maps, timers, windows, TTL, broadcast and operator state.
    """
    found = look.diff(str(PAIR / "canonical"), str(PAIR / "native"))
    assert found.equal and not found.incomparable
    assert sum(store.same for store in found.stores) == 209
    assert {"_timer_state/event_user-timers", "rules", "digits", "window-contents"} <= {
        s.store for s in found.stores
    }


def test_exports_of_a_canonical_and_a_native_savepoint_have_the_same_rows(tmp_path: Path) -> None:
    rows = []
    for kind in ("canonical", "native"):
        to = str(tmp_path / f"{kind}.jsonl")
        look.save(
            look.export(str(PAIR / kind), to, look.Wanted(), look.open_patiently),
            to,
            look.open_patiently,
        )
        rows.append(sorted(Path(to).read_text("utf-8").splitlines()))
    assert len(rows[0]) > 200
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("case", "groups", "operators"),
    [
        ("count-canonical-rocksdb", 1, ["orders-count"]),
        ("count-canonical-rocksdb", 2, []),
        ("kinds-canonical-rocksdb", 2, []),
    ],
)
def test_a_full_checkpoint_of_rocksdb_is_told_from_a_hashmap_s_where_no_group_is_empty(
    tmp_path: Path, case: str, groups: int, operators: list[str]
) -> None:
    """Its first group begins with zeros: a state's number and the length of a key. So does the
    hashmap's, with the number of the group. It has the form of a canonical savepoint's.
    """
    ground = Ground(tmp_path)
    source = golden.write(ground.disk, f"flink-2.3.0/{case}")
    ground.apply(rescaled(source, *operators, max_parallelism=groups, parallelism=1))
    image = decode_metadata(ground.held(WRITTEN)["_metadata"])
    operators = [
        replace(operator, subtasks=tuple(map(of_a_checkpoint, operator.all_subtasks)))
        for operator in image.operators
    ]
    ground.put(f"{WRITTEN}/_metadata", encode_metadata(replace(image, operators=tuple(operators))))
    storage, survey = golden.looked_at(ground.disk, WRITTEN)
    backends = {operator.provider for operator in survey.images[0].operators} - {None}
    assert backends == {"rocksdb (full)"}
    assert golden.damages(storage, survey) == []


def rescaled(source: str, *operators: str, **change: int) -> Spec:
    """A spec that deals the state of an image, or of some of its operators, out anew."""
    job = {
        "name": "orders",
        "existing_savepoint_paths": [source],
        "new_savepoint_path": WRITTEN,
        "transform": [{"kind": "rescale", **change}],
        "operators": list(operators),
    }
    return parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [job]}))


def of_a_checkpoint(subtask: SubtaskState) -> SubtaskState:
    """The subtask with its key groups named as a checkpoint names them."""
    handle = subtask.managed_keyed
    if not isinstance(handle, KeyGroups):
        return subtask
    assert all(handle.offsets)
    return replace(subtask, managed_keyed=replace(handle, tag=KEY_GROUPS, id="whole"))


def test_a_file_of_no_key_groups_is_nobodys_hashmap() -> None:
    handle = KeyGroups(KEY_GROUPS, 0, Longs.of(()), Inline("none", b""))
    streams = Streams(MemoryDisk().open("mem://a").chunks, Places("mem://a", ""))
    assert backend_of(handle, streams) == "rocksdb (full)"
