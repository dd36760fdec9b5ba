"""Keys placed a block at a time, against the placement of each key alone, on every golden checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stateshift.engines.spark.folding import folded
from stateshift.engines.spark.keys import KeyRule, key_column, key_hash
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.placing import belonging, hashing
from stateshift.engines.spark.stores import stores_of
from stateshift.engines.spark.survey import survey
from stateshift.errors import FormatError
from stateshift.formats.blocks import binary
from stateshift.plain import to_plain
from stateshift.storage.local import LocalStorage
from tests.engines.spark.test_transforms_golden import STATEFUL


@pytest.mark.parametrize("case", STATEFUL, ids=lambda case: case.name)
def test_a_block_of_keys_is_placed_as_each_of_them_alone(case: Path) -> None:
    storage = LocalStorage(str(case / "checkpoint"))
    (image,) = survey(storage, changes=({"kind": "compact"},)).images
    for store in stores_of(image, image.operators[0].provider == ROCKSDB):
        rules = store.rules or {}
        for shard in store.shards:
            for name, block in folded(storage.chunks, shard, image.settings):
                if name in rules:
                    keys = block.keys.to_pylist()
                    assert hashing(rules[name])(block.keys).tolist() == list(map(key_hash(rules[name]), keys))
                    _assert_same_texts(store.operator, name, rules[name], keys)


def _assert_same_texts(operator: str, store: str, rule: KeyRule, keys: list[bytes]) -> None:
    told = key_column(rule, "word")
    if told is None:
        return
    texts = [told(key) for key in keys]
    values = sorted({text for text in texts if text is not None})[::2]
    part = {"column": "word", "values": values, "rules": {f"{operator}/{store}": to_plain(rule)}}
    kept = belonging(part, operator, 0)(store, binary(keys))
    assert kept.tolist() == [text in values for text in texts]


def test_a_key_that_is_not_encoded_as_it_should_be_is_refused_as_alone() -> None:
    rule = KeyRule("row", '{"type":"struct","fields":[{"name":"k","type":"long","nullable":true,"metadata":{}}]}', 1, True)
    good = b"\0" + bytes(8) + (7).to_bytes(8, "little")
    assert len(hashing(rule)(binary([good] * 3))) == 3
    assert hashing(rule)(binary([])).dtype == np.int64
    with pytest.raises(FormatError, match="encoding byte"):
        hashing(rule)(binary([good, b"\1" + good[1:]]))
