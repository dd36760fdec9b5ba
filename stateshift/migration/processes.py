"""Processes of this machine that share the work of computing steps, as the executor and those who
read images know them: what they are given, and from how much on. Neither they nor what they need is
loaded before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stateshift.machine import processes_here
from stateshift.plan import Plan
from stateshift.step import CompareImages, Discrepancy, Evidence, Step, TransformShard
from stateshift.survey import Finding, Image, ShardFiles, Survey
from stateshift.world import World

if TYPE_CHECKING:
    from stateshift.engines.views import Compared, ExportedPart, HistoryCheck, Tallies, Wanted
    from stateshift.fleet.crew import Crew
    from stateshift.formats.blocks import RowBlock

# Below it a process has hardly started when all is done.
BYTES_MIN = 256 * 1024 * 1024
STEP_BYTES_MIN = 1024 * 1024


def computes(step: Step, bytes_min: int = STEP_BYTES_MIN) -> bool:
    """Whether a step is one for another process. Copies mostly wait, which threads do as well."""
    return isinstance(step, TransformShard | CompareImages) and step.bytes >= bytes_min


def is_shared(plan: Plan) -> bool:
    """Whether a phase of the plan is worth being shared by processes."""
    for phase in plan.phases:
        computed = [] if phase.ordered else list(filter(computes, phase.steps))
        if sum(step.bytes for step in computed) >= BYTES_MIN:
            return True
    return False


def processes_for(plans: Iterable[Plan], parallel: int | None) -> int:
    """Return the number of processes of this machine that would share the work of these plans."""
    return processes_here(parallel) if any(map(is_shared, plans)) else 1


@dataclass(eq=False)
class Processes:
    """The crew of this machine, from the first phase that is worth it to `close`."""

    open_crew: Callable[[], Crew]
    bytes_min: int = BYTES_MIN
    step_bytes_min: int = STEP_BYTES_MIN

    @cached_property
    def _crew(self) -> Crew:
        return self.open_crew()

    def takes(self, step: Step) -> bool:
        return computes(step, self.step_bytes_min)

    def is_worth(self, bytes: int) -> bool:
        return bytes >= self.bytes_min

    def close(self) -> None:
        """End the processes, where any were started."""
        if "_crew" in vars(self):
            self._crew.close()

    # -- what the executor asks

    def begin(self, phase: str, steps: Sequence[Step], world: World) -> None:
        self._crew.begin(phase, steps, world)

    def slots(self, waiting: int) -> int:
        return self._crew.slots(waiting)

    def run(self, step: Step, world: World) -> Evidence:
        return self._crew.run(step, world)

    def holds(self, step: Step, world: World, evidence: Evidence) -> list[Discrepancy]:
        return self._crew.holds(step, world, evidence)

    # -- what those ask who read images

    def deep(self, survey: Survey, image: Image, tallies: Tallies | None) -> tuple[Finding, ...]:
        return self._crew.deep(survey, image, tallies)

    def histories(self, survey: Survey, image: Image, tallies: Tallies) -> HistoryCheck:
        return self._crew.histories(survey, image, tallies)

    def unequal(
        self,
        sides: Any,  # the engine knows what they are
        sizes: tuple[Mapping[str, int], Mapping[str, int]],
        put: Callable[[int, RowBlock], None],
    ) -> Compared:
        return self._crew.unequal(sides, sizes, put)

    def exported(
        self,
        survey: Survey,
        shards: Iterable[tuple[Image, ShardFiles]],
        wanted: Wanted,
        format: str,
    ) -> Iterator[ExportedPart]:
        return self._crew.exported(survey, shards, wanted, format)
