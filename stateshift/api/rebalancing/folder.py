"""The folder in which runs of rebalance keep their state.

FOLDER/
  moves/0001.json      a move, written before it begins: what, from where to where, its promise
  runs/0001-orders/    its workdir, an ordinary one; its journal says how far it has come
  refused/0001.json    a move that has failed (`past`)
  memory.json          in how many runs a cluster was too full, and which moves did not help
  samples/             what earlier looks at the jobs have seen
  cordons/west.json    a cluster that nothing moves to: written before a drain moves anything
  decisions/0001.json  a decision with all that it was made from; the last hundred are kept
  lock/held            flocked by the run at work: it lets go when it dies, however it dies

The place of a job follows from its moves and their journals. Nothing has to be written after a
move: a run that was killed at any point leaves nothing that the next one takes for something else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TypeVar
from urllib.parse import quote as quote_all

from stateshift.advise.rebalance.decision import Decision
from stateshift.advise.rebalance.memory import Memory, Moved
from stateshift.advise.rebalance.outcome import Cordon
from stateshift.advise.rebalance.situation import Policy, Situation
from stateshift.errors import JournalError
from stateshift.formats.marks import TEMPORARY
from stateshift.plain import Misfit, from_plain, to_plain
from stateshift.private_files import make_folder
from stateshift.workdir import Workdir

DECISIONS_KEPT = 100

T = TypeVar("T")


def usual_folder(workdirs: str, spec: str) -> str:
    """Return the folder in which runs of the spec in this file keep their state by default."""
    name, _ = os.path.splitext(os.path.basename(spec))
    return os.path.join(workdirs, f"rebalance-{name or 'spec'}")


class BusyError(Exception):
    """Another run is at work."""


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """A move as it was begun. `images` is where each job's image is afterwards, None where it stays
    as it was; `decision` is the number of the decision that it belongs to; `parallelism` is that of
    jobs that got another one.
    """

    number: int
    decision: int
    jobs: tuple[str, ...]
    source: str
    target: str
    at: float
    load_before: float
    load_promised: float
    images: Mapping[str, str | None] = field(default_factory=dict)
    parallelism: Mapping[str, int] = field(default_factory=dict)

    @property
    def moved(self) -> Moved:
        """Return the part of it that is judged."""
        return Moved(
            jobs=self.jobs,
            source=self.source,
            target=self.target,
            at=self.at,
            load_before=self.load_before,
            load_promised=self.load_promised,
        )


@dataclass(frozen=True, slots=True)
class Absence:
    """The jobs that run nowhere: since when, and why some of them count as ended."""

    since: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """The record that is kept beside the moves. `counts` belongs to the decision of that number,
    `counted` is when they were last raised; moves up to the number `judged` have been judged.
    `absence` is which jobs ran nowhere.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    decision: int = 0
    judged: int = 0
    failed: tuple[Moved, ...] = ()
    counted: Mapping[str, float] = field(default_factory=dict)
    absence: Absence = field(default_factory=Absence)


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision, and all that it was made from."""

    situation: Situation
    policy: Policy
    memory: Memory
    decision: Decision


class RebalanceFolder:
    """The folder of one spec's runs."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._files = Workdir(self.path)

    @property
    def place(self) -> Workdir:
        """The workdir of clusters that are only asked."""
        return Workdir(self.path / "plan")

    @property
    def samples(self) -> Path:
        """The folder of earlier looks."""
        return self.path / "samples"

    @property
    def runs(self) -> str:
        """The folder of the moves' workdirs."""
        return str(self.path / "runs")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the only run at work.

        Raises:
            BusyError: another one is.
        """
        make_folder(self.lock.path)
        holding = self.lock.hold()
        try:
            holding.__enter__()
        except JournalError as held:
            who = "another process"
            file = self.lock.path / "held"
            with suppress(OSError):  # else it cannot be read who holds it, and since when
                since = datetime.fromtimestamp(file.stat().st_mtime, UTC)
                who = file.read_text("utf-8", "replace").strip() or who
                who = f"{who}, since {since.isoformat(' ', 'seconds')[:19]} UTC"
            raise BusyError(who) from held
        with suppress(OSError):  # what a killed run has not finished writing
            for left in self.samples.glob(f"{TEMPORARY}*.tmp"):
                left.unlink(missing_ok=True)
        try:
            yield
        finally:
            holding.__exit__(None, None, None)

    @property
    def lock(self) -> Workdir:
        """The lock of the run at work. It is apart from the moves: whoever holds a workdir tidies
        up below it, and a person may be at work on a move.
        """
        return Workdir(self.path / "lock")

    # ---- moves

    def moves(self) -> list[MoveRecord]:
        """Return all moves that were begun, in their order.

        Raises:
            JournalError: one of them cannot be read.
        """
        return [self._read(f"moves/{name}", MoveRecord) for name in self._names("moves")]

    def next_move(self) -> int:
        """Return the number of the next move."""
        return _last_number([*self._names("moves"), *_names_in(self.path / "runs")]) + 1

    def keep_move(self, move: MoveRecord) -> None:
        """Write down a move that is about to begin."""
        self._files.write(f"moves/{move.number:04}.json", to_plain(move))

    def workdir(self, number: int, jobs: tuple[str, ...]) -> Workdir:
        """Return the workdir of a move."""
        slug = re.sub(r"[^A-Za-z0-9]+", "-", jobs[0]).strip("-")[:40] or "job"
        return Workdir(self.path / "runs" / f"{number:04}-{slug}")

    # ---- cordons

    def cordons(self) -> list[Cordon]:
        """Return the clusters that were cordoned, by their names.

        Raises:
            JournalError: one of them cannot be read.
        """
        names = [name for name in _names_in(self.path / "cordons") if name.endswith(".json")]
        return [self._read(f"cordons/{name}", Cordon) for name in names]

    def cordon(self, cluster: str, at: float) -> None:
        """Let nothing move to a cluster any more. One that is cordoned stays so since then."""
        if not (self.path / _cordon_of(cluster)).exists():
            self._files.write(_cordon_of(cluster), to_plain(Cordon(cluster, at)))

    def uncordon(self, cluster: str) -> None:
        """Let jobs move to a cluster again."""
        (self.path / _cordon_of(cluster)).unlink(missing_ok=True)

    # ---- memory

    def memory(self) -> MemoryRecord:
        """Return the memory of the last run.

        Raises:
            JournalError: it cannot be read.
        """
        if not (self.path / "memory.json").exists():
            return MemoryRecord()
        try:
            return self._read("memory.json", MemoryRecord)
        except JournalError as error:
            file = quote(str(self.path / "memory.json"))
            raise error.with_hint(
                f"restore {file} from a copy, or remove it: where jobs are is kept elsewhere. Only "
                "how often a cluster was too full is forgotten, which moves did not help, and "
                "which jobs have ended"
            ) from error

    def keep_memory(self, memory: MemoryRecord) -> None:
        """Write what the next run has to know."""
        self._files.write("memory.json", to_plain(memory))

    # ---- decisions

    def next_decision(self) -> int:
        """Return the number of the next decision."""
        return _last_number(self._names("decisions")) + 1

    def last_decision(self) -> Decision | None:
        """Return the last decision as it was made; None before the first.

        Raises:
            JournalError: it cannot be read.
        """
        names = self._names("decisions")
        if not names:
            return None
        try:
            return self._read(f"decisions/{names[-1]}", DecisionRecord).decision
        except JournalError as error:
            hint = "the next run of `stateshift rebalance` writes another decision"
            raise error.with_hint(hint) from error

    def decision(self, number: int) -> DecisionRecord | None:
        """Return a decision with its inputs; None of one that is not kept, or cannot be read."""
        name = f"decisions/{number:04}.json"
        if not (self.path / name).exists():
            return None
        with suppress(JournalError):
            return self._read(name, DecisionRecord)
        return None

    def keep_decision(self, number: int, document: Mapping[str, object]) -> str:
        """Write a decision with its inputs, and let go of old ones; return its file."""
        name = f"decisions/{number:04}.json"
        self._files.write(name, to_plain(document))
        for old in self._names("decisions")[:-DECISIONS_KEPT]:
            with suppress(OSError):
                (self.path / "decisions" / old).unlink()
        return str(self.path / name)

    def _names(self, folder: str) -> list[str]:
        names = _names_in(self.path / folder)
        numbered = [name for name in names if re.fullmatch(r"[0-9]{4,}\.json", name)]
        return sorted(numbered, key=lambda name: int(name.removesuffix(".json")))

    def _read(self, name: str, kind: type[T]) -> T:
        plain = self._files.read(name)
        try:
            value: T = from_plain(kind, plain)
        except Misfit as misfit:
            file = self.path / name
            hint = f"restore {quote(str(file))} from a copy"
            raise JournalError(f"{file} is damaged: {misfit}", hint=hint) from misfit
        return value


def _cordon_of(cluster: str) -> str:
    return f"cordons/{quote_all(cluster, safe='')}.json"


def _last_number(names: Iterable[str]) -> int:
    """Return the greatest of the numbers that names begin with."""
    numbers = [re.match("[0-9]+", name) for name in names]
    return max((int(number[0]) for number in numbers if number is not None), default=0)


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        hint = "run it as the user who runs `rebalance`, or name another folder"
        raise JournalError(f"{folder} cannot be read: {error.strerror}", hint=hint) from error
