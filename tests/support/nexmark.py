"""The modules of scripts/bench/nexmark.d, for the tests of the events and of the queries."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "bench" / "nexmark.d"))

import bin_latency
import events
import lines_of_code
import live_queries
import live_rows
import native_rows
import nexmark_page
import reference
import rows_of_some
import source

__all__ = [
    "bin_latency",
    "events",
    "lines_of_code",
    "live_queries",
    "live_rows",
    "native_rows",
    "nexmark_page",
    "reference",
    "rows_of_some",
    "source",
]
