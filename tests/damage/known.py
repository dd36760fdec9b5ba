"""What `verify --deep` still gets wrong about damaged images, class by class: a list that is worked off, not grown.

A class is a result, an engine and a kind of file; beside it stands one mutation that shows it. A class that is not here
must not come up (test_damage.py); one that no longer comes up is taken out (the same, in a full run).
"""

from __future__ import annotations

from collections.abc import Mapping

Class = tuple[str, str, str]

KNOWN: Mapping[Class, str] = {
    ("missed", "flink", "CURRENT"): "flink-1.15.4/count-checkpoint-incremental#4",
    ("missed", "flink", "MANIFEST"): "flink-1.15.4/count-changelog-rocksdb#0",
    ("missed", "flink", "sst"): "flink-1.15.4/count-native-incremental#3",
    ("traceback", "flink", "_metadata"): "flink-1.15.4/count-canonical-hashmap#4",
    ("traceback", "flink", "keyed stream"): "flink-1.15.4/count-canonical-int-200#0",
    ("traceback", "flink", "operator stream"): "flink-2.3.0/kinds-merging-hashmap#3",
    ("unnamed", "flink", "OPTIONS"): "flink-1.15.4/count-native-incremental#0",
    ("unnamed", "flink", "_metadata"): "flink-1.15.4/count-canonical-rocksdb#3",
    ("unnamed", "flink", "backend's metadata"): "flink-1.15.4/count-changelog-rocksdb#3",
    ("unnamed", "flink", "changelog"): "flink-1.18.1/count-changelog-hashmap#1",
    ("unnamed", "flink", "channels"): "flink-1.18.1/count-unaligned#2",
    ("unnamed", "flink", "keyed stream"): "flink-1.15.4/count-canonical-hashmap#2",
    ("unnamed", "flink", "operator stream"): "flink-1.15.4/count-canonical-int-200#3",
}

# Engines whose `apply` publishes copies of what `verify --deep` refuses: it does not read what it copies.
PUBLISHES = ("spark", "flink")
