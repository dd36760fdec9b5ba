"""Rows that are checked while they are read to be rewritten, so that a look beforehand
need not read them. Pure.

    rules_of(request)   "<operator>/<store>" -> RowRule, of these stores

They are those of operators that have one store, of plain rows: aggregations and session windows.
Whether the stores of a join agree shows only where all of them are read together, and rows of other
operators are read by more than their schema. And they are the large ones: a small state is looked
at in no time, and a look says what is wrong before anything is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from stateshift import plain
from stateshift.engines.spark.entries.fold import folded
from stateshift.engines.spark.entries.keys import KeyRule
from stateshift.engines.spark.entries.row_check import RowCheck
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.store_views import Views
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.request import Request
from stateshift.engines.spark.rewrite.stores import StoreState, of_stores
from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, Block
from stateshift.formats.spark.offset_conf import is_strict
from stateshift.formats.spark.types import decode_struct
from stateshift.plain import JsonObject
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom

# The rules of a store's files.
BYTES_MIN = 64 * 1024 * 1024

_KINDS = ("stateStoreSave", "sessionWindowStateStoreSaveExec")


@dataclass(frozen=True, slots=True)
class RowRule:
    """How rows of a store are read, and in how many shards they are. They are `strict` where all
    columns of a key decide its shard. A plain value: it stands in the options of transforms.
    """

    key: KeyRule
    value: str
    shards: int
    strict: bool

    def view(self, store: str) -> StoreView:
        return replace(StoreView.of_rule(store, self.key), value=decode_struct(self.value))


def rules_of(request: Request) -> dict[str, RowRule]:
    """Return the rules of all stores whose rows are checked while they are rewritten."""
    if request.joining is not None or request.other_provider:
        return {}
    operators = {operator.id: operator for operator in request.image.operators}
    stores_of_operator = Counter(store.operator for store in request.stores)
    rules: dict[str, RowRule] = {}
    for store in request.stores:
        operator = operators[store.operator]
        is_alone = stores_of_operator[store.operator] == 1
        if operator.name in _KINDS and is_alone and request.size(store.shards) >= BYTES_MIN:
            rules |= _rules(request, store, operator.shards)
    return rules


def _rules(request: Request, store: StoreState, shards: int) -> dict[str, RowRule]:
    """Return the rules of a store, or of its column families; none where not all are known."""
    schemas = spark_image(request.image).schemas
    strict = is_strict(request.image.settings)
    rules: dict[str, RowRule] = {}
    for name, key in (store.rules or {}).items():
        whole = f"{store.operator}/{name}"
        schema = schemas[whole]
        if schema["avro"] or schema["lists"]:
            return {}
        rules[whole] = RowRule(key, schema["value"], shards, strict)
    return rules


@dataclass(frozen=True)
class RowChecks:
    """The reader of the sources of a piece of one operator; its rows are checked where there are
    rules for them.
    """

    rules: Mapping[str, JsonObject]
    operator: str
    read: ReadFrom

    def folded(
        self, source: ShardFiles, settings: Mapping[str, str]
    ) -> Iterator[tuple[str, Block]]:
        """Yield the entries of a source."""
        own = self._rules
        if not own:
            yield from folded(self.read, source, settings)
            return
        views = Views({(self.operator, store): rule.view(store) for store, rule in own.items()})
        first = next(iter(own.values()))
        rows = RowCheck(self.read, source, first.strict, first.shards)

        def deleted(store: str, keys: Binary) -> None:
            rows.check_deleted(views.of(self.operator, store), keys)

        for store, block in folded(self.read, source, settings, deleted=deleted):
            rows.sound(views.of(self.operator, store), block)
            _refuse(rows)
            yield store, block
        _refuse(rows)

    @cached_property
    def _rules(self) -> dict[str, RowRule]:
        plain_rules = of_stores(self.rules, self.operator).items()
        return {store: plain.from_plain(RowRule, rule) for store, rule in plain_rules}


def _refuse(rows: RowCheck) -> None:
    """Refuse a source from which no job could restart."""
    if not rows.are_refused:
        return
    first = next(finding for finding in rows.findings() if finding.level == "refuse")
    raise FormatError(
        first.message,
        hint="`stateshift verify --deep` tells of all that is wrong with the source; take this run "
        "back: `stateshift rollback WORKDIR`",
    )
