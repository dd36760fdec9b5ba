"""The rooms, and who may know whom. The sources are read (imports inside functions too); nothing is
imported.

Imports point down and never along: ROWS is the picture, from top to bottom. Pure modules reach
nothing that touches the outside, also not through what they import. The checks are functions of a
dictionary of sources, so that each has a test of its own with a small package that breaks it: a
rule that nothing can break guards nothing.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ROWS = (
    ("testing",),
    ("__main__",),
    # The commands of `stateshift live`. They use what all commands share, in cli; cli knows them by
    # a name in its table of commands, which is imported when one of them is asked for.
    ("live.cli",),
    ("cli",),
    ("api",),
    ("documents",),
    ("table",),
    ("migration", "standby", "look", "check", "job", "live", "advise"),
    ("executor", "report", "fleet", "lock", "workdir", "estimating", "logs", "notification"),
    ("engines", "dataflow"),
    ("journal", "plan", "steering"),
    ("step",),
    ("world",),
    ("storage", "clusters", "sources", "machine"),
    ("formats", "specification", "survey", "extensions", "signing"),
    ("errors", "plain", "private_files", "purpose", "suggestion", "terms"),
)
ROW_OF = {room: number for number, rooms in enumerate(ROWS) for room in rooms}

MAY_OPEN_ADAPTERS = ("migration", "look", "check", "fleet", "live", "advise")
# What stands beside the program: nothing of it imports these.
BESIDE = ("testing",)
NO_ADAPTERS = (
    "stateshift.storage.protocol",
    "stateshift.clusters.protocol",
    "stateshift.storage.locations",
    "stateshift.clusters.redaction",
    # What a source's offset and state say; nobody is asked.
    "stateshift.sources.kind",
    "stateshift.sources.kinds",
    "stateshift.sources.topics",
    "stateshift.sources.topic_positions",  # of topics that somebody else has opened
    "stateshift.sources.topic_search",
)
ONLY_PROTOCOLS = (
    "world",
    "step",
)  # names of places are pure as well, but these two need not even those
MAY_START_SPARK = ("fleet", "live", "job", "check")
MAY_START_FLINK = "stateshift.engines.flink.jvm"  # where a user named the jars
JOB_MAY_KNOW = (
    *("specification", "survey", "formats", "extensions"),
    *("errors", "plain", "suggestion"),
)

# The rooms of an engine, and its modules that are in none. Modules on one row may know each other,
# rooms may not.
SPARK_ROWS = (
    ("engine",),
    ("plan",),
    ("findings",),
    ("check", "rewrite", "views"),
    ("survey",),
    ("entries",),
    ("layout", "small_files", "chains", "places", "image", "real_time", "versions"),
)
FLINK_ROWS = (
    ("engine",),
    ("plan",),
    ("findings", "check", "views"),
    ("survey",),
    ("jvm",),
    ("rewrite",),
    ("entries",),
    ("new_offsets", "layout", "streams", "places", "image"),
)
ENGINE_ROW_OF = {
    engine: {part: number for number, parts in enumerate(rows) for part in parts}
    for engine, rows in (("spark", SPARK_ROWS), ("flink", FLINK_ROWS))
}

PURE_ROOMS = (
    *("errors", "plain", "specification", "survey", "formats", "step", "world", "plan", "report"),
    *("dataflow", "purpose", "suggestion"),
)
PURE_PARTS = (
    "stateshift.live.protocol",
    "stateshift.advise.evaluate",
    "stateshift.advise.rebalance",
    "stateshift.sources.kind",
    "stateshift.sources.topics",
    "stateshift.sources.translate",
)
PURE_IN_ENGINES = ("plan", "findings", "rewrite", "entries", "layout")
OUTSIDE = frozenset(
    (
        *(
            "fsspec",
            "hdfs",
            "http",
            "aiohttp",
            "requests",
            "urllib3",
            "socket",
            "socketserver",
            "ssl",
            "select",
        ),
        *("subprocess", "multiprocessing", "asyncio", "signal", "shutil", "tempfile", "kafka"),
        *("time", "random", "secrets", "rich", "typer", "pyspark", "py4j"),
    )
)
# What memory cannot hold lies in files without a name: nobody else could find them, or tell that
# they were there.
OVERFLOWING = (("tempfile", "stateshift.engines.spill"),)
OUTSIDE_MODULES = frozenset(("urllib.request", "concurrent.futures.process"))
OUTSIDE_NAMES = {
    "datetime": ("now", "utcnow", "today"),
    "date": ("today",),
    "uuid": ("uuid1", "uuid4"),
    "os": ("urandom", "system", "open", "environ", "getcwd"),
}

TERMINAL = ("sys.exit", "sys.argv", "sys.stdin", "sys.stdout", "sys.stderr")
NO_NAME_FOR_A_FILE = (
    "utils",
    "util",
    "helpers",
    "common",
    "base",
    "core",
    "misc",
    "manager",
    "handler",
    "service",
)


@dataclass(frozen=True)
class Import:
    """One imported module (of ours or not) and where; `lazy` inside a function, `typing` under
    TYPE_CHECKING, `value` if more than a type is imported from it.
    """

    module: str
    line: int
    lazy: bool
    typing: bool
    value: bool = True


@dataclass(frozen=True)
class Package:
    """A package as sources: module name (`stateshift.step.files`) -> text."""

    sources: Mapping[str, str]
    packages: frozenset[str] = frozenset()

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {name: ast.parse(text, name) for name, text in self.sources.items()}

    @cached_property
    def imports(self) -> dict[str, tuple[Import, ...]]:
        return {name: tuple(self._imports_of(name)) for name in self.sources}

    def _imports_of(self, name: str) -> Iterator[Import]:
        yield from self._walk(self.trees[name], name, lazy=False, typing=False)

    def _walk(self, tree: ast.AST, name: str, lazy: bool, typing: bool) -> Iterator[Import]:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, lazy, typing)
            elif isinstance(node, ast.ImportFrom):
                for module, imported in self._modules_from(node, name):
                    is_class = imported[:1].isupper() and not imported.isupper()
                    yield Import(module, node.lineno, lazy, typing, value=not is_class)
            elif (called := _import_by_call(node)) is not None:
                yield Import(called, getattr(node, "lineno", 0), lazy, typing)
            deeper = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = typing or (
                isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            )
            yield from self._walk(node, name, deeper, guarded)

    def _modules_from(self, node: ast.ImportFrom, importer: str) -> Iterator[tuple[str, str]]:
        """`from a import b` names the module a.b where there is one, else a."""
        start = node.module or ""
        if node.level:
            parts = importer.split(".") if importer in self.packages else importer.split(".")[:-1]
            start = ".".join(
                [*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])]
            )
        for alias in node.names:
            inner = f"{start}.{alias.name}"
            yield inner if inner in self.sources else start, alias.name


def _import_by_call(node: ast.AST) -> str | None:
    """`import_module("x.y")` and `__import__("x")`: imports that do not look like one."""
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name = (
            node.func.attr
            if isinstance(node.func, ast.Attribute)
            else getattr(node.func, "id", None)
        )
        if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            return node.args[0].value
    return None


def read_package(folder: Path) -> Package:
    sources, packages = {}, set()
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        sources[name] = path.read_text("utf-8")
        if parts[-1] == "__init__":
            packages.add(name)
    return Package(sources, frozenset(packages))


def room(module: str) -> str:
    """`stateshift.step.files` is in the room `step`; the package itself in none. `live/cli` is a
    room of its own.
    """
    parts = module.split(".")
    if parts[1:3] == ["live", "cli"]:
        return "live.cli"
    return parts[1] if len(parts) > 1 else ""


def ours(module: str) -> bool:
    return module.split(".")[0] == "stateshift"


# ---------------------------------------------------------------------------------------------- the rules


def rows_broken(package: Package) -> Iterator[str]:
    """Imports point down; modules on one row do not import each other."""
    for name, imports in package.imports.items():
        here = room(name)
        if here and here not in ROW_OF:
            yield f"{name}: the room {here!r} is on no row of the picture"
            continue
        for found in imports:
            there = room(found.module)
            if not ours(found.module) or not there or there == here or there not in ROW_OF:
                continue
            if not here:
                yield (
                    f"{name}:{found.line} is what every import runs first, and must not import "
                    f"{found.module}"
                )
            elif ROW_OF[there] == ROW_OF[here]:
                yield (
                    f"{name}:{found.line} imports {found.module}, but {here} and {there} are "
                    "on one row"
                )
            elif ROW_OF[there] < ROW_OF[here]:
                yield f"{name}:{found.line} imports {found.module}, but {there} is above {here}"


def circles(package: Package) -> Iterator[str]:
    """No module needs itself through others, also by imports inside functions, and under
    TYPE_CHECKING if they name more than types. A package's own `__init__` may name its modules.
    """
    needs: dict[str, set[str]] = {}
    for name in package.sources.keys() - package.packages:
        found = [each for each in package.imports[name] if each.value or not each.typing]
        modules = {each.module for each in found} - package.packages - {name}
        needs[name] = modules & package.sources.keys()
    all_needed = {name: _all_needed(name, needs) for name in needs}
    for name in sorted(needs):
        circle = sorted(other for other in all_needed[name] if name in all_needed[other])
        if circle and name == circle[0]:
            yield f"{', '.join(circle)} need each other: the fact that they share belongs lower"


def _all_needed(name: str, needs: Mapping[str, set[str]]) -> set[str]:
    reached, waiting = set[str](), [name]
    while waiting:
        new = needs[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def engines_entangled(package: Package) -> Iterator[str]:
    """engines/spark and engines/flink never import each other."""
    for name, imports in package.imports.items():
        for one, other in (("spark", "flink"), ("flink", "spark")):
            if name.startswith(f"stateshift.engines.{one}"):
                for found in imports:
                    if found.module.startswith(f"stateshift.engines.{other}"):
                        yield (
                            f"{name}:{found.line} imports {found.module}: one engine never "
                            "knows another"
                        )


def engine_rows_broken(package: Package) -> Iterator[str]:
    """In an engine, too, imports point down or along a row, and its rooms on one row do not know
    each other.
    """
    for engine, row_of in ENGINE_ROW_OF.items():
        top = f"stateshift.engines.{engine}."
        for name, imports in package.imports.items():
            if not name.startswith(top):
                continue
            here = name.removeprefix(top).split(".")[0]
            if here not in row_of:
                yield f"{name}: {here!r} is on no row of the picture of {engine}'s engine"
                continue
            for found in imports:
                there = found.module.removeprefix(top).split(".")[0]
                if not found.module.startswith(top) or there == here or there not in row_of:
                    continue
                if row_of[there] < row_of[here]:
                    yield f"{name}:{found.line} imports {found.module}, but {there} is above {here}"
                elif (
                    row_of[there] == row_of[here] and {top + here, top + there} <= package.packages
                ):
                    yield (
                        f"{name}:{found.line} imports {found.module}, but {here} and {there} "
                        "are rooms of one row"
                    )


def engines_named(package: Package) -> Iterator[str]:
    """Who looks at an image, and who runs a migration, knows engines by what they contribute to
    the registry.
    """
    for name, imports in package.imports.items():
        if room(name) not in ("look", "migration"):
            continue
        for found in imports:
            if found.module.startswith(("stateshift.engines.spark", "stateshift.engines.flink")):
                yield (
                    f"{name}:{found.line} imports {found.module}: {room(name)} knows engines "
                    "by their registry"
                )


def adapters_opened(package: Package) -> Iterator[str]:
    """Storages and clusters are known by their protocol; adapters are opened by migration, look
    and fleet alone.
    """
    for name, imports in package.imports.items():
        for found in imports:
            there = room(found.module)
            if (
                there not in ("storage", "clusters", "sources")
                or room(name) == there
                or not ours(found.module)
            ):
                continue
            known = NO_ADAPTERS[:2] if room(name) in ONLY_PROTOCOLS else NO_ADAPTERS
            if found.module in known or room(name) in (*MAY_OPEN_ADAPTERS, "testing"):
                continue
            yield (
                f"{name}:{found.line} imports {found.module}: only "
                f"{', '.join(MAY_OPEN_ADAPTERS)} open adapters, "
                f"everybody else knows stateshift.{there}.protocol"
            )


def checks_shipped(package: Package) -> Iterator[str]:
    """Models and in-memory twins are imported by tests and benches, and by nothing of the program."""
    for name, imports in package.imports.items():
        if room(name) in BESIDE:
            continue
        for imported in imports:
            if ours(imported.module) and room(imported.module) in BESIDE:
                yield (
                    f"{name}:{imported.line} imports {imported.module}: only tests and benches "
                    f"know {room(imported.module)}"
                )


def job_too_heavy(package: Package) -> Iterator[str]:
    """A user's job imports stateshift.job: it must bring along next to nothing."""
    for name, imports in package.imports.items():
        if room(name) == "job":
            for found in imports:
                if ours(found.module) and room(found.module) not in (*JOB_MAY_KNOW, "job", ""):
                    yield (
                        f"{name}:{found.line} imports {found.module}: job knows "
                        f"{', '.join(JOB_MAY_KNOW)} at most"
                    )


def spark_too_early(package: Package) -> Iterator[str]:
    """pyspark is imported inside functions, and only in fleet, live and job."""
    for name, imports in package.imports.items():
        for found in imports:
            if found.module.split(".")[0] not in ("pyspark", "py4j") or found.typing:
                continue
            if room(name) not in MAY_START_SPARK and name != MAY_START_FLINK:
                yield f"{name}:{found.line} imports pyspark: only {', '.join(MAY_START_SPARK)} may"
            elif not found.lazy:
                yield (
                    f"{name}:{found.line} imports pyspark at the top: whoever imports {name} "
                    "would wait for it"
                )


def is_pure(name: str) -> bool:
    parts = name.split(".")
    if room(name) in PURE_ROOMS or ".".join(parts[:3]) in PURE_PARTS:
        return True
    return room(name) == "engines" and len(parts) > 3 and parts[3] in PURE_IN_ENGINES


def impurities(package: Package) -> Iterator[str]:
    """What is pure reaches no file system, network, process, clock, chance or terminal, however
    indirectly.
    """
    for name in package.sources:
        if is_pure(name):
            for chain, what in _reached(package, name):
                way = " -> ".join(chain)
                yield f"{name} is pure, but reaches {what}" + (
                    f" through {way}" if len(chain) > 1 else ""
                )
            yield from _impure_names(package.trees[name], name)


def _reached(package: Package, start: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Everything outside that importing `start` may lead to, with the way there."""
    seen, waiting = {start}, [(start,)]
    while waiting:
        chain = waiting.pop()
        name = chain[-1]
        for found in package.imports.get(name, ()):
            # The __init__ above a module runs with it, but what it does only when called is
            # nobody's doing here.
            passing = found.lazy and name in package.packages and not is_pure(name)
            if found.typing or passing:
                continue
            if not ours(found.module):
                if _touches_outside(found.module) and (found.module, name) not in OVERFLOWING:
                    yield chain, f"{found.module} (line {found.line})"
                continue
            for step in _with_parents(found.module):
                if step in package.sources and step not in seen:
                    seen.add(step)
                    waiting.append((*chain, step))


def _touches_outside(module: str) -> bool:
    return module.split(".")[0] in OUTSIDE or module in OUTSIDE_MODULES


def _with_parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    for length in range(2, len(parts) + 1):
        yield ".".join(parts[:length])


def _impure_names(tree: ast.Module, name: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = (
                node.value.attr
                if isinstance(node.value, ast.Attribute)
                else getattr(node.value, "id", "")
            )
            if node.attr in OUTSIDE_NAMES.get(owner, ()):
                yield f"{name}:{node.lineno} is pure, but asks {owner}.{node.attr}"
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            yield f"{name}:{node.lineno} is pure, but opens a file"


def logs_in_pure_rooms(package: Package) -> Iterator[str]:
    """What is pure does not log: what it decides is in what it returns."""
    for name, imports in package.imports.items():
        for found in imports:
            if is_pure(name) and found.module.split(".")[0] == "logging":
                yield f"{name}:{found.line} is pure, and must not log"


def meaningless_names(package: Package) -> Iterator[str]:
    for name in package.sources:
        for part in name.split(".")[1:]:
            if part.strip("_") in NO_NAME_FOR_A_FILE:
                yield f"{name}: {part!r} says nothing; name the file after what it knows"


# Programs of their own: spark-submit's, and those that run a user's file.
PROGRAMS = (
    "stateshift.job.one_batch",
    "stateshift.check.spark.capture",
    "stateshift.check.flink.capture",
    "stateshift.check.answering",
)


def talk_outside_cli(package: Package) -> Iterator[str]:
    """Only cli prints, reads argv or ends the process; and what others start as a program."""
    for name, tree in package.trees.items():
        if room(name) in ("cli", "live.cli", "__main__") or name in PROGRAMS:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in ("print", "input", "exit", "quit"):
                    yield (
                        f"{name}:{node.lineno} calls {node.func.id}(): only cli talks to the "
                        "terminal"
                    )
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in TERMINAL:
                yield (
                    f"{name}:{node.lineno} uses {ast.unparse(node)}: only cli talks to the terminal"
                )


# These read Parquet. A thread of Arrow may let go of a Python buffer after the rows are returned: where
# the process ends meanwhile, it is aborted, and its exit code is lost.
READS_PARQUET = ("iter_batches", "read_row_group", "read_row_groups")


def parquet_read_by_threads(package: Package) -> Iterator[str]:
    for name, tree in package.trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            called = ast.unparse(node.func)
            reads = node.func.attr in READS_PARQUET or (
                called.endswith(").read") and "ParquetFile(" in called
            )
            if called.endswith("parquet.read_table") or called == "pq.read_table":
                yield f"{name}:{node.lineno}: ParquetFile(…).read(use_threads=False) reads a table"
            elif reads and not any(
                word.arg == "use_threads" and ast.unparse(word.value) == "False"
                for word in node.keywords
            ):
                yield f"{name}:{node.lineno}: {node.func.attr} needs use_threads=False"


RULES = (
    rows_broken,
    circles,
    engines_entangled,
    engine_rows_broken,
    engines_named,
    adapters_opened,
    checks_shipped,
    job_too_heavy,
    spark_too_early,
    impurities,
    logs_in_pure_rooms,
    meaningless_names,
    talk_outside_cli,
    parquet_read_by_threads,
)


@pytest.fixture(scope="module")
def stateshift() -> Package:
    return read_package(ROOT / "stateshift")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_rule(rule: object, stateshift: Package) -> None:
    assert callable(rule)
    broken = list(rule(stateshift))
    assert not broken, "\n" + "\n".join(broken)


# ---------------------------------------------------------------------------------------------- the rules bite

BROKEN = (
    (rows_broken, {"stateshift.plan": "import stateshift.executor"}, "executor is above plan"),
    (
        rows_broken,
        {"stateshift.executor": "from stateshift import report", "stateshift.report": ""},
        "one row",
    ),
    (
        rows_broken,
        {"stateshift.step.x": "def f():\n  from stateshift.plan import Plan"},
        "plan is above step",
    ),
    (rows_broken, {"stateshift.errors": "from . import plain", "stateshift.plain": ""}, "one row"),
    (rows_broken, {"stateshift.cellar": ""}, "on no row"),
    (
        rows_broken,
        {"stateshift.cli.x": "def f():\n  import stateshift.live.cli.chains"},
        "live.cli is above cli",
    ),
    (
        rows_broken,
        {"stateshift.live.x": "import stateshift.live.cli.chains"},
        "live.cli is above live",
    ),
    (rows_broken, {"stateshift": "from stateshift.cli import main"}, "runs first"),
    (
        parquet_read_by_threads,
        {"stateshift.table": "rows = pq.ParquetFile(file).iter_batches(1000)"},
        "iter_batches needs use_threads=False",
    ),
    (
        parquet_read_by_threads,
        {"stateshift.table": "rows = pyarrow.parquet.ParquetFile(file).read(use_threads=True)"},
        "read needs use_threads=False",
    ),
    (
        parquet_read_by_threads,
        {"stateshift.table": "rows = pyarrow.parquet.read_table(file)"},
        "reads a table",
    ),
    (
        rows_broken,
        {"stateshift.plan": "__import__('stateshift.migration')"},
        "migration is above plan",
    ),
    (
        circles,
        {
            "stateshift.live.x": "from stateshift.live.y import f",
            "stateshift.live.y": "def f():\n  from stateshift.live import x",
        },
        "need each other",
    ),
    (
        circles,
        {
            "stateshift.live.x": "from stateshift.live.y import Y",
            "stateshift.live.y": "if TYPE_CHECKING:\n  from stateshift.live.x import f",
        },
        "need each other",
    ),
    (
        engines_entangled,
        {"stateshift.engines.spark.x": "import stateshift.engines.flink.y"},
        "never knows another",
    ),
    (
        engine_rows_broken,
        {"stateshift.engines.spark.layout": "import stateshift.engines.spark.entries.rows"},
        "entries is above layout",
    ),
    (
        engine_rows_broken,
        {
            "stateshift.engines.spark.check": "",
            "stateshift.engines.spark.check.x": "import stateshift.engines.spark.rewrite.y",
            "stateshift.engines.spark.rewrite": "",
            "stateshift.engines.spark.rewrite.y": "",
        },
        "rooms of one row",
    ),
    (engine_rows_broken, {"stateshift.engines.spark.elsewhere": ""}, "on no row"),
    (engine_rows_broken, {"stateshift.engines.flink.elsewhere": ""}, "flink's engine"),
    (
        engine_rows_broken,
        {"stateshift.engines.flink.places": "import stateshift.engines.flink.plan"},
        "plan is above places",
    ),
    (
        engines_named,
        {"stateshift.look.x": "def f():\n  from stateshift.engines.flink import y"},
        "by their registry",
    ),
    (
        adapters_opened,
        {"stateshift.world": "from stateshift.storage import open_storage"},
        "only migration",
    ),
    (
        adapters_opened,
        {"stateshift.cli.x": "import stateshift.clusters.livy"},
        "only migration",
    ),
    (
        adapters_opened,
        {"stateshift.step.x": "import stateshift.storage.locations"},
        "only migration",
    ),
    (
        checks_shipped,
        {"stateshift.migration": "import stateshift.testing.memory_storage"},
        "only tests and benches know testing",
    ),
    (impurities, {"stateshift.live.protocol.configuration": "import time"}, "reaches time"),
    (job_too_heavy, {"stateshift.job": "from stateshift.plan import Plan"}, "at most"),
    (spark_too_early, {"stateshift.look": "def f():\n  import pyspark"}, "only fleet"),
    (spark_too_early, {"stateshift.fleet": "import pyspark.sql"}, "at the top"),
    (impurities, {"stateshift.plan": "import time"}, "reaches time"),
    (
        impurities,
        {"stateshift.plan": "from datetime import datetime\nx = datetime.now()"},
        "datetime.now",
    ),
    (impurities, {"stateshift.specification.x": "import uuid\nx = uuid.uuid4()"}, "uuid.uuid4"),
    (impurities, {"stateshift.formats.x": "def f(p):\n  return open(p)"}, "opens a file"),
    (
        impurities,
        {
            "stateshift.engines.spark.plan": "import stateshift.engines.spark.survey.checkpoint",
            "stateshift.engines.spark.survey.checkpoint": "def f():\n  import socket",
        },
        "through stateshift.engines.spark.plan -> stateshift.engines.spark.survey.checkpoint",
    ),
    (
        impurities,
        {
            "stateshift.world": "import stateshift.storage.protocol",
            "stateshift.storage": "import fsspec",
            "stateshift.storage.protocol": "",
        },
        "reaches fsspec",
    ),
    (logs_in_pure_rooms, {"stateshift.plan": "import logging"}, "must not log"),
    (meaningless_names, {"stateshift.engines.utils": ""}, "says nothing"),
    (talk_outside_cli, {"stateshift.look": "print('x')"}, "only cli"),
    (talk_outside_cli, {"stateshift.executor": "import sys\nsys.exit(1)"}, "only cli"),
)


@pytest.mark.parametrize(("rule", "sources", "words"), BROKEN)
def test_breaking_the_rule_is_told_in_a_sentence(
    rule: object, sources: dict[str, str], words: str
) -> None:
    assert callable(rule)
    packages = frozenset(n for n in sources if any(other.startswith(n + ".") for other in sources))
    broken = list(rule(Package(sources, packages)))
    assert len(broken) == 1
    assert words in broken[0]


ALLOWED = (
    {
        "stateshift.cli": "import typer\nprint('x')\nfrom stateshift import look",
        "stateshift.look": "",
    },
    {
        "stateshift.migration": "from stateshift.storage import open_storage\nimport stateshift.executor"
    },
    {"stateshift.__main__": "from stateshift.cli import main"},
    {
        "stateshift.cli": "from stateshift.storage.locations import name_of",
        "stateshift.storage.locations": "",
    },
    {"stateshift.job": "def f():\n  import pyspark\nfrom stateshift.formats.marks import STOP"},
    {"stateshift.storage.protocol": "from stateshift.survey import FileInfo"},
    {
        "stateshift.world": "import stateshift.storage.protocol",
        "stateshift.storage": "def open_storage():\n  import fsspec",
        "stateshift.storage.protocol": "",
    },
    {
        "stateshift.live.x": "from stateshift.live.y import f",
        "stateshift.live.y": "if TYPE_CHECKING:\n  from stateshift.live.x import Other",
    },
    {"stateshift.engines.spark.survey.checkpoint": "import time"},
    {"stateshift.live.worker": "import time"},
    {"stateshift.testing.memory_storage": "import stateshift.storage.temporaries"},
)


@pytest.mark.parametrize("sources", ALLOWED)
def test_what_is_allowed_is_not_complained_of(sources: dict[str, str]) -> None:
    packages = frozenset(n for n in sources if any(other.startswith(n + ".") for other in sources))
    assert [line for rule in RULES for line in rule(Package(sources, packages))] == []


# ---------------------------------------------------------------------------------------------- at run time


def _imported_by(*arguments: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "stateshift", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return {
        line.rsplit("|", 1)[1].strip()
        for line in run.stderr.splitlines()
        if line.startswith("import time:")
    }


def test_importing_the_interface_for_programs_imports_nothing_heavy() -> None:
    program = "import sys, stateshift.api; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    imported = set(run.stdout.split())
    assert "stateshift.api" in imported
    assert imported & (HEAVY | {"mmh3", "cramjam", "rich", "typer"}) == set()
    assert not [
        name for name in imported if name.startswith(("stateshift.engines", "stateshift.cli"))
    ]


HEAVY = frozenset(("pyspark", "py4j", "fsspec", "pyarrow", "hdfs", "requests", "pandas", "numpy"))


@pytest.mark.long
@pytest.mark.parametrize("arguments", [("--help",), ("plan", "--help"), ("schema",)], ids=" ".join)
def test_printing_words_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert _imported_by(*arguments) & (HEAVY | {"mmh3", "cramjam"}) == set()


GOLDEN = {
    "spark": ROOT / "tests/golden/spark-4.3.0/window-hdfs/checkpoint",
    "flink": ROOT / "tests/golden/flink-2.3.0/count-canonical-hashmap/image",
}


@pytest.mark.long
@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("command", ["inspect --entries", "verify --deep", "export --to -"])
def test_who_looks_at_an_image_waits_for_no_other_engine_and_no_planner(
    command: str, name: str
) -> None:
    first = next(file for file in GOLDEN[name].rglob("*") if file.name in ("metadata", "_metadata"))
    imported = _imported_by(*command.split(), str(first.parent))
    engines = {
        module.split(".")[2] for module in imported if module.startswith("stateshift.engines.")
    }
    assert engines & GOLDEN.keys() == {name}
    assert f"stateshift.engines.{name}.plan.move" not in imported


@pytest.mark.long
def test_a_savepoint_is_moved_without_what_only_sparks_state_needs(tmp_path: Path) -> None:
    """Half of what it takes to move a small one is the start of the process."""
    savepoint = next(GOLDEN["flink"].rglob("_metadata")).parent
    places = {
        "existing_savepoint_paths": [savepoint.as_uri()],
        "new_savepoint_path": (tmp_path / "new").as_uri(),
    }
    spec = tmp_path / "spec.json"
    spec.write_text(
        json.dumps({"version": 1, "engine": "flink", "jobs": [{"name": "orders", **places}]})
    )
    imported = _imported_by("apply", str(spec), "--yes", "--workdir", str(tmp_path / "run"))
    assert (tmp_path / "new" / "_metadata").exists()
    assert imported & HEAVY == set()
    assert not [
        module
        for module in imported
        if module.startswith(("stateshift.engines.spark", "stateshift.fleet"))
    ]


def test_every_room_that_a_rule_names_is_there() -> None:
    named = {name for row in ROWS for name in row} | {*PURE_ROOMS, *MAY_OPEN_ADAPTERS, *BESIDE}
    named |= {*MAY_START_SPARK, *JOB_MAY_KNOW, *ONLY_PROTOCOLS}
    for engine, rows in (("spark", SPARK_ROWS), ("flink", FLINK_ROWS)):
        named |= {f"engines.{engine}.{part}" for row in rows for part in row}
    modules = set(read_package(ROOT / "stateshift").sources)
    there = {".".join(module.split(".")[1:]) for module in modules}
    there |= {room(module) for module in modules}
    assert named <= there, f"no such room: {sorted(named - there)}"


# ---------------------------------------------------------------------------------------------- leaks

# A path of somebody's machine, or the host a package was fetched from: true in one place only, and
# nobody's business.
LEAKS = {
    "a path on somebody's machine": re.compile(
        rb"(?<![\w.:/-])(?:file:/*)?/(?:home|Users|root|work)/[\w.-]+/[\w.-]"
    ),
    "a path on somebody's machine (Windows)": re.compile(rb"[A-Z]:\\+Users\\+\w"),
    "a package registry": re.compile(
        rb"(?i)files\.pythonhosted|artifactory|jfrog|/simple/?[\s\"']|--(?:extra-)?index-url|nexus[.-]\w+\.\w+"
    ),
}


def _committed_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, cwd=ROOT, check=False)
    if listed.returncode == 0:
        names = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
        return [ROOT / name for name in names if name and (ROOT / name).is_file()]
    places = (ROOT / name for name in ("stateshift", "tests", "scripts", "configs"))
    return [
        path
        for place in places
        for path in place.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]


def leaks_in(content: bytes) -> list[str]:
    return [
        f"{what}: {match[0][:80]!r}"
        for what, leak in LEAKS.items()
        for match in leak.finditer(content)
    ]


@pytest.mark.long
def test_no_committed_file_tells_of_the_machine_it_was_written_on() -> None:
    this = Path(__file__).resolve()
    found = [
        f"{path.relative_to(ROOT)} holds {leak}"
        for path in _committed_files()
        if path.resolve() != this
        for leak in leaks_in(path.read_bytes())[:3]
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "see /home/kim/project/x",
        'path = "/Users/kim/x"',
        "file:///root/checkpoints/1",
        "C:\\Users\\kim",
        "pip install --index-url x",
    ],
)
def test_a_leak_is_recognised(text: str) -> None:
    assert leaks_in(text.encode())


@pytest.mark.parametrize(
    "text", ["hdfs://nn:8020/home/kim/x", "s3://b/work/x/y", "/var/work/x/y", "~/.cache/x"]
)
def test_a_location_in_an_example_is_no_leak(text: str) -> None:
    assert leaks_in(text.encode()) == []
