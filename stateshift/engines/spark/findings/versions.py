"""What the target's Spark cannot read of an image, though everything else fits: refused before anything moves. Pure.

    join state format 4          4.3 on; 4.2 stops with "State format version 4 is under development", 4.1 takes the
                                 setting for invalid. (Format 1 goes on everywhere, for inner joins.)
    offset log v2                4.2 on: "UnsupportedLogVersion"; written where sources have names
    RocksDB changelogs           3.5 on; before, a version is its zip
    RocksDB tables of 4.0 on     not 3.3: "unknown checksum type 4" (XXH3)

Each of them was seen on real Sparks. What is written anew on the way (`transform`) no longer counts: its tables and
zips are of the oldest kind that all of them read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stateshift.engines.spark.reshaping.wishes import Wishes
from stateshift.engines.spark.reshaping.zip_format import target_version
from stateshift.engines.spark.restart.operators import PROVIDER
from stateshift.survey import Facts, Finding, Image

JOIN = "spark.sql.streaming.join.stateFormatVersion"
NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
JOIN_OPERATOR = "symmetricHashJoin"


def of_versions(wishes: Wishes, facts: Facts) -> Iterator[Finding]:
    """Only where the target's version is known: its cluster says it."""
    version = target_version(facts)
    parts = tuple(int(part) for part in (version or "").split(".")[:2] if part.isdigit())
    if len(parts) < 2:
        return
    for image in facts.source.images:
        name = image.name or image.path or facts.source.location
        joins = any(operator.name == JOIN_OPERATOR for operator in image.operators)
        if joins and image.settings.get(JOIN) == "4" and parts < (4, 3):
            yield Finding(
                "refuse",
                f"{name} has a join of state format 4, which Spark {version} does not read",
                hint="use a target of Spark 4.3 or newer",
            )
        if image.settings.get(NAMED_SOURCES) == "true" and parts < (4, 2):
            yield Finding(
                "refuse",
                f"{name} has an offset log of version 2, which Spark {version} does not read",
                hint="use a target of Spark 4.2 or newer",
            )
        if "RocksDB" in image.settings.get(PROVIDER, ""):
            yield from _of_files(wishes, image, name, version or "", parts)


def _of_files(wishes: Wishes, image: Image, name: str, version: str, parts: tuple[int, ...]) -> Iterator[Finding]:
    paths = [path for shard in image.shards for path in shard.files]
    if parts < (3, 5) and not wishes.of_state and any(path.endswith(".changelog") for path in paths):
        yield Finding(
            "refuse",
            f"{name} keeps RocksDB changelogs, of which Spark {version} knows nothing",
            hint='let it be written as tables: "transform": [{"kind": "compact"}]; or use a Spark from 3.5 on',
        )
    copied = not replace(wishes, compact=False).of_state  # a compaction leaves tables that need none
    newer = image.written_by is not None and image.written_by.startswith("4.")
    if parts < (3, 4) and newer and copied and any(path.endswith(".sst") for path in paths):
        yield Finding(
            "refuse",
            f"{name} has RocksDB tables whose checksums (XXH3) Spark {version} does not know",
            hint="use a target of Spark 3.4 or newer",
        )
