"""How many lines of code NEXMark's queries have: as live operators, and as a user of Spark writes
them.

A query's lines are those of its functions and of all functions and classes of the same module that
they need, with their decorators; without blank lines, comments, docstrings, imports and constants.
What two queries share counts for each of them. Both modules are formatted alike, to 100 columns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUERIES = tuple(f"q{number}" for number in range(1, 9))

Definition = ast.FunctionDef | ast.ClassDef

# "Megaphone: Latency-conscious state migration for distributed streaming dataflows", PVLDB 12(9),
# 2019, Table 1: Rust, on timely dataflow.
PAPER_NATIVE = dict(zip(QUERIES, (12, 14, 58, 128, 73, 130, 55, 58), strict=True))
PAPER_MEGAPHONE = dict(zip(QUERIES, (16, 18, 41, 74, 46, 74, 54, 29), strict=True))


def live_lines() -> dict[str, int]:
    """Return the lines of each query as live operators, with what makes their input."""
    source = (HERE / "live_queries.py").read_text()
    return {query: lines_of(source, roots) for query, roots in _listed(source).items()}


def native_lines() -> dict[str, int]:
    """Return the lines of each query in Structured Streaming."""
    source = (HERE / "native.py").read_text()
    return {query: lines_of(source, (query,)) for query in QUERIES}


def _listed(source: str) -> dict[str, tuple[str, ...]]:
    """Return what a module's QUERIES names, by query."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "QUERIES":
            assert isinstance(node.value, ast.Dict)
            names = [ast.literal_eval(key) for key in node.value.keys if key is not None]
            return dict(zip(names, map(_names, node.value.values), strict=True))
    raise ValueError("no QUERIES in this module")


def lines_of(source: str, roots: Sequence[str]) -> int:
    """Return the lines of some definitions, and of those that they need."""
    definitions = {
        node.name: node for node in ast.parse(source).body if isinstance(node, Definition)
    }
    reached: dict[str, Definition] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in reached:
            reached[name] = definitions[name]
            waiting.extend(_names(definitions[name]))
    lines = source.splitlines()
    return sum(len(list(_code(node, lines))) for node in reached.values())


def _names(node: ast.AST) -> tuple[str, ...]:
    """Return all names in a piece of code."""
    return tuple(each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _code(node: Definition, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of code of a definition."""
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    assert node.end_lineno is not None
    documentation = set(_documentation(node))
    for number in range(first, node.end_lineno + 1):
        line = lines[number - 1].strip()
        if line and not line.startswith("#") and number not in documentation:
            yield line


def _documentation(node: Definition) -> Iterator[int]:
    """Yield the numbers of the lines that are docstrings, of a definition and those in it."""
    for each in ast.walk(node):
        if isinstance(each, Definition) and ast.get_docstring(each) is not None:
            text = each.body[0]
            assert text.end_lineno is not None
            yield from range(text.lineno, text.end_lineno + 1)
