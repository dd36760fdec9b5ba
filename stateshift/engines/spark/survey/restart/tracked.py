"""The files that connectors and others keep below a checkpoint beside Spark: Delta's schema logs,
and files of strangers.

A schema log is needed by a restart as soon as the table's schema changes, and names the checkpoint
by its full path. Files of strangers are nothing to Spark: they are named, and stay unless the spec
takes them along (`also`).
"""

from __future__ import annotations

from collections.abc import Iterable

from stateshift.engines.spark.image import Strangers
from stateshift.engines.spark.small_files import Reading
from stateshift.formats.spark.delta_schema_log import decode_schema_log
from stateshift.formats.spark.uris import canonical
from stateshift.survey import EmbeddedPath, FileInfo


def tracked_schemas(reading: Reading, logs: Iterable[str]) -> list[EmbeddedPath]:
    """Return the folders of sources that Delta's schema logs name absolutely."""
    places = []
    for path in sorted(logs):
        entry = reading.decoded(path, decode_schema_log)
        if entry is None or entry.source_path is None:
            continue
        place = canonical(entry.source_path)
        places.append(EmbeddedPath(reading.path(path), place, 1, "self"))
    return places


def counted_strangers(files: Iterable[FileInfo]) -> tuple[Strangers, ...]:
    """Count the files and bytes of each stranger: a folder at the top, or a single file there."""
    counted: dict[str, Strangers] = {}
    for file in files:
        top, slash, _ = file.path.partition("/")
        place = top + slash
        held = counted.get(place, Strangers(place, 0, 0))
        counted[place] = Strangers(place, held.files + 1, held.bytes + file.size)
    return tuple(counted[path] for path in sorted(counted))
