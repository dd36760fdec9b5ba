"""Random walks: plan, apply, kill, resume, roll back and verify in any order, against what is known
for certain.

Reproducible: the same 800 steps each time, and 5,000 with `--full`. With STATESHIFT_SEED they are
others, of that seed. What walks and kills have found stands in test_found.py.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.simulation.ground import COUNTS, Ground, Mood, Run, Trouble

# Walks in all, and how many of each step are seen on a hundred of them.
WALKS = {"quick": 3, "default": 12, "full": 250}
LEAST = {
    "step": 1500,
    "plan": 60,
    "apply": 60,
    "resume": 60,
    "rollback": 60,
    "verify": 60,
    "kill": 100,
}

LENGTH = 25
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

NUMBERS = st.integers(0, 1 << 16)
KINDS = st.sampled_from(
    ("kill", "kill", "kill", "crash", "crash", "interrupt", "zombie", "batch", "rival")
)
MOODS = st.sampled_from(("commits", "commits", "commits", "idle", "dies", "ends", "sleeps"))
# Most of what a verb does it does early: a run that goes on does not do everything again.
MOMENTS = st.one_of(st.integers(1, 30), st.integers(1, 120), st.integers(1, 260))
MERGES = st.sampled_from((False, False, False, True))
EVENTS = st.sampled_from(
    ("a batch", "a zombie", "a mood", "a start", "a power cut", "fail", "lose_answers", "delay")
)  # the last three: what the cluster does with the next submission
TROUBLES = st.one_of(
    st.none(), st.builds(Trouble, KINDS, MOMENTS), st.builds(Trouble, KINDS, MOMENTS)
)


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="stateshift-walk-", dir=MEMORY))
        self.ground = Ground(self.place)

    def teardown(self) -> None:
        try:
            self.ground.finish_everything()
        finally:
            note("\n".join(self.ground.told))
            shutil.rmtree(self.place)

    @property
    def planned(self) -> list[Run]:
        return [run for run in self.ground.runs if run.state in ("planned", "new")]

    @property
    def begun(self) -> list[Run]:
        return [run for run in self.ground.runs if run.state not in ("planned", "new")]

    def at_work(self, which: int, at: int) -> Run | None:
        """A run that has begun and not ended, if need be a new one that is killed; at times one
        that has ended.
        """
        runs = [run for run in self.ground.runs if run.open]
        if not runs and which % 8:
            self.ground.apply(
                (self.planned or [self.ground.plan(which % 5 == 0)])[-1], Trouble("kill", at)
            )
            runs = [run for run in self.ground.runs if run.open]
        runs = runs or self.begun
        return runs[which % len(runs)] if runs else None

    @precondition(lambda self: len(self.planned) < 4)
    @rule(
        merges=MERGES, again=st.booleans(), verify=st.sampled_from(("entries", "digests", "none"))
    )
    def plan(self, merges: bool, again: bool, verify: str) -> None:
        """At times to a target that another run has, or had."""
        COUNTS["step"] += 1
        target = self.ground.runs[-1].target if again and self.ground.runs else None
        self.ground.plan(merges, None if target == self.ground.home else target, verify)

    @rule(which=NUMBERS, trouble=TROUBLES, seed=NUMBERS)
    def apply(self, which: int, trouble: Trouble | None, seed: int) -> None:
        COUNTS["step"] += 1
        runs = self.planned or [self.ground.plan(which % 5 == 0)]
        run = runs[which % len(runs)]
        if trouble is not None and trouble.kind == "rival" and run.target != self.ground.home:
            self.ground.plan(target=run.target if seed % 2 else None)
        self.ground.apply(run, trouble, seed)

    @rule(which=NUMBERS, at=MOMENTS, trouble=TROUBLES, seed=NUMBERS)
    def resume(self, which: int, at: int, trouble: Trouble | None, seed: int) -> None:
        COUNTS["step"] += 1
        if run := self.at_work(which, at):
            self.ground.resume(run, trouble, seed)

    @rule(
        which=NUMBERS,
        at=MOMENTS,
        trouble=TROUBLES,
        seed=NUMBERS,
        discard=st.booleans(),
        ends=st.booleans(),
    )
    def rollback(
        self, which: int, at: int, trouble: Trouble | None, seed: int, discard: bool, ends: bool
    ) -> None:
        COUNTS["step"] += 1
        self.ground.ends_batches = ends
        if run := self.at_work(which, at):
            self.ground.rollback(run, trouble, seed, discard)

    @rule(which=NUMBERS, at=MOMENTS)
    def verify(self, which: int, at: int) -> None:
        COUNTS["step"] += 1
        if run := self.at_work(which, at):
            self.ground.verify(run)

    @rule(event=EVENTS, which=NUMBERS, mood=MOODS)
    def the_world_goes_on(self, event: str, which: int, mood: Mood) -> None:
        COUNTS["step"] += 1
        match event:
            case "a batch":
                self.ground.batch(self.ground.home)
            case "a zombie":
                runs = self.ground.runs
                self.ground.batch(
                    runs[which % len(runs)].source if runs else self.ground.home, alive=False
                )
            case "a mood":
                self.ground.mood = mood
            case "a start":
                self.ground.start_by_hand()
            case "a power cut":
                self.ground.crash(which)
            case _:
                self.ground.misbehave(event)

    @invariant()
    def everything_is_as_it_must_be(self) -> None:
        self.ground.look()


@pytest.mark.timeout(3600)  # the walks are many; how long they take is the machine's affair
def test_nothing_is_lost_or_doubled_on_random_walks(how: str) -> None:
    COUNTS.clear()
    count = WALKS[how]
    seeded = "STATESHIFT_SEED" in os.environ
    walks = settings(
        max_examples=count,
        stateful_step_count=LENGTH,
        deadline=None,
        derandomize=not seeded,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(Walk, settings=walks)  # type: ignore[no-untyped-call]
    print("\n".join(f"{count:7,} {what}" for what, count in COUNTS.most_common()))
    if how == "quick":
        return  # in so few walks not every step is seen
    wanted = {what: least * count // 100 for what, least in LEAST.items()}
    assert not {what: COUNTS[what] for what, least in wanted.items() if COUNTS[what] < least}
