"""A plan that a rule wants signed is begun as its signer saw it, in time, or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateshift import api
from stateshift.errors import PolicyError, SpecError, UnsignedError
from tests.cli.support import SOURCE, TARGET, Outside, Said, spec_of, with_checkpoint
from tests.cli.test_policy import half_a_run, put_rules
from tests.live.test_signing import make_keys
from tests.support.checkpoints import Checkpoint, put

pytest.importorskip("cryptography")

REVIEWED = {"name": "reviewed", "signed_by": ["lead.pub"]}
HOUR = 3600.0


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    """A checkpoint, a saved plan of its move, and a rule that wants this plan signed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("STATESHIFT_POLICY", str(tmp_path / "policy.json"))
    outside = with_checkpoint()
    new_keys("other")
    new_keys("lead")
    Path("spec.json").write_text(json.dumps(spec_of()))
    put_rules(REVIEWED)
    saved = outside.run("plan", "spec.json", "-o", "saved.plan")
    assert saved.code == 0, saved.err
    return outside


def new_keys(name: str, kind: str = "ed25519") -> None:
    keys = make_keys(Path(), kind)
    Path(keys.private).rename(f"{name}.key")
    Path(f"{name}.key").chmod(0o600)
    Path(f"{name}.pub").write_text(keys.public)
    Path(f"{name}.pub").chmod(0o644)


def sign(outside: Outside, *more: str, key: str = "lead.key", plan: str = "saved.plan") -> Said:
    return outside.run("plan", plan, "--sign", key, "-o", "signed.plan", *more)


def apply(outside: Outside, plan: str = "signed.plan", *more: str) -> Said:
    return outside.run("apply", plan, "--yes", "--workdir", "run", "--json", *more)


def refused(outside: Outside, said: Said, message: str) -> None:
    """Assert that a run was refused, by its rule, and that nothing was begun."""
    assert said.code == 4, said.err
    assert message in said.document["message"]
    assert said.document["hint"]
    assert said.document["rule"] == "reviewed"
    assert not outside.held(TARGET)
    assert not Path("run").exists()


def test_a_signed_plan_is_carried_out_and_the_report_says_who_signed_it(outside: Outside) -> None:
    signed = sign(outside, "--expires", "8h")
    assert signed.code == 0, signed.err
    shown = outside.run("plan", "signed.plan")
    assert (shown.code, "forbids" in shown.out) == (0, False)
    (line,) = [line for line in shown.out.splitlines() if line.startswith("signed ")]
    header = outside.run("plan", "signed.plan", "--json").document["signed"]
    assert f"by {header['by']} until 2026-" in line
    assert round(header["expires"] - header["at"]) == 8 * HOUR
    done = apply(outside)
    assert done.code == 0, done.err
    (given,) = done.document["report"]["commands"]
    assert f", plan signed by {header['by']} until 2026-" in given["policy"]
    assert "plan signed by" in outside.run("status", "run").out
    assert json.loads(Path("run/signed.json").read_text()) == json.loads(
        Path("signed.plan").read_text()
    )


def test_a_plan_that_nobody_signed_is_shown_with_the_way_and_not_begun(outside: Outside) -> None:
    shown = outside.run("plan", "saved.plan")
    assert (shown.code, "is not signed, as a whole, with a key of lead.pub" in shown.out) == (
        0,
        True,
    )
    assert "--sign KEY -o SIGNED" in shown.out
    refused(
        outside, apply(outside, "saved.plan"), "is not signed, as a whole, with a key of lead.pub"
    )
    refused(outside, apply(outside, "spec.json"), "is not signed")
    with pytest.raises(UnsignedError):
        api.apply("saved.plan", workdir="run", adapters=outside.adapters)
    put_rules(REVIEWED, {"name": "never", "targets": ["hdfs://nowhere"]})
    both = outside.run("plan", "saved.plan")
    assert (both.code, "rule 'never' forbids it" in both.out) == (4, True)


def test_a_plan_that_another_signed_is_not_begun(outside: Outside) -> None:
    assert sign(outside, key="other.key").code == 4  # it says so at once
    refused(outside, apply(outside), "with a key other than lead.pub")
    put_rules({**REVIEWED, "signed_by": ["lead.pub", "other.pub"]})
    assert apply(outside).code == 0


def rewritten(change: Callable[[Any], None]) -> None:
    content = json.loads(Path("signed.plan").read_text())
    change(content)
    Path("signed.plan").write_text(json.dumps(content))


def other_plan(content: Any) -> None:
    """Put a whole plan, with a fingerprint that fits, in the place of the one that was signed."""
    other = json.loads(Path("other.plan").read_text())
    content.update({key: other[key] for key in ("spec", "plans", "fingerprint")})


CHANGES: dict[str, Callable[[Any], None]] = {
    "another plan": other_plan,
    "a longer time": lambda content: content["signed"].update(expires=1e12),
    "no time": lambda content: content["signed"].update(expires=float("nan")),
    "another name": lambda content: content["signed"].update(by="somebody@else"),
    "half a signature": lambda content: content["signed"].update(signature="00ff"),
    "no signature": lambda content: content["signed"].update(signature=""),
    "a word that counts for nothing": lambda content: content.update(note="looks fine"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_plan_that_was_changed_after_it_was_signed_is_not_begun(
    outside: Outside, change: Callable[[Any], None]
) -> None:
    Path("other.json").write_text(json.dumps(spec_of(waive=["paths-stay"])))
    assert outside.run("plan", "other.json", "-o", "other.plan").code == 0
    assert sign(outside).code == 0
    rewritten(change)
    assert outside.run("plan", "signed.plan").code == 4
    refused(outside, apply(outside), "the plan is not what was signed")


@pytest.mark.parametrize(
    "header", [7, {}, {"by": 1}, {"by": "a", "key": "", "at": 0, "expires": 0, "signature": "zz"}]
)
def test_a_damaged_signature_is_called_that(outside: Outside, header: object) -> None:
    sign(outside)
    rewritten(lambda content: content.update(signed=header))
    said = apply(outside)
    assert said.code == 4
    assert "the signature of the saved plan is damaged" in said.document["message"]
    assert "delete its key 'signed'" in said.document["hint"]
    assert not Path("run").exists()


def test_a_signature_expires_and_one_of_the_future_tells_of_a_wrong_clock(outside: Outside) -> None:
    assert sign(outside, "--expires", "1h").code == 0
    outside.clock.time += HOUR
    refused(outside, apply(outside), "its signature has expired")
    Path("signed.plan").rename("old.plan")
    assert sign(outside, plan="old.plan").code == 0  # it is signed anew
    outside.clock.time -= 2 * HOUR
    refused(outside, apply(outside), "one of two clocks is wrong")
    outside.clock.time += 2 * HOUR - 200  # clocks differ a little
    assert apply(outside).code == 0


@pytest.mark.parametrize("way", ["resume", "rollback"])
def test_a_run_that_has_begun_goes_on_and_back_after_its_signature_expired(
    outside: Outside, way: str
) -> None:
    assert sign(outside, "--expires", "1h").code == 0
    half_a_run(outside, "signed.plan")
    outside.clock.time += 30 * 24 * HOUR
    Path("lead.pub").unlink()
    Path("run/signed.json").write_text("{")
    said = outside.run(way, "run", "--json", *(["--yes"] if way == "rollback" else []))
    assert said.code == 0, said.err


def test_a_part_of_a_signed_plan_is_not_what_was_signed(outside: Outside) -> None:
    spec, source = spec_of(), f"{SOURCE}2"
    Checkpoint().write(outside.disk.open(source))
    second = {"job_name": "second", "checkpoint_location": source, "remote_location": f"{TARGET}2"}
    spec["jobs"].append(second)
    Path("spec.json").write_text(json.dumps(spec))
    assert outside.run("plan", "spec.json", "-o", "saved.plan").code == 0
    assert sign(outside).code == 0
    refused(outside, apply(outside, "signed.plan", "--job", "second"), "is not signed, as a whole")
    assert apply(outside, "signed.plan", "--parallel", "1").code == 0  # how, and never what


@pytest.mark.parametrize("key", ["nowhere.key", "lead.pub", "curve.key", "open.key"])
def test_a_key_that_cannot_sign_is_refused(outside: Outside, key: str) -> None:
    new_keys("curve", "ec")
    new_keys("open")
    Path("open.key").chmod(0o640)
    said = sign(outside, key=key)
    assert said.code == 2
    assert ("no private key" in said.err) != ("others may read" in said.err)
    assert not Path("signed.plan").exists()


def damage(kind: str) -> None:
    match kind:
        case "gone":
            Path("lead.pub").unlink()
        case "private":
            Path("lead.pub").write_text(Path("lead.key").read_text())
        case "binary":
            Path("lead.pub").write_bytes(b"\xff\xfe")
        case "written by others":
            Path("lead.pub").chmod(0o666)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gone", "cannot be read"),
        ("private", "no public key that can be used"),
        ("binary", "cannot be read"),
        ("written by others", "others may write to the key"),
    ],
)
def test_with_a_key_that_cannot_be_trusted_nothing_begins(
    outside: Outside, kind: str, message: str
) -> None:
    assert sign(outside).code == 0
    damage(kind)
    said = apply(outside)
    assert (said.code, message in said.document["message"]) == (4, True)
    assert not Path("run").exists()
    checks = outside.run("doctor", "--json").document
    assert [each["state"] for each in checks if each["check"] == "policy"] == ["fail"]


def test_without_the_extra_both_say_how_to_install_it(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sign(outside).code == 0
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    for said in (sign(outside), apply(outside)):
        assert (said.code, "stateshift[signed]" in said.out + said.err) == (4, True)


@pytest.mark.parametrize(
    "words",
    [
        ("spec.json", "--sign", "lead.key", "-o", "signed.plan"),
        ("saved.plan", "--sign", "lead.key"),
        ("saved.plan", "--sign", "lead.key", "-o", "saved.plan"),
        ("saved.plan", "--expires", "1h"),
        ("saved.plan", "--sign", "lead.key", "-o", "signed.plan", "--expires", "soon"),
        ("saved.plan", "--sign", "lead.key", "-o", "signed.plan", "--expires", "0s"),
    ],
)
def test_a_plan_is_signed_into_another_file_for_a_time(
    outside: Outside, words: tuple[str, ...]
) -> None:
    before = Path("saved.plan").read_bytes()
    assert outside.run("plan", *words).code == 2
    assert Path("saved.plan").read_bytes() == before
    assert not Path("signed.plan").exists()


def test_a_plan_that_is_refused_as_it_stands_is_not_signed(outside: Outside) -> None:
    put(outside.disk.open(TARGET), "commits/0", b"v1\n{}")
    refusing = outside.run("plan", "spec.json", "-o", "saved.plan")
    assert refusing.code == 4, refusing.out
    said = sign(outside)
    assert (said.code, "was not signed" in said.err) == (4, True)
    assert not Path("signed.plan").exists()


# ---- --signed-by: the same demand by whoever begins the run, without a rule


@pytest.fixture
def without_rules(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> Outside:
    monkeypatch.delenv("STATESHIFT_POLICY")
    return outside


def demanded(outside: Outside, plan: str, *keys: str, message: str = "") -> Said:
    """Apply on demand of these keys; unless there is a message of a refusal, it is carried out."""
    flags = [word for key in keys for word in ("--signed-by", key)]
    done = apply(outside, plan, *flags)
    if not message:
        assert done.code == 0, done.err
        return done
    assert done.code == 4, done.out
    assert done.document["rule"] == "--signed-by"
    assert message in done.document["message"]
    assert done.document["hint"]
    assert not outside.held(TARGET)
    assert not Path("run").exists()
    return done


def test_apply_begins_by_a_signed_plan_alone_if_it_is_told_to(without_rules: Outside) -> None:
    outside = without_rules
    for unsigned in ("saved.plan", "spec.json"):
        said = demanded(outside, unsigned, "lead.pub", message="is not signed, as a whole")
        assert said.document["message"].startswith("--signed-by forbids it: ")
        assert "stateshift plan FILE --sign KEY -o SIGNED" in said.document["hint"]
    header = json.loads(_signed(outside).read_text())["signed"]
    demanded(outside, "signed.plan", "other.pub", message="with a key other than other.pub")
    done = demanded(outside, "signed.plan", "other.pub", "lead.pub")
    (given,) = done.document["report"]["commands"]
    assert given["policy"].startswith(f"plan signed by {header['by']} until 2026-")


def _signed(outside: Outside, *more: str) -> Path:
    signed = sign(outside, *more)
    assert signed.code == 0, signed.err
    return Path("signed.plan")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_plan_changed_since_is_refused_on_demand_as_well(
    without_rules: Outside, change: Callable[[Any], None]
) -> None:
    Path("other.json").write_text(json.dumps(spec_of(waive=["paths-stay"])))
    assert without_rules.run("plan", "other.json", "-o", "other.plan").code == 0
    _signed(without_rules)
    rewritten(change)
    demanded(without_rules, "signed.plan", "lead.pub", message="the plan is not what was signed")


def test_an_expired_signature_is_refused_on_demand_as_well(without_rules: Outside) -> None:
    outside = without_rules
    _signed(outside, "--expires", "8h")
    outside.clock.time += 8 * HOUR
    demanded(outside, "signed.plan", "lead.pub", message="its signature has expired")
    outside.clock.time -= 60
    demanded(outside, "signed.plan", "lead.pub")


def test_a_rule_and_the_demand_have_to_be_met_both(outside: Outside) -> None:
    _signed(outside)
    refused(outside, apply(outside, "saved.plan", "--signed-by", "lead.pub"), "rule 'reviewed'")
    demanded(outside, "signed.plan", "other.pub", message="with a key other than other.pub")
    demanded(outside, "signed.plan", "lead.pub")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda key: key.unlink(), "the key lead.pub cannot be read"),
        (
            lambda key: key.write_text("no key"),
            "the key lead.pub of --signed-by: key: no public key",
        ),
        (lambda key: key.chmod(0o666), "others may write to the key lead.pub"),
    ],
    ids=["missing", "none", "everybody's"],
)
def test_a_key_that_cannot_be_trusted_refuses_the_run(
    without_rules: Outside, spoil: Callable[[Path], object], message: str
) -> None:
    _signed(without_rules)
    spoil(Path("lead.pub"))
    said = apply(without_rules, "signed.plan", "--signed-by", "lead.pub")
    assert said.code == 4
    assert message in said.document["message"]
    assert not without_rules.held(TARGET)
    assert not Path("run").exists()


def test_a_program_signs_and_demands_a_signature(without_rules: Outside) -> None:
    adapters, keys = without_rules.adapters, ["lead.pub"]
    planned = api.plan("saved.plan", adapters=adapters)
    with pytest.raises(UnsignedError):
        api.apply(planned, workdir="run", signed_by=keys, adapters=adapters)
    api.sign("saved.plan", "lead.key", seconds=HOUR, adapters=adapters).save("signed.plan")
    others = api.sign(planned, "other.key", adapters=adapters)
    with pytest.raises(PolicyError, match=r"with a key other than lead\.pub"):
        api.apply(others, workdir="run", signed_by=keys, adapters=adapters)
    assert not Path("run").exists()
    without_rules.clock.time += HOUR
    with pytest.raises(PolicyError, match="has expired"):
        api.apply("signed.plan", workdir="run", signed_by=keys, adapters=adapters)
    signed = api.sign(planned, Path("lead.key"), adapters=adapters)
    done = api.apply(signed, workdir="run", signed_by=keys, adapters=adapters)
    assert done.state == "finished"
    with pytest.raises(SpecError, match="is a spec"):
        api.sign("spec.json", "lead.key", adapters=adapters)
