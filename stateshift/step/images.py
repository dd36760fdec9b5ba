"""CompareImages: prove that two images hold the same entries.

Entries are folded per operator into a count and a sum of 128-bit hashes modulo 2^128: order does not matter, and
duplicates do not cancel as they would under exclusive or. What holds no entries (logs, metadata) is compared byte for
byte instead, and so is everything where the spec asks for `digests`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from stateshift.errors import FormatError, MissingFile, VerifyError
from stateshift.step.files import digest_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.survey import ShardFiles
from stateshift.world import EntriesReader, World

if TYPE_CHECKING:
    from stateshift.formats.blocks import Block

Fold = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class CompareImages:
    """Compare `source_shards` with `target_shards` by entries, and `paths` byte for byte. The target's rows are read by
    `target_settings` where they are not read as the source's are."""

    kind: ClassVar[str] = "CompareImages"
    name: str
    engine: str
    source: str
    target: str
    source_shards: tuple[ShardFiles, ...]
    target_shards: tuple[ShardFiles, ...] | None
    paths: tuple[str, ...]
    settings: Mapping[str, str]
    size: int = 0
    target_settings: Mapping[str, str] | None = None

    @property
    def files(self) -> int:
        return sum(len(s.files) for s in self.source_shards) + len(self.paths)

    @property
    def bytes(self) -> int:
        return self.size

    def describe(self) -> str:
        return f"compare {len(self.source_shards)} shards and {len(self.paths)} files with {self.target}"

    def run(self, world: World) -> Evidence:
        source, target = world.storage(self.source), world.storage(self.target)
        read = world.entries.get(self.engine)
        found = fold_entries(read, source, self.source_shards, self.settings, world)
        there = self._of_target(read, target, world)
        different = sorted(o for o in found.keys() | there.keys() if found.get(o) != there.get(o))
        if different:
            first = different[0]
            raise VerifyError(
                f"operator {first}: the target does not hold the same entries as the source",
                step=self.name,
                expected=_told(found.get(first)),
                found=_told(there.get(first)),
                hint="the source is untouched: take the run back with `stateshift rollback WORKDIR`",
            )
        for path in self.paths:
            world.check_interrupted()
            _compare_bytes(source, target, path, self.name)
        world.meter.done(self.files, self.bytes)
        return {"operators": {o: {"entries": n, "digest": f"{h:032x}"} for o, (n, h) in sorted(found.items())}}

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        """Whether the target still folds to what was compared: the source may have been retired since."""
        target, read = world.storage(self.target), world.entries.get(self.engine)
        try:
            there = self._of_target(read, target, world)
        except (FormatError, MissingFile) as error:
            return [Discrepancy(self.target, "the compared entries", str(error))]
        wanted = {o: [e["entries"], int(e["digest"], 16)] for o, e in evidence["operators"].items()}
        return [
            Discrepancy(f"operator {o}", _told(wanted.get(o)), _told(there.get(o)))
            for o in sorted(wanted.keys() | there.keys())
            if wanted.get(o) != there.get(o)
        ]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        return []

    def _of_target(self, read: EntriesReader | None, target: Storage, world: World) -> Fold:
        shards = self.source_shards if self.target_shards is None else self.target_shards
        settings = self.settings if self.target_settings is None else self.target_settings
        return fold_entries(read, target, shards, settings, world)


def fold_entries(
    read: EntriesReader | None,
    storage: Storage,
    shards: tuple[ShardFiles, ...],
    settings: Mapping[str, str],
    world: World,
) -> Fold:
    """Count and hash sum of the entries, per operator."""
    folded: Fold = {}
    for shard in shards:
        world.check_interrupted()
        assert read is not None, "a plan that compares entries is only made where they can be read"
        sums = folded.setdefault(shard.operator, [0, 0])
        for store, block in read(storage.chunks, shard, settings):
            sums[0] += len(block)
            sums[1] = (sums[1] + _sum_of_hashes(store, block)) % (1 << 128)
    return folded


def _sum_of_hashes(store: str, block: Block) -> int:
    """The sum of the entries' hashes: each of "<size of the store's name> <size of the key> <store><key><value>"."""
    from stateshift.formats.binaries import joined, lengths, numerals  # loads Arrow, for which no plan should wait
    from stateshift.formats.spans import hash128

    name = store.encode()
    sizes = numerals(lengths(block.keys))
    halves = hash128(joined(b"%d " % len(name), sizes, b" " + name, block.keys, block.values))
    # Each half in two, so that their sums stay below 64 bits.
    low, high = (int((half & 0xFFFFFFFF).sum()) + (int((half >> 32).sum()) << 32) for half in halves.transpose())
    return low + (high << 64)


def _compare_bytes(source: Storage, target: Storage, path: str, step: str) -> None:
    here, there = digest_of(source.chunks(path)), digest_of(target.chunks(path))
    if here != there:
        raise VerifyError(
            f"{path}: the target does not hold the same bytes as the source",
            step=step,
            expected=f"{here[0]} bytes, sha256 {here[1][:12]}",
            found=f"{there[0]} bytes, sha256 {there[1][:12]}",
            hint="the source is untouched: take the run back with `stateshift rollback WORKDIR`",
        )


def _told(sums: Any) -> str:
    return "no entries" if sums is None else f"{sums[0]} entries, digest {sums[1]:032x}"
