"""What connectors keep, as far as it can be checked without the connector: the state of sources'
coordinators, and the versions of splits and of what sinks have still to write.

The frame is Flink's own. Inside it, the version and the bytes are the connector's: any number is a
version to somebody, so an unlikely one is said and not refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stateshift.errors import FormatError
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.source_coordinator import (
    READER_STATE,
    decode_source_coordinator,
)
from stateshift.survey import Finding

# Connectors count their serializers' versions up from 0 or 1; none is known beyond single digits.
LIKELY_VERSIONS = range(256)


def checked_coordinator(operator: OperatorState) -> Iterator[Finding]:
    """Yield what is wrong with the state of a source's coordinator."""
    # Others frame theirs in ways of their own.
    coordinator = operator.coordinator if _reads_a_source(operator) else None
    if coordinator is None:
        return
    try:
        enumerator = decode_source_coordinator(coordinator.content)
    except FormatError as error:
        yield Finding("refuse", f"operator {operator.id.hex()}: {error.fact}")
        return
    if enumerator.version not in LIKELY_VERSIONS:
        yield _unlikely(operator, "the split enumerator", enumerator.version)


def unlikely_versions(
    operator: OperatorState, versions: Mapping[str, Iterable[int]]
) -> Iterator[Finding]:
    """Yield a warning for each list state that a serializer of an unlikely version wrote."""
    for state, found in sorted(versions.items()):
        for version in sorted(found):
            if version not in LIKELY_VERSIONS:
                yield _unlikely(operator, f"an element of {state}", version)


def _unlikely(operator: OperatorState, what: str, version: int) -> Finding:
    return Finding(
        "warn",
        f"operator {operator.id.hex()}: {what} was written by version {version} of its "
        "connector's serializer, a number that no connector is known to use: Flink fails to "
        "restore it unless the job's connector reads it",
    )


def _reads_a_source(operator: OperatorState) -> bool:
    for subtask in operator.all_subtasks:
        listed = subtask.managed_operator
        if listed is not None and any(state.name == READER_STATE for state in listed.states):
            return True
    return False
