"""Whether the Flink at the target reads what it gets: metadata's version, and Kryo's; and the
settings that a job runs under, held against those that it will have there. Pure.

Settings come from the program, from the configuration given at its start, or from its cluster's
defaults; Flink does not tell which. Configuration that is given at a start never overrides the
program (seen of 2.3: `enableCheckpointing(300)` with an interval of 500 ms given is 300 ms). A
setting that neither the spec nor the target's own configuration has is given along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from stateshift.engines.flink.image import flink_facts, flink_image, metadata_of
from stateshift.engines.flink.rewrite.choice import asked_version
from stateshift.engines.flink.rewrite.move import Move
from stateshift.formats.flink.metadata import PROPERTIES_FROM
from stateshift.formats.flink.versions import (
    WRITTEN_BY,
    flink_version,
    newest_for,
    newest_operator_state_for,
)
from stateshift.specification import JobSpec
from stateshift.survey import ClusterFacts, Finding, Image, note, refuse, warn

KRYO = "KryoSerializerSnapshot"
_NO_WAY_BACK = "the job could not start from it"
_TO_1_18 = "move it to a cluster with Flink 1.18 or later"

INTERVAL: Final = "execution.checkpointing.interval"
PARALLELISM: Final = "parallelism.default"
CONFIGURED_SINCE: Final = (1, 17)
WAIVER: Final = "job-settings"
# Names that Flink reads as another one, as an older version called it.
_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "state.backend.type": ("state.backend",),
    "execution.checkpointing.unaligned.enabled": ("execution.checkpointing.unaligned",),
    "execution.checkpointing.incremental": ("state.backend.incremental",),
}


def of_versions(move: Move) -> Iterator[Finding]:
    """Refuse metadata that the target's Flink does not read: it reads older, no newer (IF-18)."""
    images: list[Image] = []
    for survey in move.surveys:
        images.extend(image for image in survey.images if flink_image(image) is not None)
    if not images:
        return
    asked = asked_version(move.job)
    if asked is not None and newest_for(asked) is None:
        yield refuse(f"{asked!r} is no version of Flink", hint='such as "1.20"')
        return
    newest = max(metadata_of(image).version for image in images)
    version = newest_for(asked) or newest
    has_properties = any(metadata_of(image).properties for image in images)
    if version >= PROPERTIES_FROM and not has_properties:
        yield refuse(
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
        yield note(
            f"{theirs.name} does not say which Flink it runs: whether it reads metadata of version "
            f"{version} ({WRITTEN_BY[version]}) is not known"
        )
    elif reads < version:
        yield refuse(
            f"{theirs.name} runs Flink {theirs.version}, which reads metadata up to version "
            f"{reads}; this is version {version} ({WRITTEN_BY[version]})",
            hint=f'"transform": [{{"kind": "convert", "flink": "{theirs.version}"}}] writes it for '
            "that Flink",
        )


def _of_operator_state(move: Move, theirs: str | None) -> Iterator[Finding]:
    """Refuse operator state that goes along, and that a Flink before 1.18 does not read."""
    reads = newest_operator_state_for(theirs)
    if reads is None:
        return
    for survey, taken in zip(move.surveys, move.choice.taken, strict=True):
        versions = flink_facts(survey.images[0]).operator_states
        newer = [name for name in taken.operators if versions.get(name, 0) > reads]
        if newer:
            yield refuse(
                f"operator state, as sources have it, of {', '.join(newer)} is in version "
                f"{versions[newer[0]]}, and Flink {theirs} reads up to version {reads}: "
                f"{_NO_WAY_BACK}",
                hint=f'{_TO_1_18}; or leave these operators behind: "operators" names those '
                "that go along",
            )


def of_writing(source: ClusterFacts, theirs: str | None) -> Iterator[Finding]:
    """Refuse a savepoint yet to be taken whose operator state the target would not read."""
    writes = newest_operator_state_for(source.version)
    reads = newest_operator_state_for(theirs)
    if writes is None or reads is None or writes <= reads:
        return
    yield refuse(
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
            yield refuse(
                f"operators {', '.join(users)} have state that Kryo wrote, and Flink {version} has "
                f"another Kryo than {WRITTEN_BY[written]}: what it reads may be wrong",
                waive="kryo",
                hint="give that state types that Flink serializes itself; or, where a test has "
                'shown it, "waive": ["kryo"]',
            )


def carried_settings(move: Move) -> dict[str, str]:
    """Return the settings that the job runs under and that nothing at the target says."""
    job, here, there = move.job, move.facts.source_cluster, move.facts.target_cluster
    if here is None or there is None or job.submit is None or not job.moves:
        return {}
    ours = {**there.settings, **_configured(job)}
    return {key: value for key, value in here.settings.items() if not _is_said(key, ours)}


def takes_settings(move: Move) -> bool:
    """Whether the target takes settings at a start."""
    there = move.facts.target_cluster
    return there is not None and _release(there.version) >= CONFIGURED_SINCE


def of_settings(move: Move) -> Iterator[Finding]:
    """Report settings that are given along, that differ, or that cannot be given along."""
    job, here, there = move.job, move.facts.source_cluster, move.facts.target_cluster
    if here is None or there is None or not here.settings:
        return
    missing = carried_settings(move)
    named = ", ".join(f"{key}: {value}" for key, value in missing.items())
    if missing and _release(there.version) < CONFIGURED_SINCE:
        yield refuse(
            f"{job.name} runs with settings that {there.name} does not have ({named}), and its "
            f"Flink {there.version} takes none at a start",
            WAIVER,
            "set them in the program, or in the cluster's configuration; or, where the program "
            f'sets them, "waive": ["{WAIVER}"]',
        )
    elif missing:
        yield note(f"{job.name} is started with the settings that it has now: {named}")
    ours = {**there.settings, **_configured(job)}
    other = [
        f"{key} {ours[key]} instead of {value}"
        for key, value in here.settings.items()
        if ours.get(key, value) != value
    ]
    if other:
        yield note(f"{job.name} will have other settings: {', '.join(other)}")
    if not _is_said(INTERVAL, {**here.settings, **ours}):
        yield warn(
            f"{job.name} completes no checkpoints where it runs, and none are configured for it on "
            f"{there.name}: unless its program does, its move cannot be confirmed, and fails",
            hint=f'under "submit": {{"flink_configuration": {{"{INTERVAL}": "10 s"}}}}',
        )


def _release(version: str | None) -> tuple[int, int]:
    """Return (major, minor), for a version that nobody tells the newest."""
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(numbers[1]), int(numbers[2])) if numbers else (99, 0)


def _configured(job: JobSpec) -> dict[str, str]:
    if job.submit is None:
        return {}
    given = job.submit.options.get("flink_configuration") or {}
    configured = {key: str(value) for key, value in given.items()}
    if "parallelism" in job.submit.options:
        configured[PARALLELISM] = str(job.submit.options["parallelism"])
    return configured


def _is_said(key: str, settings: Mapping[str, str]) -> bool:
    return key in settings or any(other in settings for other in _ALSO.get(key, ()))
