"""A Flink image's state as rows for other programs: Parquet, Arrow or JSON lines. Reads only.

    operator | store (the state's name) | shard (the subtask) | key | value

In JSON lines, keys and values are JSON. A Parquet or an Arrow file has one schema, and what a
state's key looks like only its serializers know: there they are the same JSON as text. A value that
is not decoded is shown as its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from shlex import quote

from stateshift.engines.flink.image import metadata_of, names_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.engines.flink.survey.image import survey as surveyed
from stateshift.engines.flink.views.elements import shown_entries
from stateshift.engines.views import Opening, Readers, Wanted
from stateshift.engines.window import GrowingFile
from stateshift.errors import PlanError
from stateshift.survey import Image

ROWS = 16_384


Row = dict[str, object]


@dataclass
class FlinkExport:
    """The entries that are to be exported. `chunks` gives the file's bytes once; `entries` counts
    them meanwhile.
    """

    image: Image
    streams: Streams
    wanted: Wanted
    format: str
    entries: int = 0
    as_bytes: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """A note for each state with bytes that are not decoded. Known when the file is written."""
        return tuple(
            f"operator {operator}, state {state}: what its serializer alone can read is bytes, in "
            "hexadecimal; the job's own classes are needed to decode it"
            for operator, state in self.as_bytes
        )

    def chunks(self, readers: Readers | None = None) -> Iterator[bytes]:
        self.entries = 0
        return self._lines() if self.format == "jsonl" else self._table()

    def _rows(self) -> Iterator[Row]:
        names = names_of(self.image)
        for entry in shown_entries(metadata_of(self.image), self.streams):
            operator = names[entry.operator]
            if self.wanted.operator not in (None, operator, entry.operator):
                continue
            if self.wanted.store not in (None, entry.state):
                continue
            self.entries += 1
            if _is_bytes(entry.key) or _is_bytes(entry.value):
                self.as_bytes[operator, entry.state] = None
            yield {
                "operator": operator,
                "store": entry.state,
                "shard": entry.subtask,
                "key": entry.key,
                "value": entry.value,
            }

    def _lines(self) -> Iterator[bytes]:
        rows = self._rows()
        while batch := list(islice(rows, ROWS)):
            yield "".join(f"{json.dumps(row)}\n" for row in batch).encode("ascii")

    def _table(self) -> Iterator[bytes]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        text = pa.string()
        schema = pa.schema(
            [
                ("operator", text),
                ("store", text),
                ("shard", pa.int32()),
                ("key", text),
                ("value", text),
            ]
        )
        out = GrowingFile()
        open_writer = pq.ParquetWriter if self.format == "parquet" else pa.ipc.new_file
        writer = open_writer(out, schema)
        rows = self._rows()
        while batch := list(islice(rows, ROWS)):
            for row in batch:
                row.update(key=json.dumps(row["key"]), value=json.dumps(row["value"]))
            writer.write_table(pa.Table.from_pylist(batch, schema))
            yield out.taken()
        writer.close()
        yield out.taken()


def _is_bytes(shown: object) -> bool:
    """Whether `shown_entries` could not decode it, or not to its end."""
    return isinstance(shown, dict) and ("bytes" in shown or "digest" in shown)


def export(location: str, wanted: Wanted, format: str, opening: Opening) -> FlinkExport:
    """Return the export of an image's state, nothing written yet; PlanError where the image is not
    whole, or where a batch or changes are asked for.
    """
    if wanted.batch is not None or wanted.changes is not None:
        raise PlanError(
            "a Flink image holds one checkpoint, and no changes: there is no --batch and no "
            "--changes",
            hint=f"stateshift inspect {quote(location)}",
        )
    storage, survey = surveyed(location, opening)
    image = survey.images[0] if survey.images else None
    why: str | None = f"{location} holds no Flink image"
    if image is not None:
        refusals = (finding.message for finding in image.findings if finding.level == "refuse")
        why = next(refusals, None)
    if image is None or why is not None:
        raise PlanError(
            f"the state is not whole: {why}", hint=f"stateshift verify {quote(location)}"
        )
    _require_operator(location, image, wanted)
    return FlinkExport(image, Streams(storage.chunks, places_of(image)), wanted, format)


def _require_operator(location: str, image: Image, wanted: Wanted) -> None:
    """Refuse an operator that the image has not, by its uid or its id."""
    if wanted.operator is None:
        return
    names = {operator.id for operator in image.operators}
    names.update(operator.uid for operator in image.operators if operator.uid)
    if wanted.operator not in names:
        known = ", ".join(operator.uid or operator.id for operator in image.operators)
        raise PlanError(
            f"{location} has no operator {wanted.operator}", hint=f"its operators: {known}"
        )
