"""Files of state that changed places with each other, each of them whole: what belongs elsewhere is
refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from stateshift import look
from stateshift.formats.rocksdb.manifest import decode_manifest
from stateshift.formats.spark.rocksdb import decode_zip, decode_zip_version
from stateshift.testing.memory_storage import MemoryDisk
from tests.formats.golden import CASES
from tests.look.golden_images import HERE, contents, write


def refusals(files: dict[str, bytes]) -> list[str]:
    disk = MemoryDisk()
    write(disk.open(HERE), files)
    judged = look.restartable(HERE, disk.open, thorough=True)
    return [finding.message for finding in judged.findings if finding.level == "refuse"]


def exchanged(files: dict[str, bytes], one: str, other: str) -> dict[str, bytes]:
    """Both as on a storage without Hadoop's checksums."""
    after = {**files, one: files[other], other: files[one]}
    for path in (one, other):
        folder, _, name = path.rpartition("/")
        after.pop(f"{folder}/.{name}.crc", None)
    return after


def writes_of(content: bytes) -> int:
    manifest = decode_zip_version(content).manifest
    return 0 if manifest is None else decode_manifest(manifest).last_sequence


def version_of(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0].partition("_")[0])


def zip_pairs(files: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    """The newest snapshot of each store, and each before it that has seen fewer writes."""
    folders: dict[str, list[str]] = {}
    for path in files:
        if path.endswith(".zip") and path.startswith("state/"):
            folders.setdefault(path.rpartition("/")[0], []).append(path)
    for paths in folders.values():
        newest = max(paths, key=version_of)
        for path in paths:
            if writes_of(files[path]) < writes_of(files[newest]):
                yield newest, path


WITH_ZIPS = [
    case
    for case in CASES
    if case.parent.name in ("spark-3.3.4", "spark-3.5.9", "spark-4.3.0")
    and any(zip_pairs(contents(case)))
]


@pytest.mark.sample(8)
@pytest.mark.row("W-2")
@pytest.mark.parametrize("case", WITH_ZIPS, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_snapshots_of_two_versions_that_changed_places_are_refused(case: Path) -> None:
    files = dict(contents(case))
    for newest, other in list(zip_pairs(files))[:3]:
        assert refusals(exchanged(files, newest, other)) != []


def table_pairs(files: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    """Two tables of one size that the newest snapshot of a store names."""
    for newest in {newest for newest, _ in zip_pairs(files)}:
        folder = newest.rpartition("/")[0]
        tables = [f"{folder}/SSTs/{table.stored}" for table in decode_zip(files[newest]).tables]
        for one, other in combinations(tables, 2):
            if len(files[one]) == len(files[other]) and files[one] != files[other]:
                yield one, other


WITH_TABLES = [case for case in CASES if any(table_pairs(contents(case)))]


@pytest.mark.row("W-2")
@pytest.mark.parametrize("case", WITH_TABLES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_tables_of_one_size_that_changed_places_are_refused(case: Path) -> None:
    files = dict(contents(case))
    for one, other in table_pairs(files):
        said = refusals(exchanged(files, one, other))
        assert any("it has changed places with another one" in message for message in said), said


@pytest.mark.row("W-2")
@pytest.mark.parametrize("other", ["inxut", "input-2"])
def test_a_log_that_alone_names_another_folder_is_warned_of(other: str) -> None:
    """No checksum covers a file source's log, and Spark refuses what is not below its folder."""
    case = next(
        case for case in CASES if (case.parent.name, case.name) == ("spark-4.3.0", "window-hdfs")
    )
    files = dict(contents(case))
    path = "sources/0/3"
    folder = json.loads(files[path].splitlines()[1])["path"].rpartition("/")[0]
    before, _, name = folder.rpartition("/")
    files[path] = files[path].replace(folder.encode(), f"{before}/{other}-{name}".encode())
    files.pop("sources/0/.3.crc", None)
    disk = MemoryDisk()
    write(disk.open(HERE), files)
    judged = look.restartable(HERE, disk.open)
    (warned,) = [found for found in judged.findings if "all its other logs" in found.message]
    assert warned.level == "warn" and warned.path == path
