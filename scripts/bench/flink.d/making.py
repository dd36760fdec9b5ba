"""Metadata to measure with, made of a golden savepoint's by the encoders of the formats; kept
between runs.

large_metadata(folder)  100 operators of 256 subtasks, each with 128 key groups and an operator
                        state
once(folder, make)      a folder that is there whole or not at all
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stateshift.formats.flink import METADATA as NAME
from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.keyed_handles import SAVEPOINT_KEY_GROUPS, KeyGroups
from stateshift.formats.flink.metadata import (
    Metadata,
    OperatorState,
    SubtaskState,
    decode_metadata,
    encode_metadata,
)
from stateshift.formats.flink.operator_handles import Partitioned, StateOffsets
from stateshift.formats.flink.stream_handles import RelativeFile
from stateshift.formats.uid import flink_operator_id

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "flink-2.3.0" / "count-canonical-rocksdb" / "image"
OPERATORS, SUBTASKS, GROUPS = 100, 256, 128


def golden() -> tuple[Path, Metadata]:
    (folder,) = GOLDEN.glob("savepoint-*")
    return folder, decode_metadata((folder / NAME).read_bytes())


def large_metadata(folder: Path) -> Path:
    def make(place: Path) -> None:
        _, given = golden()
        operators = tuple(_large_operator(number) for number in range(OPERATORS))
        (place / NAME).write_bytes(encode_metadata(replace(given, operators=operators)))

    return once(folder, make)


def _large_operator(number: int) -> OperatorState:
    uid = f"operator-{number}"
    subtasks = tuple(_large_subtask(number, index) for index in range(SUBTASKS))
    own = bytes.fromhex(flink_operator_id(uid))
    return OperatorState(
        own, SUBTASKS, SUBTASKS * GROUPS, None, subtasks, f"Operator {number}", uid
    )


def _large_subtask(operator: int, index: int) -> SubtaskState:
    offsets = Longs.of(400 + group * 4096 for group in range(GROUPS))
    keyed = RelativeFile(f"{operator:08x}-0000-4000-8000-{index:012x}", 400 + GROUPS * 4096)
    part = RelativeFile(f"{operator:08x}-0000-4000-9000-{index:012x}", 2048)
    listed = Partitioned((StateOffsets("offsets", 0, Longs.of((200, 1200))),), part)
    handle = KeyGroups(SAVEPOINT_KEY_GROUPS, index * GROUPS, offsets, keyed)
    return SubtaskState(index, managed_operator=listed, managed_keyed=handle)


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    if not folder.exists():
        new = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        make(new)
        os.replace(new, folder)
    return folder
