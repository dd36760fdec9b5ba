"""Entries of one kind of key dealt from 128 key groups into 256, entry by entry and as columns, in
turn: CPU seconds of each as JSON. Nothing is measured but the rescaler.

    python dealing.py KIND ENTRIES ROUNDS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT)]

from stateshift.engines.flink.rewrite.keyed_files import (  # noqa: E402
    KeyedFile,
    Sections,
    keyed_files,
)
from stateshift.engines.flink.rewrite.regroup import dealt_sections, united_sections  # noqa: E402
from tests.support.flink_keyed import (  # noqa: E402
    Entry,
    Key,
    Kind,
    header_of,
    origin_of,
    sections_of,
)

WAS, BECOMES, SUBTASKS = 128, 256, 4
VALUE = bytes(range(32))

KINDS: Mapping[str, tuple[Kind, Callable[[int], Key]]] = {
    "strings": ("string", lambda number: f"customer-{number}"),
    "strings, not ASCII": ("string", lambda number: f"покупець-{number}"),
    "longs": ("long", lambda number: number),
    "ints": ("int", lambda number: number),
    "tuples of a string and a long": (("string", "long"), lambda number: (f"c-{number}", number)),
}


def files_of(name: str, count: int) -> list[KeyedFile]:
    kind, key = KINDS[name]
    entries = [Entry(0, key(number * 7919 % 5000011), VALUE) for number in range(count)]
    sections = dict(sections_of(kind, entries, WAS))
    head = header_of(kind, ("count",))
    return keyed_files([origin_of([head] * SUBTASKS, [sections] * SUBTASKS, WAS)])


def timed(deal: Callable[[], Sections]) -> tuple[float, bytes]:
    began = time.process_time()
    sections = deal()
    seconds = time.process_time() - began
    return seconds, b"".join(sections.cut(range(BECOMES)).content())


def main() -> None:
    name, count, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    files = files_of(name, count)
    dealt_sections(files, BECOMES, BytesIO)  # once, not counted: what is imported and laid out
    pairs = []
    for _ in range(rounds):
        before, wanted = timed(lambda: united_sections(files, BECOMES, BytesIO))
        after, made = timed(lambda: dealt_sections(files, BECOMES, BytesIO))
        assert made == wanted, "bytes differ"
        pairs.append((before, after))
    print(json.dumps(pairs))


if __name__ == "__main__":
    main()
