"""The project's pages: every Markdown file that git knows or would add."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def pages() -> list[Path]:
    """Return every page of the project, sorted."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "*.md"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = {ROOT / name for name in listed.stdout.split("\0") if name}
    return sorted(path for path in paths if path.is_file())


def name_of(page: Path) -> str:
    """Return the page's path from the root of the project."""
    return page.relative_to(ROOT).as_posix()
