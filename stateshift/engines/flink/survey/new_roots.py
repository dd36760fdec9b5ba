"""The new position of a source of files that reads on in another folder, after the files there have
been compared with those that the job knows. Reads only.

    a split that is not read to its end    its file is there, as long as when it was found
    a path that was found                  where it is in both folders, both are as long: what is
                                           longer in the new one would never be read
    a file that was not found yet          is in the new folder too, where the job looks for more

Only sizes are compared. A source that ends keeps no paths that it has found, and looks for no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from stateshift.engines.flink.entries.operators import state_of_source
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.new_offsets import NewOffsets, moved_path, rewrite_operator
from stateshift.engines.flink.streams import Streams
from stateshift.engines.repositioning import Outside, RefusedError
from stateshift.engines.views import Opening
from stateshift.errors import StorageError
from stateshift.formats.flink.file_source import (
    FileSplit,
    decode_file_enumerator,
    decode_file_split,
)
from stateshift.sources.kind import FlinkSource
from stateshift.sources.kinds import FILE, files_in_flink
from stateshift.specification.transform import Reposition
from stateshift.storage import locations
from stateshift.survey import (
    Endpoint,
    Finding,
    NewPosition,
    PositionChange,
    Survey,
    note,
    refuse,
    warn,
)

OTHER = "other-records"
SHOWN_MAX = 3  # files that a message names
_COPY = "copy the files first, with their paths below the folder"

Sizes = Mapping[str, int]


def look_at_root(change: Reposition, opening: Opening) -> None:
    """Refuse a folder without files before a job stops: its savepoint tells the rest."""
    root = change.root or ""
    if not sizes_in(root, opening):
        raise RefusedError(f"nothing is in {root}, where the job is to read on", _COPY)


def sizes_in(root: str, opening: Opening) -> Sizes:
    """Return the size of each file that Flink lists in a folder: none that is hidden."""
    sizes: dict[str, int] = {}
    for file in opening(root).list():
        if not any(name.startswith((".", "_")) for name in file.path.split("/")):
            sizes[file.path] = file.size
    return sizes


def file_position(
    survey: Survey, change: Reposition, endpoint: Endpoint, outside: Outside
) -> NewPosition:
    """Return the position of a source of files in another folder."""
    image, old, new = survey.images[0], change.from_root or "", change.root or ""
    rewriting = NewOffsets({}, {}, roots={old: new})
    streams = Streams(outside.opening(survey.location).chunks, places_of(image))
    operators = metadata_of(image).operators
    operator = next(
        each for each in operators if endpoint.index == (each.uid or each.name or each.id.hex())
    )
    splits, found = _files_of(state_of_source(operator, streams))
    texts = [*(str(split.path) for split in splits), *found]
    paths = {text: _relative(text, old) for text in texts}
    outside_it = [text for text, path in paths.items() if path is None]
    if len(outside_it) == len(paths):
        named = f"it reads {outside_it[0]}" if outside_it else "it names no file at all"
        hint = 'name the folder that it reads: --from-root (in a spec, "from_root")'
        raise RefusedError(f"source {endpoint.index} reads no file in {old}: {named}", hint)
    unread: dict[str, int] = {}
    for split in splits:
        path = paths[str(split.path)]
        if path is not None:
            unread[path] = split.size
    known = frozenset(path for path in map(paths.get, found) if path is not None)
    after = state_of_source(rewrite_operator(operator, streams, rewriting), streams)
    try:
        sizes_before: Sizes | None = sizes_in(old, outside.opening)
    except StorageError:
        sizes_before = None
    if unread and not sizes_before:
        sizes_before = None  # not what the job reads: a store that was emptied, or is another one
    sizes = sizes_in(new, outside.opening)
    findings = [*_of_unread(unread, sizes, new)]
    if known:
        findings += _of_found(known | unread.keys(), sizes_before, sizes, change)
        findings.append(note(f"{len(known):,} paths that the job has found are rewritten"))
    if outside_it:
        fact = f"{len(outside_it):,} files are not in {old}, and keep their paths"
        findings.append(warn(f"{fact}: {_named(outside_it)}"))
    changes: list[PositionChange] = []
    for split in splits:
        place = moved_path(split.path, rewriting.roots)
        if place is not None:
            records = split.records or 0
            changes.append(PositionChange(endpoint.index, str(place), records, records, 0, 0))
    return NewPosition(
        endpoint.index,
        FILE.name,
        replace(endpoint, details=files_in_flink(after) or {}),
        {image.epoch or 0: json.dumps(rewriting.plain(), separators=(",", ":"))},
        tuple(changes),
        tuple(findings),
    )


def _files_of(state: FlinkSource) -> tuple[list[FileSplit], tuple[str, ...]]:
    """Return the splits that are not read to their end, and the paths that were found."""
    splits = [decode_file_split(each.version, each.content) for each in state.splits]
    if state.enumerator is None:
        return splits, ()
    enumerator = decode_file_enumerator(state.enumerator.version, state.enumerator.content)
    return [*splits, *enumerator.splits], enumerator.found


def _relative(path: str, root: str) -> str | None:
    location = locations.normal(path)
    return locations.relative(location, root) if locations.is_within(location, root) else None


def _of_unread(unread: Sizes, sizes: Sizes, root: str) -> Iterator[Finding]:
    """Refuse files that the job still reads, and that are not there as it knows them."""
    missing = sorted(unread.keys() - sizes.keys())
    if missing:
        fact = f"{_named(missing)}: the job still reads it, and it is not in {root}"
        yield refuse(fact, hint=_COPY)
    for path in sorted(unread.keys() & sizes.keys()):
        if sizes[path] != unread[path]:
            word = "shorter" if sizes[path] < unread[path] else "longer"
            yield refuse(
                f"{path} in {root} is {word} than the file that the job reads: {sizes[path]:,} "
                f"bytes, and {unread[path]:,} when it was found",
                hint="copy that file again, or let the job read it to its end where it is",
            )
    yield note(f"{len(unread):,} files that the job still reads were looked for, by their sizes")


def _of_found(
    found: Set[str], before: Sizes | None, sizes: Sizes, change: Reposition
) -> Iterator[Finding]:
    """Refuse files of which the job would not read all, where it looks for new ones."""
    if before is None:
        yield refuse(
            f"{change.from_root} cannot be listed, so its files cannot be compared with those of "
            f"{change.root}: a file that the job has not found yet may be missing there",
            OTHER,
            f'where you know that, "waive": ["{OTHER}"]',
        )
        return
    in_both = sorted(found & before.keys() & sizes.keys())
    others = [path for path in in_both if before[path] != sizes[path]]
    if others:
        yield refuse(
            f"{_named(others)}: found by the job, and of another size in {change.root}: what is "
            "more there would never be read",
            OTHER,
            f'put what is new into files of its own; or "waive": ["{OTHER}"]',
        )
    in_both = sorted((before.keys() & sizes.keys()) - found)
    others = [path for path in in_both if before[path] != sizes[path]]
    if others:
        yield refuse(
            f"{_named(others)}: not found by the job yet, and of another size in {change.root}",
            OTHER,
            f'copy the files to their end first; or "waive": ["{OTHER}"]',
        )
    more = sizes.keys() - before.keys() - found
    if more:
        yield note(f"{len(more):,} files are in {change.root} alone: they are new input to the job")
    unread = sorted(before.keys() - found - sizes.keys())
    if unread:
        yield refuse(
            f"{_named(unread)}: not found by the job yet, and not in {change.root}: it would never "
            "read it",
            OTHER,
            f'copy the files first; or, where nobody needs them, "waive": ["{OTHER}"]',
        )


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - SHOWN_MAX:,} more" if len(paths) > SHOWN_MAX else ""
    return ", ".join(paths[:SHOWN_MAX]) + more
