"""The failure of a Spark job, or of a query of one that still runs: the newest exception in its
output. Pure.

The output of a driver is its log and, in between, its prints. These lines say that something is
over:

    a query ended; a stack follows  ... ERROR MicroBatchExecution:
                                        Query [id = X, runId = Y] terminated with error
    it was started again            ... INFO MicroBatchExecution:
                                        Starting [id = X, runId = Z]. Use ...
    the driver ends, or hangs       Exception in thread "main" NAME: message
    the same, as YARN says it       ... User class threw exception: NAME: message
    the same, of a Python driver    Traceback (most recent call last):
    spark-submit gave up            Error: Failed to load class NAME.

(apache/spark: StreamExecution.runStream, deploy/SparkSubmit, deploy/yarn/ApplicationMaster.) In a
stack everything that wraps comes first, and each "Caused by:" is nearer to the matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from stateshift.clusters.protocol import JobFailure, Remedy
from stateshift.clusters.redaction import redact

FACT_MAX: Final = 500
# As often, a query may fail with the same and be started again by its own job.
TIMES_MAX: Final = 3
LOG_BYTES: Final = 1 << 18
LOG_LINES: Final = 2000
# An exception's message is read as far as this, and so many are looked for inside each other.
LINK_MAX: Final = 1 << 14
LINKS_MAX: Final = 32

_LOGGED = re.compile(r"(?:\d\d/\d\d/\d\d|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d:\d\d")
_QUERY_ENDED = re.compile(r"Query .*\[id = ([\w-]+), runId = ([\w-]+)\] terminated with error")
_QUERY_BEGAN = re.compile(r"Starting .*\[id = ([\w-]+), runId = [\w-]+\]\. Use ")
_MAIN = re.compile(r'(?:Exception in thread "main" |User class threw exception: )(.*)')
_TRACEBACK: Final = "Traceback (most recent call last):"
_LAUNCHER = re.compile(r"(?:Error: |\S*python[\d.]*: )(.*)")
_LOGGED_ERROR = re.compile(r"\b(?:ERROR|FATAL)\b")
_FRAME = re.compile(r"\s+(?:at |\.\.\. \d+ more)")
_HEAD = re.compile(
    r"(?:\s*Caused by: |: )?"
    r"((?:[a-z_][\w$]*\.)+[A-Z][\w$.]*|[A-Z]\w*(?:Error|Exception|Interrupt|Exit))(?:: ?(.*))?$",
    re.DOTALL,
)
_RUN = re.compile(r"runId = ([\w-]+)")
# One exception inside the message of another.
_INNER = (
    re.compile(r"terminated with exception: (.+)", re.DOTALL),
    re.compile(r"most recent failure: Lost task [^:]*?\)(?: \([^)]*\))?: (.+)", re.DOTALL),
)
# Behind these comes what is nearer to the matter; alone they say nothing.
_SAYS_NOTHING = re.compile(
    r"Job aborted due to stage failure|Traceback \(most recent call last\)|An error occurred while "
    r"calling|Exception thrown in awaitResult|Application \S+ finished with (?:failed|killed) "
    r"status|^SystemExit|An exception was thrown from the Python|^Driver stacktrace|Writing job "
    r"aborted|^SparkUserAppException: User "
    r"application exited with"
)
# One is only heard of these because something else has gone down.
_ECHO = re.compile(
    r"Py4JNetworkError|ConnectionRefused|ConnectionReset|KeyboardInterrupt|SparkContext (?:was|has "
    r"been) shut ?down|Application \S+ finished with (?:failed|killed) status|InterruptedException|"
    r"Cannot call methods on a stopped SparkContext|Answer from Java side is empty"
)
# Spark prints these after a message.
_PLAN = re.compile(r"=== Streaming Query ===|SQLSTATE: \w+|Driver stacktrace:|JVM stacktrace:")
_PLAIN_NAME = re.compile(r"(?:Spark|SparkRuntime|Runtime|IllegalState|Streaming\w*Query)?Exception")

_REMEDIES: Final[tuple[tuple[Remedy, re.Pattern[str]], ...]] = (
    (
        Remedy.OTHER_JOB,
        re.compile(
            r"SchemaNotCompatible|STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|"
            r"ROW_FORMAT_VALIDATION_FAILURE|InvalidUnsafeRow|Provided (?:key |value )?schema "
            r"doesn.t match|NOT_MATCH_IN_STATE_METADATA|sources in the checkpoint offsets and now "
            r"there are|DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE|"
            r"STATE_STORE_UNSUPPORTED_OPERATION|STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE|"
            r"STATE_STORE_(?:INVALID_)?\w*SCHEMA_EVOLUTION"
        ),
    ),
    (
        Remedy.ROLLBACK,
        re.compile(
            r"CANNOT_LOAD_STATE_STORE|CANNOT_READ_(?:DELTA|SNAPSHOT|STREAMING_STATE|STATE)|"
            r"FAILED_TO_READ_|Error reading (?:delta|snapshot|streaming state) file|Failed to read "
            r"(?:delta|snapshot) file|batch \d+ (?:doesn't exist|not found)|batch(?:es)? "
            r".*(?:doesn't|don't) exist|BATCH_METADATA_NOT_FOUND|Incomplete log file|Log file was "
            r"malformed|MALFORMED_LOG_FILE|STREAMING_CHECKPOINT_\w+|MALFORMED_STATE|CheckpointInfo "
            r"length|UNSUPPORTED_LOG_VERSION|UnsupportedLogVersion"
        ),
    ),
    (
        Remedy.OTHER_SUBMIT,
        re.compile(
            r"ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError|Failed to (?:load|get "
            r"main) class|ModuleNotFoundError|ImportError|can't open file|DATA_SOURCE_NOT_FOUND|"
            r"Failed to find data source|No main class set|Unrecognized option|unrecognized "
            r"arguments|Missing application resource|UnsupportedClassVersionError|File file:\S+ "
            r"does not exist and is not|Cannot load main class"
        ),
    ),
)


@dataclass
class _Event:
    """Something that is over: a query, or the driver. `lines` are those of its stack. `was_seen`:
    the log says when it began, so that it would say when it began again. `is_certain`: no job
    prints such a line and goes on.
    """

    query: str | None = None
    run: str | None = None
    of_driver: bool = False
    is_certain: bool = False
    was_seen: bool = False
    started_again: bool = False
    lines: list[str] = field(default_factory=list)

    @property
    def is_end(self) -> bool:
        return self.of_driver or self.query is not None

    @property
    def is_lasting(self) -> bool:
        return self.is_certain and not self.started_again

    @cached_property
    def chain(self) -> tuple[str, ...]:
        """The exceptions of the stack, the outermost first. To be read once all lines are there."""
        return tuple(_exceptions(self.lines))

    @cached_property
    def fact(self) -> tuple[Remedy, str | None]:
        """The remedy and the cause: the cause that is known, and the root of it."""
        if not self.chain:
            return Remedy.UNKNOWN, None
        links = [link for link in self.chain if not _SAYS_NOTHING.search(link)]
        if not links:
            links = list(self.chain)
        innermost_first = links[::-1]
        root = next((link for link in innermost_first if ": " in link), links[-1])
        for remedy, pattern in _REMEDIES:
            known = next(filter(pattern.search, innermost_first), None)
            if known is None:
                continue
            shown = _shown(root)
            message = shown.partition(": ")[2] or shown
            if known is root or _words(message) <= _words(known) | {"file"}:
                return remedy, _shown(known)
            return remedy, f"{_shown(known).rstrip('.')}: {shown}"  # the root says more
        return Remedy.UNKNOWN, _shown(root)


def failure_of(log: str, alive: bool) -> JobFailure | None:
    """Return the failure of the job; of one that is `alive`, that after which it cannot go on."""
    events = _events(log)
    ends = [event for event in events if event.is_end]
    if alive:
        newest = _newest([end for end in ends if end.is_lasting], ())
    else:
        newest = _newest(ends, events)
    if newest is None:
        return None
    # The own stack of a query with which the driver failed says more.
    runs = set(_RUN.findall("\n".join(newest.lines)))
    named = (event for event in events if event.run in runs)
    explaining = next((event for event in named if event.chain), newest)
    remedy, fact = explaining.fact
    if fact is None:
        return None
    final = remedy is not Remedy.UNKNOWN or _has_repeated(explaining, events)
    known_to_last = final or newest.of_driver or newest.was_seen
    if alive and not known_to_last:
        # its job may have started it again, with a log level at which Spark does not say so
        return None
    # One line, without secrets, and with nothing in it that a terminal would act on.
    line = " ".join(redact(fact, os.environ).split())
    printable = (letter if letter.isprintable() else "?" for letter in line)
    return JobFailure("".join(printable)[:FACT_MAX], remedy, newest.query, final)


def _has_repeated(meant: _Event, events: Sequence[_Event]) -> bool:
    """Whether a query has failed with the same so often that it will again."""
    if meant.query is None:
        return False
    of_query = [event for event in events if event.query == meant.query]
    times = sum(event.fact[1] == meant.fact[1] for event in of_query)
    return times >= TIMES_MAX


def _events(log: str) -> list[_Event]:
    events: list[_Event] = []
    seen: set[str] = set()
    current: _Event | None = None
    in_frames = True
    for line in log.splitlines():
        opened = _opened(line, in_frames or current is None)
        began = _QUERY_BEGAN.search(line)
        if began is not None:
            seen.add(began[1])
            for event in events:
                event.started_again |= event.query == began[1]
        if opened is not None:
            opened.was_seen = opened.query in seen
            current = opened
            events.append(opened)
        elif _LOGGED.match(line):
            current = None
        elif current is not None and not _FRAME.match(line):
            current.lines.append(line)
        in_frames = _FRAME.match(line) is not None
    return events


def _opened(line: str, alone: bool) -> _Event | None:
    """Return the event that this line begins; a traceback inside a Java message is none."""
    ended = _QUERY_ENDED.search(line)
    if ended is not None:
        return _Event(query=ended[1], run=ended[2], is_certain=True)
    main = _MAIN.search(line)
    if main is not None:
        return _Event(of_driver=True, is_certain=True, lines=[main[1]])
    if line.startswith(_TRACEBACK) and alone:
        return _Event(of_driver=True)
    launcher = _LAUNCHER.match(line)
    if launcher is not None and alone:
        return _Event(of_driver=True, lines=[line])
    if _LOGGED.match(line) and _LOGGED_ERROR.search(line):
        return _Event()
    head = _HEAD.match(line)
    if head is not None and alone and not line.startswith((" ", "\t", ":", "Caused by")):
        return _Event(lines=[line])
    return None


def _newest(over: Sequence[_Event], others: Sequence[_Event]) -> _Event | None:
    """Return the last that is over and no mere echo; else the last of the others."""
    for events in (over, others):
        for event in reversed(events):
            if not all(map(_ECHO.search, event.chain)):
                return event
    return next((event for event in reversed(over) if event.chain), None)


def _exceptions(lines: list[str]) -> Iterator[str]:
    """Yield each exception as `Name: message`, the outermost first; messages may have lines."""
    current = None
    for line in lines:
        head = _HEAD.match(line)
        if head is not None:
            if current is not None:
                yield from _unwrapped(current)
            current = f"{_last_name(head)}: {head[2]}" if head[2] else _last_name(head)
        elif current is None:
            launcher = _LAUNCHER.match(line)
            current = line if launcher is not None else None
        elif line.strip() and not line.startswith("  ") and len(current) < LINK_MAX:
            current = f"{current} {line.strip()}"
    if current is not None:
        yield from _unwrapped(current)


def _unwrapped(link: str) -> Iterator[str]:
    inside: str | None = link[:LINK_MAX]
    for _ in range(LINKS_MAX):
        if inside is None:
            return
        yield inside
        inside = _inner(inside)


def _inner(link: str) -> str | None:
    matches = (pattern.search(link) for pattern in _INNER)
    inner = next((match[1] for match in matches if match is not None), None)
    if inner is None:
        return None
    head = _HEAD.match(inner)
    if head is None or head[2] is None:
        return inner
    return f"{_last_name(head)}: {head[2]}"


def _last_name(head: re.Match[str]) -> str:
    return str(head[1]).rpartition(".")[2]


def _shown(link: str) -> str:
    """Return an exception without its name if that says nothing, and without the query's plan."""
    shown = _PLAN.split(link)[0].strip()
    name, _, message = shown.partition(": ")
    return message if message and _PLAIN_NAME.fullmatch(name) else shown


def _words(text: str) -> set[str]:
    return {word.strip(".,:;").lower() for word in text.split()}
