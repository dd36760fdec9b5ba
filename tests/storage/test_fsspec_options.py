"""What a file system of fsspec's is opened with: whose word counts, and for which bucket."""

from __future__ import annotations

from typing import Any

from stateshift.storage.fsspec.ways import host_of, options_for, try_once

ALL = {
    "s3": {"endpoint_url": "http://east", "key": "k"},
    "s3://archive": {"endpoint_url": "http://west"},
}


def options(bucket: str, configured: Any = ALL, **given: Any) -> dict[str, Any]:
    return options_for("s3", bucket, configured, given)


def test_a_bucket_has_its_own_options_on_top_of_its_scheme_s() -> None:
    one, other = options("orders"), options("archive")
    assert (one["endpoint_url"], one["key"]) == ("http://east", "k")
    assert (other["endpoint_url"], other["key"]) == ("http://west", "k")


def test_what_a_caller_gives_counts_most() -> None:
    assert options("archive", endpoint_url="http://here")["endpoint_url"] == "http://here"


def test_nobody_below_tries_again_unless_the_user_says_so() -> None:
    assert options("b")["config_kwargs"]["retries"] == {"total_max_attempts": 1}
    style = {"s3": {"config_kwargs": {"s3": {"addressing_style": "path"}}}}
    assert options("b", style)["config_kwargs"] == {
        **options("b")["config_kwargs"],
        **style["s3"]["config_kwargs"],
    }
    told = {"s3://b": {"config_kwargs": {"retries": {"mode": "standard"}}}}
    assert options("b", told)["config_kwargs"]["retries"] == {"mode": "standard"}
    assert options("c", told)["config_kwargs"]["retries"] == {"total_max_attempts": 1}


def test_what_a_package_writes_in_its_options_reaches_nobody_else() -> None:
    options("b")["config_kwargs"]["retries"]["mode"] = "legacy"  # as botocore does
    assert options("b")["config_kwargs"]["retries"] == {"total_max_attempts": 1}


def test_other_schemes_are_told_nothing_of_s3() -> None:
    assert options_for("gs", "b", ALL, {}) == {"use_listings_cache": False}


def test_only_s3fs_s_own_loop_is_stopped() -> None:
    class Looping:
        retries = 5

    class Plain:
        pass

    looping, plain = Looping(), Plain()
    try_once(looping)
    try_once(plain)
    assert (looping.retries, Looping.retries) == (1, 5)
    assert not hasattr(plain, "retries")


def test_a_host_is_told_without_whom_it_is_asked_as() -> None:
    class Meta:
        endpoint_url = "https://me:secret@minio:9000/path"

    class Client:
        meta = Meta()

    class Opened:
        _s3 = Client()

    assert host_of(Opened()) == "minio:9000"
    assert host_of(object()) == ""
