"""A large shard rewritten in parts: the bytes and the evidence of one process, however many parts
there are and whoever is lost on the way; and a comparison finds the same entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stateshift.engines.registry import Entries, Transforms
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.errors import FormatError, Interrupted
from stateshift.fleet import Crew
from stateshift.formats.blocks import block_of
from stateshift.formats.rocksdb.manifest import TableFacts, encode_manifest
from stateshift.formats.spark.rocksdb import (
    RocksDBSnapshot,
    Table,
    decode_zip,
    encode_zip,
    listed_table,
)
from stateshift.formats.spark.state_files import Changelog, Record
from stateshift.formats.spark.text import encode_object
from stateshift.step import CompareImages, Evidence, TransformShard
from stateshift.step.evidence import FilesWritten
from stateshift.step.images import read_before
from stateshift.survey import FileInfo, ShardFiles
from stateshift.testing.memory_storage import ProcessGone
from stateshift.world import World
from tests.formats.rocksdb.test_sst_encoding import table_of
from tests.support.encoders import encode_changelog
from tests.support.fleet import MemoryCarrier
from tests.support.steps import SOURCE, TARGET, Stage

FOLDER = "state/0/0"
FAMILIES = {
    "columnFamilyMapping": {"counts": 0, "$ttl": 1},
    "columnFamilyTypeMap": {"counts": False, "$ttl": True},
    "maxColumnFamilyId": 1,
}


@dataclass(frozen=True)
class Shape:
    """A shard of some keys: `each` of them in a table, every third of them in an older table of
    level 0 as well, and changelogs behind that write some anew and delete some.
    """

    keys: int = 3000
    each: int = 500
    families: bool = False
    overlapping: bool = True
    tables_after: int = 5


SHAPES = {
    "plain": Shape(),
    "one table before": Shape(each=3000, overlapping=False),
    "families": Shape(families=True),
    "few": Shape(keys=7, each=2, tables_after=6),
}


def files_of(shape: Shape) -> dict[str, bytes]:
    """The files of the shard, by path."""
    keys = list(keys_of(shape))
    runs = [keys[start : start + shape.each] for start in range(0, len(keys), shape.each)]
    if shape.overlapping:
        runs.append(keys[::3])
    files: dict[str, bytes] = {}
    facts: dict[int, TableFacts] = {}
    tables = []
    for number, run in enumerate(runs, start=4):
        content, facts[number] = table_of([block_of((key, b"v" * 60 + key) for key in run)])
        files[f"{FOLDER}/SSTs/{number:06}-x.sst"] = content
        tables.append(Table(f"{number:06}.sst", f"{number:06}-x.sst", len(content)))
    text: dict[str, Any] = {"sstFiles": list(map(listed_table, tables)), "numKeys": len(keys)}
    if shape.families:
        text |= FAMILIES
    snapshot = RocksDBSnapshot(tuple(tables), len(keys), text=encode_object(text))
    manifest = {"MANIFEST-000003": encode_manifest(facts)}
    files[f"{FOLDER}/1.zip"] = encode_zip(snapshot, manifest)
    if not shape.families:
        changes = [Record(key, b"new") for key in keys[::5]]
        changes += [Record(key, None) for key in keys[1::7]]
        files[f"{FOLDER}/2.changelog"] = b"".join(encode_changelog(Changelog(1), changes))
    return files


def keys_of(shape: Shape) -> Iterator[bytes]:
    for number in range(shape.keys):
        family = b""
        if shape.families:
            family = (0 if number < 2 * shape.keys // 3 else 1).to_bytes(2, "little")
        yield family + b"%06d" % number


@dataclass
class Rewriting:
    """A shard at the source, and the steps that rewrite it and compare."""

    shape: Shape

    def __post_init__(self) -> None:
        self.files = files_of(self.shape)
        self.stage = Stage()
        for path, content in self.files.items():
            self.stage.source.write(path, lambda content=content: iter((content,)))
        names = [f"{number:06}-y.sst" for number in range(2, 2 + self.shape.tables_after)]
        self.source = ShardFiles("0", "default", 0, tuple(self.files))
        paths = [f"{FOLDER}/SSTs/{name}" for name in names]
        self.target = ShardFiles("0", "default", 0, (f"{FOLDER}/3.zip", *paths))
        piece = {
            "operator": "0",
            "store": "default",
            "sources": [[0, list(self.files)]],
            "targets": [0],
            "tables": [names],
        }
        options = {
            "pieces": [piece],
            "settings": {},
            "provider": ROCKSDB,
            "codec": "lz4",
            "checksums": False,
            "format": 1,
            "format_without_zip": 1,
            "compared": {},
        }
        self.step = TransformShard(
            name="transform/state-0-0",
            transform="spark.rewrite-state",
            options=options,
            source=SOURCE,
            inputs=tuple(FileInfo(path, len(self.files[path])) for path in self.files),
            target=TARGET,
            outputs=(*paths, f"{FOLDER}/3.zip"),
        )

    @property
    def world(self) -> World:
        return replace(self.stage.world, transforms=Transforms(), entries=Entries(), parallel=1)

    def carrier(self, **more: Any) -> MemoryCarrier:
        return MemoryCarrier(self.world_of, **more)

    def world_of(self, order: Mapping[str, Any]) -> World:
        return self.world

    def run(self, carrier: MemoryCarrier) -> Evidence:
        crew = Crew(carrier, part_bytes_min=1)
        crew.begin("transform", [self.step], self.world)
        return crew.run(self.step, self.world)

    def written(self) -> dict[str, bytes]:
        target = self.stage.target
        return {file.path: target.read(file.path) for file in target.list()}


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
        source_shards=(made.source,),
        target_shards=(made.target,),
        paths=(),
        settings={},
    )
    world = replace(made.world, read=read_before([evidence]))
    assert compare.unread(world) == []
    assert compare.run(world) == compare.run(made.world)


def test_column_families_of_sparks_own_are_counted_apart_over_all_parts() -> None:
    made = Rewriting(SHAPES["families"])
    made.run(made.carrier(slots_there=8))
    assert decode_zip(made.written()[f"{FOLDER}/3.zip"]).keys == 2000


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lost", range(6))
def test_a_part_that_is_lost_is_made_again(lost: int, when: str) -> None:
    """Each of them in turn, and the zip."""
    made = Rewriting(SHAPES["plain"])
    label = f"{made.step.name}/version/0" if lost == 5 else f"{made.step.name}/tables/{lost}"

    def lose(carried: str, attempt: int) -> str | None:
        return when if carried == label and attempt == 0 else None

    evidence = made.run(made.carrier(slots_there=8, lose=lose))
    expected, left = alone(SHAPES["plain"])
    assert evidence == replace(expected, repeated=True)
    assert made.written() == left


@pytest.mark.parametrize("done", range(5))
def test_nothing_names_the_tables_before_all_are_written(done: int) -> None:
    """Somebody asks to stop behind so many parts, of which there are five: who goes on without
    others ends the same.
    """
    made = Rewriting(SHAPES["plain"])
    carrier = made.carrier(slots_there=8)

    def stop(label: str, attempt: int) -> None:
        if len(carrier.carried) > done:
            carrier.stop.set()

    carrier.lose = stop
    with pytest.raises(Interrupted):
        made.run(carrier)
    assert f"{FOLDER}/3.zip" not in made.written()
    made.step.run(made.world)
    assert made.written() == alone(SHAPES["plain"])[1]


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("killed_at", range(6))
def test_who_was_killed_with_all_others_goes_on_alone_or_with_them(
    killed_at: int, is_shared: bool
) -> None:
    """All processes are gone at one of the orders, of which the last is the zip's."""
    made = Rewriting(SHAPES["plain"])
    before = made.world
    before.storage(SOURCE)
    before.storage(TARGET)
    carrier = MemoryCarrier(lambda order: before, slots_there=8)
    orders = itertools.count()

    def kill(label: str, attempt: int) -> None:
        if next(orders) == killed_at:
            made.stage.disk.kill()

    carrier.lose = kill
    with pytest.raises(ProcessGone):
        made.run(carrier)
    assert f"{FOLDER}/3.zip" not in made.written()
    evidence = made.run(made.carrier(slots_there=8)) if is_shared else made.step.run(made.world)
    assert (evidence, made.written()) == alone(SHAPES["plain"])


def test_damage_in_one_part_is_the_error_of_one_process_and_no_zip_is_written() -> None:
    made = Rewriting(SHAPES["plain"])
    path = f"{FOLDER}/SSTs/000007-x.sst"
    damaged = bytearray(made.files[path])
    damaged[100] ^= 0x55
    made.stage.source.write(path, lambda: iter((bytes(damaged),)))
    with pytest.raises(FormatError) as here:
        made.step.run(made.world)
    made.stage.target.remove(made.step.outputs[0])
    with pytest.raises(FormatError) as there:
        made.run(made.carrier(slots_there=8))
    assert str(there.value) == str(here.value)
    assert f"{FOLDER}/3.zip" not in made.written()


def test_a_shard_without_sorted_runs_stays_whole() -> None:
    """Its MANIFEST says nothing of the tables, so that nobody knows what order they are in."""
    made = Rewriting(SHAPES["plain"])
    path = f"{FOLDER}/1.zip"
    snapshot = decode_zip(made.files[path])
    unordered = encode_zip(snapshot, {"MANIFEST-000003": encode_manifest({})})
    made.stage.source.write(path, lambda: iter((unordered,)))
    carrier = made.carrier(slots_there=8)
    evidence = made.run(carrier)
    assert isinstance(evidence, FilesWritten)
    assert [file.path for file in evidence.files] == list(made.step.outputs)
    assert carrier.carried[-1] == made.step.name
    assert orders_of(carrier, "version") == 0


def test_little_state_stays_whole() -> None:
    made = Rewriting(SHAPES["plain"])
    carrier = made.carrier()
    crew = Crew(carrier)
    crew.begin("transform", [made.step], made.world)
    crew.run(made.step, made.world)
    assert carrier.carried == [made.step.name]
