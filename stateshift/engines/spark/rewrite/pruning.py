"""Entries that are left behind by a condition in SQL on their columns, by DuckDB.

    {"where": "key.country = 'de'", "operator": "0", "rules": {"<operator>/<store>": KeyRule},
     "values": {"<operator>/<store>": "<schema>"}}

A condition is of one operator. It is asked of `key`, and of `value` where the operator has one
store: the entries of several belong together. It has to fit every store, so that none of them keeps
what others lose; and it is one expression that says the same of an entry whenever it is asked, for
it is asked of each store, and once more when source and target are compared.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.columnar import keys_of, values_of
from stateshift.engines.spark.entries.keys import KeyRule
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.vectors import array, arrow_type
from stateshift.engines.spark.rewrite.stores import Kept, belongs, of_stores
from stateshift.engines.sql import Condition
from stateshift.errors import FormatError, PlanError
from stateshift.formats.spark.types import decode_struct
from stateshift.plain import JsonObject, from_plain

if TYPE_CHECKING:
    from stateshift.formats.blocks import RowBlock


@dataclass(frozen=True)
class StoreCondition:
    """A condition on the columns of one store."""

    where: str
    view: StoreView

    @cached_property
    def _asked(self) -> Condition:
        return Condition(self.where, self.view.store)

    def check(self) -> None:
        """Check that it fits the columns.

        Raises:
            PlanError: it does not, or is none; or DuckDB is not installed.
        """
        assert self.view.key is not None, "asked before whether the columns are known"
        names = Counter(name.lower() for name in self.view.key.names)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise PlanError(f"store {self.view.store} has several columns {twice[0]} in its key")
        self._asked.check(self._table([None], [None]), self._names)

    def false_of(self, block: RowBlock) -> RowBlock:
        """Return the entries that stay."""
        view = self.view
        keys, values = keys_of(view, block.keys), None
        if keys is None:
            keys = [view.decode_key(key) for key in block.keys.to_pylist()]
        if view.value is not None:
            values = values_of(view, block.values)
            if values is None:
                values = [view.decode_value(value) for value in block.values.to_pylist()]
        stays = np.ones(len(block), bool)
        stays[self._asked.true_of(self._table(keys, values), self._names)] = False
        return block.take(np.flatnonzero(stays))

    @property
    def _names(self) -> list[str]:
        return ["key"] if self.view.value is None else ["key", "value"]

    def _table(self, keys: object, values: object) -> pa.Table:
        columns = {}
        for name, rows, kind in (("key", keys, self.view.key), ("value", values, self.view.value)):
            if kind is not None:
                columns[name] = array(rows, arrow_type(kind)) if isinstance(rows, list) else rows
        return pa.table(columns)


def conditions(part: JsonObject, operator: str) -> dict[str, StoreCondition]:
    """Return the condition for each store of an operator."""
    values = of_stores(part["values"], operator)
    found = {}
    for store, rule in of_stores(part["rules"], operator).items():
        view = StoreView.of_rule(store, from_plain(KeyRule, rule))
        if store in values:
            view = replace(view, value=decode_struct(values[store]))
        found[store] = StoreCondition(part["where"], view)
    return found


def filter_of(part: JsonObject, operator: str, shard: int) -> Kept:
    """Return the function that leaves behind, of one shard, what does not belong to the part."""
    if "where" not in part:
        return belongs(part, operator, shard)
    if part["operator"] != operator:
        return lambda store, block: block
    asked = conditions(part, operator)

    def stay(store: str, block: RowBlock) -> RowBlock:
        if store not in asked:
            raise FormatError(f"entries of the store {store}, which no schema describes")
        return asked[store].false_of(block) if len(block) else block

    return stay
