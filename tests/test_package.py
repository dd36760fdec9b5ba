"""The package's furniture: what a wheel carries, what its metadata says, and what a report needs."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import stateshift
from stateshift.api import environment
from stateshift.api.environment import Requirement, parse_requirement
from tests.cli.support import said

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
URLS = PROJECT["project"]["urls"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(
        [*command, "--directory", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def read_metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_the_wheel_carries_the_whole_licence(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("/licenses/LICENSE"))
    assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()
    text = wheel.read(name).decode("utf-8")
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_wheel_says_its_licence_and_its_addresses(wheel: zipfile.ZipFile) -> None:
    fields = read_metadata(wheel)
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["License-File"] == "LICENSE"
    addresses = dict(entry.split(", ", 1) for entry in fields.get_all("Project-URL") or [])
    assert addresses == URLS
    assert {"Homepage", "Source", "Issues", "Changelog", "Documentation"} <= addresses.keys()
    assert "Typing :: Typed" in (fields.get_all("Classifier") or [])


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    assert "stateshift/py.typed" in wheel.namelist()
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"stateshift", f"stateshift-{stateshift.__version__}.dist-info"}


def test_a_source_archive_takes_every_page_at_the_top() -> None:
    taken = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    pages = {path.name for path in ROOT.glob("*.md")}
    assert pages | {"LICENSE", "pyproject.toml", "stateshift", "tests"} <= set(taken)


def test_the_version_is_named_once(wheel: zipfile.ZipFile) -> None:
    assert "version" not in PROJECT["project"]
    assert read_metadata(wheel)["Version"] == stateshift.__version__


def test_the_changelog_has_the_version_and_what_is_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert stateshift.__version__ in [version for version, date in headings if date]
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for version, _ in headings:
        assert f"\n[{version}]: https://" in text


# ---------------------------------------------------------------------------------- a report


def test_the_version_alone_is_one_line() -> None:
    assert said("--version").out == f"stateshift {stateshift.__version__}\n"


@pytest.mark.parametrize("argv", [("--version", "-v"), ("-v", "--version")])
def test_a_report_names_versions_of_all_that_takes_part(argv: tuple[str, ...]) -> None:
    lines = said(*argv).out.splitlines()
    assert lines[0] == f"stateshift {stateshift.__version__}"
    fields = dict(line.split(maxsplit=1) for line in lines[1:])
    python = ".".join(map(str, sys.version_info[:3]))
    assert fields["Python"].startswith(python)
    assert {"platform", "Java", "dependencies", "extras"} <= fields.keys()
    for name in ("fsspec", "typer", "pyarrow"):
        assert f"{name} {metadata.version(name)}" in fields["dependencies"]
    assert f"s3fs {metadata.version('s3fs')}" in fields["extras"]
    assert "pytest" not in fields["extras"]
    assert "hdfs 2" not in fields["extras"], "it is a dependency; only its own extra is optional"


def test_a_verbose_nothing_is_refused() -> None:
    found = said("-v")
    assert (found.code, found.out) == (2, "")
    assert "Missing command" in found.err


@pytest.mark.parametrize(
    ("line", "requirement"),
    [
        ("fsspec>=2024.6", Requirement("fsspec", None, "2024.6")),
        ("hdfs-native>=0.11; extra == 'hdfs'", Requirement("hdfs-native", "hdfs", "0.11")),
        ('hdfs[kerberos]>=2.7 ; extra == "kerberos"', Requirement("hdfs", "kerberos", "2.7")),
    ],
)
def test_a_requirement_is_a_name_and_an_extra(line: str, requirement: Requirement) -> None:
    assert parse_requirement(line) == requirement


def test_java_is_known_by_the_release_file_of_its_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert environment.java_version() == f"unknown version in {tmp_path}"
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.12"\n')
    assert environment.java_version() == f"17.0.12 ({tmp_path})"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.java_version() is None


class _Installed:
    """A distribution's metadata, as `importlib.metadata` gives it."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = list(addresses)

    def get_all(self, name: str) -> list[str]:
        return self._addresses if name == "Project-URL" else []


def test_reports_go_where_the_metadata_says(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = _Installed("Source, https://a.example", "Issues, https://b.example/issues")
    monkeypatch.setattr(metadata, "metadata", lambda name: installed)
    assert environment.issues_address() == "https://b.example/issues"
    monkeypatch.setattr(metadata, "metadata", lambda name: _Installed())
    assert environment.issues_address() is None


def test_a_package_that_is_not_installed_names_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGE", "stateshift-is-not-installed-under-this-name")
    assert environment.issues_address() is None
    assert "not known" in "\n".join(environment.version_lines())
