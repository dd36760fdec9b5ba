"""CompareImages: prove that two images hold the same entries.

Entries are folded per operator into a count and a sum of 128-bit hashes modulo 2^128: order does
not matter, and duplicates do not cancel as they would under exclusive or. What an engine compares
whole (a file whose entries need not be told apart) is folded in the same way, and counted by
itself: as a file, not as an entry. What holds no entries (logs, metadata) is compared byte for byte
instead, and so is everything where the spec asks for `digests`.

    Fold      {operator: {"sum": of hashes, "entries": how many, "files": how many, ...}}, see
              `world.Unit`
    evidence  `ImagesCompared`: of each operator the digest (the sum), and how many of each unit
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from stateshift.errors import FormatError, MissingFile, VerifyError
from stateshift.step.at_once import each
from stateshift.step.contents import LARGE_BYTES, digest_of, same_checksum
from stateshift.step.evidence import ImagesCompared, OperatorFold, of_kind
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.survey import ShardFiles
from stateshift.world import EntriesReader, Pairs, Unit, World, unit_of

if TYPE_CHECKING:
    from stateshift.formats.blocks import Block

Fold = dict[str, dict[str, int]]
SUM = "sum"
COUNTED: tuple[Unit, ...] = ("entries", "files", "key_groups")
UNITS: tuple[Unit, ...] = (*COUNTED, "uncounted")
SINGULAR = {"entries": "entry", "files": "file", "key_groups": "key group"}
PLURAL = {"entries": "entries", "files": "files", "key_groups": "key groups"}


@dataclass(frozen=True, slots=True)
class Side:
    """Shards somewhere, and the settings by which their rows are read."""

    location: str
    shards: tuple[ShardFiles, ...]
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CompareImages:
    """Compare `source_shards` with `target_shards` by entries, and `paths` byte for byte: with the
    target's of the same path, or of `names`, one for each. The target's rows are read by
    `target_settings` where they are not read as the source's are. `beside` are further sources,
    whose entries are in the target as well.
    """

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
    beside: tuple[Side, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        shards = (*self.source_shards, *(shard for side in self.beside for shard in side.shards))
        return sum(len(shard.files) for shard in shards) + len(self.paths)

    @property
    def bytes(self) -> int:
        return self.size

    def describe(self) -> str:
        return (
            f"compare {len(self.source_shards)} shards and {len(self.paths)} files with "
            f"{self.target}"
        )

    def run(self, world: World) -> Evidence:
        found = folds_together(fold_entries(side, self.engine, world) for side in self.sources)
        return self.judged(found, fold_entries(self.sides[1], self.engine, world), world)

    @property
    def sides(self) -> tuple[Side, Side]:
        """What is folded: the source, and the target."""
        shards = self.source_shards if self.target_shards is None else self.target_shards
        settings = self.settings if self.target_settings is None else self.target_settings
        return Side(self.source, self.source_shards, self.settings), Side(
            self.target, shards, settings
        )

    @property
    def sources(self) -> tuple[Side, ...]:
        return (self.sides[0], *self.beside)

    def judged(self, found: Fold, there: Fold, world: World) -> Evidence:
        """The evidence, from what both sides came to, whoever has folded them."""
        source, target = world.storage(self.source), world.storage(self.target)
        operators = sorted(found.keys() | there.keys())
        different = [o for o in operators if _identity(found.get(o)) != _identity(there.get(o))]
        if different:
            first = different[0]
            raise VerifyError(
                f"operator {first}: the target does not hold the same entries as the source",
                step=self.name,
                expected=_told(found.get(first)),
                found=_told(there.get(first)),
                hint=(
                    "the source is untouched: take the run back with `stateshift rollback WORKDIR`"
                ),
            )
        large = self.bytes >= LARGE_BYTES * max(1, self.files)
        pairs = tuple(zip(self.paths, self.names or self.paths, strict=True))
        known = each(
            world,
            pairs,
            lambda pair: _compare_bytes(source, target, pair, large, self.name),
            source,
            target,
        )
        world.meter.done(self.files, self.bytes)
        operators_found = {o: _as_evidence(sums) for o, sums in sorted(found.items())}
        return ImagesCompared(operators_found, paths=len(pairs), by_checksum=sum(known))

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        """Whether the target still folds to what was compared: the source may have been retired
        since.
        """
        try:
            there = fold_entries(self.sides[1], self.engine, world)
        except (FormatError, MissingFile) as error:
            return [Discrepancy(self.target, "the compared entries", str(error))]
        compared = of_kind(evidence, ImagesCompared).operators
        wanted = {o: _of_evidence(one) for o, one in compared.items()}
        return [
            Discrepancy(f"operator {o}", _told(wanted.get(o)), _told(there.get(o)))
            for o in sorted(wanted.keys() | there.keys())
            if _identity(wanted.get(o)) != _identity(there.get(o))
        ]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        return []


def fold_entries(side: Side, engine: str, world: World) -> Fold:
    """Counts and hash sum of what a side holds, per operator."""
    storage, read = world.storage(side.location), world.entries.get(engine)
    return folds_together(
        each(world, side.shards, lambda shard: _folded(read, storage, shard, side, world), storage)
    )


def folds_together(folds: Iterable[Fold]) -> Fold:
    """Of shards, or of any parts: their sums."""
    whole: Fold = {}
    for fold in folds:
        for operator, sums in fold.items():
            own = whole.setdefault(operator, {})
            for name, number in sums.items():
                own[name] = own.get(name, 0) + number
            own[SUM] %= 1 << 128
    return whole


def _folded(
    read: EntriesReader | None, storage: Storage, shard: ShardFiles, side: Side, world: World
) -> Fold:
    assert read is not None, "a plan that compares entries is only made where they can be read"
    sums: dict[str, int] = {SUM: 0, "entries": 0}
    for store, some in read(storage.chunks, shard, side.settings):
        unit = unit_of(store)
        sums[unit] = sums.get(unit, 0) + len(some)
        sums[SUM] += (
            sum(_hashes(store, some)) if isinstance(some, list) else _sum_of_hashes(store, some)
        )
    sums[SUM] %= 1 << 128
    return {shard.operator: sums}


def _hashes(store: str, pairs: Pairs) -> Iterator[int]:
    """Of each entry: of "<size of the store's name> <size of the key> <store><key><value>"."""
    from mmh3 import mmh3_x64_128_digest  # who only reads a journal needs none of it

    name = store.encode()
    for key, value in pairs:
        digest = mmh3_x64_128_digest(b"%d %d %b%b%b" % (len(name), len(key), name, key, value))
        yield int.from_bytes(digest, "little")


def _sum_of_hashes(store: str, block: Block) -> int:
    """The sum of the same, of many at once."""
    from stateshift.formats.binaries import (
        joined,
        lengths,
        numerals,
    )  # loads Arrow, for which no plan should wait
    from stateshift.formats.spans import hash128

    name = store.encode()
    sizes = numerals(lengths(block.keys))
    halves = hash128(joined(b"%d " % len(name), sizes, b" " + name, block.keys, block.values))
    # Each half in two, so that their sums stay below 64 bits.
    low, high = (
        int((half & 0xFFFFFFFF).sum()) + (int((half >> 32).sum()) << 32)
        for half in halves.transpose()
    )
    return low + (high << 64)


def _compare_bytes(
    source: Storage, target: Storage, pair: tuple[str, str], large: bool, step: str
) -> bool:
    """Whether the storages' own checksums were enough. Asking for those of small files costs
    what reading them does.
    """
    path, name = pair
    if large and same_checksum(source, target, path, name):
        return True
    here, there = digest_of(source.chunks(path)), digest_of(target.chunks(name))
    if here != there:
        raise VerifyError(
            f"{path}: the target does not hold the same bytes as the source",
            step=step,
            expected=f"{here[0]} bytes, sha256 {here[1][:12]}",
            found=f"{there[0]} bytes, sha256 {there[1][:12]}",
            hint="the source is untouched: take the run back with `stateshift rollback WORKDIR`",
        )
    return False


def _identity(sums: Mapping[str, int] | None) -> tuple[int, int] | None:
    """Return what two sides have to agree on: how much there is in all, and its sum. What is told
    apart into entries on one side may be counted otherwise on the other, and in the evidence of
    earlier versions.
    """
    if sums is None:
        return None
    return sum(sums.get(unit, 0) for unit in UNITS), sums[SUM]


def _as_evidence(sums: Mapping[str, int]) -> OperatorFold:
    return OperatorFold(f"{sums[SUM]:032x}", **{unit: sums.get(unit, 0) for unit in UNITS})


def _of_evidence(evidence: OperatorFold) -> dict[str, int]:
    sums: dict[str, int] = {SUM: int(evidence.digest, 16)}
    for unit in UNITS:
        sums[unit] = getattr(evidence, unit)
    return sums


def _told(sums: Mapping[str, int] | None) -> str:
    if sums is None:
        return "no entries"
    counts = [(sums.get(unit, 0), unit) for unit in COUNTED]
    named = [
        f"{n} {SINGULAR[unit] if n == 1 else PLURAL[unit]}"
        for n, unit in counts
        if n or unit == "entries"
    ]
    return f"{', '.join(named)}, digest {sums[SUM]:032x}"
