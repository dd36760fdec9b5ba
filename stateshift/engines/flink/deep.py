"""Every byte that a restart reads, read to its end: are the files whole, and is each key in the group where Flink looks
for it? What serializers alone can tell is not asked: that is said, once."""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.flink.choosing import metadata_of, places_of
from stateshift.engines.flink.entries import of_operator
from stateshift.engines.flink.reading import Streams
from stateshift.errors import FormatError, StorageError
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image


def everything(storage: Storage, image: Image) -> Iterator[Finding]:
    if "metadata" not in image.details:
        return
    streams = Streams(storage.chunks, places_of(image))
    for operator in metadata_of(image).operators:
        try:
            for _ in of_operator(operator, streams):
                pass
        except (FormatError, StorageError) as error:
            offset = error.offset if isinstance(error, FormatError) else None
            yield Finding("refuse", f"operator {operator.id.hex()}: {error.fact}", offset=offset)
