"""Whether the Flink at the target reads what it gets: metadata's version, and Kryo's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stateshift.engines.flink.changes import asked_version
from stateshift.engines.flink.image import flink_facts, flink_image, metadata_of
from stateshift.engines.flink.rewrite.move import Move
from stateshift.formats.flink.metadata import PROPERTIES_FROM
from stateshift.formats.flink.versions import (
    WRITTEN_BY,
    flink_version,
    newest_for,
    newest_operator_state_for,
)
from stateshift.survey import ClusterFacts, Finding, Image

KRYO = "KryoSerializerSnapshot"
_NO_WAY_BACK = "the job could not start from it"
_TO_1_18 = "move it to a cluster with Flink 1.18 or later"


def of_versions(move: Move) -> Iterator[Finding]:
    """Refuse metadata that the target's Flink does not read: it reads older, no newer (IF-18)."""
    images: list[Image] = []
    for survey in move.surveys:
        images.extend(image for image in survey.images if flink_image(image) is not None)
    if not images:
        return
    asked = asked_version(move.job)
    if asked is not None and newest_for(asked) is None:
        yield Finding("refuse", f"{asked!r} is no version of Flink", hint='such as "1.20"')
        return
    newest = max(metadata_of(image).version for image in images)
    version = newest_for(asked) or newest
    has_properties = any(metadata_of(image).properties for image in images)
    if version >= PROPERTIES_FROM and not has_properties:
        yield Finding(
            "refuse",
            f"metadata of version {newest} cannot become version {version}: it does not say of "
            "what kind it is",
            hint="leave out the conversion: every newer Flink reads it as it is",
        )
    cluster = move.facts.target_cluster
    if cluster is not None:
        yield from of_reading(cluster, version)
        yield from _of_kryo(images, cluster.version or "")
    theirs = (cluster.version if cluster is not None else None) or asked
    yield from _of_operator_state(move, theirs)


def of_reading(theirs: ClusterFacts, version: int) -> Iterator[Finding]:
    """Refuse metadata of a version that a cluster's Flink does not read."""
    reads = newest_for(theirs.version)
    if reads is None:
        yield Finding(
            "note",
            f"{theirs.name} does not say which Flink it runs: whether it reads metadata of version "
            f"{version} ({WRITTEN_BY[version]}) is not known",
        )
    elif reads < version:
        yield Finding(
            "refuse",
            f"{theirs.name} runs Flink {theirs.version}, which reads metadata up to version "
            f"{reads}; this is version {version} ({WRITTEN_BY[version]})",
            hint=f'"transform": [{{"kind": "convert", "flink": "{theirs.version}"}}] writes it for '
            "that Flink",
        )


def _of_operator_state(move: Move, theirs: str | None) -> Iterator[Finding]:
    """Yield a refusal for operator state that goes along, and that a Flink before 1.18 does not
    read.
    """
    reads = newest_operator_state_for(theirs)
    if reads is None:
        return
    for survey, taken in zip(move.surveys, move.choice.taken, strict=True):
        versions = flink_facts(survey.images[0]).operator_states
        newer = [name for name in taken.operators if versions.get(name, 0) > reads]
        if newer:
            yield Finding(
                "refuse",
                f"operator state, as sources have it, of {', '.join(newer)} is in version "
                f"{versions[newer[0]]}, and Flink {theirs} reads up to version {reads}: "
                f"{_NO_WAY_BACK}",
                hint=f'{_TO_1_18}; or leave these operators behind: "operators" names those '
                "that go along",
            )


def of_writing(source: ClusterFacts, theirs: str | None) -> Iterator[Finding]:
    """Yield a refusal where a savepoint is yet to be taken whose operator state the target would
    not read: whether the job has any is known once it is stopped.
    """
    writes = newest_operator_state_for(source.version)
    reads = newest_operator_state_for(theirs)
    if writes is None or reads is None or writes <= reads:
        return
    yield Finding(
        "refuse",
        f"{source.name} runs Flink {source.version}, and Flink {theirs} does not read its operator "
        f"state, as sources have it: {_NO_WAY_BACK}",
        waive="operator-state",
        hint=f'{_TO_1_18}; or, where none of the job\'s operators has any, "waive": '
        '["operator-state"]',
    )


def _of_kryo(images: Sequence[Image], version: str) -> Iterator[Finding]:
    """Yield a refusal for state that another Kryo wrote: Flink 1.x has Kryo 2, 2.x has Kryo 5."""
    theirs = flink_version(version)
    if theirs is None:
        return
    for image in images:
        written = metadata_of(image).version
        has_kryo_2 = written < 5
        reads_kryo_2 = theirs[0] < 2
        users = [
            operator.id
            for operator in image.operators
            if KRYO in operator.details.get("serializers", ())
        ]
        if users and has_kryo_2 != reads_kryo_2:
            yield Finding(
                "refuse",
                f"operators {', '.join(users)} have state that Kryo wrote, and Flink {version} has "
                f"another Kryo than {WRITTEN_BY[written]}: what it reads may be wrong",
                waive="kryo",
                hint="give that state types that Flink serializes itself; or, where a test has "
                'shown it, "waive": ["kryo"]',
            )
