"""The number of bins of a group, which are hot, and another number on its way: facts and document.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from stateshift.documents.bins import LiveLoadDocument, came_of
from stateshift.documents.problems import ErrorDocument
from stateshift.documents.shape import At, OrNone
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.live.bins.migration import MoveProgress
    from stateshift.live.bins.move_request import Advice
    from stateshift.live.bins.watch import Bins, Load

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
    moved: MoveProgress | None = None

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.bins.location)

    @property
    def running_parts(self) -> int:
        """The number of workers' parts in operators."""
        return len(self.bins.running)

    @property
    def state(self) -> CountState:
        """The state of the other number of bins."""
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


# ---- documents -----------------------------------------------------------------------------------


class LiveCountDocument(TypedDict):
    """How many bins a group has, and how far another number of them has come."""

    state: Annotated[
        CountState,
        "shown: nothing was asked for. finished: all workers have redistributed their bins. "
        "applied (exit code 9): it is decided, and not all were seen to have",
    ]
    group: Annotated[str, "the group's folder", At("location")]
    bins: Annotated[int, "how many there were when it was asked for", At("bins.count")]
    wanted: Annotated[int | None, "how many there shall be"]
    advised: Annotated[int, "how many their loads speak for", At("advice.count")]
    why: Annotated[str, "what speaks for it", At("advice.reason")]
    hottest: Annotated[list[LiveLoadDocument], "the bins with the most"]
    move: Annotated[
        int | None, "the number of the proposal; null if there was none", At("moved.number")
    ]
    parts: Annotated[int, "workers' parts in operators", At("running_parts")]
    parts_dealt: Annotated[
        int | None, "those that have redistributed their bins", At("moved.complete")
    ]
    reason: Annotated[str | None, "why it did not come to its end", OrNone("moved.reason")]
    seconds: Annotated[float | None, "how long it took", At("moved.seconds")]


class AbortedLiveCountDocument(LiveCountDocument, ErrorDocument):
    """Another number of bins that was aborted. It holds the error's keys, too."""
