"""An image looked at, without a run. Reads only, and needs no JVM.

    inspect      what is in an image, a workflow directory or a single file
    entries      some of its state, decoded as far as its schemas allow
    restartable  could a job restart from it, and from which batches
    export       its state, or what single batches did to it, as Parquet, Arrow or JSON lines
    diff         two images compared by their entries

The registry of engines tells the engine of an image, which does the rest (`engines.views`). Each
module is imported when something of it is first asked for: to inspect waits for nothing that
compares.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateshift.engines.views import Difference, Differences, Export, ShownEntry, Wanted
    from stateshift.look.exporting import export, rows_of, save
    from stateshift.look.inspecting import Look, diff, entries, inspect
    from stateshift.look.judging import JudgedImage, Judgement, restartable
    from stateshift.storage.opening import open_patiently

__all__ = [
    "Difference",
    "Differences",
    "Export",
    "JudgedImage",
    "Judgement",
    "Look",
    "ShownEntry",
    "Wanted",
    "diff",
    "entries",
    "export",
    "inspect",
    "open_patiently",
    "restartable",
    "rows_of",
    "save",
]

_HOMES = {
    "stateshift.engines.views": ("Difference", "Differences", "Export", "ShownEntry", "Wanted"),
    "stateshift.look.exporting": ("export", "rows_of", "save"),
    "stateshift.look.inspecting": ("Look", "diff", "entries", "inspect"),
    "stateshift.look.judging": ("JudgedImage", "Judgement", "restartable"),
    "stateshift.storage.opening": ("open_patiently",),
}


def __getattr__(name: str) -> object:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
