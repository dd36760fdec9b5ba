"""Orders and answers: what goes over the wire comes back as it was."""

from __future__ import annotations

import json

import pytest

from stateshift import errors
from stateshift.errors import ClusterError, FormatError, StateshiftError, StorageError, VerifyError
from stateshift.fleet.orders import (
    Broke,
    decode_answer,
    decode_error,
    decode_order,
    encode_answer,
    encode_error,
    encode_order,
)
from stateshift.storage.wrappers import Pace
from tests.support.ground import Clock

RAISED: tuple[StateshiftError, ...] = (
    FormatError("not a snapshot", "state/0/1/6.snapshot", 17, hint="stateshift verify"),
    VerifyError("they differ", step="compare/0", expected="1", found="2", hint="roll back"),
    StorageError("the disk is full", location="file:///a", hint="df"),
    errors.MissingFile("gone", location="hdfs://a/b"),
    errors.UnknownVersion("version 9", "offsets/1", 0),
    errors.StalePlan("changed while it was copied"),
    ClusterError("no worker", cluster="spark://m:7077", job="orders"),
    errors.Interrupted("interrupted"),
)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_error_on_the_other_side(error: StateshiftError) -> None:
    again = decode_error(json.loads(json.dumps(encode_error(error))))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.as_json() == error.as_json()
    assert again.exit_code == error.exit_code


def test_every_class_of_the_error_tree_crosses() -> None:
    """A class that is added and holds something of its own must not lose it on the way."""
    made = {type(error) for error in RAISED}
    plain = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, StateshiftError) and kind not in made
    ]
    for kind in plain:
        if kind in (errors.SpecError, errors.JournalError):
            continue  # no step raises them
        again = decode_error(json.loads(json.dumps(encode_error(kind("fact", hint="hint")))))
        assert (type(again), again.fact, again.hint) == (kind, "fact", "hint")


def test_an_answer_that_failed_raises_what_failed_and_says_where() -> None:
    with pytest.raises(StorageError, match="full") as caught:
        decode_answer(encode_answer("worker-7", failed=encode_error(RAISED[2])))
    assert caught.value.where == {"location": "file:///a", "executor": "worker-7"}


def test_what_no_error_of_ours_explains_is_raised_as_a_bug_with_its_traceback() -> None:
    told = {"message": "KeyError: 'x'", "traceback": "File one.py, line 3", "os_error": None}
    with pytest.raises(Broke, match="worker-7: KeyError") as caught:
        decode_answer(encode_answer("worker-7", broke=told))
    assert "one.py, line 3" in "".join(caught.value.__notes__)


def test_a_missing_package_is_named_as_one_installs_it() -> None:
    with pytest.raises(
        ClusterError, match="worker-7 has no Python package 'google-crc32c'"
    ) as caught:
        decode_answer(encode_answer("worker-7", missing="google_crc32c"))
    assert "pip install google-crc32c" in (caught.value.hint or "")


def test_an_order_of_another_version_is_refused() -> None:
    order = json.loads(encode_order("run", "r", "t"))
    with pytest.raises(ClusterError, match=r"has stateshift .*, and the driver 9\.9"):
        decode_order(json.dumps({**order, "stateshift": "9.9"}))


def test_rates_are_shared_out() -> None:
    pace = Pace(Clock(), 100.0, None)
    assert json.loads(encode_order("run", "r", "t", pace, 4))["rates"] == [25.0, None]
    assert json.loads(encode_order("run", "r", "t"))["rates"] == [None, None]


def test_a_name_that_is_no_text_survives() -> None:
    order = encode_order("run", "r", "t", step={"path": "a\udcff", "n": 1})
    assert order.isascii()
    assert decode_order(order)["step"]["path"] == "a\udcff"
