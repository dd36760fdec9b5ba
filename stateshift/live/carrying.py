"""Follow a change until all run it: the coordinator's table (`protocol.coordinator`) over files.

What workers say are its words; what it orders is the decision. A change is *requested* when it is
proposed; every worker *acknowledges* it, also where it has no part in it; it is *completed* when it
is decided and every worker runs it. Whoever refuses aborts it, and so does time. A worker that has
no task at the moment cannot answer, and need not: it reads what is decided before its next task
begins. It counts as having answered once its query has begun a second batch since.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from stateshift.errors import FormatError
from stateshift.live.folder import ChainWorker, Folder, WorkerWord
from stateshift.live.member import ACKNOWLEDGED, RUNNING, decided_here
from stateshift.live.protocol import coordinator as table
from stateshift.live.protocol.chains import Change, Decision, Outcome, Reversal
from stateshift.live.protocol.coordinator import Coordinator
from stateshift.live.protocol.task_flow import (
    Acknowledged,
    Complete,
    Deployment,
    Flow,
    Refused,
    Replacement,
    Running,
    Task,
    Word,
)
from stateshift.live.standing import GroupState, takes_itself_back
from stateshift.live.waiting import Pause

logger = logging.getLogger(__name__)

COUNT_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class ChangeProgress:
    """What became of a change so far: the coordinator's table, and when what was reached."""

    change: Change
    state: Coordinator
    workers: int
    acknowledged: int
    running: int
    decided: Decision | None
    first_seconds: float | None
    last_seconds: float | None
    # the error that has taken it back, if one has while it was waited for
    reverted: Reversal | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the workers to run a change once it is decided, and whether for anybody
    at all. The decision itself has the change's own time.
    """

    seconds: float
    unattended: bool = False


def carry(
    folder: Folder,
    now: GroupState,
    change: Change,
    patience: Patience,
    progress: Callable[[ChangeProgress], None] = lambda carried: None,
) -> ChangeProgress:
    """Follow a change until every worker runs it, it is aborted, or the time to wait is over. It is
    never left undecided.
    """
    carrier = _Carrier(folder, now, change, patience.unattended)
    pause = Pause(time.sleep)
    while True:
        carried = carrier.step()
        progress(carried)
        if carried.state.state not in ("running", "rolling-back"):
            return carried
        if carried.decided and not carried.workers:
            return carried
        if carried.decided and time.time() >= carried.decided.at + patience.seconds:
            return carried
        pause()


class _Carrier:
    """The coordinator of one change, over a group's folder."""

    def __init__(self, folder: Folder, now: GroupState, change: Change, unattended: bool) -> None:
        self.folder = folder
        self.change = change
        self.unattended = unattended
        self.previous = now.version
        last = now.changes[now.version - 1] if now.version else None
        self._may_be_taken_back = last is not None and takes_itself_back(last)
        self.tasks = _tasks(said.worker for said in now.living)
        self.heard: dict[str, WorkerWord] = {}
        self.decided: Decision | None = None
        self.before = self.folder.last_batches()
        self.begun = self.before
        self.counted = 0.0
        flow = Flow(Counter(task.operator for task in self.tasks.values()), ())
        places = Deployment(flow, dict.fromkeys(flow.tasks, change.group), {})
        asked = Replacement(f"change {change.number}", tuple(flow.operators))
        self.state, _, _ = table.begin(places, asked, change.number, change.at)

    def step(self) -> ChangeProgress:
        """Hear what is new, and decide as the table says."""
        for path in self.folder.words(self.change.number):
            said = None if path in self.heard else self._heard(path)
            if said is not None and said.worker in self.tasks:
                self._take(said.worker, said.word, said.reason)
        self._count_absent()
        self._heed_others()
        return self._carried()

    def _heard(self, path: str) -> WorkerWord | None:
        """Return a word that is new; None if it cannot be read, as if it had not been said."""
        try:
            self.heard[path] = self.folder.word(path)
        except FormatError as error:
            logger.warning("%s: %s", error.path, error.fact)
            return None
        return self.heard[path]

    def _take(self, worker: ChainWorker, word: str, reason: str = "") -> None:
        """Give a word to the table. What it then orders is decided first: if somebody else has
        decided otherwise, the word is not taken.
        """
        task = self.tasks[worker]
        after, _, orders = table.advance(self.state, _word(task, word, reason), time.time())
        completes = any(isinstance(order, Complete) for _, order in orders)
        if completes and self._apply().outcome == "aborted":
            return  # `_heed_others` takes that over
        if after.state == "rolling-back" and self.decided is None:
            refusal = f"{worker.chain}-{worker.partition}: {reason}"
            if self._decide("aborted", refusal).outcome == "applied":
                return  # somebody else has; who refuses it cannot hinder that any more
        self.state = after

    def _apply(self) -> Decision:
        """Decide that the change holds, unless the one before it has taken itself back since: then
        it was made for a chain that is another one now. From here on that one holds for good.
        """
        reverted = self.folder.keep(self.previous) if self._may_be_taken_back else None
        if reverted is not None:
            reason = f"change {self.previous} was taken back in this moment: {reverted.error}"
            return self._decide("aborted", reason)
        return self._decide("applied")

    def _decide(self, outcome: Outcome, reason: str = "") -> Decision:
        self.decided = self.folder.decide(self.change.number, decided_here(outcome, reason))
        self.before = self.begun = self.folder.last_batches()
        return self.decided

    def _count_absent(self) -> None:
        """Count the workers that have no task as having answered: those whose query has begun two
        batches without a word of theirs. A task that begins reads what is decided first.
        """
        if self.unattended and not self.tasks and self.decided is None:
            self._apply()
        now = time.time()
        if now - self.counted >= COUNT_SECONDS and not self.unattended:
            self.counted = now
            self.begun = self.folder.last_batches()
        for worker in self.tasks:
            begun = self.begun.get(worker.query, -1) - self.before.get(worker.query, -1)
            if self.unattended or begun >= 2:
                self._take(worker, ACKNOWLEDGED if self.decided is None else RUNNING)

    def _heed_others(self) -> None:
        """Take over what somebody else has decided, and abort what is overdue."""
        if self.decided is None:
            self.decided = self.folder.decided(self.change.number)
        if self.decided is None and time.time() >= self.change.expires:
            seconds = self.change.timeout_seconds
            self._decide("aborted", f"{self._silent()} did not answer within {seconds:g} s")
        if self.decided is not None and self.decided.outcome == "aborted":
            self._abort(self.decided.reason)

    def _abort(self, reason: str) -> None:
        """Take an abort to its end: nobody has held anything back, everybody runs on as before."""
        self.state = table.give_up(self.state, reason, time.time())

    def _silent(self) -> str:
        """Return the workers that have not answered, for people."""
        answered = {said.worker for said in self.heard.values()}
        silent = sorted(f"{one.chain}-{one.partition}" for one in self.tasks.keys() - answered)
        more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
        return f"{', '.join(silent[:3])}{more}" if silent else "nobody"

    def _carried(self) -> ChangeProgress:
        running = [said.at for said in self.heard.values() if said.word == RUNNING]
        return ChangeProgress(
            change=self.change,
            state=self.state,
            workers=len(self.tasks),
            acknowledged=len(self.state.acknowledged),
            running=len(self.state.resumed),
            decided=self.decided,
            first_seconds=min(running) - self.change.at if running else None,
            last_seconds=max(running) - self.change.at if running else None,
            reverted=self._reverted(),
        )

    def _reverted(self) -> Reversal | None:
        """Return the error that has taken the change back, where it is one that does so."""
        if self.change.on_error != "revert" or self.decided is None:
            return None
        return self.folder.reverted(self.change.number)


def _tasks(workers: Iterable[ChainWorker]) -> Mapping[ChainWorker, Task]:
    """Return each worker's task in the coordinator's table, numbered within its operator: of a
    union's second branch the partitions do not begin at 0.
    """
    tasks: dict[ChainWorker, Task] = {}
    counts: Counter[str] = Counter()
    for worker in sorted(set(workers), key=lambda worker: (worker.operator, worker.partition)):
        tasks[worker] = Task(worker.operator, counts[worker.operator])
        counts[worker.operator] += 1
    return tasks


def _word(task: Task, word: str, reason: str) -> Word:
    match word:
        case "refused":
            return Refused(task, reason)
        case "running":
            return Running(task)
        case _:
            return Acknowledged(task, ("replaces",))
