"""Changes of live groups keep the policies of new runs; what takes a change back is not asked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Said, said
from tests.cli.test_policy import put_rules
from tests.live.cli.bins_group import PlayedBins
from tests.live.cli.live_group import FUNCTIONS, Played
from tests.live.cli.test_chains import LONG, changed, live

pytestmark = pytest.mark.row("W-32")
ELSEWHERE = {"name": "there", "targets": ["s3://dr"], "say": "ask the platform team"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rules.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("STATESHIFT_POLICY", str(tmp_path / "policy.json"))
    put_rules()
    return tmp_path


@pytest.fixture
def played(place: Path) -> Played:
    query = Played(place)
    query.run_batch()
    return query


def refused(done: Said, rule: str, message: str) -> None:
    assert done.code == 4, done.err
    told = done.document
    assert (told["error"], told["rule"]) == ("PolicyError", rule)
    assert message in told["message"]


def closed() -> str:
    """Return hours in which it is not now."""
    hour = time.gmtime().tm_hour
    return f"{(hour + 3) % 24:02}:00-{(hour + 5) % 24:02}:00 UTC"


@pytest.mark.parametrize(
    ("rule", "message"),
    [(ELSEWHERE, "the group: its target is"), ({"name": "night", "hours": None}, "it is not")],
)
def test_a_change_that_breaks_a_rule_is_refused_and_nobody_is_told(
    played: Played, rule: dict[str, Any], message: str
) -> None:
    put_rules({**rule, "hours": closed()} if "hours" in rule else rule)
    before = sorted(Path(played.location.removeprefix("file://")).rglob("*"))
    for words in (
        ("replace", "score", "rules:two"),
        ("introduce", "score", "rules:two", "--before", "0"),
        ("remove", "score"),
    ):
        refused(live(words[0], played, *words[1:], "--json"), rule["name"], message)
    assert sorted(Path(played.location.removeprefix("file://")).rglob("*")) == before
    checked = live("replace", played, "score", "rules:two", "--check")
    assert checked.code == 0, checked.err
    assert played.run_batch() == [1] * 8


def test_a_change_is_taken_back_whatever_the_rules_say(played: Played) -> None:
    changed(played, "replace", "score", "rules:two")
    put_rules(ELSEWHERE)
    changed(played, "revert", "score")
    assert played.run_batch() == [1] * 8


def test_a_change_that_keeps_the_rules_is_made(played: Played, place: Path) -> None:
    put_rules({"name": "here", "targets": [f"file://{place}"]}, {**ELSEWHERE, "for": ["nobody-*"]})
    changed(played, "replace", "score", "rules:two")
    put_rules({**ELSEWHERE, "except_below": [f"file://{place}"]})
    changed(played, "remove", "score", "--at", "0")


def test_a_rule_wants_a_change_signed_with_its_key(played: Played) -> None:
    pytest.importorskip("cryptography")
    from tests.cli.test_signed_plans import new_keys

    new_keys("other")
    new_keys("lead")
    put_rules({"name": "reviewed", "signed_by": ["lead.pub"]})
    words = ("score", "rules:two", "--json")
    unsigned = live("replace", played, *words)
    refused(unsigned, "reviewed", "the change is not signed with a key of lead.pub")
    assert "--key FILE" in unsigned.document["hint"]
    refused(live("replace", played, *words, "--key", "other.key"), "reviewed", "other than lead")
    changed(played, "replace", *words, "--key", "lead.key")
    assert played.run_batch() == [2] * 8


def test_moves_of_bins_keep_the_rules_and_steering_is_not_asked(place: Path) -> None:
    workers = PlayedBins(place)
    put_rules(ELSEWHERE)
    move = ("live", "move", workers.location, "--to", "east", "--bins", "0-2")
    refused(said(*move, "--json"), "there", "the group: its target is")
    count = ("live", "bins", workers.location, "--to", "16", *LONG)
    refused(said(*count, "--json"), "there", "the group: its target is")
    assert said(*move, "--check").code == 0
    assert said("live", "bins", workers.location).code == 0
    assert said("live", "pause", workers.location).code == 0
    assert said("live", "resume", workers.location).code == 0


def test_a_policy_that_cannot_be_read_stops_changes_and_no_way_back(played: Played) -> None:
    changed(played, "replace", "score", "rules:two")
    Path("policy.json").write_text("{")
    done = live("remove", played, "score", "--json")
    assert (done.code, done.document["error"]) == (4, "PolicyError")
    changed(played, "revert", "score")
    assert json.loads(live("status", played, "--json").out)["chains"]
