"""The golden images of both engines, as files by their full location: what damage is done to.

names()          "spark-4.3.0/window-hdfs", "flink-2.3.0/count-canonical-rocksdb", ...
image(name)      GoldenImage
  .location        where a command is pointed at
  .files           location -> content: everything that was there
  .needed          locations of what a restart reads, as the survey of the whole image names it
  .provider        how the state is kept: hdfs, rocksdb, rocksdb changelog; hashmap, changelog over
                   rocksdb, ...
  .kind            what the job does, or what kind of image it is: window, join; canonical,
                   checkpoint, ...
  .role_of(path)   what kind of file that is: delta, zip, offsets; metadata, stream, sst, ...
  .variant         what else is done to it than to the others: see VARIANTS

variants()       "spark-4.3.0/window-hdfs+planned", ...: images of Spark's again, each as a kind of
                 its own

    planned    the newest batch is planned and not committed: its commit is gone
    exchanged  two files change places, and nothing else happens
    elsewhere  paths inside are of another place, as after a copy by hand
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.registry import engine
from stateshift.formats.flink.references import references
from stateshift.formats.flink.stream_handles import files_of
from stateshift.formats.spark.names import classify
from stateshift.storage import locations
from stateshift.survey import Image
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden as flink_golden
from tests.formats.golden import CASES
from tests.look.golden_images import contents, made_at
from tests.support.checkpoints import put

VARIANTS = ("planned", "exchanged", "elsewhere")
SPARK_HERE = "file:///golden/orders"


@dataclass(frozen=True)
class GoldenImage:
    name: str
    location: str
    files: Mapping[str, bytes]
    needed: tuple[str, ...]
    provider: str
    kind: str
    roles: Mapping[str, str]

    @property
    def engine(self) -> str:
        return self.name.partition("-")[0]

    @property
    def version(self) -> str:
        return self.name.partition("/")[0].partition("-")[2]

    @property
    def variant(self) -> str:
        return self.name.partition("+")[2]

    def role_of(self, location: str) -> str:
        return self.roles.get(location, "other")


def names() -> list[str]:
    return [*(f"{case.parent.name}/{case.name}" for case in CASES), *flink_golden.NAMES]


def variants() -> list[str]:
    """Those of each kind that have something for it: a batch before the newest one, two files that
    could change places, a path of their own.
    """
    found = []
    for case in CASES:
        checkpoint = case / "checkpoint"
        name = f"{case.parent.name}/{case.name}"
        if len([*(checkpoint / "commits").glob("[0-9]*")]) > 1:
            found.append(f"{name}+planned")
        if any(checkpoint.glob("state/*/*/**/[0-9]*")):
            found.append(f"{name}+exchanged")
        if any(checkpoint.glob("state/*/_metadata/v2/*")):
            found.append(f"{name}+elsewhere")
    return found


@lru_cache(maxsize=64)
def image(name: str) -> GoldenImage:
    base, _, variant = name.partition("+")
    if variant:
        return as_variant(image(base), variant)
    return _of_spark(name) if name.startswith("spark-") else _of_flink(name)


def as_variant(golden: GoldenImage, variant: str) -> GoldenImage:
    """The image as a kind of its own."""
    files = dict(golden.files)
    if variant == "planned":
        commits = f"{golden.location}/commits/"
        newest = max(
            int(path.removeprefix(commits))
            for path in files
            if path.startswith(commits) and path.removeprefix(commits).isdecimal()
        )
        for path in (f"{commits}{newest}", f"{commits}.{newest}.crc"):
            files.pop(path, None)
    return spark_image(f"{golden.name}+{variant}", golden.location, files)


def on_a_disk(files: Mapping[str, bytes]) -> MemoryDisk:
    """The files at their locations."""
    disk = MemoryDisk()
    add(disk, files)
    return disk


def add(disk: MemoryDisk, files: Mapping[str, bytes]) -> None:
    for location, content in files.items():
        put(disk.open(locations.parent(location)), locations.name(location), content)


def moved(golden: GoldenImage, location: str) -> dict[str, bytes] | None:
    """The whole image somewhere else; None for one that has files outside of its folder."""
    top = f"{golden.location}/"
    if not all(path.startswith(top) for path in golden.files):
        return None
    return {f"{location}/{path[len(top) :]}": content for path, content in golden.files.items()}


def surveyed(name: str, location: str, disk: MemoryDisk) -> tuple[str, Image | None]:
    """The location that paths are relative to, and the image there."""
    _, found = engine(name).survey(location, disk.open)
    return found.location, found.images[0] if found.images else None


# ---- Spark


def _of_spark(name: str) -> GoldenImage:
    case = next(case for case in CASES if f"{case.parent.name}/{case.name}" == name)
    files = {}
    for path, content in contents(case).items():
        files[f"{SPARK_HERE}/{path}"] = made_at(SPARK_HERE, path, content)
    return spark_image(name, SPARK_HERE, files)


def spark_image(name: str, location: str, files: Mapping[str, bytes]) -> GoldenImage:
    """A checkpoint of Spark's, whoever made it: `files` lie at and below the location."""
    root, found = surveyed("spark", location, on_a_disk(files))
    assert found is not None
    needed = tuple(f"{root}/{path}" for path in found.needed_files)
    roles = {path: _spark_role(path[len(location) + 1 :]) for path in files}
    provider = _spark_provider(found, {roles[path] for path in needed})
    return GoldenImage(name, location, files, needed, provider, _spark_kind(name), roles)


def _spark_role(path: str) -> str:
    place = classify(path)
    if place.area == "state":
        return str(place.kind)
    if place.area == "sidecar":
        return "Spark's checksum" if place.kind == "checksum" else "Hadoop's checksum"
    return {
        "state-metadata": "operator metadata",
        "state-schema": "schema",
        "metadata": "query id",
    }.get(place.area, place.area)


def _spark_provider(found: Image, roles: set[str]) -> str:
    if not found.operators:
        return "stateless"
    provider = "rocksdb" if {"zip", "sst", "changelog"} & roles else "hdfs"
    changelog = " changelog" if "changelog" in roles else ""
    sums = " with checksums" if "Spark's checksum" in roles else ""
    return f"{provider}{changelog}{sums}"


def _spark_kind(name: str) -> str:
    return re.split(r"[-.+]", name.rpartition("/")[2])[0]


# ---- Flink


def _of_flink(name: str) -> GoldenImage:
    disk = MemoryDisk()
    location = flink_golden.write(disk, name)
    files = dict(disk.snapshot())
    root, found = surveyed("flink", location, disk)
    assert found is not None
    needed = tuple(f"{root}/{path}" for path in found.needed)
    providers = {operator.provider for operator in found.operators if operator.provider}
    provider = " and ".join(sorted(providers)) or "operator state alone"
    return GoldenImage(
        name, location, files, needed, provider, _flink_kind(name), _flink_roles(root, found)
    )


def _flink_kind(name: str) -> str:
    """What the golden maker calls it, without the backend: that is the provider's column."""
    words = name.rpartition("/")[2].split("-")
    backends = {"hashmap", "rocksdb", "incremental", "forst", "memory", "inline"}
    return " ".join(
        word for word in words if word not in backends and not re.fullmatch(r"\d+", word)
    )


def _flink_roles(root: str, found: Image) -> dict[str, str]:
    places, metadata = places_of(found), metadata_of(found)
    roles = {f"{root}/{path}": "_metadata" for path in found.needed if path.endswith("_metadata")}
    for reference in references(metadata):
        role = {"keyed": "keyed stream", "operator": "operator stream"}.get(
            reference.role, reference.role
        )
        for file in files_of(reference.stream):
            path = places.path_of(file)
            if path is not None:
                roles.setdefault(f"{root}/{path}", "changelog" if reference.whole else role)
    for operator in metadata.operators:
        for subtask in operator.subtasks or ():
            roles.update(_rocksdb_roles(root, places, subtask.managed_keyed))
    return roles


def _rocksdb_roles(root: str, places: object, handle: object) -> dict[str, str]:
    """The files of a RocksDB by the names they have on its disk."""
    from stateshift.formats.flink.keyed_handles import Changelog, Incremental

    if isinstance(handle, Changelog):
        found: dict[str, str] = {}
        for inner in handle.bases:
            found |= _rocksdb_roles(root, places, inner)
        return found
    if not isinstance(handle, Incremental):
        return {}
    named = [*handle.shared, *handle.private, ("backend's metadata", handle.meta)]
    found = {}
    for name, stream in named:
        path = places.path_of(stream) if stream is not None else None  # type: ignore[attr-defined]
        if path is not None:
            found[f"{root}/{path}"] = "sst" if name.endswith(".sst") else name.partition("-")[0]
    return found
