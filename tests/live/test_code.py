"""Functions as files: what is shipped runs elsewhere, and what is no function is refused."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from pathlib import Path

import pytest

from stateshift.errors import FormatError, Incompatible, SpecError, UnknownVersion
from stateshift.live import code
from stateshift.live.code import Package
from stateshift.storage.local.storage import LocalStorage
from stateshift.survey import Owned
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.live.ground import giving, numbers, rows

SCORE = """
LIMIT = 5

def helper(x):
    return x + LIMIT

def score(x):
    return helper(x)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which Python imports."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def packed(content: bytes) -> Package:
    return Package(hashlib.sha256(content).hexdigest(), "x:y", content)


def with_header(package: Package, **more: object) -> Package:
    header, _, payload = package.content.partition(b"\n")
    values = {key: value for key, value in (json.loads(header) | more).items() if value is not None}
    return packed(json.dumps(values).encode() + b"\n" + payload)


def test_a_function_runs_where_it_is_unpacked() -> None:
    package = code.package(giving(3))
    assert numbers([code.unpack(package.content, package.digest)(rows(1, 2))]) == [3, 3]


def test_a_module_is_shipped_as_its_text_and_runs_without_the_module(modules: Path) -> None:
    (modules / "shop_rules.py").write_text(SCORE)
    package = code.package("shop_rules:score")
    (modules / "shop_rules.py").unlink()
    assert b"def helper" in package.content
    assert code.unpack(package.content, package.digest)(1) == 6
    assert "shop_rules" not in sys.modules


def test_two_versions_of_a_module_run_beside_each_other(modules: Path) -> None:
    (modules / "shop_limits.py").write_text(SCORE)
    old = code.package("shop_limits:score")
    (modules / "shop_limits.py").write_text(SCORE.replace("5", "50"))
    new = code.package("shop_limits:score")
    first, second = (code.unpack(package.content, package.digest) for package in (old, new))
    assert (first(1), second(1), first(1)) == (6, 51, 6)


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (SCORE, "mod_a:scor", "cannot be imported: AttributeError"),
        ("score = 3", "mod_b:score", None),
        ("import sys\nsys.exit(2)\nfrom . import x", "mod_c:score", "cannot be imported"),
        ("def score(:", "mod_d:score", "cannot be imported: SyntaxError"),
        (None, "mod_e:score", "cannot be imported: ModuleNotFoundError"),
        (None, "mod_f", "not of the form MODULE:FUNCTION"),
        (None, "a b:score", "not of the form"),
        (None, ":score", "not of the form"),
        (None, "..x:score", "not of the form"),
    ],
)
def test_a_name_that_is_no_function_is_refused(
    modules: Path, text: str | None, name: str, why: str | None
) -> None:
    if text is not None:
        (modules / f"{name.partition(':')[0]}.py").write_text(text)
    if why is None:  # it is found out where it is run
        package = code.package(name)
        with pytest.raises(FormatError, match="is no function: int"):
            code.unpack(package.content, package.digest)
        return
    with pytest.raises(SpecError, match=why) as refused:
        code.package(name)
    assert "model_v2:score" in str(refused.value.hint)


def test_a_module_in_a_package_that_fails_to_import_is_refused(modules: Path) -> None:
    (modules / "broken").mkdir()
    (modules / "broken" / "__init__.py").write_text("raise RuntimeError('no licence')")
    (modules / "broken" / "rules.py").write_text(SCORE)
    with pytest.raises(SpecError, match="RuntimeError: no licence"):
        code.package("broken.rules:score")


def test_a_module_that_is_no_text_of_utf8_is_shipped_as_it_was_loaded(modules: Path) -> None:
    text = "# -*- coding: latin-1 -*-\ndef score(x): return x + '\xe9'\n"
    (modules / "latin.py").write_bytes(text.encode("latin-1"))
    package = code.package("latin:score")
    assert b'"kind": "pickle"' in package.content
    assert code.unpack(package.content, package.digest)("caf") == "caf\xe9"


def test_what_cannot_be_pickled_is_refused() -> None:
    lock = threading.Lock()
    with pytest.raises(SpecError, match="cannot be pickled"):
        code.package(lambda x: lock)
    with pytest.raises(SpecError, match="is not a function: int"):
        code.package(7)  # type: ignore[arg-type]


def test_code_that_ends_anywhere_is_refused() -> None:
    package = code.package(giving(3))
    for end in range(0, len(package.content), 7):
        with pytest.raises(FormatError, match="hash is") as refused:
            code.unpack(package.content[:end], package.digest)
        assert refused.value.path == f"code/{package.digest}"


def test_code_that_says_nothing_of_itself_is_refused() -> None:
    whole = code.package(giving(3)).content
    end_of_header = whole.index(b"\n")
    for end in range(end_of_header):
        package = packed(whole[:end])
        with pytest.raises(FormatError, match="not a file of code"):
            code.unpack(package.content, package.digest)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"version": 2, "python": None, "pyarrow": None}, UnknownVersion),
        ({"kind": "wasm"}, UnknownVersion),
        ({"format": "other"}, FormatError),
        ({"python": "3.99"}, Incompatible),
        ({"pyarrow": "1"}, Incompatible),
        ({"name": None}, FormatError),
    ],
)
def test_code_of_elsewhere_is_refused(more: dict[str, object], expected: type[Exception]) -> None:
    package = with_header(code.package(giving(3)), **more)
    with pytest.raises(expected):
        code.unpack(package.content, package.digest)


# ------------------------------------------------------------------------------------ owners


def test_code_of_this_user_is_trusted_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    monkeypatch.setenv("USER", "somebody")
    (tmp_path / "abc").write_bytes(b"")
    tmp_path.chmod(0o755)
    code.guard(LocalStorage(str(tmp_path)))


@pytest.mark.parametrize("path", ["", "abc"])
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_code_that_others_may_write_is_refused(tmp_path: Path, path: str, mode: int) -> None:
    (tmp_path / "abc").write_bytes(b"")
    (tmp_path / path).chmod(mode)
    with pytest.raises(Incompatible, match="others may write") as refused:
        code.guard(LocalStorage(str(tmp_path)))
    assert str(refused.value.hint).startswith("chmod -R go-w")


def test_code_of_another_owner_is_refused_unless_the_job_names_it() -> None:
    storage = MemoryDisk().open("memory://m/group/code")
    storage.create("abc", b"")
    storage.own(Owned("abc", "eve", None, 0o644))
    with pytest.raises(Incompatible, match="abc belongs to eve") as refused:
        code.guard(storage, ("us",))
    assert "owners=" in str(refused.value.hint)
    code.guard(storage, ("us", "eve"))


def test_a_storage_without_owners_is_taken_as_it_is() -> None:
    from dataclasses import replace

    class Bare(MemoryStorage):
        @property
        def traits(self):  # type: ignore[no-untyped-def]
            return replace(super().traits, owners=False)

    disk = MemoryDisk()
    disk.open("memory://m/c").create("abc", b"")
    code.guard(Bare(disk, "memory://m/c"))
