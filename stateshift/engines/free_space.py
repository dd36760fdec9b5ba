"""Whether what moves may be written where it goes, and has space there: told before anything is.
Pure.

A storage that cannot be asked is told as that, once. What is needed is counted from the surveys:
the files that a restart reads, and the data that moves along; what is written anew on the way is
taken to be as large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from stateshift.specification import JobSpec
from stateshift.specification.location import relation
from stateshift.survey import Facts, Finding, Room, Survey


@dataclass(frozen=True)
class Need:
    """Bytes and files that one place has to take."""

    location: str
    room: Room
    bytes: int
    files: int


def of_room(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    needs = tuple(_needs(job, facts))
    yield from _of_permission(job, facts)
    yield from _of_space(needs)
    mute = [need.location for need in needs if need.room.bytes_free is None]
    locations = []
    for survey in _written(job, facts):
        if survey.denied is None and survey.room is not None:
            locations.append(survey.location)
    mute += locations
    for location in dict.fromkeys(mute):
        yield Finding(
            "note",
            (
                f"{location} does not say beforehand whether it has space and may be written "
                "to: the first files will show"
            ),
        )


def _of_permission(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    for survey in _written(job, facts):
        if survey.denied:
            places = ", ".join(f"{place}{_why(place, survey, facts)}" for place in survey.denied)
            yield Finding(
                "refuse",
                f"no permission to write to {places}",
                waive="permission",
                hint=f"let whoever runs this write there: {_listing(survey.denied[0])}; or, "
                "where it only seems to "
                'be refused, "waive": ["permission"]',
            )


def _why(place: str, survey: Survey, facts: Facts) -> str:
    """What is to be written there, where that is not the image."""
    if relation(place, survey.location) == "around":
        return " (the lock lies beside its target)"
    return " (the old job is fenced off there)" if survey is facts.source else ""


def _listing(location: str) -> str:
    if location.startswith("file://"):
        return f"ls -ld {quote(location.removeprefix('file://') or '/')}"
    return f"hdfs dfs -ls -d {quote(location)}"


def _of_space(needs: tuple[Need, ...]) -> Iterator[Finding]:
    for shared in dict.fromkeys(need.room.shared for need in needs):
        own = [need for need in needs if need.room.shared == shared]
        room, size = own[0].room, sum(need.bytes * need.room.copies for need in own)
        files, where = sum(need.files for need in own), " and ".join(need.location for need in own)
        free = min((n.room.bytes_free for n in own if n.room.bytes_free is not None), default=None)
        names = min((n.room.files_free for n in own if n.room.files_free is not None), default=None)
        kept = f" (each byte {room.copies} times)" if room.copies > 1 else ""
        if free is not None and free < size:
            yield _short(
                f"{where} needs {_size(size)}{kept}, and {_limit(own, free)} leaves {_size(free)}"
            )
        elif free is not None and free < 2 * size:
            yield Finding(
                "warn",
                f"{where} needs {_size(size)}{kept} of the {_size(free)} that "
                f"{_limit(own, free)} leaves: there is no "
                "room for as much again, which a job soon writes",
            )
        if names is not None and names < files:
            limit = next(n.room.files_limit for n in own if n.room.files_free == names)
            yield _short(f"{where} needs {files} files, and {limit} leaves {names}")


def _short(fact: str) -> Finding:
    hint = 'make room, or choose another place; or, where more comes meanwhile, "waive": ["space"]'
    return Finding("refuse", fact, waive="space", hint=hint)


def _limit(needs: list[Need], free: int) -> str:
    return next(need.room.limit for need in needs if need.room.bytes_free == free)


def _needs(job: JobSpec, facts: Facts) -> Iterator[Need]:
    """The places that take something, as far as their storages were asked."""
    sizes = [_needed(survey) for survey in (facts.source, *facts.merges, *facts.others)]
    image = facts.target if job.target else facts.source if job.transform else None
    if image is not None and image.room is not None:
        yield Need(
            image.location,
            image.room,
            sum(size for size, _ in sizes),
            sum(count for _, count in sizes),
        )
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        if data.copy and there.room is not None:
            yield Need(there.location, there.room, here.bytes, len(here.files))


def _needed(survey: Survey) -> tuple[int, int]:
    """Bytes and files that a restart reads."""
    sizes = {file.path: file.size for file in survey.files}
    paths: set[str] = set()
    for image in survey.images:
        paths.update(image.needed)
    return sum(sizes.get(path, 0) for path in paths), len(paths)


def _written(job: JobSpec, facts: Facts) -> Iterator[Survey]:
    if job.moves or job.target is None:
        yield facts.source
    if job.target:
        yield facts.target
    yield from facts.merges
    yield from (there for data, (_, there) in zip(job.data, facts.data, strict=True) if data.copy)


def _size(count: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"
