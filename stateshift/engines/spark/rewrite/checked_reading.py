"""The entries of a source as they are, until one of them is wrong: rows are checked while they are
read to be rewritten, where there are rules for them (see `checked_rows`). Apart from the rules:
who plans reads no state, and loads nothing that does. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from stateshift import plain
from stateshift.engines.spark.entries.fold import folded
from stateshift.engines.spark.entries.row_check import RowCheck
from stateshift.engines.spark.entries.store_views import Views
from stateshift.engines.spark.rewrite.checked_rows import RowRule
from stateshift.engines.spark.rewrite.stores import of_stores
from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, Block
from stateshift.plain import JsonObject
from stateshift.survey import ShardFiles
from stateshift.world import ReadFrom


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
