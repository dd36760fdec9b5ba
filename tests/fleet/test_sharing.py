"""What others read of an image for us: the same bytes as when one process reads all of it, for
every image that a real Spark wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from stateshift.engines.spark.views.export import export
from stateshift.engines.views import Wanted
from stateshift.errors import PlanError
from stateshift.fleet import Crew
from stateshift.fleet.task import open_world
from stateshift.migration.processes import Processes
from stateshift.storage.protocol import Storage
from stateshift.world import World
from tests.engines.spark.golden import NAMES, golden
from tests.support.fleet import MemoryCarrier

FORMATS = ("jsonl", "parquet", "arrow")


@dataclass
class Sharing:
    """The crew of some processes that see one image, whatever is small."""

    storage: Storage

    def __post_init__(self) -> None:
        self.carrier = MemoryCarrier(self._world)
        self.readers = Processes(lambda: Crew(self.carrier), bytes_min=0, step_bytes_min=0)

    def _world(self, order: Mapping[str, Any]) -> World:
        return open_world(order, {self.storage.location: self.storage})

    def asked_for(self, ask: str) -> int:
        """How many orders of a kind there were."""
        return sum(label.startswith(f"{ask}/") for label in self.carrier.carried)


@pytest.mark.sample(60)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("format", FORMATS)
def test_an_export_has_the_same_bytes_whoever_reads(name: str, format: str) -> None:
    storage = golden(name)
    try:
        alone = export(storage.location, Wanted(), format, lambda location: storage)
    except PlanError as error:
        pytest.skip(str(error))
    sharing = Sharing(storage)
    together = export(storage.location, Wanted(), format, lambda location: storage)
    assert b"".join(together.chunks(sharing.readers)) == b"".join(alone.chunks())
    assert together.entries == alone.entries
    shards = sum(len(image.shards) for image in together.opened.images)
    assert sharing.asked_for("export") == shards
