"""Every byte that a restart reads, read to its end: are the files whole, and is each key in the group where Flink looks
for it? What serializers alone can tell is not asked: that is said, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stateshift.engines.flink.choosing import metadata_of, places_of
from stateshift.engines.flink.databases import checked_databases, without_native
from stateshift.engines.flink.entries import canonical_sections, of_operator
from stateshift.engines.flink.frames import checked_frames
from stateshift.engines.flink.keys import hash_of, hashable
from stateshift.engines.flink.reading import Streams
from stateshift.errors import FormatError, StorageError
from stateshift.formats.flink.key_groups import key_group, prefix_bytes
from stateshift.formats.flink.keyed_state import entries
from stateshift.formats.flink.metadata import OperatorState
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image


def everything(storage: Storage, image: Image) -> Iterator[Finding]:
    if "metadata" not in image.details:
        return
    streams = Streams(storage.chunks, places_of(image))
    for operator in metadata_of(image).operators:
        try:
            for _ in of_operator(_without_databases(operator), streams):
                pass
            yield from _misplaced(operator, streams)
            yield from checked_databases(operator, streams)
            yield from checked_frames(operator, streams)
        except (FormatError, StorageError) as error:
            offset = error.offset if isinstance(error, FormatError) else None
            yield Finding("refuse", f"operator {operator.id.hex()}: {error.fact}", offset=offset)


def _without_databases(operator: OperatorState) -> OperatorState:
    """The operator without the state that `checked_databases` reads, which need not be read twice."""
    subtasks = operator.subtasks and tuple(
        replace(subtask, managed_keyed=without_native(subtask.managed_keyed)) for subtask in operator.subtasks
    )
    return replace(operator, subtasks=subtasks)


def _misplaced(operator: OperatorState, streams: Streams) -> Iterator[Finding]:
    """A key that its hash puts into another group, as where only the max parallelism was changed: Flink would not find
    it again, or refuse it once the job runs. Asked where keys can be hashed without the job's classes."""
    prefix, most = prefix_bytes(operator.max_parallelism), operator.max_parallelism
    wrong = 0
    for subtask in operator.subtasks or ():
        for header, group, content in canonical_sections(subtask.managed_keyed, streams):
            if not hashable(header.key):
                break
            found = (hash_of(header, state, key[prefix:]) for state, key, _ in entries(content, prefix, group))
            wrong += sum(key_group(code, most) != group for code in found)
    if wrong:
        yield Finding("refuse", f"operator {operator.id.hex()}: {wrong} entries lie in other key groups than those of "
                      f"their keys, for max parallelism {most}")  # fmt: skip
