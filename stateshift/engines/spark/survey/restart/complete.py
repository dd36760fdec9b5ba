"""Whether all operators of a query are there, each with all of its stores, as far as names tell.

    state/0, state/1, …   Spark numbers the operators of a plan from 0 on, without a hole, and each
                          of them writes state in every batch, whatever it gets
    a join's stores       two of each side, of formats 1 and 2 as of 4
    commits/N             names the operators that have state, under checkpoint format 2

A query without state has no operators. That one lacks the last of them, nothing but its plan tells.

Source: Spark, IncrementalExecution.nextStatefulOperationStateInfo, SymmetricHashJoinStateManager,
CommitMetadata.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.query_files import is_number
from stateshift.specification.transform import Change, Drop, Rename
from stateshift.survey import Operator

_JOIN_STORES = (
    frozenset(
        (
            "left-keyToNumValues",
            "left-keyWithIndexToValue",
            "right-keyToNumValues",
            "right-keyWithIndexToValue",
        )
    ),
    frozenset(
        ("left-keyWithTsToValues", "left-tsWithKey", "right-keyWithTsToValues", "right-tsWithKey")
    ),
)
_COPY = "restore {folder} from a copy of the checkpoint"


def refuse_incomplete(
    reading: Reading,
    operators: Sequence[Operator],
    named: Collection[str],
    epoch: int | None,
    changes: Sequence[Change] = (),
) -> None:
    """Refuse a query after a batch that is done, where an operator or a store is missing. `named`
    are the operators that the last commit names; `changes` are what is to be made of the image.
    """
    if epoch is None:
        return
    _refuse_holes(reading, [operator.id for operator in operators], changes)
    for operator in operators:
        names = {store.name for store in operator.stores}
        for stores in _JOIN_STORES:
            if names.isdisjoint(stores):
                continue
            for lacking in sorted(stores - names):
                folder = f"state/{operator.id}/0/{lacking}"
                reading.refuse(
                    f"{reading.path(folder)} is missing, and in all other shards: a join has "
                    f"{len(stores)} stores",
                    folder,
                    hint=f"restore the folders {lacking} from a copy of the checkpoint",
                )
    for operator_id in sorted(set(named) - {operator.id for operator in operators}):
        folder = f"state/{operator_id[:80]}"
        commit = layout.commit_path(epoch)
        reading.refuse(
            f"{reading.path(commit)} names state of operator {operator_id[:80]}, of which nothing "
            "is there",
            folder,
            hint=_COPY.format(folder=reading.path(folder)),
        )


def _refuse_holes(reading: Reading, ids: Sequence[str], changes: Sequence[Change]) -> None:
    """Refuse a number between others that no operator has. If operators are renamed or dropped,
    theirs are the numbers that they get, and it is a warning: who renames them one by one leaves a
    hole until the last of them is renamed.
    """
    after = _ids_after(ids, changes)
    for missing, present in _holes(ids if after is None else after):
        folder = reading.path(f"state/{missing}")
        fact = (
            f"{folder} is missing, and {reading.path(f'state/{present}')} is there: Spark numbers "
            "a query's operators from 0 on, without a hole, and starts none without its state"
        )
        if after is None:
            reading.refuse_unless_waived(
                fact,
                "operator-numbers",
                f"restore {folder} from a copy of the checkpoint, or give the operators the "
                "numbers of the changed query: stateshift rename --help",
            )
        else:
            reading.warn(fact, f"state/{missing}")


def _ids_after(ids: Iterable[str], changes: Iterable[Change]) -> list[str] | None:
    """Return the ids of operators behind changes of them; None where there are none."""
    names: Mapping[str, str] = {}
    dropped: Collection[str] = ()
    for change in changes:
        match change:
            case Rename():
                names = change.operators
            case Drop():
                dropped = change.operators
    if not names and not dropped:
        return None
    return [names.get(operator, operator) for operator in ids if operator not in dropped]


def _holes(ids: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the first number of each hole, and the number behind it."""
    expected = 0
    for number in sorted(int(operator) for operator in ids if is_number(operator)):
        if number != expected:
            yield expected, number
        expected = number + 1
