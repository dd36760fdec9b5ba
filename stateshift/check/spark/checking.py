"""A check of one checkpoint of Spark: reads it, runs the file, compares. It reads little:

offsets/<newest>           settings, watermark, positions
state/<op>/_metadata/…     names of operators
state/<op>/…/schema        keys and values
entries                    a few of windows, for their lengths
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stateshift.check.process import Capture, rehearsal_in, run_capture
from stateshift.check.spark import capture
from stateshift.check.spark.columns import fields_of
from stateshift.check.spark.compare import compare
from stateshift.check.spark.query import (
    CapturedQuery,
    Operator,
    Source,
    StoredQuery,
    captured_query,
    operators_in,
    partitions_of,
)
from stateshift.check.spark.rules import Pair
from stateshift.check.verdict import Checked, CheckedQuery, Rehearsal, Stubbed
from stateshift.engines.spark.layout import inside, number_of_log, offset_path, under
from stateshift.engines.views import Opening, ShownEntry
from stateshift.errors import PlanError, SpecError, StorageError
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.operator_metadata import (
    decode_operator_metadata,
    encode_operator_metadata,
    relocate_schema_files,
)
from stateshift.formats.spark.uris import Relocation, canonical, plain_location
from stateshift.plain import JsonObject
from stateshift.storage import locations
from stateshift.storage.locations import redact
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Survey

if TYPE_CHECKING:
    from stateshift.check import Code


SPARK_MIN = 4  # the first whose planner writes metadata and schemas


@dataclass(frozen=True, slots=True)
class SurveyedCheckpoint:
    """A checkpoint of one query. `entries` returns the first so many of each store."""

    location: str
    storage: Storage
    survey: Survey
    entries: Callable[[int], Iterable[ShownEntry]]
    opening: Opening = open_patiently

    def is_behind(self, sink: Source) -> bool:
        """Whether the log of a file sink lacks the newest batch; False if that is not known.

        Only a sink beside the checkpoint is looked at, in a folder that is there.
        """
        (image,) = self.survey.images
        if sink.kind != "file" or not sink.places or image.epoch is None:
            return False
        place = locations.normal(plain_location(sink.places[0]), os.getcwd())
        if not locations.same_file_system(place, self.location):
            return False
        try:
            storage = self.opening(place)
            log = storage.list("_spark_metadata")
            newest = max((number_of_log(file.path) for file in log), default=None)
            if newest is None:
                return any(True for _ in storage.list())
        except StorageError:
            return False
        return newest < image.epoch


def check_checkpoint(
    checkpoint: SurveyedCheckpoint, code: Code, query: str | None, waive: tuple[str, ...]
) -> Checked:
    """Return the verdict on the query of a file that uses this checkpoint."""
    location = checkpoint.location
    (image,) = checkpoint.survey.images
    small = read_small_files(checkpoint.storage, checkpoint.survey, image)
    if not any(path.startswith("offsets/") for path in small.files):
        raise PlanError(
            f"{location} has no offsets: no batch was ever planned, and any code starts from it"
        )
    stored = stored_query(small, checkpoint.entries(ENTRIES_MAX) if has_windows(small) else ())
    with tempfile.TemporaryDirectory(prefix="stateshift-image-") as folder:
        write_copy(small, Path(folder))
        answer = _plan_file(code.file, code, folder)
        before = None
        if code.before is not None:
            old = _plan_file(code.before, code, folder)
            before = _chosen(old, location, query, code.before)
    chosen = _chosen(answer, location, query, code.file)
    stubbed = [Stubbed(each["kind"], each["options"], each["reason"]) for each in answer["stubbed"]]
    return Checked(
        image=location,
        file=code.file,
        engine="spark",
        engine_version=answer["spark"],
        queries=(compare(Pair(chosen, stored, before, checkpoint.is_behind(chosen.sink)), waive),),
        stubbed=tuple(stubbed),
    )


def rehearse(query: CheckedQuery, code: Code, fork: str) -> Rehearsal:
    """Start a query from a fork, without its sink, for one batch.

    Raises:
        PlanError: the file does not start it this time.
    """
    which = {"name": query.query, "location": query.location, "from": fork}
    told = rehearsal_in(_plan_file(code.file, code, None, which), query.query, code)
    did = "Spark started it, and there was nothing to read: no state was opened"
    if told["batch"] is not None:
        records = f"{told['rows']:,} records"
        did = f"Spark started it, and batch {told['batch']} of {records} was computed"
    error = told["error"]
    shown = None if error is None else f"[{error['class']}] {error['message']}"
    return Rehearsal(engine="Spark", seconds=told["seconds"], did=did, error=shown)


def _plan_file(
    file: str, code: Code, image: str | None, which: JsonObject | None = None
) -> JsonObject:
    """Return the queries that a file starts, as Spark plans them, or starts `which` of them.

    Raises:
        SpecError: it is SQL, or a jar with sources to replace.
        PlanError: it starts none, or there is no Spark that plans as this needs it.
    """
    if file.endswith(".sql"):
        fact = "of Spark, it is a Python file, a notebook or a jar, for its SQL starts no query"
        raise SpecError.of("--with", f"{fact}: write spark.sql(...).writeStream in one", file)
    is_jar = file.endswith(".jar")
    if is_jar and code.stub:
        raise SpecError.of("--stub", "no source of a jar is replaced: leave it away", file)
    python = code.python or sys.executable
    submit = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    if code.packages:
        submit = f"--packages {','.join(code.packages)} {submit}"
    if is_jar:
        submit = f"--jars {shlex.quote(os.path.abspath(file))} {submit}"
    no_spark = PlanError(
        f"{file} needs pyspark, and {python} has none",
        hint="name an environment that has it: --python PATH; or pip install 'stateshift[spark]'",
    )
    program = Capture(
        script=capture.__file__,
        python=python,
        request={
            "main_class": code.main_class,
            "image": image,
            "rehearse": which,
            "stub": code.stub,
            "batch_writes": code.batch_writes,
        },
        environment={"PYSPARK_PYTHON": python, "PYSPARK_SUBMIT_ARGS": submit},
        lacks={"No module named 'pyspark'": no_spark},
    )
    answer = run_capture(program, file, code)
    if int(answer["spark"].partition(".")[0]) < SPARK_MIN:
        raise PlanError(
            f"PySpark {answer['spark']} is too old: check needs {SPARK_MIN}.0 or later",
            hint="name another environment: --python PATH",
        )
    if not answer["queries"]:
        raise PlanError(
            f"{file} starts no streaming query",
            hint="what it starts may depend on its arguments: give them after --",
        )
    return answer


def _chosen(answer: JsonObject, location: str, name: str | None, file: str) -> CapturedQuery:
    """Return the query that the checkpoint is of: by its name, its location, or as the only one."""
    queries = [captured_query(each) for each in answer["queries"]]
    if name is not None:
        own = [query for query in queries if query.name == name]
    elif len(queries) == 1 and not file.endswith(".jar"):  # a jar may start others after it
        own = list(queries)
    else:
        place = plain_location(location)
        located = [(query, query.location or "") for query in queries]
        own = [query for query, given in located if plain_location(given) == place]
        last = location.rstrip("/").rpartition("/")[2]
        if not own:
            own = [query for query, given in located if given.rstrip("/").endswith(f"/{last}")]
    if len(own) == 1:
        return own[0]
    shown = "; ".join(
        f"{query.name or 'without a name'} at {redact(query.location or 'no location')}"
        for query in queries
    )
    asked = f"queries called {name}" if name is not None else f"queries at {redact(location)}"
    raise PlanError(
        f"{file} starts {len(own) or 'no'} {asked}; it starts {shown}",
        hint="name the one that the checkpoint is of: --query NAME",
    )


ENTRIES_MAX = 100  # of each store, to see how long its windows are
SMALL_MAX = 16 << 20  # bytes of one log or schema
WINDOW_COLUMNS = ("start", "end")


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The logs and schemas of one checkpoint, by their paths in it."""

    image: Image
    files: Mapping[str, bytes]


def read_small_files(storage: Storage, survey: Survey, image: Image) -> SmallFiles:
    """Read what a start of the image's job compares with its code."""
    epoch = image.epoch if image.epoch is not None else -1
    newest = image.planned if image.planned is not None else image.epoch
    listed = {file.path for file in survey.files}
    batches = [] if newest is None else [newest, newest - 1]
    logs = [under(image.path, offset_path(batch)) for batch in batches]
    wanted = [path for path in logs if path in listed]
    for file in survey.files:
        place = classify(inside(image, file.path))
        if place.area not in ("state-metadata", "state-schema") or place.partition not in (None, 0):
            continue
        if place.version is None or place.version <= epoch + 1:
            wanted.append(file.path)
    files = {inside(image, path): storage.read(path, SMALL_MAX) for path in wanted}
    return SmallFiles(image, files)


def write_copy(small: SmallFiles, target: Path) -> None:
    """Write the files below a folder of this machine, as if the checkpoint were there."""
    for path, content in small.files.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if "/_metadata/v2/" in path:
            content = _relocated(content, target)
        file.write_bytes(content)


def _relocated(content: bytes, target: Path) -> bytes:
    """Return metadata whose schemas are looked for below `target`."""
    metadata = decode_operator_metadata(content)
    tops = {}
    for store in metadata.stores:
        for path in store.schema_paths:
            top = canonical(path).rpartition("/state/")[0]
            tops[top] = plain_location(str(target))
    if not tops:
        return content
    return encode_operator_metadata(relocate_schema_files(metadata, Relocation(tops)))


def stored_query(small: SmallFiles, entries: Iterable[ShownEntry] = ()) -> StoredQuery:
    """Return the query that the checkpoint is of."""
    image = small.image
    described = operators_in(small.files)
    operators = []
    for operator in image.operators:
        known = described.get(operator.id, Operator(operator.id, operator.name, {}))
        operators.append(replace(known, name=known.name or operator.name))
    spans: dict[str, list[tuple[int, int]]] = {}
    for entry in entries:
        for part in (entry.key, entry.value):
            columns = part.values() if isinstance(part, dict) else ()
            for value in columns:
                if isinstance(value, dict) and tuple(value) == WINDOW_COLUMNS:
                    start, end = value["start"], value["end"]
                    if isinstance(start, int) and isinstance(end, int):
                        spans.setdefault(entry.operator, []).append((start, end))
    return StoredQuery(
        operators=tuple(operators),
        sources=tuple(_sources(small)),
        settings=image.settings,
        spans=spans,
    )


def has_windows(small: SmallFiles) -> bool:
    """Whether some state has windows in its keys or values."""
    for operator in operators_in(small.files).values():
        for schema in operator.stores.values():
            for column in (*fields_of(schema.key), *fields_of(schema.value)):
                is_struct = isinstance(column.type, dict) and column.type["type"] == "struct"
                names = [field.name for field in fields_of(column.type)] if is_struct else []
                if tuple(names) == WINDOW_COLUMNS:
                    return True
    return False


def _sources(small: SmallFiles) -> Iterator[Source]:
    image = small.image
    logs = [path for path in small.files if path.startswith("offsets/")]
    entries = [decode_offsets(small.files[path]) for path in sorted(logs, key=number_of_log)]
    offsets = [{each.source: each.offset for each in entry.offsets} for entry in entries]
    for end in image.endpoints:
        if end.role == "source":
            log = f"sources/{end.index}/"
            read = [place for place in image.embedded if place.role == "source"]
            places = {each.path for each in read if inside(image, each.file).startswith(log)}
            yield Source(
                kind=end.kind,
                places=tuple(sorted(places)),
                topics=tuple(sorted(end.offsets)),
                partitions=partitions_of(end.offsets),
                rested=len(offsets) > 1 and offsets[0].get(end.index) == offsets[1].get(end.index),
            )
