"""The start of steps: the one before is complete, the records that waited for it are drained,
and its time has come.

    Rollout(steps, gap)              the state of an outside controller while a job runs (M-11)
    advance(rollout, now, frontier)  its next move: the updates to send now, none if it has to wait
    updates_ahead(steps, start, …)   all updates at once, for times that are still to come

A step is complete when the frontier of the outputs has passed its time: all of its state has
arrived by then. The state on its way is never more than a step's (flow control, M-5). Without a gap
the next step begins before the records that waited for this one are through, and its own wait for
both; a gap leaves them time (M-4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stateshift.dataflow.move_steps import Step
from stateshift.errors import Complaint, SpecError
from stateshift.live.protocol.configuration import Time, Update, updates_of


@dataclass(frozen=True, slots=True)
class Rollout:
    """`begun` steps of `steps` have been sent, the last of them with the time `sent`; it was seen
    to be complete at `complete`. None is sent before `earliest`.
    """

    steps: tuple[Step, ...]
    gap: Time = 0
    earliest: Time = 0
    begun: int = 0
    sent: Time | None = None
    complete: Time | None = None

    @property
    def finished(self) -> bool:
        return self.begun == len(self.steps) and not self.waiting

    @property
    def waiting(self) -> bool:
        """Whether a step is on its way."""
        return self.sent is not None and self.complete is None

    @property
    def next(self) -> Time:
        """The earliest time of the next step. One that is complete at its own time would be
        followed by one of the same time, which is no other step.
        """
        if self.sent is None or self.complete is None:
            return self.earliest
        return max(self.earliest, self.sent + 1, self.complete + self.gap)


def advance(rollout: Rollout, now: Time, frontier: Time) -> tuple[Rollout, tuple[Update, ...]]:
    """Return the rollout as it is known at `now`, and the updates to send then, of that time."""
    sent = rollout.sent
    if sent is not None:
        if now < sent:
            message = f"time runs backwards, from {sent} to {now}"
            hint = "ask with the time up to which the control stream has been written"
            raise SpecError((Complaint("/now", message, now),), hint=hint)
        if rollout.waiting and frontier > sent:
            rollout = replace(rollout, complete=now)
    if rollout.begun == len(rollout.steps) or rollout.waiting or now < rollout.next:
        return rollout, ()
    begun = replace(rollout, begun=rollout.begun + 1, sent=now, complete=None)
    return begun, updates_of(rollout.steps[rollout.begun], now)


def updates_ahead(steps: tuple[Step, ...], start: Time, every: Time) -> tuple[Update, ...]:
    """Return all steps' updates, the first for `start` and one `every` so much time. They need no
    answer, and have the protocol's own flow control: a worker gives nothing of a step before it has
    all that it takes of the one before.
    """
    if every <= 0 and len(steps) > 1:
        raise SpecError((Complaint("/every", "steps at one time are one step", every, "above 0"),))
    updates: list[Update] = []
    for number, step in enumerate(steps):
        updates += updates_of(step, start + number * every)
    return tuple(updates)
