import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.formats.uid import (
    PROFILES,
    collisions,
    directory_name,
    flink_operator_id,
    last_parentheses,
    results_directory,
    rolling_hash,
)

DEFAULT, SIGNED = PROFILES["default"], PROFILES["java-signed"]


@pytest.mark.row("IS-7")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("geeksforgeeks", 111226362),
        ("geeks", 17879567),
        ("SKtest(mytest)", 552794753),
        ("a", 1),
        ("", 0),
    ],
)
def test_the_hash_is_the_textbooks(name, value):
    assert rolling_hash(name, DEFAULT.p, DEFAULT.m, DEFAULT.offset, DEFAULT.signed) == value


def test_java_signed_keeps_the_sign_that_javas_remainder_leaves():
    assert rolling_hash("SKtest(mytest)", signed=True) == -447205256


@given(st.text())
def test_signed_and_unsigned_hashes_agree_modulo_m(name):
    assert (rolling_hash(name, signed=True) - rolling_hash(name)) % DEFAULT.m == 0
    assert 0 <= rolling_hash(name) < DEFAULT.m


def test_a_character_beyond_the_basic_plane_counts_as_javas_two():
    assert rolling_hash("😀") == ((0xD83D - 96) + (0xDE00 - 96) * 31) % DEFAULT.m


@pytest.mark.row("IS-9")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("SKtest(mytest)", "mytest"),
        ("f(a)(b)()", "b"),
        ("f(a())", "a()"),
        ("f(a(b),c)", "b"),
        ("no parentheses", ""),
        ("open (only", ""),
        (")(", ""),
        ("()", ""),
        ("(((", ""),
    ],
)
def test_the_last_parentheses_that_hold_something_are_found(name, content):
    assert last_parentheses(name) == content


@pytest.mark.row("IS-8")
@pytest.mark.row("IS-9")
@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("SKtest(mytest)", "552794753_mytest"),
        ("geeks", "17879567"),
        ("a (b c/d:é)", f"{rolling_hash('a (b c/d:é)')}_b_c_d__"),
    ],
)
def test_a_directory_is_the_hash_and_what_can_be_recognised(name, directory):
    assert directory_name(name) == directory


@pytest.mark.row("IS-8")
@given(st.text(), st.booleans())
def test_no_name_makes_a_directory_that_hdfs_would_not_take(name, signed):
    directory = directory_name(name, signed=signed)
    assert directory.isascii()
    assert not set(directory) - set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
    )


@pytest.mark.row("IS-10")
def test_results_have_a_directory_in_production_only():
    assert results_directory("552794753_mytest", True) == "552794753_mytest_RES"
    assert results_directory("552794753_mytest", False) is None


@pytest.mark.row("IF-4")
def test_a_flink_operator_id_is_guavas_murmur3_128():
    # MurmurHash3 x64 128, seed 0, of the empty text is zero; the other value is the reference
    # implementation's.
    assert flink_operator_id("") == "0" * 32
    assert flink_operator_id("hello") == "029bbd41b3a7d8cb191dae486a901e5b"


def test_names_that_share_a_directory_are_named_in_pairs():
    same = [chr(0x61 + 31) + "a", "a" + "b"]  # 32 + 1*31 = 1 + 2*31
    assert rolling_hash(same[0]) == rolling_hash(same[1])
    assert collisions(["x", *same, "x"], directory_name) == (
        (same[0], same[1], directory_name(same[1])),
        ("x", "x", directory_name("x")),
    )
    assert collisions(["x", "y"], directory_name) == ()
