"""The journal: its lines, its fold, and what a kill leaves of it."""

from __future__ import annotations

import zlib

import pytest

from stateshift.errors import JournalError, StorageError
from stateshift.journal import (
    SEEN_KEPT,
    Journal,
    PlanAdopted,
    PlanFinished,
    Record,
    RollbackStarted,
    RoundSeen,
    RunFailed,
    RunFinished,
    RunResumed,
    RunRolledBack,
    RunStarted,
    StepFinished,
    StepStarted,
    StepUndone,
    decode_records,
    encode_record,
    fold,
)
from stateshift.step import FileEvidence
from stateshift.step.evidence import FilesWritten, OtherEvidence
from stateshift.survey import Left
from tests.support.steps import KeptLines

WHOLE: tuple[Record, ...] = (
    RunStarted(1.0, "r1", "0.1.0", "abc", ("orders",)),
    PlanAdopted(2.0, 0, "orders", "move", "f00", 2),
    StepStarted(3.0, 0, "copy", "copy/0"),
    StepFinished(4.0, 0, "copy/0", 1.0, 5, 100, FilesWritten((FileEvidence("a", 1, "ü"),))),
    StepStarted(5.0, 0, "publish", "publish/0"),
    StepFinished(6.0, 0, "publish/0", 1.0, 1, 10, OtherEvidence()),
    PlanFinished(7.0, 0),
    RunFinished(8.0),
)


def lines(records: tuple[Record, ...]) -> bytes:
    return b"".join(encode_record(record) for record in records)


def test_what_is_written_is_read_back() -> None:
    assert decode_records(lines(WHOLE)) == (list(WHOLE), len(lines(WHOLE)))


def test_the_fold_of_a_whole_run_is_finished() -> None:
    progress = fold(iter(WHOLE))
    assert (progress.state, progress.run, progress.jobs) == ("finished", "r1", ("orders",))
    assert progress.plans[0].finished("copy/0")
    assert progress.plans[0].finished_at == 7.0


def test_a_journal_cut_at_any_byte_is_the_fold_of_its_whole_lines() -> None:
    content = lines(WHOLE)
    for size in range(len(content) + 1):
        kept = KeptLines(content[:size])
        journal = Journal(kept)
        whole = content[:size].count(b"\n")
        assert journal.progress == fold(iter(WHOLE[:whole])), f"cut at byte {size}"
        assert kept.content == content[:size], (
            "reading a journal changes nothing: another may be writing it"
        )


def test_a_torn_line_is_dropped_before_the_next_is_written() -> None:
    kept = KeptLines(lines(WHOLE[:3]) + encode_record(WHOLE[3])[:-1])
    Journal(kept).append(WHOLE[3])
    assert kept.content == lines(WHOLE[:4])


class FillingLines(KeptLines):
    """A disk that is full when it is half-way through a line, until somebody makes room."""

    full = False

    def append(self, line: bytes) -> None:
        if self.full:
            super().append(line[: len(line) // 2])
            raise StorageError("no space left")
        super().append(line)


def test_a_line_that_a_full_disk_cut_short_does_not_damage_the_next() -> None:
    kept = FillingLines(lines(WHOLE[:2]))
    journal = Journal(kept)
    kept.full = True
    with pytest.raises(StorageError):
        journal.append(WHOLE[2])
    assert journal.progress == fold(iter(WHOLE[:2])), "what is not on disk did not happen"
    kept.full = False
    journal.append(WHOLE[2])
    assert kept.content == lines(WHOLE[:3])


def test_a_damaged_record_in_the_middle_is_refused_and_named() -> None:
    content = bytearray(lines(WHOLE))
    content[len(lines(WHOLE[:2])) + 30] ^= 1
    with pytest.raises(JournalError, match="record 2 of the journal is damaged") as caught:
        Journal(KeptLines(bytes(content)))
    assert caught.value.exit_code == 8


def test_records_that_cannot_follow_are_a_foreign_journal() -> None:
    with pytest.raises(JournalError, match="step-finished"):
        fold(iter((WHOLE[0], WHOLE[3])))
    with pytest.raises(JournalError, match="run-started"):
        fold(iter((WHOLE[0], WHOLE[0])))
    with pytest.raises(JournalError, match="run-resumed"):
        fold(iter((*WHOLE, RunResumed(9.0))))


def test_a_failed_run_can_be_resumed_and_a_resumed_one_finished() -> None:
    failed = (*WHOLE[:3], RunFailed(4.0, "StorageError", "disk full", None, 6))
    assert fold(iter(failed)).state == "failed"
    resumed = (*failed, RunResumed(5.0), *WHOLE[2:])
    assert fold(iter(resumed)).state == "finished"


def test_ctrl_c_is_an_interruption_not_a_failure() -> None:
    assert (
        fold(iter((*WHOLE[:3], RunFailed(4.0, "Interrupted", "stop", None, 130)))).state
        == "interrupted"
    )


def test_a_rolled_back_run_says_what_it_had_to_leave() -> None:
    back = (
        *WHOLE,
        RollbackStarted(9.0),
        StepUndone(10.0, 0, "copy/0", ("x: changed",)),
        RunRolledBack(11.0),
    )
    progress = fold(iter(back))
    assert progress.state == "rolled-back"
    assert progress.plans[0].steps["copy/0"].left == ("x: changed",)


def test_plans_that_are_forgotten_keep_their_numbers_and_nothing_else() -> None:
    kept, left = KeptLines(), Left(1, 3, 1, 10, 0.5)
    journal = Journal(kept)
    journal.append(RunStarted(1.0, "r1", "0.1", "abc", ("orders",)))
    for number in range(6):
        journal.append(PlanAdopted(2.0, number, "orders", "warm", f"f{number}", 1))
        journal.append(StepStarted(3.0, number, "copy", "copy/0"))
        journal.append(StepFinished(4.0, number, "copy/0", 1.0, 5, 100, FilesWritten(())))
        journal.append(PlanFinished(5.0, number))
        journal.append(RoundSeen(5.0, "orders", left))
    journal.forget({1, 2, 4}, "orders")
    for progress in (
        journal.progress,
        Journal(kept).progress,
        fold(iter(decode_records(kept.content)[0])),
    ):
        assert [plan.plan for plan in progress.known] == [0, 3, 5]
        assert len(progress.plans) == 6
        assert [plan.fingerprint for plan in progress.plans_of(("orders",))] == ["f0", "f3", "f5"]
    journal.append(PlanAdopted(6.0, 6, "orders", "warm", "f6", 1))
    assert journal.progress.forgotten == {"orders": 2}
    journal.forget({3, 5}, "orders")
    again = Journal(kept).progress
    assert [plan.plan for plan in again.known] == [0, 6] and len(again.plans) == 7
    assert len(again.seen) == 6 and again.forgotten == {"orders": 3}


def test_looks_of_long_ago_are_forgotten_with_the_plans() -> None:
    kept = KeptLines()
    journal = Journal(kept)
    journal.append(RunStarted(1.0, "r1", "0.1", "abc", ("orders",)))
    for number in range(3 * SEEN_KEPT):
        journal.append(RoundSeen(float(number), "orders", Left(number, 3, 1, 10, 0.5)))
    journal.forget((), "orders")
    assert [seen.left.round for seen in journal.progress.seen] == list(
        range(2 * SEEN_KEPT, 3 * SEEN_KEPT)
    )


def test_a_record_of_another_version_is_no_damage() -> None:
    text = b'{"at":1.0,"by":{},"kind":"run-finished"}'
    line = b"%08x %s\n" % (zlib.crc32(text), text)
    with pytest.raises(JournalError, match=r"of another version of stateshift: .*no 'by'"):
        decode_records(line)
