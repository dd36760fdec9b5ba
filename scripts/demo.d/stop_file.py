"""How the demo's jobs end: somebody puts a file `stop` into their folder."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery


def run_until_stopped(query: StreamingQuery, folder: Path) -> None:
    """Run until there is a file FOLDER/stop; end with the query's own error if it fails."""
    while query.isActive and not (folder / "stop").exists():
        time.sleep(0.2)
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    query.stop()
