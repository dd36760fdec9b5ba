"""Whether the input files that a checkpoint names are where it names them. Reads only.

A file source knows a file again by its full path. If the named files are there, the job is taken to
go on reading there; where some are not, the folder may be elsewhere by now, and all that lies there
would be read again. The newest entries are looked for first, and no more than so many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from stateshift.engines.spark.layout import deepest_above, number_of_log
from stateshift.engines.spark.places import is_covered, needed_embedded
from stateshift.engines.views import Opening
from stateshift.errors import FormatError, MissingFile, StateshiftError
from stateshift.formats.spark.source_log import decode_source_log
from stateshift.formats.spark.uris import decode_location
from stateshift.specification import JobSpec
from stateshift.specification.location import host_of
from stateshift.storage.protocol import Storage
from stateshift.survey import InputFacts, Survey

ASKED_MAX, ASKED_MAX_REMOTE = 5_000, 500
AT_ONCE = 16


def ask_inputs(job: JobSpec, survey: Survey, opening: Opening) -> tuple[InputFacts, ...]:
    """Return the facts of the files that stay, by the log that names them. Nothing is asked that
    somebody has taken responsibility for.
    """
    if job.target is None or "paths-stay" in job.waive:
        return ()
    moved = tuple((data.source, data.target) for data in job.data)
    logs: dict[str, set[str]] = {}
    for file, places in needed_embedded(survey.images).items():
        if any(place.role == "source" and not is_covered(place.path, moved) for place in places):
            logs.setdefault(file.rpartition("/")[0], set()).add(file)
    return tuple(
        _asked(log, _entries(opening(survey.location), logs[log]), opening) for log in logs
    )


def _entries(storage: Storage, files: Iterable[str]) -> Iterator[str]:
    """Yield the paths that a source's log names, from its newest file on."""
    for file in sorted(files, key=number_of_log, reverse=True):
        try:
            for entry in decode_source_log(storage.chunks(file)):
                yield decode_location(entry.path)
        except (FormatError, MissingFile):
            return  # the survey has said so


def _asked(log: str, paths: Iterator[str], opening: Opening) -> InputFacts:
    """Look for the first of these files; read a byte of the newest of them."""
    asked: set[str] = set()
    missing: list[str] = []
    try:
        by_host: dict[str, list[str]] = {}
        for path in islice(paths, ASKED_MAX):
            by_host.setdefault(host_of(path), []).append(path)
        for own in by_host.values():
            root = deepest_above(path.rpartition("/")[0] for path in own)
            storage = opening(root)
            is_remote = storage.traits.at_once > 1
            names = dict.fromkeys(path[len(root) :].lstrip("/") for path in own)
            wanted = list(islice(names, ASKED_MAX_REMOTE if is_remote else ASKED_MAX))
            with ThreadPoolExecutor(AT_ONCE if is_remote else 1, "input") as threads:
                found = list(threads.map(storage.stat, wanted))
            asked.update(f"{root}/{name}" for name in wanted)
            absent = [name for name, file in zip(wanted, found, strict=True) if file is None]
            missing += [f"{root}/{name}" for name in absent]
            if wanted and found[0] is not None and found[0].size:
                next(iter(storage.chunks(wanted[0], 0, 1)), b"")
    except StateshiftError as error:
        return InputFacts(log, len(asked), len(missing), wrong=error.fact)
    return InputFacts(log, len(asked), len(missing), next(iter(missing), None))
