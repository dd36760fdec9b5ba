"""How much that is to be copied could be copied faster: said before it is. Pure.

Only where it is worth a person's time, and only what a storage knows of itself
(`Traits.faster_by`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stateshift.engines.free_space import in_units, needed
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding

BYTES_MIN: Final = 1024**3


def of_faster_storage(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield one note where the job's storages could be faster."""
    size, _ = needed(facts)
    surveys = [facts.source, facts.target, *facts.merges, *facts.others]
    for data, ends in zip(job.data, facts.data, strict=True):
        if data.copy:
            size += ends[0].bytes
            surveys += ends
    slow = [survey for survey in surveys if survey.faster_by]
    if slow and size >= BYTES_MIN:
        places = " and ".join(dict.fromkeys(survey.location for survey in slow))
        yield Finding(
            "note",
            f"{in_units(size)} are to be moved, and {places} can be reached faster",
            hint="; ".join(dict.fromkeys(survey.faster_by for survey in slow)),
        )
