from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.specification.location import NoLocation, normal, relation


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("/a/b", "file:///a/b"),
        ("//a//b/", "file:///a/b"),
        ("/a/./b/../c", "file:///a/c"),
        ("/", "file:///"),
        ("file:/a/b", "file:///a/b"),
        ("file:///a//b/", "file:///a/b"),
        ("FILE://localhost/a", "file:///a"),
        ("local:///a", "file:///a"),
        ("b", "file:///base/b"),
        ("./b/../../c", "file:///c"),
        ("./~b", "file:///base/~b"),
        ("./s3:/b", "file:///base/s3:/b"),
        ("a b/ä%20#?:x", "file:///base/a b/ä%20#?:x"),
        ("file:///a%20b", "file:///a%20b"),
        ("HDFS://nn:8020/a/", "hdfs://nn:8020/a"),
        ("hdfs:/a", "hdfs:///a"),
        ("s3a://bucket/a//b#?%", "s3a://bucket/a//b#?%"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_every_spelling_has_one_normal_form(text: str, location: str) -> None:
    assert normal(text, "/base") == location
    assert normal(text, "file:///base/") == location
    assert normal(location) == location


@pytest.mark.parametrize(
    "text",
    [
        "~",
        "~/a",
        "file://host/a",
        "file:a",
        "s3:/a",
        "a::s3://b",
        "s3://",
        "s3:///",
        "hdfs://nn/../a",
        "hdfs://nn/./a",
    ],
)
def test_what_is_no_location_is_refused(text: str) -> None:
    with pytest.raises(NoLocation):
        normal(text, "/base")


def test_a_relative_location_starts_where_the_spec_lies_also_in_a_bucket() -> None:
    assert normal("./a/b", "s3://bucket/specs/") == "s3://bucket/specs/a/b"
    with pytest.raises(NoLocation):
        normal("../a", "s3://bucket/specs")


def test_without_a_base_a_relative_location_stays_as_it_is() -> None:
    assert [normal(text) for text in ("a/b", "./~a", "./s3:/a", "a/../file:/x")] == [
        "a/b",
        "./~a",
        "./s3:/a",
        "./file:/x",
    ]


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1))
def test_the_normal_form_is_its_own_normal_form(text: str) -> None:
    for base in (None, "/base", "s3://bucket/base"):
        try:
            location = normal(text, base)
        except NoLocation:
            continue
        assert normal(location, base if base is None else "/other") == location


@pytest.mark.parametrize(
    ("one", "other", "lies"),
    [
        ("file:///a", "file:///a", "same"),
        ("file:///a/b", "file:///a", "inside"),
        ("file:///a", "file:///a/b", "around"),
        ("file:///ab", "file:///a", "apart"),
        ("file:///", "file:///a", "around"),
        ("s3a://b/x", "s3://b/x", "same"),
        ("hdfs://NN:1/x", "hdfs://nn:1/x", "same"),
        ("hdfs://nn:1/x", "hdfs://nn:2/x", "apart"),
        ("s3://b", "s3://b/x", "around"),
        ("a", "a/b", "around"),
        ("a", "file:///a", "apart"),
    ],
)
def test_how_two_places_lie_to_each_other(one: str, other: str, lies: str) -> None:
    assert relation(one, other) == lies
    opposite = {"inside": "around", "around": "inside"}
    assert relation(other, one) == opposite.get(lies, lies)
