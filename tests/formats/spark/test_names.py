import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.formats.spark.names import CheckpointPath as P
from stateshift.formats.spark.names import classify, described_file

U = "0d1d2eaa-d28f-4bf1-8b1a-5f86f2910f6b"
STORE = "left-keyToNumValues"


@pytest.mark.row("IS-13")
@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("metadata", P("metadata")),
        ("offsets/12", P("offsets", version=12)),
        ("commits/0", P("commits", version=0)),
        ("commits/zero", P("other")),
        ("sources/0/3", P("sources", "0", kind="log", version=3)),
        ("sources/orders/9.compact", P("sources", "orders", kind="compact", version=9)),
        ("sources/0/odd/thing", P("sources", "0")),
        ("state/0/2/7.delta", P("state", "0", 2, "default", "delta", 7)),
        (f"state/1/2/{STORE}/7.snapshot", P("state", "1", 2, STORE, "snapshot", 7)),
        ("state/0/2/7.zip", P("state", "0", 2, "default", "zip", 7)),
        (f"state/0/2/7_{U}.changelog", P("state", "0", 2, "default", "changelog", 7, U)),
        (f"state/0/2/SSTs/000014-{U}.sst", P("state", "0", 2, "default", "sst", None, U)),
        (f"state/0/2/{STORE}/SSTs/000014-{U}.sst", P("state", "0", 2, STORE, "sst", None, U)),
        (f"state/0/2/logs/000014-{U}.log", P("state", "0", 2, "default", "log", None, U)),
        ("state/0/_metadata/metadata", P("state-metadata", "0")),
        ("state/0/_metadata/v2/4", P("state-metadata", "0", version=4)),
        ("state/0/0/_metadata/schema", P("state-schema", "0", 0, "default")),
        (f"state/0/0/{STORE}/_metadata/schema", P("state-schema", "0", 0, STORE)),
        (
            f"state/0/_stateSchema/default/0_{U}",
            P("state-schema", "0", None, "default", None, 0, U),
        ),
        ("state/0/2/.7.delta.crc", P("sidecar", "0", 2, "default", "hadoop-crc", 7)),
        ("state/0/2/7.delta.crc", P("sidecar", "0", 2, "default", "checksum", 7)),
        ("state/0/2/.7.delta.crc.crc", P("sidecar", "0", 2, "default", "hadoop-crc", 7)),
        (".metadata.crc", P("sidecar", kind="hadoop-crc")),
        (f"offsets/.3.{U}.tmp", P("temporary")),
        (f"state/0/2/.7.delta.{U}.TID12.tmp", P("temporary")),
        (f"offsets/..3.{U}.tmp.crc", P("temporary")),
        ("_stateshift/operators.json", P("ours")),
        ("offsets/.stateshift-3.tmp", P("ours")),
        ("state/0/2/foo.bar", P("other")),
        ("state/0/2/8.delta.tmp", P("other")),
        ("state/0/x/8.delta", P("other")),
        ("state/0/02/7.delta", P("other")),
        ("state/0/2/07.delta", P("other")),
        (f"state/0/2/07_{U}.zip", P("other")),
        ("README", P("other")),
        ("", P("other")),
    ],
)
def test_a_path_says_what_its_file_is(path, what):
    assert classify(path) == what


@pytest.mark.parametrize(
    ("path", "about"),
    [
        ("a/.7.zip.crc", "a/7.zip"),
        ("a/7.zip.crc", "a/7.zip"),
        ("a/7.zip", None),
        (".x.crc", "x"),
        (".crc", None),
    ],
)
def test_a_sidecar_names_its_file(path, about):
    assert described_file(path) == about


@given(st.text(st.sampled_from("state0/_.v2crczipSTsdelta-\u0661é"), max_size=40))
def test_any_path_is_something(path):
    assert classify(path).area


def test_tens_of_thousands_of_paths_take_a_moment():
    paths = [
        f"state/0/{part}/{STORE}/{version}.delta" for part in range(200) for version in range(170)
    ]
    start = time.thread_time()
    for path in paths:
        classify(path)
    assert time.thread_time() - start < 5  # 34,000; a hundredth of that on a quick machine
