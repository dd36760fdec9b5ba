"""A worker: it acknowledges what it can run, refuses the rest with the reason, and goes on."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

import pyarrow
import pytest

from stateshift.errors import FormatError, StorageError
from stateshift.live import code
from stateshift.live.code import Package
from stateshift.live.folder import Seal
from stateshift.live.member import Group
from stateshift.live.proposals import ChangeRequest
from stateshift.live.protocol.chains import Decision, Link, NewChain, ProposedChange, Reversal
from tests.live.ground import GROUP, Ground, asked, giving, numbers, propose, raising, run, running
from tests.live.ground import rows as some_rows

APPLIED = Decision("applied", 1.0, "me")


@pytest.fixture
def ground() -> Ground:
    return Ground()


def words(ground: Ground, number: int = 1) -> list[tuple[str, str]]:
    return [(said.word, said.reason) for said in ground.folder.said(number)]


def shipped(package: Package) -> ChangeRequest:
    """A change to a package that nobody has checked."""
    links = (Link(package.digest, package.name),)
    return ChangeRequest("replace", {"score": NewChain(links)}, "epoch", (package,))


def test_a_worker_acknowledges_a_change_and_runs_it_once_it_is_decided(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    assert numbers(run(chain, member, 0)) == [0, 0]
    propose(ground.folder, asked({"score": giving(1)}))
    assert numbers(run(chain, member, 1)) == [0, 0]
    assert words(ground) == [("acknowledged", "")]
    ground.folder.decide(1, APPLIED)
    assert numbers(run(chain, member, 2)) == [1, 1]
    assert ("running", "") in words(ground)


def test_a_worker_of_another_chain_acknowledges_too(ground: Ground) -> None:
    ground.chain("score")
    other, member = ground.chain("rules"), ground.member()
    propose(ground.folder, asked({"score": giving(1)}))
    run(other, member, 0)
    assert [said.chain for said in ground.folder.said(1)] == ["rules"]


def _as_pickle(payload: bytes) -> Package:
    header = code.package(giving(1)).content.partition(b"\n")[0]
    return _packed(header + b"\n" + payload)


def _as_source(text: str) -> Package:
    header = json.loads(code.package(giving(1)).content.partition(b"\n")[0])
    header |= {"kind": "source", "name": "rules:score"}
    return _packed(json.dumps(header).encode() + b"\n" + text.encode())


def _made_by(**versions: str) -> Package:
    header, _, payload = code.package(giving(1)).content.partition(b"\n")
    return _packed(json.dumps(json.loads(header) | versions).encode() + b"\n" + payload)


def _packed(content: bytes) -> Package:
    import hashlib

    return Package(hashlib.sha256(content).hexdigest(), "rules:score", content)


def _text(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    return batch.append_column("k", pyarrow.array(["x"] * batch.num_rows, pyarrow.string()))


UNFIT: dict[str, tuple[Callable[[], Package], str]] = {
    "of another type": (lambda: code.package(_text), "column k is string"),
    "without a column": (lambda: code.package(lambda batch: batch), "the columns are v"),
    "no rows": (lambda: code.package(lambda batch: None), "returned NoneType"),
    "failing on no rows": (lambda: code.package(lambda batch: 1 / 0), "fails on no rows"),
    "no pickle": (lambda: _as_pickle(b"\x80\x04garbage"), "cannot be loaded"),
    "half a pickle": (lambda: _as_pickle(b"\x80\x04\x95\xff"), "cannot be loaded"),
    "no function": (lambda: _as_pickle(b"\x80\x04K\x07."), "is no function: int"),
    "no Python": (lambda: _as_source("def score(:"), "SyntaxError"),
    "an import that is not here": (
        lambda: _as_source("import no_such_library\ndef score(batch): return batch"),
        "No module named 'no_such_library'",
    ),
    "a module that leaves": (lambda: _as_source("import sys; sys.exit(3)"), "SystemExit"),
    "a module without it": (lambda: _as_source("x = 1"), "has no attribute 'score'"),
    "another Python": (lambda: _made_by(python="2.7"), "shipped with Python 2.7"),
    "another pyarrow": (lambda: _made_by(pyarrow="3"), "shipped with pyarrow 3"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_worker_refuses_what_it_cannot_run_and_goes_on(ground: Ground, name: str) -> None:
    make, reason = UNFIT[name]
    chain, member = ground.chain(), ground.member()
    run(chain, member, 0)
    propose(ground.folder, shipped(make()))
    assert numbers(run(chain, member, 1)) == [0, 0]
    ((word, said),) = words(ground)
    assert word == "refused"
    assert reason in said


def test_a_worker_refuses_code_whose_hash_is_not_its_name(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    package = code.package(giving(1))
    propose(ground.folder, shipped(package))
    ground.text(f"code/{package.digest}", code.package(raising()).content)
    assert numbers(run(chain, member, 0)) == [0, 0]
    ((word, reason),) = words(ground)
    assert (word, "hash is" in reason) == ("refused", True)


def test_a_worker_refuses_code_that_is_gone(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    package = code.package(giving(1))
    propose(ground.folder, shipped(package))
    ground.folder.storage.remove(f"code/{package.digest}")
    run(chain, member, 0)
    ((word, reason),) = words(ground)
    assert (word, "is not in" in reason) == ("refused", True)


def test_a_change_that_nobody_decides_is_aborted_by_a_worker(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    propose(ground.folder, asked({"score": giving(1)}, timeout_seconds=0.05))
    run(chain, member, 0)
    time.sleep(0.06)
    assert numbers(run(chain, member, 1)) == [0, 0]
    decided = ground.folder.decided(1)
    assert decided is not None and decided.outcome == "aborted"
    assert "nobody decided on it within 0.05 s" in decided.reason
    propose(ground.folder, asked({"score": giving(2)}))


def test_a_worker_whose_clock_is_ahead_aborts_nothing_before_its_time(ground: Ground) -> None:
    chain = ground.chain()
    yesterday = time.time() - 86_400.0
    what = asked({"score": giving(1)}, timeout_seconds=3600.0)
    for package in what.packages:
        ground.folder.write_code(package.digest, package.content)
    ground.folder.propose(
        ProposedChange(
            group=ground.folder.check(),
            number=1,
            act=what.act,
            chains=what.chains,
            at=yesterday,
            timeout_seconds=what.timeout_seconds,
        ),
        None,
    )
    assert numbers(run(chain, ground.member(), 0)) == [0, 0]
    assert ground.folder.decided(1) is None
    assert words(ground) == [("acknowledged", "")]


def test_a_decision_that_was_taken_in_time_is_not_aborted_afterwards(ground: Ground) -> None:
    chain = ground.chain()
    propose(ground.folder, asked({"score": giving(1)}, timeout_seconds=0.0))
    ground.folder.decide(1, APPLIED)
    assert numbers(run(chain, ground.member(), 0)) == [1, 1]


# ------------------------------------------------------------------------------------ batches


def test_a_batch_that_is_run_again_keeps_its_seal(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    run(chain, member, 0)
    propose(ground.folder, asked({"score": giving(1)}))
    ground.folder.decide(1, APPLIED)
    run(chain, member, 1)
    for again in (member, ground.member()):
        assert numbers(run(chain, again, 0)) == [0, 0]
        assert numbers(run(chain, again, 1)) == [1, 1]


def test_tasks_of_one_batch_run_one_version_whatever_is_decided_meanwhile(ground: Ground) -> None:
    chain, early, late = ground.chain(), ground.member(), ground.member()
    first = running(chain, early, 5, some_rows(1), some_rows(2), partition=0)
    assert numbers([next(first)]) == [0]
    propose(ground.folder, asked({"score": giving(1)}))
    ground.folder.decide(1, APPLIED)
    assert numbers(first) == [0]
    assert numbers(run(chain, late, 5, partition=1)) == [0, 0]
    assert numbers(run(chain, late, 6, partition=1)) == [1, 1]


def test_a_batch_that_was_sealed_with_a_change_that_is_gone_is_not_run(ground: Ground) -> None:
    chain = ground.chain()
    ground.folder.seal("q", 3, Seal(4, 1.0))
    with pytest.raises(FormatError, match="sealed with change 4") as refused:
        run(chain, ground.member(), 3)
    assert refused.value.hint


def test_a_change_by_message_holds_within_a_batch(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    batch = running(chain, member, 0, *(some_rows(n) for n in range(3)))
    assert numbers([next(batch)]) == [0]
    propose(ground.folder, asked({"score": giving(1)}, "message"))
    assert numbers([next(batch)]) == [0]
    ground.folder.decide(1, APPLIED)
    assert numbers(batch) == [1]
    measured = ground.folder.measures()[-1]
    assert [(ran.version, ran.rows) for ran in measured.ran] == [(0, 2), (1, 1)]


# ------------------------------------------------------------------------------------ damage


def test_a_damaged_proposal_is_aborted_and_the_batch_goes_on(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    propose(ground.folder, asked({"score": giving(1)}))
    ground.text("changes/000001/proposed.json", b'{"group": ')
    assert numbers(run(chain, member, 0)) == [0, 0]
    decided = ground.folder.decided(1)
    assert decided is not None
    assert (decided.outcome, decided.reason) == ("aborted", "its proposal cannot be read")
    propose(ground.folder, asked({"score": giving(2)}))
    ground.folder.decide(2, APPLIED)
    assert numbers(run(chain, member, 1)) == [2, 2]


def test_who_has_read_a_proposal_before_it_was_damaged_runs_what_is_decided(
    ground: Ground,
) -> None:
    chain, member = ground.chain(), ground.member()
    propose(ground.folder, asked({"score": giving(1)}))
    run(chain, member, 0)
    ground.text("changes/000001/proposed.json", b"")
    ground.folder.decide(1, APPLIED)
    assert numbers(run(chain, member, 1)) == [1, 1]
    with pytest.raises(FormatError, match=r"000001/proposed\.json"):
        run(chain, ground.member(), 2)


@pytest.mark.parametrize("path", ["batches/q/7.json", "changes/000001/decided.json"])
def test_a_damaged_seal_or_decision_stops_the_batch(ground: Ground, path: str) -> None:
    chain = ground.chain()
    propose(ground.folder, asked({"score": giving(1)}))
    ground.folder.decide(1, APPLIED)
    run(chain, ground.member(), 7)
    whole = ground.text(path)
    for end in range(0, len(whole.rstrip()), 7):
        ground.text(path, whole[:end])
        with pytest.raises(FormatError) as refused:
            run(chain, ground.member(), 7)
        assert refused.value.path == f"{GROUP}/{path}"
    ground.text(path, whole)
    assert numbers(run(chain, ground.member(), 7)) == [1, 1]


@pytest.mark.parametrize("what", ["registered", "word", "measured", "input", "chain"])
def test_what_a_worker_only_says_may_be_damaged(ground: Ground, what: str) -> None:
    path = {
        "registered": "chains/score/workers/q/0.json",
        "word": "changes/000001/words/score@q@0.acknowledged.json",
        "measured": "measured/q/0/score.0.json",
        "input": "chains/score/input.arrow",
        "chain": "chains/score/chain.json",
    }[what]
    chain = ground.chain()
    propose(ground.folder, asked({"score": giving(1)}))
    run(chain, ground.member(), 0)
    ground.text(path)
    ground.text(path, b"{")
    assert numbers(run(chain, ground.member(), 1)) == [0, 0]


# ------------------------------------------------------------------------------------ a full disk


def test_a_full_disk_keeps_no_batch_from_going_on_that_has_begun(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    batch = running(chain, member, 0, *(some_rows(n) for n in range(3)))
    assert numbers([next(batch)]) == [0]
    propose(ground.folder, asked({"score": giving(1)}))
    ground.disk.bytes_max = ground.disk.bytes
    assert numbers([next(batch)]) == [0]
    assert words(ground) == []
    ground.disk.bytes_max = None
    assert numbers(batch) == [0]
    assert words(ground) == [("acknowledged", "")]


def test_a_batch_whose_seal_cannot_be_written_does_not_begin(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    run(chain, member, 0)
    ground.disk.bytes_max = ground.disk.bytes
    with pytest.raises(StorageError, match="no space left"):
        run(chain, member, 1)
    assert numbers(run(chain, member, 0)) == [0, 0]
    ground.disk.bytes_max = None
    assert numbers(run(chain, member, 1)) == [0, 0]


# ------------------------------------------------------------------------------------ errors


def test_an_error_takes_a_change_back_that_wants_it_and_the_rows_run_on(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    run(chain, member, 0)
    propose(ground.folder, asked({"score": raising()}, on_error="revert"))
    ground.folder.decide(1, APPLIED)
    assert numbers(run(chain, member, 1)) == [0, 0]
    reverted = ground.folder.reverted(1)
    assert reverted is not None
    assert (reverted.chain, reverted.batch, reverted.error) == ("score", 1, "ValueError: no model")
    assert numbers(run(chain, ground.member(), 2)) == [0, 0]


def test_an_error_of_any_other_change_fails_the_batch(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    propose(ground.folder, asked({"score": raising()}))
    ground.folder.decide(1, APPLIED)
    with pytest.raises(ValueError, match="no model"):
        run(chain, member, 0)


def test_an_error_of_the_jobs_own_function_is_raised_as_it_is(ground: Ground) -> None:
    chain = ground.chain(functions=(raising("mine"),))
    with pytest.raises(ValueError, match="mine"):
        run(chain, ground.member(), 0)


def test_a_batch_in_which_a_change_of_two_chains_failed_is_run_as_a_whole(ground: Ground) -> None:
    one, two = ground.chain("one"), ground.chain("two")
    member, other = ground.member(), ground.member()
    what = asked({"one": giving(1), "two": raising()}, on_error="revert")
    propose(ground.folder, what)
    ground.folder.decide(1, APPLIED)
    assert numbers(run(one, member, 4)) == [1, 1]
    for _ in range(4):  # as Spark tries
        with pytest.raises(Exception, match="has failed and was taken back"):
            run(two, other, 4)
    propose(ground.folder, asked({"one": giving(9)}))
    ground.folder.decide(2, Decision("aborted", 1.0, "me"))
    with pytest.raises(Exception, match="has failed and was taken back"):
        run(one, ground.member(), 4)
    assert numbers(run(one, member, 4, run_id="again")) == [0, 0]
    assert numbers(run(two, other, 4, run_id="again")) == [0, 0]


def test_a_change_that_a_later_one_follows_does_not_take_itself_back(ground: Ground) -> None:
    chain, late = ground.chain(), ground.member()
    propose(ground.folder, asked({"score": raising()}, on_error="revert"))
    ground.folder.decide(1, APPLIED)
    batch = running(chain, late, 0)  # its first rows come later
    held = ground.folder.keep(1)  # as whoever applies the next change does first
    assert held is None
    with pytest.raises(ValueError, match="no model"):
        list(batch)
    assert ground.folder.reverted(1) is None


def test_a_worker_hears_of_a_reversal_before_it_takes_over_a_later_change(ground: Ground) -> None:
    score, rules = ground.chain("score"), ground.chain("rules")
    member = ground.member()
    propose(ground.folder, asked({"score": giving(1)}, on_error="revert"))
    ground.folder.decide(1, APPLIED)
    assert numbers(run(score, member, 0)) == [1, 1]
    ground.folder.revert(1, Reversal("score", "q", "run", 0, "ValueError", 1.0))
    propose(ground.folder, asked({"rules": giving(2)}))
    ground.folder.decide(2, APPLIED)
    assert numbers(run(rules, member, 1)) == [2, 2]
    fresh = ground.member()
    assert numbers(run(score, member, 1)) == numbers(run(score, fresh, 1)) == [0, 0]


# ------------------------------------------------------------------------------------ owners


@pytest.mark.parametrize(
    ("mode", "owner", "reason"),
    [(0o666, None, "others may write"), (0o660, None, "others may"), (None, "eve", "belongs to")],
)
def test_code_that_others_may_have_written_is_refused(
    ground: Ground, mode: int | None, owner: str | None, reason: str
) -> None:
    chain, member = ground.chain(), ground.member()
    package = code.package(giving(1))
    propose(ground.folder, shipped(package))
    storage = ground.disk.open(f"{GROUP}/code")
    owned = next(owned for owned in storage.owners() if owned.path == package.digest)
    storage.own(owned._replace(mode=mode, owner=owner))
    assert numbers(run(chain, member, 0)) == [0, 0]
    ((word, said),) = words(ground)
    assert (word, reason in said) == ("refused", True)


def test_owners_that_the_job_names_are_trusted(ground: Ground) -> None:
    chain = ground.chain()
    propose(ground.folder, asked({"score": giving(1)}))
    run(chain, ground.member(Group("")), 0)
    assert [word for word, _ in words(ground)] == ["refused"]
    run(chain, ground.member(Group("", owners=("us",))), 1, partition=1)
    assert sorted(word for word, _ in words(ground)) == ["acknowledged", "refused"]


# ------------------------------------------------------------------------------------ a driver


def test_threads_of_one_driver_take_each_change_over_once(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    for number in range(1, 31):
        propose(ground.folder, asked({"score": giving(number % 2)}))
        ground.folder.decide(number, APPLIED)
    member.bring("score", chain.own)
    started = threading.Barrier(4)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(partition: int) -> None:
        started.wait()
        run(chain, member, 0, partition=partition)

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    assert [known.number for known in member.log.changes] == list(range(1, 31))
