"""How fast the queries of a group were, and which version of each chain ran when: computed from
what tasks have written down. Pure.

    Sample    one batch of a chain in a query: rows a second, seconds a task, versions
    Stretch   a stretch of time in which a query ran one version of a chain

A task writes down what it did now and then, and always near a change. If only some tasks
of a batch have, the others are taken to be like them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateshift.live.folder import TaskMeasure
    from stateshift.live.protocol.chains import KnownChange, Version
    from stateshift.live.survey import GroupSurvey

GAP_SECONDS = 60.0  # a query of which nothing is known for longer is drawn as one that did not run


@dataclass(frozen=True, slots=True)
class Sample:
    """One batch of a chain in a query. `at` is when its first task began. Rows a second are None
    where they are not known: the batch after it has not begun, or rows were not counted.
    """

    chain: str
    query: str
    batch: int
    at: float
    rows_in_per_second: float | None
    rows_out_per_second: float | None
    seconds_mean: float
    seconds_max: float
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time in which a query ran one version of a chain, up to a batch."""

    version: Version
    start: float
    end: float
    batch: int


def version_of(changes: Sequence[KnownChange], chain: str, version: Version) -> Version:
    """Return the newest change up to a version that holds and has changed a chain; 0 if none."""
    for known in reversed(changes[:version]):
        if known.holds and chain in known.change.chains:
            return known.number
    return 0


def version_that_ran(changes: Sequence[KnownChange], chain: str, version: Version) -> Version:
    """Return the version of a chain that a task ran, which may have been taken back since."""
    if version and chain in changes[version - 1].change.chains:
        return version
    return version_of(changes, chain, version)


def samples(survey: GroupSurvey) -> tuple[Sample, ...]:
    """Return the measured batches of all chains, in the order of their times."""
    by_batch: dict[tuple[str, str, int], list[TaskMeasure]] = {}
    for measured in survey.measures:
        key = (measured.chain, measured.query, measured.batch)
        by_batch.setdefault(key, []).append(measured)
    found = [_sample(survey, tasks) for tasks in by_batch.values()]
    return tuple(sorted(found, key=lambda each: (each.at, each.chain, each.query)))


def _sample(survey: GroupSurvey, tasks: Sequence[TaskMeasure]) -> Sample:
    first = tasks[0]
    seconds = [task.ended - task.began for task in tasks]
    scale = _scale(survey, tasks)
    versions: set[Version] = set()
    for task in tasks:
        versions.update(part.version for part in _parts_of(survey, task))
    return Sample(
        chain=first.chain,
        query=first.query,
        batch=first.batch,
        at=min(task.began for task in tasks),
        rows_in_per_second=_times(scale, sum(task.rows_in for task in tasks)),
        rows_out_per_second=_times(scale, sum(task.rows_out for task in tasks)),
        seconds_mean=sum(seconds) / len(seconds),
        seconds_max=max(seconds),
        versions=tuple(sorted(versions)),
    )


def _times(scale: float | None, rows: int) -> float | None:
    return None if scale is None else scale * rows


def _scale(survey: GroupSurvey, tasks: Sequence[TaskMeasure]) -> float | None:
    """Return by what the rows of the tasks that were measured are to be multiplied, to be those of
    all tasks in a second; None where that is not known.
    """
    first = tasks[0]
    seals = survey.seals.get(first.query, {})
    began, following = seals.get(first.batch), seals.get(first.batch + 1)
    declaration = survey.standing.declarations.get(first.chain)
    # Rows of foreachBatch, which promise nothing, are not counted.
    is_counted = declaration is not None and bool(declaration.output)
    if began is None or following is None or not is_counted:
        return None
    workers = [(said.chain, said.query) for said in survey.standing.workers]
    share = max(1.0, workers.count((first.chain, first.query)) / len(tasks))
    return share / max(following.at - began.at, 1e-3)


# ------------------------------------------------------------------------------------ timeline


def stretches(survey: GroupSurvey, chain: str, query: str) -> tuple[Stretch, ...]:
    """Return the stretches in which queries ran one version of a chain, in the order of their
    times. Two of them overlap where some of its tasks ran one and some the other.
    """
    parts: list[Stretch] = []
    for task in survey.measures:
        if (task.chain, task.query) == (chain, query):
            parts.extend(_parts_of(survey, task))
    done: list[Stretch] = []
    last: dict[Version, Stretch] = {}
    for part in sorted(parts, key=lambda part: part.start):
        before = last.get(part.version)
        if before is not None and _joins(before, part, last.values()):
            end = max(before.end, part.end)
            last[part.version] = replace(part, start=before.start, end=end)
            continue
        if before is not None:
            done.append(before)
        last[part.version] = part
    return tuple(sorted((*done, *last.values()), key=lambda each: (each.start, each.version)))


def _joins(before: Stretch, part: Stretch, all_versions: Iterable[Stretch]) -> bool:
    """Whether a part goes on with a stretch: in the same batch, or soon after it, and nothing else
    has run since.
    """
    if part.batch == before.batch:
        return True
    others = [each for each in all_versions if each.version != part.version]
    has_other_since = any(each.end > before.end for each in others)
    return part.start - before.end <= GAP_SECONDS and not has_other_since


def _parts_of(survey: GroupSurvey, task: TaskMeasure) -> Iterator[Stretch]:
    """Yield the stretches of a task: of several versions, each as long as its rows; without a row,
    the version that its batch began with.
    """
    changes = survey.standing.changes
    rows = sum(ran.rows for ran in task.ran)
    if not rows:
        seal = survey.seals.get(task.query, {}).get(task.batch)
        version = 0 if seal is None else seal.version
        version = task.ran[-1].version if task.ran else version
        version = version_that_ran(changes, task.chain, version)
        yield Stretch(version, task.began, task.ended, task.batch)
        return
    start = task.began
    for ran in task.ran:
        end = start + ran.rows / rows * (task.ended - task.began)
        version = version_that_ran(changes, task.chain, ran.version)
        yield Stretch(version, start, end, task.batch)
        start = end
