"""The absolute paths by which an image names itself, and what is at each. Reads only.

    state/<op>/_metadata/v2/<batch>   the folders of its schemas    Spark opens them at each start
    _schema_log_<table>/<n>           the source's folder in it     Delta compares the text
    sources/<i>/<n>[.compact]         every input file              `inputs`
    <output>/_spark_metadata/<n>      every output file             `endpoints.find_misplaced`

An image that was copied by other means still names the place where it was made.

    here        it is where the image lies
    equal       elsewhere, with the same bytes: Spark reads them there
    maybe       it may be here by another name of an HDFS, and cannot be read by that name
    missing     elsewhere, and a file is not there
    different   elsewhere, with other bytes, or compared as text
    unreadable  elsewhere, and that place cannot be read from here

Seen with Spark 4.3.0: `transformWithState` fails before its first batch unless the files are there
and equal. A join of format 3 or 4 writes missing ones again, in the old place; it fails where that
place has other bytes, or no file system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from stateshift.engines.spark.layout import number_of_log, under
from stateshift.engines.spark.places import is_of_operator, own_place, root_of
from stateshift.engines.spark.small_files import SMALL
from stateshift.engines.spark.survey.restart.operator_checks import named_schemas
from stateshift.engines.views import Opening
from stateshift.errors import FormatError, MissingFile, StateshiftError
from stateshift.formats.spark.operator_metadata import decode_operator_metadata
from stateshift.formats.spark.uris import canonical
from stateshift.specification.location import relation, scheme_named
from stateshift.storage.protocol import Storage
from stateshift.survey import EmbeddedPath, Finding, Found, Image, Survey

JOIN = "symmetricHashJoin"


def with_own_places(storage: Storage, survey: Survey, opening: Opening) -> Survey:
    """Return the survey, with what is at each place by which its images name themselves."""
    images = []
    for image in survey.images:
        embedded = []
        for place in image.embedded:
            found: Found = ""
            if place.role == "self":
                found = _found(image, storage, place, opening)
            embedded.append(replace(place, found=found))
        images.append(replace(image, embedded=tuple(embedded)))
    return replace(survey, images=tuple(images))


def _found(image: Image, storage: Storage, place: EmbeddedPath, opening: Opening) -> Found:
    own = own_place(image, place)
    here = f"{storage.location}/{own}"
    if relation(place.path, here) == "same":
        return "here"
    try:
        if is_of_operator(place):
            return _compared(storage, own, opening(place.path), place)
        root = root_of(image, place)
        is_there = root is not None and opening(root).stat(place.file) is not None
        return "equal" if is_there else "missing"
    except MissingFile:
        return "missing"
    except StateshiftError:
        path = _path_in_hdfs(place.path)
        return "maybe" if path and path == _path_in_hdfs(here) else "unreadable"


def _compared(storage: Storage, own: str, elsewhere: Storage, place: EmbeddedPath) -> Found:
    """Compare the schemas that the metadata names elsewhere with those of the same name here."""
    try:
        metadata = decode_operator_metadata(storage.read(place.file, SMALL))
    except FormatError:
        return "equal"  # the survey has said so
    for path in named_schemas(metadata):
        folder, _, name = path.rpartition("/")
        if canonical(folder) != place.path:
            continue
        content = elsewhere.read(name, SMALL)
        try:
            if storage.read(f"{own}/{name}", SMALL) != content:
                return "different"
        except MissingFile:
            continue  # the survey has said so (`check_schemas`)
    return "equal"


def _path_in_hdfs(location: str) -> str:
    """Return the path in an HDFS, whatever it is called; empty for other file systems."""
    scheme, _, rest = location.partition("://")
    return rest.partition("/")[2] if scheme_named(scheme).service == "hdfs" else ""


# ------------------------------------------------------------------------------ what they come to


def hand_copy_faults(location: str, image: Image) -> Iterator[Finding]:
    """Yield the faults of a job that starts from an image whose files name another place."""
    names = {operator.id: operator.name for operator in image.operators}
    newest: dict[str, int] = {}  # a restart goes by the newest file of each folder
    for place in image.embedded:
        folder, batch = place.file.rpartition("/")[0], number_of_log(place.file)
        is_later = image.epoch is not None and batch > image.epoch and is_of_operator(place)
        if not is_later:
            newest[folder] = max(batch, newest.get(folder, -1))
    for place in image.embedded:
        applies = newest.get(place.file.rpartition("/")[0]) == number_of_log(place.file)
        if applies and place.role == "self" and place.found not in ("", "here"):
            operator = place.file[len(under(image.path, "state/")) :].partition("/")[0]
            yield _finding(location, image, place, names.get(operator) == JOIN)


def _finding(location: str, image: Image, place: EmbeddedPath, is_join: bool) -> Finding:
    named = f"{place.file} names {place.path}, and not its own place in {location}"
    is_refused = place.found in ("different", "unreadable")
    if not is_of_operator(place):
        is_refused |= place.found == "missing"
        what = "Delta compares them as text, and refuses to start the job here"
        if not is_refused:
            what += ", unless that is this place by another name"
    elif place.found == "missing" and is_join:
        what = (
            "no schema is there any more. Spark writes it again in that place, and fails where it "
            "may not create that: whether it may is not known here"
        )
    else:
        is_refused |= place.found == "missing"
        what = _OF_SCHEMAS[place.found]
    root = root_of(image, place)
    hint = None
    if root is not None:
        new = quote(f"{location}-repaired")
        hint = f"stateshift repair {quote(location)} --to {new} --was-at {quote(root)}"
    fact = f"{named}: {what}"
    return Finding("refuse" if is_refused else "warn", fact, hint=hint, path=place.file)


_OF_SCHEMAS = {
    "equal": "the same schemas are there, and a job here needs them there",
    "maybe": "the schemas could not be read there; is that this place by another name?",
    "missing": "a schema is not there, and Spark fails before its first batch",
    "different": "other schemas are there, by which Spark would read this state",
    "unreadable": "that place cannot be read from here; where Spark cannot either, it fails before "
    "its first batch",
}
