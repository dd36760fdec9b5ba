"""What a server says when it is asked whether it is there."""

from __future__ import annotations

import json
import struct
import urllib.error
import urllib.request
from socket import create_connection
from typing import Any

from servers.ports import HOST

SECONDS_MAX = 5.0
_open = urllib.request.build_opener(
    urllib.request.ProxyHandler({})
).open  # a proxy would not find this machine


def get(url: str) -> bytes:
    with _open(url, timeout=SECONDS_MAX) as response:
        content: bytes = response.read()
        return content


def get_json(url: str) -> Any:
    return json.loads(get(url))


def status(url: str, method: str = "GET") -> int:
    """Of an answer of any kind."""
    try:
        with _open(urllib.request.Request(url, method=method), timeout=SECONDS_MAX) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def bean(port: int, name: str) -> dict[str, Any]:
    """One of Hadoop's, from its /jmx; ValueError if it is not there yet."""
    found = get_json(f"http://{HOST}:{port}/jmx?qry=Hadoop:{name}")["beans"]
    if not found:
        raise ValueError(f"no {name}")
    return dict(found[0])


def kafka(port: int) -> bool:
    """ApiVersions, version 0: length, api 18, version, correlation, client; answered by length,
    correlation, error.
    """
    client = b"stateshift"
    asked = struct.pack(">hhih", 18, 0, 7, len(client)) + client
    with create_connection((HOST, port), timeout=SECONDS_MAX) as one:
        one.sendall(struct.pack(">i", len(asked)) + asked)
        answer = one.makefile("rb").read(10)
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (7, 0)
