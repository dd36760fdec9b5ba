"""What keeps a run, or some of its waves, from being taken back. Each question is asked of the
plans that it is about, and raises a PlanError with the fact and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from shlex import quote

from stateshift.clusters.protocol import JobState, StopRequest
from stateshift.engines.registry import engine
from stateshift.errors import ClusterError, PlanError
from stateshift.journal import PlanProgress
from stateshift.plan import PHASES, Plan
from stateshift.specification import Spec
from stateshift.step import AwaitProgress, LiftFence, SubmitJob
from stateshift.storage import locations
from stateshift.terms import terms_of
from stateshift.workdir import Workdir
from stateshift.world import World

# What is taken back before it is asked once more whether a job has committed: it is stopped by
# then.
FROM_THE_START = PHASES[PHASES.index("submit") :]


class CommittedSince(PlanError):
    """What a job has committed on its target would be thrown away."""


class Refusing:
    """Asks before anything is taken back."""

    def __init__(self, spec: Spec, world: World, workdir: Workdir) -> None:
        self.spec, self.world, self.workdir = spec, world, workdir
        self._terms = terms_of(spec.engine)

    def back(self, plans: Iterable[PlanProgress], discard: bool) -> None:
        """Everything that may speak against taking these back."""
        plans = list(plans)
        self.from_another_run(plans)
        self.from_another_job(plans)
        self.what_was_built_on(plans)
        if not discard:
            self.progress(plans)

    def from_another_run(self, plans: Iterable[PlanProgress]) -> None:
        """A job that was moved on from the target since: to take this run back would pull its
        source away from under that run, and start the old job beside the new one.
        """
        for adopted in plans:
            plan = self._plan(adopted)
            if (
                adopted.undone
                or not adopted.steps
                or plan.purpose != "move"
                or plan.target == plan.source
            ):
                continue
            owner = self.world.fence(plan.target)
            if owner not in (None, self.world.run):
                raise PlanError(
                    f"run {owner} has moved {adopted.job} on from {plan.target} since",
                    hint="take that run back first: stateshift runs lists the workdirs",
                )

    def from_another_job(self, plans: Iterable[PlanProgress], then: str = "rollback") -> None:
        """A job that runs on the target, and that somebody else has started there."""
        for adopted in plans:
            job = self.spec.job(adopted.job)
            begun = set() if adopted.undone else set(adopted.steps)
            if job is None or not job.moves or not begun:
                continue
            for step in self._plan(adopted):
                if (
                    not isinstance(step, SubmitJob)
                    or step.name not in begun
                    or step.status(self.world).state.alive
                ):
                    continue
                request = StopRequest(job.name, job.destination)
                if self.world.cluster(step.cluster).find_source(request).state.alive:
                    raise PlanError(
                        f"{job.name} runs on {job.target_cluster}, and this run did not start it",
                        hint=f"stop it, then: stateshift {then} {quote(str(self.workdir.path))}",
                    )

    def what_was_built_on(self, plans: Iterable[PlanProgress]) -> None:
        """State that was compacted in place: later versions of a job that has gone on may name
        our files.
        """
        for adopted in plans:
            if _in_place(self._plan(adopted)) and not adopted.undone and self._gone_on(adopted):
                raise PlanError(
                    f"{adopted.job} has {self._terms.done} {self._terms.many} since, on "
                    "the files that were written "
                    "here: it cannot do without them",
                    hint="what was set aside may be removed; there is nothing to take back",
                )

    def progress(self, plans: Iterable[PlanProgress]) -> None:
        """A job that has committed since, whoever started it: taking it back throws those
        batches away.
        """
        for adopted in plans:
            confirmed = [
                s for s in adopted.steps.values() if s.phase == "confirm" and s.state == "finished"
            ]
            told = any(s.evidence and s.evidence.get("committed") for s in confirmed)
            if told or self._gone_on(adopted) or self._has_completed(adopted):
                stopped = (
                    "`stateshift resume WORKDIR` starts it there again; "
                    if is_only_stopped(adopted)
                    else ""
                )
                raise CommittedSince(
                    f"{adopted.job} has {self._terms.done} {self._terms.many} on the "
                    "target since; a rollback would "
                    "throw them away",
                    hint=f"{stopped}if that is what you want: {self._discarding}",
                )

    def before_it_is_stopped(self, adopted: PlanProgress) -> None:
        """A job that has gone on since it was asked last, as only its cluster can tell: while it
        runs.
        """
        if not adopted.undone and self._has_completed(adopted):
            raise CommittedSince(
                (
                    f"{adopted.job} has completed a checkpoint on the target since; a rollback "
                    "would throw that away"
                ),
                hint=f"if that is what you want: {self._discarding}",
            )

    def since_it_was_asked_to_stop(self, adopted: PlanProgress, discards: bool) -> None:
        """A job that has ended its batch before it stopped, and committed it."""
        in_place = _in_place(self._plan(adopted))
        if not (in_place or not discards) or not self._gone_on(adopted):
            return
        again = "`stateshift resume WORKDIR` starts it there again"
        if in_place:
            raise CommittedSince(
                f"{adopted.job} has {self._terms.went_on} while it was being stopped, on "
                "the files that were written "
                "here: it cannot do without them",
                hint=f"{again}; there is nothing to take back",
            )
        raise CommittedSince(
            f"{adopted.job} has {self._terms.went_on} on the target while it was being "
            "stopped; to take it back would "
            "throw that away. It is stopped, and its image is whole",
            hint=f"{again}; if it may be thrown away: {self._discarding}",
        )

    @property
    def _discarding(self) -> str:
        return f"stateshift rollback {quote(str(self.workdir.path))} --discard-progress"

    def _has_completed(self, adopted: PlanProgress) -> bool:
        """Whether the job that was started there has completed a checkpoint of its own, where only
        the cluster tells. Of one that has failed it may know no more.
        """
        plan = self._plan(adopted)
        waits = [step for step in plan if isinstance(step, AwaitProgress) and not step.commits]
        for step in plan:
            begun = step.name in adopted.steps and adopted.steps[step.name].state != "undone"
            if waits and isinstance(step, SubmitJob) and begun:
                state = step.status(self.world).state
                with suppress(*((ClusterError,) if not state.alive else ())):
                    if state.alive or state is JobState.FAILED:
                        return any(wait.completed(self.world) for wait in waits)
        return False

    def _plan(self, adopted: PlanProgress) -> Plan:
        return self.workdir.read_plan(adopted.plan, adopted.fingerprint)

    def _gone_on(self, adopted: PlanProgress) -> bool:
        """Whether the target's image has a later epoch than the one that was brought there."""
        plan = self._plan(adopted)
        if (
            plan.purpose != "move"
            or not adopted.steps
            or (plan.target == plan.source and not _in_place(plan))
        ):
            return False
        there = self._epochs(plan.engine, plan.target)
        here: dict[str, int | None] = {"": plan.epoch}
        if plan.epoch is None and any(epoch is not None for epoch in there.values()):  # a workflow
            here = self._epochs(plan.engine, plan.source)
        return any(
            (there.get(path) or 0) > epoch for path, epoch in here.items() if epoch is not None
        )

    def _epochs(self, kind: str, location: str) -> dict[str, int | None]:
        """Of the images there, by where they lie below the location."""
        above = self.world.storage(location).location
        _, survey = engine(kind).survey(location, self.world.storage)
        places = (
            (locations.join(survey.location, image.path), image.epoch) for image in survey.images
        )
        return {locations.relative(place, above): epoch for place, epoch in places}


def is_whole(adopted: PlanProgress) -> bool:
    """Whether nothing of it is taken back but what a job had been started by."""
    return all(
        step.state != "undone" or step.phase in FROM_THE_START for step in adopted.steps.values()
    )


def is_only_stopped(adopted: PlanProgress) -> bool:
    """Whether of a plan that is taken back the job was stopped that it had started, and no more."""
    return is_whole(adopted) and any(
        s.phase == "submit" and s.state == "undone" for s in adopted.steps.values()
    )


def _in_place(plan: Plan) -> bool:
    """Whether the plan changes an image where it lies."""
    return plan.target == plan.source and any(isinstance(step, LiftFence) for step in plan)
