"""CompareImages: prove that two images hold the same entries.

Entries are folded per operator into a count and a sum of 128-bit hashes modulo 2^128: order does
not matter, and duplicates do not cancel as they would under exclusive or. A file that an engine
compares whole (its entries need not be told apart) is folded in the same way, and counted as a
file, not as an entry. Files without entries (logs, metadata) are compared byte for byte instead,
and so are all where the spec asks for `digests`.

    Fold      {operator: {"sum": of hashes, "entries": how many, "files": how many, ...}}, see
              `world.Unit`
    evidence  `ImagesCompared`: of each operator the digest (the sum), and how many of each unit
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from stateshift import plain
from stateshift.errors import FormatError, MissingFile, VerifyError
from stateshift.step.contents import LARGE_BYTES, digest_of, each, same_checksum
from stateshift.step.evidence import FilesWritten, ImagesCompared, OperatorFold, of_kind
from stateshift.step.marks import NoFiles
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.survey import ShardFiles
from stateshift.world import Pairs, Unit, World, unit_of

if TYPE_CHECKING:
    from stateshift.formats.blocks import RowBlock
    from stateshift.step.files import CopyFiles

UNTOUCHED = "the source is untouched: take the run back with `stateshift rollback WORKDIR`"

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
class CompareImages(NoFiles):
    """Compare `source_shards` with `target_shards` by entries, and `paths` byte for byte: with the
    target's of the same path, or of `names`, one for each. The target's rows are read by
    `target_settings` where they are not read as the source's are. `beside` are further sources,
    whose entries are in the target as well.
    """

    kind: ClassVar[str] = "CompareImages"
    decodes: ClassVar[bool] = True
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

    @classmethod
    def of_copy(cls, name: str, engine: str, copy: CopyFiles) -> CompareImages:
        """Return the step that compares byte for byte what another step copies."""
        return cls(
            name=name,
            engine=engine,
            source=copy.source,
            target=copy.target,
            source_shards=(),
            target_shards=None,
            paths=tuple(item.path for item in copy.items),
            settings={},
            size=copy.bytes,
            names=copy.names,
        )

    @property
    def files(self) -> int:
        files = len(self.paths)
        for side in self.sources:
            files += sum(len(shard.files) for shard in side.shards)
        return files

    @property
    def bytes(self) -> int:
        return self.size

    def describe(self) -> str:
        return (
            f"compare {len(self.source_shards)} shards and {len(self.paths)} files with "
            f"{self.target}"
        )

    def run(self, world: World) -> Evidence:
        _, target = self.sides
        folds = [fold_entries(side, self.engine, world) for side in self.unread(world)]
        at_source = fold_together([*self.known(world), *folds])
        return self.judged(at_source, fold_entries(target, self.engine, world), world)

    def known(self, world: World) -> Iterator[Fold]:
        """Yield the folds of shards of the source that steps before this one have read."""
        for side in self.sources:
            for shard in side.shards:
                sums = world.read.get(reading_of(side.location, shard, side.settings))
                if sums is not None:
                    yield {shard.operator: dict(sums)}

    def unread(self, world: World) -> list[Side]:
        """Return the sources with those of their shards that no step before has read."""
        sides = []
        for side in self.sources:
            shards = []
            for shard in side.shards:
                if reading_of(side.location, shard, side.settings) not in world.read:
                    shards.append(shard)
            sides.append(replace(side, shards=tuple(shards)))
        return [side for side in sides if side.shards]

    @property
    def sides(self) -> tuple[Side, Side]:
        """The two sides that are folded: the source, and the target."""
        shards = self.source_shards if self.target_shards is None else self.target_shards
        settings = self.settings if self.target_settings is None else self.target_settings
        source = Side(self.source, self.source_shards, self.settings)
        return source, Side(self.target, shards, settings)

    @property
    def sources(self) -> tuple[Side, ...]:
        return (self.sides[0], *self.beside)

    def judged(self, at_source: Fold, at_target: Fold, world: World) -> Evidence:
        """Return the evidence, from the folds of both sides, whoever has made them."""
        different = _different(at_source, at_target)
        if different:
            raise VerifyError(
                f"operator {different[0]}: the target does not hold the same entries as the source",
                step=self.name,
                expected=_in_words(at_source.get(different[0])),
                found=_in_words(at_target.get(different[0])),
                hint=UNTOUCHED,
            )
        pairs = tuple(zip(self.paths, self.names or self.paths, strict=True))
        known = self._compare_files(pairs, world)
        world.meter.done(self.files, self.bytes)
        operators = {o: as_evidence(sums) for o, sums in sorted(at_source.items())}
        return ImagesCompared(operators, paths=len(pairs), by_checksum=sum(known))

    def _compare_files(self, pairs: Sequence[tuple[str, str]], world: World) -> list[bool]:
        """Compare files; whether the storages' checksums were enough for each."""
        source, target = world.storage(self.source), world.storage(self.target)
        is_large = self.bytes >= LARGE_BYTES * max(1, self.files)

        def compare(pair: tuple[str, str]) -> bool:
            return _compare_bytes(source, target, pair, is_large, self.name)

        return each(world, pairs, compare, source, target)

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        """Whether the target still folds to the same: the source may have been retired since."""
        _, target = self.sides
        try:
            now = fold_entries(target, self.engine, world)
        except (FormatError, MissingFile) as error:
            return [self.unreadable(error)]
        return self.held(now, evidence)

    def held(self, now: Fold, evidence: Evidence) -> list[Discrepancy]:
        """Return a discrepancy for each operator whose entries at the target have changed."""
        compared = of_kind(evidence, ImagesCompared).operators
        before = {operator: sums_in(shown) for operator, shown in compared.items()}
        broken = []
        for operator in _different(before, now):
            expected, there = _in_words(before.get(operator)), _in_words(now.get(operator))
            broken.append(Discrepancy(f"operator {operator}", expected, there))
        return broken

    def unreadable(self, error: FormatError | MissingFile) -> Discrepancy:
        """Return the discrepancy of a target that cannot be read any more."""
        return Discrepancy(self.target, "the compared entries", str(error))


def reading_of(location: str, shard: ShardFiles, settings: Mapping[str, str]) -> str:
    """Return a name for the fold of a shard: the same for the same files and settings."""
    return plain.fingerprint([location, plain.to_plain(shard), dict(settings)])


def read_before(evidences: Iterable[Evidence | None]) -> dict[str, Mapping[str, int]]:
    """Return the folds of shards that steps have read, by their names, if they agree."""
    read: dict[str, Mapping[str, int]] = {}
    differing = set()
    for evidence in evidences:
        if isinstance(evidence, FilesWritten):
            for name, fold in evidence.read.items():
                sums = sums_in(fold)
                if read.setdefault(name, sums) != sums:
                    differing.add(name)
    return {name: sums for name, sums in read.items() if name not in differing}


def fold_entries(side: Side, engine: str, world: World) -> Fold:
    """Return counts and hash sum of a side's entries, per operator."""
    storage = world.storage(side.location)
    read = world.entries.get(engine)

    def fold(shard: ShardFiles) -> Fold:
        assert read is not None, "a plan that compares entries is only made where they can be read"
        sums = no_entries()
        for store, entries in read(storage.chunks, shard, side.settings):
            add_entries(sums, store, entries)
        return {shard.operator: sums}

    return fold_together(each(world, side.shards, fold, storage))


def fold_together(folds: Iterable[Fold]) -> Fold:
    """Return the sums of folds: those of shards, or of any parts."""
    whole: Fold = {}
    for fold in folds:
        for operator, sums in fold.items():
            own = whole.setdefault(operator, {})
            for name, number in sums.items():
                own[name] = own.get(name, 0) + number
            own[SUM] %= 1 << 128
    return whole


def _different(fold: Fold, other: Fold) -> list[str]:
    """Return the operators of which two folds do not hold the same."""
    operators = sorted(fold.keys() | other.keys())
    return [o for o in operators if _identity(fold.get(o)) != _identity(other.get(o))]


def no_entries() -> dict[str, int]:
    """Return the sums of a shard before any of its entries was added."""
    return {SUM: 0, "entries": 0}


def add_entries(sums: dict[str, int], store: str, entries: RowBlock | Pairs) -> None:
    """Add entries of a store to the sums of a shard. The hash of an entry is that of "<size of the
    store's name> <size of the key> <store><key><value>".
    """
    unit, name = unit_of(store), store.encode()
    sums[unit] = sums.get(unit, 0) + len(entries)
    total = sums[SUM]
    if isinstance(entries, list):
        from mmh3 import mmh3_x64_128_digest  # to read a journal needs none of it

        for key, value in entries:
            digest = mmh3_x64_128_digest(b"%d %d %b%b%b" % (len(name), len(key), name, key, value))
            total += int.from_bytes(digest, "little")
    else:
        # Many at once. It loads Arrow, for which no plan should wait.
        from stateshift.formats.murmur import sum128

        total += sum128(
            lambda size: b"%d %d %b" % (len(name), size, name), entries.keys, entries.values
        )
    sums[SUM] = total % (1 << 128)


def _compare_bytes(
    source: Storage, target: Storage, pair: tuple[str, str], large: bool, step: str
) -> bool:
    """Whether the storages' checksums were enough. For small files they cost as much."""
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
            hint=UNTOUCHED,
        )
    return False


def _identity(sums: Mapping[str, int] | None) -> tuple[int, int] | None:
    """Return the number of all entries, whatever their units, and the sum: sides agree on these."""
    if sums is None:
        return None
    return sum(sums.get(unit, 0) for unit in UNITS), sums[SUM]


def as_evidence(sums: Mapping[str, int]) -> OperatorFold:
    """Return the sums of an operator, or a shard of it, as the journal has them."""
    return OperatorFold(f"{sums[SUM]:032x}", **{unit: sums.get(unit, 0) for unit in UNITS})


def sums_in(evidence: OperatorFold) -> dict[str, int]:
    """Return the inverse of `as_evidence`."""
    sums: dict[str, int] = {SUM: int(evidence.digest, 16)}
    for unit in UNITS:
        sums[unit] = getattr(evidence, unit)
    return sums


def _in_words(sums: Mapping[str, int] | None) -> str:
    """Return the words for sums: `3 entries, 1 file, digest …`."""
    if sums is None:
        return "no entries"
    words = []
    for unit in COUNTED:
        count = sums.get(unit, 0)
        if count or unit == "entries":
            words.append(f"{count} {SINGULAR[unit] if count == 1 else PLURAL[unit]}")
    return f"{', '.join(words)}, digest {sums[SUM]:032x}"
