"""KeepOwners: files and directories of the target get the owners that they had at the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from stateshift.step.contents import each
from stateshift.step.evidence import OwnersGiven
from stateshift.step.marks import NoFiles
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.survey import Owned
from stateshift.world import World

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class KeepOwners(NoFiles):
    """Give files and directories of the target to the owners that they have at the source. Without
    a counterpart there (state that was rewritten) they are given to the owner of the directory
    above, and keep their permissions. The deepest come first: a directory that was given away may
    not let us in any more. Nothing is undone: with the files their owners go.
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
        by_depth: dict[int, list[Owned]] = {}
        for owned in wrong:
            depth = owned.path.count("/") + 1 if owned.path else 0
            by_depth.setdefault(depth, []).append(owned)
        for depth in sorted(by_depth, reverse=True):  # those of one depth do not hold each other
            each(world, by_depth[depth], target.own, target)
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

    def _wrong(self, world: World) -> Iterator[Owned]:
        """Yield the owners that paths are to get, unless they have them."""
        source = {owned.path: owned for owned in world.storage(self.source).owners()}
        owners = sorted(world.storage(self.target).owners(), key=lambda owned: owned.path)
        for now in owners:
            wanted = self._wanted(now.path, source)
            pairs = [(wanted.owner, now.owner), (wanted.group, now.group), (wanted.mode, now.mode)]
            if any(asked not in (None, there) for asked, there in pairs):
                yield wanted

    def _wanted(self, path: str, source: Mapping[str, Owned]) -> Owned:
        """Return the owner that a path is to get; None in it for what stays as it is."""
        counterpart = owner = source.get(path)
        above = path
        while owner is None and above:
            above = above.rpartition("/")[0]
            owner = source.get(above)
        if not self.owner:
            owner = None
        mode = counterpart.mode if counterpart is not None and self.permissions else None
        if owner is None:
            return Owned(path, None, None, mode)
        return Owned(path, owner.owner, owner.group, mode)


def _in_words(owned: Owned) -> str:
    mode = None if owned.mode is None else f"{owned.mode:o}"
    return " ".join(part for part in (owned.owner, owned.group, mode) if part is not None)
