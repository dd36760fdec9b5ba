"""Checkpoints of a real Spark 2.1.3, moved and compacted, started on a real 4.3: what comes out is
what 4.3 makes of the checkpoint where it lies.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.going_on import Start, go_on, write_inputs
from tests.acceptance.support import stateshift
from tests.formats.golden import ROOT as GOLDEN

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = ("words", "window")
MADE_AT = "/tmp/stateshift-golden/{query}/in"
CHANGES = ("fork", "compact")
WAIVED = ("paths-stay", "old-state", "repeated-batches")
# The golden ones have read six files; these many lie there afterwards.
FILES = 9


def test_what_is_moved_or_compacted_goes_on_as_where_it_was(tmp_path: Path) -> None:
    write_inputs(tmp_path / "in", 0, FILES)
    starts = [start for query in QUERIES for start in starts_of(tmp_path, query)]
    ended = dict(zip(starts, go_on(tmp_path, starts), strict=True))
    for query in QUERIES:
        in_place, *changed = [start for start in starts if start.query == query]
        expected = ended[in_place]
        assert expected.error is None
        batches = {batch for batch, _ in expected.output}
        # without commits Spark repeats batch 5, and the new files are batches of their own
        assert batches >= set(range(5, FILES)) if query == "words" else max(batches) >= FILES - 1
        for start in changed:
            assert ended[start] == expected, start.checkpoint.name


def starts_of(folder: Path, query: str) -> list[Start]:
    """Return the checkpoint where it lies, and what the command line makes of it."""
    source = folder / f"{query}-source"
    shutil.copytree(GOLDEN / "old-spark-2.1.3" / query / "checkpoint", source)
    for log in (source / "sources" / "0").iterdir():
        made_at = MADE_AT.format(query=query)
        log.write_text(log.read_text().replace(made_at, str(folder / "in")))
    waived = [word for waiver in WAIVED for word in ("--waive", waiver)]
    places = [folder / f"{query}-{change}" for change in CHANGES]
    for change, place in zip(CHANGES, places, strict=True):
        forked = () if change == "fork" else ("--fork",)
        target = ("--to", place, *forked, "--workdirs", folder / "runs")
        stateshift(change, source, *target, *waived, "--yes", cwd=folder, seconds=900)
    return [Start(query, folder / "in", place) for place in (source, *places)]
