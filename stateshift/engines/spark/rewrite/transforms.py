"""The pure transforms that Spark plans name: source streams in, target streams out, nothing else
touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps

from stateshift.engines.spark.places import (
    REWRITE_LOG,
    REWRITE_OPERATOR_METADATA,
    REWRITE_SCHEMA_LOG,
)
from stateshift.engines.spark.rewrite.files import KEEP_TABLES, REWRITE_STATE
from stateshift.engines.spark.rewrite.kept_tables import keep_tables
from stateshift.engines.spark.rewrite.logs import (
    KEEP,
    REWRITE_COMMIT,
    REWRITE_FIRST_OFFSET,
    REWRITE_OFFSETS,
    REWRITE_SCHEMA,
)
from stateshift.engines.spark.rewrite.merge import MERGE_COMMITS, MERGE_OFFSETS
from stateshift.engines.spark.rewrite.state import rewrite_state
from stateshift.formats import bounds
from stateshift.formats.spark import (
    commits,
    offsets,
    operator_metadata,
    schema,
    source_log,
)
from stateshift.formats.spark.uris import Relocation, encode_location, plain_location
from stateshift.plain import JsonObject
from stateshift.storage.protocol import Content
from stateshift.world import Transform


def rewrite_log(options: JsonObject, inputs: Sequence[Content]) -> Sequence[Content]:
    """Change the places in a file source's or a file sink's log, line by line."""
    (log,) = inputs
    # The spec has places as a person writes them; in the files they stand as Hadoop quotes them.
    mapping = options["mapping"]
    quoted = {encode_location(old): encode_location(new) for old, new in mapping}
    relocation = Relocation(quoted)
    return (lambda: source_log.rewrite_source_log(log(), relocation, options["unmapped"]),)


def _one_file(make: Callable[[JsonObject, Sequence[Content]], bytes]) -> Transform:
    """Return the transform of some files into one, which is made when it is read."""

    @wraps(make)
    def transform(options: JsonObject, inputs: Sequence[Content]) -> Sequence[Content]:
        return (lambda: iter((make(options, inputs),)),)

    return transform


@_one_file
def rewrite_operator_metadata(options: JsonObject, inputs: Sequence[Content]) -> bytes:
    """Change the paths of schema files in an operator's metadata, and its number of partitions."""
    (content,) = inputs
    metadata = operator_metadata.decode_operator_metadata(_whole(content))
    if options["mapping"]:
        relocation = Relocation(_plain(options["mapping"]))
        metadata = operator_metadata.relocate_schema_files(metadata, relocation)
    if "partitions" in options:
        metadata = operator_metadata.with_partitions(metadata, options["partitions"])
    if "operator" in options:
        metadata = operator_metadata.with_operator(metadata, options["operator"])
    return operator_metadata.encode_operator_metadata(metadata)


@_one_file
def rewrite_schema_log(options: JsonObject, inputs: Sequence[Content]) -> bytes:
    """Change the path of its source's folder in an entry of Delta's schema log."""
    (content,) = inputs
    relocation = Relocation(_plain(options["mapping"]))
    entry = source_log.decode_schema_log(b"".join(content()))
    return source_log.encode_schema_log(source_log.relocate_schema_log(entry, relocation))


@_one_file
def rewrite_offsets(options: JsonObject, inputs: Sequence[Content]) -> bytes:
    """Change a planned batch's configuration, which overrides the session's, and its sources."""
    (content,) = inputs
    held = bounds.gather(content(), "an offset log entry")
    entry = offsets.with_conf(offsets.decode_offsets(held), options["conf"])
    entry = offsets.with_positions(entry, options.get("positions", {}))
    named = offsets.with_sources(entry, options.get("sources", {}), options.get("dropped", ()))
    return offsets.encode_offsets(named)


@_one_file
def rewrite_first_offset(options: JsonObject, inputs: Sequence[Content]) -> bytes:
    """Change the first offset of Kafka, or of Iceberg, which is plain JSON; a source of rate keeps
    its own.
    """
    (content,) = inputs
    held = _whole(content)
    if held.startswith(b"{"):
        return str(options["offset"]).encode()
    if source_log.source_kind(held) != "kafka":
        return held
    source_log.decode_initial_offset(held)
    return source_log.encode_kafka_initial_offset(options["offset"])


@_one_file
def rewrite_schema(options: JsonObject, inputs: Sequence[Content]) -> bytes:
    """Change a schema file's stores; "" is the one store of a file without column families."""
    (content,) = inputs
    file = schema.decode_schema(_whole(content))
    stores = []
    for store in file.stores:
        name = store.name if file.version == 3 else ""
        stores.append(replace(store, **options["stores"].get(name, {})))
    return schema.encode_schema(replace(file, stores=tuple(stores)))


@_one_file
def rewrite_commit(options: JsonObject, inputs: Sequence[Content]) -> bytes:
    """Change the ids of the state's files in a commit, under checkpoint format 2."""
    (content,) = inputs
    entry = commits.decode_commit(_whole(content))
    return commits.encode_commit(commits.with_state_ids(entry, options["state_ids"]))


@_one_file
def merge_offsets(options: JsonObject, inputs: Sequence[Content]) -> bytes:
    """Make one of the same batch of several queries: it has the sources of all of them."""
    entries = [offsets.decode_offsets(_whole(content)) for content in inputs]
    return offsets.encode_offsets(
        offsets.with_conf(offsets.unite_offsets(entries), options["conf"])
    )


@_one_file
def merge_commits(options: JsonObject, inputs: Sequence[Content]) -> bytes:
    """Merge the last commits of several queries: the first's, with the smallest watermark."""
    entries = [commits.decode_commit(_whole(content)) for content in inputs]
    watermark = min(entry.watermark_ms for entry in entries)
    entry = commits.with_watermark(entries[0], watermark)
    if options["format_2"]:
        entry = commits.with_state_ids(entry, options["state_ids"])
    return commits.encode_commit(entry)


def keep(options: JsonObject, inputs: Sequence[Content]) -> Sequence[Content]:
    """Keep files as they are, for another path."""
    return inputs


def _whole(content: Content) -> bytes:
    return bounds.gather(content(), "a log or a schema")


def _plain(mapping: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return places unquoted, as in operators' metadata and Delta's schema logs."""
    return {plain_location(old): plain_location(new) for old, new in mapping}


TRANSFORMS: Mapping[str, Transform] = {
    REWRITE_LOG: rewrite_log,
    REWRITE_OPERATOR_METADATA: rewrite_operator_metadata,
    REWRITE_SCHEMA_LOG: rewrite_schema_log,
    KEEP: keep,
    REWRITE_STATE: rewrite_state,
    KEEP_TABLES: keep_tables,
    REWRITE_OFFSETS: rewrite_offsets,
    REWRITE_COMMIT: rewrite_commit,
    REWRITE_SCHEMA: rewrite_schema,
    REWRITE_FIRST_OFFSET: rewrite_first_offset,
    MERGE_OFFSETS: merge_offsets,
    MERGE_COMMITS: merge_commits,
}
