"""The console blocks of every page are what their commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "scripts" / "readme.d" / "main.py"


def pages_with_blocks() -> list[str]:
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return [name for name in sorted(names) if "```console\n" in (ROOT / name).read_text("utf-8")]


def checked(*arguments: str) -> None:
    words = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, (
        f"a page has aged; renew it with scripts/readme --write\n{done.stdout}{done.stderr}"
    )


@pytest.mark.long
@pytest.mark.parametrize("name", pages_with_blocks())
def test_every_console_block_of_a_page_is_what_its_commands_print(name: str) -> None:
    checked("--without-java", name)


@pytest.mark.spark
@pytest.mark.slow
def test_the_blocks_that_start_a_spark_print_what_the_page_of_the_fleet_says() -> None:
    checked("stateshift/fleet/README.md")
