"""What holds for every test: the seed is printed, what is missing is said, and CI lets nothing be missing.

    STATESHIFT_SEED=N          the seed of everything random (hypothesis as well); printed at the top of each run
    STATESHIFT_REQUIRE_ALL=1   a skipped test is a failed one
    --full                     also what is marked slow
    STATESHIFT_COUNTS=FILE     where to write `N passed, N failed, N skipped`

With `-n 2` (scripts/test) two processes share the files among them: the tests that start a Spark mostly wait for it.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REQUIRE_ALL = os.environ.get("STATESHIFT_REQUIRE_ALL") == "1"
SEED = int(os.environ.get("STATESHIFT_SEED") or random.SystemRandom().randrange(1 << 31))
COUNTS = os.environ.get("STATESHIFT_COUNTS")
OURS = ("REQUIRE_ALL", "SEED", "COUNTS", "JAVA", "VENV")

# Tests of these use one Spark's ground (tests/acceptance/conftest.py), which takes a while to make.
ONE_GROUND = ("tests/acceptance/test_transforms.py", "tests/acceptance/test_damage.py")

# What starts servers does so one after the other: memory is finite.
SERVERS = "tests/servers/"

# What takes longest begins first, so that no process waits for it at the end.
LONGEST = (SERVERS, "tests/acceptance/", "tests/simulation/", "tests/kill/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run what is marked slow")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ["STATESHIFT_SEED"] = str(SEED)  # the processes that run the tests take it from here
    else:  # these are for us. What is tested takes settings from STATESHIFT_... as well, and must not find them
        for name in OURS:
            os.environ.pop(f"STATESHIFT_{name}", None)
    if getattr(config.option, "hypothesis_seed", "") is None:
        config.option.hypothesis_seed = str(SEED)
    if REQUIRE_ALL:  # a module that cannot be had must not hide what the others say
        config.option.continue_on_collection_errors = True


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {SEED} (STATESHIFT_SEED={SEED} repeats it)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, one in enumerate(LONGEST) if item.nodeid.startswith(one)), len(LONGEST)))
    if config.getoption("--full"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") and java_home() is None:
        pytest.skip("needs a JDK 17 or newer: set JAVA_HOME or install one")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = (yield).get_result()  # type: ignore[attr-defined]
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        _make_failed(report)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = (yield).get_result()  # type: ignore[attr-defined]
    if REQUIRE_ALL and report.skipped:
        _make_failed(report)


def _make_failed(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{reason}\nskipped, and STATESHIFT_REQUIRE_ALL=1 lets nothing be skipped"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests are run by one process, files in the order of LONGEST."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return "one ground" if file in ONE_GROUND else SERVERS if file.startswith(SERVERS) else file

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = {
        word: sum(len(terminalreporter.stats.get(name, ())) for name in names)
        for word, names in (
            ("passed", ("passed", "xfailed")),
            ("failed", ("failed", "error", "xpassed")),
            ("skipped", ("skipped",)),
        )
    }
    if COUNTS:
        Path(COUNTS).write_text(", ".join(f"{count} {word}" for word, count in counts.items()) + "\n")


@cache
def java_home() -> Path | None:
    """Where a JDK 17 or newer is, by JAVA_HOME or PATH."""
    named, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    for java in ([Path(named) / "bin" / "java"] if named else []) + ([Path(found)] if found else []):
        if java.exists():
            said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
            version = re.search(r'version "(\d+)', said)
            if version and int(version[1]) >= 17:
                return java.resolve().parent.parent
    return None


@pytest.fixture(scope="session")
def seed() -> int:
    return SEED
