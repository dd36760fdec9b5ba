"""Locations: one normal form, taken literally."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.errors import StorageError
from stateshift.storage import locations


@pytest.mark.parametrize(
    ("typed", "normal"),
    [
        ("/a/b", "file:///a/b"),
        ("/a//b/./c/", "file:///a/b/c"),
        ("//a/b", "file:///a/b"),
        ("/a/../b", "file:///b"),
        ("/..", "file:///"),
        ("/", "file:///"),
        ("b/c", "file:///cwd/b/c"),
        ("./b", "file:///cwd/b"),
        ("../b", "file:///b"),
        (".", "file:///cwd"),
        ("./~", "file:///cwd/~"),
        ("file:/a/b", "file:///a/b"),
        ("file:///a/b/", "file:///a/b"),
        ("FILE:///a/b", "file:///a/b"),
        ("file://localhost/a", "file:///a"),
        ("file:///", "file:///"),
        ("a:b", "file:///cwd/a:b"),
        ("./C:/x", "file:///cwd/C:/x"),
        ("hdfs://nn:8020/p/q/", "hdfs://nn:8020/p/q"),
        ("hdfs://nn:8020", "hdfs://nn:8020"),
        ("hdfs:/p", "hdfs:///p"),
        ("s3://bucket/k", "s3://bucket/k"),
        ("s3a://bucket/k/", "s3://bucket/k"),
        ("s3n://bucket", "s3://bucket"),
        ("s3p://bucket/k", "s3://bucket/k"),
        ("s3://bucket/a//b", "s3://bucket/a//b"),
        ("memory://x/y", "memory://x/y"),
        ("webhdfs://user@nn:9870/p", "webhdfs://user@nn:9870/p"),
        ("abfs://box@account.dfs.core.windows.net/p", "abfs://box@account.dfs.core.windows.net/p"),
    ],
)
def test_each_spelling_has_one_normal_form(typed: str, normal: str) -> None:
    assert locations.normal(typed, "/cwd") == normal
    assert locations.normal(normal) == normal


@pytest.mark.parametrize(
    "name", ["a b", "100%", "a%20b", "x#y", "x?y=1", "x:y", "ü", "名", "*[a]", " ", "a\nb"]
)
def test_nothing_is_decoded(name: str) -> None:
    assert locations.normal(f"/d/{name}") == f"file:///d/{name}"
    assert locations.normal(f"file:/d/{name}") == f"file:///d/{name}"
    assert locations.normal(f"s3://bucket/{name}") == f"s3://bucket/{name}"
    assert locations.local_path(f"file:///d/{name}") == f"/d/{name}"
    assert locations.name(f"hdfs://nn/d/{name}") == name
    assert locations.join("s3://bucket/d", name) == f"s3://bucket/d/{name}"


@pytest.mark.parametrize(
    "text", ["", "a\0b", "relative/path", "file://tmp/x", "s3://bucket/a/../b"]
)
def test_what_is_no_location_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(StorageError) as raised:
        locations.normal(text)
    assert raised.value.hint


def test_a_forgotten_slash_is_named_in_the_hint() -> None:
    with pytest.raises(StorageError) as raised:
        locations.normal("file://tmp/x")
    assert raised.value.hint == "expected file:///path: another machine's files are no local ones"


def test_parts() -> None:
    assert locations.scheme("s3a://b/k") == "s3"
    assert locations.authority("hdfs://nn:8020/p") == "nn:8020"
    assert locations.authority("/a") == ""
    assert locations.name("/a/b/") == "b"
    assert locations.name("s3://bucket") == ""
    assert locations.local_path("s3://bucket/k") is None


def test_join_and_parent_are_inverse() -> None:
    for root in ("/a", "/", "s3://b/k", "s3://b", "hdfs://nn:8020/p"):
        normal = locations.normal(root)
        assert locations.join(root, "") == normal
        assert locations.parent(locations.join(root, "x y")) == normal
        assert locations.name(locations.join(root, "x y")) == "x y"
        assert locations.relative(locations.join(root, "x/y"), root) == "x/y"
    assert locations.parent("/") == "file:///"
    assert locations.parent("s3://b") == "s3://b"


def test_within_is_by_whole_names() -> None:
    assert locations.is_within("/a/b", "/a")
    assert locations.is_within("file:/a", "/a/")
    assert locations.is_within("/a", "/")
    assert locations.is_within("s3a://b/k", "s3://b")
    assert not locations.is_within("/ab", "/a")
    assert not locations.is_within("/a", "/a/b")
    assert not locations.is_within("s3://b2/k", "s3://b")
    assert not locations.is_within("hdfs://nn/a", "/a")


def test_same_file_system_is_by_scheme_and_authority() -> None:
    assert locations.same_file_system("/a", "file:///b/c")
    assert locations.same_file_system("s3://b/k", "s3a://b/l")
    assert not locations.same_file_system("s3://b/k", "s3://c/k")
    assert not locations.same_file_system("hdfs://one/k", "hdfs://two/k")
    assert not locations.same_file_system("/a", "memory:///a")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sftp://me:secret@host/p", "sftp://me:***@host/p"),
        ("s3://KEY:SECRET@bucket/k", "s3://KEY:***@bucket/k"),
        ("webhdfs://me@nn:9870/p", "webhdfs://me@nn:9870/p"),
        (
            "GET http://nn/p?op=OPEN&delegation=ABC&x=1 failed",
            "GET http://nn/p?op=OPEN&delegation=***&x=1 failed",
        ),
        (
            "https://a/b?X-Amz-Signature=abc&X-Amz-Credential=k",
            "https://a/b?X-Amz-Signature=***&X-Amz-Credential=***",
        ),
        ("abfs://c@acc.blob/p?sig=ab%3D", "abfs://c@acc.blob/p?sig=***"),
        ("/plain/name=1/c", "/plain/name=1/c"),
        ("/plain/path:x", "/plain/path:x"),
    ],
)
def test_credentials_are_hidden(text: str, shown: str) -> None:
    assert locations.redact(text) == shown


@given(
    st.text(min_size=1).filter(lambda t: "\0" not in t),
    st.sampled_from(["/", "file:///", "s3://b/", "hdfs://n:1/"]),
)
def test_normal_forms_are_fixed_points(text: str, prefix: str) -> None:
    try:
        normal = locations.normal(prefix + text)
    except StorageError:
        assert not {".", ".."}.isdisjoint(text.split("/"))
        return
    assert locations.normal(normal) == normal
    assert locations.is_within(normal, prefix)


@pytest.mark.parametrize(
    ("places", "name"),
    [
        (("/data/orders",), "orders"),
        (("file:///data/orders/checkpoint/",), "orders"),
        (("s3://lake/teams/orders/checkpoints",), "orders"),
        (("s3://orders-lake/checkpoints/" + "ab" * 16 + "/chk-41",), "chk-41"),
        (("hdfs://nn:8020/fraud/savepoints/savepoint-01935a-2ed194f6d00c",), "fraud"),
        (("checkpoint", "moved/orders"), "orders"),
        (("./checkpoint", "/tmp/chk-1"), "checkpoint"),
        (("my-checkpoint",), "my-checkpoint"),
        (("file:///",), "job"),
    ],
)
def test_a_job_is_named_for_the_folder_that_is_named_for_one(
    places: tuple[str, ...], name: str
) -> None:
    assert locations.job_name(*places) == name
