"""Two implementations of S3 that share nothing honour the conditions that a fence needs; where they
differ is written down here, so that nobody takes one's ways for the protocol's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Servers, group, in_their_python

pytestmark = [pytest.mark.servers, pytest.mark.slow]
ASKING = Path(__file__).with_name("asking_s3.py")
FAILED = "PreconditionFailed"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("s3"), "s3-moto", "s3-real") as servers:
        taken = servers.state("s3-real").ports.values()
        yield servers
    left = [
        path
        for path in Path("/tmp").glob("seaweedfs-*.sock")
        if path.stem.rpartition("-")[2] in map(str, taken)
    ]
    assert left == []


@pytest.fixture(scope="module", params=["MOTO", "REAL"])
def said(request: pytest.FixtureRequest, servers: Servers) -> dict[str, Any]:
    exports = servers.exports()
    told = in_their_python(ASKING, exports[f"STATESHIFT_S3_{request.param}"], **exports)
    return {"name": request.param, **json.loads(told)}


def test_an_object_that_is_there_is_not_written_over_by_if_none_match(said: dict[str, Any]) -> None:
    assert (said["new"], said["again"], said["held"]) == ("done", FAILED, "first")


def test_an_object_is_replaced_only_by_who_knows_its_tag(said: dict[str, Any]) -> None:
    assert (said["another's"], said["ours"], said["held then"]) == (FAILED, "done", "third")


def test_the_end_of_a_multipart_upload_takes_the_condition_too(said: dict[str, Any]) -> None:
    assert (said["uploaded new"], said["uploaded again"]) == ("done", FAILED)


def test_of_eight_at_once_one_wins(said: dict[str, Any]) -> None:
    assert said["race"] == [*[FAILED] * 7, "done"]


def test_what_was_put_is_listed_and_copied_within_the_store(said: dict[str, Any]) -> None:
    assert said["listed"] == ["orders/0", "orders/1", "orders/2"]
    assert said["copied"] == "third"


def test_a_bucket_that_was_not_made_is_not_written_to(said: dict[str, Any]) -> None:
    assert said["no bucket"] == "NoSuchBucket"


def test_they_differ_in_copies_on_condition_and_in_whom_they_let_in(said: dict[str, Any]) -> None:
    strict = {"copied again": FAILED, "wrong secret": "SignatureDoesNotMatch"}
    lax = {"copied again": "done", "wrong secret": "done"}
    assert {key: said[key] for key in strict} == (strict if said["name"] == "REAL" else lax)
