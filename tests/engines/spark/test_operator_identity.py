"""Metadata of another operator than the one whose directory it lies in: Spark refuses to start, and
so do we.

What Spark does was seen with 4.3.0: STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA for
another id or name, STDS_FAILED_TO_READ_OPERATOR_METADATA where a v2 is gone, and a start as if
nothing had happened where a v1 is gone or is no JSON.
"""

from __future__ import annotations

import pytest

from tests.damage import images
from tests.damage.commands import document_of, run

V1, V2 = "state/0/_metadata/metadata", "state/0/_metadata/v2/0"
OF = {V1: "spark-4.3.0/window-hdfs", V2: "spark-4.3.0/join-rocksdb-v4"}


def judged(path: str, old: bytes, new: bytes | None) -> tuple[int | None, list[str]]:
    """The exit code of `verify`, and what it refuses, with `old` in the file replaced; None: the
    file is gone.
    """
    golden = images.image(OF[path])
    place = f"{golden.location}/{path}"
    files = dict(golden.files)
    if new is None:
        del files[place]
    else:
        assert old in files[place]
        files[place] = files[place].replace(old, new)
    shown = run(images.on_a_disk(files), "verify", golden.location, "--json")
    found = document_of(shown)["findings"]
    return shown.code, [one["message"] for one in found if one["level"] == "refuse"]


@pytest.mark.row("W-2")
@pytest.mark.parametrize("path", OF)
def test_metadata_of_another_operator_is_refused(path: str) -> None:
    code, refused = judged(path, b'"operatorId":0', b'"operatorId":7')
    assert code == 5
    assert f"{path} is of operator 7, and lies in that of operator 0" in refused[0]


@pytest.mark.parametrize("path", OF)
@pytest.mark.parametrize(
    "letter", [b"S", b"\xf3"]
)  # another case, and no UTF-8, which Spark reads all the same
def test_metadata_of_an_operator_that_spark_does_not_have_is_refused(
    path: str, letter: bytes
) -> None:
    code, refused = judged(path, b'"operatorName":"s', b'"operatorName":"' + letter)
    assert code == 5
    assert path in refused[0]


def test_a_v2_that_is_gone_is_refused_where_there_are_schemas_that_it_named() -> None:
    code, refused = judged(V2, b"", None)
    assert code == 5
    assert "state/0/_metadata/v2 holds no metadata of operator 0" in refused[0]


@pytest.mark.parametrize(("name", "code"), [("tws-timers", 5), ("join-rocksdb-v4", 0)])
def test_a_schema_that_is_gone_is_refused_where_spark_does_not_write_it_again(
    name: str, code: int
) -> None:
    golden = images.image(f"spark-4.3.0/{name}")
    files = {
        path: content for path, content in golden.files.items() if "/_stateSchema/" not in path
    }
    assert len(files) < len(golden.files)
    shown = run(images.on_a_disk(files), "verify", golden.location)
    assert shown.code == code
    assert ("is missing, which state/0/_metadata/v2/" in shown.out) == (code == 5)


@pytest.mark.parametrize("new", [None, b"{", b"v7"])
def test_a_v1_that_spark_leaves_alone_is_no_reason_to_refuse(new: bytes | None) -> None:
    assert judged(V1, b"v1\n{", new) == (0, [])


JOIN = "spark-4.3.0/join-hdfs"


def refused_without(name: str, folder: str) -> list[str]:
    """What `verify --deep` refuses where every shard lacks a folder."""
    golden = images.image(name)
    files = {path: content for path, content in golden.files.items() if folder not in path}
    assert len(files) < len(golden.files)
    shown = run(images.on_a_disk(files), "verify", golden.location, "--deep", "--json")
    assert shown.code == 5
    return [one["message"] for one in document_of(shown)["findings"] if one["level"] == "refuse"]


def test_a_store_that_is_gone_from_every_shard_is_refused() -> None:
    fact = f"{V1} names the store 'left-keyToNumValues', of which no file is there"
    assert fact in refused_without(JOIN, "/left-keyToNumValues/")


def test_shards_that_are_all_gone_are_refused() -> None:
    fact = f"{V1} names the store 'default', of which no file is there"
    golden = images.image(OF[V1])
    files = {
        path: content
        for path, content in golden.files.items()
        if golden.role_of(path) not in ("delta", "snapshot")
    }
    shown = run(images.on_a_disk(files), "verify", golden.location, "--json")
    assert shown.code == 5
    assert fact in shown.out


def test_metadata_of_an_operator_with_other_stores_is_refused() -> None:
    golden, other = images.image(OF[V1]), images.image(JOIN)
    files = {**golden.files, f"{golden.location}/{V1}": other.files[f"{other.location}/{V1}"]}
    shown = run(images.on_a_disk(files), "verify", golden.location, "--json")
    assert shown.code == 5
    assert "of which no file is there" in shown.out
