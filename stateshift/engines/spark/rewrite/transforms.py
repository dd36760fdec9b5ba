"""The pure transforms that Spark plans name: source streams in, target streams out, nothing else
touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stateshift.engines.spark.places import (
    REWRITE_LOG,
    REWRITE_OPERATOR_METADATA,
    REWRITE_SCHEMA_LOG,
)
from stateshift.engines.spark.rewrite.files import REWRITE_STATE
from stateshift.engines.spark.rewrite.logs import (
    KEEP,
    REWRITE_COMMIT,
    REWRITE_OFFSETS,
    REWRITE_SCHEMA,
)
from stateshift.engines.spark.rewrite.merge import MERGE_COMMITS, MERGE_OFFSETS
from stateshift.engines.spark.rewrite.state import rewrite_state
from stateshift.formats import bounds
from stateshift.formats.spark import (
    commits,
    delta_schema_log,
    offsets,
    operator_metadata,
    schema,
    source_log,
)
from stateshift.formats.spark.uris import Relocation, encode_location, plain_location
from stateshift.storage.protocol import Content
from stateshift.world import Transform


def rewrite_log(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """A file source's or a file sink's log with its places changed, line by line."""
    (log,) = inputs
    relocation = _relocation(options)
    return (lambda: source_log.rewrite_source_log(log(), relocation, options["unmapped"]),)


def rewrite_operator_metadata(
    options: Mapping[str, Any], inputs: Sequence[Content]
) -> Sequence[Content]:
    """An operator's metadata with the paths of its schema files changed, and its number of
    partitions.
    """
    (content,) = inputs
    # Not quoted, unlike in the logs.
    relocation = Relocation(
        {plain_location(old): plain_location(new) for old, new in options["mapping"]}
    )

    def rewritten() -> bytes:
        metadata = operator_metadata.decode_operator_metadata(
            bounds.gathered(content(), "a log or a schema")
        )
        metadata = (
            operator_metadata.relocated(metadata, relocation) if options["mapping"] else metadata
        )
        if "partitions" in options:
            metadata = operator_metadata.with_partitions(metadata, options["partitions"])
        if "operator" in options:
            metadata = operator_metadata.with_operator(metadata, options["operator"])
        return operator_metadata.encode_operator_metadata(metadata)

    return (lambda: iter((rewritten(),)),)


def rewrite_schema_log(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """An entry of Delta's schema log with the path of its source's folder changed."""
    (content,) = inputs
    # Not quoted, like in operators' metadata.
    relocation = Relocation(
        {plain_location(old): plain_location(new) for old, new in options["mapping"]}
    )

    def rewritten() -> bytes:
        entry = delta_schema_log.decode_schema_log(b"".join(content()))
        return delta_schema_log.encode_schema_log(delta_schema_log.relocated(entry, relocation))

    return (lambda: iter((rewritten(),)),)


def rewrite_offsets(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """A planned batch under another configuration, which overrides the session's on a restart, and
    with its sources renamed.
    """
    (content,) = inputs

    def rewritten() -> bytes:
        held = bounds.gathered(content(), "an offset log entry")
        entry = offsets.with_conf(offsets.decode_offsets(held), options["conf"])
        named = offsets.with_sources(entry, options.get("sources", {}), options.get("dropped", ()))
        return offsets.encode_offsets(named)

    return (lambda: iter((rewritten(),)),)


def rewrite_schema(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """A schema file of stores whose rows become others; "" is the one store of a file that has
    no column families.
    """
    (content,) = inputs

    def rewritten() -> bytes:
        found = schema.decode_schema(bounds.gathered(content(), "a log or a schema"))
        told = options["stores"]
        stores = tuple(
            replace(store, **told.get(store.name if found.version == 3 else "", {}))
            for store in found.stores
        )
        return schema.encode_schema(replace(found, stores=stores))

    return (lambda: iter((rewritten(),)),)


def keep(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """Files as they are, for another path."""
    return inputs


def rewrite_commit(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """A finished batch whose state has other files: their ids under checkpoint format 2, none
    where they have none.
    """
    (content,) = inputs
    ids = options["state_ids"]

    def rewritten() -> bytes:
        entry = commits.decode_commit(bounds.gathered(content(), "a log or a schema"))
        return commits.encode_commit(commits.with_state_ids(entry, ids))

    return (lambda: iter((rewritten(),)),)


def merge_offsets(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """The same batch of several queries as one: the sources of all of them."""

    def merged() -> bytes:
        entries = [
            offsets.decode_offsets(bounds.gathered(content(), "a log or a schema"))
            for content in inputs
        ]
        return offsets.encode_offsets(offsets.with_conf(offsets.united(entries), options["conf"]))

    return (lambda: iter((merged(),)),)


def merge_commits(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """The last finished batch of several queries as one: the first's, with the smallest
    watermark.
    """

    def merged() -> bytes:
        entries = [
            commits.decode_commit(bounds.gathered(content(), "a log or a schema"))
            for content in inputs
        ]
        entry = commits.with_watermark(entries[0], min(entry.watermark_ms for entry in entries))
        if options["format_2"]:
            entry = commits.with_state_ids(entry, options["state_ids"])
        return commits.encode_commit(entry)

    return (lambda: iter((merged(),)),)


def _relocation(options: Mapping[str, Any]) -> Relocation:
    """The spec speaks of places as a person writes them; in the files they stand as Hadoop
    quotes them.
    """
    return Relocation(
        {encode_location(old): encode_location(new) for old, new in options["mapping"]}
    )


TRANSFORMS: Mapping[str, Transform] = {
    REWRITE_LOG: rewrite_log,
    REWRITE_OPERATOR_METADATA: rewrite_operator_metadata,
    REWRITE_SCHEMA_LOG: rewrite_schema_log,
    KEEP: keep,
    REWRITE_STATE: rewrite_state,
    REWRITE_OFFSETS: rewrite_offsets,
    REWRITE_COMMIT: rewrite_commit,
    REWRITE_SCHEMA: rewrite_schema,
    MERGE_OFFSETS: merge_offsets,
    MERGE_COMMITS: merge_commits,
}
