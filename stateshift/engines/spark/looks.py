"""What Spark's engine shows of an image: `engines.views.Looks`. Each part is imported when it is
first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.engines.views import Judged
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, Survey

if TYPE_CHECKING:
    from stateshift.engines.views import Differences, Export, Opening, Readers, ShownEntry, Wanted


def entries(storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
    from stateshift.engines.spark.views.first_entries import first_entries

    return first_entries(storage, survey, limit)


def judged(
    storage: Storage,
    survey: Survey,
    image: Image,
    where: str,
    thorough: bool,
    fleet: Readers | None,
) -> Judged:
    from stateshift.engines.spark.survey.restart.old_state import refused_since_3
    from stateshift.engines.spark.survey.restart.strangers import strangers

    found, epochs = [*_told(where, image)], image.epochs
    found += [Finding("warn", fact) for fact in refused_since_3(image.operators, image.settings)]
    found += strangers(survey.files, image)
    if thorough:
        from stateshift.engines.spark.check import image as everything
        from stateshift.engines.spark.check import unchecked

        found_deep = tuple(_deep(storage, survey, image, fleet))
        found += [*found_deep, *unchecked.findings(survey, image)]
        if epochs and any(finding.level == "refuse" for finding in (*image.findings, *found_deep)):
            epochs = everything.works(storage, image, found_deep)
    return Judged(tuple(found), epochs)


def way_out(path: str, images: Sequence[str]) -> str:
    from stateshift.engines.spark.findings import ways_out

    return ways_out.way_out(
        path, max((image for image in images if path.startswith(image)), key=len, default="")
    )


def diff(one: str, other: str, opening: Opening, show: int, fleet: Readers | None) -> Differences:
    from stateshift.engines.spark.views import diff as differing

    return differing.diff(one, other, opening, show, fleet)


def export(location: str, wanted: Wanted, format: str, opening: Opening) -> Export:
    from stateshift.engines.spark.views import export as exporting

    return exporting.export(location, wanted, format, opening)


def _told(where: str, image: Image) -> Iterator[Finding]:
    from stateshift.engines.spark.findings.moves import taking_back

    if image.fence is not None:
        yield Finding(
            "refuse",
            f"{where} is fenced by run {image.fence}: a job that starts here fails",
            hint=taking_back(image.fence),
        )
    if image.begins:
        yield Finding(
            "note",
            f"{where} has not committed a batch: a job begins with batch 0, as it was planned",
        )
    elif image.epoch is None:
        yield Finding("refuse", f"{where} has not committed a batch")


def _deep(
    storage: Storage, survey: Survey, image: Image, fleet: Readers | None
) -> Iterator[Finding]:
    from stateshift.engines.spark.check import image as everything
    from stateshift.engines.spark.check import sidecars

    if fleet is None:
        yield from everything.findings(storage, survey, image)
        return
    yield from fleet.deep(survey, image)
    yield from sidecars.orphans(storage, survey, image)
