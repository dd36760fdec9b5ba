"""What others read of an image for us: the same bytes as when one process reads all of it, for
every image that a real Spark wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest

from stateshift.engines.spark.check.image import findings_of
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.layout import has_tables
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.engines.spark.views.export import export
from stateshift.engines.views import Tallies, Wanted
from stateshift.fleet import Crew
from stateshift.fleet.cutting import PART_BYTES_MIN
from stateshift.fleet.task import open_world
from stateshift.migration.processes import Processes
from stateshift.step import CompareImages
from stateshift.storage.protocol import Storage
from stateshift.world import World
from tests.engines.spark.golden import NAMES, golden
from tests.support.fleet import MemoryCarrier

FORMATS = ("jsonl", "parquet", "arrow")


@dataclass
class Sharing:
    """The crew of some processes that see one image, whatever is small."""

    storage: Storage

    part_bytes_min: int = PART_BYTES_MIN

    def __post_init__(self) -> None:
        self.carrier = MemoryCarrier(self.world)
        crew = Crew(self.carrier, part_bytes_min=self.part_bytes_min)
        self.readers = Processes(lambda: crew, bytes_min=0, step_bytes_min=0)

    def world(self, order: Mapping[str, Any]) -> World:
        return open_world(order, {self.storage.location: self.storage})

    def asked_for(self, ask: str) -> int:
        """How many orders of a kind there were."""
        return sum(label.startswith(f"{ask}/") for label in self.carrier.carried)


@pytest.mark.long
@pytest.mark.sample(60)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("part_bytes_min", [1, PART_BYTES_MIN])
def test_an_export_has_the_same_bytes_whoever_reads(
    name: str, format: str, part_bytes_min: int
) -> None:
    storage = golden(name)
    for wanted in exportable(storage, format):
        sharing = Sharing(storage, part_bytes_min)
        alone = export(storage.location, wanted, format, lambda location: storage)
        together = export(storage.location, wanted, format, lambda location: storage)
        assert b"".join(together.chunks(sharing.readers)) == b"".join(alone.chunks())
        assert together.entries == alone.entries
        assert sharing.asked_for("export") > 0


def exportable(storage: Storage, format: str) -> Iterator[Wanted]:
    """Yield what one file of the format can hold of an image: all of it, or each store."""
    for image in survey(storage).images:
        stores = {
            (shard.operator, store)
            for shard in image.shards
            for store, _ in fold_shard(storage.chunks, shard, image.settings)
        }
        if format == "jsonl" and stores:
            yield Wanted()
        else:
            yield from (Wanted(operator, store) for operator, store in sorted(stores))


@pytest.mark.sample(60)
@pytest.mark.parametrize("name", NAMES)
def test_parts_of_shards_come_to_what_whole_ones_do(name: str) -> None:
    storage = golden(name)
    sharing = Sharing(storage, part_bytes_min=1)
    world = sharing.world({"rates": [None, None], "ask": "sum", "run": "the-run"})
    images = survey(storage).images
    for image in images:
        for shard in image.shards:
            step = CompareImages(
                name="compare/0",
                engine="spark",
                source=storage.location,
                target=storage.location,
                source_shards=(shard,),
                target_shards=None,
                paths=(),
                settings=image.settings,
                size=1000,
            )
            sharing.readers.begin("compare", [step], world)
            evidence = sharing.readers.run(step, world)
            assert evidence == step.run(world)
            assert sharing.readers.holds(step, world, evidence) == []
    shards = chain.from_iterable(image.shards for image in images)
    can_be_cut = any(has_tables(shard.files) for shard in shards)
    assert (sharing.asked_for("compare/0/parts") > 0) == can_be_cut


@pytest.mark.sample(60)
@pytest.mark.parametrize("name", NAMES)
def test_parts_of_shards_are_checked_as_whole_ones_are(name: str) -> None:
    storage = golden(name)
    found = survey(storage, thorough=True)
    for image in found.images:
        tallies: Tallies = {}
        alone = set(findings_of(storage, found, image, tallies))
        for part_bytes_min in (1, PART_BYTES_MIN):
            shared: Tallies = {}
            sharing = Sharing(storage, part_bytes_min)
            assert set(sharing.readers.deep(found, image, shared)) == alone
            assert shared == tallies
            assert not sharing.carrier.closed
