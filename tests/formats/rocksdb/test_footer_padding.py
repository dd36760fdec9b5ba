"""RocksDB fills the footer of an SST with zeros: other bytes there are damage."""

from __future__ import annotations

import pytest

from tests.damage.verdicts import verdict_of

SST_FOOTERS = (
    "flink-1.15.4/kinds-native-incremental#31",
    "flink-2.3.0/count-checkpoint-incremental#19",
)


@pytest.mark.parametrize("id_", SST_FOOTERS)
def test_a_changed_bit_in_the_padding_of_an_sst_is_refused(id_: str) -> None:
    assert verdict_of(id_).result == "detected"
