"""The cause in what Flink answers: the one line of a Java stack that says it, and the way out.

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
from typing import Final

from stateshift.clusters.redaction import redact

_HEAD = re.compile(
    r"(?:Caused by: )?(?:[\w$]+\.)*([\w$]*(?:Exception|Error|Throwable))(?:: (.*))?$", re.DOTALL
)
_NOISE = re.compile(
    r"\s|$|<Exception on server side:|End of exception on server side>|Internal server error\.$"
)
_SAYS_NOTHING = re.compile(
    r"(Runtime|IllegalState|IllegalArgument|Flink|FlinkRuntime|Completion|RestHandler|Checkpoint|"
    r"ProgramInvocation|JobInitialization|JobExecution|UnsupportedOperation|IO|SqlGateway|"
    r"SqlExecution|SqlParser|SqlParse|SqlValidator|Parse|Validation|Calcite|CalciteContext|Table)?"
    r"(Exception|Error)|SerializedThrowable"
)
# Nobody knows after one of these whether the thing that was asked for has happened, or will.
_UNCERTAIN = re.compile(
    r"Timeout|Fencing|RpcConnection|RecipientUnreachable|RemoteTransport|LeaderElection"
)
# A wrapper around a cause whose message is the cause, and one that says nothing.
_EMPTY = re.compile(r": (?:[\w$]+\.)+\w*(?:Exception|Error)$|: Caught unexpected exception")
_FACT_MAX: Final = 500
HOPELESS_TIMES: Final = 3
# The next attempt meets these again.
_LASTS = re.compile(
    r"StateMigrationException|serializer must (?:not )?be (?:in)?compatible|InvalidClassException|"
    r"ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError|NoSuchFieldError|"
    r"ClassCastException|StreamCorruptedException|KryoException|Unexpected state handle type|Key "
    r"group \d+ is not in|DeserializationException|Failed to deserialize|Unexpected magic number|"
    r"Cannot instantiate user function|ArithmeticException|NullPointerException|"
    r"NumberFormatException|IndexOutOfBoundsException|DateTimeParseException|"
    r"NoSuchElementException|NegativeArraySizeException"
)

ASK_NATIVE: Final = 'ask for a native one: "stop": {"format": "native"}'
_NO_CANONICAL: Final = (
    f"an operator, or its state backend, writes no canonical savepoint: {ASK_NATIVE}"
)
_DAMAGED = "see what it is: stateshift verify LOCATION"
# These say what happened; the root says why.
_RESTORING: Final = r"Could not restore (?:keyed|operator) state"
_FAILED_BEHIND: Final = r"savepoint has been created at"
_SAYS_WHERE: Final = re.compile(f"{_RESTORING}|{_FAILED_BEHIND}")
_WAYS_OUT: Final = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in {
        r"Cannot map checkpoint/savepoint state for operator|There is no operator for the state": (
            "give the operator the uid it had (stateshift inspect LOCATION names them), "
            "rename it in the savepoint "
            '(stateshift rename), or leave its state behind: "allow_non_restored_state": true'
        ),
        r"Max parallelism mismatch": (
            "give the job the savepoint's max parallelism (stateshift inspect LOCATION tells it), "
            "or rewrite the savepoint: stateshift repartition"
        ),
        r"maximum parallelism \(\d+\) of the restored state is lower": (
            'a "parallelism" up to that, or a savepoint with a higher max parallelism: '
            "stateshift repartition"
        ),
        r"Unrecognized checkpoint version number": (
            "it was written by a later Flink than this one: run the job there, or write it in the "
            "older version: stateshift convert"
        ),
        r"Cannot find (?:checkpoint or savepoint|meta data) file": (
            "the savepoint has to be where the cluster's JobManager finds it under this "
            "very location"
        ),
        _RESTORING: (
            "the state does not fit the job, or its files are not what they should be (stateshift "
            "verify LOCATION): a native savepoint is restored by the state backend that wrote it "
            "alone, a canonical one by any"
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
        r"entry point class|Neither a 'Main-Class'": (
            '"entry_class" has to be the class in the jar whose main is run'
        ),
        r"Jar file .* does not exist": (
            '"jar_id" has to be one that GET /jars of the cluster lists; or give it a "jar"'
        ),
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
            "exceptions; then: stateshift resume WORKDIR"
        ),
        _FAILED_BEHIND: (
            "the job has failed for good, and its savepoint is whole: whoever is started from it "
            '("existing_savepoint_paths") completes the transactions in which the job wrote last'
        ),
        r"does not support changing the parallelism": (
            "only the adaptive scheduler does (jobmanager.scheduler: adaptive, of the whole "
            "cluster); else stop with a savepoint and start again with another parallelism"
        ),
        r"exceeds its maximum parallelism": (
            "a higher max parallelism needs a rewritten savepoint: stateshift repartition"
        ),
        r"already been submitted": "it is there: stateshift resume WORKDIR finds it",
        r"AnnotatedConnectException: |UnknownHostException: ": (
            "nothing answers there, where the SQL gateway looks for the JobManager: if that is "
            'called otherwise there, say so in the cluster: "flink_configuration": '
            '{"rest.address": HOST, "rest.port": PORT}'
        ),
        r"Could not find any factory for identifier": (
            "the connector's jar has to be in the lib folder of cluster and SQL gateway, "
            "or be added: ADD JAR 'FILE';"
        ),
        r"^CalciteContextException: .*(?:Object|Table) '.*' not found|Cannot find table '": (
            "the file has to create each table that it names, or USE the catalog that has it"
        ),
        r"^CalciteContextException: |^(?:Sql)?Pars\w*Exception: ": (
            "mend the statement; no job was started"
        ),
        r"doesn't support consuming update": (
            "the query changes rows that it wrote: give the sink's table a primary key and "
            "a connector that upserts"
        ),
        r"Session '.*' does not exist": (
            "the SQL gateway was restarted: stateshift resume WORKDIR"
        ),
        r"Could not find Flink job|^NotFoundException: Job ": (
            "it has ended and was forgotten, or another JobManager runs it: list them with "
            "GET /jobs/overview"
        ),
    }.items()
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause, and the way out if we know one. `certain`: that nothing was done."""

    fact: str
    hint: str | None = None
    certain: bool = True


def cause_of(answer: object) -> Cause | None:
    """Return the cause in an answer that says no, or in a stack; None if neither says one."""
    errors = answer.get("errors") if isinstance(answer, dict) else answer
    text = "\n".join(map(str, errors)) if isinstance(errors, list) else str(errors or "")
    chain = list(_exceptions(text))
    if not chain:
        last = _telling_lines(text)[-1:]
        if not last:
            return None
        _, hint = _known(last)
        return Cause(_shown(last[0]), hint, certain=False)
    return _unsupported_snapshot(chain) or _cause_in_stack(chain)


def hopeless(stacks: Sequence[str], times: int = HOPELESS_TIMES) -> str | None:
    """Return the cause for which a job fails each time that it is tried again, by its exceptions,
    newest first: the same state or the same record is met by the same code. An outage of a storage
    or a network is none of these, however often it comes.
    """
    newest = stacks[:times]
    if len(newest) < times or not all(map(_LASTS.search, newest)):
        return None
    facts = {cause.fact for cause in map(cause_of, newest) if cause is not None}
    return facts.pop() if len(facts) == 1 else None


def without_frames(stack: str) -> list[str]:
    """Return a stack's own lines."""
    return [redact(line, os.environ)[:_FACT_MAX] for line in _telling_lines(stack)]


def _telling_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not _NOISE.match(line)]


def _unsupported_snapshot(chain: list[str]) -> Cause | None:
    """Return the cause if an operator cannot write this kind of savepoint."""
    root = chain[-1]
    if not root.startswith("UnsupportedOperationException"):
        return None
    snapshot = next((link for link in chain if "Could not complete snapshot" in link), None)
    return None if snapshot is None else Cause(_with_root(snapshot, root), _NO_CANONICAL)


def _cause_in_stack(chain: list[str]) -> Cause:
    names = [link.partition(":")[0] for link in chain]
    certain = not any(map(_UNCERTAIN.search, names))
    known, hint = _known(chain)
    root = chain[-1]
    if known is None or ": " not in known:
        return Cause(_last(chain), hint, certain)
    if known != root and _SAYS_WHERE.search(known):
        return Cause(_with_root(known, root), hint, certain)
    return Cause(_shown(known), hint, certain)


def _with_root(link: str, root: str) -> str:
    return f"{_shown(link).rstrip('.')}: {_shown(root)}"


def _exceptions(text: str) -> Iterator[str]:
    """Yield each exception as `Name: message`, the outermost first; messages may have lines."""
    current = None
    for line in _telling_lines(text):
        head = _HEAD.match(line)
        if head is not None:
            if current is not None:
                yield current
            current = f"{head[1]}: {head[2]}" if head[2] else head[1]
        elif current is not None:
            current = f"{current} {line}"
    if current is not None:
        yield current


def _last(chain: list[str]) -> str:
    """Return the root, or what it happened to with its name, if it has no message."""
    *outer, root = chain
    if ": " in root:
        return _shown(root)
    for link in reversed(outer):
        if ": " in link and not _EMPTY.search(link):
            return f"{_shown(link)} ({root})"
    return root


def _known(chain: list[str]) -> tuple[str | None, str | None]:
    """Return the cause that is known, if one is, and the way out: the nearest to the root."""
    for pattern, hint in _WAYS_OUT:
        cause = next(filter(pattern.search, reversed(chain)), None)
        if cause is not None:
            return cause, hint
    return None, None


def _shown(cause: str) -> str:
    """Return a cause without the exception's name if that says nothing, and without secrets."""
    name, _, message = cause.partition(": ")
    if not message or not _SAYS_NOTHING.fullmatch(name):
        return redact(cause, os.environ).strip()[:_FACT_MAX]
    wrapped = _HEAD.match(message)  # a wrapper's message is what it wraps
    if wrapped is not None and wrapped[2]:
        return _shown(f"{wrapped[1]}: {wrapped[2]}")
    return redact(message, os.environ).strip()[:_FACT_MAX]
