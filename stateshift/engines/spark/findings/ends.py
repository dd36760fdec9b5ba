"""The Sparks of both ends, and the one that wrote the checkpoint (IS-18). Pure.

Only the same or similar versions are meant to carry on each other's jobs. What the clusters say is
held against each other, and against what the settings in the offset log tell of the Spark that
wrote it, whichever of them is known.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.survey import ClusterFacts, Facts, Finding


def of_ends(facts: Facts) -> Iterator[Finding]:
    theirs, held = facts.target_cluster, _newest(facts)
    if theirs is None or held is None:
        return  # who starts the job themselves is told what wrote it where that is said
    there, (told, here) = _minor(theirs.version), held
    if not there:
        yield Finding(
            "note",
            (
                f"{theirs.name} does not say which Spark it runs: whether it is older than "
                f"{told}, is not known"
            ),
            hint=_saying(theirs),
        )
    elif there < here:
        yield Finding(
            "refuse",
            (
                f"{theirs.name} runs Spark {theirs.version}, older than {told}: it may not "
                "read what the newer one wrote"
            ),
            waive="older-target",
            hint='use a target of the same version, or "waive": ["older-target"]',
        )
    elif facts.source_cluster is not None and _minor(facts.source_cluster.version) not in (
        (),
        there,
    ):
        ours = facts.source_cluster
        yield Finding(
            "warn", f"Spark {ours.version} on {ours.name}, {theirs.version} on {theirs.name}"
        )


def written_by(facts: Facts) -> str | None:
    """The newest Spark that an image must have been written by, as its survey tells it."""
    known = []
    for image in facts.source_images:
        if image.written_by is not None and _minor(image.written_by):
            known.append(image.written_by)
    return max(known, key=_minor, default=None)


def _newest(facts: Facts) -> tuple[str, tuple[int, ...]] | None:
    """The newer of the source's cluster and of what wrote the checkpoint: how it is told, and
    its version.
    """
    ours, written = facts.source_cluster, written_by(facts)
    here = _minor(ours.version) if ours is not None else ()
    if ours is not None and here and here >= _minor(written):
        return f"{ours.version} on {ours.name}", here
    return (
        (f"{written}, which wrote the checkpoint", _minor(written)) if written is not None else None
    )


def _saying(cluster: ClusterFacts) -> str:
    match cluster.kind:
        case "command":
            return f'give {cluster.name} a "version" command'
        case "manual":
            return f'give {cluster.name} its "version"'
        case _:
            return "ask whoever runs it"


def _minor(version: str | None) -> tuple[int, ...]:
    """(4, 3) of 4.3.0, and of `4.3 or later`; empty where there is no telling."""
    parts = (version or "").split(" ")[0].split(".")[:2]
    return (
        tuple(int(part) for part in parts)
        if len(parts) == 2 and all(map(str.isdecimal, parts))
        else ()
    )
