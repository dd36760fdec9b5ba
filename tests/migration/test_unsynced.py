"""Copies that nobody waits for until they are on disk: what is not synced, and what a kill, a power
cut and a new start of the machine mean for them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import migration
from stateshift.errors import StorageError
from stateshift.fleet import Crew
from stateshift.machine import boot
from stateshift.migration.adapters import real_adapters, world_of
from stateshift.report import Report
from stateshift.specification import Spec, parse_spec
from stateshift.specification.job_relations import unsynced_places
from stateshift.step import CopyFiles
from stateshift.storage.local import calls
from stateshift.storage.locations import parent
from stateshift.storage.opening import open_storage
from stateshift.storage.protocol import Content, Storage
from stateshift.survey import FileInfo
from stateshift.testing.memory_storage import ProcessGone
from stateshift.workdir import Workdir
from tests.storage.test_local import traced
from tests.support.checkpoints import Checkpoint
from tests.support.fleet import MemoryCarrier
from tests.support.ground import TARGET, Ground, spec_of
from tests.test_bad_input import Around, check_hint

FIRST, SECOND = "first-boot", "second-boot"
NO_SYNC = {"mode": "fork", "sync": False}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    made = Ground(tmp_path)
    made.write()
    return made


class Watching:
    """Counts the syncs of each location, and breaks off at a write, if it is asked to."""

    def __init__(self, ground: Ground, break_at: Callable[[int], BaseException | None]) -> None:
        self.syncs = Counter[str]()
        self.writes = 0
        self._ground, self._break_at = ground, break_at

    def __call__(self, storage: Storage) -> Storage:
        watching = self

        class Watched(Around):
            def sync(self) -> None:
                watching.syncs[storage.location] += 1
                storage.sync()

            def write(self, path: str, content: Content, modified: float | None = None) -> int:
                watching.writes += 1
                error = watching._break_at(watching.writes)
                if error is not None:
                    raise error
                return storage.write(path, content, modified)

        return Watched(storage)  # type: ignore[return-value]


def watch(
    ground: Ground, break_at: Callable[[int], BaseException | None] = lambda number: None
) -> Watching:
    watching = Watching(ground, break_at)
    ground.wrap = watching
    return watching


def apply(ground: Ground, spec: Spec, boot: str = FIRST) -> Report:
    adapters = replace(ground.adapters, boot=boot)
    proposal = ground.propose(spec)
    return migration.apply(proposal, "run-1", ground.workdir(), adapters)


def resume(ground: Ground, boot: str = FIRST) -> Report:
    return migration.resume(ground.workdir(), replace(ground.adapters, boot=boot))


# ---- what is not synced


def test_a_target_is_synced_unless_the_spec_says_otherwise(ground: Ground) -> None:
    watching = watch(ground)
    apply(ground, spec_of(mode="fork"))
    assert watching.syncs[TARGET] > 0


def test_the_target_of_an_unsynced_fork_is_not_synced(ground: Ground) -> None:
    watching = watch(ground)
    assert apply(ground, spec_of(**NO_SYNC)).state == "finished"
    assert watching.syncs[TARGET] == 0
    assert "commits/2" in ground.held(TARGET)


def test_the_lock_on_an_unsynced_target_is_as_durable_as_ever(ground: Ground) -> None:
    """It is created in the folder above, which nobody has said anything of."""
    watch(ground, lambda number: StorageError("broken off") if number == 1 else None)
    with pytest.raises(StorageError):
        apply(ground, spec_of(**NO_SYNC))
    ground.disk.crash(random.Random(1))
    assert [parent(place) for place in ground.locks()] == [parent(TARGET)]


def test_data_that_goes_along_is_not_synced_unless_a_synced_job_copies_there_too(
    ground: Ground,
) -> None:
    data, copied = "file:///here/in", "file:///there/in"
    ground.put(f"{data}/a.json")
    moved = [{"source": data, "target": copied}]
    watching = watch(ground)
    apply(ground, spec_of(**NO_SYNC, data=moved))
    assert ground.held(copied)
    assert watching.syncs[copied] == 0

    unsynced = spec_of(**NO_SYNC, data=moved)
    (job,) = unsynced.jobs
    other = replace(job, name="other", sync=True, target="file:///there/other")
    both = replace(unsynced, jobs=(job, other))
    world = world_of(both, "run", ground.workdir("both"), ground.adapters)
    assert set(world.unsynced) == {TARGET}
    assert unsynced_places(both, job) == [TARGET]
    assert unsynced_places(both, other) == []


def test_only_local_places_of_forks_are_unsynced(ground: Ground) -> None:
    for spec in (
        spec_of(target="s3://bucket/orders", **NO_SYNC),
        # The parser refuses it. Nothing else may make it one.
        replace(spec_of(), jobs=(replace(spec_of().jobs[0], sync=False),)),
    ):
        assert not world_of(spec, "run", ground.workdir(), ground.adapters).unsynced


# ---- a process that is killed


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_run_is_resumed_as_ever(seed: int, tmp_path: Path) -> None:
    whole = Ground(tmp_path / "whole")
    whole.write()
    watching = watch(whole)
    apply(whole, spec_of(**NO_SYNC))
    moment = random.Random(seed).randint(1, watching.writes)

    ground = Ground(tmp_path / "killed")
    ground.write()

    def killed(number: int) -> BaseException | None:
        if number < moment:
            return None
        ground.disk.kill()
        return ProcessGone("killed")

    watch(ground, killed)
    with pytest.raises(ProcessGone):
        apply(ground, spec_of(**NO_SYNC))
    watching = watch(ground)
    assert resume(ground).state == "finished"
    assert watching.syncs[TARGET] == 0
    assert _without_id(ground.held(TARGET)) == _without_id(whole.held(TARGET))
    assert not ground.locks()


def _without_id(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return an image without the id that its fork was given."""
    return {path: content for path, content in files.items() if path != "metadata"}


# ---- a machine that is started again


def broken_off(ground: Ground, spec: Spec, boot: str = FIRST) -> None:
    """A run that fails when it publishes, with everything else copied."""

    def at_publishing(storage: Storage) -> Storage:
        class Failing(Around):
            def create(self, path: str, content: bytes) -> None:
                if path.startswith(("commits/", "offsets/")):
                    raise StorageError("broken off", location=storage.location)
                storage.create(path, content)

        return Failing(storage)  # type: ignore[return-value]

    ground.wrap = at_publishing
    with pytest.raises(StorageError, match="broken off"):
        apply(ground, spec, boot)
    ground.wrap = lambda storage: storage


def test_a_run_that_was_cut_by_a_power_cut_does_not_believe_what_it_has_not_synced(
    ground: Ground,
) -> None:
    broken_off(ground, spec_of(**NO_SYNC))
    ground.disk.crash(random.Random(1))
    before = ground.disk.snapshot()
    with pytest.raises(StorageError, match="started again since") as caught:
        resume(ground, SECOND)
    check_hint(caught.value, f"stateshift rollback {ground.workdir().path}")
    assert ground.disk.snapshot() == before
    assert migration.status(ground.workdir()).state == "failed"

    report = migration.rollback(ground.workdir(), replace(ground.adapters, boot=SECOND))
    assert report.state == "rolled-back"
    left = [line for job in report.jobs for line in job.left]
    assert len(ground.held(TARGET)) == len(left), "what the power cut has damaged is named"
    assert not ground.locks()


def test_without_a_new_start_the_same_run_goes_on(ground: Ground) -> None:
    broken_off(ground, spec_of(**NO_SYNC))
    assert resume(ground).state == "finished"


def test_a_synced_run_goes_on_after_a_new_start(ground: Ground) -> None:
    broken_off(ground, spec_of(mode="fork"))
    ground.disk.crash(random.Random(1))
    assert resume(ground, SECOND).state == "finished"


def test_where_the_system_names_no_start_an_unsynced_run_is_not_resumed(ground: Ground) -> None:
    broken_off(ground, spec_of(**NO_SYNC), boot="")
    with pytest.raises(StorageError, match="this system does not say whether") as caught:
        resume(ground, "")
    check_hint(caught.value, "stateshift rollback")


def test_a_run_that_has_copied_nothing_goes_on_and_is_of_the_new_start_from_then_on(
    ground: Ground,
) -> None:
    watch(ground, lambda number: StorageError("broken off"))
    with pytest.raises(StorageError, match="broken off"):
        apply(ground, spec_of(**NO_SYNC))
    ground.disk.crash(random.Random(1))
    watch(ground, lambda number: StorageError("broken off") if number > 3 else None)
    with pytest.raises(StorageError, match="broken off"):
        resume(ground, SECOND)
    assert migration.progress_of(ground.workdir()).boot == SECOND
    watch(ground)
    assert resume(ground, SECOND).state == "finished"


def test_a_finished_run_is_reported_after_a_new_start_and_verify_sees_what_is_lost(
    ground: Ground,
) -> None:
    apply(ground, spec_of(**NO_SYNC))
    assert resume(ground, SECOND).state == "finished"
    assert not migration.verify(ground.workdir(), ground.adapters).broken
    lost = next(path for path in ground.held(TARGET) if path.startswith("state/"))
    ground.put(f"{TARGET}/{lost}", b"")
    assert migration.verify(ground.workdir(), ground.adapters).broken


def test_this_system_names_its_start() -> None:
    assert boot() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot() == real_adapters().boot != ""


# ---- processes and executors


def copy_step(folder: Path) -> tuple[Spec, CopyFiles]:
    """A fork of a folder, and the step that copies its one file."""
    (folder / "from").mkdir()
    (folder / "from" / "a").write_bytes(b"x")
    ends = {
        "checkpoint_location": str(folder / "from"),
        "remote_location": str(folder / "to"),
    }
    job = {"name": "orders", **ends, **NO_SYNC}
    spec = parse_spec(json.dumps({"version": 1, "jobs": [job]}))
    (read,) = spec.jobs
    step = CopyFiles("copy/0", read.source, read.destination, (FileInfo("a", 1),))
    return spec, step


@pytest.mark.parametrize("far", [False, True])
def test_processes_of_this_machine_do_not_sync_and_other_machines_do(
    far: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carried out here as a process and an executor carry it out."""
    synced: list[str] = []
    monkeypatch.setattr(calls, "sync_file_system", synced.append)
    spec, step = copy_step(tmp_path)
    world = world_of(spec, "run", Workdir(tmp_path / "run"), real_adapters())
    Crew(MemoryCarrier(far=far)).run(step, world)
    assert (tmp_path / "to" / "a").read_bytes() == b"x"
    assert bool(synced) == far


PROCESS = """
import sys, threading
from stateshift.fleet.processes import ProcessCarrier
carrier = ProcessCarrier(1, threading.Event())
print(carrier.carry(sys.argv[2], "copy/0"))
carrier.close()
"""


@pytest.mark.long
def test_a_process_of_its_own_syncs_nothing_either(tmp_path: Path) -> None:
    spec, step = copy_step(tmp_path)
    world = world_of(spec, "run", Workdir(tmp_path / "run"), real_adapters())
    carrier = MemoryCarrier()
    Crew(carrier).run(step, world)
    (order,) = carrier.orders
    (tmp_path / "to" / "a").unlink()
    trace = traced("syncfs", PROCESS, tmp_path, order)
    assert (tmp_path / "to" / "a").read_bytes() == b"x"
    assert "syncfs(" not in trace


COMMAND = """
import sys
from stateshift.cli import main
folder = sys.argv[1]
argv = ["fork", f"{{folder}}/orders", "--to", f"{{folder}}/copy", "--yes"]
sys.argv[1:] = [*argv, "--workdir", f"{{folder}}/run", *{flags}]
main()
"""


@pytest.mark.long
@pytest.mark.parametrize("flags", [[], ["--no-sync"]])
def test_the_command_leaves_the_sync_out_and_nothing_else(flags: list[str], tmp_path: Path) -> None:
    Checkpoint().write(open_storage(str(tmp_path / "orders")))
    trace = traced("syncfs,fsync,fdatasync", COMMAND.format(flags=flags), tmp_path)
    assert ("syncfs(" in trace) == (not flags)
    assert "fsync(" in trace, "the journal is on disk as ever"
    assert (tmp_path / "copy" / "metadata").exists()
