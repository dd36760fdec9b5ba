"""The first entries of every state, decoded as far as their serializers can be read. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stateshift.engines.flink.image import flink_image, metadata_of, names_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.engines.flink.views.elements import shown_entries
from stateshift.engines.views import ShownEntry
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Survey


def first_entries(storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
    """Yield up to `limit` entries of every state of every image that has metadata."""
    for image in survey.images:
        if flink_image(image) is not None:
            yield from _of_image(storage, image, limit)


def _of_image(storage: Storage, image: Image, limit: int) -> Iterator[ShownEntry]:
    names = names_of(image)
    counts: Counter[tuple[str, str]] = Counter()
    for entry in shown_entries(metadata_of(image), Streams(storage.chunks, places_of(image))):
        state = (entry.operator, entry.state)
        counts[state] += 1
        if counts[state] <= limit:
            yield ShownEntry(
                names[entry.operator], entry.state, entry.subtask, entry.key, entry.value
            )
