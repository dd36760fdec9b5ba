"""Which functions of a chain hold for which rows, and what becomes of a chain when it changes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stateshift.errors import FormatError, PlanError, UnknownVersion
from stateshift.live.protocol.chains import (
    ChangeLog,
    Decision,
    GroupFile,
    KnownChange,
    Link,
    Links,
    NewChain,
    ProposedChange,
    Reversal,
    RowMoment,
    When,
    decode,
    decode_group,
    effective,
    encode,
    introduce_link,
    links_at,
    newest,
    remove_link,
    replace_link,
    transforms,
)

FIRST = (Link("first:0", "one"),)
APPLIED = Decision("applied", 1.0, "me")
ABORTED = Decision("aborted", 1.0, "me", "no")


def change(number: int, when: When = "batch", decided: Decision | None = APPLIED) -> KnownChange:
    links = (Link(f"{number:064d}", f"f{number}"),)
    return KnownChange(
        ProposedChange("g", number, "replace", {"score": NewChain(links, when)}, 0.0, 60.0), decided
    )


def names(links: Links) -> list[str]:
    return [str(link) for link in links]


def test_a_batch_runs_what_it_was_sealed_with_whatever_is_decided_since() -> None:
    changes = [change(1), change(2), change(3)]
    assert effective(changes, "score", RowMoment(sealed=2, known=3)) == 2
    assert names(links_at(changes, "score", FIRST, 2)) == ["f2"]


def test_a_message_holds_as_soon_as_it_is_known() -> None:
    changes = [change(1), change(2, "message")]
    assert effective(changes, "score", RowMoment(sealed=1, known=2)) == 2


def test_a_row_that_carries_its_version_is_run_by_that_one() -> None:
    changes = [change(1), change(2, "column")]
    assert effective(changes, "score", RowMoment(sealed=2, known=2, column=1)) == 1
    assert effective(changes, "score", RowMoment(sealed=2, known=2, column=2)) == 2


def test_no_change_overtakes_one_before_it() -> None:
    changes = [change(1, "column"), change(2)]
    assert effective(changes, "score", RowMoment(sealed=2, known=2, column=0)) == 0


def test_a_change_that_is_aborted_or_taken_back_holds_nowhere_and_holds_nothing_up() -> None:
    failed = Reversal("score", "q", "r", 4, "ValueError: no", 2.0)
    changes = [change(1, decided=ABORTED), replace(change(2), reverted=failed), change(3)]
    assert effective(changes, "score", RowMoment(sealed=3, known=3)) == 3
    assert effective(changes[:2], "score", RowMoment(sealed=2, known=2)) == 0
    assert names(links_at(changes[:2], "score", FIRST, 2)) == ["one"]


def test_a_change_that_nobody_decided_holds_nowhere() -> None:
    changes = [change(1), change(2, decided=None)]
    assert effective(changes, "score", RowMoment(sealed=2, known=2)) == 1
    assert newest(changes) == 1


def test_a_chain_keeps_its_functions_while_another_one_changes() -> None:
    changes = [change(1)]
    assert names(links_at(changes, "rules", FIRST, 1)) == ["one"]
    assert effective(changes, "rules", RowMoment(sealed=1, known=1)) == 1


def test_the_state_is_transformed_by_all_that_lies_between() -> None:
    grow = Link("a" * 64, "grow")
    changes = [change(1)]
    for number in (2, 3):
        new = NewChain((), state=grow)
        changes.append(
            KnownChange(ProposedChange("g", number, "replace", {"score": new}, 0.0, 60.0), APPLIED)
        )
    assert transforms(changes, "score", 0, 3) == (grow, grow)
    assert transforms(changes, "score", 2, 3) == (grow,)
    assert transforms(changes, "rules", 0, 3) == ()


def test_functions_are_introduced_before_after_and_around_replaced_and_removed() -> None:
    one, two, new = Link("first:0", "one"), Link("first:1", "two"), Link("b" * 64, "new")
    links = (one, two)
    assert introduce_link("c", links, "before", 1, new) == (one, new, two)
    assert introduce_link("c", links, "after", 1, new) == (one, two, new)
    assert names(introduce_link("c", links, "around", 0, new)) == ["new(one)", "two"]
    assert introduce_link("c", (), "before", 0, new) == (new,)
    assert replace_link("c", links, 0, new) == (new, two)
    assert replace_link("c", (one,), None, new) == (new,)
    assert remove_link("c", links, 1) == (one,)


@pytest.mark.parametrize("at", [None, 2, -1])
def test_a_function_that_is_not_there_is_refused_with_those_there_are(at: int | None) -> None:
    links = (Link("first:0", "one"), Link("first:1", "two"))
    with pytest.raises(PlanError) as refused:
        replace_link("c", links, at, Link("b" * 64, "new"))
    assert "0 one, 1 two" in str(refused.value.hint)


def test_a_change_is_read_as_it_was_written() -> None:
    known = change(7)
    wrapped = replace(known.change, chains={"c": NewChain((Link("a", "x", FIRST[0]),), "message")})
    assert decode(ProposedChange, encode(wrapped), "p") == wrapped


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"number": 1}', b"[" * 9999])
def test_what_is_no_change_is_refused_with_its_path(content: bytes) -> None:
    with pytest.raises(FormatError) as refused:
        decode(ProposedChange, content, "changes/000001/proposed.json")
    assert refused.value.path == "changes/000001/proposed.json"


def test_a_group_of_a_newer_stateshift_is_refused_by_name_whatever_it_says_beside() -> None:
    newer = json.dumps({"id": "g", "format": "stateshift-live", "version": 2, "bins": []})
    with pytest.raises(UnknownVersion, match="newer stateshift"):
        decode_group(newer.encode(), "group.json")


@pytest.mark.parametrize("content", [encode(GroupFile("id", format="other")), b"[]", b"{", b"7"])
def test_what_is_no_group_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError) as refused:
        decode_group(content, "group.json")
    assert refused.value.path == "group.json"
    assert not isinstance(refused.value, UnknownVersion)


# ------------------------------------------------------------------------------------ the log

BROKEN = Reversal("score", "q", "run", 7, "ValueError", 1.0)


def logged(*ends: str) -> ChangeLog:
    """Return the log of changes that were applied, aborted, or may take themselves back."""
    log = ChangeLog()
    for end in ends:
        known = change(log.next, decided=ABORTED if end == "aborted" else APPLIED)
        if end in ("revertible", "reverted"):
            known = replace(known, change=replace(known.change, on_error="revert"))
        log = log.take_over(known)
        if end == "reverted":
            log = log.corrected(known.number, BROKEN)
    return log


@pytest.mark.parametrize(
    ("ends", "newest", "revertible", "taken_back"),
    [
        ((), 0, 0, 0),
        (("applied",), 1, 0, 0),
        (("applied", "aborted"), 1, 0, 0),
        (("revertible",), 1, 1, 0),
        (("revertible", "aborted"), 1, 1, 0),
        (("revertible", "applied"), 2, 0, 0),
        (("applied", "reverted"), 2, 0, 2),
        (("reverted", "applied"), 2, 0, 0),
    ],
)
def test_only_the_newest_change_can_take_itself_back(
    ends: tuple[str, ...], newest: int, revertible: int, taken_back: int
) -> None:
    log = logged(*ends)
    assert (log.newest, log.revertible, log.taken_back) == (newest, revertible, taken_back)


@pytest.mark.parametrize(
    ("ends", "failed", "version"),
    [
        (("applied", "applied"), None, 1),
        (("applied", "applied"), "score", 2),
        (("applied", "applied"), "other", 1),
        (("applied", "aborted"), "score", 1),
        (("applied", "reverted"), "score", 1),
    ],
)
def test_a_batch_that_failed_in_a_chain_is_run_again_with_what_the_chain_is_now(
    ends: tuple[str, ...], failed: str | None, version: int
) -> None:
    assert logged(*ends).version_again(1, failed) == version


def test_a_log_that_waits_for_a_decision_has_learnt_nothing_yet() -> None:
    log = logged("applied")
    waiting = log.await_decision(change(2).change)
    assert waiting.pending is not None and waiting.revision == log.revision
    after = waiting.take_over(change(2))
    assert (after.pending, after.revision, after.next) == (None, log.revision + 1, 3)
