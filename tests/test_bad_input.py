"""What bad input gets: an error of the right class and exit code, a hint that works when pasted,
and source and target as they were or resumable.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.cli.commands import NAMES
from stateshift.errors import (
    JournalError,
    MissingFile,
    PlanError,
    StalePlan,
    StateshiftError,
    StorageError,
)
from stateshift.formats.marks import fence_owner
from stateshift.formats.spark import source_log
from stateshift.storage.failures import from_os
from stateshift.storage.opening import open_storage
from stateshift.storage.protocol import Content, Storage
from stateshift.workdir import Workdir
from tests.support import encoders
from tests.support.checkpoints import Checkpoint, held
from tests.support.ground import SOURCE, TARGET, Around, Ground, running_spec, spec_of

ROOT = Path(__file__).resolve().parent.parent
VERBS = set(NAMES)


def check_hint(error: StateshiftError | str | None, *needed: str) -> None:
    """Every command in the hint is one that there is, and no placeholder is left in it."""
    hint = error.hint if isinstance(error, StateshiftError) else error
    assert hint, "an error needs a way out"
    for verb in re.findall(r"stateshift ([a-z]+)", hint):
        assert verb in VERBS | {"runs"}, f"{hint!r}: there is no `stateshift {verb}`"
    assert "WORKDIR" not in hint, hint
    for command in needed:
        assert command in hint, hint


def refused(ground: Ground, *facts: str, **keys: Any) -> PlanError:
    """The plan refuses for these reasons, and so does apply, which changes nothing at all."""
    before = ground.disk.snapshot()
    proposal = ground.propose(spec_of(**keys))
    told = "\n".join(finding.message for finding in proposal.refusals)
    for fact in facts:
        assert fact in told
    for finding in proposal.refusals:
        check_hint(finding.hint)
    with pytest.raises(PlanError) as caught:
        ground.apply(proposal)
    assert caught.value.exit_code == 4
    assert ground.disk.snapshot() == before
    assert not ground.workdir().exists
    return caught.value


def expect_moved(
    ground: Ground, checkpoint: Checkpoint | None = None, target: str = TARGET
) -> None:
    """The target holds the image, the source is fenced, and nothing is locked."""
    wanted = (checkpoint or Checkpoint()).files()
    there = ground.held(target)
    assert set(there) <= set(wanted)
    assert all(there[path] == wanted[path] for path in there)
    epoch = (checkpoint or Checkpoint()).batches - 1
    assert f"commits/{epoch}" in there
    assert f"offsets/{epoch}" in there
    assert not ground.locks()


def expect_as_before(ground: Ground, source: dict[str, bytes]) -> None:
    assert ground.held(SOURCE) == source
    assert ground.held(TARGET) == {}
    assert not ground.locks()


# ---- the source


def test_nothing_at_the_source_is_refused(ground: Ground) -> None:
    above = SOURCE.rpartition("/")[0]
    check_hint(
        refused(ground, f"nothing is at {SOURCE}"), f"check the path: stateshift inspect {above}"
    )


def test_a_foreign_directory_is_refused(ground: Ground) -> None:
    ground.put(f"{SOURCE}/part-0000.parquet")
    refused(ground, "holds no Spark checkpoint (foreign)")


def test_a_file_instead_of_a_directory_is_refused_as_source_and_as_target(ground: Ground) -> None:
    ground.put(SOURCE)
    refused(ground, f"{SOURCE} is a file")
    ground.remove(SOURCE)
    ground.write()
    ground.put(TARGET)
    refused(ground, f"{TARGET} is a file")


def test_a_checkpoint_inside_a_checkpoint_is_refused(ground: Ground) -> None:
    ground.write()
    ground.write(prefix="older")
    check_hint(
        refused(ground, "is a checkpoint and holds others too (older)"),
        f"stateshift inspect {SOURCE}/older",
    )


@pytest.mark.parametrize("path", ["commits/2", "offsets/2", "offsets/1", "metadata"])
@pytest.mark.parametrize("content", [b"", b'v1\n{"batch'], ids=("zero length", "torn"))
def test_a_half_written_checkpoint_is_refused_naming_the_file(
    ground: Ground, path: str, content: bytes
) -> None:
    ground.write()
    ground.put(f"{SOURCE}/{path}", content)
    check_hint(refused(ground, f"{path} is damaged"), f"stateshift verify {SOURCE}")


@pytest.mark.parametrize(
    "path", ["metadata", "offsets/1", "state/0/1/2.delta", "state/0/0/1.delta"]
)
def test_a_checkpoint_with_a_file_missing_is_refused_naming_it(ground: Ground, path: str) -> None:
    ground.write()
    ground.remove(f"{SOURCE}/{path}")
    refused(ground, f"{path} is missing")


def test_a_job_that_never_committed_is_refused(ground: Ground) -> None:
    ground.write(Checkpoint(batches=0, planned=True))
    check_hint(refused(ground, "has not committed a batch yet"))


def test_a_truncated_state_file_stops_before_anything_is_visible_and_can_be_taken_back(
    ground: Ground,
) -> None:
    ground.write()
    whole = Checkpoint().files()["state/0/1/2.delta"]
    ground.put(f"{SOURCE}/state/0/1/2.delta", whole[:-20])
    before = ground.held(SOURCE)
    with pytest.raises(StateshiftError) as caught:
        ground.apply(spec_of())
    assert caught.value.exit_code == 4
    assert "state/0/1/2.delta" in str(caught.value)
    assert not [
        path for path in ground.held(TARGET) if path.startswith(("commits", "offsets", "metadata"))
    ]
    ground.rollback()
    expect_as_before(ground, before)


# ---- the target


def test_a_target_that_is_not_empty_is_refused_and_stays_as_it_is(ground: Ground) -> None:
    ground.write()
    ground.put(f"{TARGET}/notes.txt", b"mine")
    check_hint(refused(ground, "is not empty: it holds 1 files"), f"stateshift inspect {TARGET}")
    ground.write(Checkpoint(batches=7), TARGET)
    refused(ground, "is not empty: it holds an image at epoch 6")


# ---- a job that still writes


def test_a_commit_after_the_plan_makes_it_stale_and_lets_go_of_the_target(ground: Ground) -> None:
    ground.write()
    proposal = ground.propose(spec_of())
    ground.write(Checkpoint(batches=4))
    before = ground.disk.snapshot()
    with pytest.raises(StalePlan) as caught:
        ground.apply(proposal)
    assert caught.value.exit_code == 4
    check_hint(caught.value, "stateshift plan")
    assert ground.disk.snapshot() == before
    ground.apply(spec_of(), "second")
    expect_moved(ground, Checkpoint(batches=4))


def test_a_batch_that_the_sink_got_after_the_plan_makes_it_stale_and_names_the_sink(
    ground: Ground,
) -> None:
    output = "file:///out"
    checkpoint = Checkpoint()
    ground.write(checkpoint)
    last = checkpoint.batches - 1
    ground.put(f"{output}/_spark_metadata/{last}", b"v1\n")
    proposal = ground.propose(spec_of(sink={"kind": "file", "location": output}))
    ground.put(f"{output}/_spark_metadata/{last + 1}", b"v1\n")
    with pytest.raises(StalePlan, match=f"or in the sink {output} is no longer"):
        ground.apply(proposal)


@pytest.mark.parametrize("planned", [False, True], ids=("idle", "with a planned batch"))
def test_a_commit_between_the_look_and_the_fence_stops_the_run(
    ground: Ground, planned: bool
) -> None:
    """The narrowest gap: everything was looked at, and the job commits before the fence is up."""
    ground.write(Checkpoint(planned=planned))
    later = Checkpoint(batches=4)

    class Late(Around):
        def create(self, path: str, content: bytes) -> None:
            if path.startswith(("offsets/", "commits/")):
                ground.write(later)
            self.inner.create(path, content)

    ground.wrap = lambda storage: Late(storage)  # type: ignore[assignment, return-value]
    with pytest.raises(StalePlan, match="the job is still running") as caught:
        ground.apply(spec_of())
    check_hint(caught.value, f"stateshift rollback {ground.workdir().path}")
    ground.wrap = lambda storage: storage
    ground.rollback()
    expect_as_before(ground, later.files())
    ground.apply(spec_of(), "second")
    expect_moved(ground, later)


def test_a_source_written_a_moment_ago_is_warned_of(ground: Ground) -> None:
    Checkpoint().write(ground.disk.open(SOURCE))
    (plan,) = ground.propose(spec_of()).plans
    assert [f for f in plan.findings if f.level == "warn" and "is the job stopped?" in f.message]


def test_a_job_that_starts_again_after_it_was_stopped_is_told(ground: Ground) -> None:
    ground.write()
    ground.cluster.run("orders", SOURCE)
    proposal = ground.propose(running_spec())

    class Restarting(Around):
        def list(self, under: str = "") -> Iterator[Any]:
            if ground.cluster.stops:
                ground.cluster.run("orders", SOURCE)
            return self.inner.list(under)  # type: ignore[no-any-return]

    ground.wrap = lambda storage: Restarting(storage)  # type: ignore[assignment, return-value]
    with pytest.raises(StalePlan, match="runs again after it was stopped") as caught:
        ground.apply(proposal)
    check_hint(caught.value, f"stateshift resume {ground.workdir().path}")
    assert ground.held(TARGET) == {}


def alive(ground: Ground) -> list[str]:
    """Where jobs run now."""
    return [job.location for job in ground.cluster.jobs if job.status.state.alive]


def test_a_halt_after_which_the_plan_no_longer_fits_is_taken_back(ground: Ground) -> None:
    """And it can be resumed once it fits again, and that be taken back as well."""
    ground.write()
    ground.cluster.run("orders", SOURCE)
    proposal = ground.propose(running_spec())
    ground.cluster._on_stop = lambda request: ground.put(f"{TARGET}/somebody.txt")
    with pytest.raises(StalePlan, match="the halt was taken back") as caught:
        ground.apply(proposal)
    check_hint(caught.value, "stateshift plan")
    assert alive(ground) == [SOURCE], "the source job runs again"
    assert not ground.locks()
    assert ground.held(SOURCE) == Checkpoint().files()

    ground.remove(f"{TARGET}/somebody.txt")
    ground.cluster._on_stop = None
    ground.cluster._on_start = lambda submission: (
        ground.write(Checkpoint(batches=4), TARGET) if submission.location == TARGET else None
    )
    assert ground.resume().state == "finished"
    assert alive(ground) == [TARGET]
    ground.rollback(discard_progress=True)
    assert alive(ground) == [SOURCE]
    assert ground.held(SOURCE) == Checkpoint().files()


# ---- files that vanish, disks that fill, permission


class Failing(Around):
    """Raises once for the path that is looked for."""

    def __init__(
        self, storage: Storage, path: str, error: Callable[[str], BaseException], once: list[int]
    ) -> None:
        super().__init__(storage)
        self.path, self.error, self.once = path, error, once

    def write(self, path: str, content: Content, modified: float | None = None) -> int:
        if path == self.path and not self.once:
            self.once.append(1)
            next(content())
            raise self.error(self.inner.location)
        return self.inner.write(path, content, modified)

    def create(self, path: str, content: bytes) -> None:
        if path == self.path and not self.once:
            self.once.append(1)
            raise self.error(self.inner.location)
        self.inner.create(path, content)


def test_a_file_that_vanishes_while_it_is_copied_leaves_a_run_to_take_back(ground: Ground) -> None:
    ground.write()
    proposal = ground.propose(spec_of(verify={"source": "names"}))
    path = "state/0/1/2.delta"

    class Vanishing(Around):
        def chunks(self, at: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
            if at == path and self.inner.location == SOURCE:
                self.inner.remove(path)
            return self.inner.chunks(at, offset, size)

    ground.wrap = lambda storage: Vanishing(storage)  # type: ignore[assignment, return-value]
    with pytest.raises(MissingFile, match="was there when the plan was made and is gone") as caught:
        ground.apply(proposal)
    assert caught.value.exit_code == 6
    check_hint(caught.value, f"stateshift resume {ground.workdir().path}")
    ground.wrap = lambda storage: storage
    ground.rollback()
    expect_as_before(ground, {p: c for p, c in Checkpoint().files().items() if p != path})


def test_a_file_that_vanishes_comes_back_and_the_run_is_resumed(ground: Ground) -> None:
    ground.write()
    proposal, path = ground.propose(spec_of(verify={"source": "names"})), "state/0/1/2.delta"
    seen: list[int] = []

    class Vanishing(Around):
        def chunks(self, at: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
            if at == path and self.inner.location == SOURCE and not seen:
                seen.append(1)
                raise MissingFile("gone")
            return self.inner.chunks(at, offset, size)

    ground.wrap = lambda storage: Vanishing(storage)  # type: ignore[assignment, return-value]
    with pytest.raises(MissingFile):
        ground.apply(proposal)
    ground.resume()
    expect_moved(ground)


def test_a_source_log_that_vanishes_while_it_is_looked_at_is_a_finding(ground: Ground) -> None:
    ground.write(Checkpoint(inputs="file:///in"))

    class Vanishing(Around):
        def chunks(self, at: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
            if at == "sources/0/1":
                raise MissingFile("gone")
            return self.inner.chunks(at, offset, size)

    ground.wrap = lambda storage: Vanishing(storage)  # type: ignore[assignment, return-value]
    refused(ground, "sources/0/1 vanished while it was looked at", waive=["paths-stay"])


@pytest.mark.parametrize(
    ("number", "command"),
    [
        (errno.ENOSPC, "df -h"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "namei -l"),
        (errno.EROFS, "findmnt"),
        (errno.EIO, "dmesg"),
    ],
    ids=("disk full", "quota", "no permission", "read-only", "broken"),
)
@pytest.mark.parametrize("path", ["state/0/1/2.delta", "offsets/2", "commits/2"])
def test_a_target_that_fails_in_the_middle_is_resumed_where_it_stood(
    ground: Ground, path: str, number: int, command: str
) -> None:
    ground.write()
    once: list[int] = []

    def failing(storage: Storage) -> Storage:
        error = lambda where: from_os(OSError(number, os.strerror(number)), where, path)  # noqa: E731
        return Failing(storage, path, error, once) if storage.location == TARGET else storage  # type: ignore[return-value]

    ground.wrap = failing
    with pytest.raises(StorageError) as caught:
        ground.apply(spec_of())
    assert caught.value.exit_code == 6
    check_hint(caught.value, command)
    assert "commits/2" not in ground.held(TARGET), "a half image is never visible"
    assert ground.locks(), "the half-written target stays ours"
    report = ground.resume()
    assert report.state == "finished"
    expect_moved(ground)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's rights, as far as this process can drop them."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that everybody may look into and write to."""
    above = tmp_path
    while above != above.parent and os.geteuid() == 0:
        above.chmod(above.stat().st_mode | 0o711)
        above = above.parent
        if str(above) == "/tmp":
            break
    tmp_path.chmod(0o777)
    return tmp_path


def test_a_source_that_may_not_be_read_is_told_with_the_way_to_look(open_folder: Path) -> None:
    source = open_folder / "orders"
    Checkpoint().write(open_storage(str(source)))
    (source / "state").chmod(0)
    spec = spec_of(str(source), str(open_folder / "there"))
    try:
        with as_nobody(), pytest.raises(StorageError, match="no permission") as caught:
            migration.propose(spec, migration.real_adapters(), Workdir(open_folder / "w"))
    finally:
        (source / "state").chmod(0o755)
    assert caught.value.exit_code == 6
    check_hint(caught.value, "namei -l")


def test_a_target_that_may_not_be_written_leaves_everything_as_it_was(open_folder: Path) -> None:
    source, target = open_folder / "orders", open_folder / "closed" / "there"
    Checkpoint().write(open_storage(str(source)))
    target.parent.mkdir(mode=0o555)
    before = held(open_storage(str(source)))
    with as_nobody():
        adapters, workdir = migration.real_adapters(), Workdir(open_folder / "w")
        with pytest.raises(PlanError, match="no permission to write to") as refused:
            spec = spec_of(str(source), str(target))
            migration.apply(migration.propose(spec, adapters, workdir), "r", workdir, adapters)
        check_hint(refused.value, "ls -ld")
        assert not workdir.path.exists(), "nothing was begun"
        spec = spec_of(str(source), str(target), waive=["permission"])
        with pytest.raises(StorageError, match="no permission") as caught:
            migration.apply(migration.propose(spec, adapters, workdir), "r", workdir, adapters)
    assert caught.value.exit_code == 6
    check_hint(caught.value, "namei -l")
    assert held(open_storage(str(source))) == before
    assert migration.rollback(workdir, migration.real_adapters()).state == "rolled-back"


def test_a_workdir_that_may_not_be_written_is_told_before_anything_happens(
    open_folder: Path,
) -> None:
    source = open_folder / "orders"
    Checkpoint().write(open_storage(str(source)))
    (open_folder / "closed").mkdir(mode=0o555)
    spec = spec_of(str(source), str(open_folder / "there"), waive=["permission"])
    with as_nobody():
        adapters, workdir = migration.real_adapters(), Workdir(open_folder / "closed" / "w")
        with pytest.raises(StorageError, match="Permission denied") as caught:
            migration.apply(migration.propose(spec, adapters, workdir), "r", workdir, adapters)
    check_hint(caught.value, "namei -l")
    assert not (open_folder / "there").exists()


# ---- names


STRANGE = (
    "with blank",
    "per%cent",
    "has%20escape",
    "sharp#",
    "what?",
    "col:on",
    "ünï¢ödé 漢字",
    "a&b'c\"d",
    "-dash",
    "$HOME",
)


@pytest.mark.parametrize("name", STRANGE)
def test_a_job_moves_whatever_its_places_are_called(tmp_path: Path, name: str) -> None:
    """Source, target, workdir and input data; the paths inside the image are rewritten as Hadoop
    quotes them.
    """
    from stateshift.formats.spark.uris import encode_location

    old, new = tmp_path / f"old {name}", tmp_path / f"new {name}"
    inputs, moved = old / "in put%", new / "in put%"
    inputs.mkdir(parents=True)
    for batch in range(3):
        (inputs / f"f{batch}.json").write_text("{}")
    checkpoint = Checkpoint(inputs=encode_location(f"file://{inputs}"))
    checkpoint.write(open_storage(str(old / "c")))
    spec = spec_of(
        str(old / "c"), str(new / "c"), data=[{"source": str(inputs), "target": str(moved)}]
    )
    adapters, workdir = migration.real_adapters(), Workdir(tmp_path / f"w {name}")
    report = migration.apply(migration.propose(spec, adapters, workdir), "r", workdir, adapters)
    assert report.state == "finished"
    logs = [(new / f"c/sources/0/{n}").read_bytes() for n in range(3)]
    paths = [entry.path for log in logs for entry in source_log.decode_source_log([log])]
    assert paths == [f"{encode_location(f'file://{moved}')}/f{n}.json" for n in range(3)]
    assert (moved / "f2.json").read_text() == "{}"
    assert migration.verify(workdir, adapters).broken == ()
    assert migration.rollback(workdir, adapters).left == ()
    assert not (new / "c").exists()
    assert not moved.exists()


def test_hints_quote_what_a_shell_would_take_apart(ground: Ground) -> None:
    for hint in (refused(ground, "nothing is at", source="/a b/$c/orders").hint,):
        words = shlex.split(hint or "")
        assert words == ["check", "the", "path:", "stateshift", "inspect", "file:///a b/$c"]


def test_a_symlink_loop_is_refused_naming_the_link(tmp_path: Path) -> None:
    source = tmp_path / "orders"
    Checkpoint().write(open_storage(str(source)))
    (source / "state" / "again").symlink_to(source)
    adapters = migration.real_adapters()
    with pytest.raises(StorageError, match=r"is a symbolic link to .* which holds it") as caught:
        migration.propose(
            spec_of(str(source), str(tmp_path / "t")), adapters, Workdir(tmp_path / "w")
        )
    assert caught.value.exit_code == 6
    check_hint(caught.value, "rm ")


# ---- places inside the image


def test_a_source_log_whose_data_is_not_moved_is_refused(ground: Ground) -> None:
    ground.write(Checkpoint(inputs="file:///data/in"))
    hint = refused(ground, "names 3 files under file:///data/in", "reads all of them again").hint
    assert hint and '"waive": ["paths-stay"]' in hint


def test_a_sink_whose_log_was_not_moved_is_refused(ground: Ground) -> None:
    ground.write()
    ground.put("file:///old/out/_spark_metadata/0", b"v1")
    ground.put("file:///new/out/part-0.parquet")
    data = [{"source": "/old/out", "target": "/new/out", "copy": False}]
    refused(ground, "readers would silently see nothing", data=data)


def sink_log(place: str) -> bytes:
    path = f"{place}/part-0.parquet"
    return b"".join(encoders.encode_source_log([{"path": path, "size": 1, "action": "add"}]))


def test_a_sink_whose_log_was_copied_without_rewriting_its_paths_is_refused(ground: Ground) -> None:
    ground.write()
    for place in ("file:///old/out", "file:///new/out"):
        ground.put(f"{place}/part-0.parquet")
        ground.put(f"{place}/_spark_metadata/0", sink_log("file:///old/out"))
    data = [{"source": "/old/out", "target": "/new/out", "copy": False}]
    refused(
        ground,
        "_spark_metadata/0 still names file:///old/out",
        "readers would silently see nothing",
        data=data,
    )
    ground.put("file:///new/out/_spark_metadata/0", sink_log("file:///new/out"))
    assert not ground.propose(spec_of(data=data)).refusals


def test_a_sink_that_moves_along_has_its_log_rewritten(ground: Ground) -> None:
    ground.write()
    ground.put("file:///old/out/part-0.parquet", b"rows")
    ground.put("file:///old/out/.part-0.parquet.crc", b"crc\0")
    ground.put("file:///old/out/_spark_metadata/0", sink_log("file:///old/out"))
    ground.put("file:///old/out/_spark_metadata/.0.crc", b"crc\0")
    ground.apply(spec_of(data=[{"source": "/old/out", "target": "/new/out"}]))
    there = ground.disk.snapshot("file:///new/out")
    assert there == {"part-0.parquet": b"rows", "_spark_metadata/0": sink_log("file:///new/out")}


# ---- two at once


def test_a_second_run_on_one_target_is_refused_and_the_first_goes_on(ground: Ground) -> None:
    ground.write()
    ground.write(location="file:///here/other")
    full: list[int] = []
    ground.wrap = lambda storage: (  # type: ignore[assignment, return-value]
        Failing(
            storage,
            "offsets/2",
            lambda where: StorageError("disk full", hint="resume WORKDIR"),
            full,
        )
        if storage.location == TARGET
        else storage
    )
    second = ground.propose(spec_of(source="file:///here/other"))
    with pytest.raises(StorageError):
        ground.apply(spec_of())
    before = ground.disk.snapshot()
    with pytest.raises(JournalError, match="is held by run run-run") as caught:
        ground.apply(second, "second")
    assert caught.value.exit_code == 8
    where = ground.workdir().path
    check_hint(caught.value, f"stateshift resume {where}", f"stateshift rollback {where}")
    assert ground.disk.snapshot() == before
    ground.resume()
    expect_moved(ground)


def test_two_runs_that_move_one_source_to_two_targets_do_not_both_succeed(ground: Ground) -> None:
    ground.write()
    second = ground.propose(spec_of(target="file:///there/copy"))
    started: list[int] = []

    class First(Around):
        def create(self, path: str, content: bytes) -> None:
            if path == "offsets/3" and not started:
                started.append(1)
                ground.apply(spec_of(), "first")
            self.inner.create(path, content)

    ground.wrap = lambda storage: First(storage)  # type: ignore[assignment, return-value]
    with pytest.raises(StalePlan, match="was fenced by run run-first") as caught:
        ground.apply(second, "second")
    check_hint(caught.value, f"stateshift rollback {ground.workdir('second').path}")
    ground.rollback("second")
    assert ground.held("file:///there/copy") == {}
    assert fence_owner(ground.held(SOURCE)["commits/3"]) == "run-first"
    expect_moved(ground)


def test_a_source_that_was_moved_is_not_moved_again(ground: Ground) -> None:
    ground.write()
    ground.apply(spec_of())
    with pytest.raises(PlanError, match="was moved away by run run-run") as caught:
        ground.apply(spec_of(target="file:///there/copy"), "second")
    check_hint(caught.value, "stateshift rollback run-run ", "workdir")


PROGRAM = """
import sys
from dataclasses import replace
from stateshift import migration
from stateshift.errors import StateshiftError
from stateshift.workdir import Workdir
from tests.support.ground import Around
adapters = migration.real_adapters()
class Slow(Around):
    def write(self, *a, **k): wait(); return self.inner.write(*a, **k)
    def create(self, *a, **k): wait(); return self.inner.create(*a, **k)
def wait():
    if "slow" in sys.argv: print("writing", flush=True); sys.stdin.readline()
slow = replace(adapters, open_storage=lambda l: Slow(adapters.open_storage(l)))
try:
    print(migration.resume(Workdir(sys.argv[1]), slow).state)
except StateshiftError as error:
    print(error.exit_code, error, "|", error.hint)
"""


def program(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def interrupted_run(folder: Path) -> Workdir:
    """A run on a real disk, stopped before its last file."""
    Checkpoint().write(open_storage(str(folder / "orders")))
    adapters, workdir = migration.real_adapters(), Workdir(folder / "w")
    full: list[int] = []

    def failing(where: str) -> Failing:
        return Failing(
            adapters.open_storage(where), "commits/2", lambda w: StorageError("full"), full
        )

    spec = spec_of(str(folder / "orders"), str(folder / "there"))
    with pytest.raises(StorageError):
        proposal = migration.propose(spec, adapters, workdir)
        migration.apply(
            proposal,
            "r",
            workdir,
            migration.Adapters(failing, adapters.open_cluster, adapters.clock),
        )  # type: ignore[arg-type]
    return workdir


@pytest.mark.long
def test_of_two_processes_that_resume_one_run_only_one_works(tmp_path: Path) -> None:
    workdir = interrupted_run(tmp_path)
    first = program(str(workdir.path), "slow")
    assert first.stdout is not None
    assert first.stdout.readline() == "writing\n"
    assert workdir.held
    second = program(str(workdir.path))
    told, _ = second.communicate(timeout=300)
    assert told.startswith(f"8 {workdir.path} is held by process {first.pid}"), told
    check_hint(
        told.partition("|")[2], f"kill -INT {first.pid}", f"stateshift status {workdir.path}"
    )
    assert migration.status(workdir).state == "running"
    rest, _ = first.communicate(timeout=300)
    assert rest.endswith("finished\n")
    assert not workdir.held


def test_a_process_that_dies_lets_go_of_its_workdir_and_the_next_finishes(tmp_path: Path) -> None:
    workdir = interrupted_run(tmp_path)
    first = program(str(workdir.path), "slow")
    assert first.stdout is not None
    first.stdout.readline()
    first.kill()
    first.wait()
    assert not workdir.held
    assert migration.resume(workdir, migration.real_adapters()).state == "finished"


# ---- a real limit of the system


LIMITED = """
import resource, sys
from stateshift import migration
from stateshift.errors import StorageError
from stateshift.workdir import Workdir
from tests.support.ground import spec_of
folder = sys.argv[1]
adapters, workdir = migration.real_adapters(), Workdir(folder + "/w")
proposal = migration.propose(spec_of(folder + "/orders", folder + "/there"), adapters, workdir)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
try:
    migration.apply(proposal, "r", workdir, adapters)
except StorageError as error:
    print(error.exit_code, error, "|", error.hint)
"""


@pytest.mark.long
def test_a_file_that_does_not_fit_leaves_a_run_that_is_resumed_once_it_does(tmp_path: Path) -> None:
    """The kernel's own refusal in the middle of a file, and the journal intact behind it."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    source = open_storage(str(tmp_path / "orders"))
    Checkpoint().write(source)
    # What Spark keeps of sources it does not know is copied as it is: here is a large one.
    source.write("sources/9/blob", lambda: iter([b"x" + os.urandom(599_999)]))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.stdout.startswith("6 "), done.stdout + done.stderr
    check_hint(done.stdout.partition("|")[2], f"stateshift resume {tmp_path}/w")
    assert not (tmp_path / "there" / "commits").exists()
    assert migration.resume(Workdir(tmp_path / "w"), migration.real_adapters()).state == "finished"
    assert (tmp_path / "there" / "commits" / "2").exists()
    assert (tmp_path / "there" / "sources" / "9" / "blob").stat().st_size == 600_000


# ---- saved plans and journals


def test_a_plan_of_another_version_is_refused_with_the_way_out(ground: Ground) -> None:
    ground.write()
    value = migration.encode_proposal(ground.propose(spec_of()))
    with pytest.raises(PlanError, match=r"made by another version of stateshift \(9\.9") as caught:
        migration.decode_proposal({**value, "stateshift_plan": 99, "stateshift": "9.9"})
    assert caught.value.exit_code == 4
    check_hint(caught.value, "stateshift plan SPEC -o FILE")


@pytest.mark.parametrize("value", [None, [], {}, {"jobs": []}, "text", 3])
def test_what_is_no_saved_plan_is_refused(value: object) -> None:
    with pytest.raises(PlanError, match="not a saved plan") as caught:
        migration.decode_proposal(value)
    check_hint(caught.value)


def edits(value: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    import copy

    def edit(name: str, change: Callable[[dict[str, Any]], object]) -> tuple[str, dict[str, Any]]:
        edited = copy.deepcopy(value)
        change(edited)
        return name, edited

    yield edit("target", lambda v: v["plans"][0].update(target="file:///elsewhere"))
    yield edit("a step", lambda v: v["plans"][0]["phases"][1]["steps"].pop())
    yield edit(
        "the spec", lambda v: v["spec"]["jobs"][0].update(remote_location="file:///elsewhere")
    )
    yield edit("the spec, broken", lambda v: v["spec"]["jobs"][0].pop("checkpoint_location"))
    yield edit("no spec", lambda v: v.pop("spec"))
    yield edit("no plans", lambda v: v.pop("plans"))
    yield edit("plans of another kind", lambda v: v.update(plans=7))
    yield edit("a plan left out", lambda v: v["plans"].clear())
    yield edit("the fingerprint", lambda v: v.update(fingerprint="0" * 32))
    yield edit(
        "a step of another kind",
        lambda v: v["plans"][0]["phases"][0]["steps"][0].update(kind="RemoveAll"),
    )


def test_a_plan_edited_by_hand_is_refused_whatever_was_edited(ground: Ground) -> None:
    ground.write()
    for name, edited in edits(migration.encode_proposal(ground.propose(spec_of()))):
        with pytest.raises(PlanError) as caught:
            migration.decode_proposal(edited)
        assert caught.value.exit_code == 4, name
        check_hint(caught.value, "stateshift plan SPEC -o FILE")


def test_findings_taken_out_of_a_saved_plan_come_back_when_it_is_applied(ground: Ground) -> None:
    ground.write(Checkpoint(inputs="file:///data/in"))
    value = migration.encode_proposal(ground.propose(spec_of()))
    value["plans"][0]["findings"] = []
    with pytest.raises(PlanError, match="names 3 files under"):
        ground.apply(migration.decode_proposal(value))
    expect_as_before(ground, Checkpoint(inputs="file:///data/in").files())


def failed_run(ground: Ground) -> Path:
    """A run whose target was full before its last file; its journal."""
    ground.write()
    full: list[int] = []
    ground.wrap = lambda storage: (  # type: ignore[assignment, return-value]
        Failing(storage, "commits/2", lambda where: StorageError("full"), full)
        if storage.location == TARGET
        else storage
    )
    with pytest.raises(StorageError):
        ground.apply(spec_of())
    ground.wrap = lambda storage: storage
    return ground.workdir().path / "journal"


def test_a_journal_cut_in_the_middle_of_a_record_is_resumed_to_the_same_end(ground: Ground) -> None:
    journal = failed_run(ground)
    whole = journal.read_bytes()
    ends = [m.end() for m in re.finditer(b"\n", whole)]
    for end in ends[1:]:  # every record but the first, cut in its middle
        journal.write_bytes(whole[: end - 7])
        before = ground.disk.snapshot()
        assert migration.status(ground.workdir()).state in ("running", "failed"), (
            "looking is harmless"
        )
        assert journal.read_bytes() == whole[: end - 7]
        assert ground.disk.snapshot() == before
    assert ground.resume().state == "finished"
    expect_moved(ground)


def test_a_journal_damaged_before_its_end_is_refused_and_nothing_changes(ground: Ground) -> None:
    journal = failed_run(ground)
    content = bytearray(journal.read_bytes())
    content[content.index(b"\n") + 20] ^= 1
    journal.write_bytes(content)
    before = ground.disk.snapshot()
    for verb in (ground.resume, ground.rollback, lambda: migration.status(ground.workdir())):
        with pytest.raises(JournalError, match="record 1 of the journal is damaged") as caught:
            verb()
        assert caught.value.exit_code == 8
        check_hint(caught.value)
    assert ground.disk.snapshot() == before
    assert journal.read_bytes() == content


@pytest.mark.parametrize(
    "content", [b"my own diary", b"one line\n", b"\x80\x81 binary\n", b"a\nb\nc\n"]
)
def test_somebody_elses_file_called_journal_is_never_cut(ground: Ground, content: bytes) -> None:
    ground.workdir().create()
    journal = ground.workdir().path / "journal"
    journal.write_bytes(content)
    for verb in (ground.resume, ground.rollback):
        with pytest.raises(JournalError) as caught:
            verb()
        check_hint(caught.value)
    assert journal.read_bytes() == content


def test_a_run_begun_by_another_version_says_which_one_goes_on_with_it(ground: Ground) -> None:
    import json

    failed_run(ground)
    place = ground.workdir().path / "proposal.json"
    value = json.loads(place.read_text())
    place.write_text(json.dumps({**value, "stateshift_plan": 99, "stateshift": "9.9.0"}))
    before = ground.disk.snapshot()
    with pytest.raises(JournalError, match="another version") as caught:
        ground.resume()
    assert caught.value.exit_code == 8
    check_hint(caught.value, "pip install stateshift==9.9.0")
    assert ground.disk.snapshot() == before


def kept(ground: Ground) -> dict[Path, bytes]:
    """Return the files of the workdir, but for the log: that says who was refused there."""
    files = (path for path in ground.workdir().path.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if path.name != "log"}


def test_applying_into_the_workdir_of_another_run_leaves_that_run_alone(ground: Ground) -> None:
    failed_run(ground)
    before = kept(ground)
    ground.write(location="file:///here/other")
    other = ground.propose(spec_of(source="file:///here/other", target="file:///there/other"))
    with pytest.raises(JournalError, match="is the workdir of another run") as caught:
        ground.apply(other)
    check_hint(caught.value, f"stateshift status {ground.workdir().path}")
    assert kept(ground) == before
    ground.resume()
    expect_moved(ground)


def test_a_place_that_is_no_workdir_is_refused(ground: Ground) -> None:
    for verb in (ground.resume, ground.rollback, lambda: migration.status(ground.workdir())):
        with pytest.raises(JournalError, match="is not the workdir of a run") as caught:
            verb()
        check_hint(caught.value, "stateshift runs")


# ---- the command line


def stateshift(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stateshift", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        check=False,
    )


@pytest.mark.long
def test_the_command_line_ends_with_the_exit_code_of_what_was_wrong(tmp_path: Path) -> None:
    import json

    Checkpoint().write(open_storage(str(tmp_path / "orders")))
    Checkpoint(batches=2).write(open_storage(str(tmp_path / "torn")))
    (tmp_path / "torn" / "commits" / "1").write_bytes(b"")

    def spec(source: str, **more: object) -> str:
        job = {
            "name": "o",
            "checkpoint_location": str(tmp_path / source),
            "remote_location": str(tmp_path / "t"),
        }
        path = tmp_path / f"{source}.json"
        path.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [{**job, **more}]}))
        return str(path)

    cases = [
        (("plan", spec("missing")), 4),
        (("plan", spec("torn")), 4),
        (("verify", str(tmp_path / "torn")), 5),
        (("plan", spec("odd", unheard_of=1)), 2),
        (("resume", str(tmp_path / "nowhere")), 4),
        (("inspect", str(tmp_path / "nowhere")), 4),
        (("inspect", str(tmp_path / "torn/commits/1")), 3),
        (("plan", spec("orders")), 0),
        (("verify", str(tmp_path / "orders")), 0),
    ]
    running = [(arguments, code, stateshift(*arguments, cwd=tmp_path)) for arguments, code in cases]
    for arguments, code, done in running:
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        for hint in re.findall(r"hint: (.*)", done.stderr):
            check_hint(hint)


def test_every_verb_in_a_hint_answers_help() -> None:
    assert {"inspect", "verify", "plan", "apply", "resume", "rollback", "status", "runs"} <= VERBS


def test_all_hints_in_the_sources_name_commands_that_there_are() -> None:
    for source in (ROOT / "stateshift").rglob("*.py"):
        for text in re.findall(r'hint=(?:f?"[^\n]*)', source.read_text()):
            for verb in re.findall(r"stateshift ([a-z]+)", text):
                assert verb in VERBS | {"wrote", "may"}, f"{source.name}: {text}"
