"""The modules of scripts/bench/nexmark.d, for the tests of the events and of the queries."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "bench" / "nexmark.d"))

import events
import live_queries
import native_rows
import reference
import source

__all__ = ["events", "live_queries", "native_rows", "reference", "source"]
