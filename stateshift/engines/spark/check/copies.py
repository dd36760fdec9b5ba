"""Copies of a checkpoint whose files a repair takes: whether their history is the same. Reads only.

    id       the checkpoint's own, or that of its fork
    offsets  the same up to the newest batch that both have planned in the same way, byte for byte:
             offsets name the millisecond. Of a fork, or if the id is lost, that batch does not
             count: the fork may have run it with other code
    state    a copy with the same id and offsets may have been rewritten (`prune`, `evolve`). So of
             each store that gives a file, the newest state file that both have whole is compared,
             in every shard that gives one and in some others. One has to be equal at least, and
             none may differ

State version v is the work of batch v - 1. The search for a repair asks this, and whoever reads a
checkpoint with a repair asks again: a spec may be edited, or a copy go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import quote

from stateshift.engines.spark import layout
from stateshift.engines.spark.check import sidecars
from stateshift.engines.spark.entries.single_file import check_file
from stateshift.engines.spark.image import fork_id
from stateshift.engines.spark.survey.checkpoint import survey as surveyed
from stateshift.errors import FormatError, MissingFile, PlanError, TooLarge
from stateshift.formats.spark import offsets
from stateshift.formats.spark.names import classify, described_file
from stateshift.specification.transform import Repair
from stateshift.step.contents import digest_of
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding

LOG_MAX = 1 << 26
SHARDS_COMPARED = 16  # of a store, beside those that give files
NO_ENTRIES_MAX = 64  # bytes: so small a file may hold no entry, and is the same in any history
COMPARED = ("delta", "changelog", "snapshot", "zip")

Opening = Callable[[str], Storage]
StoreName = tuple[str, str | None]  # operator and store; None for all of an operator's
Compared = tuple[Collection[int | None], Collection[str]]  # shards that give files; damaged files


@dataclass(frozen=True)
class DamagedCheckpoint:
    """The checkpoint that is repaired, as it lies there."""

    storage: Storage
    paths: frozenset[str]
    identity: str | None


@dataclass(frozen=True)
class SoundCopy:
    """Another place with files of the same history, up to the batch `until`."""

    storage: Storage
    paths: frozenset[str]
    until: int
    identity: str | None

    @property
    def location(self) -> str:
        return self.storage.location

    def has(self, path: str) -> bool:
        """Whether the copy has this file, of a batch that both have planned in the same way."""
        if path not in self.paths:
            return False
        place = classify(described_file(path) or path)
        batch = place.version
        if batch is not None and place.area == "state":
            batch -= 1
        return batch is None or batch <= self.until


def sound_copies(
    own: DamagedCheckpoint, places: Sequence[str], opening: Opening
) -> tuple[SoundCopy, ...]:
    """Return the copies at these places.

    Raises:
        PlanError: one of them is no copy, or it is open which of them is.
    """
    copies = tuple(_copy_at(own, opening(place)) for place in places)
    ids = {copy.identity for copy in copies if copy.identity is not None}
    if own.identity is None and len(ids) > 1:
        raise PlanError(
            f"the query's id is damaged, and the copies have {len(ids)} ids "
            f"({', '.join(sorted(ids))}): either may be the job's",
            hint="give --also alone the copy that has the job's own id: its log and its progress "
            "name it",
        )
    return copies


def _copy_at(own: DamagedCheckpoint, copy: Storage) -> SoundCopy:
    """Return a copy, with the last batch up to which its history is that of the checkpoint."""
    survey, location = surveyed(copy), own.storage.location
    other = survey.images[0] if survey.kind == "checkpoint" else None
    if other is None:
        hint = f"stateshift inspect {quote(copy.location)}"
        raise PlanError(f"{copy.location} is not one query's checkpoint", hint=hint)
    forked = fork_id(replace(other, identity=own.identity), copy.location)
    known = (own.identity, forked)
    if None not in (own.identity, other.identity) and other.identity not in known:
        raise PlanError(
            f"{copy.location} is another query's checkpoint: its id is {other.identity}, and the "
            f"one of {location} is {own.identity}",
            hint="leave it out, and name a standby, a fork or a backup of this job",
        )
    held = frozenset(file.path for file in survey.files)
    newest = _newest_same_batch(own, copy, held)
    if newest is None:
        raise PlanError(
            f"{copy.location} has no batch that {location} has planned in the same way: nothing "
            "shows that its files are of the same history",
            hint="leave it out; or, where it is the newer one, look whether it is whole: "
            f"stateshift verify {quote(copy.location)} --deep",
        )
    # A fork may have run that batch itself, with other code.
    return SoundCopy(copy, held, newest - (other.identity != own.identity), other.identity)


def _newest_same_batch(own: DamagedCheckpoint, copy: Storage, held: frozenset[str]) -> int | None:
    """Return the newest batch that both have planned in the same way."""
    for path in sorted(held & own.paths, key=layout.number_of_log, reverse=True):
        if not layout.is_offset(path):
            continue
        with suppress(FormatError, MissingFile):
            content = own.storage.read(path, LOG_MAX)
            is_timed = offsets.decode_offsets(content).timestamp_ms > 0
            if is_timed and content == copy.read(path, LOG_MAX):
                return layout.number_of_log(path)
    return None


def refused_copies(storage: Storage, repair: Repair, opening: Opening) -> Iterator[Finding]:
    """Yield the refusals of the places that a repair takes files from: those that are no copy, and
    those of `refused_files`.
    """
    survey = surveyed(storage)
    paths = frozenset(file.path for file in survey.files)
    is_query = survey.kind == "checkpoint"
    own = DamagedCheckpoint(storage, paths, survey.images[0].identity if is_query else None)
    places = tuple(dict.fromkeys(repair.take.values()))
    try:
        copies = sound_copies(own, places, opening)
    except PlanError as error:
        yield Finding("refuse", error.fact, hint=error.hint)
        return
    yield from refused_files(own, dict(zip(places, copies, strict=True)), repair)


def refused_files(
    own: DamagedCheckpoint, copies: Mapping[str, SoundCopy], repair: Repair
) -> Iterator[Finding]:
    """Yield the refusals of files that a repair takes from these copies, by their places."""
    damaged = {*repair.take, *repair.leave}
    for place, copy in copies.items():
        paths = [path for path, location in repair.take.items() if location == place]
        gone = [path for path in paths if not copy.has(path)]
        if gone:
            again = (
                f"stateshift repair {quote(own.storage.location)} --to NEW --also {quote(place)}"
            )
            fact = f"{place} has no {gone[0]} of the same history as {own.storage.location}"
            yield Finding("refuse", fact, hint=f"look for a repair again: {again}")
        for store, shards in _shards_by_store(paths).items():
            yield from _other_state(own, copy, store, (shards, damaged))


def _shards_by_store(paths: Iterable[str]) -> dict[StoreName, set[int | None]]:
    """Return the stores that these files are of, and the shards; of a schema, all of an operator's
    stores.
    """
    by_store: dict[StoreName, set[int | None]] = {}
    for path in paths:
        place = classify(described_file(path) or path)
        if place.operator is not None and place.area.startswith("state"):
            store = place.store if place.area == "state" else None
            by_store.setdefault((place.operator, store), set()).add(place.partition)
    return by_store


def _other_state(
    own: DamagedCheckpoint, copy: SoundCopy, of: StoreName, compared: Compared
) -> Iterator[Finding]:
    """Yield the refusal of a copy whose state of a store differs, or cannot be compared."""
    giving, damaged = compared
    by_shard = _files_of_both(own, copy, of, damaged)
    shards = sorted(by_shard, key=lambda shard: (shard[0] not in giving, str(shard)))
    is_shown = False
    for shard in shards[: len(giving) + SHARDS_COMPARED]:
        path, is_equal = _newest_whole(own, copy, by_shard[shard])
        if path is not None and not is_equal:
            yield Finding(
                "refuse",
                f"{copy.location} has other state than {own.storage.location}: both have {path} "
                "whole, and it differs, though the query and its batches are the same. The state "
                "of one of them was changed (`prune`, `evolve`), or a batch ran twice",
                hint="leave that copy out, and name one whose state nobody has changed",
            )
            return
        is_shown |= is_equal
    if not is_shown:
        operator, store = of
        name = f"operator {operator}" + (f" ({store})" if store else "")
        yield Finding(
            "refuse",
            f"nothing shows that the state of {name} at {copy.location} is that of "
            f"{own.storage.location}: they have no state file of it in common that is whole",
            hint="leave that copy out; or, if nobody has changed its state (`prune`, `evolve`), "
            f"start from the copy itself: stateshift verify {quote(copy.location)} --deep",
        )


def _files_of_both(
    own: DamagedCheckpoint, copy: SoundCopy, of: StoreName, damaged: Collection[str]
) -> dict[tuple[int | None, str | None], list[str]]:
    """Return a store's files that both have, by shard and store: the newest first, and of a version
    the changes first, for they are small.
    """
    operator, store = of
    by_shard: dict[tuple[int | None, str | None], list[tuple[int, bool, str]]] = {}
    for path in own.paths & copy.paths:
        place = classify(path)
        is_of_store = place.operator == operator and store in (None, place.store)
        if not is_of_store or place.kind not in COMPARED or path in damaged:
            continue
        if copy.has(path):
            ranked = (place.version or 0, place.kind in ("delta", "changelog"), path)
            by_shard.setdefault((place.partition, place.store), []).append(ranked)
    newest_first = {}
    for shard in sorted(by_shard, key=str):
        newest_first[shard] = [path for *_, path in sorted(by_shard[shard], reverse=True)]
    return newest_first


def _newest_whole(
    own: DamagedCheckpoint, copy: SoundCopy, files: Iterable[str]
) -> tuple[str | None, bool]:
    """Return the newest of these files that both have whole, and whether it is equal."""
    for path in files:
        with suppress(MissingFile):
            digest = digest_of(own.storage.chunks(path))
            is_equal = digest == digest_of(copy.storage.chunks(path))
            if is_equal and digest[0] > NO_ENTRIES_MAX:
                return path, True
            if not is_equal and is_whole(own.storage, path) and is_whole(copy.storage, path):
                return path, False
    return None, False


def is_whole(storage: Storage, path: str) -> bool:
    """Whether a file decodes to its end and fits the checksums beside it."""
    try:
        check_file(path, storage.chunks(path))
    except TooLarge:
        return True  # nobody has seen damage
    except (FormatError, MissingFile):
        return False
    return next(sidecars.of_file(storage, path), None) is None
