"""`stateshift live`: functions of running jobs change, by commands. The workers are played."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pyarrow
import pytest

from stateshift.live import acts, proposals
from stateshift.live.acts import Edit, Manner
from stateshift.live.cli.chains_text import progress
from stateshift.live.proposals import ChangeProgress
from stateshift.live.protocol.chains import ProposedChange
from tests.cli.support import Said, said
from tests.live.cli.live_group import FUNCTIONS, Played

LONG = ("--timeout", "30", "--wait", "30")
REVERTED = "ValueError: no model"


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """A query that has run a batch; the functions it may get lie in the working directory."""
    (tmp_path / "rules.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    query = Played(tmp_path)
    query.run_batch()
    return query


def live(act: str, played: Played, *words: str) -> Said:
    return said("live", act, played.location, *words)


def changed(played: Played, act: str, *words: str) -> Said:
    """A change while the query runs on."""
    with played.running():
        ran = live(act, played, *words, *LONG)
    assert not ran.code, ran.err
    return ran


def proposed(played: Played, timeout_seconds: float = 30.0) -> ProposedChange:
    """A change that somebody has asked for, and waits for no more."""
    manner = Manner(timeout_seconds=timeout_seconds)
    checked = acts.check(played.location, [Edit("score", "remove")], manner)
    return proposals.propose(checked.folder, checked.before, checked.asked)


# ------------------------------------------------------------------------------------ changes


def test_a_function_is_replaced_while_the_job_runs(played: Played) -> None:
    ran = changed(played, "replace", "score", "rules:two")
    assert "tests.live.cli.live_group:one" in ran.out and "rules:two" in ran.out
    assert "2 workers of 1 query to acknowledge it" in ran.out
    assert "types of score fit" in ran.out
    assert "epoch: no dataflow is given" in ran.out
    assert "change 1 is applied, and runs everywhere after" in ran.out
    assert "change 1: applied, running" in ran.err
    assert played.run_batch() == [2] * 8


def test_the_document_says_how_far_a_change_came(played: Played) -> None:
    done = changed(played, "replace", "score", "rules:two", "--json").document
    assert (done["state"], done["change"], done["versions"]) == ("finished", 1, {"score": 1})
    assert (done["workers"], done["acknowledged"], done["running"]) == (2, 2, 2)
    assert 0 < done["first_seconds"] <= done["delay_seconds"]
    (chain,) = done["chains"]
    assert chain["after"] == ["rules:two"] and chain["types_checked"]


def test_a_function_is_introduced_and_removed_by_its_place(played: Played) -> None:
    changed(played, "introduce", "score", "--before", "0", "rules:odd")
    assert played.run_batch() == [1] * 4
    changed(played, "introduce", "score", "rules:timed", "--around", "1")
    assert "1  rules:timed(tests.live.cli.live_group:one)" in live("status", played).out
    changed(played, "remove", "score", "--at", "0")
    assert played.run_batch() == [1] * 8


def test_a_chain_is_taken_back_to_what_it_was(played: Played) -> None:
    changed(played, "replace", "score", "rules:two")
    changed(played, "introduce", "score", "rules:odd", "--after", "0")
    assert played.run_batch() == [2] * 4
    changed(played, "revert", "score")
    assert played.run_batch() == [2] * 8
    changed(played, "revert", "score", "--to", "0")
    assert played.run_batch() == [1] * 8


def test_a_change_that_fails_at_once_says_that_it_was_taken_back(played: Played) -> None:
    with played.running():
        ran = live("replace", played, "score", "rules:raises", "--on-error", "revert", *LONG)
    assert ran.code == 7
    assert "change 1 was taken back by its first error" in ran.err and REVERTED in ran.err
    assert "running 2 of 2" not in ran.err
    assert "is applied" not in ran.out
    status = live("status", played, "--json").document
    (chain,) = status["chains"]
    assert chain["version"] == 0


def test_a_change_that_was_taken_back_before_anybody_looked_is_not_said_to_run(
    played: Played,
) -> None:
    def raises(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        if batch.num_rows:
            raise ValueError("no model")
        return batch

    edit = Edit("score", "replace", raises)
    checked = acts.check(played.location, [edit], Manner(on_error="revert"))
    seen: list[str] = []

    def hear(carried: ChangeProgress) -> None:
        seen.append(progress(carried))
        for _ in range(3):  # it is acknowledged, decided and taken back between two looks
            played.run_batch()

    acts.carry(checked, 30.0, hear)
    assert seen[-1] == "change 1: taken back by an error"
    assert not any("running 2 of 2" in line for line in seen)


def test_what_took_itself_back_is_not_what_is_taken_back(played: Played) -> None:
    changed(played, "replace", "score", "rules:two")
    with played.running():
        live("replace", played, "score", "rules:raises", "--on-error", "revert", *LONG)
        while played.folder.reverted(2) is None:
            time.sleep(0.01)
    changed(played, "revert", "score")
    assert played.run_batch() == [1] * 8


def test_a_check_tells_nobody(played: Played) -> None:
    before = sorted(file.path for file in played.folder.storage.list())
    ran = live("replace", played, "score", "rules:two", "--check")
    assert not ran.code and "nothing was proposed" in ran.out
    document = live("replace", played, "score", "rules:two", "--check", "--json").document
    assert (document["state"], document["change"]) == ("checked", None)
    assert document["versions"] == {"score": 0}
    assert sorted(file.path for file in played.folder.storage.list()) == before


def test_with_a_dataflow_that_allows_it_a_change_is_at_once(played: Played) -> None:
    Path("flow.json").write_text(
        json.dumps({"operators": [{"name": "read"}, {"name": "score"}], "edges": ["read -> score"]})
    )
    ran = changed(played, "replace", "score", "rules:two", "--dataflow", "flow.json")
    assert "fries: the dataflow shows that no record meets two of them" in ran.out
    assert "at once" in ran.out


def test_an_applied_change_that_is_not_seen_everywhere_exits_with_9_and_says_so(
    played: Played,
) -> None:
    with played.running(until=lambda: played.has_acknowledged(1)):
        ran = live("replace", played, "score", "rules:two", "--timeout", "30", "--wait", "0")
    assert ran.code == 9, ran.err
    assert "change 1 is applied" in ran.out
    assert f"Look again: stateshift live status {played.folder.location}" in ran.out


def test_without_workers_it_is_decided_only_if_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(FUNCTIONS)
    played = Played(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        refused = live("replace", played, "score", "rules:two")
        assert refused.code == 4 and "--unattended" in refused.err
        ran = live("replace", played, "score", "rules:two", "--unattended", "--timeout", "2")
    assert not ran.code, ran.err
    assert "types of score are not checked" in ran.out
    assert played.run_batch() == [2] * 8


# ------------------------------------------------------------------------------------ refused


def test_a_function_of_another_type_is_refused_before_anybody_is_told(played: Played) -> None:
    ran = live("replace", played, "score", "rules:words")
    assert ran.code == 4
    assert "column k is string, expected is int64" in ran.err
    assert not list(played.folder.changes())


def test_what_a_worker_refuses_is_aborted_with_its_reason(played: Played) -> None:
    def refusing() -> None:
        while played.folder.change(1) is None:
            time.sleep(0.005)
        for path in (Path(played.location) / "code").iterdir():
            path.write_bytes(b"damaged")
        played.run_batch()

    thread = threading.Thread(target=refusing)
    thread.start()
    ran = live("replace", played, "score", "rules:two", *LONG, "--json")
    thread.join()
    assert ran.code == 7
    document = ran.document
    assert (document["state"], document["exit_code"]) == ("aborted", 7)
    assert "its name is" in document["reason"]
    assert "error: change 1 is aborted, all run on as before: score-0: the code's hash" in ran.err
    assert "score-0 refused it: the code's hash" in live("history", played).out


def test_without_an_answer_in_time_a_change_is_aborted(played: Played) -> None:
    for change, seconds in enumerate(("0.2", "2", "20"), 1):
        ran = live("replace", played, "score", "rules:two", "--timeout", seconds)
        assert ran.code == 7
        assert f"score-0, score-1 did not answer within {seconds} s" in ran.err
        if f"change {change}: acknowledged 0 of 2" in ran.err:
            break
    else:  # a slow machine sees nothing before its time is over, but 20 s are enough
        raise AssertionError(ran.err)
    assert played.run_batch() == [1] * 8


def test_one_change_at_a_time_and_whoever_waits_may_abort_it(played: Played) -> None:
    proposed(played)
    second = live("replace", played, "score", "rules:two")
    assert second.code == 4
    assert f"hint: wait for it, or: stateshift live abort {played.folder.location}" in second.err
    ran = live("abort", played)
    assert not ran.code and "change 1 is aborted (remove score)" in ran.out
    assert live("abort", played).code == 4
    proposed(played)
    assert live("abort", played, "--json").document["change"] == 2


def test_two_functions_of_one_chain_are_replaced_and_a_stale_version_is_refused(
    played: Played,
) -> None:
    changed(played, "introduce", "score", "rules:two", "--after", "one")
    both = ("score", "rules:two", "score", "rules:odd", "--at", "one", "--at", "1")
    ran = live("replace", played, *both, "--expect", "0")
    assert ran.code == 4 and "score is at version 1, not 0" in ran.err and "--expect 1" in ran.err
    ran = changed(played, "replace", *both, "--expect", "1")
    assert "change 2 is applied, and runs everywhere after" in ran.out


def test_there_is_nothing_to_abort_where_the_last_change_is_applied(played: Played) -> None:
    changed(played, "replace", "score", "rules:two")
    ran = live("abort", played)
    assert ran.code == 4
    assert f"hint: stateshift live revert {played.folder.location} score" in ran.err


@pytest.mark.parametrize(
    ("argv", "fact"),
    [
        (("replace", "g", "score"), "'score' has no function behind it"),
        (("replace", "g", "a", "m:f", "b", "m:g", "--at", "0"), "--at: is about one chain"),
        (("replace", "g", "a", "m:f", "a", "m:g"), "'a' stands twice"),
        (("replace", "g", "a", "m:f", "a", "m:g", "--at", "1", "--at", "1"), "'a' stands twice"),
        (("replace", "g", "a", "m:f", "--scheduler", "naive"), "'naive' is not one of epoch"),
        (("replace", "g", "a", "m:f", "--on-error", "stop"), "'stop' is not one of fail, revert"),
        (("replace", "g", "a", "m:f", "--dataflow", "none.json"), "cannot be read"),
        (("replace", "g", "a", "m:f", "--timeout", "0"), "--timeout"),
        (("introduce", "g", "a", "m:f"), "name one place"),
        (("introduce", "g", "a", "m:f", "--before", "0", "--after", "0"), "more than one place"),
        (("introduce", "g", "a", "--before", "0"), "FUNCTION"),
        (("remove", "g"), "CHAIN"),
        (("revert", "g"), "CHAIN"),
        (("revert", "g", "a", "--to", "-1"), "--to"),
        (("stop", "g"), "there is no command 'stop'"),
        (("status",), "GROUP"),
    ],
)
def test_a_request_that_is_not_one_is_refused(argv: tuple[str, ...], fact: str) -> None:
    ran = said("live", *argv)
    assert ran.code == 2
    assert fact in ran.err


def test_a_function_that_is_none_is_refused(played: Played) -> None:
    for function in ("rules", "rules:nobody", "nowhere:two", "rules:NOTHING"):
        ran = live("replace", played, "score", function)
        assert ran.code in (2, 3), (function, ran.err)
    assert not list(played.folder.changes())


def test_a_place_that_is_no_group_is_refused(tmp_path: Path) -> None:
    for act in ("status", "history", "abort"):
        ran = said("live", act, str(tmp_path))
        assert ran.code == 4 and "is no group" in ran.err


def interrupting_once(is_time: Callable[[], bool]) -> threading.Thread:
    """Press Ctrl-C once it is time."""

    def press() -> None:
        while not is_time():
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Ctrl-C is heard, also where whoever started the tests had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
def test_who_interrupts_before_the_decision_aborts(played: Played) -> None:
    thread = interrupting_once(lambda: played.folder.change(1) is not None)
    ran = live("replace", played, "score", "rules:two", *LONG)
    thread.join()
    assert ran.code == 130
    assert "interrupted; change 1 is aborted, all run on as before" in ran.err
    assert played.run_batch() == [1] * 8


@pytest.mark.usefixtures("heard_interrupts")
def test_who_interrupts_after_the_decision_learns_how_to_look_and_how_to_go_back(
    played: Played,
) -> None:
    thread = interrupting_once(lambda: played.folder.decided(1) is not None)
    with played.running(until=lambda: played.has_acknowledged(1)):
        ran = live("replace", played, "score", "rules:two", *LONG)
    thread.join()
    assert ran.code == 130
    assert "interrupted; change 1 is applied" in ran.err
    assert f"take it back: stateshift live revert {played.folder.location} score" in ran.err
    assert played.run_batch() == [2] * 8


def test_who_proposes_nothing_has_nothing_to_take_back(played: Played) -> None:
    checked = acts.check(played.location, [Edit("score", "remove")], Manner())
    assert acts.withdraw(checked, "interrupted") is None


# ------------------------------------------------------------------------------------ looking


def test_the_history_says_of_every_change_what_became_of_it(played: Played) -> None:
    assert "nothing was changed yet" in live("history", played).out
    changed(played, "replace", "score", "rules:two")
    live("remove", played, "score", "--timeout", "0.2")
    with played.running():
        live("replace", played, "score", "rules:raises", "--on-error", "revert", *LONG)
        while played.folder.reverted(3) is None:
            time.sleep(0.01)
    told = live("history", played, "--json").document["changes"]
    assert [change["outcome"] for change in told] == ["applied", "aborted", "reverted"]
    assert told[2]["reason"] == REVERTED
    assert live("status", played, "--json").document["versions"] == {"score": 1}
    assert told[0]["chains"] == {"score": ["rules:two"]} and told[0]["delay_seconds"] > 0
    shown = live("history", played, "score").out
    assert "change 2 was aborted: score-0, score-1 did not answer within 0.2 s" in shown
    assert f"change 3 was taken back by an error: {REVERTED}" in shown
    assert live("history", played, "orders").code == 4


def test_the_status_says_what_runs_and_how_fast(played: Played) -> None:
    changed(played, "replace", "score", "rules:two")
    played.run_batch()
    document = live("status", played, "--json").document
    assert (document["state"], document["versions"]) == ("idle", {"score": 1})
    (query,) = document["queries"]
    assert (query["query"], query["workers"], query["version"]) == ("q", 2, 1)
    assert query["living"] and query["rows_in_per_second"] > 0 and query["task_seconds"] > 0
    shown = live("status", played).out
    assert "rules:two" in shown and "nothing is under way\nchange 1 is applied" in shown


def test_the_status_says_who_has_not_answered(played: Played) -> None:
    proposed(played)
    shown = live("status", played).out
    assert "change 1 is under way since" in shown
    assert "0 of 2" in shown and "score-0, score-1" in shown
    document = live("status", played, "--json").document
    assert document["state"] == "under-way"
    assert document["under_way"]["silent"] == ["score-0", "score-1"]


def test_the_first_time_that_a_worker_ran_a_change_counts(played: Played) -> None:
    changed(played, "replace", "score", "rules:two")
    (before,) = live("history", played, "--json").document["changes"]
    played.start_again()
    played.run_batch()
    (after,) = live("history", played, "--json").document["changes"]
    assert after["delay_seconds"] == before["delay_seconds"]


def test_the_page_shows_which_version_ran_when_and_how_fast(played: Played, tmp_path: Path) -> None:
    changed(played, "replace", "score", "rules:two")
    with played.running():
        live("replace", played, "score", "rules:raises", "--on-error", "revert", *LONG)
        while played.folder.reverted(2) is None:
            time.sleep(0.01)
    path = tmp_path / "page.html"
    ran = live("status", played, "--html", str(path))
    assert f"page: {path}" in ran.out
    page = path.read_text("utf-8")
    for words in ("score, in query q", "rows in, a second", "1 taken back by an error", REVERTED):
        assert words in page
    root = ElementTree.fromstring(re.sub("<(meta [^>]*)>", r"<\1/>", page.partition("\n")[2]))
    titles = [title.text or "" for title in root.iter("title")]
    for version in ("version 0: ", "version 1: ", "replace score reverted"):
        assert any(version in title for title in titles), titles
    assert not re.search(r"https?:|url\(|javascript:|<(script|link|img)\b", page)


def test_a_page_of_a_group_without_a_batch_says_so(tmp_path: Path) -> None:
    played = Played(tmp_path)
    assert not live("status", played, "--html", str(tmp_path / "page.html")).code
    assert "No task was measured yet." in (tmp_path / "page.html").read_text("utf-8")
    assert live("status", played, "--html", str(tmp_path / "no" / "page.html")).code == 6
