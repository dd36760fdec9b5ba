"""Will this code start from that state? The user's file is run, and none of its queries is started.

    files       the checkpoint's logs and schemas        read with the storage that it is in
    capture     the queries or jobs of the user's file   a process of its own, with the engine
    compare     the two against each other, by rules     pure

A verdict a query, the worst of its differences:

    starts         the engine continues, and computes what the code says
    not-known      nothing speaks against it, and a plan does not tell everything
    starts-but     it continues, and the state holds something else than the code takes it for
    starts-after   it refuses the state as it is; commands make another that it takes
    never          it refuses it, and no command of stateshift changes that
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from stateshift.check.verdict import Checked
from stateshift.engines.registry import absence, find_image
from stateshift.engines.views import Opening, ShownEntry
from stateshift.errors import FormatError, NothingThere, PlanError
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently

TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Code:
    """A user's file, and how it is run.

    before        the file that wrote the state; None where nobody has it
    python        the interpreter whose PySpark runs it; None for this one
    packages      further jars, as Maven's coordinates
    stub          let no source be reached: each is an empty one of the same columns
    batch_writes  let the file write tables that are no streams
    flink         the distribution of Flink that plans a jar or SQL; None for $FLINK_HOME
    main_class    of a jar; None for the one that its manifest names
    parallelism   as Flink starts it; None as Flink is configured
    allow_non_restored  whether Flink drops state that no operator of the code reads
    """

    file: str
    arguments: tuple[str, ...] = ()
    before: str | None = None
    python: str | None = None
    packages: tuple[str, ...] = ()
    stub: bool = False
    batch_writes: bool = False
    flink: str | None = None
    main_class: str | None = None
    parallelism: int | None = None
    allow_non_restored: bool = False
    timeout_seconds: float = TIMEOUT_SECONDS


def check(
    location: str,
    code: Code,
    query: str | None = None,
    waive: tuple[str, ...] = (),
    opening: Opening = open_patiently,
) -> Checked:
    """Hold a file's queries or jobs against the image at the location.

    Args:
        location: the checkpoint of one query, or a savepoint.
        code: the file, and how it is run.
        query: the name of the query or job that the image is of, where the file starts several.
        waive: rules whose hazards are accepted.
        opening: opens a storage at a location.
    Raises:
        PlanError: the file fails, starts nothing or hangs; nothing of it uses the image.
        NothingThere: there is no checkpoint.
        FormatError: a file of it is damaged or missing: no code starts from it as it is.
    """
    location = locations.normal(location, os.getcwd())
    engine, storage, survey = find_image(location, opening)
    if not survey.images:
        hint = locations.look_above(location)
        fact = f"there is no checkpoint at {location}"
        if survey.kind == "empty":
            fact = absence(location)
        raise NothingThere(fact, hint=hint)
    if len(survey.images) != 1:
        names = ", ".join(image.path for image in survey.images[:5])
        raise PlanError(
            f"{location} holds {len(survey.images)} queries: {names}", hint="name one of them"
        )
    for finding in survey.images[0].findings:
        if finding.is_damage:
            raise FormatError(finding.message, finding.path, finding.offset, hint=finding.hint)
    if survey.engine == "flink":
        from stateshift.check.flink.checking import SurveyedSavepoint, check_savepoint

        return check_savepoint(SurveyedSavepoint(location, survey, opening), code, query, waive)
    from stateshift.check.spark.checking import SurveyedCheckpoint, check_checkpoint

    def entries(limit: int) -> Iterator[ShownEntry]:
        return engine.first_entries(storage, survey, limit)

    return check_checkpoint(
        SurveyedCheckpoint(location, storage, survey, entries, opening), code, query, waive
    )
