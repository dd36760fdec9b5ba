"""Entries that are left behind by a condition in SQL on their columns, by DuckDB.

    {"where": "key.country = 'de'", "rules": {"<operator>/<store>": KeyRule},
     "values": {"<operator>/<store>": "<schema>"}}

A condition is asked of `key`, and of `value` where an operator has one store: the entries of
several belong together. It has to fit every store, so that none of them keeps what others lose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from stateshift.engines.spark.entries.columnar import keys_of, values_of
from stateshift.engines.spark.entries.keys import KeyRule
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.vectors import array, arrow_type
from stateshift.engines.spark.rewrite.stores import of_stores
from stateshift.errors import FormatError, PlanError
from stateshift.formats.spark.types import decode_struct
from stateshift.plain import JsonObject, from_plain

if TYPE_CHECKING:
    from stateshift.formats.blocks import RowBlock


@dataclass(frozen=True)
class Condition:
    """A condition on the columns of one store."""

    where: str
    view: StoreView

    def check(self) -> None:
        """Ask it of no entry.

        Raises:
            PlanError: DuckDB is not installed, or the condition does not fit the columns.
        """
        self._true_of(self._table([], []))

    def false_of(self, block: RowBlock) -> RowBlock:
        """Return the entries of which it is not true."""
        view = self.view
        keys, values = keys_of(view, block.keys), None
        if keys is None:
            keys = [view.decode_key(key) for key in block.keys.to_pylist()]
        if view.value is not None:
            values = values_of(view, block.values)
            if values is None:
                values = [view.decode_value(value) for value in block.values.to_pylist()]
        stays = np.ones(len(block), bool)
        stays[self._true_of(self._table(keys, values))] = False
        return block.take(np.flatnonzero(stays))

    def _table(self, keys: object, values: object) -> pa.Table:
        columns = {}
        for name, rows, kind in (("key", keys, self.view.key), ("value", values, self.view.value)):
            if kind is not None:
                columns[name] = array(rows, arrow_type(kind)) if isinstance(rows, list) else rows
        return pa.table(columns)

    def _true_of(self, rows: pa.Table) -> list[int]:
        """Return the numbers of the rows of which it is true."""
        try:
            import duckdb
        except ImportError as error:
            hint = "pip install 'stateshift[sql]'"
            raise PlanError("`prune` needs DuckDB, which is not installed", hint=hint) from error
        rows = rows.append_column("row number", pa.array(range(len(rows)), pa.int64()))
        with duckdb.connect() as database:
            database.register("entries", rows)
            try:
                asked = f'select "row number" from entries where ({self.where}\n)'
                return [number for (number,) in database.sql(asked).fetchall()]
            except duckdb.Error as error:
                fact = str(error).strip().partition("\n\nLINE")[0].replace("\n", " ")
                raise PlanError(f"store {self.view.store}: {fact}") from error


def conditions(part: JsonObject, operator: str) -> dict[str, Condition]:
    """Return the condition for each store of an operator."""
    values = of_stores(part["values"], operator)
    found = {}
    for store, rule in of_stores(part["rules"], operator).items():
        view = StoreView.of_rule(store, from_plain(KeyRule, rule))
        if store in values:
            view = replace(view, value=decode_struct(values[store]))
        found[store] = Condition(part["where"], view)
    return found


def filter_of(part: JsonObject, operator: str) -> Callable[[str, RowBlock], RowBlock]:
    """Return the function that leaves behind the entries of which the condition is true."""
    asked = conditions(part, operator)

    def kept(store: str, block: RowBlock) -> RowBlock:
        if store not in asked:
            raise FormatError(f"entries of the store {store}, which no schema describes")
        return asked[store].false_of(block) if len(block) else block

    return kept
