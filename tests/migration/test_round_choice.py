"""What is done next with jobs that are followed while they run, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift.migration.round_choice import (
    Announce,
    Choice,
    Copy,
    Decline,
    Look,
    Prepare,
    Prove,
    Publish,
    Refuse,
    Rounds,
    Stop,
    TellReady,
    Wait,
    decide,
    epochs_of,
)
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import JobSpec
from stateshift.specification.grammars import MANUAL, NEVER, READY
from stateshift.specification.model import StandbySpec
from stateshift.step import BringFiles
from stateshift.survey import Facts, FileInfo, Left, Survey

NOW = 1_000.0  # 00:16:40 UTC
FEW, MANY = 1.0, 9.0  # seconds that are left, where less than five may be


def look(
    cutover: str = READY,
    seconds: float = MANY,
    round: int = 1,
    runs: bool = True,
    files: int = 1,
    earlier: tuple[float, ...] = (),
    **job: object,
) -> Look:
    spec = JobSpec("orders", "/old", "/new", mode="warm", cutover=cutover, **job)  # type: ignore[arg-type]
    items = tuple(FileInfo(str(number), 10, 0.0) for number in range(files))
    steps = (BringFiles("copy/0", "/old", "/new", items, (), (), False, False, ()),)
    phases = phases_of(Phase("copy", steps)) if files else ()
    plan = Plan("orders", "spark", "warm", "/old", "/new", 7, phases, (), "facts")
    source = Survey("/old", "spark", "checkpoint", ())
    rounds = range(round - len(earlier), round + 1)
    lefts = [
        Left(number, 7, files, 10 * files, left)
        for number, left in zip(rounds, (*earlier, seconds), strict=True)
    ]
    return Look(spec, plan, NOW, runs, Facts(source, source), tuple(lefts))


def rounds_of(*looks: Look, **known: object) -> Rounds:
    return replace(Rounds("spark", looks, copied_at=NOW - 1), **known)  # type: ignore[arg-type]


STANDBY = look(NEVER)
READY_STANDBY = look(NEVER, FEW)
MINUTE = look(NEVER, FEW, standby=StandbySpec(rpo=60.0))
FOUR_SECONDS = look(NEVER, FEW, standby=StandbySpec(rpo=4.0))
HAS_IMAGE = {"orders": epochs_of(STANDBY.facts)}

CASES: tuple[tuple[str, Rounds, Choice], ...] = (
    ("much is left", rounds_of(look()), Copy((look(),))),
    (
        "before any round",
        rounds_of(look(seconds=FEW, round=0)),
        Copy((look(seconds=FEW, round=0),)),
    ),
    ("little is left", rounds_of(look(seconds=FEW)), Prepare()),
    ("little is left of one", rounds_of(look(seconds=FEW), look()), Copy((look(),))),
    ("prepared", rounds_of(look(seconds=FEW), prepared=True), Stop()),
    ("rounds are made", rounds_of(look(rounds=1, until=None)), Prepare()),
    ("rounds are to come", rounds_of(look(rounds=2, until=None)), Copy((look(rounds=2),))),
    (
        "a person is awaited",
        rounds_of(look(MANUAL, FEW)),
        TellReady(
            ("orders",),
            "about 1.0 s are left to copy; it waits for `stateshift cutover`",
        ),
    ),
    (
        "a person was told",
        rounds_of(look(MANUAL, FEW), told_ready=frozenset({"orders"})),
        Wait("orders", "for `stateshift cutover`"),
    ),
    (
        "a person was told, and a minute has passed",
        rounds_of(look(MANUAL, FEW), told_ready=frozenset({"orders"}), copied_at=NOW - 61),
        Copy((look(MANUAL, FEW),)),
    ),
    (
        "its hours are awaited",
        rounds_of(look("22:00-04:30 UTC", FEW), told_ready=frozenset({"orders"})),
        Prepare(),
    ),
    (
        "outside of its hours",
        rounds_of(look("22:00-23:30 UTC", FEW), told_ready=frozenset({"orders"})),
        Wait("orders", "for 22:00-23:30 UTC"),
    ),
    ("a person asks", rounds_of(look(MANUAL, FEW), wish="ready"), Prepare()),
    ("a person asks too early", rounds_of(look(MANUAL), wish="ready"), Copy((look(MANUAL),))),
    ("a person asks for it now", rounds_of(look(MANUAL), wish="now"), Prepare()),
    (
        "nothing is there to copy",
        rounds_of(look(files=0)),
        Wait("orders", "for the job's next batch"),
    ),
    (
        "the job has ended",
        rounds_of(look(runs=False)),
        Announce(
            "orders: no cluster is named that could be asked, so it is taken for stopped, so there "
            "is no need for another round"
        ),
    ),
    ("that was said", rounds_of(look(runs=False), announced=True), Prepare()),
    (
        "that was said, and prepared",
        rounds_of(look(runs=False), announced=True, prepared=True),
        Stop(),
    ),
    (
        "a standby's job has ended",
        rounds_of(look(NEVER, runs=False)),
        Copy((look(NEVER, runs=False),)),
    ),
    (
        "a standby",
        rounds_of(READY_STANDBY, published=HAS_IMAGE),
        Wait("orders", "for the job's next batches: it is never stopped"),
    ),
    (
        "a standby, ten seconds later",
        rounds_of(READY_STANDBY, copied_at=NOW - 11),
        Copy((READY_STANDBY,)),
    ),
    (
        "a standby of which a minute may be lost, two seconds later",
        rounds_of(MINUTE, copied_at=NOW - 2, published=HAS_IMAGE),
        Wait("orders", "for the job's next batches: it is never stopped"),
    ),
    (
        "a standby of which four seconds may be lost, two seconds later",
        rounds_of(FOUR_SECONDS, copied_at=NOW - 2),
        Copy((FOUR_SECONDS,)),
    ),
    (
        "a standby whose last round found files gone, two seconds later",
        rounds_of(READY_STANDBY, copied_at=NOW - 2, missed=frozenset({"orders"})),
        Copy((READY_STANDBY,)),
    ),
    ("a standby with news", rounds_of(look(NEVER, files=0)), Publish((look(NEVER, files=0),))),
    (
        "a standby whose image is the newest",
        rounds_of(look(NEVER, files=0), published=HAS_IMAGE),
        Wait("orders", "for the job's next batches: it is never stopped"),
    ),
    (
        "a standby whose image came to nothing",
        rounds_of(look(NEVER, files=0), unpublished=frozenset({"orders"})),
        Wait("orders", "for the job's next batches: it is never stopped"),
    ),
    (
        "a standby with news beside another to copy",
        rounds_of(look(NEVER, files=0), STANDBY),
        Copy((STANDBY,), (look(NEVER, files=0),)),
    ),
    ("a standby is asked for", rounds_of(STANDBY, wish="now"), Prove(STANDBY)),
    (
        "a standby is asked for and whole",
        rounds_of(STANDBY, wish="now", proven=frozenset({"orders"})),
        Prepare(),
    ),
    ("a lost source is asked for", rounds_of(lost=("orders",), wish="now"), Decline()),
    (
        "a source is lost",
        rounds_of(lost=("orders", "clicks")),
        Wait("orders and clicks", "for its source, which cannot be followed"),
    ),
    (
        "another's source is lost",
        rounds_of(look(seconds=FEW), lost=("clicks",), told_ready=frozenset({"orders"})),
        Wait("orders", "for its source, which cannot be followed"),
    ),
)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("rounds", "choice"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_next_thing_to_do(rounds: Rounds, choice: Choice) -> None:
    chosen = decide(rounds, NOW)
    if isinstance(choice, Copy):
        assert isinstance(chosen, Copy)
        assert [it.job.cutover for it in chosen.looks] == [it.job.cutover for it in choice.looks]
        assert len(chosen.published) == len(choice.published)
    else:
        assert chosen == choice


@pytest.mark.parametrize(
    ("hopeless", "why"),
    [
        (look(round=4, earlier=(9.0, 9.0, 9.0)), "it does not get less"),
        (look(round=2, rounds=2, until="remaining < 5s"), "not less than 5s"),
    ],
)
def test_a_job_that_writes_as_fast_as_it_is_copied_is_refused(hopeless: Look, why: str) -> None:
    choice = decide(rounds_of(hopeless), NOW)
    assert isinstance(choice, Refuse)
    assert choice.error.fact.endswith(why)


@pytest.mark.parametrize(
    "followed",
    [
        look(round=3, earlier=(9.0, 9.0)),  # too few to tell
        look(round=4, earlier=(9.0, 9.0, 20.0)),  # the last one helped
        look(round=4, earlier=(9.0, 9.0, 9.0), rounds=9, until=None),  # rounds alone decide
    ],
)
def test_a_job_of_which_less_is_left_each_time_is_followed(followed: Look) -> None:
    assert isinstance(decide(rounds_of(followed), NOW), Copy)
