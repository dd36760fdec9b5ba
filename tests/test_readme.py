"""The console blocks of every page are what their commands print."""

from __future__ import annotations

import importlib
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


@pytest.mark.row("W-31")
def test_the_pictures_show_what_the_program_shows() -> None:
    checked("--pictures")


def test_a_picture_that_has_aged_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    pictures = importlib.import_module("pictures")
    kept, page = pictures.SCREEN.read_text("utf-8"), pictures.report()
    monkeypatch.setattr(pictures, "screen", lambda: kept.replace("stateStoreSave", "another"))
    monkeypatch.setattr(pictures, "report", lambda: page.replace("13 s", "14 s"))
    differences = list(pictures.check(write=False))
    assert [line for line in differences if "another  " in line]
    assert differences[-1].startswith("report.webp shows a page that is another now")
    image = pictures.REPORT.read_bytes()
    assert len(image) <= pictures.BYTES_MAX
    assert len(image) == 8 + int.from_bytes(image[4:8], "little")  # as RIFF has it


@pytest.mark.spark
@pytest.mark.slow
def test_the_blocks_that_start_a_spark_print_what_the_page_of_the_fleet_says() -> None:
    checked("stateshift/fleet/README.md")
