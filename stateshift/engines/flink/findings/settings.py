"""The settings that a Flink job runs under, held against those that it will have at the target.
Pure.

They come from the program, from the configuration given at its start, or from its cluster's
defaults; Flink does not tell which. Configuration that is given at a start never overrides the
program (seen of 2.3: `enableCheckpointing(300)` with an interval of 500 ms given is 300 ms). A
setting that neither the spec nor the target's own configuration has is given along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from stateshift.engines.flink.rewrite.move import Move
from stateshift.specification import JobSpec
from stateshift.survey import Finding

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
        yield Finding(
            "refuse",
            f"{job.name} runs with settings that {there.name} does not have ({named}), and its "
            f"Flink {there.version} takes none at a start",
            WAIVER,
            "set them in the program, or in the cluster's configuration; or, where the program "
            f'sets them, "waive": ["{WAIVER}"]',
        )
    elif missing:
        yield Finding("note", f"{job.name} is started with the settings that it has now: {named}")
    ours = {**there.settings, **_configured(job)}
    other = [
        f"{key} {ours[key]} instead of {value}"
        for key, value in here.settings.items()
        if ours.get(key, value) != value
    ]
    if other:
        yield Finding("note", f"{job.name} will have other settings: {', '.join(other)}")
    if not _is_said(INTERVAL, {**here.settings, **ours}):
        yield Finding(
            "warn",
            f"{job.name} completes no checkpoints where it runs, and none are configured for it on "
            f"{there.name}: unless its program does, its move cannot be confirmed, and fails",
            hint=f'under "submit": {{"flink_configuration": {{"{INTERVAL}": "10 s"}}}}',
        )


def _release(version: str | None) -> tuple[int, int]:
    """Return (major, minor), for a version that nobody tells the newest."""
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(numbers[1]), int(numbers[2])) if numbers else (99, 0)


def _configured(job: JobSpec) -> dict[str, str]:
    """Return the settings that `submit` gives."""
    if job.submit is None:
        return {}
    given = job.submit.options.get("flink_configuration") or {}
    configured = {key: str(value) for key, value in given.items()}
    if "parallelism" in job.submit.options:
        configured[PARALLELISM] = str(job.submit.options["parallelism"])
    return configured


def _is_said(key: str, settings: Mapping[str, str]) -> bool:
    return key in settings or any(other in settings for other in _ALSO.get(key, ()))
