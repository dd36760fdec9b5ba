"""Runs pytest, repeats what stands on a real engine and failed, and says so.

    python scripts/test.d/running.py [arguments of pytest]

A test that is marked `servers` or `spark` and fails is run once more, alone, at the end. If all
that failed are such tests and all pass then, the run passes, and its last lines name them as flaky.
Both outputs are kept, in build/flaky. No other test is repeated, and nothing is where more failed
than hiccups explain.

With --full the run goes on where it was interrupted: what has passed with this very code is not run
again, and tests/full.md tells what came of it, file by file, and with which commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

REPEATED_MAX = 30  # more than that is no hiccup, and would take too long
FULL = "--full"
NOTHING_TO_RUN = 5  # pytest's exit code where no test was collected


@dataclass(frozen=True)
class Failure:
    """A failed test with all that it said; `repeatable` where a real engine took part."""

    test: str
    repeatable: bool
    text: str


@dataclass(frozen=True)
class Result:
    """What one pytest came to: its exit code, its counts by word, and the failures."""

    exit_code: int
    counts: dict[str, int]
    failures: tuple[Failure, ...]


def main(arguments: Sequence[str], root: Path) -> int:
    full = FULL in arguments
    ledger = open_ledger(root) if full else None
    first = run_pytest([*arguments], ledger)
    second = None
    if may_be_repeated(first):
        print(
            f"\nrun once more, alone: {tests_in(len(first.failures))} of a real engine that failed",
            flush=True,
        )
        tests = [failure.test for failure in first.failures]
        again = [FULL, *tests] if full else tests
        second = run_pytest(["-q", "-p", "no:xdist", *again], ledger)
    if ledger is not None:
        close_ledger(ledger)
        write_table(root, ledger, first if second is None else second)
    return report(root, first, second)


def run_pytest(arguments: Sequence[str], ledger: Path | None) -> Result:
    """Run pytest with these arguments and return what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes"
        counts = Path(folder) / "counts"
        environment = dict(
            os.environ, STATESHIFT_OUTCOMES=str(outcomes), STATESHIFT_COUNTS=str(counts)
        )
        if ledger is not None:
            environment["STATESHIFT_LEDGER"] = str(ledger)
        command = [sys.executable, "-m", "pytest", *arguments]
        exit_code = subprocess.run(command, env=environment, check=False).returncode
        if exit_code == NOTHING_TO_RUN and ledger is not None:
            exit_code = 0  # all has passed before
        return Result(exit_code, read_counts(counts), read_failures(outcomes))


def read_counts(file: Path) -> dict[str, int]:
    """Return the numbers of a line such as `5 passed, 1 failed, 0 skipped`."""
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    if file.exists():
        for part in file.read_text("utf-8").strip().split(", "):
            number, word = part.split()
            counts[word] = int(number)
    return counts


def read_failures(file: Path) -> tuple[Failure, ...]:
    if not file.exists():
        return ()
    return tuple(Failure(**json.loads(line)) for line in file.read_text("utf-8").splitlines())


def may_be_repeated(result: Result) -> bool:
    """Whether everything that failed stands on a real engine, and is little enough to be a
    hiccup.
    """
    tests_failed = result.exit_code == 1
    few = 0 < len(result.failures) <= REPEATED_MAX
    return tests_failed and few and all(failure.repeatable for failure in result.failures)


def report(root: Path, first: Result, second: Result | None) -> int:
    """Say the last lines, keep the outputs of what was repeated, and return the exit code."""
    counts = dict(first.counts)
    lines = []
    exit_code = first.exit_code
    if second is not None:
        still_failing = {failure.test for failure in second.failures}
        # A second run that broke off has shown nothing.
        ran_through = second.exit_code in (0, 1)
        flaky = [one for one in first.failures if ran_through and one.test not in still_failing]
        keep_outputs(root, first, second)
        counts["passed"] += len(flaky)
        counts["failed"] = len(first.failures) - len(flaky)
        exit_code = 0 if len(flaky) == len(first.failures) else 1
        for failure in flaky:
            lines.append(
                f"flaky: {failure.test} failed, then passed alone{note_of_list(root, failure.test)}"
            )
        lines.append(f"both outputs of each are kept: {flaky_folder(root).relative_to(root)}")
    lines.append(", ".join(f"{count} {word}" for word, count in counts.items()))
    say_last("\n".join(lines) + "\n")
    return exit_code


def say_last(text: str) -> None:
    """Hand the last lines to the script around us, which has more to print before them; else
    print them.
    """
    file = os.environ.get("STATESHIFT_LAST_LINES")
    if file:
        Path(file).write_text(text, "utf-8")
    else:
        print(text, end="", flush=True)


def note_of_list(root: Path, test: str) -> str:
    """Return what is to be done about a flaky test: tests/flaky.md is worked off, so that a new
    one is a defect.
    """
    listed = root / "tests" / "flaky.md"
    known = listed.exists() and f"`{test}`" in listed.read_text("utf-8")
    return " (in tests/flaky.md)" if known else " (not in tests/flaky.md: find the cause)"


def flaky_folder(root: Path) -> Path:
    return root / "build" / "flaky"


def keep_outputs(root: Path, first: Result, second: Result) -> None:
    """Write what each repeated test said, both times, into build/flaky."""
    folder = flaky_folder(root)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    said_again = {failure.test: failure.text for failure in second.failures}
    for number, failure in enumerate(first.failures, 1):
        (folder / f"{number}-first.txt").write_text(failure.text, "utf-8")
        text = said_again.get(failure.test, f"{failure.test} passed\n")
        (folder / f"{number}-second.txt").write_text(text, "utf-8")


def tests_in(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"


# ------------------------------------------------------------------------------- a full run goes on


def open_ledger(root: Path) -> Path:
    """Return the file of what has passed with the code as it is; another code's is removed."""
    folder = root / ".matrix" / "tests"
    ledger = folder / digest_of_code(root)
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.iterdir():
        if not other.name.startswith(ledger.name):
            other.unlink()
    close_ledger(ledger)
    return ledger


def close_ledger(ledger: Path) -> None:
    """Take over what the last run, ended or killed, has added."""
    added = ledger.with_name(ledger.name + ".new")
    if added.exists():
        with ledger.open("a", encoding="utf-8") as file:
            file.write(added.read_text("utf-8"))
        added.unlink()


def digest_of_code(root: Path) -> str:
    """Return what stands for every file that a test's result hangs on; pages that tests write do
    not count.
    """
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=root, capture_output=True, check=True).stdout.split(b"\0")
    digest = hashlib.sha256()
    for name in sorted(set(names)):
        path = root / os.fsdecode(name)
        if name.endswith(b".md") or not path.is_file():
            continue
        digest.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


def file_of(test: str) -> str:
    return test.split("::")[0]


@dataclass(frozen=True)
class Row:
    """What came of one file of tests, and when, and with which commit."""

    file: str
    passed: int
    failed: int
    day: str
    commit: str

    def __str__(self) -> str:
        return f"| {self.file} | {self.passed} | {self.failed} | {self.day} | {self.commit} |"


def write_table(root: Path, ledger: Path, last: Result) -> None:
    """Write tests/full.md: of each file how many of its tests have passed and which have failed. The
    row of a file that this run has not come to stays: a full run may take several days.
    """
    page = root / "tests" / "full.md"
    earlier = read_rows(page.read_text("utf-8")) if page.exists() else {}
    by_file = {**earlier, **rows_of(root, ledger, last)}
    rows = [by_file[name] for name in sorted(by_file) if (root / name).exists()]
    passed = sum(row.passed for row in rows)
    failed = sum(row.failed for row in rows)
    lines = [
        "# What came of the full run",
        "",
        "`./scripts/test --full` writes this page: every test, the slow ones among them, on real",
        "engines and servers. A row tells the day and the commit of the last run that came to the",
        "file, and counts what that run was asked for.",
        "",
        f"In all: {passed} passed, {failed} failed.",
        "",
        "| file | passed | failed | day | commit |",
        "|---|---|---|---|---|",
        *map(str, rows),
    ]
    page.write_text("\n".join(lines) + "\n", "utf-8")


def rows_of(root: Path, ledger: Path, last: Result) -> dict[str, Row]:
    """Return the rows of the files that have run with the code as it is."""
    tests_passed = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
    passed = Counter(file_of(test) for test in tests_passed)
    failed = Counter(file_of(failure.test) for failure in last.failures)
    day, commit = time.strftime("%Y-%m-%d", time.gmtime()), commit_of(root)
    names = {*passed, *failed}
    return {name: Row(name, passed[name], failed[name], day, commit) for name in names}


def read_rows(page: str) -> dict[str, Row]:
    """Return the rows of the page as an earlier run wrote it."""
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(fields(Row)) and cells[1].isdecimal():
            file, passed, failed, day, commit = cells
            rows[file] = Row(file, int(passed), int(failed), day, commit)
    return rows


def commit_of(root: Path) -> str:
    """Return the commit that is checked out, with a + where more than pages differs from it."""
    commit = git(root, "rev-parse", "--short=8", "HEAD") or "none"
    changed = git(root, "status", "--porcelain", "--", ":(exclude)*.md")
    return f"{commit}+" if changed else commit


def git(root: Path, *arguments: str) -> str:
    """Return what git says, or nothing where it refuses."""
    command = ["git", *arguments]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return said.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
