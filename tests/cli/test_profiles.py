"""What a profile of stateshift.toml gives to specs and commands, and what comes before it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateshift.api import profiles
from stateshift.api.profiles import line_in_toml
from tests.cli.support import SOURCE, TARGET, Outside, said, with_checkpoint

pytestmark = pytest.mark.row("W-30")

PROFILE = """\
[profile.dr]
throttle = "50MB"
parallel = 3
workdirs = "runs-of-dr"

[profile.dr.storages]
there = "hdfs://there:8020/ck"

[profile.dr.clusters.flink-dr]
kind = "manual"

[profile.dr.clusters.b]
kind = "manual"
version = "${SPARK}"
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPARK", "3.5")
    monkeypatch.delenv("STATESHIFT_PROFILE", raising=False)
    (tmp_path / profiles.NAME).write_text(PROFILE)
    return with_checkpoint()


def spec(path: Path, **top: object) -> str:
    job = {
        "name": "orders",
        "checkpoint_location": SOURCE,
        "remote_location": "there:/orders",
        "target_cluster": "b",
        "submit": {},
    }
    path.write_text(json.dumps({"version": 1, **top, "jobs": [job]}))
    return str(path)


def saved(outside: Outside, *arguments: str) -> dict[str, object]:
    """The spec of the plan that is saved."""
    outside.run("plan", *arguments, "-o", "saved.plan")
    plain: dict[str, object] = json.loads(Path("saved.plan").read_text())["spec"]
    return plain


def test_a_spec_gets_what_it_names_and_lacks_and_the_plan_says_so(
    outside: Outside, tmp_path: Path
) -> None:
    path = spec(tmp_path / "spec.json")
    plan = outside.run("plan", path, "--profile", "dr", "--json").document
    assert plan["profile"] == {
        "name": "dr",
        "file": str(tmp_path / profiles.NAME),
        "gave": ["storage there", "cluster b", "parallel 3", "throttle 50MB"],
    }
    assert plan["plans"][0]["target"] == TARGET
    assert (
        "gave storage there, cluster b, parallel 3" in outside.run("plan", path, "--profile=dr").out
    )
    assert "profile" not in outside.run("plan", "saved.plan", "--json").document
    plain = saved(outside, path, "--profile", "dr")
    assert plain["throttle"] == {"bytes_per_second": 5e7}
    assert plain["clusters"] == [{"name": "b", "kind": "manual", "version": "3.5"}]


def test_what_is_typed_comes_before_the_spec_and_that_before_the_profile(
    outside: Outside, tmp_path: Path
) -> None:
    own = {
        "throttle": {"bytes_per_second": 7},
        "clusters": [{"name": "b", "kind": "command", "submit": "x"}],
    }
    path = spec(tmp_path / "spec.json", **own)
    plain = saved(outside, path, "--profile", "dr")
    assert plain["throttle"] == {"bytes_per_second": 7}
    assert plain["clusters"] == [{"name": "b", "kind": "command", "submit": "x"}]
    assert plain["parallel"] == 3
    typed = ("--parallel", "9", "--throttle", "1MB")
    plain = saved(outside, path, "--profile", "dr", *typed)
    assert (plain["parallel"], plain["throttle"]) == (9, {"bytes_per_second": 1e6})
    gave = outside.run("plan", path, "--profile", "dr", *typed, "--json").document["profile"][
        "gave"
    ]
    assert gave == ["storage there"]


def test_a_command_takes_locations_and_workdirs_of_the_profile(outside: Outside) -> None:
    moved = outside.run("move", SOURCE, "--to=there:/orders", "--yes", "--profile", "dr")
    assert moved.code == 0, moved.err
    assert (
        outside.run("inspect", "there:/orders", "--profile", "dr", "--json").document["epoch"] == 2
    )
    assert len(list(Path("runs-of-dr").iterdir())) == 1


def test_the_environment_names_a_profile_and_the_option_comes_before_it(
    outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spec(tmp_path / "spec.json")
    monkeypatch.setenv("STATESHIFT_PROFILE", "dr")
    assert outside.run("plan", path).code == 0
    assert outside.run("plan", path, "--profile", "qr").code == 2


def test_a_storage_without_its_profile_is_no_local_file(outside: Outside, tmp_path: Path) -> None:
    refused = outside.run("plan", spec(tmp_path / "spec.json"))
    assert refused.code == 2
    assert "a storage 'there' needs the --profile that has it" in refused.err
    assert outside.run("move", SOURCE, "--to", "there:/orders", "--yes").code == 2


def test_each_mistake_in_a_profile_is_told_with_file_and_line(
    outside: Outside, tmp_path: Path
) -> None:
    file = tmp_path / profiles.NAME
    file.write_text(
        '[profile.x]\nthrottle = "lots"\nparalel = 3\n\n'
        '[profile.x.storages]\ns3 = "s3://a"\n'
        'two = [\n  "a",\n]\n'
        '[profile.x.clusters.c]\nkind = "nope"\npassword = "geheim"\n'
    )
    told = outside.run("runs", "--profile", "x", "--json")
    assert told.code == 2 and told.document["path"] == str(file)
    places = {each["pointer"]: each["line"] for each in told.document["complaints"]}
    assert places == {
        "/profile/x/throttle": 2,
        "/profile/x/paralel": 3,
        "/profile/x/storages/s3": 6,
        "/profile/x/storages/two": 7,
        "/profile/x/clusters/c/kind": 11,
        "/profile/x/clusters/c/password": 12,
    }
    assert "geheim" not in told.out + outside.run("runs", "--profile", "x").err


def test_an_unknown_profile_names_the_nearest_one(outside: Outside) -> None:
    assert "no profile 'rd'" in outside.run("runs", "--profile", "rd").err
    assert "did you mean 'dr'?" in outside.run("runs", "--profile", "drr").err
    assert said("runs", "--profile", "drr", "--help").code == 0


def test_the_working_directory_comes_before_the_user(outside: Outside, tmp_path: Path) -> None:
    users = tmp_path / "config" / "stateshift"
    users.mkdir(parents=True)
    (users / profiles.NAME).write_text(
        '[profile.dr]\nworkdirs = "users"\n[profile.own]\nworkdirs = "users"\n'
    )
    assert "runs-of-dr" in outside.run("runs", "--profile", "dr").out
    assert "users" in outside.run("runs", "--profile", "own").out


def test_a_line_is_found_behind_values_of_several_lines() -> None:
    text = 'a = """\nb = 1\n"""\n# b = 2\nb = 3\n'
    assert line_in_toml(text, "/b") == 5
    assert line_in_toml(text, "/c") is None


def test_clusters_of_both_have_their_variables_replaced_once(
    outside: Outside, tmp_path: Path
) -> None:
    file = tmp_path / profiles.NAME
    file.write_text(PROFILE + 'marker_dir = "$${HOME}/${SPARK}"\n')
    own = {"mine": {"kind": "manual", "version": "${SPARK}"}}
    path = spec(tmp_path / "spec.json", clusters=own)
    for clusters in (own, [{"name": "mine", **own["mine"]}]):
        path = spec(tmp_path / "spec.json", clusters=clusters)
        assert saved(outside, path, "--profile", "dr")["clusters"] == [
            {"name": "mine", "kind": "manual", "version": "3.5"},
            {"name": "b", "kind": "manual", "version": "3.5", "marker_dir": "$${HOME}/3.5"},
        ]


def test_a_profile_serves_a_spec_in_yaml(outside: Outside, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        f"version: 1\nclusters: ~\njobs:\n- name: orders\n  checkpoint_location: {SOURCE}\n"
        "  remote_location: there:/orders\n  target_cluster: b\n  submit: {}\n"
    )
    plan = outside.run("plan", "spec.yaml", "--profile", "dr", "--json").document
    assert plan["plans"][0]["target"] == TARGET
    assert "cluster b" in plan["profile"]["gave"]


def test_no_cluster_comes_along_that_no_job_is_on(outside: Outside, tmp_path: Path) -> None:
    file = tmp_path / profiles.NAME
    file.write_text(PROFILE + '[profile.dr.clusters.spark]\nkind = "manual"\n')
    clusters = saved(outside, spec(tmp_path / "spec.json", engine="spark"), "--profile", "dr")
    assert [each["name"] for each in clusters["clusters"]] == ["b"]  # type: ignore[union-attr]


def test_only_what_is_a_location_is_one(outside: Outside, tmp_path: Path) -> None:
    job = {
        "checkpoint_location": SOURCE,
        "remote_location": "${THERE}:/orders",
        "name": "there:/name",
        "target_cluster": "c",
        "submit": {"arguments": ["there:/argument"]},
    }
    clusters = {"c": {"kind": "command", "submit": "there:/start.sh"}}
    (tmp_path / "spec.json").write_text(
        json.dumps({"version": 1, "clusters": clusters, "jobs": [job]})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THERE", "there")
        plain = saved(outside, "spec.json", "--profile", "dr")
    (moved,) = plain["jobs"]  # type: ignore[misc]
    assert moved["remote_location"] == TARGET
    assert moved["name"] == "there:/name"
    assert moved["submit"]["arguments"] == ["there:/argument"]
    assert plain["clusters"][0]["submit"] == "there:/start.sh"  # type: ignore[index]


def test_a_word_that_is_no_location_is_left_alone(outside: Outside) -> None:
    named = outside.run("uid", "there:/orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATESHIFT_PROFILE", "dr")
        assert outside.run("uid", "there:/orders").out == named.out


@pytest.mark.parametrize("way", ["there:/../secret", "there:/a/../../x", "there:/."])
def test_nothing_leads_out_of_a_storage(outside: Outside, tmp_path: Path, way: str) -> None:
    told = outside.run("inspect", way, "--profile", "dr")
    assert told.code == 2 and "there:/path without . and .." in told.err
    path = tmp_path / "spec.json"
    path.write_text(Path(spec(path)).read_text().replace("there:/orders", way))
    told = outside.run("plan", str(path), "--profile", "dr")
    assert told.code == 2 and "there:/path without . and .." in told.err


@pytest.mark.parametrize("name", ["local", "http", "https", "jdbc", "jar", "s3", "hdfs", "a b"])
def test_a_storage_is_not_called_as_a_scheme(outside: Outside, tmp_path: Path, name: str) -> None:
    (tmp_path / profiles.NAME).write_text(f'[profile.x.storages]\n"{name}" = "s3://a"\n')
    told = outside.run("runs", "--profile", "x")
    assert told.code == 2 and "cannot be told from the scheme of a URL" in told.err


def test_the_limits_of_a_profile_come_before_those_of_its_file(
    outside: Outside, tmp_path: Path
) -> None:
    file = tmp_path / profiles.NAME
    file.write_text('throttle = "1MB"\nparallel = 9\n' + PROFILE)
    path = spec(tmp_path / "spec.json")
    plain = saved(outside, path, "--profile", "dr")
    assert (plain["parallel"], plain["throttle"]) == (3, {"bytes_per_second": 5e7})
    own = spec(tmp_path / "spec.json", parallel=2)
    assert saved(outside, own, "--profile", "dr")["parallel"] == 2


def test_an_empty_name_of_a_profile_takes_no_other_word(outside: Outside) -> None:
    for words in (("--profile=", "inspect"), ("--profile=",)):
        told = outside.run("runs", *words)
        assert told.code == 2 and "--profile: it names no profile" in told.err


@pytest.mark.parametrize("written", ["throttle = 5\n", "[throttle]\nbytes_per_second = 5\n"])
def test_limits_of_a_file_that_are_no_rate_are_told_with_the_file_and_the_way_out(
    outside: Outside, tmp_path: Path, written: str
) -> None:
    file = tmp_path / profiles.NAME
    file.write_text(written)
    told = outside.run("runs")
    assert told.code == 2 and 'a rate, such as "50MB"' in told.err
    assert f"{file}: /throttle (line 1)" in told.err and f"hint: correct {file}" in told.err
