"""Whole Flink images: one file of a golden one is damaged, and every command that reads an image is
run on it.

    mutations(content, seed, count)     (what was done, the bytes afterwards), the same for the same
                                        seed
    run_commands(image, path, content)  what each command answered

A command may answer with any exit code but 1, which is a bug of ours, and in bounded time and
memory.
"""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stateshift.formats.flink import METADATA
from stateshift.testing.memory_storage import MemoryDisk
from tests.cli.support import Outside, Said
from tests.engines.flink import golden
from tests.fuzz.oracles import Broken
from tests.support.checkpoints import put

BUG, NOT_RESTARTABLE = 1, 5
SECONDS_MAX = 10.0
# What a length or a count is overwritten with.
NUMBERS = (-1, 0, 1, 255, 0x7FFF, 0xFFFF, 0x7FFFFFFF, -(1 << 31), 1 << 24)
KINDS = ("flip", "flip", "number", "number", "truncated", "zeros", "byte", "removed", "inserted")


@dataclass(frozen=True)
class GoldenImage:
    """A golden image as files: the location of the image, and every file by its location."""

    name: str
    location: str
    files: dict[str, bytes]

    @property
    def metadata_path(self) -> str:
        return f"{self.location}/{METADATA}"


@cache
def golden_image(name: str) -> GoldenImage:
    disk = MemoryDisk()
    location = golden.write(disk, name)
    return GoldenImage(name, location, disk.snapshot())


def mutations(content: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield `count` damaged versions of a file, each with the words for what was done."""
    chance = random.Random(seed)
    for _ in range(count):
        yield mutated(content, chance)


def mutated(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Return a file with one thing done to it."""
    kind = chance.choice(KINDS)
    place = chance.randrange(len(content)) if content else 0
    before, behind = content[:place], content[place:]
    match kind:
        case "flip":
            bit = 1 << chance.randrange(8)
            changed = bytes((behind[0] ^ bit,)) + behind[1:] if behind else b""
            return f"bit {bit} of byte {place} flipped", before + changed
        case "number":
            number = chance.choice(NUMBERS)
            return f"{number} at byte {place}", before + struct.pack(">i", number) + behind[4:]
        case "truncated":
            return f"truncated at byte {place}", before
        case "zeros":
            size = chance.choice((1, 2, 4, 8, 16, 64))
            return f"{size} zeros at byte {place}", before + bytes(len(behind[:size])) + behind[
                size:
            ]
        case "byte":
            value = chance.randrange(256)
            return f"byte {place} is {value}", before + bytes((value,)) + behind[1:]
        case "removed":
            size = chance.choice((1, 2, 4, 8))
            return f"{size} bytes removed at byte {place}", before + behind[size:]
    size = chance.choice((1, 2, 4, 8))
    return f"{size} bytes inserted at byte {place}", before + chance.randbytes(size) + behind


def run_commands(image: GoldenImage, changed: dict[str, bytes], folder: Path) -> dict[str, Said]:
    """Run every command that reads an image, with some of its files changed; raise Broken where
    one has a bug.
    """
    outside = Outside()
    for path, content in {**image.files, **changed}.items():
        where, _, name = f"file://{path.removeprefix('file://')}".rpartition("/")
        put(outside.disk.open(where), name, content)
    put(outside.disk.open("file:///whole"), "unrelated", b"")
    location = image.location
    spec = folder / "spec.json"
    spec.write_text(json.dumps(_spec(location)))
    commands = {
        "inspect": ("inspect", location, "--entries"),
        "inspect --json": ("inspect", location, "--entries", "--json"),
        "verify": ("verify", location),
        "verify --deep": ("verify", location, "--deep"),
        "export": ("export", location, "--to", "-"),
        "diff": ("diff", location, location),
        "plan": ("plan", str(spec)),
        "plan rescale": ("plan", str(_rescaling(folder, location))),
    }
    answers = {}
    for words, arguments in commands.items():
        began = time.thread_time()
        answers[words] = outside.run(*arguments)
        if answers[words].code == BUG:
            raise Broken(f"{words}: {answers[words].err[-3000:]}")
        if words.startswith("verify") and answers[words].code not in (0, NOT_RESTARTABLE):
            raise Broken(f"{words} did not judge: {answers[words].code}, {answers[words].err}")
        if time.thread_time() - began > SECONDS_MAX:
            raise Broken(f"{words}: took {time.thread_time() - began:.1f} s")
    return answers


def _spec(location: str, **job: object) -> dict[str, object]:
    plain = {
        "name": "orders",
        "existing_savepoint_paths": [location],
        "new_savepoint_path": "file:///there/savepoint",
    }
    return {"version": 1, "engine": "flink", "jobs": [{**plain, **job}]}


def _rescaling(folder: Path, location: str) -> Path:
    change = {"kind": "rescale", "parallelism": 3, "max_parallelism": 16}
    path = folder / "rescaling.json"
    path.write_text(json.dumps(_spec(location, transform=[change])))
    return path
