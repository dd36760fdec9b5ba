"""CommitOffsets: a consumer group reads on where the job does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stateshift.errors import StalePlan, StateshiftError
from stateshift.step.evidence import OffsetsCommitted, of_kind
from stateshift.step.marks import NoFiles
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.survey import Committed, GroupCommit
from stateshift.world import World

# Brokers forget the offsets of a group without members: by default after a week, once after a day.
RETAINED_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class CommitOffsets(NoFiles):
    """Set the offsets of a consumer group. The plan says what they were, so that a second attempt
    knows its own, and an undo puts those back that nobody has changed since. An undo that the
    brokers do not let happen says so, and keeps nothing else from being taken back.
    """

    kind: ClassVar[str] = "CommitOffsets"
    name: str
    commit: GroupCommit

    def describe(self) -> str:
        amount = len(self.commit.offsets)
        return f"set {amount} offsets of the group {self.commit.group} at {self.commit.brokers}"

    def run(self, world: World) -> Evidence:
        commit = self.commit
        with world.groups(commit.brokers, commit.properties) as groups:
            now = groups.committed(commit.group)
            for topic, partition, before, after in commit.offsets:
                there = now.get((topic, partition))
                if there not in (before, Committed(after)):
                    raise StalePlan(
                        f"the group {commit.group} stood at {_offset(before)} in "
                        f"{topic}/{partition}, and has committed {_offset(there)} since",
                        hint="stop the consumers that commit for it, and set it back; or take "
                        "the run back: `stateshift rollback WORKDIR`",
                    )
            offsets = {(each.topic, each.partition): each.after for each in commit.offsets}
            groups.commit(commit.group, {at: Committed(each) for at, each in offsets.items()})
        return OffsetsCommitted(commit.group, len(offsets), world.clock.now())

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        commit, broken = self.commit, []
        with world.groups(commit.brokers, commit.properties) as groups:
            now = groups.committed(commit.group)
        is_kept = world.clock.now() - of_kind(evidence, OffsetsCommitted).at < RETAINED_SECONDS
        for topic, partition, _, after in commit.offsets:
            there = now.get((topic, partition))
            is_behind = is_kept if there is None else there.offset < after
            if is_behind:
                place = f"{topic}/{partition} of the group {commit.group}"
                broken.append(Discrepancy(place, f"{after} or later", _offset(there)))
        return broken

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        commit, left = self.commit, []
        name = f"the group {commit.group} at {commit.brokers}"
        try:
            with world.groups(commit.brokers, commit.properties) as groups:
                now, back = groups.committed(commit.group), {}
                for topic, partition, before, after in commit.offsets:
                    there = now.get((topic, partition))
                    if there == before:
                        continue
                    if there == Committed(after):
                        back[topic, partition] = before
                    else:
                        told = f"{topic}/{partition} is at {_offset(there)}, which others have set"
                        left.append(f"{name}: {told}: left there (before: {_offset(before)})")
                groups.commit(commit.group, back)
        except StateshiftError as error:
            left.append(f"{name} keeps the offsets of this run: {error.fact}")
        return left


def _offset(committed: Committed | None) -> str:
    return "none" if committed is None else str(committed.offset)
