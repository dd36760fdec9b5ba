"""State as rows for other programs: Parquet, Arrow or JSON lines, by the file's suffix. Reads only,
but for the file, which is written whole or not at all.
"""

from __future__ import annotations

import os

from stateshift.engines.registry import engine_of
from stateshift.engines.views import Export, Opening, Readers, Wanted
from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.specification.location import relation
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently

STDOUT = "-"

_SUFFIXES = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "jsonl", ".json": "jsonl"}


def export(
    location: str, to: str, wanted: Wanted | None = None, opening: Opening = open_patiently
) -> Export:
    """Return the export to `to`. Refuse here what can be refused without reading the state."""
    place = locations.normal(location, os.getcwd())
    made = rows_of(location, _format(to), wanted or Wanted(), opening)
    if to != STDOUT and relation(locations.normal(to, os.getcwd()), place) in ("same", "inside"):
        fact = f"{to} lies inside of what is exported"
        raise PlanError(fact, hint="name a file outside of the checkpoint")
    return made


def rows_of(location: str, format: str, wanted: Wanted, opening: Opening) -> Export:
    """Return the export in this format, wherever it goes."""
    place = locations.normal(location, os.getcwd())
    return engine_of(place, opening=opening).export(location, wanted, format, opening)


def save(
    made: Export, to: str, opening: Opening = open_patiently, readers: Readers | None = None
) -> int:
    """Write the export to a file, whole or not at all; `readers` help. Return its size."""
    target = locations.normal(to, os.getcwd())
    storage = opening(locations.parent(target))
    size = storage.write(locations.name(target), lambda: made.chunks(readers))
    storage.sync()
    return size


def _format(to: str) -> str:
    if to == STDOUT:
        return "jsonl"
    suffix = os.path.splitext(to)[1].lower()
    if suffix not in _SUFFIXES:
        known = "the suffix decides the format"
        complaint = Complaint(
            "--to", f"{to}: {known}, and {suffix or 'none'} is none that is known"
        )
        hint = "name it .parquet, .arrow or .jsonl; - writes JSON lines to stdout"
        raise SpecError((complaint,), hint=hint)
    return _SUFFIXES[suffix]
