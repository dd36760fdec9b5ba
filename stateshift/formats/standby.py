"""The files of a standby beside its image, by which a machine that has nothing else can start it.

    _stateshift/standby.json    what was copied, from where, and how the job is started here; it is
                                written whole, after the image that it tells of
    _stateshift/epoch-N/PATH    what an engine reads first of an epoch that is kept, where that of
                                the next one takes its name (Flink's `_metadata`)
    _stateshift/aside-N/PATH    what came after the epoch that the failover of generation N has
                                started from
    _stateshift/generation-N    who may write here: each takes the next number, by a file that is
                                created exclusively. Whoever has fed the standby stops once it finds
                                a higher one
    _stateshift/drills.json     how the last rehearsals of its start have ended

And at the primary, beside the fence that a failover has put up there:

    _stateshift/superseded.json    where the job runs now, and from which epoch on

Pure: names, bytes and values, no storage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from stateshift import plain
from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.marks import FOLDER
from stateshift.plain import JsonObject

STATE = f"{FOLDER}/standby.json"
SUPERSEDED = f"{FOLDER}/superseded.json"
DRILLS = f"{FOLDER}/drills.json"
DRILLS_KEPT = 50
VERSION = 1
SECONDS_MAX = 253_402_300_800  # the year 10,000

_CLAIM = re.compile(rf"{FOLDER}/generation-([0-9]{{1,9}})")

T = TypeVar("T")

# The commands that claim a location. A failback that is over has `returned` the job.
Verb = Literal["standby", "failover", "failback", "returned"]


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write at a location. `verb` is the command that has taken it; `epoch` is what a
    failover starts the job from, as soon as it knows it.
    """

    generation: int
    verb: Verb
    run: str
    host: str
    workdir: str
    at: float
    epoch: int | None = plain.later(None)


@dataclass(frozen=True, slots=True)
class KeptImage:
    """One image of the standby: its folder below the location, its epoch and query id."""

    path: str
    epoch: int | None
    identity: str | None


@dataclass(frozen=True, slots=True)
class ReadUpTo:
    """A job whose output another one reads: no more than there was at the end of this epoch."""

    job: str
    epoch: int


@dataclass(frozen=True, slots=True)
class KeptEpoch:
    """An epoch that the standby can be started from: `committed_at` is when the source wrote it,
    `at` when the round has published it; `checked` if its copy was read to its end before.
    `records` are those around its offsets, of a job that reads on at other brokers.
    """

    epoch: int
    committed_at: float | None
    at: float
    checked: bool = False
    read_up_to: tuple[ReadUpTo, ...] = plain.later(())
    records: Mapping[str, plain.Value] | None = plain.later(None)

    @property
    def written_at(self) -> float | None:
        """When the source had written it, which was before its round was published: the clock of
        the source's storage may be ahead.
        """
        return None if self.committed_at is None else min(self.committed_at, self.at)


@dataclass(frozen=True, slots=True)
class OtherStandby:
    """The standby of another job, by the spec that feeds both."""

    job: str
    location: str


@dataclass(frozen=True, slots=True)
class StandbyState:
    """A standby as its last round has left it. `spec` starts the job from here; `committed_at` is
    when the source wrote the newest epoch that was kept, `at` when the round has published it,
    `checked` if its copy was read to its end before; `earlier` are epochs before that one which are
    still there, the newest first. `as_of` is when the source had nothing newer, and
    `rpo_seconds_max` how long that may be ago. `home` moves the job back once it runs here, as
    far as it is known how. `coming` are epochs that are being published, which may be there.
    `reads_from` are the jobs whose output it reads, by the dataflow of that spec; `read_up_to`, how
    far it had read it at most.
    """

    job: str
    engine: str
    location: str
    source: str
    epoch: int | None
    images: tuple[KeptImage, ...]
    committed_at: float | None
    at: float
    run: str
    spec: JsonObject
    as_of: float | None = plain.later(None)
    rpo_seconds_max: float | None = plain.later(None)
    checked: bool = plain.later(False)
    earlier: tuple[KeptEpoch, ...] = plain.later(())
    reads_from: tuple[OtherStandby, ...] = plain.later(())
    read_up_to: tuple[ReadUpTo, ...] = plain.later(())
    records: Mapping[str, plain.Value] | None = plain.later(None)
    home: JsonObject | None = None
    coming: tuple[KeptEpoch, ...] = plain.later(())

    @property
    def kept(self) -> tuple[KeptEpoch, ...]:
        """The epochs that it can be started from, the newest first; none of a workflow, whose
        queries have one each.
        """
        if self.epoch is None:
            return ()
        return (
            KeptEpoch(
                self.epoch,
                self.committed_at,
                self.at,
                self.checked,
                self.read_up_to,
                self.records,
            ),
            *self.earlier,
        )


def epoch_folder(epoch: int) -> str:
    """Return the folder of files of a kept epoch whose own names a later one has taken."""
    return f"{FOLDER}/epoch-{epoch}"


def aside_folder(generation: int) -> str:
    """Return the folder to which a failover moves what came after the epoch it starts from."""
    return f"{FOLDER}/aside-{generation}"


@dataclass(frozen=True, slots=True)
class Superseded:
    """A primary whose job was started from its standby at `successor`, from `epoch` on. `newest` is
    the primary's own last epoch; `host` and `workdir` are of the failover.
    """

    job: str
    engine: str
    successor: str
    epoch: int | None
    newest: int | None
    run: str
    host: str
    workdir: str
    at: float

    @property
    def batches_ahead(self) -> int | None:
        """How many epochs of the primary the job at the standby has not."""
        if self.epoch is None or self.newest is None:
            return None
        return max(0, self.newest - self.epoch)


@dataclass(frozen=True, slots=True)
class Drill:
    """A rehearsal that has ended. `failure` is why it has failed, and empty of a good one;
    `seconds` is how long each stage took, up to the job's first batch.
    """

    run: str
    at: float
    epoch: int | None
    failure: str
    seconds: Mapping[str, float]
    host: str
    workdir: str

    @property
    def is_good(self) -> bool:
        """Whether the job has gone on from the copy."""
        return not self.failure


@dataclass(frozen=True, slots=True)
class DrillHistory:
    """The last rehearsals of a standby, the oldest first."""

    drills: tuple[Drill, ...] = ()

    @property
    def last(self) -> Drill | None:
        """The newest rehearsal."""
        return self.drills[-1] if self.drills else None

    @property
    def last_good(self) -> Drill | None:
        """The newest rehearsal in which the job has gone on."""
        return next((drill for drill in reversed(self.drills) if drill.is_good), None)

    def with_drill(self, drill: Drill) -> DrillHistory:
        """Return the history with this one; a run is in it once."""
        others = [other for other in self.drills if other.run != drill.run]
        return DrillHistory((*others, drill)[-DRILLS_KEPT:])


def claim_path(generation: int) -> str:
    """Return the path of the file that claims a location."""
    return f"{FOLDER}/generation-{generation}"


def generation_of(path: str) -> int | None:
    """Return the generation that a file claims; None for any other file."""
    found = _CLAIM.fullmatch(path)
    return None if found is None else int(found[1])


def encode_claim(claim: Claim) -> bytes:
    """Return the content of a claim."""
    return _encode(claim)


def decode_claim(content: bytes, path: str) -> Claim:
    """Return the claim that a file makes.

    Raises:
        FormatError: it is none of this version.
    """
    return _decode(Claim, content, path, "claim of a standby")


def encode_state(state: StandbyState) -> bytes:
    """Return the content of the state file."""
    return _encode(state)


def decode_state(content: bytes) -> StandbyState:
    """Return the standby that a state file tells of.

    Raises:
        FormatError: it is none of this version.
    """
    state = _decode(StandbyState, content, STATE, "state file of a standby")
    times = [state.at, state.committed_at, state.as_of, state.rpo_seconds_max]
    for kept in (*state.earlier, *state.coming):
        times += [kept.at, kept.committed_at]
    for seconds in times:
        if seconds is not None and not 0 <= seconds < SECONDS_MAX:
            raise FormatError(f"not the state file of a standby: a time of {seconds} s", STATE, 0)
    return state


def encode_superseded(superseded: Superseded) -> bytes:
    """Return the content of the note at a primary."""
    return _encode(superseded)


def decode_superseded(content: bytes) -> Superseded:
    """Return the note at a primary.

    Raises:
        FormatError: it is none of this version.
    """
    return _decode(Superseded, content, SUPERSEDED, "note of a failover at its primary")


def encode_drills(history: DrillHistory) -> bytes:
    """Return the content of the history of drills."""
    return _encode(history)


def decode_drills(content: bytes) -> DrillHistory:
    """Return the drills that a history tells of.

    Raises:
        FormatError: it is none of this version.
    """
    return _decode(DrillHistory, content, DRILLS, "history of a standby's drills")


def _encode(value: object) -> bytes:
    document = {"version": VERSION, **plain.to_plain(value)}
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _decode(kind: type[T], content: bytes, path: str, name: str) -> T:
    try:
        document = json.loads(content)
        version = document.pop("version")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"not the {name}: {error}", path, 0) from error
    if version != VERSION:
        raise UnknownVersion(
            f"the {name} is of version {version!r}, and this stateshift knows {VERSION}",
            path,
            0,
            hint="use the version that has written it, or a later one",
        )
    try:
        read: T = plain.from_plain(kind, document)
    except (plain.Misfit, RecursionError) as error:
        raise FormatError(f"not the {name}: {error}", path, 0) from error
    return read
