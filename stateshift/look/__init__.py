"""An image looked at, without a run. Reads only, and needs no JVM.

    inspect      what is in an image, a workflow directory or a single file
    entries      some of its state, decoded as far as its schemas allow
    restartable  could a job restart from it, and from which batches
    export       its state, or what single batches did to it, as Parquet, Arrow or JSON lines
    diff         two images compared by their entries

What they have in common, finding the image and its stores, is in `selecting`.
"""

from __future__ import annotations

from stateshift.look.differing import Difference, Differences, diff
from stateshift.look.exporting import Export, export
from stateshift.look.inspecting import Look, ShownEntry, entries, inspect
from stateshift.look.judging import Judgement, restartable
from stateshift.look.selecting import Wanted

__all__ = [
    "Difference",
    "Differences",
    "Export",
    "Judgement",
    "Look",
    "ShownEntry",
    "Wanted",
    "diff",
    "entries",
    "export",
    "inspect",
    "restartable",
]
