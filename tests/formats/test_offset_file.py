"""Offsets that somebody has written down, as CSV or as JSON."""

from __future__ import annotations

import pytest

from stateshift.errors import FormatError
from stateshift.formats.offset_file import decode_offset_file

BOTH = {"orders": {0: 80, 1: 75}, "users": {0: 3}}


@pytest.mark.parametrize(
    "content",
    [
        b"topic,partition,offset\norders,0,80\norders,1,75\nusers,0,3\n",
        b"\xef\xbb\xbforders, 0, 80\r\norders,1,75\r\n\r\nusers,0,3",
        b'{"orders":{"0":80,"1":75},"users":{"0":3}}',
    ],
)
def test_both_forms_are_read(content: bytes) -> None:
    assert decode_offset_file(content) == BOTH


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "names no partition"),
        (b"topic,partition,offset\n", "names no partition"),
        (b"orders,0\n", "line 1 is not topic,partition,offset"),
        (b"orders,0,-1\n", "line 1: -1 is no offset"),
        (b"orders,x,1\n", "line 1: x is no partition"),
        (b"orders,0,1\norders,00,2\n", "names orders/0 twice (line 2)"),
        (b'{"orders":{"0":1,"0":2}}', "a topic or a partition twice"),
        (b'{"orders":{"0":-2}}', "orders/0: -2 is no offset"),
        (b'{"orders":{"0":true}}', "orders/0: true is no offset"),
        (b'{"orders":{"0":1.5}}', "orders/0: 1.5 is no offset"),
        (b'{"orders":80}', "orders has no partitions"),
        (b'{"orders":', "is not JSON"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"[" * 100_000, "line 1 is not topic"),
        (b'{"a":' * 100_000, "is not JSON"),
    ],
)
def test_anything_else_is_refused_with_its_place(content: bytes, says: str) -> None:
    with pytest.raises(FormatError) as raised:
        decode_offset_file(content)
    assert says in raised.value.fact, raised.value.fact
