"""A policy refuses a run before anything is touched, and names the rule; the journal says who ran what."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.cli.views.run_html import page
from stateshift.documents.run import RunFacts
from stateshift.errors import SpecError
from stateshift.migration.adapters import invocation
from stateshift.specification.policy import read_policy
from stateshift.workdir import Workdir
from tests.cli.support import TARGET, Outside, spec_of, with_checkpoint

pytestmark = pytest.mark.row("W-32")

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("STATESHIFT_POLICY", "policy.json")
    return with_checkpoint()


def put_rules(*rules: dict[str, Any]) -> None:
    Path("policy.json").write_text(json.dumps({"version": 1, "rules": rules}))


def apply(outside: Outside, **job: Any) -> Any:
    clusters = job.pop("clusters", [])
    on = job.pop("on", None)
    spec = {**spec_of(**job), "clusters": clusters, **({"on": on} if on else {})}
    Path("spec.json").write_text(json.dumps(spec))
    return outside.run("apply", "spec.json", "--yes", "--workdir", "run", "--json")


# The clock of these tests stands at 06:13 UTC.
BREACHES = [
    ({"hours": "22:00-06:00 UTC"}, {}, "it is not 22:00-06:00 UTC now"),
    ({"targets": ["hdfs://there:8020/other"]}, {}, f"Orders (eu): its target is {TARGET}"),
    ({"targets": [f"{TARGET}x"]}, {}, f"its target is {TARGET}"),
    ({"bytes_max": 10}, {}, "bytes would be written, and 10 are allowed"),
    ({"waive": []}, {"waive": ["paths-stay"]}, "Orders (eu) waives paths-stay"),
    ({"waive": ["zip-format"]}, {"waive": ["paths-stay"]}, "Orders (eu) waives paths-stay"),
    (
        {"commands": False},
        {
            "target_cluster": "b",
            "submit": {"command": "start"},
            "clusters": [{"name": "b", "kind": "command"}],
        },
        "cluster b is commands",
    ),
    ({"commands": False}, {"on": {"failed": {"command": ["true"]}}}, "on failed a command is run"),
    ({"at": ["hdfs://there:8020/ck"], "hours": "22:00-06:00 UTC"}, {}, "it is not 22:00-06:00"),
    ({"at": ["hdfs://here:8020"], "hours": "22:00-06:00 UTC"}, {}, "it is not 22:00-06:00"),
    ({"for": ["no-*", ME], "hours": "22:00-06:00 UTC"}, {}, "it is not 22:00-06:00"),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("rule", "job", "message"), BREACHES)
def test_a_run_that_breaks_a_rule_is_refused_by_its_name_and_touches_nothing(
    outside: Outside, rule: dict[str, Any], job: dict[str, Any], message: str
) -> None:
    put_rules({"name": "ours", "say": "ask the platform team", **rule})
    before = outside.disk.snapshot()
    refused = apply(outside, **job)
    assert refused.code == 4, refused.err
    assert refused.document["rule"] == "ours"
    assert refused.document["message"].startswith("rule 'ours' forbids it: ")
    assert message in refused.document["message"]
    assert refused.document["hint"] == "ask the platform team"
    assert outside.disk.snapshot() == before
    assert not Path("run").exists()


@pytest.mark.every_case
@pytest.mark.parametrize(
    "rule",
    [
        {"hours": "06:00-22:00 UTC"},
        {"targets": ["hdfs://there:8020/ck"]},
        {"targets": [TARGET]},
        {"bytes_max": "1g"},
        {"waive": []},
        {"commands": False},
        {"at": ["hdfs://elsewhere"], "hours": "22:00-06:00 UTC"},
        {"except": ME, "hours": "22:00-06:00 UTC"},
        {"for": ["nobody-*"], "hours": "22:00-06:00 UTC"},
    ],
)
def test_a_run_that_keeps_the_rules_is_carried_out(outside: Outside, rule: dict[str, Any]) -> None:
    put_rules({"name": "ours", **rule})
    done = apply(outside)
    assert done.code == 0, done.err
    (given,) = done.document["report"]["commands"]
    assert (given["what"], given["user"], given["host"]) == ("apply", ME, "here")
    assert given["policy"].startswith("policy.json ")
    status = outside.run("status", "run").out
    assert f"apply by {ME}" in status and f"(policy: {given['policy']})" in status
    html = page(RunFacts(migration.status(Workdir("run")), "run"))
    assert "command line" in html and given["policy"] in html


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", ""),
        ('{"rules": []}', "'version' is missing"),
        ('{"version": 2, "rules": []}', "/version"),
        ('{"version": 1, "rules": [{}]}', "/rules/0"),
        ('{"version": 1, "rules": [{"name": "a", "waive": ["nothing"]}]}', "/rules/0/waive"),
        ('{"version": 1, "rules": [{"name": "a", "hours": "later"}]}', "/rules/0/hours"),
        ('{"version": 1, "rules": [{"name": "a", "targts": []}]}', "'targts', did you mean"),
        ('{"version": 1, "rules": [{"name": "a"}]}', "it limits nothing"),
        ('{"version": 1, "rules": [{"name": "a", "waive": [], "for": []}]}', "for nobody"),
        ('{"version": 1, "rules": [{"name": "a", "Users": [], "Waive": ["x"]}]}', "/rules/0/Waive"),
        ('{"version": 1, "rules": [{"name": "a", "targets": "prod"}]}', "relative to nothing"),
        (
            '{"version": 1, "rules": [{"name": "a", "waive": []}, {"name": "a", "waive": []}]}',
            "/rules/1/name",
        ),
    ],
)
def test_a_policy_with_a_mistake_lets_nothing_begin(
    outside: Outside, text: str, place: str
) -> None:
    Path("policy.json").write_text(text)
    refused = apply(outside)
    assert refused.code == 2
    assert place in refused.out
    assert "nothing was begun" in refused.document["hint"]
    assert not Path("run").exists()
    with pytest.raises(SpecError):
        read_policy(text)


def test_a_policy_that_is_not_there_lets_nothing_begin(outside: Outside) -> None:
    refused = apply(outside)
    assert (refused.code, "cannot be read" in refused.document["message"]) == (2, True)


def test_a_run_may_be_taken_back_at_any_time(outside: Outside) -> None:
    put_rules({"name": "ours", "hours": "06:00-22:00 UTC"})
    assert apply(outside).code == 0
    put_rules({"name": "ours", "hours": "22:00-06:00 UTC"})
    assert outside.run("rollback", "run", "--yes").code == 0


def test_a_settings_file_and_a_profile_name_a_policy(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATESHIFT_POLICY")
    put_rules({"name": "ours", "hours": "22:00-06:00 UTC"})
    assert apply(outside).code == 0
    Path("run").rename("first")
    Path("stateshift.toml").write_text('policy = "policy.json"\n')
    outside.run("rollback", "first", "--yes")
    assert apply(outside).code == 4
    Path("stateshift.toml").write_text('[profile.dr]\npolicy = "policy.json"\n')
    monkeypatch.setenv("STATESHIFT_PROFILE", "dr")
    assert apply(outside).code == 4


def test_a_command_line_is_kept_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["stateshift", "move", "s3://a:hunter2@b/c", "--to", "x", "--token", "hunter3"]
    monkeypatch.setenv("SUDO_USER", "alice")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter5")
    by = invocation("here", (*words, "--start", "run --password=hunter4", "hunter5"))
    assert (by.user, by.host, by.sudo_user) == (ME, "here", "alice")
    assert by.command.startswith("stateshift move ")
    assert "hunter" not in by.command
