"""The engines by name, and the engine of the image at a location.

The table below names the engines that come with stateshift; others are added by entry points of
the group `stateshift.engines` (see `extensions`). An engine is imported when it is asked for: who
looks at an image of Spark's does not wait for Flink's engine.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, cast

from stateshift import extensions
from stateshift.engines.protocol import Engine
from stateshift.engines.views import DecodedFile, Opening
from stateshift.errors import FormatError, PlanError, StateshiftError, StorageError
from stateshift.specification.written import SPEC_SUFFIXES, is_yaml
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.suggestion import BRACKETED, COMPARED_MAX, closest, suggest
from stateshift.survey import Survey

if TYPE_CHECKING:
    from stateshift.world import EntriesReader, Transform


log = logging.getLogger(__name__)


class BuiltIn(NamedTuple):
    """An engine that comes with stateshift: what has to be known of it before it is imported."""

    begins_with: str
    decodes_files: bool
    module: str


BUILT_IN: Mapping[str, BuiltIn] = {
    "spark": BuiltIn("metadata", True, "stateshift.engines.spark.engine"),
    "flink": BuiltIn("_metadata", False, "stateshift.engines.flink.engine"),
}
FIRST = "spark"  # whose answer counts where nobody recognises anything

_DOCUMENT_BYTES_MAX = 16 << 20  # no spec is as large
_LATER = ("findings_at_start",)  # an engine of another package may be older than these
METHODS = tuple(name for name in vars(Engine) if not name.startswith(("_", *_LATER)))


def engine_names() -> tuple[str, ...]:
    """Return the names a spec may write: stateshift's own engines first."""
    added = (name for name in extensions.names_added(extensions.ENGINES) if name not in BUILT_IN)
    return (*BUILT_IN, *added)


def engine(name: str) -> Engine:
    """Return an engine by its name.

    Raises:
        PlanError: there is no such engine, or the package that adds it is broken.
    """
    if name in BUILT_IN:
        return cast(Engine, import_module(BUILT_IN[name].module).ENGINE)
    if name not in engine_names():
        raise PlanError(
            f"this stateshift reads specs of engine {name!r} but cannot move its state",
            hint=f"engines it can move: {', '.join(sorted(engine_names()))}",
        )
    loaded = extensions.load(extensions.ENGINES, name)
    missing = [method for method in METHODS if not hasattr(loaded, method)]
    if missing:
        lacks = f"is no engine: it has no {', '.join(missing)}"
        raise extensions.refuse(extensions.ENGINES, name, lacks)
    added = cast(Engine, loaded)
    if added.name != name:
        lacks = f"calls itself {added.name!r}: its transforms would not be found"
        raise extensions.refuse(extensions.ENGINES, name, lacks)
    return added


def engines() -> Iterator[Engine]:
    """Yield every engine that can be loaded, stateshift's own first."""
    for name in BUILT_IN:
        yield engine(name)
    yield from _engines_added()


def _engines_added() -> Iterator[Engine]:
    for name in engine_names()[len(BUILT_IN) :]:
        try:
            yield engine(name)
        except PlanError as error:
            # A package that nobody has asked for must not keep us from looking at an image.
            log.warning("%s: left out", error.fact)


# ------------------------------------------------------------------------------ whose image it is


def recognise(storage: Storage) -> str | None:
    """Return the name of the engine whose image lies there; None where nothing lies there."""
    built_in = next(_begun_by(storage), None)
    if built_in is not None:
        return built_in
    for known_engine in engines():
        if _recognises(known_engine, storage):
            return known_engine.name
    is_empty = next(storage.list(), None) is None
    return None if is_empty else FIRST


def _recognises(known: Engine, storage: Storage) -> bool:
    """Whether an engine says that this is its own; a broken package says no."""
    try:
        return known.recognises(storage)
    except StateshiftError:
        raise
    except Exception as error:
        if known.name in BUILT_IN:
            raise
        message = "engine %s cannot tell whether %s is its own, and is left out: %r"
        log.warning(message, known.name, storage.location, error)
        return False


def _begun_by(storage: Storage) -> Iterator[str]:
    """Yield stateshift's own engines whose first file is there."""
    for name, known in BUILT_IN.items():
        if storage.stat(known.begins_with) is not None:
            yield name


def find_image(
    location: str, opening: Opening, thorough: bool = False
) -> tuple[Engine, Storage, Survey]:
    """Survey a location with the first engine that finds an image there; else with the last of
    stateshift's own engines.

    Returns:
        The engine, the storage that the survey is of, and the survey.
    """
    location = folder_meant(location, opening)
    last = None
    for known_engine in _likeliest_first(opening(location)):
        storage, survey = known_engine.survey(location, opening, thorough)
        if survey.images:
            return known_engine, storage, survey
        if known_engine.name in BUILT_IN:
            last = known_engine, storage, survey
    assert last is not None, "stateshift has engines of its own"
    return last


def absence(location: str, place: str = "") -> str:
    """Return the fact that nothing is at a location, which was typed as `place`: with the local
    path that was probably meant, or that an empty directory is there. Other storages are not
    listed for it: those that list all files below a place have no bound.
    """
    place = place or location
    path = locations.local_path(location)
    if path is None:
        return f"nothing is at {place}"
    if os.path.isdir(path):
        return f"{place} is there, and holds no file"
    missing, folder = path, os.path.dirname(path)
    while not os.path.isdir(folder):
        missing, folder = folder, os.path.dirname(folder)
    near = None
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, COMPARED_MAX)]
        near = closest(os.path.basename(missing), names)
    if near is None:
        return f"nothing is at {place}"
    meant = os.path.join(folder, near)
    whole = os.path.normpath(os.path.join(meant, os.path.relpath(path, missing)))
    return f"nothing is at {place}{suggest(whole if os.path.exists(whole) else meant, BRACKETED)}"


def _likeliest_first(storage: Storage) -> Iterator[Engine]:
    """Yield the engines whose first file is there, then the others: nobody waits for those."""
    likely = list(_begun_by(storage))
    yield from map(engine, likely)
    for name in BUILT_IN:
        if name not in likely:
            yield engine(name)
    for added in _engines_added():
        if _recognises(added, storage):
            yield added


def engine_of(*locations: str, opening: Opening) -> Engine:
    """Return the engine of these images; of several, the last, which refuses the others."""
    names = {recognise(opening(folder_meant(location, opening))) for location in locations}
    added = sorted(filter(None, names - set(BUILT_IN)))
    for name in reversed([*BUILT_IN, *added]):
        if name in names:
            return engine(name)
    return engine(FIRST)


# ----------------------------------------------------------------------------------- single files


def decoded_file(storage: Storage, name: str, location: str, opening: Opening) -> DecodedFile:
    """Decode a file by an added engine that recognises its folder, else by one of our own."""
    for added in _engines_added():
        if added.decodes_files and _recognises(added, storage):
            return added.decode_file(storage, name, location, opening)
    decoding = next(known for known in BUILT_IN if BUILT_IN[known].decodes_files)
    return engine(decoding).decode_file(storage, name, location, opening)


def is_whole(name: str) -> bool:
    """Whether a single file of this name stands for its whole folder."""
    whole = [known.begins_with for known in BUILT_IN.values() if not known.decodes_files]
    return name in whole


def refuse_document(location: str, opening: Opening) -> None:
    """Raise the error for what other commands read: a spec, a saved plan, the workdir of a run."""
    path = locations.local_path(locations.normal(location, os.getcwd()))
    if path is not None and os.path.exists(os.path.join(path, "journal")):
        hint = f"stateshift status {quote(path)}"
        raise FormatError(f"{location} is the workdir of a run, and no image", hint=hint)
    is_named_so = location.lower().endswith((*SPEC_SUFFIXES, ".plan"))
    file = single(location, opening) if is_named_so else None
    if file is None:
        return
    storage, name = file
    info, plain = storage.stat(name), None
    with suppress(ValueError, RecursionError):
        if info is not None and info.size <= _DOCUMENT_BYTES_MAX:
            plain = json.loads(storage.read(name))
    what, command = "a spec", "plan"
    if isinstance(plain, dict) and "stateshift_plan" in plain:
        what, command = "a saved plan", "apply"
    elif not is_yaml(name) and not (isinstance(plain, dict) and "jobs" in plain):
        return
    hint = f"stateshift {command} {quote(location)}"
    raise FormatError(f"{location} is {what}, and no image", hint=hint)


def folder_meant(location: str, opening: Opening) -> str:
    """Return the folder that a single file stands for; else the location itself."""
    refuse_document(location, opening)
    if not is_whole(location.rstrip("/").rpartition("/")[2]):
        return location
    from stateshift.engines.registry import folder_of_single

    return folder_of_single(location, opening)


# --------------------------------------------------------------------- what a run looks up by name


class Transforms(Mapping[str, "Transform"]):
    """The transforms of all engines. Their names begin with the engine's: `spark.rewrite-log`."""

    def __getitem__(self, name: str) -> Transform:
        owner = name.partition(".")[0]
        if owner not in BUILT_IN and owner not in engine_names():
            raise KeyError(name)
        return engine(owner).transforms()[name]

    def __iter__(self) -> Iterator[str]:
        for known_engine in engines():
            yield from known_engine.transforms()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Entries(Mapping[str, "EntriesReader"]):
    """The readers of entries of all engines, by the engine's name."""

    def __getitem__(self, name: str) -> EntriesReader:
        if name not in BUILT_IN and name not in engine_names():
            raise KeyError(name)
        return engine(name).entries_reader()

    def __iter__(self) -> Iterator[str]:
        return iter(engine_names())

    def __len__(self) -> int:
        return len(engine_names())


def single(location: str, opening: Callable[[str], Storage]) -> tuple[Storage, str] | None:
    """Return the storage and name of a single file; None for a directory, or nothing."""
    location = locations.normal(location, os.getcwd())
    name = locations.name(location)
    if not name:
        return None
    storage = opening(locations.parent(location))
    with suppress(StorageError):
        if storage.stat(name) is not None:
            return storage, name
    return None


def folder_of_single(location: str, opening: Callable[[str], Storage]) -> str:
    """Return the folder that a single file lies in; of what is no file, the location itself."""
    if single(location, opening) is None:
        return location
    return locations.parent(locations.normal(location, os.getcwd()))
