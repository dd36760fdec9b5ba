"""Where fuzzing starts: what real Sparks wrote, and shapes that no golden file has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice

from stateshift.formats.spark.names import CheckpointPath
from tests.formats.golden import CASES, paths

SEED_BYTES_MAX = 8 * 1024
SEEDS_MAX = 150


def golden(area: str, *kinds: str) -> list[bytes]:
    """Different golden files of an area, those of kinds if named; small ones first, of every
    version some.
    """
    return _spread(_found(area, kinds))


def of_cases(*names: str) -> list[tuple[str, dict[str, bytes]]]:
    """Whole checkpoints by the names of their cases, each as Spark 4.3.0 wrote it where that
    exists.
    """
    newest = {case.name: case for case in CASES}
    wanted = names or tuple(newest)
    return [(name, _files(name)) for name in wanted if name in newest]


@cache
def _files(name: str) -> dict[str, bytes]:
    root = {case.name: case for case in CASES}[name] / "checkpoint"
    return {
        p.relative_to(root).as_posix(): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def _found(area: str, kinds: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for case in CASES:
        for name, place in paths(case):
            if place.area == area and (not kinds or _kind(place) in kinds):
                yield case.parent.name, (case / "checkpoint" / name).read_bytes()


def _kind(place: CheckpointPath) -> str:
    return place.kind or ""


def _spread(found: Iterable[tuple[str, bytes]]) -> list[bytes]:
    by_version: dict[str, dict[bytes, bytes]] = {}
    for version, content in found:
        if len(content) <= SEED_BYTES_MAX:
            by_version.setdefault(version, {})[hashlib.sha1(content).digest()] = content
    rows = [sorted(contents.values(), key=len) for contents in by_version.values()]
    each = max(1, SEEDS_MAX // max(1, len(rows)))
    return list(
        dict.fromkeys(one for row in rows for one in islice(row, 0, None, max(1, len(row) // each)))
    )
