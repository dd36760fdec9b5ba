"""Whatever deletes or writes over something outside a workdir stands in a table, with the proof that
another whole copy exists.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import stateshift

PACKAGE = Path(stateshift.__file__).parent
PAGE = PACKAGE / "README.md"
CALLED = {"write", "create", "own", "rename"}
NAMED = {"remove", "move", "prune", "unlink", "rmtree"}  # also where they are handed on
# These names, of what is no storage: streams, lists, workdirs of runs, other systems.
NOT_FILES = {
    "advise/rebalance/placement.py", "check/flink/capture.py", "cli/commands/dataflow.py",
    "cli/commands/looks.py", "cli/commands/metrics.py", "cli/commands/reference.py",
    "cli/shell/entry.py", "cli/shell/failing.py", "cli/shell/terminal.py",
    "cli/shell/progress.py", "clusters/livy.py",
    "clusters/standalone/cluster.py", "engines/flink/rewrite/keyed_files.py", "engines/match.py",
    "engines/spark/findings/batches.py",
    "fleet/processes.py", "job/queries.py", "live/bins/controller.py",
    "live/cli/__init__.py", "live/cli/bins_text.py", "live/cli/group.py", "live/cli/page.py",
    "live/buffer/buffer.py", "live/buffer/listeners.py", "logs.py", "look/checked_parts.py", "migration/calls.py",
    "migration/context.py", "migration/fleet_session.py", "migration/notifications.py",
    "migration/otel.py", "migration/submit_corrections.py",
}  # fmt: skip
# The storages themselves, and what holds no files.
ROOMS = ("storage/", "testing/", "formats/", "models/", "cli/views/", "documents/")


def changes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in CALLED:
            yield f"{ast.unparse(called)} (line {called.lineno})"
        if isinstance(node, ast.Attribute) and node.attr in NAMED:
            yield f"{ast.unparse(node)} (line {node.lineno})"


def modules() -> dict[str, list[str]]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        calls = list(changes(ast.parse(path.read_text("utf-8"))))
        if calls and not name.startswith(ROOMS) and name not in NOT_FILES:
            found[name] = calls
    return found


def in_table() -> dict[str, str]:
    """The proofs, by module."""
    text = PAGE.read_text("utf-8").partition("### What deletes, and on what proof")[2]
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    proofs = {}
    for row in rows:
        names, _, proof = row.strip("| ").split(" | ")
        for name in names.split(", "):
            proofs[name.strip("`")] = proof
    return proofs


def test_whatever_deletes_or_writes_over_something_stands_in_the_table_with_its_proof() -> None:
    found, proofs = modules(), in_table()
    missing = {name: calls for name, calls in found.items() if name not in proofs}
    assert not missing, "add a row to stateshift/README.md, with the proof"
    assert not proofs.keys() - found.keys(), "these delete nothing any more"
    assert all(len(proof) > 10 for proof in proofs.values())


def test_no_hint_names_the_option_that_deletes_the_last_copy() -> None:
    """It stands in the help of its command, and nowhere else that a user reads."""
    naming = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and "--discard-last-copy" in str(node.value):
                naming.append(path.relative_to(PACKAGE).as_posix())
    assert naming == ["cli/commands/runs.py"]
