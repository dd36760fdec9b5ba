"""The repair of a damaged checkpoint: the newest batch that can be put together, and from what.
Reads only.

From the newest batch that was committed down to the oldest, the batch is surveyed and read to its
end, as `verify --deep` does. Each file that is missing or damaged is got around, in this order:

    taken      from a copy: another place that holds the same file of the same history
    left out   a snapshot: an older one and the changes since come to the same. Operator metadata
               and schemas without a version: Spark writes them again. Spark's checksum of a file
               that has checksums inside. The offsets of the batch that is planned next
    rebuilt    a commit, where the next batch was planned: its offsets hold the watermark

and the batch is looked at again. A snapshot and changes that contradict each other may both be
wrong: only a copy of the snapshot decides. If nothing is left to try, the batch before it is next.
So a batch is chosen if, and only if, nothing of it is refused any more.

A copy is a standby, a fork or a backup (`copies`). A file of a batch that the copy has not planned
in the same way is never taken, and none of a store whose state is not shown to be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from shlex import quote

from stateshift.engines.spark import layout
from stateshift.engines.spark.check.copies import (
    LOG_MAX,
    DamagedCheckpoint,
    Opening,
    SoundCopy,
    refused_files,
    sound_copies,
)
from stateshift.engines.spark.check.image import faults_at
from stateshift.engines.spark.check.portions import Place
from stateshift.engines.spark.check.snapshots import check_histories
from stateshift.engines.spark.survey.checkpoint import survey as surveyed
from stateshift.engines.spark.survey.mended import with_repair
from stateshift.engines.spark.survey.planned_image import planned_files
from stateshift.engines.views import Tallies
from stateshift.errors import FormatError, MissingFile, PlanError
from stateshift.formats.spark import commits, offsets
from stateshift.formats.spark.names import CheckpointPath, classify, described_file
from stateshift.formats.spark.offset_conf import codec_in
from stateshift.specification.transform import Repair
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, Survey

TOLD_MAX = 10  # batches whose fault is told
STATE = "state"


def find_repair(location: str, also: Sequence[str], opening: Opening) -> Repair:
    """Return the repair that gives the newest batch.

    Raises:
        PlanError: no batch can be put together, nothing is damaged, or `also` names a place that is
            no copy, or has other state.
    """
    storage = opening(location)
    survey = surveyed(storage)
    if survey.kind != "checkpoint":
        hint = f"stateshift inspect {quote(location)}"
        raise PlanError(f"{location} is not one query's checkpoint ({survey.kind})", hint=hint)
    paths = frozenset(file.path for file in survey.files)
    own = DamagedCheckpoint(storage, paths, survey.images[0].identity)
    copies = sound_copies(own, also, opening)
    # Refuse a checkpoint without a commit log, as Spark before 2.2 left it.
    commits_there = list(filter(layout.is_commit, own.paths))
    for copy in copies:
        commits_there += filter(layout.is_commit, filter(copy.has, copy.paths))
    if not commits_there:
        raise PlanError(
            f"{own.storage.location} has no commits/: a Spark before 2.2 wrote it, or the folder "
            "is lost. A repair goes back to a batch by its commit",
            hint="name a standby, a fork or a backup that has them: --also COPY; or start from it",
        )
    repair = _RepairSearch(own, copies, opening).newest()
    for refused in refused_files(own, {copy.location: copy for copy in copies}, repair):
        raise PlanError(refused.message, hint=refused.hint)
    return repair


@dataclass
class _RepairSearch:
    """One checkpoint, and what has been done so far about its damage."""

    own: DamagedCheckpoint
    copies: tuple[SoundCopy, ...]
    opening: Opening
    left: set[str] = field(default_factory=set)
    taken: dict[str, str] = field(default_factory=dict)
    rebuilt: dict[str, str] = field(default_factory=dict)
    tried: set[tuple[str, str]] = field(default_factory=set)
    doubted: set[str] = field(default_factory=set)

    @property
    def storage(self) -> Storage:
        return self.own.storage

    @property
    def paths(self) -> frozenset[str]:
        return self.own.paths

    def newest(self) -> Repair:
        faults: dict[int, Finding] = {}
        logs = set(self.paths)
        for copy in self.copies:
            logs.update(path for path in copy.paths if copy.has(path))
        committed = {layout.number_of_log(path) for path in logs if layout.is_commit(path)}
        planned = {layout.number_of_log(path) for path in logs if layout.is_offset(path)}
        followed = {batch for batch in planned if batch + 1 in planned}
        batches = sorted(committed | followed, reverse=True)
        for copy in self.copies:
            for operator in sorted(_operators_in(copy.paths) - _operators_in(self.paths)):
                self._take_shard(f"state/{operator}", classify("state"), max(batches, default=0))
        for batch in batches:
            fault = self._fault_at(batch)
            if fault is not None:
                faults[batch] = fault
                continue
            repair = self._repair(batch)
            storage, changes = with_repair(self.storage, (repair,), self.opening)
            image = surveyed(storage, changes=changes).images[0]
            needed = {*image.needed_files, *image.first_read}
            take = {path: place for path, place in repair.take.items() if path in needed}
            unused = (repair.take.keys() - take.keys()) & self.paths
            rebuild = {path: text for path, text in repair.rebuild.items() if path in needed}
            repair = replace(
                repair, leave=tuple(sorted({*repair.leave, *unused})), take=take, rebuild=rebuild
            )
            if batch == batches[0] and repair == Repair(batch=batch):
                raise PlanError(
                    f"{self.storage.location} is whole: a job can restart from batch {batch}",
                    hint=f"stateshift verify {quote(self.storage.location)} --deep",
                )
            return repair
        raise self._nothing_whole(faults)

    def _fault_at(self, batch: int) -> Finding | None:
        """Return the damage of a batch that nothing gets around; None where there is none."""
        suspects: set[Place] = set()
        passed = {""}  # files, and folders of shards that begin elsewhere now
        while passed:
            passed = set()
            for finding in self._faults(batch, suspects):
                path = finding.path or ""
                is_told = not passed.isdisjoint((path, _shard_of(path)))
                if is_told or (passed and not path):
                    continue  # the next look tells whether anything is left of it
                place = classify(path)
                if place.operator is not None and place.partition is not None:
                    suspects.add((place.operator, place.partition))
                before = len(self.left)
                if not self._mend(path, batch, finding.level == "warn"):
                    return finding
                passed.add(path if len(self.left) == before else _shard_of(path))
        return None

    def _faults(self, batch: int, suspects: set[Place]) -> Iterator[Finding]:
        """Yield the refusals at a batch: those that a survey tells, then those of its bytes."""
        if layout.commit_path(batch) not in self.paths | self.taken.keys() | self.rebuilt.keys():
            path = layout.commit_path(batch)
            yield Finding("refuse", f"{path} is missing", path=path)
            return
        storage, changes = with_repair(self.storage, (self._repair(batch),), self.opening)
        survey = surveyed(storage, thorough=True, changes=changes)
        refused = [finding for finding in survey.all_findings if finding.level == "refuse"]
        for finding in survey.all_findings:
            if finding.path is not None and layout.is_spare(finding.path):
                self.left.add(finding.path)  # Spark writes it again
        yield from refused
        if refused:
            return
        image = survey.images[0]
        entry = self._offsets(batch)
        if not image.operators and entry is not None and entry.watermark_ms > 0:
            fact = "state/ holds no operator's state, though the query has a watermark"
            yield Finding("refuse", fact, path=STATE)
            return
        if image.epoch != batch or batch not in image.epochs:
            yield Finding("refuse", f"no job can restart from batch {batch}")
            return
        yield from self._faults_in(storage, survey, image, tuple(suspects))

    def _faults_in(
        self, storage: Storage, survey: Survey, image: Image, suspects: tuple[Place, ...]
    ) -> Iterator[Finding]:
        """Yield the refusals of an image's bytes; then, as warnings, what contradicts itself."""
        doubted = self.doubted.difference(self.taken).intersection(image.needed)
        if doubted:
            fact = "a snapshot of that shard and the changes before it contradict each other"
            yield Finding("refuse", f"{min(doubted)} may be wrong: {fact}")
            return
        planned, tallies, is_sound = set(planned_files(image)), Tallies(), True
        for finding in faults_at(storage, survey, image, suspects, tallies):
            if finding.level == "warn" and finding.path in planned:
                self.left.add(finding.path or "")
            elif finding.level == "refuse" or (finding.level == "warn" and finding.path is None):
                is_sound = False  # also where the sides of a join do not fit together
                yield finding
        if is_sound:
            for finding in check_histories(storage, survey, image, tallies).findings:
                if finding.path in image.needed_files:  # else damage of which it reads nothing
                    yield finding

    def _repair(self, batch: int) -> Repair:
        leave = tuple(sorted(self.left - self.taken.keys()))
        return Repair((), batch, leave, dict(self.taken), dict(self.rebuilt))

    def _nothing_whole(self, faults: dict[int, Finding]) -> PlanError:
        told = [f"batch {batch}: {fault.message}" for batch, fault in faults.items()]
        more = f"; and {len(told) - TOLD_MAX} batches more" if len(told) > TOLD_MAX else ""
        why = "; ".join(told[:TOLD_MAX]) + more if told else "none was committed"
        hint = "name a standby, a fork or a backup that has these files: --also COPY"
        if layout.METADATA in {fault.path for fault in faults.values()}:
            hint += (
                '; or write {"id":"…"} into metadata: the job\'s log and its progress name the id'
            )
        if STATE in {fault.path for fault in faults.values()}:
            hint = (
                "nothing is left to compare a copy with: start from a standby or a backup itself, "
                "if it is whole: stateshift verify COPY --deep"
            )
        return PlanError(f"no batch of {self.storage.location} is whole ({why})", hint=hint)

    # ---- ways around one file

    def _mend(self, path: str, batch: int, is_contradiction: bool) -> bool:
        """Whether there is a way around a file that is missing or damaged, not tried before. Of two
        that contradict each other, only a copy tells.
        """
        place = classify(path)
        for copy in self.copies:
            for held in (path, f"{path}.compact"):  # of a source's log, either may be there
                if copy.has(held) and (held, copy.location) not in self.tried:
                    self._take_from(copy, held)
                    return True
        if is_contradiction:
            for other in self.paths:
                is_before = (classify(other).version or 0) <= (place.version or 0)
                if is_before and _shard_of(other) == _shard_of(path):
                    self.doubted.add(other)
            return False
        if self._take_shard(path, place, batch):
            return True
        self.taken.pop(path, None)  # no copy of it is any better
        return self._leave(path, place, batch) or self._rebuild(path, place, batch)

    def _take_from(self, copy: SoundCopy, path: str) -> None:
        self.tried.add((path, copy.location))
        for each in (path, f"{path}.crc"):
            self.taken.pop(each, None)
            if copy.has(each):
                self.taken[each] = copy.location

    def _take_shard(self, path: str, place: CheckpointPath, batch: int) -> bool:
        """Take all that a copy has of a shard and the checkpoint lacks: its chain may be another,
        of an image that was compacted.
        """
        if not path.startswith("state/") or place.area not in ("state", "other"):
            return False
        folder = path if place.area == "other" else _shard_of(path)
        own = self.paths - self.left
        for copy in self.copies:
            lacking = []
            for other in sorted(copy.paths):
                is_in_shard = other.startswith(f"{folder}/") and "/." not in other
                version = classify(other).version or 0
                if is_in_shard and copy.has(other) and version <= batch + 1:
                    lacking.append(other)
            lacking = [other for other in lacking if other not in own | self.taken.keys()]
            new = [other for other in lacking if (other, copy.location) not in self.tried]
            for other in new:
                self._take_from(copy, other)
            if new:
                return True
        return False

    def _leave(self, path: str, place: CheckpointPath, batch: int) -> bool:
        """Leave out what a restart does without."""
        if place.kind == "sst":
            path = self._newest_zip(path, batch)
            place = classify(path)
        about = described_file(path) or ""
        is_left = (
            place.kind in ("snapshot", "zip")
            or (place.area in ("state-schema", "state-metadata") and place.version is None)
            or path == layout.offset_path(batch + 1)
            or (place.kind == "checksum" and self._has_inner_checksum(about, batch))
        )
        if not is_left or path in self.left or path not in self.paths:
            return False
        self.left.add(path)
        return True

    def _newest_zip(self, path: str, batch: int) -> str:
        """Return the snapshot that a restart begins with, of the shard of a table."""
        folder = path.rpartition("/SSTs/")[0]
        zips: dict[int, str] = {}
        for other in self.paths - self.left:
            place = classify(other)
            is_beside = place.kind == "zip" and other.rpartition("/")[0] == folder
            if is_beside and (place.version or 0) <= batch + 1:
                zips[place.version or 0] = other
        return zips[max(zips)] if zips else path

    def _has_inner_checksum(self, path: str, batch: int) -> bool:
        kind = classify(path).kind
        if kind in ("zip", "sst"):
            return True
        entry = self._offsets(batch)
        is_lz4 = entry is not None and codec_in(entry.conf) == "lz4"
        return is_lz4 and kind in ("delta", "changelog", "snapshot")

    def _rebuild(self, path: str, place: CheckpointPath, batch: int) -> bool:
        """Rebuild a commit whose next batch was planned, in the form of another commit."""
        following = self._offsets(batch + 1)
        is_own = path == layout.commit_path(batch) and path not in self.rebuilt
        if not is_own or following is None:
            return False
        numbers = {layout.number_of_log(path) for path in self.paths if layout.is_commit(path)}
        for number in sorted(numbers, key=lambda number: abs(number - batch)):
            with suppress(FormatError, MissingFile):
                content = self.storage.read(layout.commit_path(number), LOG_MAX)
                like = commits.decode_commit(content)
                if number == batch or like.handed_on_ms is None:
                    continue
                if like.state_ids or like.sinks:
                    return False  # they follow from nothing else
                entry = commits.with_watermark(like, following.watermark_ms)
                self.rebuilt[path] = commits.encode_commit(entry).decode()
                return True
        return False

    def _offsets(self, batch: int) -> offsets.OffsetEntry | None:
        storage, _ = with_repair(self.storage, (self._repair(batch),), self.opening)
        with suppress(FormatError, MissingFile):
            return offsets.decode_offsets(storage.read(layout.offset_path(batch), LOG_MAX))
        return None


def _shard_of(path: str) -> str:
    """Return the folder of a state file's store."""
    return path.rpartition("/")[0].removesuffix("/SSTs")


def _operators_in(paths: Iterable[str]) -> set[str]:
    operators = set()
    for path in paths:
        place = classify(path)
        if place.area == "state" and place.operator is not None:
            operators.add(place.operator)
    return operators
