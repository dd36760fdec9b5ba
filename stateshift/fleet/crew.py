"""The fleet as the executor and `look` know it: the steps that it takes, their parts, the looks at
files afterwards. `open_crew` gives one for as long as something lasts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from stateshift.engines.spark.chains import place_of
from stateshift.engines.spark.check.portions import each_alone, portions
from stateshift.engines.spark.rewrite.comparison import SUMS
from stateshift.engines.views import Compared, ExportedPart, HistoryCheck, Tallies, Wanted
from stateshift.errors import ClusterError, FormatError, MissingFile
from stateshift.fleet import cutting
from stateshift.fleet.carrier import OF_SPARK, Asking, Carrier, LabelledOrder, Ways
from stateshift.fleet.masters import check_places
from stateshift.fleet.orders import Json, Order
from stateshift.fleet.rewriting import (
    can_be_dealt_out,
    count_of_parts,
    redistribute_shards,
    rewrite_shards,
)
from stateshift.plain import from_plain, to_plain
from stateshift.step import (
    BringFiles,
    CompareImages,
    CopyFiles,
    Discrepancy,
    Evidence,
    Step,
    TransformShard,
)
from stateshift.step.contents import LISTED_FILES
from stateshift.step.evidence import files_of
from stateshift.step.images import Fold, fold_together
from stateshift.storage import locations
from stateshift.survey import Finding, Image, ShardFiles, Survey
from stateshift.world import Meter, Unwatched, World

if TYPE_CHECKING:
    from stateshift.engines.spark.entries.sides import Sides
    from stateshift.formats.blocks import RowBlock

TAKEN = (BringFiles, CopyFiles, TransformShard, CompareImages)
CHECKED_MAX = 64
SPARK = "spark"
EXPORTED_BYTES_MAX = 64 * 1024 * 1024  # of state, whose rows wait for their turn on a disk

# An executor's Python needs these beside the standard library; storages bring their own.
MODULES = ("mmh3", "numpy", "pyarrow", "xxhash", "google_crc32c", "cramjam")


class Crew:
    """A fleet at work; `step.Fleet` for the executor."""

    def __init__(
        self,
        carrier: Carrier,
        meter: Meter | None = None,
        ways: Ways = OF_SPARK,
        part_bytes_min: int = cutting.PART_BYTES_MIN,
    ) -> None:
        self._carrier, self._meter, self._ways = carrier, meter or Unwatched(), ways
        self._part_bytes_min = part_bytes_min
        self.asking = Asking(carrier, self._meter, ways)
        self._part_bytes = cutting.WORTHWHILE_BYTES
        self._is_uneven = False

    def close(self) -> None:
        """Let go of the carrier."""
        self._carrier.close()

    # -- before anything is begun

    def gather(self, places: Sequence[str], there: Sequence[str] = ()) -> None:
        """See that executors come, have the modules, and see the directories of `there`."""
        modules = list(MODULES)
        if any(locations.scheme(place) != "file" for place in places):
            modules.append("fsspec")
        needed = {
            "modules": modules,
            "locations": list(places),
            "there": list(there) if self._carrier.far else [],
        }

        def check(number: int) -> None:
            self.asking.one("check", f"check/{number}", None, **needed)

        check(0)  # waits for the first executor to come
        more = range(1, min(CHECKED_MAX, self._carrier.slots(1)))
        if more:
            with ThreadPoolExecutor(len(more)) as threads:
                list(threads.map(check, more))
        self._meter.say(
            f"fleet: {self._carrier.master}, {self._carrier.slots(0)} at once "
            f"({self._carrier.description})"
        )

    # -- what the executor asks

    def takes(self, step: Step) -> bool:
        # The jars of a job, and Flink, are on this machine.
        has_classes = isinstance(step, TransformShard) and "classes" in step.options
        return isinstance(step, TAKEN) and not has_classes

    def is_worth(self, bytes: int) -> bool:
        return True

    def slots(self, waiting: int) -> int:
        return self._carrier.slots(waiting)

    def begin(self, phase: str, steps: Sequence[Step], world: World) -> None:
        """Cut shards by the size of all; tell a person who chose a fleet of this phase."""
        slots, size = self._carrier.slots(0), sum(step.bytes for step in steps)
        sizes = chain.from_iterable(map(_sizes_of_shards, steps))
        self._part_bytes = self._cutter.bytes_of_part(list(sizes))
        self._is_uneven = self._cutter.leaves_idle([step.bytes for step in steps])
        if not self._ways.is_chosen:
            return
        parts = sum(max(1, self._count_of(step, world)) for step in steps)
        if parts < slots and size >= cutting.WORTHWHILE_BYTES:
            count = "1 step" if len(steps) == 1 else f"{len(steps)} steps"
            self._meter.say(
                f"fleet: {phase} is {count} ({size >> 20} MiB), and {slots} "
                "could be at work: a file, and a shard, is one step's"
            )
        pace = world.pace
        if pace is not None and (pace.bytes_per_second or pace.operations_per_second):
            self._meter.say(f"fleet: the throttle is shared out, a {slots}th to each step at work")

    @property
    def _cutter(self) -> cutting.Cutter:
        return cutting.Cutter(self.asking.spread, self._carrier.slots(0), self._part_bytes_min)

    def _is_cut(self, step: CompareImages) -> bool:
        """Whether the shards of a step are cut into parts."""
        is_of_entries = bool(step.sides[1].shards) and not step.paths
        return is_of_entries and step.bytes >= 2 * self._part_bytes

    def _count_of(self, step: Step, world: World) -> int:
        """Return the number of orders of a step, about."""
        if isinstance(step, TransformShard):
            return count_of_parts(step, self._part_bytes)
        if not isinstance(step, CompareImages):
            return 1
        parts = cutting.parts_of(step, world, self._is_cut(step))
        by_size = step.bytes // self._part_bytes if self._is_cut(step) else 0
        return max(by_size, 0 if parts is None else len(parts.source) + len(parts.target))

    def run(self, step: Step, world: World) -> Evidence:
        if isinstance(step, CompareImages):
            parts = cutting.parts_of(step, world, self._is_cut(step))
            if parts is not None:  # the sums of the parts are the step's
                folds = self._folds(step, [*parts.source, *parts.target], world)
                count = len(parts.source)
                at_source = fold_together([*step.known(world), *folds[:count]])
                return step.judged(at_source, fold_together(folds[count:]), world)
        evidence = None
        if isinstance(step, TransformShard):
            evidence = self._rewrite(step, world)
        if evidence is None:
            needed = {"step": to_plain(step), "there": _there(step, world)}
            done, again = self.asking.one("run", step.name, world, **needed)
            evidence = Evidence.from_plain(done)
            if again:
                evidence = replace(evidence, repeated=True)
        self._see(step, evidence, world)
        world.meter.done(step.files, step.bytes)
        return evidence

    def _rewrite(self, step: TransformShard, world: World) -> Evidence | None:
        """Rewrite a large shard in parts, dealt out on one machine; None where it stays whole."""
        is_worth_it = self._is_uneven and step.bytes >= 2 * self._part_bytes_min
        if is_worth_it and not self._carrier.far and can_be_dealt_out(step):
            count = max(2, round(step.bytes / self._part_bytes))
            return redistribute_shards(step, count, self.asking.all_of(step, world))
        count = count_of_parts(step, self._part_bytes)
        if count == 1:
            return None
        return rewrite_shards(step, count, self.asking.all_of(step, world))

    def _folds(
        self, step: CompareImages, sides: Sequence[cutting.Labelled], world: World
    ) -> list[Fold]:
        """Return the sums of each side."""
        pieces = self._pieces(step, sides, world)
        orders: list[LabelledOrder] = []
        for label, side in chain.from_iterable(pieces):
            orders.append((label, {"side": to_plain(side), "engine": step.engine}))
        folds: Iterator[Fold] = (done for done, _ in self.asking.all("sum", orders, world))
        return [fold_together(islice(folds, len(own))) for own in pieces]

    def _pieces(
        self, step: CompareImages, sides: Sequence[cutting.Labelled], world: World
    ) -> list[list[cutting.Labelled]]:
        """Return each side in pieces. Shards of merged checkpoints have files of several: stay
        whole.
        """
        if step.engine != SPARK or any(SUMS in side.settings for _, side in sides):
            return [[each] for each in sides]

        ask_all = self.asking.all_of(step, world)

        def asked(ask: str, orders: Iterable[Order]) -> Iterator[Json]:
            return (answer for answer, _ in ask_all(ask, list(orders)))

        (size, *_) = _sizes_of_shards(step)
        shards = []
        for _, side in sides:
            if len(side.shards) == 1:
                shards.append(cutting.ShardAt(side.location, side.shards[0], side.settings, size))
        cutter = replace(self._cutter, spread=asked)
        settings_of_shards = iter(cutter.settings_of_parts(shards, self._part_bytes))
        pieces: list[list[cutting.Labelled]] = []
        for label, side in sides:
            parts = next(settings_of_shards) if len(side.shards) == 1 else [side.settings]
            if len(parts) == 1:
                pieces.append([(label, side)])
                continue
            numbered = [(f"{label}.{number}", own) for number, own in enumerate(parts)]
            pieces.append([(name, replace(side, settings=own)) for name, own in numbered])
        return pieces

    def holds(self, step: Step, world: World, evidence: Evidence) -> list[Discrepancy]:
        if isinstance(step, CompareImages) and self._is_cut(step):
            _, target = step.sides
            try:
                folds = self._folds(step, cutting.shards_of(target, f"{step.name}/target"), world)
            except (FormatError, MissingFile) as error:
                return [step.unreadable(error)]
            return step.held(fold_together(folds), evidence)
        done, _ = self.asking.one("holds", step.name, world, step=to_plain(step), evidence=evidence)
        return [from_plain(Discrepancy, each) for each in done]

    # -- what `look` asks

    def deep(self, survey: Survey, image: Image, tallies: Tallies | None) -> tuple[Finding, ...]:
        return cutting.check_portions(self._cutter, list(portions(survey, image)), tallies)

    def histories(self, survey: Survey, image: Image, tallies: Tallies) -> HistoryCheck:
        """Return the check of the snapshots of an image against the changes before them."""
        orders: list[Order] = []
        for own, part in portions(survey, image):
            if part.shards:
                places = [place_of(shard) for shard in part.shards]
                known = [[place, tallies[place]] for place in places if place in tallies]
                portion = {"survey": to_plain(own), "image": to_plain(part)}
                orders.append({**portion, "tallies": known})
        answers = self.asking.spread("histories", orders)
        return sum((from_plain(HistoryCheck, answer) for answer in answers), HistoryCheck())

    def unequal(
        self,
        sides: Sides,
        sizes: tuple[Mapping[str, int], Mapping[str, int]],
        put: Callable[[int, RowBlock], None],
    ) -> Compared:
        from stateshift.fleet.comparing import unequal  # loads Arrow, for which no step should wait

        return unequal(self._cutter, sides, sizes, put)

    def exported(
        self,
        survey: Survey,
        shards: Iterable[tuple[Image, ShardFiles]],
        wanted: Wanted,
        format: str,
    ) -> Iterator[ExportedPart]:
        """Yield the wanted entries of shards, in their order: in files of this machine."""
        shards = list(shards)
        sizes = {file.path: file.size for file in survey.files}
        there = []
        for image, shard in shards:
            size = sum(sizes.get(path, 0) for path in shard.files)
            there.append(cutting.ShardAt(survey.location, shard, image.settings, size))
        part_bytes = self._cutter.bytes_of_part([each.size for each in there])
        part_bytes = min(part_bytes, EXPORTED_BYTES_MAX)
        all_settings = self._cutter.settings_of_parts(there, part_bytes)

        def orders() -> Iterator[Order]:
            """Yield the order of each shard, of a large one that of each of its parts."""
            for alone, settings in zip(each_alone(survey, shards), all_settings, strict=True):
                (image,) = alone.images
                for own in settings:
                    piece = replace(alone, images=(replace(image, settings=own),))
                    order = {"survey": to_plain(piece), "wanted": to_plain(wanted)}
                    yield {**order, "format": format}

        for answer in self.asking.spread("export", orders()):
            made = from_plain(ExportedPart, answer)
            try:
                yield made
            finally:
                os.unlink(made.file)

    def _see(self, step: Step, evidence: Evidence, world: World) -> None:
        """Look for the files that an executor wrote: a disk that is not shared shows here."""
        if not self._carrier.far or not isinstance(step, BringFiles | CopyFiles | TransformShard):
            return
        if locations.scheme(step.target) != "file":
            return
        target = world.storage(step.target)
        for path, size, _ in files_of(evidence):
            file = target.stat(path)
            if file is None or file.size != size:
                raise ClusterError(
                    f"an executor wrote {path} to {step.target}, and it is not to be seen from "
                    "here",
                    cluster=self._carrier.master,
                    hint="every executor must see the same disk there; stateshift rollback "
                    "WORKDIR, then use a storage that all can reach, or no --fleet",
                )


# (master, its log, its meter, set once somebody asked to stop)
OpenFleet = Callable[[str, Path, Meter, threading.Event], Carrier]


@dataclass(frozen=True, slots=True)
class Application:
    """The start of a fleet: its master, its log, the meter, and the event that stops it."""

    master: str
    log: Path
    meter: Meter
    stop: threading.Event


@contextmanager
def open_crew(
    open_fleet: OpenFleet, application: Application, places: Sequence[str]
) -> Iterator[Crew]:
    """Give the crew of a master: checked, gathered before it is used, let go however it ends."""
    master, meter = application.master, application.meter
    for warning in check_places(master, places):
        meter.say(f"fleet: {warning}")
    carrier = open_fleet(master, application.log, meter, application.stop)
    try:
        crew, directories = Crew(carrier, meter), []
        for place in places:
            path = locations.local_path(locations.normal(place, os.getcwd()))
            if path is not None and os.path.isdir(path):
                directories.append(place)
        crew.gather(places, directories)
        yield crew
    finally:
        carrier.close()


def _sizes_of_shards(step: Step) -> list[int]:
    """Return the sizes of the parts of a step that are cut each by itself."""
    count = 1
    if isinstance(step, CompareImages):
        count = max(1, len(step.sides[1].shards))
    return [step.bytes // count] * count


def _there(step: Step, world: World) -> list[str] | None:
    """Return the files that may be there already, by one listing; None if not worth it."""
    if not isinstance(step, CopyFiles) or step.files < LISTED_FILES:
        return None
    if world.found is None:
        return None
    listings, target = world.found, world.storage(step.target)
    return [name for _, name in step.named if listings.may_hold(target, name, worthwhile=True)]
