"""The README's console blocks are what their commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_console_block_of_the_readme_is_what_its_commands_print() -> None:
    words = [sys.executable, ROOT / "scripts" / "readme.d" / "blocks.py"]
    done = subprocess.run(words, text=True, capture_output=True, timeout=600, check=False)
    told = f"{done.stdout}{done.stderr}"
    assert done.returncode == 0, (
        f"the README has aged; renew it with scripts/readme --write\n{told}"
    )
