"""Nothing ships that only tests call: what no command and no public function reaches stands with
the tests.

Of modules it is decided by imports. Of functions and classes it is decided by names, from the
sources alone. The code that runs when a module is imported
mentions names; a function or class of such a name, wherever it is, mentions further ones. So a
function counts as reached if anything reached says its name: the test can miss one that shares a
name with another, but what it finds is not called by the program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_architecture import Package, _with_parents, read_package

ROOT = Path(__file__).resolve().parents[1]

# What stands beside the program, for tests and benches. What it alone uses, stands beside as well.
BESIDE = ("testing",)

# Where programs begin: the command line, and what users' programs and jobs import.
ENTRIES = ("stateshift.__main__", "stateshift.api", "stateshift.job")

# What others call by a name that we never say.
CALLED_BY_OTHERS = {
    "emit": "logging calls a handler",
    "format_commands": "typer asks a group of commands for this part of its help",
    **dict.fromkeys(
        ("do_DELETE", "do_GET", "do_POST", "do_PUT", "log_message"), "http.server calls these"
    ),
    **dict.fromkeys(
        ("handle_error", "process_request", "process_request_thread", "shutdown_request"),
        "socketserver calls these",
    ),
    **dict.fromkeys(("Worker", "keep_running"), "a user's job calls it (stateshift.live)"),
    **dict.fromkeys(
        (
            *("compose", "on_mount", "on_unmount", "on_opened", "on_found"),
            *("on_data_table_row_selected", "on_input_submitted"),
            *("action_search", "action_more", "action_help", "action_back"),
        ),
        "textual calls these (stateshift browse)",
    ),
    "seekable": "pyarrow and Python's io ask a file",
    "schema_text": "what configs/ holds is made and compared with it",
}

# The decorators of commands: the parser calls a function that has one, by its name as a text.
OF_COMMANDS = {"command", "shortcut"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Defined:
    """A function or class, and the names that it mentions when it runs."""

    place: str
    name: str
    mentions: frozenset[str]
    is_command: bool = False


def names_in(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return all names and attributes in these nodes. An import mentions nothing, since it may be
    for somebody else; but where it gives another name, it mentions the one it takes.
    """
    names = set()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.alias) and node.asname is not None:
                names.add(node.name)
            elif isinstance(node, ast.Call):
                names |= origin_names(node)
    return frozenset(names)


def origin_names(call: ast.Call) -> set[str]:
    """Return the attributes that a key of a document is read from: of `At("carried.number")`."""
    if not isinstance(call.func, ast.Name) or call.func.id not in ("At", "OrNone"):
        return set()
    origin = call.args[0]
    return set(origin.value.split(".")) if isinstance(origin, ast.Constant) else set()


def is_export_list(node: ast.stmt) -> bool:
    """Return whether this is `__all__ = […]`."""
    return isinstance(node, ast.Assign) and names_in(node.targets) == {"__all__"}


def definitions(file: str, body: list[ast.stmt], outer: str = "") -> Iterator[Defined]:
    """Yield the functions and classes of a body, and those of its classes."""
    for node in body:
        if not isinstance(node, Definition):
            continue
        place = f"{file}:{node.lineno} {outer}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from definitions(file, node.body, f"{outer}{node.name}.")
            yield Defined(place, node.name, run_with(node))
        else:
            is_command = not outer and not OF_COMMANDS.isdisjoint(names_in(node.decorator_list))
            yield Defined(place, node.name, names_in([node]), is_command)


def run_with(node: ast.ClassDef) -> frozenset[str]:
    """Return the names that are mentioned as soon as the class is made."""
    header = names_in([*node.bases, *node.keywords, *node.decorator_list])
    return header | run_on_import(node.body)


def run_on_import(body: list[ast.stmt]) -> frozenset[str]:
    """Return the names that a body mentions by itself, outside of its functions."""
    names: frozenset[str] = frozenset()
    for node in body:
        if isinstance(node, Definition):
            names |= names_in(node.decorator_list)
        elif not is_export_list(node):
            names |= names_in([node])
    return names


def unreached(sources: Mapping[str, str], entries: Iterable[str]) -> list[str]:
    """Return the places of all functions and classes that nothing reaches from the names in
    `entries` and from what runs on import.
    """
    waiting: list[Defined] = []
    names = set(entries)
    for file, text in sources.items():
        if is_beside(file):
            continue
        tree = ast.parse(text, file)
        names |= run_on_import(tree.body)
        waiting.extend(definitions(file, tree.body))
    while True:
        mentioned = frozenset(names)
        left = []
        for each in waiting:
            if each.name in mentioned or each.is_command or is_special(each.name):
                names |= each.mentions
            else:
                left.append(each)
        if len(left) == len(waiting):
            return sorted(each.place for each in waiting)
        waiting = left


def is_special(name: str) -> bool:
    """Return whether Python itself calls it."""
    return name.startswith("__") and name.endswith("__")


def is_beside(file: str) -> bool:
    """Return whether a file is of a room that stands beside the program."""
    return file.split("/")[1] in BESIDE


def public_names(text: str) -> set[str]:
    """Return what a module offers to programs: its `__all__`."""
    exports = [node for node in ast.parse(text).body if is_export_list(node)]
    return {name for node in exports for name in ast.literal_eval(node.value)}  # type: ignore[attr-defined]


def read_sources() -> dict[str, str]:
    files = sorted((ROOT / "stateshift").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in files}


def entry_names(sources: Mapping[str, str]) -> set[str]:
    """Return what programs and users' jobs import."""
    names = {"main", *CALLED_BY_OTHERS}
    for file in ("stateshift/job/__init__.py", "stateshift/api.py", "stateshift/api/__init__.py"):
        names |= public_names(sources.get(file, ""))
    return names


@pytest.mark.long
def test_nothing_ships_that_only_tests_call() -> None:
    sources = read_sources()
    found = unreached(sources, entry_names(sources))
    assert not found, "only tests call these: " + "\n".join(found)


@pytest.mark.long
def test_every_exception_is_needed() -> None:
    sources = read_sources()
    entries = entry_names(sources) - CALLED_BY_OTHERS.keys()
    found = {place.rpartition(" ")[2].rpartition(".")[2] for place in unreached(sources, entries)}
    assert CALLED_BY_OTHERS.keys() <= found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def a(): pass", ["stateshift/x.py:1 a"]),
        ("def a(): pass\na()", []),
        ("def main(): a()\ndef a(): b()\ndef b(): pass", []),
        ("def a(): a()", ["stateshift/x.py:1 a"]),
        ("class A:\n  def f(self): pass\nA()", ["stateshift/x.py:2 A.f"]),
        ("class A:\n  def __len__(self): pass\nA()", []),
        ("from stateshift.y import a\n__all__ = ['a']\ndef a(): pass", ["stateshift/x.py:3 a"]),
        ("from stateshift.x import a as b\ndef a(): pass", []),
        ("@register\ndef a(): pass\ndef register(): pass", ["stateshift/x.py:2 a"]),
    ],
)
def test_what_nothing_reaches_is_found(text: str, found: list[str]) -> None:
    assert unreached({"stateshift/x.py": text}, {"main"}) == found


def test_what_only_twins_use_is_found() -> None:
    sources = {"stateshift/x.py": "def a(): pass", "stateshift/testing/m.py": "def t(): a()"}
    assert unreached(sources, {"main"}) == ["stateshift/x.py:1 a"]


# ------------------------------------------------------------------------------------ modules


def unreached_modules(package: Package) -> list[str]:
    """Return the modules that no entry imports, directly or through others."""
    reached: set[str] = set()
    pending = [name for name in ENTRIES if name in package.sources]
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        reached.add(name)
        pending += [each for each in used_by(package, name) if each in package.sources]
    files = {name: name.replace(".", "/") + "/" for name in package.sources if "." in name}
    return sorted(name for name in files.keys() - reached if not is_beside(files[name]))


def used_by(package: Package, name: str) -> Iterator[str]:
    """Yield the modules that run with a module, and the packages around them."""
    for each in package.imports[name]:
        if not each.typing:
            yield from _with_parents(each.module)
    yield from named_in_text(package, name)


def named_in_text(package: Package, name: str) -> Iterator[str]:
    """Yield the modules that a lazy package names in a table: whole, or by their last part."""
    for node in ast.walk(package.trees[name]):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
            yield f"{name}.{node.value}"


@pytest.mark.long
def test_every_module_is_reached_or_stands_beside_the_program() -> None:
    assert unreached_modules(read_package(ROOT / "stateshift")) == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("stateshift.cli.x", []),
        ("stateshift.cli.y", ["stateshift.cli.y"]),
        ("stateshift.cli.lazy", []),
        ("stateshift.testing.y", []),
    ],
)
def test_a_module_that_nobody_imports_is_found(name: str, found: list[str]) -> None:
    sources = {
        "stateshift.__main__": "def f():\n  from stateshift.cli.x import main",
        "stateshift.cli": "TABLE = {'main': 'lazy'}",
        name: "",
    }
    assert unreached_modules(Package(sources, frozenset(("stateshift.cli",)))) == found
