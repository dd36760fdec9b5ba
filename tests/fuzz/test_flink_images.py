"""Damaged Flink images through every command that reads one: no bug of ours, no hang, whatever the
bytes.

The default run takes a sample of every kind of image; `--full` takes many more, and cuts
`_metadata` at every byte.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.metadata import decode_metadata
from tests.engines.flink import golden
from tests.fuzz.flink_images import GoldenImage, golden_image, mutated, run_commands

SEED = 20_261_125
KINDS = (
    "flink-1.15.4/count-changelog-memory",
    "flink-1.15.4/kinds-canonical-hashmap",
    "flink-1.18.1/count-unaligned",
    "flink-1.20.5/kinds-compressed",
    "flink-2.0.2/count-checkpoint-incremental",
    "flink-2.3.0/kinds-compressed-native",
    "flink-2.3.0/kinds-merging-hashmap",
    "flink-2.3.0/sql-canonical-hashmap",
)
WITH_OFFSETS = (
    "flink-1.15.4/count-native-hashmap",
    "flink-1.15.4/kinds-canonical-hashmap",
    "flink-1.18.1/count-unaligned",
    "flink-2.3.0/kinds-compressed-native",
)
SAMPLE, MANY = 6, 120
MEMORY_MAX = 1 << 20  # KiB that the process may grow by


def damage(image: GoldenImage, folder: Path, seed: int, count: int) -> None:
    """Run the commands over `count` damaged versions of an image; most are of its metadata."""
    chance = random.Random(seed)
    files = sorted(path for path in image.files if path != image.metadata_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        path = chance.choice(files) if files and chance.random() < 0.5 else image.metadata_path
        words, content = mutated(image.files[path], chance)
        try:
            run_commands(image, {path: content}, folder)
        except BaseException as error:
            error.add_note(f"{image.name}, {path}: {words} (seed {seed})")
            raise
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_MAX


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", KINDS)
def test_no_damage_makes_a_command_end_in_a_bug(name: str, tmp_path: Path) -> None:
    damage(golden_image(name), tmp_path, SEED, SAMPLE)


@pytest.mark.parametrize("name", WITH_OFFSETS)
def test_an_offset_below_zero_makes_no_command_end_in_a_bug(name: str, tmp_path: Path) -> None:
    image = golden_image(name)
    content = image.files[image.metadata_path]
    offsets = sorted({longs.raw for longs in longs_in(decode_metadata(content)) if longs.raw})
    assert offsets, "nothing says where something begins"
    for raw in offsets:
        place = content.index(raw) + len(raw) - 8  # of the last, which is asked first
        below_zero = bytes((content[place] ^ 0x80,))
        changed = content[:place] + below_zero + content[place + 1 :]
        answers = run_commands(image, {image.metadata_path: changed}, tmp_path)
        assert answers["verify --deep"].code == 5, f"{name}: byte {place}"
        looked = answers["inspect"]
        assert looked.code == 0 or ", subtask " in looked.err, f"{name}: byte {place}"


def longs_in(value: object) -> Iterator[Longs]:
    """Yield every list of offsets in a value, however deep."""
    if isinstance(value, Longs):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from longs_in(getattr(value, field.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from longs_in(one)


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.NAMES)
def test_no_damage_of_any_image_makes_a_command_end_in_a_bug(name: str, tmp_path: Path) -> None:
    damage(golden_image(name), tmp_path, SEED + 1, MANY)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_metadata_that_ends_anywhere_makes_no_command_end_in_a_bug(
    name: str, tmp_path: Path
) -> None:
    image = golden_image(name)
    content = image.files[image.metadata_path]
    for size in range(0, len(content), max(1, len(content) // 400)):
        answers = run_commands(image, {image.metadata_path: content[:size]}, tmp_path)
        assert answers["verify"].code == 5, f"{name}: _metadata of {size} bytes"
