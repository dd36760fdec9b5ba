"""KeepOwners: files and directories of the target belong to whom they belonged to at the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from stateshift.step.at_once import each
from stateshift.step.evidence import OwnersGiven
from stateshift.step.marks import NoFiles
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.storage.protocol import Storage
from stateshift.survey import Owned
from stateshift.world import World

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class KeepOwners(NoFiles):
    """Give files and directories of the target to the owners that they have at the source. What has
    no counterpart there (state that was rewritten) is given to whom the directory above it belongs,
    and keeps the permissions it has. What lies deepest comes first: who has given a directory away
    may not be let into it any more. Nothing is undone: with the files their owners go.
    """

    kind: ClassVar[str] = "KeepOwners"
    name: str
    source: str
    target: str
    owner: bool
    permissions: bool

    def describe(self) -> str:
        words = []
        if self.owner:
            words.append("owners")
        if self.permissions:
            words.append("permissions")
        return f"give {self.target} the {' and '.join(words)} of {self.source}"

    def run(self, world: World) -> Evidence:
        target = world.storage(self.target)
        wrong = list(self._wrong(world))
        for level in _levels(wrong):
            each(world, level, target.own, target)
        return OwnersGiven(len(wrong))

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        now = {owned.path: owned for owned in world.storage(self.target).owners()}
        broken = []
        for wanted in list(self._wrong(world))[:SHOWN_MAX]:
            if wanted.path in now:
                place = f"{self.target}/{wanted.path}"
                expected, there = _in_words(wanted), _in_words(now[wanted.path])
                broken.append(Discrepancy(place, expected, there))
        return broken

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        return []

    def _wrong(self, world: World) -> Iterator[Owned]:
        """Yield what is to be given, and to whom."""
        source = {owned.path: owned for owned in world.storage(self.source).owners()}
        for now in _owned(world.storage(self.target)):
            wanted = self._wanted(now.path, source)
            if _filled_up(wanted, now) != now:
                yield wanted

    def _wanted(self, path: str, source: Mapping[str, Owned]) -> Owned:
        """Return whose a path is to be; None for what stays as it is."""
        counterpart = source.get(path)
        owner = (counterpart or _nearest_above(path, source)) if self.owner else None
        mode = counterpart.mode if counterpart is not None and self.permissions else None
        if owner is None:
            return Owned(path, None, None, mode)
        return Owned(path, owner.owner, owner.group, mode)


def _owned(storage: Storage) -> Iterable[Owned]:
    return sorted(storage.owners(), key=lambda owned: owned.path)


def _filled_up(wanted: Owned, now: Owned) -> Owned:
    """Return what is wanted, with what is there for everything else."""
    return Owned(
        now.path,
        now.owner if wanted.owner is None else wanted.owner,
        now.group if wanted.group is None else wanted.group,
        now.mode if wanted.mode is None else wanted.mode,
    )


def _levels(owned: Iterable[Owned]) -> list[list[Owned]]:
    """Return the deepest first; those of one depth know nothing of each other."""
    by_depth: dict[int, list[Owned]] = {}
    for each_owned in owned:
        path = each_owned.path
        depth = path.count("/") + 1 if path else 0
        by_depth.setdefault(depth, []).append(each_owned)
    return [by_depth[depth] for depth in sorted(by_depth, reverse=True)]


def _nearest_above(path: str, source: Mapping[str, Owned]) -> Owned | None:
    for above in _above(path):
        if above in source:
            return source[above]
    return None


def _above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def _in_words(owned: Owned) -> str:
    mode = None if owned.mode is None else f"{owned.mode:o}"
    return " ".join(part for part in (owned.owner, owned.group, mode) if part is not None)
