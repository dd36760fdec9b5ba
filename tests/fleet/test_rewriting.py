"""Large shards rewritten in parts, one as one or several as others: the bytes and the evidence of one
process, however many parts there are and whoever is lost on the way; and a comparison finds the
same entries.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stateshift.engines.registry import Entries, Transforms
from stateshift.engines.spark.entries.columnar import hashes_of
from stateshift.engines.spark.entries.encoders import ROW
from stateshift.engines.spark.entries.keys import KeyRule
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.errors import FormatError, Interrupted
from stateshift.fleet import Crew
from stateshift.formats.blocks import binary, block_of
from stateshift.formats.rocksdb.manifest import TableFacts, encode_manifest
from stateshift.formats.spark.rocksdb import (
    ListedTable,
    RocksDBSnapshot,
    decode_zip,
    encode_zip,
    listed_table,
)
from stateshift.formats.spark.state_files import Changelog, StateRecord
from stateshift.formats.spark.text import encode_object
from stateshift.plain import to_plain
from stateshift.step import CompareImages, Evidence, TransformShard
from stateshift.step.evidence import FilesWritten
from stateshift.step.images import read_before
from stateshift.survey import FileInfo, ShardFiles
from stateshift.testing.memory_storage import ProcessGone
from stateshift.world import World
from tests.formats.rocksdb.test_sst_encoding import table_of
from tests.support.encoders import encode_changelog
from tests.support.fleet import MemoryCarrier
from tests.support.ground import SOURCE, TARGET, Ground

FAMILIES = {"counts": 0, "$ttl": 1}
LONG_KEY = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "key", "type": "long", "nullable": False, "metadata": {}}],
    }
)
STORE_VIEW = StoreView.of_rule("default", KeyRule(LONG_KEY, ROW, ((0,),)))


@dataclass(frozen=True)
class Shape:
    """Shards of some keys: `each` of a shard's in a table, every third of them in an older table of
    level 0 as well, and changelogs behind that write some anew and delete some. They become as many
    as before, or others. Tables that are `interleaved` have keys of the whole shard, each.
    """

    keys: int = 3000
    each: int = 500
    families: bool = False
    overlapping: bool = True
    interleaved: bool = False
    tables_after: int = 5
    sources: int = 1
    targets: int = 1

    @property
    def is_moved(self) -> bool:
        return self.sources != self.targets


SHAPES = {
    "plain": Shape(),
    "one table before": Shape(each=3000, overlapping=False),
    "families": Shape(families=True),
    "few": Shape(keys=7, each=2, tables_after=6),
    "interleaved": Shape(interleaved=True),
    "3 to 2": Shape(sources=3, targets=2),
    "3 to 1": Shape(sources=3, tables_after=8),
    "1 to 4, of one table": Shape(each=3000, overlapping=False, targets=4),
    "families, 2 to 3": Shape(families=True, sources=2, targets=3),
    "few, 3 to 2": Shape(keys=7, each=2, sources=3, targets=2),
}
MOVED = "3 to 2"


def files_of(shape: Shape, shard: int, families: Mapping[str, int] = FAMILIES) -> dict[str, bytes]:
    """The files of a shard, by path."""
    keys = sorted(keys_of(shape, shard, families))
    runs = [keys[start : start + shape.each] for start in range(0, len(keys), shape.each)]
    if shape.interleaved:
        runs = [keys[start :: len(runs)] for start in range(len(runs))]
    if shape.overlapping and keys:
        runs.append(keys[::3])
    folder = f"state/0/{shard}"
    files: dict[str, bytes] = {}
    facts: dict[int, TableFacts] = {}
    tables = []
    for number, run in enumerate(runs, start=4):
        content, facts[number] = table_of([block_of((key, b"v" * 60 + key) for key in run)])
        files[f"{folder}/SSTs/{number:06}-x.sst"] = content
        tables.append(ListedTable(f"{number:06}.sst", f"{number:06}-x.sst", len(content)))
    text: dict[str, Any] = {"sstFiles": list(map(listed_table, tables)), "numKeys": len(keys)}
    if shape.families:
        text |= {
            "columnFamilyMapping": dict(families),
            "columnFamilyTypeMap": {name: name.startswith("$") for name in families},
            "maxColumnFamilyId": max(families.values()),
        }
    snapshot = RocksDBSnapshot(tuple(tables), len(keys), text=encode_object(text))
    manifest = {"MANIFEST-000003": encode_manifest(facts)}
    files[f"{folder}/1.zip"] = encode_zip(snapshot, manifest)
    if not shape.families:
        changes = [StateRecord(key, b"new") for key in keys[::5]]
        changes += [StateRecord(key, None) for key in keys[1::7]]
        files[f"{folder}/2.changelog"] = b"".join(encode_changelog(Changelog(1), changes))
    return files


def keys_of(shape: Shape, shard: int, families: Mapping[str, int]) -> Iterator[bytes]:
    """The keys that belong to a shard; a third of them in the second column family."""
    rows = [bytes(9) + number.to_bytes(8, "little") for number in range(shape.keys)]
    places = hashes_of(STORE_VIEW, binary(rows)) % shape.sources
    for number, row in enumerate(rows):
        if places[number] == shard:
            name = "counts" if number < 2 * shape.keys // 3 else "$ttl"
            family = families[name].to_bytes(2, "little") if shape.families else b""
            yield family + row


@dataclass
class Rewriting:
    """Shards at the source, and the step that rewrites them."""

    shape: Shape

    def __post_init__(self) -> None:
        self.ground = Ground()
        self.files: dict[str, bytes] = {}
        self.sources = []
        for shard in range(self.shape.sources):
            files = files_of(self.shape, shard)
            self.sources.append(ShardFiles("0", "default", shard, tuple(files)))
            self.files |= files
        for path, content in self.files.items():
            self.ground.source.write(path, lambda content=content: iter((content,)))
        names = [f"{number:06}-y.sst" for number in range(2, 2 + self.shape.tables_after)]
        self.targets, outputs = [], []
        for shard in range(self.shape.targets):
            paths = [f"state/0/{shard}/SSTs/{name}" for name in names]
            own_zip = f"state/0/{shard}/3.zip"
            self.targets.append(ShardFiles("0", "default", shard, (own_zip, *paths)))
            outputs += [*paths, own_zip]
        self.zips = [path for path in outputs if path.endswith(".zip")]
        piece: dict[str, Any] = {
            "operator": "0",
            "store": "default",
            "sources": [[source.shard, list(source.files)] for source in self.sources],
            "targets": list(range(self.shape.targets)),
            "tables": [names] * self.shape.targets,
        }
        if self.shape.is_moved:
            piece["partitions"] = [self.shape.sources, self.shape.targets]
        rule = to_plain(KeyRule(LONG_KEY, ROW, ((0,),)))
        stores = ["0/default", *(f"0/default/{name}" for name in FAMILIES)]
        options = {
            "pieces": [piece],
            "settings": {},
            "provider": ROCKSDB,
            "codec": "lz4",
            "checksums": False,
            "format": 1,
            "format_without_zip": 1,
            "compared": {},
            "rules": dict.fromkeys(stores, rule),
        }
        self.step = TransformShard(
            name="transform/state-0-0",
            transform="spark.rewrite-state",
            options=options,
            source=SOURCE,
            inputs=tuple(FileInfo(path, len(self.files[path])) for path in self.files),
            target=TARGET,
            outputs=tuple(outputs),
        )

    def rewrite(self, path: str, content: bytes) -> None:
        """Put another file in the place of one of the source's."""
        self.ground.source.write(path, lambda: iter((content,)))
        inputs = []
        for file in self.step.inputs:
            inputs.append(file if file.path != path else FileInfo(path, len(content)))
        self.step = replace(self.step, inputs=tuple(inputs))

    @property
    def world(self) -> World:
        return replace(self.ground.world, transforms=Transforms(), entries=Entries(), parallel=1)

    def carrier(self, **more: Any) -> MemoryCarrier:
        return MemoryCarrier(self.world_of, **more)

    def world_of(self, order: Mapping[str, Any]) -> World:
        return self.world

    def run(self, carrier: MemoryCarrier) -> Evidence:
        crew = Crew(carrier, part_bytes_min=1)
        crew.begin("transform", [self.step], self.world)
        return crew.run(self.step, self.world)

    def written(self) -> dict[str, bytes]:
        target = self.ground.target
        return {file.path: target.read(file.path) for file in target.list()}

    def has_zips(self) -> bool:
        return any(path in self.written() for path in self.zips)


def orders_of(carrier: MemoryCarrier, ask: str) -> int:
    return sum(f"/{ask}/" in label for label in carrier.carried)


def alone(shape: Shape) -> tuple[Evidence, dict[str, bytes]]:
    """What one process shows, and what it leaves."""
    made = Rewriting(shape)
    return made.step.run(made.world), made.written()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_parts_leave_the_bytes_and_the_evidence_of_one_process(name: str, slots: int) -> None:
    shape = SHAPES[name]
    made = Rewriting(shape)
    carrier = made.carrier(slots_there=slots)
    evidence = made.run(carrier)
    assert (evidence, made.written()) == alone(shape)
    assert orders_of(carrier, "tables") == min(2 * slots, shape.tables_after)
    assert orders_of(carrier, "version") == 1


@pytest.mark.parametrize("name", SHAPES)
def test_what_parts_have_read_is_what_a_comparison_asks_for(name: str) -> None:
    made = Rewriting(SHAPES[name])
    evidence = made.run(made.carrier())
    compare = CompareImages(
        name="compare/state-0-0",
        engine="spark",
        source=SOURCE,
        target=TARGET,
        source_shards=tuple(made.sources),
        target_shards=tuple(made.targets),
        paths=(),
        settings={},
    )
    world = replace(made.world, read=read_before([evidence]))
    assert compare.unread(world) == []
    assert compare.run(world) == compare.run(made.world)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(keys=20_000, each=6_000, interleaved=True),
        Shape(keys=20_000, each=6_000, sources=3, targets=2),
    ],
    ids=["one shard", "3 to 2"],
)
def test_tables_are_about_even_however_the_old_ones_overlap(shape: Shape) -> None:
    _, left = alone(shape)
    sizes = [len(content) for path, content in left.items() if path.endswith(".sst")]
    assert max(sizes) < 2 * min(sizes)


def test_column_families_of_sparks_own_are_counted_apart_over_all_parts() -> None:
    made = Rewriting(SHAPES["families"])
    made.run(made.carrier(slots_there=8))
    assert decode_zip(made.written()[made.zips[0]]).keys == 2000


def test_they_are_counted_apart_in_every_shard_that_entries_move_to() -> None:
    made = Rewriting(SHAPES["families, 2 to 3"])
    made.run(made.carrier(slots_there=8))
    assert sum(decode_zip(made.written()[path]).keys for path in made.zips) == 2000


@pytest.mark.parametrize("name", ["plain", MOVED])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lost", ["tables/0", "tables/2", "tables/4", "version/0"])
def test_a_part_that_is_lost_is_made_again(lost: str, when: str, name: str) -> None:
    """Each of them in turn, and the zips."""
    made = Rewriting(SHAPES[name])

    def lose(label: str, attempt: int) -> str | None:
        return when if label == f"{made.step.name}/{lost}" and attempt == 0 else None

    evidence = made.run(made.carrier(slots_there=8, lose=lose))
    expected, left = alone(SHAPES[name])
    assert evidence == replace(expected, repeated=True)
    assert made.written() == left


@pytest.mark.parametrize("name", ["plain", MOVED])
@pytest.mark.parametrize("done", range(6))
def test_nothing_names_the_tables_before_all_are_written(done: int, name: str) -> None:
    """Somebody asks to stop behind so many orders: for the bounds, and for five parts. Who goes on
    without others ends the same.
    """
    made = Rewriting(SHAPES[name])
    carrier = made.carrier(slots_there=8)

    def stop(label: str, attempt: int) -> None:
        if len(carrier.carried) > done:
            carrier.stop.set()

    carrier.lose = stop
    with pytest.raises(Interrupted):
        made.run(carrier)
    assert not made.has_zips()
    made.step.run(made.world)
    assert made.written() == alone(SHAPES[name])[1]


@pytest.mark.parametrize("name", ["plain", MOVED])
@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("killed_at", range(7))
def test_who_was_killed_with_all_others_goes_on_alone_or_with_them(
    killed_at: int, is_shared: bool, name: str
) -> None:
    """All processes are gone at one of the orders: for the bounds, for five parts, for the zips."""
    made = Rewriting(SHAPES[name])
    before = made.world
    before.storage(SOURCE)
    before.storage(TARGET)
    carrier = MemoryCarrier(lambda order: before, slots_there=8)
    orders = itertools.count()

    def kill(label: str, attempt: int) -> None:
        if next(orders) == killed_at:
            made.ground.disk.kill()

    carrier.lose = kill
    with pytest.raises(ProcessGone):
        made.run(carrier)
    assert not made.has_zips()
    evidence = made.run(made.carrier(slots_there=8)) if is_shared else made.step.run(made.world)
    assert (evidence, made.written()) == alone(SHAPES[name])


@pytest.mark.parametrize("name", ["plain", MOVED])
def test_damage_in_one_part_is_the_error_of_one_process_and_no_zip_is_written(name: str) -> None:
    made = Rewriting(SHAPES[name])
    path = made.sources[0].files[1]
    damaged = bytearray(made.files[path])
    damaged[100] ^= 0x55
    made.rewrite(path, bytes(damaged))
    with pytest.raises(FormatError) as here:
        made.step.run(made.world)
    for left in made.written():
        made.ground.target.remove(left)
    with pytest.raises(FormatError) as there:
        made.run(made.carrier(slots_there=8))
    assert str(there.value) == str(here.value)
    assert not made.has_zips()


@pytest.mark.parametrize("name", ["plain", MOVED])
def test_a_shard_without_sorted_runs_stays_whole(name: str) -> None:
    """Its MANIFEST says nothing of the tables, so that nobody knows what order they are in."""
    made = Rewriting(SHAPES[name])
    path = "state/0/0/1.zip"
    unordered = encode_zip(decode_zip(made.files[path]), {"MANIFEST-000003": encode_manifest({})})
    made.rewrite(path, unordered)
    stays_whole(made)


def test_shards_whose_column_families_have_other_numbers_stay_whole() -> None:
    """Their keys begin with those numbers, and are in another order once they have moved."""
    made = Rewriting(SHAPES["families, 2 to 3"])
    others = files_of(made.shape, 1, {"counts": 2, "$ttl": 1})
    for path, content in others.items():
        made.rewrite(path, content)
    stays_whole(made)


def stays_whole(made: Rewriting) -> None:
    carrier = made.carrier(slots_there=8)
    evidence = made.run(carrier)
    assert isinstance(evidence, FilesWritten)
    assert [file.path for file in evidence.files] == list(made.step.outputs)
    assert carrier.carried[-1] == made.step.name
    assert orders_of(carrier, "tables") == orders_of(carrier, "version") == 0


@pytest.mark.parametrize("name", ["plain", MOVED])
def test_little_state_stays_whole(name: str) -> None:
    made = Rewriting(SHAPES[name])
    carrier = made.carrier()
    crew = Crew(carrier)
    crew.begin("transform", [made.step], made.world)
    crew.run(made.step, made.world)
    assert carrier.carried == [made.step.name]
