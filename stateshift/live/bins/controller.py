"""The mover of bins, as a program calls it.

    controller = live.Controller("s3://live/orders")
    controller.move(range(128), to="east", strategy="batched(16)")
    controller.resize(512)
    controller.status()

`stateshift live move` does the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from stateshift.errors import Complaint, PlanError, SpecError, StalePlan
from stateshift.live.bins.files import Proposal
from stateshift.live.bins.migration import ASKED_TO_STOP, Carrier, CountCarrier, MoveProgress
from stateshift.live.bins.move_request import Manner, Steps, check, check_count, moves_to, steps_of
from stateshift.live.bins.parts import KeyHashing
from stateshift.live.bins.steering import MoveCarrier, Steering, Throttle
from stateshift.live.bins.watch import HINT_NO_BINS, Bins, Watch, open_bins
from stateshift.live.member import decided_here, process_name
from stateshift.live.protocol.configuration import Time
from stateshift.live.values import live_command


class Controller:
    """The bins of one group, from outside.

    Args:
        group: the folder's location.
        wait: how it waits; a test has its workers work meanwhile.
    """

    def __init__(self, group: str, wait: Callable[[float], None] = time.sleep) -> None:
        found = open_bins(group)
        if found is None:
            raise PlanError(f"{group} has no bins: no worker has ever started", hint=HINT_NO_BINS)
        self.watch: Watch = Watch(*found)
        self.steering = Steering(self.watch.files.storage)
        self._wait = wait

    def status(self) -> Bins:
        return self.watch.survey()

    def move(
        self,
        bins: Iterable[int],
        *,
        to: str,
        at: Time | None = None,
        strategy: str = "all-at-once",
        manner: Manner | None = None,
    ) -> MoveProgress:
        """Move bins to a worker, and wait until they are there; those that are there stay.

        Args:
            bins: their numbers.
            to: the worker's name.
            at: the logical time before which nothing moves.
            strategy: all-at-once, fluid, batched(k), optimised or warm.
            manner: everything else.
        """
        manner = replace(manner or Manner(), strategy=strategy, at=at)
        now = self.status()
        steps = steps_of(moves_to(now, to, tuple(bins)), manner)
        check(now, steps, manner)
        return self.carry(steps, manner)

    def resize(
        self,
        bins: int,
        *,
        at: Time | None = None,
        manner: Manner | None = None,
        progress: Callable[[MoveProgress], None] = lambda moved: None,
    ) -> MoveProgress:
        """Split or merge all bins until there are so many, and wait until all workers have them.

        Args:
            bins: a power of two.
            at: the logical time from which each worker does so; at once where none is named.
            manner: how long to wait.
            progress: takes each report.
        """
        manner = replace(manner or Manner(), at=at)
        self.check_resize(self.status(), bins, at)
        carrier = CountCarrier(self.watch, (), manner, progress, self._wait, count=bins)
        return carrier.carry()

    def check_resize(self, now: Bins, bins: int, at: Time | None = None) -> None:
        keyed: dict[tuple[str, str], KeyHashing] = {}
        for part in now.parts:
            known = self.watch.files.keyed(part.runs.operator, part.runs.worker)
            if known is not None:
                keyed[part.runs.operator, part.runs.worker] = known
        check_count(now, bins, at, keyed)

    def carry(
        self,
        steps: Steps,
        manner: Manner,
        progress: Callable[[MoveProgress], None] = lambda moved: None,
    ) -> MoveProgress:
        """Carry steps that were checked."""
        return Carrier(self.watch, steps, manner, progress, self._wait).carry()

    @property
    def location(self) -> str:
        return self.watch.files.location

    @property
    def is_at_work(self) -> bool:
        """Whether something is proposed, or somebody moves bins."""
        return self.status().moves.open is not None or self.carried is not None

    def withdraw(self, reason: str) -> Proposal | None:
        """Abort the proposal of this process, unless it is decided; return it."""
        open_ = self.watch.look().moves.open
        if open_ is None or open_.by != process_name():
            return None
        decided = self.watch.files.decide(open_.number, decided_here("aborted", reason))
        return open_ if decided.outcome == "aborted" else None

    def pause(self) -> None:
        self.steering.pause()

    def resume(self) -> None:
        self.steering.resume()

    def throttle(self, bins: int | None = None, gap_seconds: float | None = None) -> None:
        """Set the most bins of a step, and the pause between two; None is as asked for."""
        wrong = []
        if bins is not None and bins < 1:
            wrong.append(Complaint("bins", "a step has one bin at least", bins))
        if gap_seconds is not None and not 0 <= gap_seconds < math.inf:
            wrong.append(Complaint("gap_seconds", "a pause has a length from 0 on", gap_seconds))
        if wrong:
            hint = "controller.throttle(bins=4, gap_seconds=1.0)"
            raise SpecError(tuple(wrong), hint=hint)
        self.steering.throttle(Throttle(bins, gap_seconds))

    @property
    def carried(self) -> MoveCarrier | None:
        return self.steering.carried

    def abort(self) -> Proposal | None:
        """Abort the proposal that is not decided, and let whoever moves bins end; return the
        proposal. A decision is not taken back: move the bins back.
        """
        now = self.status()
        open_ = now.moves.open
        if open_ is None and self.carried is None:
            raise PlanError("no bins are on their way", hint=live_command("status", self.location))
        if self.carried is not None:
            self.steering.stop()
        if open_ is not None:
            decided = self.watch.files.decide(open_.number, decided_here("aborted", ASKED_TO_STOP))
            if decided.outcome == "applied":
                raise StalePlan(
                    f"move {open_.number} was applied in this moment",
                    hint="what is decided is carried out: move the bins back",
                )
        return open_


def has_bins(location: str) -> bool:
    """Whether a worker has ever begun the bins of a group."""
    return open_bins(location) is not None
