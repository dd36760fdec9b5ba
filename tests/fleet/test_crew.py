"""The crew with executors in memory: the same journal and the same bytes as without, whatever is
lost on the way.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from stateshift import executor
from stateshift.errors import ClusterError, Interrupted, MissingFile, VerifyError
from stateshift.fleet import Crew
from stateshift.fleet.carrier import ATTEMPTS_MAX
from stateshift.fleet.cutting import WORTHWHILE_BYTES
from stateshift.fleet.orders import Broke
from stateshift.fleet.task import listings_of
from stateshift.formats.blocks import RowBlock, block_of
from stateshift.journal import Journal, RunFailed, RunResumed
from stateshift.plan import Plan
from stateshift.step import (
    BringFiles,
    CompareImages,
    CopyFiles,
    Evidence,
    TransformShard,
    WriteFile,
)
from stateshift.step.contents import LISTED_FILES
from stateshift.step.evidence import FilesBrought, OtherEvidence
from stateshift.storage.temporaries import apart
from stateshift.storage.wrappers import Pace
from stateshift.survey import FileInfo, ShardFiles
from stateshift.testing.memory_storage import ProcessGone
from stateshift.world import ReadFrom, Unwatched, World
from tests.support.fleet import MemoryCarrier
from tests.support.ground import SOURCE, TARGET, Ground
from tests.support.steps import KeptLines, Told, execute, journal_of, phase, plan_of

COUNT = 12


class Hearing(Unwatched):
    """A meter that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.files = self.bytes = 0
        self.lock = threading.Lock()

    def say(self, line: str) -> None:
        self.lines.append(line)

    def done(self, files: int, bytes: int) -> None:
        with self.lock:
            self.files, self.bytes = self.files + files, self.bytes + bytes


def ground() -> Ground:
    made = Ground()
    made.give(SOURCE, **{f"file_{n}": b"%d" % n * 50 for n in range(COUNT)})
    return made


def plan() -> Plan:
    size = {n: len(b"%d" % n * 50) for n in range(COUNT)}
    infos = [FileInfo(f"file/{n}", size[n]) for n in range(COUNT)]
    half = COUNT // 2
    return plan_of(
        phase("copy", *(CopyFiles(f"copy/{n}", SOURCE, TARGET, (infos[n],)) for n in range(half))),
        phase(
            "transform",
            *(
                TransformShard(
                    f"transform/{n}", "double", {}, SOURCE, (infos[n],), TARGET, (f"made/{n}",)
                )
                for n in range(half, COUNT)
            ),
        ),
        phase(
            "compare",
            *(
                CompareImages(f"compare/{n}", "spark", SOURCE, TARGET, (), None, (f"file/{n}",), {})
                for n in range(half)
            ),
        ),
        phase("publish", WriteFile.of("publish/0", TARGET, "commits/1", b"v1"), ordered=True),
    )


def worlds_of(made: Ground) -> Callable[[Mapping[str, Any]], World]:
    return lambda order: replace(made.world, parallel=1)


def contents(made: Ground) -> dict[str, bytes]:
    return {file.path: made.target.read(file.path) for file in made.target.list()}


def told_of(journal: Journal) -> dict[str, Any]:
    """What the journal says of each step, but for times."""
    return {
        name: (
            step.state,
            step.phase,
            step.files,
            step.bytes,
            step.evidence,
        )
        for name, step in journal.progress.plans[0].steps.items()
    }


def test_a_fleet_takes_no_step_that_runs_a_jobs_jars() -> None:
    """They are on this machine, as is the Flink in whose JVM they run."""
    step = plan().phase("transform")
    assert step is not None
    with_jars = [replace(own, options={"classes": {"/job.jar": "0"}}) for own in step.steps]
    crew = Crew(MemoryCarrier(worlds_of(ground())))
    assert all(map(crew.takes, step.steps))
    assert not any(map(crew.takes, with_jars))


def test_a_fleet_leaves_the_same_bytes_and_the_same_journal() -> None:
    here, there = ground(), ground()
    alone, together = journal_of(plan()), journal_of(plan())
    execute(0, plan(), here.world, alone)
    carrier = MemoryCarrier(worlds_of(there))
    execute(0, plan(), there.world, together, Crew(carrier))
    assert contents(there) == contents(here)
    assert told_of(together) == told_of(alone)
    assert sorted(carrier.carried) == sorted(
        step.name for step in plan() if step.kind != "WriteFile"
    )


def test_executors_are_told_which_files_need_not_be_looked_for() -> None:
    """As the one listing of the target says, in which nothing was for the first step, and one
    file for the second.
    """
    made, count = Ground(), 2 * LISTED_FILES
    made.give(SOURCE, **{f"f{n}": b"%d" % n for n in range(count)})
    made.give(TARGET, f20=b"20")
    infos = [FileInfo(f"f{n}", len(str(n))) for n in range(count)]
    halves = infos[:LISTED_FILES], infos[LISTED_FILES:]
    steps = (CopyFiles(f"copy/{n}", SOURCE, TARGET, tuple(half)) for n, half in enumerate(halves))
    made_plan = plan_of(phase("copy", *steps, CopyFiles("copy/2", SOURCE, TARGET, (infos[0],))))
    carrier = MemoryCarrier(lambda order: replace(made.world, found=listings_of(order)))
    execute(0, made_plan, made.world, journal_of(made_plan), Crew(carrier))
    assert contents(made) == {f"f{n}": b"%d" % n for n in range(count)}
    orders = {order["step"]["name"]: order["there"] for order in map(json.loads, carrier.orders)}
    assert orders == {"copy/0": [], "copy/1": ["f20"], "copy/2": None}


@pytest.mark.parametrize("lost", [None, "before", "after"])
def test_a_round_is_brought_by_executors_and_counts_as_what_was_brought_from_here(
    lost: str | None,
) -> None:
    here, there = ground(), ground()

    def round_of(made: Ground) -> Plan:
        found = [file for n in range(COUNT) if (file := made.source.stat(f"file/{n}")) is not None]
        return plan_of(
            phase(
                "copy",
                *(
                    BringFiles(f"copy/{n}", SOURCE, TARGET, (file,), names=(f"new/{n}",))
                    for n, file in enumerate(found)
                ),
            )
        )

    alone, together = journal_of(round_of(here)), journal_of(round_of(there))
    execute(0, round_of(here), here.world, alone)
    carrier = MemoryCarrier(worlds_of(there), lambda label, attempt: lost if attempt == 0 else None)
    execute(0, round_of(there), there.world, together, Crew(carrier))
    assert contents(there) == contents(here)
    assert {path for path in contents(there) if path.startswith("new/")} == {
        f"new/{n}" for n in range(COUNT)
    }
    for name, step in together.progress.plans[0].steps.items():
        assert isinstance(step.evidence, FilesBrought)
        (path,) = (file.path for file in step.evidence.files)
        info = there.target.stat(path)
        assert info is not None and step.evidence.stamps == {path: info.stamp}, name


def words(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[tuple[str, RowBlock]]:
    """A toy engine: each word of a file is a key, its length the value."""
    for path in shard.files:
        found = b"".join(read(path)).split()
        yield shard.store, block_of([(word, b"%d" % len(word)) for word in found])


def shard_of(number: int, *paths: str) -> ShardFiles:
    return ShardFiles("0", "default", number, paths)


def dealt_anew(**files: bytes) -> tuple[Ground, CompareImages]:
    """Two shards that became three, and the step that compares them."""
    made = Ground()
    made.give(SOURCE, a=b"eins zwei drei", b=b"vier")
    made.give(TARGET, **{"x": b"zwei", "y": b"vier eins", "z": b"drei", **files})
    before = (shard_of(0, "a"), shard_of(1, "b"))
    after = (shard_of(0, "x"), shard_of(1, "y"), shard_of(2, "z"))
    return made, CompareImages(
        "compare/0", "spark", SOURCE, TARGET, before, after, (), {}, WORTHWHILE_BYTES
    )


def test_a_large_comparison_is_spread_over_its_shards_and_comes_to_the_same() -> None:
    made, step = dealt_anew()
    world = replace(made.world, entries={"spark": words})
    carrier = MemoryCarrier(
        lambda order: world, lose=lambda label, attempt: "after" if attempt == 0 else None
    )
    evidence = Crew(carrier).run(step, world)
    assert evidence == step.run(world)
    assert evidence.operators["0"].entries == 4
    asked = [
        f"compare/0/{side}/{n}"
        for side, count in (("source", 2), ("target", 3))
        for n in range(count)
    ]
    assert sorted(carrier.carried) == sorted(asked * 2), "each was lost once, and repeated"
    small = replace(step, size=WORTHWHILE_BYTES - 1)
    carrier = MemoryCarrier(lambda order: world)
    assert Crew(carrier).run(small, world) == evidence
    assert carrier.carried == ["compare/0"]


def test_a_comparison_of_many_bytes_and_no_shards_is_one_order() -> None:
    made = ground()
    execute(0, plan(), made.world, journal_of(plan()))
    paths = tuple(f"file/{n}" for n in range(3))
    step = CompareImages(
        "compare/0", "spark", SOURCE, TARGET, (), None, paths, {}, WORTHWHILE_BYTES
    )
    carrier = MemoryCarrier(worlds_of(made))
    assert Crew(carrier).run(step, made.world) == step.run(made.world)
    assert carrier.carried == ["compare/0"]


@pytest.mark.parametrize("files", [{"z": b"drei drei"}, {"z": b"dreI"}, {"z": b""}])
def test_a_large_comparison_finds_what_differs(files: dict[str, bytes]) -> None:
    made, step = dealt_anew(**files)
    world = replace(made.world, entries={"spark": words})
    with pytest.raises(VerifyError, match="does not hold the same entries"):
        Crew(MemoryCarrier(lambda order: world)).run(step, world)


def test_progress_is_told_once_for_each_step() -> None:
    made, meter = ground(), Hearing()
    execute(
        0,
        plan(),
        replace(made.world, meter=meter),
        journal_of(plan()),
        Crew(MemoryCarrier(worlds_of(made)), meter),
    )
    assert (meter.files, meter.bytes) == (plan().files, plan().bytes)


def test_an_ordered_phase_stays_here() -> None:
    made, carrier = ground(), MemoryCarrier(lambda order: ground().world)
    copies = plan().phases[0].steps
    ordered = plan_of(phase("copy", *copies, ordered=True))
    execute(0, ordered, made.world, journal_of(ordered), Crew(carrier))
    assert carrier.carried == []


def test_steps_of_other_kinds_stay_here_also_in_an_unordered_phase() -> None:
    made, said = ground(), list[str]()
    carrier = MemoryCarrier(worlds_of(made))
    mixed = plan_of(phase("copy", Told("copy/told", said), *plan().phases[0].steps))
    execute(0, mixed, made.world, journal_of(mixed), Crew(carrier))
    assert said == ["run copy/told", "ran copy/told"]
    assert "copy/told" not in carrier.carried


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_executor_costs_its_step_and_nothing_else(when: str) -> None:
    made, meter, lines = ground(), Hearing(), KeptLines()
    carrier = MemoryCarrier(
        worlds_of(made),
        lambda label, attempt: when if label == "transform/8" and attempt == 0 else None,
    )
    journal = journal_of(plan(), lines)
    execute(0, plan(), made.world, journal, Crew(carrier, meter))
    reference = ground()
    execute(0, plan(), reference.world, journal_of(plan()))
    assert contents(made) == contents(reference)
    assert carrier.attempts["transform/8"] == 1
    assert sum(carrier.attempts.values()) == 1, "no other step was repeated"
    assert [line for line in meter.lines if "transform/8 was lost" in line]
    steps = journal.progress.plans[0].steps
    assert [name for name, step in steps.items() if step.evidence and step.evidence.repeated] == [
        "transform/8"
    ]
    assert lines.content.count(b'"step-started"') == len(list(plan())), (
        "it began once, as far as the journal goes"
    )


def test_a_step_that_is_lost_every_time_fails_the_run_and_keeps_what_the_others_did() -> None:
    made = ground()
    carrier = MemoryCarrier(
        worlds_of(made), lambda label, attempt: "before" if label == "copy/3" else None
    )
    journal = journal_of(plan())
    with pytest.raises(
        ClusterError, match=rf"copy/3 was lost with its executor {ATTEMPTS_MAX} times"
    ) as caught:
        execute(0, plan(), made.world, journal, Crew(carrier))
    assert "stateshift resume WORKDIR" in (caught.value.hint or "")
    assert carrier.attempts["copy/3"] == ATTEMPTS_MAX - 1
    done = {
        name for name, step in journal.progress.plans[0].steps.items() if step.state == "finished"
    }
    assert done
    assert done < {f"copy/{n}" for n in range(6)}


def test_a_run_that_failed_with_a_fleet_goes_on_without_and_ends_the_same() -> None:
    made, lines = ground(), KeptLines()
    carrier = MemoryCarrier(
        worlds_of(made), lambda label, attempt: "after" if label.startswith("transform") else None
    )
    with pytest.raises(ClusterError):
        execute(0, plan(), made.world, journal_of(plan(), lines), Crew(carrier))
    journal = Journal(KeptLines(lines.content))
    journal.append(RunFailed(5.0, "ClusterError", "failed", None, 7))
    journal.append(RunResumed(6.0))
    execute(0, plan(), made.world, journal)
    reference = ground()
    execute(0, plan(), reference.world, journal_of(plan()))
    assert contents(made) == contents(reference)


def test_an_error_on_an_executor_is_that_error_here_with_step_and_host() -> None:
    made = ground()
    made.source.remove("file/2")
    with pytest.raises(MissingFile, match="file/2 was there when the plan was made") as caught:
        execute(0, plan(), made.world, journal_of(plan()), Crew(MemoryCarrier(worlds_of(made))))
    assert caught.value.where["step"] == "copy/2"
    assert caught.value.where["executor"]


def test_a_bug_on_an_executor_is_a_bug_here() -> None:
    made = ground()

    def world_of(order: Mapping[str, Any]) -> World:
        return replace(made.world, transforms={})

    with pytest.raises(Broke, match="KeyError: 'double'") as caught:
        execute(0, plan(), made.world, journal_of(plan()), Crew(MemoryCarrier(world_of)))
    assert "in run" in "".join(caught.value.__notes__)


def test_who_asks_to_stop_is_not_kept_waiting_for_repeats() -> None:
    made = ground()

    def lose(label: str, attempt: int) -> str | None:
        made.stop.set()  # Ctrl-C cancels what is at work, and that looks as if it were lost
        return "before"

    carrier = MemoryCarrier(worlds_of(made), lose)
    with pytest.raises(Interrupted):
        execute(0, plan(), made.world, journal_of(plan()), Crew(carrier))
    assert max(carrier.attempts.values()) == 0


def test_each_step_at_work_gets_its_share_of_the_throttle() -> None:
    made = ground()
    carrier, meter = MemoryCarrier(worlds_of(made), slots_there=4), Hearing()
    world = replace(made.world, pace=Pace(made.clock, 1000.0, 8.0))
    execute(0, plan(), world, journal_of(plan()), Crew(carrier, meter))
    assert {tuple(json.loads(order)["rates"]) for order in carrier.orders} == {(250.0, 2.0)}
    assert [line for line in meter.lines if "throttle is shared out, a 4th" in line]


def test_every_attempt_of_a_step_writes_under_names_of_its_own() -> None:
    made = ground()
    carrier = MemoryCarrier(
        worlds_of(made), lambda label, attempt: "after" if attempt == 0 else None
    )
    execute(0, plan(), made.world, journal_of(plan()), Crew(carrier))
    tokens = [json.loads(order)["token"] for order in carrier.orders]
    assert len(set(tokens)) == len(tokens) == 2 * len([s for s in plan() if s.kind != "WriteFile"])


def test_what_a_lost_attempt_left_half_written_is_gone_before_the_image_is_published() -> None:
    made = ground()

    def dies() -> Iterator[bytes]:
        yield b"half of it"
        made.disk.kill()
        yield b"and no more"

    def lose(label: str, attempt: int) -> str | None:
        if (label, attempt) == ("copy/2", 0):
            with apart("the attempt that dies"), suppress(ProcessGone):
                made.target.write("file/2", dies)
            return "before"
        return None

    def publish(world: World) -> Evidence:
        assert list(made.disk.snapshot(temporaries=True)) == list(made.disk.snapshot())
        return OtherEvidence()

    watched = plan_of(
        *plan().phases[:1], phase("publish", Told("publish/0", [], publish), ordered=True)
    )
    # One at a time: another executor's writes would die with the disk's.
    carrier = MemoryCarrier(worlds_of(made), lose, slots_there=1)
    execute(0, watched, made.world, journal_of(watched), Crew(carrier))
    assert made.target.read("file/2") == b"2" * 50


def test_few_large_steps_for_many_executors_are_said_and_small_ones_are_not() -> None:
    meter, crew_of = Hearing(), lambda slots: Crew(MemoryCarrier(slots_there=slots), meter)
    large = [CopyFiles("copy/0", SOURCE, TARGET, (FileInfo("a", WORTHWHILE_BYTES),))]
    crew_of(8).begin("copy", large, Ground().world)
    assert meter.lines == [
        "fleet: copy is 1 step (64 MiB), and 8 could be at work: a file, and a shard, is one step's"
    ]
    meter.lines.clear()
    crew_of(1).begin("copy", large, Ground().world)
    crew_of(8).begin(
        "copy", [CopyFiles("copy/0", SOURCE, TARGET, (FileInfo("a", 1),))], Ground().world
    )
    assert meter.lines == []


@pytest.mark.parametrize("far", [True, False])
def test_a_disk_that_is_not_everybodys_is_noticed_at_the_first_step_that_writes_there(
    far: bool, tmp_path: Any
) -> None:
    """The executor writes to a disk of its own, under the same name."""
    here, there = ground(), ground()
    local = f"file://{tmp_path}"
    copy = CopyFiles("copy/0", SOURCE, local, (FileInfo("file/0", 50),))
    one = plan_of(phase("copy", copy))
    carrier = MemoryCarrier(lambda order: replace(there.world, storage=there.disk.open), far=far)
    if far:
        with pytest.raises(ClusterError, match=r"file/0 .* is not to be seen from here"):
            execute(
                0,
                one,
                replace(here.world, storage=_disk(here, tmp_path)),
                journal_of(one),
                Crew(carrier),
            )
    else:
        execute(
            0,
            one,
            replace(here.world, storage=_disk(here, tmp_path)),
            journal_of(one),
            Crew(carrier),
        )


def _disk(made: Ground, folder: Any) -> Callable[[str], Any]:
    from stateshift.storage.local.storage import LocalStorage

    return lambda location: (
        LocalStorage(location) if location.startswith("file:") else made.disk.open(location)
    )


def test_what_a_fleet_finds_broken_is_what_is_found_here() -> None:
    made, journal = ground(), journal_of(plan())
    execute(0, plan(), made.world, journal)
    made.target.write("file/1", lambda: iter((b"other",)))
    made.target.remove("made/7")
    progress = journal.progress.plans[0]
    alone = executor.ask(plan(), progress, made.world)
    carrier = MemoryCarrier(worlds_of(made))
    assert executor.ask(plan(), progress, made.world, fleet=Crew(carrier)) == alone
    assert {broken.step for broken in alone} == {"copy/1", "transform/7"}
    assert carrier.carried


def test_gathering_asks_every_slot_for_packages_and_places() -> None:
    made, meter = ground(), Hearing()
    carrier = MemoryCarrier(worlds_of(made), slots_there=3)
    Crew(carrier, meter).gather([SOURCE])
    assert len(carrier.orders) == 3
    assert all("numpy" in json.loads(order)["modules"] for order in carrier.orders)
    assert meter.lines == ["fleet: local[2], 3 at once (in memory)"]


def test_a_directory_that_an_executor_does_not_see_is_refused_before_anything_is_begun(
    tmp_path: Any,
) -> None:
    crew = Crew(MemoryCarrier(worlds_of(ground()), far=True))
    crew.gather([SOURCE], [f"file://{tmp_path}"])
    with pytest.raises(ClusterError, match="does not see file:///nowhere"):
        crew.gather([SOURCE], ["file:///nowhere"])


def test_a_package_that_an_executor_has_not_is_named() -> None:
    def world_of(order: Mapping[str, Any]) -> World:
        raise ModuleNotFoundError("No module named 'cramjam.x'", name="cramjam.x")

    with pytest.raises(ClusterError, match="has no Python package 'cramjam'"):
        Crew(MemoryCarrier(world_of)).gather([SOURCE])


def test_who_wants_no_more_answers_may_ask_again() -> None:
    carrier = MemoryCarrier(worlds_of(ground()))
    crew = Crew(carrier)
    nothing: dict[str, Any] = {"modules": [], "locations": [], "there": []}
    answers = crew.asking.spread("check", [nothing] * 9)
    next(answers)
    assert isinstance(answers, Generator)
    answers.close()
    assert not carrier.closed
    assert len(list(crew.asking.spread("check", [nothing] * 2))) == 2
