"""Findings on a move that are the same for any engine: the waivers of a job; whether what moves may
be written where it goes, and has space there, reported before anything is. Pure.

A storage that cannot be asked is reported as that, once. The surveys tell the bytes and files that
are needed: the files that a restart reads, and the data that moves along; what is rewritten on the
way is taken to be as large.

A note names a storage that could be reached faster, where it is worth a person's time, by what the
storage knows of itself (`Traits.faster_by`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from shlex import quote
from typing import Final, Protocol, TypeVar

from stateshift.formats.marks import FOLDER
from stateshift.specification import JobSpec
from stateshift.specification.location import relation
from stateshift.specification.transform import Reposition
from stateshift.storage import locations
from stateshift.storage.locations import same_file_system
from stateshift.survey import Facts, FileInfo, Finding, NewPosition, Room, Survey

SHOWN_MAX: Final = 3  # partitions that a message names
BELOW_MAX: Final = 8  # images that a message names
# The file that makes an image one: of Flink, and of Spark.
_BELOW: Final = re.compile(r"(.+)/(?:_metadata|offsets/\d+)\Z", re.DOTALL)
BYTES_MIN: Final = 1024**3  # less is not worth a person's time


class _Move(Protocol):
    @property
    def job(self) -> JobSpec: ...


M = TypeVar("M", bound=_Move)


def findings_of(move: M, parts: Iterable[Callable[[M], Iterable[Finding]]]) -> tuple[Finding, ...]:
    """Return the findings of these parts, with the refusals that the job waives as warnings."""
    findings: list[Finding] = []
    for part in parts:
        for finding in part(move):
            findings.append(with_waiver(finding, move.job.waive))
    return tuple(findings)


def with_waiver(finding: Finding, waived: Collection[str]) -> Finding:
    """Return a finding; as a warning if it refuses, and is waived."""
    if finding.level != "refuse" or finding.waive not in waived:
        return finding
    message = f"{finding.message} (waived: {finding.waive})"
    return replace(finding, level="warn", message=message, hint=None)


def images_below(files: Iterable[FileInfo]) -> dict[str, FileInfo]:
    """Return the folders that hold an image, each with the newest file that makes it one. A table
    of Parquet is none: its writers call their summary as Flink calls the begin of an image.
    """
    newest: dict[str, FileInfo] = {}
    tables = set[str]()
    for file in files:
        found = _BELOW.match(file.path)
        if found is not None and FOLDER not in found[1].split("/"):
            newest[found[1]] = max(newest.get(found[1], file), file, key=lambda each: each.modified)
        folder = file.path
        while file.path.endswith(".parquet") and "/" in folder:
            folder = folder.rpartition("/")[0]
            tables.add(folder)
    for folder in tables & newest.keys():
        if newest[folder].path.endswith("/_metadata"):
            del newest[folder]
    return newest


def of_images_below(location: str, files: Iterable[FileInfo]) -> Iterator[Finding]:
    """Refuse a place that holds no image itself, and name those below it, the newest first."""
    newest = images_below(files)
    if not newest:
        return

    def order(folder: str) -> tuple[float, list[tuple[int, str]]]:
        # chk-10 is after chk-9
        parts = re.findall(r"\d{1,18}|\D+|\d+", folder)
        return newest[folder].modified, [(int(p) if p.isdecimal() else -1, p) for p in parts]

    ordered = sorted(newest, key=order, reverse=True)
    count, shown = len(ordered), ", ".join(ordered[:BELOW_MAX])
    more = f" and {count - BELOW_MAX} more" if count > BELOW_MAX else ""
    images = "one image is" if count == 1 else f"{count} images are"
    has_times = any(file.modified for file in newest.values())
    order_told = ", the newest first" if count > 1 and has_times else ""
    first = locations.join(location, ordered[0])
    yield Finding(
        "refuse",
        f"{location} is no image itself; {images} below it{order_told}: {shown}{more}",
        hint=f"name one of them: stateshift inspect {quote(first)}",
    )


def of_standby(move: _Move) -> Iterator[Finding]:
    """Warn of a standby on the storage of its source, and of one that could not be started."""
    job = move.job
    if job.is_standby and job.submit is None:
        yield Finding(
            "warn",
            f"`failover` cannot start {job.name} from its standby: the spec has no `submit`",
            hint='give it "submit" and "target_cluster" before it begins',
        )
    like = {} if job.submit is None else job.submit.options.get("like")
    if job.is_standby and isinstance(like, Mapping) and {"context", "kubeconfig"} & like.keys():
        yield Finding(
            "warn",
            f"`failover` reads how {job.name} is started from the API server that `like` names, "
            "which may be lost with the source",
            hint='give "submit" a "manifest" on this machine, where a failover would be asked for',
        )
    if job.is_standby and same_file_system(job.source, job.destination):
        yield Finding(
            "warn",
            f"the standby of {job.name} is on the same storage as its source: whoever loses "
            f"{job.source} loses {job.destination} with it",
            hint="keep it on another storage, in another region",
        )


@dataclass(frozen=True)
class Need:
    """Bytes and files that one place has to take."""

    location: str
    space: Room
    bytes: int
    files: int


def of_free_space(job: JobSpec, facts: Facts, staying: Collection[str] = ()) -> Iterator[Finding]:
    """Refuse a target without permission or space. Files of the source that stay need none."""
    needs = tuple(_needs(job, facts, staying))
    written = tuple(_written(job, facts))
    for survey in written:
        if survey.denied:
            places = []
            for place in survey.denied:
                why = " (the old job is fenced off there)" if survey is facts.source else ""
                if relation(place, survey.location) == "around":
                    why = " (the lock lies beside its target)"
                places.append(f"{place}{why}")
            location = survey.denied[0]
            listing = f"hdfs dfs -ls -d {quote(location)}"
            if location.startswith("file://"):
                listing = f"ls -ld {quote(location.removeprefix('file://') or '/')}"
            yield Finding(
                "refuse",
                f"no permission to write to {', '.join(places)}",
                waive="permission",
                hint=f"let whoever runs this write there: {listing}; or, where it only seems to be "
                'refused, "waive": ["permission"]',
            )
    for shared in dict.fromkeys(need.space.shared for need in needs):
        together = [need for need in needs if need.space.shared == shared]
        yield from _of_bytes(together)
        free = _least(need.space.files_free for need in together)
        files = sum(need.files for need in together)
        if free is not None and free < files:
            limits = (need.space for need in together if need.space.files_free == free)
            limit = next(limits).files_limit
            yield _short(f"{_places(together)} needs {files} files, and {limit} leaves {free}")
    # Storages that do not say how much is free, or whether they may be written to.
    silent = [need.location for need in needs if need.space.bytes_free is None]
    asked = [survey for survey in written if survey.room is not None]
    silent += [survey.location for survey in asked if survey.denied is None]
    for location in dict.fromkeys(silent):
        yield Finding(
            "note",
            f"{location} does not say beforehand whether it has space and may be written to: the "
            "first files will show",
        )


def _of_bytes(needs: list[Need]) -> Iterator[Finding]:
    """Compare the bytes that places of one space need with what is free there."""
    free = _least(need.space.bytes_free for need in needs)
    if free is None:
        return
    size = sum(need.bytes * need.space.copies for need in needs)
    copies = needs[0].space.copies
    kept = f" (each byte {copies} times)" if copies > 1 else ""
    limit = next(need.space.limit for need in needs if need.space.bytes_free == free)
    if free < size:
        yield _short(
            f"{_places(needs)} needs {in_units(size)}{kept}, and {limit} leaves {in_units(free)}"
        )
    elif free < 2 * size:
        yield Finding(
            "warn",
            f"{_places(needs)} needs {in_units(size)}{kept} of the {in_units(free)} that "
            f"{limit} leaves: there is no space for as much again, which a job soon writes",
        )


def _least(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _places(needs: list[Need]) -> str:
    return " and ".join(need.location for need in needs)


def _short(fact: str) -> Finding:
    hint = (
        "free some space, or choose another place; or, where more comes meanwhile, "
        '"waive": ["space"]'
    )
    return Finding("refuse", fact, waive="space", hint=hint)


def _needs(job: JobSpec, facts: Facts, staying: Collection[str]) -> Iterator[Need]:
    """Yield the places that take something, as far as their storages were asked."""
    image = facts.source if job.transform else None  # in place
    if job.target:
        image = facts.target
    if image is not None and image.room is not None:
        yield Need(image.location, image.room, *space_needed(facts, staying))
    for data, (here, there) in zip(job.data, facts.data, strict=True):
        if data.copy and there.room is not None:
            yield Need(there.location, there.room, here.bytes, len(here.files))


def space_needed(facts: Facts, staying: Collection[str] = ()) -> tuple[int, int]:
    """Return the bytes and files that a restart reads, but for those of the source that stay."""
    size = count = 0
    for survey in (facts.source, *facts.merges, *facts.others):
        sizes = {file.path: file.size for file in survey.files}
        paths = set(chain.from_iterable(image.needed for image in survey.images))
        if survey is facts.source:
            paths.difference_update(staying)
        size += sum(sizes.get(path, 0) for path in paths)
        count += len(paths)
    return size, count


def _written(job: JobSpec, facts: Facts) -> Iterator[Survey]:
    if job.fences_source or job.target is None:
        yield facts.source
    if job.target:
        yield facts.target
    yield from facts.merges
    yield from (there for data, (_, there) in zip(job.data, facts.data, strict=True) if data.copy)


def in_units(count: int) -> str:
    """Return a number of bytes as people read it."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"


def of_faster_storage(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield one note where the job's storages could be faster."""
    size, _ = space_needed(facts)
    surveys = [facts.source, facts.target, *facts.merges, *facts.others]
    for data, ends in zip(job.data, facts.data, strict=True):
        if data.copy:
            size += ends[0].bytes
            surveys += ends
    slow = [survey for survey in surveys if survey.faster_by]
    if slow and size >= BYTES_MIN:
        places = " and ".join(dict.fromkeys(survey.location for survey in slow))
        fact = f"{in_units(size)} are to be moved, and {places} can be reached faster"
        yield Finding(
            "note", fact, hint="; ".join(dict.fromkeys(survey.faster_by for survey in slow))
        )


def of_new_positions(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Report new positions, and what is read again or skipped: nothing, unless it is accepted."""
    changes = [change for change in job.transform if isinstance(change, Reposition)]
    for change, position in zip(changes, facts.positions, strict=False):
        yield from position.findings
        again = {each.partition: each.again or 0 for each in position.changes}
        skipped = {each.partition: each.skipped or 0 for each in position.changes}
        yield from _of_counts(position, again, ("read again", change.accept_again))
        yield from _of_counts(position, skipped, ("skipped", change.accept_skipped))


_UNITS = {"delta": ("version", "--version V"), "iceberg": ("snapshot", "--snapshot ID")}


def _of_counts(
    position: NewPosition, counts: Mapping[str, int], fate: tuple[str, int]
) -> Iterator[Finding]:
    """Report records, or versions, that share a fate; refuse more of them than are accepted."""
    total, (becomes, most) = sum(counts.values()), fate
    if not total:
        return
    unit, exact = _UNITS.get(position.kind, ("record", "--by records"))
    amount = f"{total:,} {unit}" if total == 1 else f"{total:,} {unit}s"
    told = [f"{partition}: {count:,}" for partition, count in counts.items() if count]
    more = f" and {len(told) - SHOWN_MAX} more" if len(told) > SHOWN_MAX else ""
    fact = f"{', '.join(told[:SHOWN_MAX])}{more}"
    if total <= most:
        yield Finding("warn", f"source {position.source}: {becomes} as accepted: {amount} ({fact})")
        return
    key = "accept_skipped" if becomes == "skipped" else "accept_again"
    yield Finding(
        "refuse",
        f"source {position.source}: {amount} would be {becomes} ({fact})",
        hint=f"find the exact place ({exact}); or, where you want that, "
        f'--{key.replace("_", "-")} {total} (in a spec, "{key}": {total})',
    )
