"""Keys picked a block at a time by the text of a column: what each of them alone says, on every
golden checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.engines.spark.entries.columnar import hashes_of
from stateshift.engines.spark.entries.encoders import ROW
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.keys import KeyRule, nameable
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite.stores import belongs, stores_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError
from stateshift.formats.blocks import RowBlock, binary
from stateshift.plain import to_plain
from stateshift.specification.transform import Compact
from stateshift.storage.local.storage import LocalStorage
from tests.engines.spark.test_transforms_golden import STATEFUL

LONG = '{"type":"struct","fields":[{"name":"k","type":"long","nullable":true,"metadata":{}}]}'


@pytest.mark.parametrize("case", STATEFUL, ids=lambda case: case.name)
def test_of_a_block_those_are_kept_whose_column_has_one_of_the_values(case: Path) -> None:
    storage = LocalStorage(str(case / "checkpoint"))
    (image,) = survey(storage, changes=(Compact(),)).images
    for store in stores_of(image, image.operators[0].provider == ROCKSDB):
        rules = store.rules or {}
        for shard in store.shards:
            for name, block in fold_shard(storage.chunks, shard, image.settings):
                if name in rules and nameable(rules[name], "word") is not None:
                    _assert_kept(store.operator, name, rules[name], block)


def _assert_kept(operator: str, store: str, rule: KeyRule, block: RowBlock) -> None:
    view, at = StoreView.of_rule(store, rule), nameable(rule, "word")
    assert at is not None
    texts = [view.decode_key(key)[at] for key in block.keys.to_pylist()]
    values = sorted({text for text in texts if text is not None})[::2]
    part = {"column": "word", "values": values, "rules": {f"{operator}/{store}": to_plain(rule)}}
    kept = belongs(part, operator, 0)(store, block)
    assert list(kept.records()) == [
        r for r, text in zip(block.records(), texts, strict=True) if text in values
    ]


def test_a_key_that_is_not_encoded_as_it_should_be_is_refused_as_alone() -> None:
    view = StoreView.of_rule("default", KeyRule(LONG, ROW, ((0,),)))
    good = b"\0" + bytes(8) + (7).to_bytes(8, "little")
    assert len(hashes_of(view, binary([good] * 3))) == 3
    assert not len(hashes_of(view, binary([])))
    with pytest.raises(FormatError, match="the encoding that is known"):
        hashes_of(view, binary([good, b"\1" + good[1:]]))
