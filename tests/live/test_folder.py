"""The folder of a group: who is first holds, and what is damaged is said with its path."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from stateshift.errors import AlreadyThere, FormatError, PlanError, UnknownVersion
from stateshift.live import code
from stateshift.live.folder import ChainWorker, Folder, Seal
from stateshift.live.member import TaskPlace, word_of
from stateshift.live.protocol.chains import Decision, ProposedChange, Reversal
from stateshift.storage.local.storage import LocalStorage
from stateshift.testing.memory_storage import MemoryDisk
from tests.live.ground import GROUP, Ground, SharedCreates, asked, change, giving, propose, run

APPLIED = Decision("applied", 1.0, "me")
ABORTED = Decision("aborted", 2.0, "you", "no")
FAILED = Reversal("score", "q", "run", 1, "ValueError: no", 3.0)


@pytest.fixture
def ground() -> Ground:
    """A group with one of every file, whose change 2 is applied and taken back."""
    ground = Ground()
    chain, member, folder = ground.chain(), ground.member(), ground.folder
    run(chain, member, 0)
    batches = iter(range(1, 100))
    change(folder, asked({"score": giving(1)}), lambda: run(chain, member, next(batches)))
    propose(folder, asked({"score": giving(2)}, on_error="revert"))
    folder.decide(2, APPLIED)
    folder.revert(2, FAILED)
    return ground


READERS = {
    "group.json": Folder.check,
    "chains/score/chain.json": lambda folder: folder.declaration("score"),
    "chains/score/workers/q/0.json": Folder.workers,
    "changes/000002/proposed.json": lambda folder: folder.change(2),
    "changes/000002/decided.json": lambda folder: folder.change(2),
    "changes/000002/reverted.json": lambda folder: folder.change(2),
    "changes/000001/words/score@q@0.running.json": lambda folder: folder.said(1),
    "batches/q/0.json": lambda folder: folder.sealed("q", 0),
    "measured/q/0/score.0.json": Folder.measures,
}


@pytest.mark.parametrize("path", READERS)
def test_a_file_that_ends_anywhere_is_refused_with_its_path(ground: Ground, path: str) -> None:
    whole = ground.text(path)
    read = READERS[path]
    before = read(ground.folder)
    for end in range(len(whole.rstrip())):
        ground.text(path, whole[:end])
        with pytest.raises(FormatError) as refused:
            read(ground.folder)
        assert refused.value.path == f"{GROUP}/{path}"
    ground.text(path, whole)
    assert read(ground.folder) == before


@pytest.mark.parametrize(
    "path", sorted(set(READERS) - {"group.json", "changes/000002/proposed.json"})
)
def test_a_damaged_file_comes_with_a_way_out(ground: Ground, path: str) -> None:
    ground.text(path, b"\xff{")
    with pytest.raises(FormatError) as refused:
        READERS[path](ground.folder)
    assert refused.value.hint


def test_a_damaged_proposal_that_nobody_applied_is_a_change_of_nothing(ground: Ground) -> None:
    folder = ground.folder
    change = propose(folder, asked({"score": giving(3)}))
    whole = ground.text("changes/000003/proposed.json")
    for end in range(len(whole.rstrip())):
        ground.text("changes/000003/proposed.json", whole[:end])
        known = folder.change(3)
        assert known is not None and not known.change.chains and known.change.expires == 0.0
    ground.text("changes/000003/proposed.json", whole)
    known = folder.change(3)
    assert known is not None and known.change == change


def test_a_proposal_under_another_number_is_no_proposal(ground: Ground) -> None:
    ground.text("changes/000003/proposed.json", ground.text("changes/000001/proposed.json"))
    known = ground.folder.change(3)
    assert known is not None and known.change.act == "damaged"


def test_files_that_somebody_else_has_put_there_are_passed_over(ground: Ground) -> None:
    folder = ground.folder
    before = (folder.batches(), folder.workers(), folder.measures(), folder.said(1))
    for path in (
        "batches/readme.txt",
        "batches/q/.0.json.crc",
        "batches/q/²",
        "chains/score/workers/q/.0.json.crc",
        "measured/q/0/.crc",
        "measured/q/notes/x",
        "changes/000001/words/notes.txt",
        "states/q/score/.5.crc",
    ):
        ground.text(path, b"?")
    assert (folder.batches(), folder.workers(), folder.measures(), folder.said(1)) == before
    assert folder.state_batches("q", "score") == ()
    folder.forget_before("q", 1000)
    assert folder.batches() == {}


def test_of_two_decisions_the_first_one_holds() -> None:
    folder = Ground().folder
    assert folder.decide(1, APPLIED) == APPLIED
    assert folder.decide(1, ABORTED) == APPLIED
    assert folder.decide(2, ABORTED) == ABORTED
    assert folder.decide(2, APPLIED) == ABORTED


def test_of_two_seals_of_a_batch_the_first_one_holds() -> None:
    folder = Ground().folder
    assert folder.seal("q", 7, Seal(1, 1.0)) == Seal(1, 1.0)
    assert folder.seal("q", 7, Seal(2, 2.0)) == Seal(1, 1.0)


def test_a_change_that_holds_for_good_is_not_taken_back() -> None:
    folder = Ground().folder
    assert folder.keep(1) is None
    assert folder.revert(1, FAILED) is None
    assert folder.reverted(1) is None
    assert folder.revert(2, FAILED) == FAILED
    assert folder.keep(2) == FAILED
    assert folder.reverted(2) == FAILED


def test_a_second_proposal_of_one_number_leaves_the_first_ones_signature() -> None:
    folder = Ground().folder
    first = ProposedChange("g", 1, "replace", {}, 1.0, 60.0)
    folder.propose(first, b"mine")
    with pytest.raises(AlreadyThere):
        folder.propose(ProposedChange("g", 1, "remove", {}, 1.0, 60.0), b"yours")
    assert folder.signature(1, folder.proposal(1)) == b"mine"


def test_code_that_was_damaged_is_whole_once_it_is_shipped_again(ground: Ground) -> None:
    package = code.package(giving(1))
    ground.text(f"code/{package.digest}", package.content[:-1])
    ground.folder.write_code(package.digest, package.content)
    assert ground.folder.code(package.digest) == package.content


def test_a_newer_group_is_refused_before_anything_is_written() -> None:
    ground = Ground()
    ground.text("group.json", b'{"id": "g", "format": "stateshift-live", "version": 2, "bins": 1}')
    before = ground.disk.snapshot()
    with pytest.raises(UnknownVersion) as refused:
        ground.chain()
    assert "upgrade the program" in str(refused.value.hint)
    assert ground.disk.snapshot() == before


def test_a_folder_without_a_group_is_refused_with_how_one_is_made() -> None:
    with pytest.raises(PlanError, match="is no group") as refused:
        Ground().folder.check()
    assert "live.chain" in str(refused.value.hint)


def test_a_storage_on_which_two_can_create_one_file_is_refused() -> None:
    disk = MemoryDisk()
    ground = Ground(disk)
    ground.chain()
    before = disk.snapshot()
    shared = Ground(disk, SharedCreates(disk, GROUP))
    for ask in (lambda: shared.chain("rules"), shared.folder.check):
        with pytest.raises(PlanError, match="cannot create a file exclusively") as refused:
            ask()
        assert "HDFS" in str(refused.value.hint)
    assert disk.snapshot() == before


def test_chains_whose_names_are_alike_to_a_path_are_kept_apart() -> None:
    ground = Ground()
    names = ["a.b", "a@b", "a b", "..", "ä", "a%2Eb"]
    for name in names:
        ground.chain(name)
    assert ground.folder.chains() == tuple(sorted(names))


def _write_often(location: str) -> None:
    folder = Folder(LocalStorage(location))
    said = word_of(TaskPlace(ChainWorker("score", "q", 0), 1), "registered")
    for _ in range(200):
        folder.register(said)


@pytest.mark.long
def test_processes_that_write_one_file_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write_often, args=(str(tmp_path),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(Folder(LocalStorage(str(tmp_path))).workers()) == 1
