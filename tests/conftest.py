"""What holds for every test: the seed is printed, what is missing is said, and CI lets nothing be
missing.

    STATESHIFT_SEED=N          the seed of everything random (hypothesis as well); printed at the
                               top of each run
    STATESHIFT_REQUIRE_ALL=1   a skipped test is a failed one
    --full                     also what is marked slow, and all cases of what is marked sample
    --quick                    only what needs no JVM: nothing that is marked spark, servers or
                               long, a case or two of each, and a few examples (else half of them)
    STATESHIFT_COUNTS=FILE     where to write `N passed, N failed, N skipped`
    STATESHIFT_OUTCOMES, STATESHIFT_LEDGER   see tests/support/outcomes.py

With `-n 2` (scripts/test) two processes share the files among them: the tests that start a Spark
mostly wait for it.
"""

from __future__ import annotations

import atexit
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.documents import VARIABLE, Documents
from tests.support.ground import Ground
from tests.support.outcomes import Outcomes, mark_repeatable, passed_before

REQUIRE_ALL = os.environ.get("STATESHIFT_REQUIRE_ALL") == "1"
SEED = int(os.environ.get("STATESHIFT_SEED") or random.SystemRandom().randrange(1 << 31))
COUNTS = os.environ.get("STATESHIFT_COUNTS")
OUTCOMES = os.environ.get("STATESHIFT_OUTCOMES")
LEDGER = os.environ.get("STATESHIFT_LEDGER")
OURS = ("REQUIRE_ALL", "SEED", "COUNTS", "OUTCOMES", "LEDGER", "LAST_LINES", "JAVA", "VENV")

# Where the program, here and in child processes, leaves a copy of each document it prints.
DOCUMENTS = Documents(Path(tempfile.mkdtemp(prefix="stateshift-documents-")) / "printed.jsonl")
atexit.register(shutil.rmtree, DOCUMENTS.path.parent, ignore_errors=True)

# Tests of these use one Spark's ground (tests/acceptance/conftest.py), which takes a while to make.
ONE_GROUND = ("tests/acceptance/test_transforms.py", "tests/acceptance/test_damage.py")

# No test runs more of its cases than this, but with --full: there are 210 golden checkpoints.
CASES = 20
QUICK_CASES = 2
# A test that makes up its cases makes up so many times fewer, and not below the least.
FEWER_EXAMPLES = {"full": 1, "default": 2, "quick": 10}
EXAMPLES_MIN = 10

# Of the moments at which a run is killed, one in so many is taken.
# How long an example takes, or the making of it, is the machine's affair.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
EVERY_MOMENT = {"full": 1, "default": 8, "quick": 60}

Thoroughness = Literal["quick", "default", "full"]

# What starts servers does so one after the other: memory is finite.
SERVERS = "tests/servers/"

# What takes longest begins first, so that no process waits for it at the end.
LONGEST = (
    SERVERS,
    "tests/acceptance/",
    "tests/clusters/test_real_spark.py",
    "tests/migration/test_warm.py",
    "tests/simulation/",
    "tests/kill/",
    "tests/engines/",
    "tests/fuzz/",
    "tests/damage/",
    "tests/contracts/",
    "tests/formats/",
    "tests/cli/",
    "tests/test_pages.py",
    "tests/test_readme.py",
    "tests/test_reachable.py",
    "tests/test_architecture.py",
    "tests/test_scripts.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run what is marked slow")
    parser.addoption("--quick", action="store_true", help="run only what needs no JVM")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        outcomes = Path(OUTCOMES) if OUTCOMES else None
        config.pluginmanager.register(Outcomes(outcomes, ledger()))
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ["STATESHIFT_SEED"] = str(
            SEED
        )  # the processes that run the tests take it from here
    # these are for us. What is tested takes settings from STATESHIFT_... as well, and must not find
    # them
    else:
        for name in OURS:
            os.environ.pop(f"STATESHIFT_{name}", None)
    if getattr(config.option, "hypothesis_seed", "") is None:
        config.option.hypothesis_seed = str(SEED)
    if REQUIRE_ALL:  # a module that cannot be had must not hide what the others say
        config.option.continue_on_collection_errors = True
    # No test cuts the power: what a killed process wrote, the system still has. Tests of what is
    # flushed, and when, look at a process of its own.
    os.fsync = lambda descriptor: None


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {SEED} (STATESHIFT_SEED={SEED} repeats it)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_repeatable(items)
    done = passed_before(ledger())
    left_out = {item for item in items if item.nodeid in done or is_left_out(item, config)}
    if not any("::" in argument for argument in config.args):  # what is asked for by name is run
        left_out |= not_in_sample(
            [item for item in items if item not in left_out], thoroughness(config)
        )
    make_fewer_examples(items, FEWER_EXAMPLES[thoroughness(config)])
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: rank(item.nodeid))


def rank(test: str) -> int:
    """Return the place of a test in the order of LONGEST."""
    return next((n for n, one in enumerate(LONGEST) if test.startswith(one)), len(LONGEST))


def is_left_out(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether a test is not asked for: slow ones without --full, real engines and long ones with
    --quick.
    """
    if item.get_closest_marker("slow") and not config.getoption("--full"):
        return True
    takes_long = any(item.get_closest_marker(name) for name in ("spark", "servers", "long"))
    return takes_long and config.getoption("--quick")


def make_fewer_examples(items: Sequence[pytest.Item], times: int) -> None:
    """Let tests of hypothesis make up fewer examples; several cases are of one function."""
    for function in {getattr(item, "obj", None) for item in items}:
        given = getattr(function, "_hypothesis_internal_use_settings", None)
        if given is not None:
            fewer = min(given.max_examples, max(EXAMPLES_MIN, given.max_examples // times))
            function._hypothesis_internal_use_settings = settings(given, max_examples=fewer)  # type: ignore[union-attr]


def thoroughness(config: pytest.Config) -> Thoroughness:
    """Return how much of what is many is run."""
    if config.getoption("--full"):
        return "full"
    return "quick" if config.getoption("--quick") else "default"


def not_in_sample(items: Sequence[pytest.Item], how: Thoroughness) -> set[pytest.Item]:
    """Return the cases that the seed leaves out, of tests that have many."""
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.split("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for test, of_one in cases.items():
        count = cases_kept(of_one[0], len(of_one), how)
        # Every process of a run has to come to the same cases.
        chance = random.Random(f"{SEED} {test}")
        left_out.update(chance.sample(of_one, len(of_one) - count))
    return left_out


def cases_kept(item: pytest.Item, count: int, how: Thoroughness) -> int:
    """Return how many of a test's cases are run."""
    marker = item.get_closest_marker("sample")
    if how == "full":
        return count
    if how == "quick":
        return min(count, QUICK_CASES if marker is None else quick_sample(marker.args[0]))
    if marker is not None:
        return min(count, int(marker.args[0]))
    return count if item.get_closest_marker("every_case") else min(count, CASES)


def quick_sample(kept: int) -> int:
    """Return how many cases --quick runs of a test of which so many are run by default."""
    return min(QUICK_CASES, max(1, kept // 4))


def ledger() -> Path | None:
    """Return where the tests that passed are written down, if anywhere."""
    return Path(LEDGER) if LEDGER else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("spark") and java_home() is None:
        pytest.skip("needs a JDK 17 or newer: set JAVA_HOME or install one")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A document of `--json` that its schema does not describe fails the test that made it.

    The variable is set here, where all fixtures have run: some take every STATESHIFT_... away.
    """
    os.environ[VARIABLE] = str(DOCUMENTS.path)
    yield
    misfits = DOCUMENTS.misfits()
    if misfits:
        raise AssertionError("documents that do not fit their schemas:\n" + "\n".join(misfits))


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
            return (
                "one ground"
                if file in ONE_GROUND
                else SERVERS
                if file.startswith(SERVERS)
                else file
            )

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
        Path(COUNTS).write_text(
            ", ".join(f"{count} {word}" for word, count in counts.items()) + "\n"
        )


@cache
def java_home() -> Path | None:
    """Where a JDK 17 or newer is, by JAVA_HOME or PATH."""
    named, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    for java in ([Path(named) / "bin" / "java"] if named else []) + (
        [Path(found)] if found else []
    ):
        if java.exists():
            said = subprocess.run(
                [java, "-version"], capture_output=True, text=True, check=False
            ).stderr
            version = re.search(r'version "(\d+)', said)
            if version and int(version[1]) >= 17:
                return java.resolve().parent.parent
    return None


@pytest.fixture(scope="session")
def documents() -> Documents:
    """The copies of all documents that this process of tests, and its children, print."""
    return DOCUMENTS


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line runs in a folder, and without any settings of this machine."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("STATESHIFT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def seed() -> int:
    return SEED


@pytest.fixture(scope="session")
def how(request: pytest.FixtureRequest) -> Thoroughness:
    """How much a test that has many cases within itself shall run."""
    return thoroughness(request.config)


@pytest.fixture(scope="session")
def moments(how: Thoroughness, seed: int) -> Callable[[int], range]:
    """Return which of `count` moments, from 1 on, a run is killed at: all of them with --full, one
    in a few else, and others with another seed.
    """
    every = EVERY_MOMENT[how]
    return lambda count: range(1 + seed % min(every, count), count + 1, every)
