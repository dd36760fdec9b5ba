"""Histories of changes of functions, and whether one is as good as one thing after the other.

    Data       an operator has processed a tuple                          phi in the paper
    Update     one worker of an operator has taken its new function       mu
    History    operations in the order in which they happened

A tuple's *scope* is it and everything that was made of it. All data operations on the scope of one
source tuple are one *data transaction*; all updates of one reconfiguration are one *function-update
transaction*. Two operations conflict when they are of different transactions, on the same worker of
the same operator, and one of them is an update. A history is *conflict-serialisable* when the
transactions can be put in an order that leaves all conflicts as they were; it is not, exactly when
the conflicts lead from a transaction back to itself. `check` finds the shortest such way.

With versions (the multi-version scheduler) not the moment decides but the version a tuple was
processed with.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True, slots=True)
class Data:
    """`version`: 0 for the old function, 1 for the new one, where it was the tuple that said
    which; else None.
    """

    tuple: str
    operator: str
    worker: int = 0
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """One worker of an operator has taken its new function."""

    operator: str
    worker: int = 0
    transaction: str = "update"


Operation = Data | Update
History = Sequence[Operation]


@dataclass(frozen=True, slots=True)
class Conflict:
    """`first` came before `second`; so the one transaction has to be before the other."""

    before: str
    first: Operation
    after: str
    second: Operation

    def __str__(self) -> str:
        first, second = clause(self.first), clause(self.second)
        return f"{self.before} before {self.after}: {first}, and then {second}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`cycle` is empty where the history is conflict-serialisable; else what leads from a
    transaction back to it.
    """

    cycle: tuple[Conflict, ...] = ()

    @property
    def serialisable(self) -> bool:
        return not self.cycle

    def __str__(self) -> str:
        if not self.cycle:
            return "conflict-serialisable"
        names = [conflict.before for conflict in self.cycle]
        title = f"not conflict-serialisable: {' -> '.join([*names, names[0]])}"
        return "\n".join([title, *(f"  {conflict}" for conflict in self.cycle)])


def check(history: History, derived: Mapping[str, str] | None = None) -> Verdict:
    """Whether the history is conflict-serialisable. `derived` says of which tuple each tuple was
    made.
    """
    after: dict[str, dict[str, Conflict]] = defaultdict(dict)
    for conflict in conflicts(history, derived or {}):
        after[conflict.before].setdefault(conflict.after, conflict)
    cycles = filter(None, (_way_back(after, start) for start in sorted(after)))
    return Verdict(min(cycles, key=len, default=()))


def source_of(name: str, derived: Mapping[str, str]) -> str:
    """Return the source tuple that a tuple was made of, or itself."""
    while name in derived:
        name = derived[name]
    return name


def scope(source: str, derived: Mapping[str, str]) -> frozenset[str]:
    """Return a source tuple and all that was made of it."""
    made = {name for name in derived if source_of(name, derived) == source}
    return frozenset(made | {source})


def transactions(history: History, derived: Mapping[str, str]) -> dict[str, tuple[Operation, ...]]:
    """Return the operations of each transaction, in their order."""
    by_transaction: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_transaction[_owner(operation, derived)].append(operation)
    return {name: tuple(operations) for name, operations in by_transaction.items()}


def conflicts(history: History, derived: Mapping[str, str]) -> Iterator[Conflict]:
    """Yield every pair of operations that conflict, in the order that counts."""
    by_worker: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for operation in history:
        by_worker[operation.operator, operation.worker].append(operation)
    for operations in by_worker.values():
        yield from _conflicts_of_worker(operations, derived)


def _conflicts_of_worker(
    operations: Sequence[Operation], derived: Mapping[str, str]
) -> Iterator[Conflict]:
    updates = [(place, op) for place, op in enumerate(operations) if isinstance(op, Update)]
    for (place, operation), (update_place, update) in product(enumerate(operations), updates):
        if _owner(operation, derived) == update.transaction:
            continue
        is_earlier = place < update_place
        # Of two updates, the pair is counted once.
        if is_earlier or isinstance(operation, Data):
            yield _ordered(operation, update, is_earlier, derived)


def clause(operation: Operation) -> str:
    """Return an operation as a clause of a sentence."""
    at = f"{operation.operator}[{operation.worker}]" if operation.worker else operation.operator
    match operation:
        case Update():
            return f"{at} takes its new function"
        case Data(version=int(version)):
            return f"{at} processes {operation.tuple} with its {('old', 'new')[version]} function"
        case Data():
            return f"{at} processes {operation.tuple}"


def _owner(operation: Operation, derived: Mapping[str, str]) -> str:
    match operation:
        case Update():
            return operation.transaction
        case Data():
            return source_of(operation.tuple, derived)


def _ordered(
    operation: Operation, update: Update, earlier: bool, derived: Mapping[str, str]
) -> Conflict:
    if isinstance(operation, Data) and operation.version is not None:
        earlier = operation.version == 0
    owner = _owner(operation, derived)
    if earlier:
        return Conflict(owner, operation, update.transaction, update)
    return Conflict(update.transaction, update, owner, operation)


def _way_back(after: Mapping[str, Mapping[str, Conflict]], start: str) -> tuple[Conflict, ...]:
    """Return the shortest way from a transaction to itself; () if there is none."""
    came: dict[str, Conflict] = {}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for other, conflict in after.get(here, {}).items():
            if other not in came:
                came[other] = conflict
                waiting.append(other)
        if start in came:
            return tuple(_walked(came, start))
    return ()


def _walked(came: Mapping[str, Conflict], start: str) -> Iterable[Conflict]:
    way = [came[start]]
    while way[0].before != start:
        way.insert(0, came[way[0].before])
    return way
