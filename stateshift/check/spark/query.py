"""A query of the code, and the query that a checkpoint is of: the same values of both. Pure.

Both sides come as files that Spark wrote: the capture's throwaway checkpoint, and the image.

    state/<op>/_metadata/metadata, v2/<batch>        the operator's name and its stores
    state/<op>/0/[<store>/]_metadata/schema          key and value of a store
    state/<op>/_stateSchema/<store>/<batch>_<uuid>   of a store with column families
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from stateshift.check.spark.columns import columns_text, fields_of
from stateshift.formats.spark.operator_metadata import OperatorMetadata, decode_operator_metadata
from stateshift.formats.spark.schema import StoreSchema, decode_schema
from stateshift.plain import JsonObject

# Kinds that an offset alone does not tell from others.
AMBIGUOUS = ("unknown", "memory or socket", "kafka or event-hubs")
RATES = frozenset(("rate", "ratev1", "org.apache.spark.sql.execution.streaming.sources.rate"))


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The windows of an aggregation; a `slide_us` of 0 is not known."""

    length_us: int
    slide_us: int = 0
    start_us: int = 0


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator. `name` is None where Spark 3 wrote it: it kept no metadata.

    Only the code's has `code`, the lines of its plan, `windows` and `gaps`, of session windows.
    """

    id: str
    name: str | None
    stores: Mapping[str, StoreSchema]
    code: tuple[str, ...] = ()
    windows: tuple[TimeWindow, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def columns(self) -> str:
        """The columns of its first store with rows, as people write them."""
        for name in ("default", "left-keyWithIndexToValue"):
            if name in self.stores:
                schema = self.stores[name]
                key, value = fields_of(schema.key), fields_of(schema.value)
                return f"({columns_text(key)}) -> ({columns_text(value)})"
        return ""

    @property
    def functions(self) -> list[str]:
        """The names of its aggregates, in the order of their columns."""
        for line in self.code:
            functions = re.search(r"functions=\[(.*)\]", line)
            if functions is not None:
                return re.findall(r"(?:partial_|merge_|finalmerge_)?(\w+)\(", functions[1])
        return []


@dataclass(frozen=True, slots=True)
class Source:
    """A source or the sink of the code, or a source of the offset log: its kind, and its places.

    Only that of an offset log is `rested`: it has read nothing in the newest batch. Only the
    code's has a `pattern` of topics, and fails or not where records are lost.
    """

    kind: str
    places: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    partitions: frozenset[str] = frozenset()
    pattern: str | None = None
    fails_on_loss: bool = True
    rested: bool = False

    @property
    def text(self) -> str:
        """Its kind, and what it reads."""
        read = self.topics or (self.pattern and (self.pattern,)) or self.places
        return f"{self.kind} {', '.join(read)}".strip()

    @property
    def folders(self) -> list[str]:
        """Its places without schemes, and without patterns of names."""
        plain = [re.sub(r"^file:/+", "/", place) for place in self.places]
        return [place.partition("*")[0].rstrip("/") for place in plain]

    def is_of_kind(self, other: Source) -> bool:
        """Whether both are of one kind, as far as an offset tells."""
        if self.kind in AMBIGUOUS or self.kind == other.kind:
            return True
        return {self.kind, other.kind} <= RATES

    def unread_by(self, other: Source) -> list[str]:
        """The topics, or partitions, of an offset log that the code does not read."""
        if other.pattern is not None:
            with suppress(re.error):  # Java knows more
                pattern = re.compile(other.pattern)
                return [topic for topic in self.topics if pattern.fullmatch(topic) is None]
        if not other.topics:
            return []
        topics = sorted({*self.topics} - {*other.topics})
        if topics or not other.partitions:
            return topics
        return sorted(self.partitions - other.partitions)

    def reads_as(self, other: Source) -> bool:
        """Whether the source of an offset log is that one of the code."""
        if not self.is_of_kind(other):
            return False
        if self.topics and other.topics:
            return self.topics == other.topics
        if not (self.places and other.places):
            return not (self.places or other.places or self.topics or other.topics)
        for place in self.folders:
            for above in other.folders:
                if place == above or place.startswith(f"{above}/"):
                    return True
        return False


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error of Spark: its class, and its text."""

    error_class: str
    message: str


@dataclass(frozen=True, slots=True)
class CapturedQuery:
    """A query that the code would start.

    invalid   why Spark starts it with no checkpoint at all
    refused   why it does not plan its next batch on this one
    """

    name: str | None
    location: str | None
    mode: str
    settings: Mapping[str, str]
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    sink: Source
    invalid: Refusal | None = None
    refused: Refusal | None = None


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """The query that the checkpoint is of. `spans` are some windows in its state, by operator:
    (start, end) in microseconds.
    """

    operators: tuple[Operator, ...]
    sources: tuple[Source, ...]
    settings: Mapping[str, str]
    spans: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)


def operators_in(files: Mapping[str, bytes]) -> dict[str, Operator]:
    """Return the operators whose metadata and schemas these files are, by id."""
    by_operator: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        parts = path.split("/")
        if parts[0] == "state" and len(parts) > 3:
            number, below = parts[1], "/".join(parts[2:])
            by_operator.setdefault(number, {})[below] = content
    operators = {}
    in_order = sorted(by_operator.items(), key=lambda pair: int(pair[0]))
    for number, own in in_order:
        metadata = newest_metadata(own)
        name = None if metadata is None else metadata.name
        stores = dict(stores_in(own, metadata))
        operators[number] = Operator(number, name, stores)
    return operators


def newest_metadata(files: Mapping[str, bytes]) -> OperatorMetadata | None:
    """Return the metadata that counts, of the files of one operator."""
    versions = [path for path in files if path.startswith("_metadata/v2/")]
    newest = max(versions, key=lambda path: int(path.rpartition("/")[2]), default=None)
    newest = newest or ("_metadata/metadata" if "_metadata/metadata" in files else None)
    return None if newest is None else decode_operator_metadata(files[newest])


def stores_in(
    files: Mapping[str, bytes], metadata: OperatorMetadata | None
) -> Iterator[tuple[str, StoreSchema]]:
    """Yield the stores of one operator, or their column families, by their names."""
    families: dict[str, list[str]] = {}
    for path, content in sorted(files.items()):
        parts = path.split("/")
        if parts[0] == "0" and parts[-2:] == ["_metadata", "schema"]:
            (schema,) = decode_schema(content).stores
            yield parts[1] if len(parts) == 4 else "default", schema
        elif parts[0] == "_stateSchema" and len(parts) == 3:
            families.setdefault(parts[1], []).append(path)
    for store, paths in families.items():
        infos = () if metadata is None else metadata.stores
        named = []
        for info in infos:
            if info.name == store:
                named += [path.rpartition("/")[2] for path in info.schema_paths]
        own = {path.rpartition("/")[2]: path for path in paths}
        newest = next((own[name] for name in reversed(named) if name in own), None)
        newest = newest or max(paths, key=lambda path: int(path.split("/")[-1].split("_")[0]))
        for schema in decode_schema(files[newest]).stores:
            yield f"{store}/{schema.name}", schema


# ---- the capture ---------------------------------------------------------------------------------

# Spark's names of file formats; the offset log calls all of them a file source.
FILE_KINDS = ("json", "csv", "parquet", "orc", "text", "xml", "avro", "binaryfile")


def captured_query(plain: JsonObject) -> CapturedQuery:
    """Return a query of the answer of `capture.py`."""
    operators = []
    for each in plain["operators"]:
        files = {path: base64.b64decode(content) for path, content in each["files"].items()}
        planned = replace(
            operators_in(files)[each["id"]],
            code=tuple(each["code"]),
            windows=tuple(TimeWindow(**window) for window in each["windows"]),
            gaps=tuple(each["gaps"]),
        )
        operators.append(planned)
    return CapturedQuery(
        name=plain["name"],
        location=plain["location"],
        mode=plain["mode"],
        settings=plain["settings"],
        sources=tuple(_captured_source(each) for each in plain["sources"]),
        sink=_captured_sink(plain["sink"]),
        operators=tuple(operators),
        invalid=_refusal(plain["invalid"]),
        refused=_refusal(plain["refused"]),
    )


def partitions_of(topics: Mapping[str, Iterable[int]]) -> frozenset[str]:
    """Return the names of partitions, given by their topics."""
    names: set[str] = set()
    for topic, numbers in topics.items():
        names.update(f"{topic}-{number}" for number in numbers)
    return frozenset(names)


def _captured_source(plain: JsonObject) -> Source:
    kind = str(plain["kind"]).lower()
    options: Mapping[str, str] = plain["options"]
    names: Iterable[str] = options["subscribe"].split(",") if "subscribe" in options else ()
    assigned: Mapping[str, Sequence[int]] = {}
    if "assign" in options:
        names = assigned = json.loads(options["assign"])
    places = (options["path"],) if "path" in options else ()
    format = kind.rpartition(".")[2].removesuffix("fileformat")
    if format in FILE_KINDS:
        kind = "file"
    return Source(
        kind,
        places,
        topics=tuple(sorted(map(str.strip, names))),
        partitions=partitions_of(assigned),
        pattern=options.get("subscribepattern"),
        fails_on_loss=options.get("failondataloss", "true").lower() != "false",
    )


def _captured_sink(plain: JsonObject) -> Source:
    options: Mapping[str, str] = plain["options"]
    places = [options[key] for key in ("path", "table") if key in options]
    topics = (options["topic"],) if "topic" in options else ()
    return replace(_captured_source(plain), places=tuple(places), topics=topics)


def _refusal(plain: Mapping[str, str] | None) -> Refusal | None:
    return None if plain is None else Refusal(plain["class"], plain["message"])
