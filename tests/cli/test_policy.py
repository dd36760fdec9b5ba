"""A policy refuses a run before anything is touched, and names the rule; the journal says who ran what."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateshift import api, migration
from stateshift.api import profiles
from stateshift.api.images import rehearsed_copy
from stateshift.api.profiles import policies_in_use
from stateshift.api.rebalancing.past import remember_failure
from stateshift.cli.views.run_html import page
from stateshift.documents.run import RunFacts
from stateshift.errors import PolicyError, SpecError
from stateshift.migration.adapters import invocation
from stateshift.specification.policy import read_policy
from stateshift.workdir import Workdir
from tests.cli.support import SOURCE, TARGET, Outside, spec_of, with_checkpoint
from tests.cli.test_commands import Failing

pytestmark = pytest.mark.row("W-32")

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SUDO_USER", "alice")
    monkeypatch.setenv("STATESHIFT_POLICY", str(tmp_path / "policy.json"))
    return with_checkpoint()


def put_rules(*rules: dict[str, Any]) -> None:
    Path("policy.json").write_text(json.dumps({"version": 1, "rules": rules}))


def apply(outside: Outside, **job: Any) -> Any:
    Path("spec.json").write_text(json.dumps(spec_of(**job)))
    return carry_out(outside, "spec.json")


def carry_out(outside: Outside, plan: str) -> Any:
    return outside.run("apply", plan, "--yes", "--workdir", "run", "--json")


# The clock of these tests stands at 06:13 UTC.
BREACHES = [
    ({"hours": "22:00-06:00 UTC"}, {}, "it is not 22:00-06:00 UTC now"),
    ({"targets": ["hdfs://there:8020/other"]}, {}, f"Orders (eu): its target is {TARGET}"),
    ({"targets": [f"{TARGET}x"]}, {}, f"its target is {TARGET}"),
    ({"waive": []}, {"waive": ["paths-stay"]}, "Orders (eu) waives paths-stay"),
    ({"waive": ["zip-format"]}, {"waive": ["paths-stay"]}, "Orders (eu) waives paths-stay"),
    ({"except_below": [TARGET], "hours": "22:00-06:00 UTC"}, {}, "it is not 22:00-06:00"),
    ({"for": ["alice"], "hours": "22:00-06:00 UTC"}, {}, "it is not 22:00-06:00"),
    ({"except": ["alice"], "hours": "22:00-06:00 UTC"}, {}, "it is not 22:00-06:00"),
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
        {"waive": []},
        {"except_below": [SOURCE, TARGET], "hours": "22:00-06:00 UTC"},
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
        ('{"version": 1, "rules": [{"name": "a", "waive": [], "for": []}]}', "it says nothing"),
        ('{"version": 1, "rules": [{"name": "a", "waive": [], "hours": null}]}', "/rules/0/hours"),
        ('{"version": 1, "rules": [{"name": "a", "hours": "22:00-06:00"}]}', "no hours of UTC"),
        ('{"version": 1, "rules": [{"name": "a", "bytes_max": 1}]}', "unknown key 'bytes_max'"),
        (
            '{"version": 1, "rules": [{"name": "a", "Users": ["x"], "Waive": ["x"]}]}',
            "/rules/0/Waive",
        ),
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
    assert refused.code == 4
    assert place in str(refused.document["message"])
    assert "nothing was begun" in refused.document["hint"]
    assert not Path("run").exists()
    with pytest.raises(SpecError):
        read_policy(text)


def test_a_policy_that_is_not_there_lets_nothing_begin(outside: Outside) -> None:
    refused = apply(outside)
    assert (refused.code, "cannot be read" in refused.document["message"]) == (4, True)


NEVER = {"name": "never", "targets": ["hdfs://nowhere"]}


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_policy_that_others_may_write_lets_nothing_begin(outside: Outside, mode: int) -> None:
    put_rules({"name": "ours", "waive": []})
    Path("policy.json").chmod(mode)
    refused = apply(outside)
    assert (refused.code, "others may write" in refused.out) == (4, True)


@pytest.mark.parametrize("workdir", ["-h", "--help", "--version"])
def test_a_word_for_help_that_is_a_value_turns_no_policy_off(
    outside: Outside, workdir: str
) -> None:
    put_rules(NEVER)
    Path("spec.json").write_text(json.dumps(spec_of()))
    refused = outside.run("apply", "spec.json", "--yes", "--workdir", workdir)
    assert (refused.code, "rule 'never' forbids it" in refused.err) == (4, True)


def half_a_run(outside: Outside, plan: str = "spec.json") -> None:
    """Begin a run that its policy allows, and that fails in the middle."""
    outside.wrap = lambda storage: Failing(storage, "commits/2")  # type: ignore[assignment, return-value]
    assert carry_out(outside, plan).code == 6
    outside.wrap = lambda storage: storage


def test_a_run_goes_on_and_back_whatever_the_policy_says(outside: Outside) -> None:
    put_rules()
    Path("spec.json").write_text(json.dumps(spec_of()))
    half_a_run(outside)
    put_rules(NEVER)
    resumed = outside.run("resume", "run", "--json")
    assert resumed.code == 0, resumed.err
    Path("policy.json").write_text("{")
    assert outside.run("cutover", "run").code == 4  # it is over, and who asked is kept
    assert outside.run("rollback", "run", "--yes").code == 0
    given = migration.status(Workdir("run")).commands
    assert [each.what for each in given] == ["apply", "resume", "cutover", "rollback"]
    assert [each.user for each in given] == [ME] * 4
    assert given[2].command == "stateshift cutover run"


def test_half_a_run_is_taken_back_whatever_the_policy_says(outside: Outside) -> None:
    put_rules()
    Path("spec.json").write_text(json.dumps(spec_of()))
    half_a_run(outside)
    Path("policy.json").unlink()
    assert outside.run("rollback", "run", "--yes").code == 0
    assert not outside.held(TARGET)


def test_a_plan_says_which_rule_forbids_it_and_is_kept_without_that(outside: Outside) -> None:
    put_rules(NEVER)
    Path("spec.json").write_text(json.dumps(spec_of()))
    shown = outside.run("plan", "spec.json", "-o", "saved.plan", "--json")
    assert (shown.code, "rule 'never' forbids it" in shown.out) == (4, True)
    planned = api.plan("spec.json", adapters=outside.adapters)
    assert "forbids" in planned.refusals[0].message
    put_rules()
    done = outside.run("apply", "saved.plan", "--yes", "--workdir", "run")
    assert done.code == 0, done.err


def test_policies_add_up_and_lie_beside_the_file_that_names_them(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATESHIFT_POLICY")
    assert policies_in_use() == ()
    config = Path("config/stateshift")
    config.mkdir(parents=True)
    (config / "stateshift.toml").write_text(
        'policy = "policy.json"\n[profile.dr]\npolicy = "dr.json"\n'
    )
    (config / "policy.json").write_text(json.dumps({"version": 1, "rules": [NEVER]}))
    (config / "dr.json").write_text('{"version": 1, "rules": []}')
    put_rules()
    Path("stateshift.toml").write_text('policy = "policy.json"\n')  # it takes no other's place
    assert apply(outside).code == 4
    monkeypatch.setenv("STATESHIFT_PROFILE", "dr")
    monkeypatch.setattr(profiles, "OF_THE_MACHINE", os.path.abspath("policy.json"))
    paths = [os.path.relpath(path) for path in policies_in_use()]
    assert paths == ["policy.json", f"{config}/dr.json", f"{config}/policy.json"]
    with pytest.raises(PolicyError, match="rule 'never' forbids it"):
        api.apply("spec.json", workdir="run", adapters=outside.adapters)
    assert "its rules: never" in outside.run("doctor", "--json").out
    monkeypatch.setenv("STATESHIFT_POLICY", "policy.json")
    assert "is another file elsewhere" in apply(outside).document["message"]


def test_a_rehearsal_writes_to_a_scratch_place_alone_and_asks_no_policy(outside: Outside) -> None:
    put_rules(NEVER)
    wanted = {"spec": spec_of(), "workdir": "run", "adapters": outside.adapters}
    with pytest.raises(PolicyError):
        api.apply(**wanted)
    assert rehearsed_copy(spec_of(), "run", outside.adapters).state == "finished"


def test_an_import_asks_before_it_reads_rows(outside: Outside) -> None:
    put_rules(NEVER)
    given = ("nowhere.jsonl", "--template", SOURCE, "--to", TARGET, "--yes", "--json")
    refused = outside.run("import", *given)
    assert refused.document["rule"] == "never"


def test_doctor_finds_a_policy_with_a_mistake(outside: Outside) -> None:
    Path("policy.json").write_text("{")
    checks = outside.run("doctor", "--json").document
    (found,) = [each for each in checks if each["check"] == "policy"]
    assert (found["state"], "not JSON" in found["fact"]) == ("fail", True)


def test_a_failure_by_a_rule_is_not_held_against_a_move(tmp_path: Path) -> None:
    folder = SimpleNamespace(path=tmp_path)
    error = PolicyError("rule 'night' forbids it: it is not 22:00-06:00 UTC now")
    remember_failure(folder, None, None, error, 0.0)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_an_earlier_version_reads_has_nothing_that_it_does_not_know(outside: Outside) -> None:
    put_rules()
    assert apply(outside).code == 0
    for line in Path("run/journal").read_text().splitlines():
        assert "by" not in json.loads(line.partition(" ")[2])


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
    starts = ("--start", "curl -u me:hunter4 http://x", "--stop=mysql -phunter4", "hunter5")
    by = invocation("here", (*words, *starts))
    assert (by.user, by.host, by.sudo_user) == (ME, "here", "alice")
    assert by.command.startswith("stateshift move ")
    assert "hunter" not in by.command
    assert "--start ... --stop=..." in by.command
