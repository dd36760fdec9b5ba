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

from collections.abc import Collection, Iterable, Sequence

from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.query_files import is_number
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
    reading: Reading, operators: Sequence[Operator], named: Collection[str], epoch: int | None
) -> None:
    """Refuse a query after a batch that is done, where an operator or a store is missing. `named`
    are the operators that the last commit names.
    """
    if epoch is None:
        return
    _warn_of_holes(reading, [operator.id for operator in operators])
    for operator in operators:
        _refuse_lacking_stores(reading, operator)
    for operator_id in sorted(set(named) - {operator.id for operator in operators}):
        folder = f"state/{operator_id[:80]}"
        commit = layout.commit_path(epoch)
        reading.refuse(
            f"{reading.path(commit)} names state of operator {operator_id[:80]}, of which nothing "
            "is there",
            folder,
            hint=_COPY.format(folder=reading.path(folder)),
        )


def _warn_of_holes(reading: Reading, ids: Iterable[str]) -> None:
    """Warn of a number between others that no operator has. It is no refusal: who renames operators
    one by one leaves such a hole until the last of them is renamed.
    """
    numbers = sorted(int(operator) for operator in ids if is_number(operator))
    expected = 0
    for number in numbers:
        if number != expected:
            folder = f"state/{expected}"
            reading.warn(
                f"{reading.path(folder)} is missing, and {reading.path(f'state/{number}')} is "
                "there: Spark numbers a query's operators from 0 on, without a hole, and starts "
                "none without its state",
                folder,
            )
        expected = number + 1


def _refuse_lacking_stores(reading: Reading, operator: Operator) -> None:
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
