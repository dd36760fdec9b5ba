"""A file as a form is sent (RFC 7578), read while it is sent: a jar of some hundred megabytes is
not held in memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class FileForm:
    """A form with one file. Its length is known, so that it goes out in one piece."""

    file: BinaryIO
    head: bytes
    tail: bytes
    size: int
    content_type: str

    def __len__(self) -> int:
        return len(self.head) + self.size + len(self.tail)

    def __iter__(self) -> Iterator[bytes]:
        yield self.head
        self.file.seek(0)
        while chunk := self.file.read(_CHUNK):
            yield chunk
        yield self.tail

    @staticmethod
    @contextmanager
    def of(path: Path, field: str, name: str, content_type: str) -> Iterator[FileForm]:
        """`name` is what the file is called there."""
        mark = secrets.token_hex(16)
        quoted = name.replace("\\", "_").replace('"', "_").replace("\n", "_").replace("\r", "_")
        head = (
            f'--{mark}\r\nContent-Disposition: form-data; name="{field}"; filename="{quoted}"\r\n'
            f"Content-Type: {content_type}\r\n\r\n"
        )
        with path.open("rb") as file:
            kind, tail = f"multipart/form-data; boundary={mark}", f"\r\n--{mark}--\r\n".encode()
            yield FileForm(file, head.encode(), tail, path.stat().st_size, kind)
