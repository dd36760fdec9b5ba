"""What `scripts/measure` counts, on small sources."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "measure"


def load() -> ModuleType:
    loader = SourceFileLoader("measure", str(SCRIPT))
    spec = importlib.util.spec_from_loader("measure", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measure"] = module  # dataclasses look their module up
    loader.exec_module(module)
    return module


measure = load()


def measured(text: str) -> Any:
    return measure.measure_source(dedent(text), "a.py")


def only_body(text: str) -> Any:
    (body,) = measured(text).bodies
    return body


@pytest.mark.parametrize(
    ("body", "branches"),
    [
        ("pass", 0),
        ("if a: pass", 1),
        ("if a: pass\n    elif b: pass\n    else: pass", 2),
        ("return a if b else c", 1),
        ("return a and b", 1),
        ("return a and b or c or d", 3),
        ("for a in b: pass", 1),
        ("while a: pass", 1),
        ("try: pass\n    except A: pass\n    except B: pass\n    finally: pass", 2),
        ("return [a for a in b if c]", 2),
        ("return {a: d for a in b for d in a if c if e}", 4),
        ("match a:\n        case 1: pass\n        case _: pass", 2),
        ("assert a and b", 0),
        ("with a: pass", 0),
        ("return lambda: a or b", 1),
    ],
)
def test_branches_are_counted(body: str, branches: int) -> None:
    assert only_body(f"def f():\n    {body}\n").branches == branches


def test_lines_are_those_of_code_in_the_body() -> None:
    body = only_body(
        '''
        @decorated(
            1,
        )
        def f(
            a,
        ):
            """Say something.

            And more.
            """
            # a comment

            first = 1

            return (
                first  # beside code
            )
        '''
    )
    assert body.lines == 4


def test_a_function_in_a_function_counts_for_itself() -> None:
    text = """
        def outer():
            if a:
                pass

            @cached
            def inner():
                if b or c:
                    pass

            return inner
        """
    bodies = {body.place.name: (body.lines, body.branches) for body in measured(text).bodies}
    assert bodies == {"outer": (3, 1), "inner": (2, 2)}


def test_the_median_leaves_short_functions_out() -> None:
    short = "def s():\n    if a and b and c: return 1\n"
    long = "def l():\n" + "    if a: pass\n" * 2 + "    a = 1\n" * 6
    assert measured(short).density == 0
    assert measured(short + long).density == 2 / 8


@pytest.mark.parametrize(
    ("expression", "folded"),
    [
        ("[a for a in b]", False),
        ("[a for a in b if c]", False),
        ("[a for a in b if c if d]", True),
        ("[a for a in b if c and d]", True),
        ("{a for b in c for a in b}", True),
        ("(a for b in c for a in b)", True),
        ("[[a for a in b] for b in c]", False),
    ],
)
def test_a_comprehension_has_one_loop_and_one_condition(expression: str, folded: bool) -> None:
    assert bool(measured(f"x = {expression}\n").folded) == folded


def test_comprehensions_are_counted_by_the_hundred_lines_of_code() -> None:
    text = '"""A page.\n\nOf three lines."""\n' + "x = [a for a in b]\n" + "y = 1\n\n# why\n" * 49
    assert measured(text).comprehensions_per_hundred == 2.0


def test_a_wide_line_is_one_of_more_than_a_hundred_characters() -> None:
    assert not measured("#" * 100).wide
    (place,) = measured("x = 1\n" + "#" * 101).wide
    assert place.line == 2


def test_a_docstring_that_begins_with_a_preposition_is_found() -> None:
    text = '"""Of the newest."""\nclass A:\n    """Within,\n    then."""\n    def f(self):\n        """Offer it."""\n'
    assert [place.line for place in measured(text).prepositions] == [1, 3]


def test_anys_are_counted_in_quotes_too() -> None:
    text = """
        from typing import Any, cast
        import typing

        def f(a: Any, b: "dict[str, Any]") -> "Any":
            c: "Any" = cast("list[Any]", a)
            d: typing.Any = "Any"
        """
    assert measured(text).anys == 6


@pytest.mark.parametrize(
    ("text", "thin"),
    [
        ("def _f():\n    return 1\nx = _f()\n", ["_f"]),
        ("def _f():\n    return 1\nx = _f() + _f()\n", []),
        ("def f():\n    return 1\nx = f()\n", []),
        ('def _f():\n    """Say."""\n    a = 1\n    b = 2\n    return a\nx = _f()\n', ["_f"]),
        ("def _f():\n    a = 1\n    b = 2\n    c = 3\n    return a\nx = _f()\n", []),
        (
            "class A:\n    def _f(self):\n        return 1\n    x = property(lambda s: s._f)\n",
            ["_f"],
        ),
        ("class A:\n    def __len__(self):\n        return 1\n", []),
    ],
)
def test_a_thin_function_is_private_short_and_named_once(text: str, thin: list[str]) -> None:
    assert [place.name for place in measured(text).thin] == thin


def test_docstrings_that_begin_with_a_question_are_found() -> None:
    text = '''
        def f():
            """Return what is there."""

        def g():
            """Return the files."""

        def h():
            """Return whether it is so, and what follows."""
        '''
    assert [place.name for place in measured(text).questions] == ["Return what is there."]


def test_sentences_that_begin_with_a_pronoun_are_found_in_docstrings_and_comments() -> None:
    text = '''
        """Write the file. What is there is kept.

        So it ends
        """
        # Of the newest: the first two
        # lines are one comment. Then more.
        x = 1  # What stands beside code is no sentence
        # Who
        '''
    counts = measured(text)
    assert [place.name for place in counts.openers] == [
        "What is there is kept.",
        "So it ends",
        "Of the newest:",
        "Who",
    ]
    assert counts.sentences == 7


def test_public_functions_named_by_a_participle_alone_are_found() -> None:
    text = """
        def redistributed(): pass
        def fenced_by(): pass
        def kept(): pass
        def reported_batches(): pass
        def need(): pass
        def _kept(): pass
        class A:
            def held(self): pass
        """
    names = [place.name for place in measured(text).participles]
    assert names == ["redistributed", "fenced_by", "kept"]


def test_a_class_name_of_three_modules_is_counted_once(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    for name in ("a", "b", "c"):
        (package / f"{name}.py").write_text("class Place: pass\nclass A: pass\n")
    (package / "c.py").write_text("class Place: pass\nclass C: pass\n")
    whole = json.loads(run(str(package), "--json").stdout)["whole"]
    assert (whole["classes"], whole["modules"], whole["lines"]) == (1, 5, 24)


def write_package(folder: Path) -> Path:
    package = folder / "package"
    (package / "room").mkdir(parents=True)
    (package / "top.py").write_text("def f():\n" + "    a = 1\n" * 8)
    (package / "room" / "deep.py").write_text("def g():\n" + "    if a: pass\n" * 8)
    return package


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)


def test_rooms_the_worst_and_the_targets_are_shown(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    done = run(str(package), "--worst", "1", "--check")
    assert done.returncode == 1
    assert done.stderr == "measure: missed: median, functions\n"
    rows = [line.split()[:4] for line in done.stdout.splitlines()]
    assert ["package/room", "9", "1", "1.00"] in rows
    assert ["package", "9", "1", "0.00"] in rows
    assert ["all", "18", "2", "0.50"] in rows
    assert done.stdout.splitlines()[-1].endswith("deep.py:1 g")
    assert "functions          111        60        60" in done.stdout


def test_a_program_gets_the_same_figures(tmp_path: Path) -> None:
    document = json.loads(run(str(write_package(tmp_path)), "--json").stdout)
    assert document["all"]["median"] == 0.5
    assert document["missed"] == ["median", "functions"]
    assert document["rooms"].keys() == {"package", "package/room"}


def test_targets_that_are_met_are_no_error(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "top.py").write_text("def f():\n" + "    a = 1\n" * 20)
    assert run(str(package / "top.py"), "--check").returncode == 0
    assert run(str(tmp_path / "nowhere")).returncode == 2
