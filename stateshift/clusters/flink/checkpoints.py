"""The end of a Flink job with its last checkpoint: one more is completed, the job is cancelled, and
the last one that it has completed stays where it is.

    <state_dir>/<tag>.checkpoint.json  {"begun", "since": our time and the JobManager's;
                                       "cancelled": true and "completed": a checkpoint's number,
                                       once it is to be cancelled; "image" and "accepted" where its
                                       cluster goes with it}

Flink deletes the checkpoints of a job that is cancelled unless they are to be retained
(execution.checkpointing.externalized-checkpoint-retention): without that nothing is cancelled here.
One that was completed since we began is as good as the one that we ask for, and before 1.17 Flink
cannot be asked: then the next one in its own time is waited for. Between the last checkpoint and
the end the job may complete yet another, which takes the place of the former: which one it is, is
read when it has ended. Flink's list of them may then be some seconds old, and not have the one that
we know of, which is beside the others under its number, as may be yet another.

A cluster of one application goes when its job has ended, and often before it is asked again: where
the checkpoint lies is noted before the job is cancelled, and that Flink has accepted it, after.
Without that, one that is silent may as well have lost its JobManager, and the job may run again:
then nobody says that it has ended. If it does run when it is asked again, it has gone on from what
was noted, and is ended again, with another checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.savepoints import ImageAsked
from stateshift.clusters.flink.values import Triggered, lasting_of
from stateshift.clusters.http import Refused, Unanswered
from stateshift.clusters.noted import Notes
from stateshift.clusters.protocol import CheckpointRequest, Gone
from stateshift.errors import ClusterError

RETAIN = "execution.checkpointing.externalized-checkpoint-retention"
_BEGINS, _ENDED = {"INITIALIZING", "CREATED"}, {"CANCELED", "FAILED"}
_RUNS = _BEGINS | {"RUNNING", "RESTARTING"}
# Flink's list of checkpoints is not as old, as anybody would configure it.
_LISTED_SECONDS_MAX = 15.0


def latest_checkpoint(calls: FlinkCalls, id: str) -> str | None:
    """Return the location of the last checkpoint, if one outlives the JobManager."""
    latest = calls.checkpoints(id).latest_checkpoint
    return None if latest is None or is_in_memory(latest.path) else latest.path


def is_in_memory(path: str) -> bool:
    """Whether a checkpoint goes with its JobManager: "<checkpoint-not-externally-addressable>"."""
    return path.startswith("<")


def end_with_checkpoint(
    calls: FlinkCalls, request: CheckpointRequest, notes: Notes, interrupt: threading.Event | None
) -> str:
    """Cancel a job after a checkpoint, and return the path of its last one; repeatable."""
    return _Ending(calls, request, notes, interrupt).done()


class _Ending(ImageAsked[CheckpointRequest]):
    suffix = "checkpoint"

    def done(self) -> str:
        until = time.monotonic() + self.request.seconds_max
        if self._has_gone_on(until):
            self.notes.add(self.note, cancelled=False, begun=time.time(), since=self.job().now)
        if not self.noted.get("cancelled"):
            job = self.job()
            if job.flink_state not in _ENDED and not lasting_of(self.calls.settings(job.id)):
                fact = f"the checkpoints of {job.name} ({job.id}) are deleted when it is cancelled"
                retained = f'"{RETAIN}": "RETAIN_ON_CANCELLATION" in its configuration'
                raise self.error(fact, f"{retained}; nothing was stopped")
            self._complete_one(until)
        try:
            if self.wait(self._cancelling(), until) is None:
                id, seconds = self.request.job_id, self.request.seconds_max
                fact = f"{id} still runs {seconds:g} s after it was cancelled"
                raise self.error(fact, "`stateshift resume WORKDIR` waits for its end again")
            return self._last(int(self.noted.get("completed", 0)))
        except Unanswered as silent:
            if "image" not in self.noted:
                raise
            raise self._gone(silent) from silent

    def _complete_one(self, until: float) -> None:
        completed = self.wait(self._completing(int(self.began())), until)
        if completed is None:
            fact = (
                f"no checkpoint of {self.request.job_id} was completed in "
                f"{self.request.seconds_max:g} s"
            )
            hint = (
                "it runs on: see why in Flink's own page of its checkpoints, then "
                "`stateshift resume WORKDIR`"
            )
            raise self.error(fact, hint)
        # This is all that will be known of the last checkpoint in a cluster of one application.
        known = {"image": self._last(completed)} if self.calls.of_one_application else {}
        self.notes.add(self.note, cancelled=True, completed=completed, **known)

    def _has_gone_on(self, until: float) -> bool:
        """Whether the job of a cluster of one application runs again, though it was cancelled."""
        noted = self.noted
        if not self.calls.of_one_application or not noted.get("cancelled"):
            return False
        if noted.get("accepted"):
            return False
        try:
            return self.wait(lambda: self.job().flink_state, until) in _RUNS
        except Unanswered:
            return False

    def _gone(self, silent: Unanswered) -> ClusterError:
        """Return the error for a silent cluster: ended, if Flink accepted that the job ends."""
        noted, id = self.noted, self.request.job_id
        if not (noted.get("accepted") and self.calls.has_gone(silent)):
            hint = (
                "`stateshift resume WORKDIR` once it answers again; where it is gone for "
                "good, the newest chk- folder "
                f'beside {noted["image"]} is the job\'s image, for "existing_savepoint_paths"'
            )
            fact = f"{id} was to be cancelled, and its cluster does not say whether it was"
            return self.error(f"{fact}: {silent.fact}", hint)
        hint = f"its last checkpoint is {noted['image']}, or a later one beside it"
        return Gone(
            f"{id} was cancelled, and its cluster is gone",
            float(noted["begun"]),
            noted["image"],
            cluster=self.calls.cluster,
            job=id,
            hint=hint,
        )

    def _completing(self, since: int) -> Callable[[], int | None]:
        """Return a look for the number of the checkpoint that the job may be ended with."""
        trigger: str | None = None  # of ours; empty if this Flink cannot be asked

        def look() -> int | None:
            nonlocal trigger
            job = self.job()
            if job.flink_state in _ENDED:
                return 0  # by somebody, in between: its last checkpoint is its image
            if job.flink_state == "FINISHED":
                raise self.error(
                    f"{job.name} ({job.id}) has come to the end of its input: nothing is left to "
                    "go on",
                    "its output is complete",
                )
            if trigger:
                completed = self._triggered(trigger)
                if completed is not None:
                    return completed
            if trigger is None and job.flink_state not in _BEGINS:
                trigger = self._ask(job.id)
            latest = self.calls.checkpoints(self.request.job_id).latest_checkpoint
            if latest is None or latest.triggered < since:
                return None
            return latest.id

        return look

    def _triggered(self, trigger: str) -> int | None:
        triggered = self.calls.triggered_checkpoint(self.request.job_id, trigger) or Triggered()
        cause = triggered.cause
        if cause is not None:
            raise self.error(f"no checkpoint was completed: {cause.fact}", cause.hint)
        return triggered.checkpoint

    def _ask(self, id: str) -> str:
        """Ask for a checkpoint and return the request's id; "" if this Flink cannot be asked."""
        try:
            return self.calls.trigger_checkpoint(id)
        except Refused as refused:
            if refused.status in (404, 405):
                return ""
            raise

    def _cancelling(self) -> Callable[[], bool | None]:
        accepted = False

        def look() -> bool | None:
            nonlocal accepted
            job = self.job()
            ended = job.flink_state in _ENDED
            if not accepted:
                if not ended:
                    self.calls.cancel(job.id)
                accepted = True
                if self.calls.of_one_application:
                    self.notes.add(self.note, accepted=True)
            return True if ended else None

        return look

    def _last(self, completed: int) -> str:
        """Return Flink's last checkpoint; if it said that a newer one is completed, that one."""

        def look() -> str | None:
            latest = self.calls.checkpoints(self.request.job_id).latest_checkpoint
            if latest is None:
                return None
            if latest.id >= completed:
                return latest.path
            number = f"/chk-{latest.id}"
            if not latest.path.endswith(number):
                return None
            return f"{latest.path.removesuffix(number)}/chk-{completed}"

        path = self.wait(look, time.monotonic() + _LISTED_SECONDS_MAX)
        if path is None or is_in_memory(path):
            fact = f"Flink has no checkpoint of {self.request.job_id} that outlives it"
            raise self.error(
                fact,
                "look for the newest chk- folder of the job: that is its image, for "
                '"existing_savepoint_paths"',
            )
        return path
