"""Whoever changes a group: refused before anybody is told, and nothing is half decided."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.compute
import pytest

from stateshift import live
from stateshift.errors import (
    FormatError,
    Incompatible,
    PlanError,
    SpecError,
    StalePlan,
    StateshiftError,
    StorageError,
)
from stateshift.live import acts, code, proposals, state
from stateshift.live.acts import Edit, Manner
from stateshift.live.code import Package
from stateshift.live.member import Group, Member
from stateshift.live.proposals import ChangeRequest, Patience, read_group
from stateshift.live.protocol.chains import Decision, Link, NewChain, Reversal
from stateshift.live.task import Chain
from tests.live.ground import (
    SCHEMA,
    Ground,
    asked,
    change,
    giving,
    numbers,
    propose,
    raising,
    run,
    running,
)

APPLIED = Decision("applied", 1.0, "me")


class Job:
    """A query with one chain that begins a batch whenever it is asked to."""

    def __init__(self, ground: Ground, *names: str) -> None:
        self.ground = ground
        self.chains = [ground.chain(name) for name in names or ("score",)]
        self.member = ground.member()
        self.batch = -1
        self.work()

    def work(self) -> list[int]:
        """Run a batch; return which functions its rows met."""
        self.batch += 1
        found: list[int] = []
        for chain in self.chains:
            found += numbers(run(chain, self.member, self.batch))
        return found


@pytest.fixture
def ground() -> Ground:
    return Ground()


@pytest.fixture
def job(ground: Ground) -> Job:
    return Job(ground)


def changes_under_way(ground: Ground) -> list[str]:
    return [path for path in ground.disk.snapshot() if "/changes/" in path]


# ------------------------------------------------------------------------------------ before


def _text(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    values = pyarrow.array(["x"] * batch.num_rows, pyarrow.string())
    return batch.append_column("k", values)


def _shipped(content: bytes) -> ChangeRequest:
    package = Package(hashlib.sha256(content).hexdigest(), "rules:score", content)
    return ChangeRequest(
        "replace", {"score": NewChain((Link(package.digest, package.name),))}, "epoch", (package,)
    )


def _header(**more: str) -> bytes:
    header = json.loads(code.package(giving(1)).content.partition(b"\n")[0])
    return json.dumps(header | more).encode() + b"\n"


@pytest.mark.parametrize(
    ("what", "expected", "fact"),
    [
        (lambda: asked({"score": _text}), Incompatible, "column k is string, expected is int64"),
        (lambda: asked({"score": lambda batch: batch}), Incompatible, "the columns are v"),
        (lambda: asked({"score": lambda batch: 1 / 0}), Incompatible, "ZeroDivisionError"),
        (lambda: _shipped(_header() + b"garbage"), FormatError, "cannot be loaded"),
        (lambda: _shipped(_header(python="2.7")), Incompatible, "Python 2.7"),
        (lambda: _shipped(_header(pyarrow="3")), Incompatible, "pyarrow 3"),
        (lambda: asked({"scor": giving(1)}), PlanError, "no chain 'scor'"),
    ],
)
def test_what_does_not_fit_is_refused_before_anybody_is_told(
    ground: Ground, job: Job, what: object, expected: type[StateshiftError], fact: str
) -> None:
    before = ground.disk.snapshot()
    with pytest.raises(expected) as refused:
        change(ground.folder, what())  # type: ignore[operator]
    assert fact in refused.value.fact
    assert refused.value.hint
    assert ground.disk.snapshot() == before
    assert job.work() == [0, 0]


def test_a_job_of_another_python_takes_no_pickled_function(ground: Ground, job: Job) -> None:
    folder = ground.folder
    declaration = folder.declaration("score")
    assert declaration is not None
    for other in (replace(declaration, python="3.99"), replace(declaration, pyarrow="1")):
        folder.declare(other)
        with pytest.raises(Incompatible, match="the job of score has") as refused:
            change(folder, asked({"score": giving(1)}))
        assert "run this command with" in str(refused.value.hint)
    assert changes_under_way(ground) == []


def test_a_hash_that_is_not_its_name_is_refused(ground: Ground, job: Job) -> None:
    what = asked({"score": giving(1)})
    (package,) = what.packages
    wrong = replace(what, packages=(replace(package, content=package.content + b"x"),))
    with pytest.raises(FormatError, match="hash is"):
        change(ground.folder, wrong)
    assert changes_under_way(ground) == []


def test_a_chain_that_nobody_runs_is_refused_unless_it_is_asked_for(ground: Ground) -> None:
    ground.chain()
    with pytest.raises(PlanError, match="no worker of score has had rows") as refused:
        change(ground.folder, asked({"score": giving(1)}))
    assert "--unattended" in str(refused.value.hint)
    carried = change(ground.folder, asked({"score": giving(1)}, unattended=True))
    assert carried.decided is not None and carried.decided.outcome == "applied"


def test_a_full_disk_is_said_before_anything_changes(ground: Ground, job: Job) -> None:
    ground.disk.bytes_max = ground.disk.bytes
    with pytest.raises(StorageError, match="no space left") as refused:
        change(ground.folder, asked({"score": giving(1)}))
    assert "nothing has changed" in str(refused.value.hint)
    assert changes_under_way(ground) == []
    ground.disk.bytes_max = None
    assert change(ground.folder, asked({"score": giving(1)}), job.work).state == "finished"


@pytest.mark.parametrize("left", range(0, 3000, 250))
def test_a_disk_that_fills_up_on_the_way_leaves_nothing_under_way(
    ground: Ground, job: Job, left: int
) -> None:
    ground.disk.bytes_max = ground.disk.bytes + left
    try:
        propose(ground.folder, asked({"score": giving(1)}, timeout_seconds=0.0))
    except StorageError:
        assert ground.folder.change(1) is None
    ground.disk.bytes_max = None
    job.work()
    assert change(ground.folder, asked({"score": giving(2)}), job.work).state == "finished"
    assert job.work() == [2, 2]


# ------------------------------------------------------------------------------------ chains


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"schema": pyarrow.schema([("v", pyarrow.int64())])}, "schema"),
        ({"stamp": "k"}, "stamp"),
        ({"follow": "v"}, "follow"),
    ],
)
def test_two_chains_of_one_name_are_refused(
    ground: Ground, more: dict[str, object], what: str
) -> None:
    ground.chain("score")
    before = ground.disk.snapshot()
    with pytest.raises(PlanError, match=f"with another {what}") as refused:
        ground.chain("score", functions=(), **more)
    assert "another name" in str(refused.value.hint)
    assert ground.disk.snapshot() == before


def test_a_job_that_is_started_again_may_bring_other_functions(ground: Ground) -> None:
    ground.chain("score", 1)
    ground.chain("score", 2)
    ground.chain("score", functions=(giving(1), giving(2)))
    propose(ground.folder, asked({"score": giving(3)}))
    ground.chain("score", functions=(giving(4), giving(5)))
    with pytest.raises(PlanError, match="the job now brings 1"):
        ground.chain("score", 6)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 101, "ä" * 20])
def test_a_name_that_files_cannot_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no name of a chain"):
        live.chain(name, str(tmp_path / "group"), SCHEMA)
    assert not (tmp_path / "group").exists()


def test_only_a_chain_of_foreach_batch_keeps_a_state(tmp_path: Path) -> None:
    keep = live.stateful("last")(lambda batch, state: (batch, state))
    with pytest.raises(SpecError, match="only a chain of foreachBatch"):
        live.chain("score", str(tmp_path / "group"), SCHEMA, keep)
    live.chain("score", str(tmp_path / "group"), None, keep)


# ------------------------------------------------------------------------------------ deciding


def test_a_refusal_aborts_the_change_with_its_reason_and_the_job_goes_on(
    ground: Ground, job: Job
) -> None:
    def damage_and_work() -> None:
        package = asked({"score": giving(1)}).packages[0]
        ground.text(f"code/{package.digest}", b"?")
        job.work()

    carried = change(ground.folder, asked({"score": giving(1)}), damage_and_work)
    assert carried.state == "aborted"
    assert carried.decided is not None and carried.decided.outcome == "aborted"
    assert "score-0: the code's hash is" in carried.decided.reason
    assert job.work() == [0, 0]
    assert change(ground.folder, asked({"score": giving(1)}), job.work).state == "finished"
    assert job.work() == [1, 1]


def test_a_worker_that_cannot_import_what_a_module_imports_aborts_the_change(
    ground: Ground, job: Job
) -> None:
    text = b"import no_such_library\ndef score(batch): return batch\n"
    what = _shipped(_header(kind="source", name="rules:score") + text)
    now = read_group(ground.folder)
    proposed = proposals.propose(ground.folder, now, what)
    carried = proposals.follow(
        ground.folder, now, proposed, Patience(5.0), lambda carried: job.work()
    )
    assert carried.decided is not None and carried.decided.outcome == "aborted"
    assert "No module named 'no_such_library'" in carried.decided.reason


def test_a_change_that_nobody_answers_is_aborted_after_its_time(ground: Ground, job: Job) -> None:
    carried = change(ground.folder, asked({"score": giving(1)}, timeout_seconds=0.05))
    assert carried.decided is not None and carried.decided.outcome == "aborted"
    assert carried.decided.reason == "score-0 did not answer within 0.05 s"


def test_a_worker_without_a_task_is_not_waited_for(ground: Ground, job: Job) -> None:
    run(job.chains[0], job.member, 0, partition=7)
    carried = change(ground.folder, asked({"score": giving(1)}), job.work)
    assert (carried.state, carried.workers) == ("finished", 2)


def test_a_word_that_cannot_be_read_counts_as_not_said(ground: Ground, job: Job) -> None:
    def lie() -> None:
        if ground.folder.is_proposed(1):
            ground.text("changes/000001/words/score@q@0.acknowledged.json", b"{")

    what = asked({"score": giving(1)}, timeout_seconds=0.1)
    carried = change(ground.folder, what, lie)
    assert carried.decided is not None and carried.decided.outcome == "aborted"
    assert job.work() == [0, 0]


def test_of_two_controllers_one_proposes(ground: Ground, job: Job) -> None:
    now = read_group(ground.folder)
    proposals.propose(ground.folder, now, asked({"score": giving(1)}))
    with pytest.raises(PlanError, match="somebody else has proposed change 1") as refused:
        proposals.propose(ground.folder, now, asked({"score": giving(2)}))
    assert "live status" in str(refused.value.hint)
    with pytest.raises(PlanError, match="change 1 is under way") as refused:
        propose(ground.folder, asked({"score": giving(2)}))
    assert "live abort" in str(refused.value.hint)


def test_a_controller_goes_by_what_another_one_has_decided(ground: Ground, job: Job) -> None:
    decide_elsewhere = iter([True])

    def work() -> None:
        if next(decide_elsewhere, False):
            ground.folder.decide(1, Decision("aborted", 1.0, "somebody", "no"))
        job.work()

    carried = change(ground.folder, asked({"score": giving(1)}), work)
    assert carried.decided == Decision("aborted", 1.0, "somebody", "no")
    assert carried.state == "aborted"
    assert job.work() == [0, 0]


def test_who_finds_an_overdue_change_applied_looks_again(ground: Ground, job: Job) -> None:
    propose(ground.folder, asked({"score": giving(1)}, timeout_seconds=0.0))
    now = read_group(ground.folder)
    ground.folder.decide(1, APPLIED)
    with pytest.raises(StalePlan, match="applied in this moment"):
        proposals.propose(ground.folder, now, asked({"score": giving(2)}))
    assert ground.folder.change(2) is None


def test_an_abort_before_the_decision_holds(ground: Ground, job: Job) -> None:
    propose(ground.folder, asked({"score": giving(1)}))
    job.work()
    now = read_group(ground.folder)
    assert proposals.abort(ground.folder, now).decided is not None
    assert ground.folder.decide(1, APPLIED).outcome == "aborted"
    assert job.work() == [0, 0]
    with pytest.raises(PlanError, match="nothing is under way"):
        proposals.abort(ground.folder, read_group(ground.folder))


def test_an_abort_after_the_decision_changes_nothing(ground: Ground, job: Job) -> None:
    propose(ground.folder, asked({"score": giving(1)}))
    now = read_group(ground.folder)
    ground.folder.decide(1, APPLIED)
    with pytest.raises(PlanError, match="applied in this moment") as refused:
        proposals.abort(ground.folder, now)
    assert "live revert" in str(refused.value.hint)
    assert job.work() == [1, 1]


def test_an_abort_clears_a_proposal_that_cannot_be_read(ground: Ground, job: Job) -> None:
    ground.text("changes/000001/proposed.json", b"{")
    known = proposals.abort(ground.folder, read_group(ground.folder))
    assert (known.number, known.change.act) == (1, "damaged")
    assert change(ground.folder, asked({"score": giving(1)}), job.work).state == "finished"


def test_a_proposal_that_cannot_be_read_holds_up_no_other(ground: Ground, job: Job) -> None:
    ground.text("changes/000001/proposed.json", b"")
    carried = change(ground.folder, asked({"score": giving(2)}), job.work)
    assert (carried.change.number, carried.state) == (2, "finished")
    decided = ground.folder.decided(1)
    assert decided is not None and decided.reason == "its proposal cannot be read"


# ------------------------------------------------------------------------------------ going back


def test_a_query_that_goes_back_to_an_older_checkpoint_is_still_heard(
    ground: Ground, job: Job
) -> None:
    for path in list(ground.disk.snapshot(f"{ground.folder.location}/batches")):
        seal = json.loads(ground.text(f"batches/{path}"))
        ground.text(f"batches/{path}", json.dumps(seal | {"at": 1.0}).encode())
    assert read_group(ground.folder).queries("score") == {"q"}


def test_a_change_that_was_taken_back_in_this_moment_takes_the_next_one_along(
    ground: Ground, job: Job
) -> None:
    propose(ground.folder, asked({"score": raising()}, on_error="revert"))
    ground.folder.decide(1, APPLIED)

    late = ground.member()
    batch: Iterator[object] = running(job.chains[0], late, 99)

    def work() -> None:
        if ground.folder.decided(2) is None:
            list(batch)  # fails, and takes change 1 back
        job.work()

    carried = change(ground.folder, asked({"score": giving(2)}), work)
    assert carried.decided is not None and carried.decided.outcome == "aborted"
    assert "change 1 was taken back in this moment: ValueError: no model" in carried.decided.reason
    assert job.work() == [0, 0]


def test_once_a_later_change_is_applied_none_before_it_takes_itself_back(
    ground: Ground, job: Job
) -> None:
    propose(ground.folder, asked({"score": giving(1)}, on_error="revert"))
    ground.folder.decide(1, APPLIED)
    assert change(ground.folder, asked({"score": giving(2)}), job.work).state == "finished"
    late = Reversal("score", "q", "run", 1, "ValueError: late", 1.0)
    assert ground.folder.revert(1, late) is None
    assert job.work() == [2, 2]


def test_a_reversal_is_seen_by_who_read_the_change_before_it(ground: Ground, job: Job) -> None:
    propose(ground.folder, asked({"score": giving(1)}, on_error="revert"))
    ground.folder.decide(1, APPLIED)
    ground.folder.revert(1, Reversal("score", "q", "run", 1, "ValueError", 1.0))
    now = read_group(ground.folder)
    assert [str(link) for link in now.links("score")] == [code.name_of(giving(0))]


# ------------------------------------------------------------------------------------ acts


class Disk:
    """A group on the local disk, with a job of one chain."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.folder = acts.open_group(location)
        self.chain: Chain = live.chain("score", location, SCHEMA, giving(0))
        self.member = Member(self.folder, acts.open_group(f"{location}/code").storage, Group(""))
        self.batch = 0

    def work(self, *ignored: object) -> list[int]:
        """Run a batch."""
        self.batch += 1
        return numbers(run(self.chain, self.member, self.batch))


@pytest.fixture
def on_disk(tmp_path: Path) -> Disk:
    disk = Disk(str(tmp_path / "group"))
    disk.work()
    return disk


def test_a_chain_is_replaced_wrapped_and_reverted_on_a_local_disk(on_disk: Disk) -> None:
    edit = Edit("score", "replace", giving(1))
    assert acts.change(on_disk.location, [edit], Manner(), on_disk.work).carried is not None
    assert on_disk.work() == [1, 1]

    def twice(batch: pyarrow.RecordBatch, inner: code.Function) -> pyarrow.RecordBatch:
        return inner(inner(batch))

    around = Edit("score", "introduce", twice, 0, "around")
    acts.change(on_disk.location, [around], Manner(), on_disk.work)
    assert on_disk.work() == [1, 1]
    acts.change(on_disk.location, [Edit("score", "revert", to=0)], Manner(), on_disk.work)
    assert on_disk.work() == [0, 0]


def test_a_chain_that_took_its_change_back_is_not_reverted_once_more(on_disk: Disk) -> None:
    edit = Edit("score", "replace", giving(1))
    acts.change(on_disk.location, [edit], Manner(), on_disk.work)
    edit = Edit("score", "replace", raising())
    acts.change(on_disk.location, [edit], Manner(on_error="revert"), on_disk.work)
    assert on_disk.work() == [1, 1]
    acts.change(on_disk.location, [Edit("score", "revert")], Manner(), on_disk.work)
    assert on_disk.work() == [0, 0]
    with pytest.raises(PlanError, match="no function 5"):
        acts.change(on_disk.location, [Edit("score", "remove", at=5)], Manner())


def test_a_chain_is_named_once_in_a_change(on_disk: Disk) -> None:
    edits = [Edit("score", "replace", giving(1)), Edit("score", "remove", at=0)]
    with pytest.raises(PlanError, match="named twice"):
        acts.change(on_disk.location, edits, Manner())


def adding(number: int) -> code.Function:
    """Return a function that adds to k."""

    def add(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        if "k" not in batch.schema.names:
            return batch
        k = pyarrow.compute.add(batch["k"], number)
        return batch.set_column(batch.schema.names.index("k"), "k", k)

    return add


@pytest.fixture
def trio(on_disk: Disk) -> Disk:
    """A chain of three functions: 1 + 10 + 100."""
    for where, number in (("after", 10), ("after", 100)):
        edit = Edit("score", "introduce", adding(number), 0, where)  # type: ignore[arg-type]
        acts.change(on_disk.location, [edit], Manner(), on_disk.work)
    acts.change(on_disk.location, [Edit("score", "replace", giving(1), 0)], Manner(), on_disk.work)
    assert on_disk.work() == [111, 111]
    return on_disk


def test_two_functions_of_one_chain_change_together_by_places_that_do_not_shift(trio: Disk) -> None:
    both = [Edit("score", "replace", giving(2), 0), Edit("score", "replace", adding(20), 2)]
    acts.change(trio.location, both, Manner(), trio.work)
    assert trio.work() == [122, 122]
    mixed = [
        Edit("score", "introduce", adding(3000), 2, "after"),
        Edit("score", "remove", at=1),
        Edit("score", "replace", giving(5), 0),
    ]
    acts.change(trio.location, mixed, Manner(), trio.work)
    assert trio.work() == [3025, 3025]
    assert len(list(trio.folder.changes())) == 5, "each was one change"


def test_a_function_is_named_by_its_name(trio: Disk) -> None:
    names = [str(link) for link in read_group(trio.folder).links("score")]
    remove = Edit("score", "remove", at=names[0])
    with pytest.raises(PlanError, match="has 2 functions named"):
        acts.check(trio.location, [replace(remove, at=names[1])], Manner())
    with pytest.raises(PlanError, match="no functions named other"):
        acts.check(trio.location, [replace(remove, at="other")], Manner())
    short = names[0].rpartition(":")[2]
    edit = Edit("score", "replace", giving(7), short)
    acts.change(trio.location, [edit], Manner(), trio.work)
    assert trio.work() == [117, 117]


def test_a_chain_that_was_changed_since_is_refused_with_what_is_there_now(trio: Disk) -> None:
    edit = Edit("score", "remove", at=1)
    acts.check(trio.location, [edit], Manner(expect=3))
    for expected in (0, 2, 4):
        with pytest.raises(
            StalePlan, match=f"at version 3, not {expected}; its functions are now: 0 "
        ):
            acts.check(trio.location, [edit], Manner(expect=expected))
    other = live.chain("other", trio.location, SCHEMA, giving(0))
    assert other.name == "other"
    change = Edit("other", "replace", giving(1))
    acts.change(trio.location, [change], Manner(unattended=True), trio.work)
    acts.check(trio.location, [edit], Manner(expect=3))
    acts.check(trio.location, [edit], Manner(expect=4))
    trio.folder.revert(3, Reversal("score", "q", "run", 1, "ValueError", 1.0))
    with pytest.raises(StalePlan, match="at version 2, not 3"):
        acts.check(trio.location, [edit], Manner(expect=3))
    acts.check(trio.location, [edit], Manner(expect=2))


def test_a_change_that_transforms_a_state_does_not_take_itself_back(on_disk: Disk) -> None:
    edit = Edit("score", "replace", giving(1), state=lambda slot, kept: kept)
    with pytest.raises(PlanError, match="cannot take itself back"):
        acts.change(on_disk.location, [edit], Manner(on_error="revert"))
    with pytest.raises(PlanError, match="score keeps no state"):
        acts.change(on_disk.location, [edit], Manner())


# ------------------------------------------------------------------------------------ state


@pytest.mark.parametrize(
    ("transform", "expected", "fact"),
    [
        (lambda slot, kept: kept["no"], Incompatible, "cannot transform the state of query q"),
        (lambda kept: kept, Incompatible, "TypeError"),
        (lambda slot, kept: {1, 2}, PlanError, "nothing that JSON can say"),
        (lambda slot, kept: {1: 2}, PlanError, "a key is no text"),
    ],
)
def test_what_cannot_transform_the_states_there_are_is_refused(
    ground: Ground, transform: code.Function, expected: type[StateshiftError], fact: str
) -> None:
    chain = ground.chain("rules", schema=None)
    folder = ground.folder
    now = time.time()
    state.store(folder, "q", "rules", 3, state.SlotStates(0, {"last": [1]}, 0))
    ground.text(
        "chains/rules/workers/q/0.json",
        json.dumps(
            {
                "chain": chain.name,
                "query": "q",
                "partition": 0,
                "word": "registered",
                "at": now,
                "batch": 3,
                "host": "h",
                "process": 1,
            }
        ).encode(),
    )
    package = code.package(transform)
    new = NewChain((), state=Link(package.digest, package.name))
    what = ChangeRequest("replace", {"rules": new}, "epoch", (package,))
    with pytest.raises(expected) as refused:
        acts.check_request(folder, read_group(folder), what)
    assert fact in refused.value.fact
    assert refused.value.hint
