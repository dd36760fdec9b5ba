"""The pure transforms that Spark plans name: source streams in, target streams out, nothing else touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stateshift.engines.spark.rewriting import REWRITE_LOG, REWRITE_OPERATOR_METADATA
from stateshift.formats.spark import operator_metadata, source_log
from stateshift.storage.protocol import Content
from stateshift.world import Transform


def rewrite_log(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """A file source's or a file sink's log with its places changed, line by line."""
    (log,) = inputs
    return (lambda: source_log.rewrite(log(), _mapping(options), refuse_unmapped=options["unmapped"] != "keep"),)


def rewrite_operator_metadata(options: Mapping[str, Any], inputs: Sequence[Content]) -> Sequence[Content]:
    """An operator's metadata with the paths of its schema files changed."""
    (metadata,) = inputs
    return (lambda: iter((operator_metadata.rewrite(b"".join(metadata()), _mapping(options)),)),)


def _mapping(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(source, target) for source, target in options["mapping"]]


TRANSFORMS: Mapping[str, Transform] = {
    REWRITE_LOG: rewrite_log,
    REWRITE_OPERATOR_METADATA: rewrite_operator_metadata,
}
