"""What CI installs is written down with digests, and is what pyproject.toml asks for."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions, requires
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "scripts" / "pins.d"
LISTS = sorted(path.name for path in PINS.glob("*.txt"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: ;[^\\]*)?(?: \\)?$")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins_of(name: str) -> dict[str, list[str]]:
    """Return the versions of each package in a list; a list for all Pythons may have two of one."""
    pins: dict[str, list[str]] = {}
    for line in (PINS / name).read_text("utf-8").splitlines():
        match = PIN.match(line)
        if match:
            pins.setdefault(match[1].lower().replace("_", "-"), []).append(match[2])
    return pins


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def lower_bounds(requirements: list[str]) -> dict[str, str]:
    bounds = {}
    for requirement in requirements:
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([\d.]+)", requirement)
        assert match, requirement
        bounds[match[1].lower().replace("_", "-")] = match[2]
    return bounds


def installed(packages: Iterable[str]) -> list[str]:
    names = {each.name.lower().replace("_", "-") for each in distributions()}
    return sorted(names.intersection(packages))


def needs_of(package: str) -> Iterator[str]:
    for line in requires(package) or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield needed.name.lower().replace("_", "-")


@pytest.mark.parametrize("name", LISTS)
def test_every_package_has_a_version_and_a_digest(name: str) -> None:
    lines = (PINS / name).read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith(" ") or not line.strip():
            continue
        assert PIN.match(line), line
        assert lines[number + 1].strip().startswith("--hash=sha256:"), line


def test_the_image_installs_each_package_of_its_extras_as_developers_have_tried_it() -> None:
    image, dev = pins_of("image.txt"), pins_of("dev.txt")
    text = (ROOT / "configs" / "deploy" / "Dockerfile").read_text("utf-8")
    (extras,) = re.findall(r"/src\[([\w,]+)\]", text)
    assert "--require-hashes" in text
    for extra in extras.split(","):
        for name in lower_bounds(PROJECT["optional-dependencies"][extra]):
            assert name in image, f"{name} of {extra}"
    others = {name for name in image.keys() & dev.keys() if not set(image[name]) <= set(dev[name])}
    assert not others


def test_a_demo_installs_what_developers_have_tried_and_all_that_a_run_needs() -> None:
    demo, dev = pins_of("demo.txt"), pins_of("dev.txt")
    other = {package: versions for package, versions in demo.items() if versions != dev[package]}
    assert not other, f"run scripts/pins: {other}"
    assert demo.keys() >= pins_of("runtime.txt").keys() | {"pandas", "pyspark", "hatchling"}
    for package in installed(demo):  # no list is complemented while it is installed: --no-deps
        assert set(needs_of(package)) <= demo.keys(), f"{package}: run scripts/pins"
    lines = (PINS / "dev.txt").read_text("utf-8").splitlines()
    digests = {line.strip() for line in lines if "--hash=" in line}
    for line in (PINS / "demo.txt").read_text("utf-8").splitlines():
        assert "--hash=" not in line or line.strip() in digests or line.strip() + " \\" in digests


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("runtime.txt", PROJECT["dependencies"]),
        ("dev.txt", PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]),
        ("servers.txt", PROJECT["optional-dependencies"]["servers"]),
    ],
)
def test_what_is_pinned_is_what_the_project_asks_for(name: str, requirements: list[str]) -> None:
    pins = pins_of(name)
    for package, bound in lower_bounds(requirements).items():
        assert package in pins, f"{package} is not pinned: run scripts/pins"
        for version in pins[package]:
            assert release(version) >= release(bound), (
                f"{package} {version} is older than asked: run scripts/pins"
            )


def test_what_is_pinned_is_installed_without_a_look_at_what_is_newer() -> None:
    scripts = [path for path in (ROOT / "scripts").rglob("*") if path.is_file()]
    asked = []
    for path in scripts:
        if path.suffix not in ("", ".py"):
            continue
        for line in path.read_text("utf-8").splitlines():
            if "--require-hashes" in line and not line.strip().startswith("#"):
                asked.append((path.name, line))
    assert {name for name, _ in asked} >= {"setup", "sparks", "sbom", "audit", "downloads.py"}
    for name, line in asked:
        assert "--no-deps" in line, f"{name}: {line.strip()}"


@pytest.mark.long
def test_the_lists_are_complete() -> None:
    check = [sys.executable, "-m", "pip", "check"]
    answer = subprocess.run(check, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout


def test_no_address_of_an_index_is_written_down() -> None:
    for name in LISTS:
        assert "://" not in (PINS / name).read_text("utf-8"), name


def test_every_pom_has_the_digests_of_its_jars() -> None:
    for pom in (ROOT / "scripts" / "servers.d").glob("*/pom.xml"):
        assert list(pom.parent.glob("jars*.sha256")), f"{pom.parent.name}: run scripts/pins"


def test_a_jar_that_is_another_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATESHIFT_UNPINNED", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "servers.d"))
    pins = load(ROOT / "scripts" / "servers.d" / "servers" / "pins.py")
    monkeypatch.setattr(pins, "HERE", tmp_path)
    jars = tmp_path / "fetched"
    jars.mkdir()
    (jars / "one.jar").write_bytes(b"one")
    (tmp_path / "made").mkdir()
    digest = pins.digests_of(jars)["one.jar"]
    (tmp_path / "made" / "jars.sha256").write_text(f"{digest}  one.jar\n")
    pins.check(jars, "made", {})
    (jars / "one.jar").write_bytes(b"other")
    with pytest.raises(Exception, match=r"one\.jar is not the file that jars\.sha256 names"):
        pins.check(jars, "made", {})
    (jars / "one.jar").unlink()
    with pytest.raises(Exception, match=r"one\.jar"):
        pins.check(jars, "made", {})


def test_what_an_audit_found_is_said_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audited = load(PINS / "audited.py")
    file = tmp_path / "found.json"
    hole = {"id": "PYSEC-1", "fix_versions": ["2.1"]}
    packages = [
        {"name": "one", "version": "2.0", "vulns": [hole]},
        {"name": "other", "version": "1", "skip_reason": "not there"},
    ]
    file.write_text(json.dumps({"dependencies": packages}))
    assert audited.main("runtime", file) == 1
    assert "one 2.0: PYSEC-1, mended in 2.1" in capsys.readouterr().out
    file.write_text(json.dumps({"dependencies": packages[1:]}))
    assert audited.main("runtime", file) == 0
    assert "nobody could be asked" in capsys.readouterr().out
    assert audited.main("runtime", tmp_path / "none") == 0
