"""The number in the first line of a zip's metadata, which Spark versions do not agree on. Pure.

    Spark 4.0       that of its checkpoint format: 2 under format 2. It refuses any other. Where
                    several queries
                    share a JVM, it is the format of the first
    all the others  1. 4.1 refuses 2; 4.3 goes back to an older snapshot then, if the changelogs
                    reach that far

Under checkpoint format 1 they all write 1. Source: Spark, RocksDBCheckpointMetadata.VERSION.
"""

from __future__ import annotations

from stateshift.engines.spark.rewrite.request import Asked
from stateshift.survey import Facts, Image

NEWER = "4.0 or later"


def zip_format(asked: Asked) -> int | None:
    """What the target's Spark reads; None where it is not known, so that it stays what the
    sources have.
    """
    if not asked.uuids:
        return 1
    version = target_version(asked.facts)
    if version is None:
        return None
    return 2 if is_4_0(version) else 1


def zip_format_guessed(asked: Asked) -> int:
    """For sources without a zip: what the Spark reads that seems to have written them."""
    return 2 if seems_4_0(asked.image, asked.facts) else 1


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
    return facts.target_cluster.version if facts.target_cluster else None


def is_4_0(version: str) -> bool:
    return version.split(".")[:2] == ["4", "0"]


def seems_4_0(image: Image, facts: Facts) -> bool:
    """4.1 writes a checksum beside every file of the state, 4.2 has settings of its own."""
    under = f"{image.path}/" if image.path else ""
    beside = any(
        f.path.startswith(under)
        and f.path.endswith((".changelog.crc", ".zip.crc"))
        and "/." not in f.path
        for f in facts.source.files
    )
    return image.written_by == NEWER and not beside
