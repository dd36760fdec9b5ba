"""Bins of four operators, one of each form, move between two real applications while both run: by
every strategy, with a pause between steps, by a program, by the command, by a plan file, and
prepared. One pair of applications for all of it; what came of it is in the group's folder.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest

from stateshift import live
from stateshift.dataflow.move_steps import BinMove
from stateshift.live.bins.commits import Commit, TakenBin
from stateshift.live.bins.files import Proposal, wide_enough
from stateshift.live.bins.migration import MoveProgress
from stateshift.live.bins.move_request import Manner, check, steps_of
from stateshift.live.bins.operators import BinOperator
from stateshift.live.bins.times import cut
from stateshift.live.protocol.configuration import Configuration, Time, Update, apply_updates
from stateshift.live.protocol.plan_file import Changes, WholeMap
from tests.acceptance.living_bins import FIRST, Applications, running
from tests.acceptance.support import JOBS, stateshift
from tests.live.bins.forms import FORMS
from tests.live.bins.workers import BINS, TIES, alone, hash_of
from tests.models.bin_messages import worker_of
from tests.models.plan_writer import encode_plan_file

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NAMES = ("west", "east")
WEST, EAST = range(2)
KEYS = 60
RATE = 100  # rows a second
GAP_SECONDS = 2.0
PATIENT = Manner(timeout_seconds=120.0, wait_seconds=240.0)
MARGIN_SECONDS = 6.0  # nobody has read so far ahead


@dataclass
class Migration:
    """What was asked for under a name, and the proposals that were applied for it."""

    moves: tuple[BinMove, ...]
    proposals: tuple[tuple[Proposal, float], ...]  # with when they were decided

    @property
    def steps(self) -> list[list[Update]]:
        """The updates of each time."""
        by_time: dict[Time, list[Update]] = {}
        for proposal, _ in self.proposals:
            for update in proposal.updates:
                by_time.setdefault(update.time, []).append(update)
        return [by_time[each] for each in sorted(by_time)]


@dataclass
class Forms(Applications):
    """Two applications with four operators, and what has moved between them."""

    rate: int = RATE
    rows: int = 1 << 40
    keys: int = KEYS
    migrations: dict[str, Migration] = field(default_factory=dict)
    followed: dict[tuple[str, str], list[Commit]] = field(default_factory=lambda: defaultdict(list))
    at: list[int] = field(default_factory=lambda: [WEST] * BINS)
    later: Time = 0  # before which nothing was to move in one of them

    script: ClassVar[Path] = JOBS / "live_forms.py"
    operators: ClassVar[tuple[BinOperator, ...]] = tuple(FORMS.values())

    def moves(self, bins: Sequence[int], target: int) -> tuple[BinMove, ...]:
        return tuple(BinMove(bin, self.at[bin], target) for bin in bins)

    def by_program(self, name: str, moves: tuple[BinMove, ...], manner: Manner) -> None:
        """Let a program in another process than the jobs move bins."""
        controller = live.Controller(self.location)
        first = controller.status().moves.decided
        targets = {move.target for move in moves}
        moved: MoveProgress
        if len(targets) == 1:
            to = NAMES[targets.pop()]
            moved = controller.move(
                [move.bin for move in moves],
                to=to,
                at=manner.at,
                strategy=manner.strategy,
                manner=manner,
            )
        else:
            steps = steps_of(moves, manner)
            check(controller.status(), steps, manner)
            moved = controller.carry(steps, manner)
        assert moved.state == "finished", moved
        self._note(name, moves, first)

    def by_command(self, name: str, moves: tuple[BinMove, ...], *options: str) -> None:
        """Let the command move bins."""
        first = live.Controller(self.location).status().moves.decided
        words = ("--timeout", "120", "--wait", "240", *options)
        stateshift("live", "move", self.location, *words, cwd=self.folder)
        self._note(name, moves, first)

    def _note(self, name: str, moves: tuple[BinMove, ...], first: int) -> None:
        for move in moves:
            self.at[move.bin] = move.target
        found = []
        for number in range(first, live.Controller(self.location).status().moves.decided):
            proposal, decided = self.files.proposal(number), self.files.decided(number)
            assert proposal is not None and decided is not None
            if decided.outcome == "applied" and proposal.updates:
                found.append((proposal, decided.at))
        self.migrations[name] = Migration(moves, tuple(found))

    def end_log(self) -> None:
        """Let the log end some seconds ahead, and wait until all of it is read."""
        began = float((self.folder / "begin").read_text())
        self.rows = FIRST + int((time.time() + MARGIN_SECONDS - began) * self.rate)
        end = self.folder / "end.new"
        end.write_text(str(self.rows))
        end.rename(self.folder / "end")
        self.until_the_end()

    # ---------------------------------------------------------------- what came of it

    def parts(self) -> list[list[Commit]]:
        """The commits of each worker and operator."""
        return list(self.followed.values())

    def follow(self, ends: threading.Event) -> None:
        """Read all commits while they are there: old ones are forgotten."""
        while True:
            is_over = ends.wait(1.0)
            for operator in self.operators:
                for name in self.names:
                    known = self.followed[operator.name, name]
                    following = known[-1].number + 1 if known else 0
                    known += self.commits(operator.name, name, following)
            if is_over:
                return

    def configuration(self) -> Configuration:
        """Where the bins were at all times."""
        begun = self.files.begun()
        assert begun is not None
        known = self.files.configuration(begun, len(NAMES))
        for migration in self.migrations.values():
            for proposal, _ in migration.proposals:
                known = apply_updates(wide_enough(known, proposal.updates), proposal.updates)
        return known


def move_all(forms: Forms) -> None:
    """Move bins in every way."""
    moves = forms.moves
    forms.by_program("all-at-once", moves([0, 1, 2, 3], EAST), PATIENT)
    batched = replace(PATIENT, strategy="batched(2)", gap_seconds=GAP_SECONDS)
    forms.by_program("batched", moves([4, 5, 6, 7], EAST), batched)
    forms.by_program("fluid", moves([0, 1, 2], WEST), replace(PATIENT, strategy="fluid"))
    crossing = (*moves([0, 1], EAST), *moves([3, 4, 5], WEST))
    forms.by_program("optimised", crossing, replace(PATIENT, strategy="optimised"))
    forms.by_program("warm", moves([6, 7], WEST), replace(PATIENT, strategy="warm"))
    later = live.Controller(forms.location).status().ahead(8.0)
    forms.by_program("later", moves([6], EAST), replace(PATIENT, at=later))
    fluid = ("--to", "west", "--bins", "0,1", "--strategy", "fluid", "--lead", "4")
    forms.by_command("prepared", moves([0, 1], WEST), *fluid, "--prepared", "--gap", "1")
    lines = (
        WholeMap(0, tuple(forms.at)),
        Changes(0, ((0, EAST), (6, WEST))),
        Changes(0, ((1, EAST),)),
    )
    (forms.folder / "plan.txt").write_text(encode_plan_file(lines))
    planned = (*moves([0], EAST), *moves([6], WEST), *moves([1], EAST))
    forms.by_command("plan", planned, "--plan", "plan.txt")
    forms.later = later


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forms]:
    with running(Forms(tmp_path_factory.mktemp("forms"), NAMES)) as forms:
        forms.begin()
        ends = threading.Event()
        following = threading.Thread(target=forms.follow, args=(ends,))
        following.start()
        try:
            move_all(forms)
            forms.end_log()
        finally:
            ends.set()
            following.join()
    yield forms


@pytest.mark.row("M-1", "M-10")
@pytest.mark.parametrize("form", FORMS)
def test_an_operator_of_every_form_puts_out_the_rows_of_one_worker_alone(
    forms: Forms, form: str
) -> None:
    operator = FORMS[form]
    put_out = list(forms.put_out(operator.name))
    assert sorted(row for _, row in put_out) == alone(operator, forms.rows, KEYS)
    where = forms.configuration()
    for worker, (number, key, *_) in put_out:
        if number >= 0:
            assert worker == NAMES[worker_of(where, number // TIES, hash_of(key))]


@pytest.mark.row("M-3")
def test_each_strategy_has_its_steps(forms: Forms) -> None:
    sizes = {name: [len(step) for step in each.steps] for name, each in forms.migrations.items()}
    assert sizes["all-at-once"] == [4]
    assert sizes["batched"] == [2, 2]
    assert sizes["fluid"] == [1, 1, 1]
    assert sizes["warm"] == [2]
    assert sizes["plan"] == [2, 1]
    for migration in forms.migrations.values():
        moved = [(update.bin, update.worker) for step in migration.steps for update in step]
        assert sorted(moved) == sorted((move.bin, move.target) for move in migration.moves)


@pytest.mark.row("M-3")
def test_optimised_has_as_few_steps_as_no_worker_gives_or_takes_twice_in(forms: Forms) -> None:
    migration = forms.migrations["optimised"]
    sources = {move.bin: move.source for move in migration.moves}
    assert len(migration.steps) == 3  # east gives three bins
    for step in migration.steps:
        assert max(Counter(sources[update.bin] for update in step).values()) == 1
        assert max(Counter(update.worker for update in step).values()) == 1


@pytest.mark.row("M-5")
def test_a_step_is_proposed_once_the_one_before_is_complete(forms: Forms) -> None:
    pairs = 0
    for name in ("batched", "fluid", "optimised", "plan"):
        for (earlier, _), (later, _) in pairwise(forms.migrations[name].proposals):
            for commits in forms.parts():
                assert _complete_at(commits, earlier.earliest) <= later.at, (name, later)
            pairs += 1
    assert pairs == 1 + 2 + 2 + 1


@pytest.mark.row("M-5")
def test_no_more_is_on_its_way_than_the_bins_of_a_step(forms: Forms) -> None:
    for name in ("batched", "fluid", "optimised", "plan"):
        migration = forms.migrations[name]
        largest = max(map(len, migration.steps))
        times = {step[0].time for step in migration.steps}
        for commits in forms.parts():
            for commit in commits:
                awaited = [held.since for held in commit.held if held.since in times]
                assert len(set(awaited)) <= 1 and len(awaited) <= largest


@pytest.mark.row("M-4")
def test_between_two_steps_is_a_pause_in_which_what_waited_is_worked_off(forms: Forms) -> None:
    (earlier, _), (later, _) = forms.migrations["batched"].proposals
    complete = max(_complete_at(commits, earlier.earliest) for commits in forms.parts())
    reached = max(_reached(commits, complete) for commits in forms.parts())
    # how fast time goes is an estimate by the last commits, so half of the pause is certain
    assert later.earliest - reached >= GAP_SECONDS * RATE / TIES / 2
    for commits in forms.parts():
        last = [commit for commit in commits if commit.at <= later.at][-1]
        assert not any(held.since is not None for held in last.held), "something still waits"


@pytest.mark.row("M-11")
def test_a_program_moves_bins_at_a_time_to_come(forms: Forms) -> None:
    ((proposal, _),) = forms.migrations["later"].proposals
    assert proposal.earliest >= forms.later


@pytest.mark.row("M-11")
def test_prepared_steps_are_decided_together_before_anybody_is_at_the_first(forms: Forms) -> None:
    ((proposal, decided),) = forms.migrations["prepared"].proposals
    assert [update.bin for update in proposal.updates] == [0, 1]
    first, second = (update.time for update in proposal.updates)
    assert first < second
    for commits in forms.parts():
        assert _reached(commits, decided) < first


@pytest.mark.row("M-7")
def test_what_is_to_be_seen_again_moves_along(forms: Forms) -> None:
    for operator in (FORMS["fold"], FORMS["unary"], FORMS["binary"]):
        taken = [
            taken
            for name in NAMES
            for taken in _taken(forms.followed[operator.name, name])
            if taken.kept.due is not None
        ]
        assert taken, operator.name


def _taken(commits: Sequence[Commit]) -> Iterator[TakenBin]:
    for commit in commits:
        yield from commit.taken


def _complete_at(commits: Sequence[Commit], moved: Time) -> float:
    """Return when a worker had passed a time, and awaited nothing of it."""
    for commit in commits:
        awaits = any(held.since is not None and held.since <= moved for held in commit.held)
        if commit.frontier is not None and commit.frontier >= cut(moved + 1) and not awaits:
            return commit.at
    raise AssertionError(f"no commit is past {moved}")


def _reached(commits: Sequence[Commit], until: float) -> Time:
    """Return how far a worker had come at a moment."""
    frontiers = [commit.frontier for commit in commits if commit.at <= until and commit.frontier]
    return frontiers[-1][0]
