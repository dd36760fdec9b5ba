"""The golden images of Flink (see scripts/golden/flink_make.py, which says what is told of each).

IMAGES: [Image]       image.place     the folder with _metadata
                      image.told      what is known of it
                      image.files     everything beside it that it may name
image.found(path)     where a path that the image names absolutely is here
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1] / "golden"


@dataclass(frozen=True)
class Image:
    folder: Path

    def __str__(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def version(self) -> str:
        return self.folder.parent.name.removeprefix("flink-")

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def told(self) -> Any:
        return json.loads((self.folder / "told.json").read_text())

    @property
    def place(self) -> Path:
        return self.folder / str(self.told["image"])

    @property
    def metadata(self) -> bytes:
        return (self.place / "_metadata").read_bytes()

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in (self.folder / "image").rglob("*") if path.is_file())

    def found(self, path: str) -> Path:
        """`file:/...`, as Flink prints it, or without the scheme."""
        plain = "/" + path.removeprefix("file:").lstrip("/")
        for before, here in self.told["written_at"].items():
            if plain == before or plain.startswith(f"{before}/"):
                return self.folder / str(here) / plain[len(before) + 1 :]
        raise KeyError(path)


IMAGES = sorted((Image(path.parent) for path in ROOT.glob("flink-*/*/told.json")), key=str)


def images(*prefixes: str, version: str = "") -> list[Image]:
    """Those whose names begin so, of all versions, or of one."""
    return [
        image
        for image in IMAGES
        if image.name.startswith(prefixes) and image.version.startswith(version)
    ]
