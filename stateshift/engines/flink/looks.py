"""What Flink's engine shows of an image: `engines.views.Looks`. Each part is imported when it is
first asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.engines.views import Judged, ShownEntry
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Survey

if TYPE_CHECKING:
    from stateshift.engines.views import Differences, Export, Opening, Readers, Wanted


def entries(storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
    from stateshift.engines.flink.rewrite.choice import metadata_of, places_of
    from stateshift.engines.flink.streams import Streams
    from stateshift.engines.flink.views.decoded import shown

    counts: Counter[tuple[str, str]] = Counter()
    for image in survey.images:
        if "metadata" not in image.details:
            continue
        names = {operator.id: operator.uid or operator.id for operator in image.operators}
        for entry in shown(metadata_of(image), Streams(storage.chunks, places_of(image))):
            counts[entry.operator, entry.state] += 1
            if counts[entry.operator, entry.state] <= limit:
                yield ShownEntry(
                    names[entry.operator], entry.state, entry.subtask, entry.key, entry.value
                )


def judged(
    storage: Storage,
    survey: Survey,
    image: Image,
    where: str,
    thorough: bool,
    fleet: Readers | None,
) -> Judged:
    """An image has one epoch: whatever is wrong, there is no other to go back to."""
    if not thorough:
        return Judged((), image.epochs)
    from stateshift.engines.flink.check.image import everything

    found = tuple(everything(storage, image))
    refused = any(finding.level == "refuse" for finding in found)
    return Judged(found, () if refused else image.epochs)


def way_out(path: str, images: Sequence[str]) -> str:
    return f"restore {path} from a copy of the checkpoint"


def diff(one: str, other: str, opening: Opening, show: int, fleet: Readers | None) -> Differences:
    from stateshift.engines.flink.views import diff as differing

    return differing.diff(one, other, opening, show)


def export(location: str, wanted: Wanted, format: str, opening: Opening) -> Export:
    from stateshift.engines.flink.views import export as exporting

    return exporting.export(location, wanted, format, opening)
