"""The modules of scripts/readme, for the tests of the pages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "readme.d"))

import blocks
import generated
import readme_pages as pages
import recording

__all__ = ["blocks", "generated", "pages", "recording"]
