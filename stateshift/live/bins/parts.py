"""The workers of a group, and the operators that each runs.

bins/workers/NUMBER.json        a worker's name
bins/runs/OPERATOR.NAME.json    a worker's start of an operator
bins/evicted/HASH.json          a start whose name was taken from it, as it is in `runs`
bins/keys/OPERATOR.NAME.json    its way of hashing keys, once it has read some
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stateshift.errors import AlreadyThere
from stateshift.live.folder import file_name
from stateshift.live.protocol.chains import encode
from stateshift.live.values import ValueFiles

RUNS = "bins/runs"
EVICTED = "bins/evicted"
KEYS = "bins/keys"


@dataclass(frozen=True, slots=True)
class Membership:
    """A worker: its number, and its name."""

    number: int
    name: str
    at: float


@dataclass(frozen=True, slots=True)
class OperatorStart:
    """A worker's word on the operator that it runs, when it starts."""

    operator: str
    worker: str
    form: str
    key: tuple[str, ...]
    time: tuple[str, ...]
    output: str
    code: str
    python: str
    at: float
    home: str = ""
    host: str = ""
    # Until somebody starts under its name again. Older versions write it here.
    is_evicted: bool = False


@dataclass(frozen=True, slots=True)
class KeyHashing:
    """The kinds by which a worker hashes keys (`hashing`), from its first rows since it started."""

    operator: str
    worker: str
    kinds: tuple[str, ...]
    at: float


class PartFiles(ValueFiles):
    """The files about the workers."""

    def join(self, joined: Membership) -> Membership:
        """Give a worker the next number, unless its name has one."""
        while True:
            known = self.joined()
            for other in known:
                if other.name == joined.name:
                    return other
            mine = replace(joined, number=len(known))
            with contextlib.suppress(AlreadyThere):
                self.storage.create(f"bins/workers/{mine.number}.json", encode(mine))
                return mine

    def joined(self) -> tuple[Membership, ...]:
        """Return all workers, by number."""
        found: list[Membership] = []
        while (one := self.worker(len(found))) is not None:
            found.append(one)
        return tuple(found)

    def worker(self, number: int) -> Membership | None:
        """Return a worker by its number; None if there is none yet."""
        return self._read(Membership, f"bins/workers/{number}.json")

    def runs(self) -> tuple[OperatorStart, ...]:
        """Return the starts of all workers, with those that are evicted."""
        evicted = {file.path for file in self.storage.list(EVICTED)}
        found: list[OperatorStart] = []
        for runs in self._all(OperatorStart, RUNS):
            is_evicted = runs.is_evicted or _evicted(runs) in evicted
            found.append(replace(runs, is_evicted=is_evicted))
        return tuple(found)

    def run(self, runs: OperatorStart) -> None:
        self._write_durably(part_file(RUNS, runs.operator, runs.worker), encode(runs))

    def evict_start(self, runs: OperatorStart) -> None:
        """Say that a start was evicted. Whoever starts under its name meanwhile is another one."""
        with contextlib.suppress(AlreadyThere):
            self.storage.create(_evicted(runs), encode(replace(runs, is_evicted=True)))

    def keyed(self, operator: str, worker: str) -> KeyHashing | None:
        """Return a worker's way of hashing keys; None if it has not said so."""
        return self._read(KeyHashing, part_file(KEYS, operator, worker))

    def say_keyed(self, keyed: KeyHashing) -> None:
        self._write_durably(part_file(KEYS, keyed.operator, keyed.worker), encode(keyed))

    def forget_keyed(self, parts: Iterable[KeyHashing]) -> None:
        for keyed in parts:
            self.storage.remove(part_file(KEYS, keyed.operator, keyed.worker))

    def imported(self) -> tuple[KeyHashing, ...]:
        """Return the imported parts that nobody has started: who starts says first that it runs."""
        started = {(runs.operator, runs.worker) for runs in self.runs()}
        keyed = self._all(KeyHashing, KEYS)
        return tuple(each for each in keyed if (each.operator, each.worker) not in started)


def _evicted(runs: OperatorStart) -> str:
    start = encode(replace(runs, is_evicted=False))
    return f"{EVICTED}/{hashlib.sha256(start).hexdigest()}.json"


def part_file(under: str, operator: str, worker: str) -> str:
    """Return the path of a worker's word about its part in an operator."""
    return f"{under}/{file_name(operator)}.{file_name(worker)}.json"
