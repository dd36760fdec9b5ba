"""A profile counts what is there; of some shards, it says how far it may be wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from stateshift import look
from stateshift.table.profile import profile
from stateshift.testing.memory_storage import MemoryDisk
from tests.cli.support import said
from tests.engines.flink import golden
from tests.formats.golden import ROOT
from tests.look.golden_images import STATEFUL

WINDOWS = ROOT / "spark-4.3.0" / "window-hdfs" / "checkpoint"


@pytest.mark.sample(10)
@pytest.mark.parametrize("case", STATEFUL, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_a_profile_counts_the_entries_of_each_shard(case: Path) -> None:
    location = str(case / "checkpoint")
    counted: dict[tuple[str, str, int], int] = {}
    for line in b"".join(look.export(location, "-").chunks()).splitlines():
        row = json.loads(line)
        place = row["operator"], row["store"], row["shard"]
        counted[place] = counted.get(place, 0) + 1
    found = {}
    for store in profile(location, look.open_patiently).stores:
        assert store.entries == sum(shard.entries for shard in store.shards)
        assert not store.is_estimate and store.files and store.margin == 0
        for shard in store.shards:
            if shard.entries:
                found[store.operator, store.store, shard.shard] = shard.entries
    assert found == counted


def test_a_sample_of_the_shards_is_an_estimate_with_a_margin() -> None:
    (whole,) = profile(str(WINDOWS), look.open_patiently).stores
    (part,) = profile(str(WINDOWS), look.open_patiently, every=2).stores
    assert [shard.shard for shard in part.shards] == [0, 2] and part.is_estimate
    assert part.entries - part.margin <= whole.entries <= part.entries + part.margin
    assert (part.files, part.stored_bytes) == (whole.files, whole.stored_bytes)


def test_entries_are_as_old_as_the_watermark_says(tmp_path: Path) -> None:
    done = said("profile", str(WINDOWS), "--json", "--html", str(tmp_path / "page.html"))
    image = json.loads(done.out)["image"]
    (times,) = image["stores"][0]["times"]
    assert times["column"] == "key.window.end" and times["reference_ms"] == image["watermark_ms"]
    assert sum(times["ages"].values()) == image["stores"][0]["entries"] == 10
    page = (tmp_path / "page.html").read_text()
    assert "state_0" in page and "█" in page


def test_a_large_key_is_shown_whole_and_a_store_without_files_of_its_own_says_no_size() -> None:
    shown = said("profile", str(WINDOWS)).out
    (store,) = profile(str(WINDOWS), look.open_patiently).stores
    for entry in (*store.largest_keys[:2], *store.largest_values[:2]):
        assert isinstance(entry.key, dict) and json.dumps(entry.key["window"]) in shown
    savepoint = ROOT / "flink-2.3.0" / "count-canonical-hashmap" / "image"
    (place,) = savepoint.iterdir()
    rows = [line.split() for line in said("profile", str(place)).out.splitlines()]
    (counts,) = [row for row in rows if row[:1] == ["orders_count_count"] and len(row) > 7]
    assert counts[1:] == ["10", "220", "B", "2", "1.80", "-", "-"]


def test_two_images_stand_beside_each_other() -> None:
    other = str(ROOT / "spark-4.3.0" / "join-rocksdb-v4" / "checkpoint")
    done = said("profile", str(WINDOWS), "--to", other)
    assert done.code == 0 and "entries there" in done.out
    assert "state_0_left_tswithkey" in done.out


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", golden.NAMES)
def test_a_savepoint_has_a_profile_too(name: str) -> None:
    disk = MemoryDisk()
    for store in profile(golden.write(disk, name), disk.open, every=7).stores:
        assert store.entries == sum(shard.entries for shard in store.shards)


def test_a_query_of_a_workflow_has_its_own_shards_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(ROOT / "spark-4.3.0" / "window-hdfs" / "checkpoint", tmp_path / name)
    alone, both = (profile(str(at), look.open_patiently) for at in (tmp_path / "a", tmp_path))
    (store,) = alone.stores
    for each in both.stores:
        assert (each.entries, each.shards_there, each.files, each.stored_bytes) == (
            store.entries,
            store.shards_there,
            store.files,
            store.stored_bytes,
        )
