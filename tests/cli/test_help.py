"""Help answers at once, ends with an example and exit codes, and nothing heavy is imported to
print words.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stateshift.cli.commands import NAMES, PANELS
from tests.cli.support import said, whole_names

pytestmark = pytest.mark.every_case

COMMANDS = list(NAMES)
WHOLE_NAMES = list(whole_names())
LIVE_CLI = "stateshift.live.cli"
HEAVY = {
    "pyspark",
    "py4j",
    "fsspec",
    "pyarrow",
    "mmh3",
    "hdfs",
    "cramjam",
    "requests",
    "rich",
    "textual",
    "pandas",
    "numpy",
}

READING_STATE = {"pyarrow", "numpy", "mmh3", "fsspec", "hdfs", "pyspark"}  # or another storage


def imported_by(*argv: str) -> set[str]:
    program = (
        f"import sys\nfrom stateshift.cli import main\nmain({list(argv)!r})\nprint('MODULES', "
        "*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.rpartition("MODULES")[2].split())


@pytest.mark.parametrize(
    "argv",
    [
        ("--help",),
        ("apply", "--help"),
        ("--version",),
        (),
        ("live", "--help"),
        ("live",),
        ("live", "replace", "--help"),
    ],
)
def test_words_are_printed_without_anything_heavy(argv: tuple[str, ...]) -> None:
    modules = imported_by(*argv)
    # To read a value is typer's to do, and it does so by pydantic.
    heavy = HEAVY if "--version" in argv else HEAVY | {"pydantic"}
    assert not {module.split(".")[0] for module in modules} & heavy
    ours = {module for module in modules if module.startswith("stateshift.")}
    others = {module for module in ours if not module.startswith(("stateshift.cli", LIVE_CLI))}
    assert not others - {"stateshift.errors", "stateshift.live", "stateshift.terms"}


def test_who_plans_waits_for_nothing_that_carries_plans_out(tmp_path: Path) -> None:
    golden = Path(__file__).resolve().parents[1] / "golden/spark-4.3.0/window-hdfs/checkpoint"
    job = {"name": "orders", "checkpoint_location": str(golden)}
    job["remote_location"] = str(tmp_path / "target")
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"version": 1, "jobs": [job]}))
    modules = imported_by("plan", str(spec))
    assert "stateshift.migration.gathering" in modules
    carrying_out = {"executor", "report", "migration.calls", "migration.stages"}
    assert not modules & {f"stateshift.{name}" for name in carrying_out}
    assert not modules & READING_STATE
    assert not [name for name in modules if name.startswith("stateshift.formats.flink.metadata")]


def test_importing_the_command_line_imports_nothing() -> None:
    program = (
        "import sys, stateshift.cli; print(*(m for m in sys.modules if m.startswith('stateshift')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {"stateshift", "stateshift.cli"}


@pytest.mark.parametrize("command", WHOLE_NAMES)
def test_every_command_takes_json_and_verbose_and_ends_with_an_example_and_exit_codes(
    command: str,
) -> None:
    help = said(*command.split(), "--help")
    assert help.code == 0
    assert "--json" in help.out and "-v, --verbose" in help.out
    example, codes = help.out.split("Example:")[1].split("Exit codes:")
    assert all(
        line.strip().startswith(f"stateshift {command}") for line in example.strip().splitlines()
    )
    assert codes.split()[0] == "0"
    assert "--fleet" not in help.out or "  7    " in codes, "a fleet may fail"


def test_the_help_has_the_parts_that_the_readme_has() -> None:
    page = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
    table = page.split("## Commands")[1].split("##")[0]
    places = [table.index(f"`{name}`") for name in COMMANDS]
    assert places == sorted(places), "the README has them in the order of the help"
    overview = said("--help").out
    for panel, names in PANELS.items():
        part = overview.split(f"\n{panel}:\n")[1].split("\n\n")[0]
        assert tuple(line.split()[0] for line in part.splitlines()) == names


def test_the_commands_of_later_issues_are_not_announced() -> None:
    assert [
        *("init", "doctor"),
        *("inspect", "browse", "verify", "check", "export", "query", "profile", "diff", "uid"),
        *("move", "plan", "apply", "resume", "rollback", "status", "runs", "metrics"),
        *("cutover", "pause", "throttle", "failover", "failback", "drill"),
        *("compact", "repartition", "rewind", "fork", "convert", "rename"),
        *("split", "merge", "evolve", "prune", "import", "gather", "repair", "reposition"),
        "live",
        *("dataflow", "advise", "rebalance"),
        *("schema", "man", "completion"),
        "mcp",
    ] == COMMANDS


def test_no_command_shortens_what_the_overview_says_of_it() -> None:
    for argv, first in ((("--help",), "Look:"), (("live", "--help"), "Commands:")):
        overview = said(*argv).out.split(first)[1].split("Example:")[0]
        assert "..." not in overview


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stateshift", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("stateshift ")


def test_who_inspects_waits_for_nothing_that_reads_state() -> None:
    golden = Path(__file__).resolve().parents[1] / "golden/spark-4.3.0"
    for name in ("window-hdfs", "window-rocksdb"):
        modules = imported_by("inspect", str(golden / name / "checkpoint"))
        assert "stateshift.engines.spark.survey.checkpoint" in modules
        assert not modules & READING_STATE
