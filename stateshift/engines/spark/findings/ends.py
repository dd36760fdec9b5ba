"""The Sparks of both ends, and the one that wrote the checkpoint (IS-18). Pure.

Only the same or similar versions are meant to carry on each other's jobs. What the clusters say is
compared, also with what the settings in the offset log tell of the Spark that wrote it, whichever
of them is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stateshift.survey import ClusterFacts, Facts, Finding


def of_ends(facts: Facts) -> Iterator[Finding]:
    """Yield a refusal where the target's Spark is older than what the job ran on, a warning where
    the two clusters differ, a note where its version is not known.
    """
    theirs, source = facts.target_cluster, _newest(facts)
    if theirs is None or source is None:
        return  # without a cluster, `of_move` says which Spark wrote the checkpoint
    target_version = _minor(theirs.version)
    if not target_version:
        yield Finding(
            "note",
            f"{theirs.name} does not say which Spark it runs: whether it is older than "
            f"{source.shown}, is not known",
            hint=_saying(theirs),
        )
    elif target_version < source.version:
        yield Finding(
            "refuse",
            f"{theirs.name} runs Spark {theirs.version}, older than {source.shown}: it may not "
            "read what the newer one wrote",
            waive="older-target",
            hint='use a target of the same version, or "waive": ["older-target"]',
        )
    elif facts.source_cluster is not None:
        yield from _of_other_version(facts.source_cluster, theirs)


def _of_other_version(ours: ClusterFacts, theirs: ClusterFacts) -> Iterator[Finding]:
    version = _minor(ours.version)
    if version and version != _minor(theirs.version):
        yield Finding(
            "warn", f"Spark {ours.version} on {ours.name}, {theirs.version} on {theirs.name}"
        )


def written_by(facts: Facts) -> str | None:
    """Return the newest Spark that an image must have been written by, as its survey says it."""
    written = [image.written_by for image in facts.source_images if image.written_by is not None]
    return max(filter(_minor, written), key=_minor, default=None)


class _Spark(NamedTuple):
    """A Spark as messages show it, and its version."""

    shown: str
    version: tuple[int, ...]


def _newest(facts: Facts) -> _Spark | None:
    """Return the newer of the source's cluster and of what wrote the checkpoint."""
    ours, writer = facts.source_cluster, written_by(facts)
    running = () if ours is None else _minor(ours.version)
    if ours is not None and running and running >= _minor(writer):
        return _Spark(f"{ours.version} on {ours.name}", running)
    if writer is None:
        return None
    return _Spark(f"{writer}, which wrote the checkpoint", _minor(writer))


def _saying(cluster: ClusterFacts) -> str:
    match cluster.kind:
        case "command":
            return f'give {cluster.name} a "version" command'
        case "manual":
            return f'give {cluster.name} its "version"'
        case _:
            return "ask its administrator"


def _minor(version: str | None) -> tuple[int, ...]:
    """Return (4, 3) for 4.3.0, and for `4.3 or later`; nothing where it is not known."""
    parts = (version or "").split(" ")[0].split(".")[:2]
    has_both = len(parts) == 2 and all(map(str.isdecimal, parts))
    return tuple(map(int, parts)) if has_both else ()
