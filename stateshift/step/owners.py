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

TOLD_MAX = 5


@dataclass(frozen=True, slots=True)
class KeepOwners(NoFiles):
    """What there is no counterpart of at the source (state that was written anew) is given to whom
    the directory above it belongs, and keeps the permissions it has. What lies deepest comes first:
    who has given a directory away may not be let into it any more. Nothing is undone: with the
    files their owners go.
    """

    kind: ClassVar[str] = "KeepOwners"
    name: str
    source: str
    target: str
    owner: bool
    permissions: bool

    def describe(self) -> str:
        what = " and ".join(
            word
            for word, kept in (("owners", self.owner), ("permissions", self.permissions))
            if kept
        )
        return f"give {self.target} the {what} of {self.source}"

    def run(self, world: World) -> Evidence:
        target, wrong = world.storage(self.target), list(self._wrong(world))
        for level in _levels(wrong):
            each(world, level, target.own, target)
        return OwnersGiven(len(wrong))

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        here = {owned.path: owned for owned in world.storage(self.target).owners()}
        return [
            Discrepancy(f"{self.target}/{wanted.path}", _told(wanted), _told(here[wanted.path]))
            for wanted in list(self._wrong(world))[:TOLD_MAX]
            if wanted.path in here
        ]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        return []

    def _wrong(self, world: World) -> Iterator[Owned]:
        """What is to be given, and to whom."""
        source = {owned.path: owned for owned in world.storage(self.source).owners()}
        for found in _owned(world.storage(self.target)):
            wanted = self._wanted(found, source)
            kept = found._replace(**{k: v for k, v in wanted._asdict().items() if v is not None})
            if kept != found:
                yield wanted

    def _wanted(self, found: Owned, source: Mapping[str, Owned]) -> Owned:
        like = source.get(found.path)
        above = next((source[path] for path in _above(found.path) if path in source), None)
        owned = (like or above) if self.owner else None
        return Owned(
            found.path,
            owned and owned.owner,
            owned and owned.group,
            like.mode if like is not None and self.permissions else None,
        )


def _owned(storage: Storage) -> Iterable[Owned]:
    return sorted(storage.owners(), key=lambda owned: owned.path)


def _levels(owned: Iterable[Owned]) -> Iterator[list[Owned]]:
    """The deepest first; those of one depth know nothing of each other."""
    depths: dict[int, list[Owned]] = {}
    for one in owned:
        depths.setdefault(one.path.count("/") + 1 if one.path else 0, []).append(one)
    return (depths[depth] for depth in sorted(depths, reverse=True))


def _above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def _told(owned: Owned) -> str:
    mode = None if owned.mode is None else f"{owned.mode:o}"
    return " ".join(part for part in (owned.owner, owned.group, mode) if part is not None)
