"""Why Flink said no: the one line of a Java stack that tells it, and the way out.

A refusal is {"errors": ["Internal server error.", "<Exception on server side:\\n...stack...\\nEnd
of exception ...>"]}, or one text with a stack; a failed savepoint, and what made a job fail, is a
stack alone. In a stack everything that wraps comes first, and each "Caused by:" line is nearer to
the matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stateshift.clusters.redaction import redact

_HEAD = re.compile(
    r"(?:Caused by: )?(?:[\w$]+\.)*([\w$]*(?:Exception|Error|Throwable))(?:: (.*))?$", re.DOTALL
)
_NOISE = re.compile(
    r"\s|$|<Exception on server side:|End of exception on server side>|Internal server error\.$"
)
_SAYS_NOTHING = re.compile(
    r"(Runtime|IllegalState|IllegalArgument|Flink|FlinkRuntime|Completion|RestHandler|Checkpoint|ProgramInvocation|"
    r"JobInitialization|JobExecution|UnsupportedOperation|IO|SqlGateway|SqlExecution|SqlParser|SqlParse|SqlValidator|"
    r"Parse|Validation|Calcite|CalciteContext|Table)?(Exception|Error)|SerializedThrowable"
)
# Of these nobody knows whether what was asked for has happened, or will.
_UNCERTAIN = re.compile(
    r"Timeout|Fencing|RpcConnection|RecipientUnreachable|RemoteTransport|LeaderElection"
)
# A wrapper around a cause whose message is the cause, and one that says nothing.
_EMPTY = re.compile(r": (?:[\w$]+\.)+\w*(?:Exception|Error)$|: Caught unexpected exception")
_FACT_MAX: Final = 500
HOPELESS_TIMES: Final = 3
# What the next attempt meets again.
_LASTS = re.compile(
    r"StateMigrationException|serializer must (?:not )?be (?:in)?compatible|InvalidClassException|"
    r"ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError|NoSuchFieldError|ClassCastException|"
    r"StreamCorruptedException|KryoException|"
    r"Unexpected state handle type|Key group \d+ is not "
    r"in|DeserializationException|Failed to deserialize|"
    r"Unexpected magic number|Cannot instantiate user function|"
    r"ArithmeticException|NullPointerException|NumberFormatException|IndexOutOfBoundsException|"
    r"DateTimeParseException|NoSuchElementException|NegativeArraySizeException"
)

ASK_NATIVE: Final = 'ask for a native one: "stop": {"format": "native"}'
_NO_CANONICAL: Final = (
    f"an operator, or its state backend, writes no canonical savepoint: {ASK_NATIVE}"
)
_DAMAGED = "see what it is: stateshift verify LOCATION"
# What happened, is told by these; why, by the last.
_RESTORING: Final = r"Could not restore (?:keyed|operator) state"
_FAILED_BEHIND: Final = r"savepoint has been created at"
_WAYS_OUT: Final = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in {
        r"Cannot map checkpoint/savepoint state for operator|There is no operator for the state": (
            "give the operator the uid it had (stateshift inspect LOCATION names them), "
            "rename it in the savepoint "
            '(stateshift rename), or leave its state behind: "allow_non_restored_state": true'
        ),
        r"Max parallelism mismatch": (
            "give the job the savepoint's max parallelism (stateshift inspect LOCATION "
            "tells it), or rewrite the "
            "savepoint: stateshift repartition"
        ),
        r"maximum parallelism \(\d+\) of the restored state is lower": (
            'a "parallelism" up to that, or a savepoint with a higher max parallelism: '
            "stateshift repartition"
        ),
        r"Unrecognized checkpoint version number": (
            "it was written by a later Flink than this one: run the job there, or write it "
            "in the older version: "
            "stateshift convert"
        ),
        r"Cannot find (?:checkpoint or savepoint|meta data) file": (
            "the savepoint has to be where the cluster's JobManager finds it under this "
            "very location"
        ),
        _RESTORING: (
            "the state does not fit the job, or its files are not what they should be "
            "(stateshift verify LOCATION): a "
            "native savepoint is restored by the state backend that wrote it alone, a "
            "canonical one by any"
        ),
        r"Unexpected magic number|^EOFException": _DAMAGED,
        r"does not support enforcing a full snapshot": (
            'a job with a changelog is restored without it: "flink_configuration": '
            '{"state.changelog.enabled": false} '
            '(before 2.0, {"state.backend.changelog.enabled": false})'
        ),
        (
            r"NoResourceAvailable|Could not acquire the minimum required resources|Slot "
            r"request bulk is not fulfillable"
        ): ("the cluster needs more free slots (TaskManagers), or the job a lower parallelism"),
        r"entry point class|Neither a 'Main-Class'": '"entry_class" has to be the class in the jar whose main is run',
        r"Jar file .* does not exist": '"jar_id" has to be one that GET /jars of the cluster lists; or give it a "jar"',
        r"Could not find a file system implementation for scheme": (
            "put the plugin of that file system into the cluster's plugins folder, or name "
            "another location"
        ),
        r"Failed to create savepoint directory|Could not flush and close the file system output": (
            "the savepoint's directory has to be one that JobManager and TaskManagers may write to"
        ),
        r"does not support CANONICAL savepoint": _NO_CANONICAL,
        r"Not all required tasks are currently running|is not being executed at the moment": (
            "a savepoint is taken of a job whose tasks all run: see why they do not; then: "
            "stateshift resume WORKDIR"
        ),
        r"Checkpoint expired before completing": (
            "it took longer than the job's execution.checkpointing.timeout; records that "
            "wait (backpressure) delay a "
            "savepoint: let the job catch up, then: stateshift resume WORKDIR"
        ),
        r"Checkpoint Coordinator is suspending|Task has failed|Checkpoint was declined": (
            "a task failed or declined while the savepoint was taken: look at the job's "
            "exceptions; then: "
            "stateshift resume WORKDIR"
        ),
        _FAILED_BEHIND: (
            "the job has failed for good, and its savepoint is whole: whoever is started from it "
            '("existing_savepoint_paths") completes the transactions in which the job wrote last'
        ),
        r"does not support changing the parallelism": (
            "only the adaptive scheduler does (jobmanager.scheduler: adaptive, of the "
            "whole cluster); else stop with a "
            "savepoint and start again with another parallelism"
        ),
        r"exceeds its maximum parallelism": (
            "a higher max parallelism needs a rewritten savepoint: stateshift repartition"
        ),
        r"already been submitted": "it is there: stateshift resume WORKDIR finds it",
        r"AnnotatedConnectException: |UnknownHostException: ": (
            "nothing answers there, where the SQL gateway looks for the JobManager: if "
            "that is called otherwise there, "
            'say so in the cluster: "flink_configuration": {"rest.address": HOST, '
            '"rest.port": PORT}'
        ),
        r"Could not find any factory for identifier": (
            "the connector's jar has to be in the lib folder of cluster and SQL gateway, "
            "or be added: ADD JAR 'FILE';"
        ),
        r"^CalciteContextException: .*(?:Object|Table) '.*' not found|Cannot find table '": (
            "the file has to create each table that it names, or USE the catalog that has it"
        ),
        r"^CalciteContextException: |^(?:Sql)?Pars\w*Exception: ": "mend the statement; no job was started",
        r"doesn't support consuming update": (
            "the query changes rows that it wrote: give the sink's table a primary key and "
            "a connector that upserts"
        ),
        r"Session '.*' does not exist": "the SQL gateway was started anew: stateshift resume WORKDIR",
        r"Could not find Flink job|^NotFoundException: Job ": (
            "it has ended and was forgotten, or another JobManager runs it: list them with "
            "GET /jobs/overview"
        ),
    }.items()
)


@dataclass(frozen=True, slots=True)
class Cause:
    """What was the matter, and the way out where we know one. `certain`: that nothing was done."""

    fact: str
    hint: str | None = None
    certain: bool = True


def cause_of(told: Any) -> Cause | None:
    """Of an answer that says no, or of a stack; None where it has nothing that can be told."""
    errors = told.get("errors") if isinstance(told, dict) else told
    text = "\n".join(map(str, errors)) if isinstance(errors, list) else str(errors or "")
    chain = list(_chain(text))
    if not chain:
        lines = [line for line in text.splitlines() if not _NOISE.match(line)]
        return Cause(_shown(lines[-1]), _known(lines[-1:])[1], certain=False) if lines else None
    snapshot = next((one for one in chain if "Could not complete snapshot" in one), None)
    if snapshot is not None and chain[-1].startswith("UnsupportedOperationException"):
        return Cause(f"{_shown(snapshot).rstrip('.')}: {_shown(chain[-1])}", _NO_CANONICAL)
    certain = not any(_UNCERTAIN.search(one.partition(":")[0]) for one in chain)
    known, hint = _known(chain)
    if known is None or ": " not in known:
        return Cause(_last(chain), hint, certain)
    where = re.search(f"{_RESTORING}|{_FAILED_BEHIND}", known) is not None and known != chain[-1]
    return Cause(
        f"{_shown(known).rstrip('.')}: {_shown(chain[-1])}" if where else _shown(known),
        hint,
        certain,
    )


def hopeless(stacks: Sequence[str], times: int = HOPELESS_TIMES) -> str | None:
    """Why a job fails each time that it is tried again, by its exceptions, newest first: the same
    state or the same record is met by the same code. An outage of a storage or a network is none of
    these, however often it comes.
    """
    causes = [cause_of(stack) for stack in stacks[:times]]
    facts = {cause.fact for cause in causes if cause is not None}
    if (
        len(causes) < times
        or len(facts) != 1
        or not all(_LASTS.search(stack) for stack in stacks[:times])
    ):
        return None
    return next(iter(facts))


def without_frames(stack: str) -> list[str]:
    """A stack's own lines."""
    return [
        redact(line, os.environ)[:_FACT_MAX]
        for line in stack.splitlines()
        if not _NOISE.match(line)
    ]


def _chain(text: str) -> Iterator[str]:
    """Each exception as `Name: message`, the outermost first; a message may have several lines."""
    current = None
    for line in text.splitlines():
        if _NOISE.match(line):
            continue
        found = _HEAD.match(line)
        if found is None:
            current = f"{current} {line}" if current is not None else None
            continue
        if current is not None:
            yield current
        current = found[1] + (f": {found[2]}" if found[2] else "")
    if current is not None:
        yield current


def _last(chain: list[str]) -> str:
    """The last that says something; the name alone only behind what it happened to."""
    root = chain[-1]
    if ": " in root:
        return _shown(root)
    context = next(
        (_shown(one) for one in chain[-2::-1] if ": " in one and not _EMPTY.search(one)), ""
    )
    return f"{context} ({root})" if context else root


def _known(chain: list[str]) -> tuple[str | None, str | None]:
    """The cause that tells what is the matter, where one does, and the way out: the nearest to
    the root.
    """
    for pattern, hint in _WAYS_OUT:
        found = next((cause for cause in chain[::-1] if pattern.search(cause)), None)
        if found is not None:
            return found, hint
    return None, None


def _shown(cause: str) -> str:
    """Without the exception's name where that says nothing, and without secrets."""
    name, _, message = cause.partition(": ")
    said = message if message and _SAYS_NOTHING.fullmatch(name) else cause
    nested = _HEAD.match(said) if said is message else None  # a wrapper's message is what it wraps
    shown = (
        _shown(f"{nested[1]}: {nested[2]}")
        if nested is not None and nested[2]
        else redact(said, os.environ)
    )
    return shown.strip()[:_FACT_MAX]
