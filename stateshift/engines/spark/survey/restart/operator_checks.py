"""Whether all operators of a query are there, each with all of its stores, as far as names tell;
and whether what lies in an operator's `_metadata` is of that operator.

    state/0, state/1, …   Spark numbers the operators of a plan from 0 on, without a hole, and each
                          of them writes state in every batch, whatever it gets
    a join's stores       two of each side, of formats 1 and 2 as of 4
    commits/N             names the operators that have state, under checkpoint format 2

A query without state has no operators. That one lacks the last of them, nothing but its plan tells.

Spark compares the metadata with the query's plan before it starts, and refuses a query whose
metadata has another id or another name:

    operatorId    the number of the directory `state/<op>`
    operatorName  one of NAMES
    storeName     each of its stores has files in some shard, once a batch is committed
    _stateSchema  `_metadata/v2` has to say which schemas of format 3 apply; those of
                  transformWithState have to be there, those of a join are written again

A v1 that is no JSON at all Spark leaves alone, with a warning of its own (4.3). One that is JSON
with bytes in it that are no UTF-8 it reads, each such byte as U+FFFD.

Source: Spark 4.3, IncrementalExecution.nextStatefulOperationStateInfo and
checkOperatorValidWithMetadata, SymmetricHashJoinStateManager, CommitMetadata,
StatefulOperatorsUtils (the names), StreamingGlobalLimitExec.shortName,
StateStoreWriter.operatorStateMetadataVersion.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.query_files import is_number
from stateshift.engines.spark.versions import NEWEST
from stateshift.errors import MissingFile
from stateshift.formats.spark.operator_metadata import (
    AGGREGATION,
    REAL_TIME_AGGREGATION,
    OperatorMetadata,
)
from stateshift.specification.transform import Change, Drop, Rename
from stateshift.survey import Finding, Operator

NAMES = frozenset(
    {
        AGGREGATION,
        REAL_TIME_AGGREGATION,
        "sessionWindowStateStoreSaveExec",
        "dedupe",
        "dedupeWithinWatermark",
        "globalLimit",
        "symmetricHashJoin",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
        "transformWithStateExec",
        "transformWithStateInPandasExec",
        "transformWithStateInPySparkExec",
    }
)
_REMOVE = "remove it: Spark starts without, and writes it again"


def check(reading: Reading, operator: str, path: str) -> None:
    """Refuse metadata that is readable, and of another operator."""
    try:  # as Spark reads it; what it cannot read says nothing
        _, _, text = reading.content(path).partition(b"\n")
        info = json.loads(text.decode(errors="replace"))["operatorInfo"]
        number, name = info.get("operatorId"), info.get("operatorName")
    except (MissingFile, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return
    if isinstance(number, int) and str(number) != operator:
        fault = f"is of operator {number}, and lies in that of operator {operator}"
    elif isinstance(name, str) and name not in NAMES:
        fault = f"is of an operator {name[:80]!r}, which no Spark up to {NEWEST} has"
    else:
        return
    fact = f"{reading.path(path)} {fault}: Spark refuses to start"
    reading.refuse(fact, path, hint=_REMOVE if layout.is_spare(path) else None)


def check_version(reading: Reading, operator: str, newest: str | None, files: list[str]) -> None:
    """Refuse schemas of format 3 where nothing says which of them apply."""
    if newest is not None and not layout.is_spare(newest):
        return
    if any("/_stateSchema/" in path for path in files):
        path = f"state/{operator}/_metadata/v2"
        fact = (
            f"{reading.path(path)} holds no metadata of operator {operator}, which says where "
            "its schemas are"
        )
        reading.refuse(f"{fact}: Spark refuses to start", path)


def check_schemas(reading: Reading, path: str, decoded: OperatorMetadata, files: list[str]) -> None:
    """Refuse schemas that are named and not there."""
    if not decoded.name.startswith("transformWithState"):
        return
    listed = {file.rpartition("/")[2] for file in files if "/_stateSchema/" in file}
    for schema in named_schemas(decoded):
        name = schema.rpartition("/")[2]
        if name not in listed:
            fact = f"the schema {name} is missing, which {reading.path(path)} names"
            own = f"state/{schema.rpartition('/state/')[2]}" if "/state/" in schema else path
            hint = f"restore {reading.path(own)} from a copy of the checkpoint"
            reading.refuse(f"{fact}: Spark refuses to start", own, hint=hint)
            return


def check_stores(
    reading: Reading, path: str, decoded: OperatorMetadata, stores: Collection[str]
) -> None:
    """Refuse metadata of a store without files: it is another's, or the state is gone."""
    for store in decoded.stores:
        if store.name not in stores:
            named = f"{reading.path(path)} names the store {store.name[:80]!r}"
            reading.refuse(
                f"{named}, of which no file is there",
                path,
                hint="restore that store, or this file, from a copy of the checkpoint",
            )


def named_schemas(metadata: OperatorMetadata) -> Iterator[str]:
    """Yield the paths of the schemas that an operator's metadata names."""
    for store in metadata.stores:
        yield from store.schema_paths


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
    """Refuse missing operators and stores of a query after a batch that is done."""
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
    names: Mapping[str, str] = {}
    dropped: Collection[str] = ()
    for change in changes:
        match change:
            case Rename():
                names = change.operators
            case Drop():
                dropped = change.operators
    if not names and not dropped:
        after = None
    else:
        after = [names.get(operator, operator) for operator in ids if operator not in dropped]
    numbers = sorted(int(id) for id in (ids if after is None else after) if is_number(id))
    for before, present in pairwise((-1, *numbers)):
        if present == before + 1:
            continue
        missing = before + 1
        folder = reading.path(f"state/{missing}")
        fact = (
            f"{folder} is missing, and {reading.path(f'state/{present}')} is there: Spark numbers "
            "a query's operators from 0 on, without a hole, and starts none without its state"
        )
        if after is None:
            # No damage of a file: a spec may waive it.
            hint = (
                f"restore {folder} from a copy of the checkpoint, or give the operators the "
                "numbers of the changed query: stateshift rename --help"
            )
            finding = Finding("refuse", fact, waive="operator-numbers", hint=hint)
            reading.findings.append(finding)
        else:
            reading.warn(fact, f"state/{missing}")
