"""What becomes of the other jobs when one fails, as a table; and the one hint of it."""

from __future__ import annotations

from itertools import product

import pytest

from stateshift.errors import ClusterError, Interrupted
from stateshift.migration.outcomes import (
    Aftermath,
    CommittedSince,
    Failure,
    Outcome,
    Reached,
    Reason,
    Restart,
    RunFate,
    WaveFate,
    failure_of,
    hint_after,
    outcome,
)
from stateshift.specification.model import OnFailure

NOBODY, OTHERS, WAVE = CommittedSince.NOBODY, CommittedSince.OTHERS, CommittedSince.WAVE
LEAVE, BACK = WaveFate.LEAVE, WaveFate.TAKE_BACK
STOP, GO_ON, ALL_BACK = RunFate.STOP, RunFate.GO_ON, RunFate.TAKE_BACK

FAILED: dict[tuple[OnFailure, CommittedSince], tuple[WaveFate, RunFate]] = {
    ("stop", NOBODY): (LEAVE, STOP),
    ("stop", OTHERS): (LEAVE, STOP),
    ("stop", WAVE): (LEAVE, STOP),
    ("restart", NOBODY): (BACK, STOP),
    ("restart", OTHERS): (BACK, STOP),
    ("restart", WAVE): (LEAVE, STOP),
    ("finish", NOBODY): (BACK, GO_ON),
    ("finish", OTHERS): (BACK, GO_ON),
    ("finish", WAVE): (LEAVE, GO_ON),
    ("rollback", NOBODY): (BACK, ALL_BACK),
    ("rollback", OTHERS): (BACK, STOP),
    ("rollback", WAVE): (LEAVE, STOP),
    ("discard", NOBODY): (BACK, ALL_BACK),
    ("discard", OTHERS): (BACK, STOP),
    ("discard", WAVE): (LEAVE, STOP),
}


@pytest.mark.parametrize(("on_failure", "since"), FAILED)
def test_a_failure_leads_to_what_the_spec_says(
    on_failure: OnFailure, since: CommittedSince
) -> None:
    assert outcome(on_failure, Failure.FAILED, since) == Outcome(*FAILED[on_failure, since])


@pytest.mark.parametrize(("on_failure", "since"), FAILED)
def test_a_run_that_was_interrupted_is_left_as_it_is(
    on_failure: OnFailure, since: CommittedSince
) -> None:
    assert outcome(on_failure, Failure.INTERRUPTED, since) == Outcome(LEAVE, STOP)


def test_the_table_is_whole_and_never_throws_a_commit_away() -> None:
    choices: tuple[OnFailure, ...] = ("restart", "stop", "finish", "rollback", "discard")
    assert set(FAILED) == set(product(choices, CommittedSince))
    for on_failure, failure in product(choices, Failure):
        assert outcome(on_failure, failure, WAVE).wave is LEAVE
        assert outcome(on_failure, failure, WAVE).run is not ALL_BACK
        assert outcome(on_failure, failure, OTHERS).run is not ALL_BACK


def test_only_an_interrupt_is_one() -> None:
    assert failure_of(Interrupted("asked to stop")) is Failure.INTERRUPTED
    assert failure_of(ClusterError("no answer")) is Failure.FAILED


SINCE = Reason("a has committed", "to throw it away: --discard-progress")
HINTS = {
    Aftermath(("a",)): "its own",
    Aftermath(("a", "b"), Reached.DONE): "a and b was taken back; mend this (its own), then "
    "`stateshift resume WORKDIR` tries it again",
    Aftermath(
        ("a",), Reached.DONE, restarted=True
    ): "a was taken back and was started again where it "
    "was; mend this (its own), then `stateshift resume WORKDIR` tries it again",
    Aftermath(("a",), Reached.FORBIDDEN, SINCE): "a was not taken back: a has committed; "
    "`stateshift resume WORKDIR` tries it again",
    Aftermath(("a",), Reached.COMMITTED, SINCE): "a was not taken back: a has committed; "
    "to throw it away: --discard-progress",
    Aftermath(("a",), Reached.FAILED, SINCE): "`stateshift resume WORKDIR` tries again to take a "
    "back and to move it; `stateshift rollback WORKDIR` takes the run back for good. Taking a back "
    "failed, too: a has committed (to throw it away: --discard-progress)",
    Aftermath(("b",), Reached.DONE, None, Reached.FORBIDDEN, SINCE): "b was taken back; mend "
    "this (its own), then `stateshift resume WORKDIR` tries it again; the rest was not taken back: "
    "a has committed",
    Aftermath(("a",), run_reached=Reached.DONE): "the run was taken back, as `on_failure` says: "
    "mend this (its own), then apply the spec again",
    Aftermath(("a",), run_reached=Reached.FAILED, run_reason=SINCE): "taking the run back failed, "
    "too: a has committed (to throw it away: --discard-progress); `stateshift resume WORKDIR` goes on "
    "with that",
    Aftermath(("b",), run_reached=Reached.COMMITTED, run_reason=SINCE): "the run was not taken "
    "back: a has committed; to throw it away: --discard-progress",
    Aftermath(
        ("b",), run_reached=Reached.COMMITTED, run_reason=SINCE, restart=Restart(("a", "c"))
    ): "the run was not taken back: a has committed; to throw it away: --discard-progress; "
    "started there again: a and c",
    Aftermath(
        ("b",), run_reached=Reached.COMMITTED, run_reason=SINCE, restart=Restart(("a",), "no room")
    ): "the run was not taken back: a has committed; to throw it away: --discard-progress; "
    "to start a there again failed, too: no room",
}


@pytest.mark.parametrize("after", HINTS)
def test_a_hint_says_what_became_of_the_jobs_and_the_command_that_leads_on(
    after: Aftermath,
) -> None:
    assert hint_after("its own", after) == HINTS[after]


def test_a_hint_that_names_the_command_is_not_said_twice() -> None:
    own = "try again in a moment: stateshift resume WORKDIR"
    hint = hint_after(own, Aftermath(("a",), Reached.DONE))
    assert hint == "a was taken back; mend this, then `stateshift resume WORKDIR` tries it again"
    assert hint_after(None, Aftermath(("a",), Reached.DONE)) == hint
