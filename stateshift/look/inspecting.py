"""Looking into an image, a workflow directory or a single file: the files there, and some of its
state, decoded; or two images, compared by their entries. Reads only.

To look at a directory waits for nothing that decodes files: that is imported where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from stateshift.engines.registry import decoded_file, engine_of, find_image, is_whole
from stateshift.engines.single_file import single
from stateshift.engines.views import DecodedFile, Differences, Opening, Readers, ShownEntry
from stateshift.errors import MissingFile
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently
from stateshift.survey import Survey


@dataclass(frozen=True, slots=True)
class Look:
    """A survey of a directory, or a single file decoded."""

    survey: Survey | None = None
    file: DecodedFile | None = None


def inspect(location: str, opening: Opening = open_patiently) -> Look:
    """Look at whatever is at the location."""
    file = single(location, opening)
    if file is not None and is_whole(file[1]):
        return inspect(locations.parent(locations.normal(location, os.getcwd())), opening)
    if file is not None:
        storage, name = file
        return Look(file=decoded_file(storage, name, location, opening))
    _, _, survey = find_image(location, opening)
    if not survey.images and survey.kind == "empty":
        parent = locations.parent(locations.normal(location, os.getcwd()))
        hint = f"check the path: stateshift inspect {quote(parent)}"
        raise MissingFile(f"nothing is at {location}", location=location, hint=hint)
    return Look(survey)


def entries(
    location: str, opening: Opening = open_patiently, limit: int = 20
) -> Iterator[ShownEntry]:
    """Return the first entries of every store, by the names of their columns if these are known."""
    engine, storage, survey = find_image(location, opening)
    return engine.first_entries(storage, survey, limit)


def diff(
    one: str,
    other: str,
    opening: Opening = open_patiently,
    show: int = 0,
    fleet: Readers | None = None,
) -> Differences:
    """Compare the image at `one` (A) with that at `other` (B): per operator and store the entries
    that are added (only B has the key), removed (only A) or changed; `show` of them are decoded. A
    `fleet` reads them, where there is one.
    """
    engine = engine_of(*(locations.normal(at, os.getcwd()) for at in (one, other)), opening=opening)
    return engine.diff(one, other, opening, show, fleet)
