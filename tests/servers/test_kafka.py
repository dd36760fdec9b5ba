"""A real broker takes records and gives them back, also after it crashed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Servers, group, in_their_python

pytestmark = pytest.mark.servers
ASKING = Path(__file__).with_name("asking_kafka.py")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("kafka"), "kafka") as servers:
        yield servers


def asked(servers: Servers, verb: str) -> Any:
    return json.loads(in_their_python(ASKING, servers.exports()["STATESHIFT_KAFKA"], verb))


def test_what_was_written_is_read_also_after_a_crash(servers: Servers) -> None:
    assert asked(servers, "write") == [0, 1, 2]
    assert asked(servers, "read") == ["0", "1", "2"]
    address = servers.exports()["STATESHIFT_KAFKA"]
    servers.kill("kafka", "broker")
    assert servers.state("kafka").word == "crashed"
    assert servers.up("kafka").word == "up"
    assert servers.exports()["STATESHIFT_KAFKA"] == address
    assert asked(servers, "read") == ["0", "1", "2"]
