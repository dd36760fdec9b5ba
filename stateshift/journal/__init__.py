"""The journal of a run: records, one a line, and their fold.

records   one thing that happened, at one time
progress  everything a journal says so far; `advance(progress, record)` is the whole state machine

The journal's bytes are lines, appended so that each is on disk before the next effect begins:

    line  =  crc32 of the JSON, 8 hex digits | blank | JSON | newline

A kill leaves behind a last line that is cut short: it is dropped, its effect is repeated. A damaged
line anywhere else is refused.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from stateshift import plain
from stateshift.errors import JournalError
from stateshift.journal.progress import PlanProgress, Progress, State, StepProgress, advance, fold
from stateshift.journal.records import (
    BootNoted,
    CommandName,
    GivenCommand,
    ImageKept,
    Invocation,
    LockReleased,
    LockTaken,
    OriginNoted,
    PlanAdopted,
    PlanFinished,
    PlansForgotten,
    PlanUndone,
    Record,
    Rehearsed,
    RollbackRefused,
    RollbackStarted,
    RoundSeen,
    RpoJudged,
    RunFailed,
    RunFinished,
    RunResumed,
    RunRolledBack,
    RunStarted,
    SourceLost,
    Steered,
    StepFinished,
    StepStarted,
    StepUndone,
    Warned,
    WaveGivenUp,
)

__all__ = [
    "BootNoted",
    "CommandName",
    "GivenCommand",
    "ImageKept",
    "Invocation",
    "Journal",
    "Lines",
    "LockReleased",
    "LockTaken",
    "OriginNoted",
    "PlanAdopted",
    "PlanFinished",
    "PlanProgress",
    "PlanUndone",
    "Progress",
    "Record",
    "Rehearsed",
    "RollbackRefused",
    "RollbackStarted",
    "RoundSeen",
    "RpoJudged",
    "RunFailed",
    "RunFinished",
    "RunResumed",
    "RunRolledBack",
    "RunStarted",
    "SourceLost",
    "State",
    "Steered",
    "StepFinished",
    "StepProgress",
    "StepStarted",
    "StepUndone",
    "Warned",
    "WaveGivenUp",
    "advance",
    "decode_records",
    "encode_record",
    "expect_ours",
    "fold",
]


def encode_record(record: Record) -> bytes:
    """Return the line of a record: the checksum of its JSON, and the JSON."""
    text = plain.canonical(record).encode("utf-8", "surrogatepass")
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_records(content: bytes) -> tuple[list[Record], int]:
    """Return the records and their bytes: the rest of `content` is a line that was cut short."""
    records: list[Record] = []
    good = 0
    while good < len(content):
        end = content.find(b"\n", good)
        if end < 0:
            break
        record: Record | None = None
        head, _, text = content[good:end].partition(b" ")
        with suppress(ValueError, RecursionError):
            if len(head) == 8 and int(head, 16) == zlib.crc32(text):
                record = read_record(json.loads(text), len(records))
        if record is None:
            if end + 1 == len(content):
                break
            raise JournalError(
                f"record {len(records)} of the journal is damaged (at byte {good})",
                record=len(records),
                hint="nothing was changed; restore the workdir's `journal` from a copy, or look "
                "at the target with `stateshift verify LOCATION` and remove it by hand",
            )
        records.append(record)
        good = end + 1
    return records, good


def read_record(value: object, number: int) -> Record:
    """Return the record of a line whose checksum fits: what we do not know is no damage."""
    try:
        record: Record = plain.from_plain(Record, value)
        return record
    except plain.Misfit as misfit:
        raise JournalError(
            f"record {number} of the journal is of another version of stateshift: {misfit}",
            record=number,
            hint="nothing was changed; take the version that began this run, or a newer one: "
            "`stateshift` in proposal.json says which",
        ) from misfit


class Lines(Protocol):
    """The place in which the journal's bytes are kept."""

    def read(self) -> bytes: ...

    def append(self, line: bytes) -> None:
        """Durable when it returns."""
        ...

    def cut(self, size: int) -> None:
        """Drop the bytes after `size`."""
        ...

    def replace(self, content: bytes) -> None:
        """Hold this instead, all of it or nothing. Durable when it returns."""
        ...


SEEN_KEPT = 64  # looks at jobs that run, of a journal that is rewritten


class Journal:
    """The journal of one run, held by one process, written by several threads. Reading it changes
    nothing: a line that was cut short is dropped just before the next one is written. `followers`
    get each record once it is durable, in order, one at a time: they raise and append nothing.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines, self._lock = lines, threading.Lock()
        content = lines.read()
        records, self._good = decode_records(content)
        self._torn = self._good < len(content)
        if self._torn:
            expect_ours(content[self._good :])
        self.progress = fold(iter(records))
        self.followers: list[Callable[[Record], None]] = []

    def append(self, record: Record) -> Progress:
        with self._lock:
            progress, line = advance(self.progress, record), encode_record(record)
            if self._torn:
                self._lines.cut(self._good)
            self._torn = True  # if this one fails, a part of it may be there
            self._lines.append(line)
            self._torn = False
            self._good += len(line)
            self.progress = progress
            for follow in self.followers:
                follow(record)
            return progress

    def forget(self, plans: Collection[int], job: str) -> None:
        """Rewrite it without these plans, whose numbers stay taken: another plan replaces them."""
        with self._lock:
            records, _ = decode_records(self._lines.read())
            kept = tuple(_without(records, plans, Counter({job: -1})))
            content = b"".join(map(encode_record, kept))
            progress = fold(iter(kept))
            self._lines.replace(content)
            self._good, self._torn, self.progress = len(content), False, progress


def _without(
    records: Sequence[Record], plans: Collection[int], rounds: Counter[str]
) -> Iterator[Record]:
    seen = [record for record in records if isinstance(record, RoundSeen)]
    kept = [record for record in records if isinstance(record, ImageKept | RpoJudged)]
    newest = {(record.kind, record.job): id(record) for record in kept}.values()
    old = set(map(id, seen[:-SEEN_KEPT])) | (set(map(id, kept)) - set(newest))
    count, last = 0, 0.0
    for record in records:
        if id(record) in old:
            continue
        number = getattr(record, "plan", None)
        if number in plans:
            if isinstance(record, PlanAdopted):
                count, last = count + 1, record.at
                rounds[record.job] += record.purpose == "warm"
            continue
        if isinstance(record, PlansForgotten):
            count, last = count + record.count, record.at
            rounds.update(record.rounds)
            continue
        if count and isinstance(record, PlanAdopted):
            yield PlansForgotten(last, count, dict(rounds))
            count, rounds = 0, Counter()
        yield record
    if count:
        yield PlansForgotten(last, count, dict(rounds))


def expect_ours(tail: bytes) -> None:
    """Refuse a file of somebody else's. A kill or crash of the machine leaves zeros, or the begin
    of a line of ours: the checksum and the bracket.
    """
    head, _, text = tail[:10].partition(b" ")
    is_checksum = len(head) <= 8 and all(digit in b"0123456789abcdef" for digit in head)
    begins_as_ours = is_checksum and text[:1] in (b"", b"{")
    if not begins_as_ours and tail.strip(b"\0\n"):
        raise JournalError(
            "the journal does not end as one that stateshift wrote",
            hint=(
                "nothing was changed; look at the end of the workdir's `journal`, and restore it "
                "from a copy"
            ),
        )
