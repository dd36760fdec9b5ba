"""Flags before environment before the working directory's file before the user's."""

from pathlib import Path

import pytest

from stateshift.api import profiles
from stateshift.errors import SpecError
from tests.cli.support import said


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    here, user = tmp_path / "here", tmp_path / "config" / "stateshift"
    here.mkdir()
    user.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STATESHIFT_JSON", raising=False)
    monkeypatch.delenv("STATESHIFT_WORKDIRS", raising=False)
    return here / profiles.NAME, user / profiles.NAME


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert profiles.settings((str(tmp_path), str(tmp_path / "none"))) == {}


def test_the_working_directory_comes_before_the_user(places: tuple[Path, Path]) -> None:
    here, user = places
    user.write_text('parallel = 2\nthrottle = "50MB"\n')
    here.write_text("parallel = 8\n")
    assert profiles.settings((str(here.parent), str(user.parent))) == {
        "parallel": 8,
        "throttle": "50MB",
    }


@pytest.mark.parametrize(
    "text", ["parallel = 'many'", "parallel = true", "paralel = 3", "not toml", "json = 1"]
)
def test_a_setting_that_is_not_one_is_refused_naming_the_file(
    places: tuple[Path, Path], text: str
) -> None:
    here, _ = places
    here.write_text(text)
    with pytest.raises(SpecError) as error:
        profiles.settings((str(here.parent),))
    assert str(here) in f"{error.value} {error.value.where}"
    assert text == "not toml" or [each.line for each in error.value.complaints] == [1]
    assert said("runs").code == 2
    assert said("runs", "--help").code == 0


def test_flags_come_before_the_environment_and_that_before_files(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    places[0].write_text('workdirs = "from-file"\n')
    assert "from-file" in said("runs").out
    monkeypatch.setenv("STATESHIFT_WORKDIRS", "from-environment")
    assert "from-environment" in said("runs").out
    assert "from-argument" in said("runs", "from-argument").out


def test_json_may_be_a_setting(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    places[1].write_text("json = true\n")
    assert said("runs").document == []
    assert said("status").document["exit_code"] == 2
    places[1].unlink()
    monkeypatch.setenv("STATESHIFT_JSON", "1")
    assert said("runs").document == []
    assert said("status", "nowhere").document["error"] == "NoSuchRun"
    assert said("status", "--no-such-flag").document["exit_code"] == 2
