"""How many bins a group has, which of them are hot, and another number of them on its way. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stateshift.documents.bins import came_of
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.live.bins.bin_count import Advice
    from stateshift.live.bins.bin_loads import Load
    from stateshift.live.bins.moved import Moved
    from stateshift.live.bins.watch import Bins

CountState = Literal["shown", "checked", "finished", "applied", "aborted"]
HOTTEST_MAX = 10


@dataclass(frozen=True, slots=True)
class CountFacts:
    """A group's bins; `wanted` is another number of them, where one was asked for, and `moved` says
    how far that is, unless it was checked only.
    """

    bins: Bins
    loads: tuple[Load, ...]
    advice: Advice
    wanted: int | None = None
    moved: Moved | None = None

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.bins.location)

    @property
    def state(self) -> CountState:
        """How far it came."""
        return "shown" if self.wanted is None else came_of(self.moved)

    @property
    def hottest(self) -> tuple[Load, ...]:
        """The bins that have the most, of those that have something."""
        filled = [load for load in self.loads if load.times > 0]
        return tuple(sorted(filled, key=lambda load: (-load.times, load.bin))[:HOTTEST_MAX])

    @property
    def keys(self) -> int:
        """How many keys are dealt anew, in all operators."""
        return sum(load.keys for load in self.loads)

    @property
    def size(self) -> int:
        """How many bytes they have."""
        return sum(load.size for load in self.loads)
