"""The number in the first line of a zip's metadata, which Spark versions do not agree on. Pure.

    Spark 4.0       that of its checkpoint format: 2 under format 2. It refuses any other. Where
                    several queries share a JVM, it is the format of the first
    all the others  1. 4.1 refuses 2; 4.3 goes back to an older snapshot then, if the changelogs
                    reach that far

Under checkpoint format 1 they all write 1. Source: Spark, RocksDBCheckpointMetadata.VERSION.
"""

from __future__ import annotations

from stateshift.engines.spark.rewrite.request import Request
from stateshift.survey import Facts, Image

NEWER = "4.0 or later"


def zip_format(request: Request) -> int | None:
    """Return what the target's Spark reads; None where it is not known, so that it stays what the
    sources have.
    """
    if not request.uuids:
        return 1
    version = target_version(request.facts)
    if version is None:
        return None
    return 2 if is_4_0(version) else 1


def zip_format_guessed(request: Request) -> int:
    """Return what the Spark reads that seems to have written sources without a zip."""
    return 2 if seems_4_0(request.image, request.facts) else 1


def other_format(image: Image, facts: Facts) -> bool:
    """Whether the image has zips that the target's Spark refuses for their number, as far as
    both are known.
    """
    version = target_version(facts)
    if version is None or is_4_0(version) == seems_4_0(image, facts):
        return False
    names = (path.rpartition("/")[2] for path in image.state_files)
    return any(name.endswith(".zip") and "_" in name for name in names)


def target_version(facts: Facts) -> str | None:
    """Return the target's Spark version; None where no cluster says it."""
    return facts.target_cluster.version if facts.target_cluster else None


def is_4_0(version: str) -> bool:
    """Whether this is a version of Spark 4.0."""
    return version.split(".")[:2] == ["4", "0"]


def seems_4_0(image: Image, facts: Facts) -> bool:
    """Whether Spark 4.0 seems to have written an image: 4.1 writes a checksum beside every file of
    the state, 4.2 has settings of its own.
    """
    under = f"{image.path}/" if image.path else ""
    own = [file.path for file in facts.source.files if file.path.startswith(under)]
    return image.written_by == NEWER and not any(map(_is_sparks_checksum, own))


def _is_sparks_checksum(path: str) -> bool:
    """Whether Spark's checksum of a state file lies here; Hadoop's begins with a dot."""
    return path.endswith((".changelog.crc", ".zip.crc")) and "/." not in path
