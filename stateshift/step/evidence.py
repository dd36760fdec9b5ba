"""The evidence of finished steps: a class for each kind.

In the journal evidence is a JSON object without a kind. It is told apart by the one key that no
other kind has (`_KINDS`).

Evidence that fits no class (another version may have written it) is kept as OtherEvidence. Fields
that hold their default are left out; `repeated` is true where an earlier attempt was cut short,
whose share the evidence cannot tell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from stateshift import plain
from stateshift.errors import JournalError

E = TypeVar("E", bound="Evidence")
# The states of a job, by the words of `clusters.protocol.JobState`.
ALIVE = ("queued", "running")
OVER = ("absent", "finished", "failed")


class FileEvidence(NamedTuple):
    """A file as a step can show that it wrote it."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The part that every kind has."""

    repeated: bool = False

    def to_plain(self) -> dict[str, object]:
        """Return the JSON object that the journal holds."""
        values: dict[str, object] = {}
        for one in dataclasses.fields(self):
            value, default = getattr(self, one.name), one.default
            if one.default_factory is not dataclasses.MISSING:
                default = one.default_factory()
            if default is dataclasses.MISSING or value != default:
                values[one.name] = plain.to_plain(value)
        return values

    @classmethod
    def from_plain(cls, value: object, pointer: str = "") -> Evidence:
        """Return the evidence that the journal holds, of whatever kind."""
        if not isinstance(value, dict):
            raise plain.Misfit(pointer, "evidence is not an object")
        kind = next((kind for key, kind in _KINDS.items() if key in value), None)
        if kind is not None:
            with suppress(plain.Misfit):
                # Files are read here: a large job has a million of them, and the general reader
                # looks at each annotation again.
                done = {}
                if "files" in value:
                    done["files"] = _files(value["files"], f"{pointer}/files")
                return plain.read_fields(kind, value, pointer, done)
        rest = {key: item for key, item in value.items() if key != "repeated"}
        return OtherEvidence(rest, repeated=value.get("repeated") is True)


@dataclass(frozen=True, slots=True)
class OperatorFold:
    """The entries of an operator, counted in each unit, and the sum of their hashes."""

    digest: str
    entries: int
    files: int = plain.later(0)
    key_groups: int = plain.later(0)
    uncounted: int = plain.later(0)


@dataclass(frozen=True, slots=True)
class FilesWritten(Evidence):
    """Files that a step has written, and folds of shards read for them, by `reading_of`."""

    files: tuple[FileEvidence, ...]
    read: Mapping[str, OperatorFold] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilesBrought(Evidence):
    """`stamps` are those at the target, by name. `missed` files were gone or changed early."""

    files: tuple[FileEvidence, ...]
    stamps: Mapping[str, str]
    missed: int
    read_back: bool | None = None


@dataclass(frozen=True, slots=True)
class FilesKept(Evidence):
    """The files that were kept, and how many others were removed."""

    files: tuple[FileEvidence, ...]
    dropped: int


@dataclass(frozen=True, slots=True)
class FilesStaged(Evidence):
    """How many files wait under temporary names until they are published."""

    staged: int


@dataclass(frozen=True, slots=True)
class FilesMoved(Evidence):
    """The old and the new path of each file."""

    moved: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class FilesSetAside(Evidence):
    """The place to which files were set aside, how many, and how many could stay."""

    aside: str
    count: int
    stay: int


@dataclass(frozen=True, slots=True)
class ImagesCompared(Evidence):
    """`paths` files were compared whole, `by_checksum` of them by the storages' own checksums."""

    operators: Mapping[str, OperatorFold]
    paths: int = 0
    by_checksum: int = 0


@dataclass(frozen=True, slots=True)
class OwnersGiven(Evidence):
    """How many files and directories were given the owners of the source."""

    given: int


@dataclass(frozen=True, slots=True)
class OffsetsCommitted(Evidence):
    """How many offsets of a consumer group were set, at a moment."""

    group: str
    offsets: int
    at: float


@dataclass(frozen=True, slots=True)
class FenceReadied(Evidence):
    """`why` no file could be written beforehand."""

    ready: int
    why: str | None = None


@dataclass(frozen=True, slots=True)
class SourceFenced(Evidence):
    """The files that keep the old job from going on, and how a person removes them."""

    fenced: tuple[str, ...]
    undo: str = ""


@dataclass(frozen=True, slots=True)
class TargetClaimed(Evidence):
    """The generation under which a standby was claimed, and when; the epoch that it had, when the
    source had written that and when its round was published, the source's newest one as far as it
    is known, and the records at the brokers after the epoch's offsets.
    """

    generation: int
    at: float
    epoch: int | None = None
    committed_at: float | None = None
    newest: int | None = None
    records_unread: int | None = None
    published_at: float | None = None


@dataclass(frozen=True, slots=True)
class PrimaryFenced(Evidence):
    """The states of the primary's job before and after it was to be stopped, and the files that
    keep it from going on; `why` it could not be reached. `epoch` is its last one.
    """

    primary: str
    stopped: str
    paths: tuple[str, ...]
    at: float
    why: str = ""
    epoch: int | None = None

    @property
    def was_stopped(self) -> bool:
        return self.primary in ALIVE and self.stopped not in ALIVE

    @property
    def cannot_go_on(self) -> bool:
        """Whether its job is down, or cannot commit any more."""
        return bool(self.paths) or self.stopped in OVER


@dataclass(frozen=True, slots=True)
class FenceLifted(Evidence):
    """The fence's files that were removed, so that the job can go on there."""

    lifted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobStopped(Evidence):
    """States of a job, before and after it was asked to stop at a moment."""

    state_before: str
    state: str
    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ImageTaken(Evidence):
    """`failed` says how the job failed while it was stopped; `ended`: it does not go on."""

    image: str
    job_id: str
    at: float
    seconds: float
    failed: str | None = None
    ended: bool = plain.later(True)


@dataclass(frozen=True, slots=True)
class JobStarted(Evidence):
    """`seconds` is how long it was waited for, where it was."""

    job: str
    tag: str
    at: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class JobConfirmed(Evidence):
    """Which commits the job has written, and which queries had nothing to read, at a moment."""

    committed: tuple[str, ...]
    at: float
    idle: tuple[str, ...] = ()
    epoch: int | None = field(default=None)
    seconds: float = 0.0

    def to_plain(self) -> dict[str, object]:
        """Return all fields, also those that hold their default."""
        values: dict[str, object] = {
            "committed": list(self.committed),
            "idle": list(self.idle),
            "epoch": self.epoch,
            "at": self.at,
            "seconds": self.seconds,
        }
        return {**values, "repeated": True} if self.repeated else values


@dataclass(frozen=True, slots=True)
class OtherEvidence(Evidence):
    """Evidence of a kind that this version does not know, as it was written."""

    values: Mapping[str, object] = field(default_factory=dict)

    def to_plain(self) -> dict[str, object]:
        values = dict(self.values)
        return {**values, "repeated": True} if self.repeated else values


_OF_ANOTHER_VERSION = "the journal was written by another version of stateshift: use that one"

# The key that tells a kind, and the steps that show it. Kinds that have a key of another one, too,
# come first.
_KINDS: Mapping[str, type[Evidence]] = {
    "stamps": FilesBrought,  # BringFiles
    "dropped": FilesKept,  # KeepBrought
    "files": FilesWritten,  # CopyFiles, CopyInOrder, WriteFile, TransformShard
    "staged": FilesStaged,  # StageFiles
    "moved": FilesMoved,  # MoveFiles
    "aside": FilesSetAside,  # SetAside
    "operators": ImagesCompared,  # CompareImages
    "given": OwnersGiven,  # KeepOwners
    "group": OffsetsCommitted,  # CommitOffsets
    "ready": FenceReadied,  # ReadyFence
    "fenced": SourceFenced,  # FenceSource
    "generation": TargetClaimed,  # ClaimTarget
    "primary": PrimaryFenced,  # FencePrimary
    "lifted": FenceLifted,  # LiftFence
    "state_before": JobStopped,  # StopJob
    "image": ImageTaken,  # TakeSavepoint, TakeCheckpoint
    "tag": JobStarted,  # PrepareJob, SubmitJob
    "committed": JobConfirmed,  # AwaitProgress
}


def _files(value: object, pointer: str) -> tuple[FileEvidence, ...]:
    if not isinstance(value, list):
        raise plain.Misfit(pointer, "files are not a list")
    try:
        files = tuple(FileEvidence(path, size, digest) for path, size, digest in value)
    except (TypeError, ValueError):
        files = ()
    is_file = [tuple(map(type, file)) == (str, int, str) for file in files]
    if len(files) != len(value) or not all(is_file):
        raise plain.Misfit(pointer, "a file is not a path, a size and a digest")
    return files


def files_of(evidence: Evidence) -> tuple[FileEvidence, ...]:
    """Return the files of evidence that names some."""
    if isinstance(evidence, FilesWritten | FilesBrought | FilesKept):
        return evidence.files
    return of_kind(evidence, FilesWritten).files


def written_files(evidence: Evidence | None) -> tuple[FileEvidence, ...] | None:
    """Return the files that a step has shown; None where it was begun, and has shown nothing."""
    return None if evidence is None else files_of(evidence)


def of_kind(evidence: Evidence, kind: type[E]) -> E:
    """Return the evidence, if it is of the kind that a step gives."""
    if isinstance(evidence, kind):
        return evidence
    raise JournalError(
        f"the evidence of a step is {type(evidence).__name__}, not {kind.__name__}",
        hint=_OF_ANOTHER_VERSION,
    )


def require_known(evidence: Evidence | None) -> Evidence | None:
    """Return the evidence, to decide by its kind.

    Raises:
        JournalError: this version does not know the kind, and cannot tell what it says.
    """
    if isinstance(evidence, OtherEvidence) and evidence.values:
        raise JournalError(
            "a step's evidence is of a kind that this version does not know: "
            f"{', '.join(sorted(evidence.values))}",
            hint=_OF_ANOTHER_VERSION,
        )
    return evidence
