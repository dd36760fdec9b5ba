"""State of CEP's operator, as a real Flink's job left it: what its pattern has to hold follows from
the numbers that the job read.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.errors import FormatError
from stateshift.formats.flink.encoding import encode
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.serializers import Serializer, Unknown, value
from stateshift.formats.flink.type_names import type_name
from tests.cli.support import said

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "cep"
IMAGES = sorted(path.parent for path in GOLDEN.glob("*/told.json"))
CANONICAL = [image for image in IMAGES if image.name.endswith("canonical")]
PATTERNS = ("nfaStateName", "sharedBuffer-events", "sharedBuffer-entries-with-lockable-edges")
TYPES = {
    "nfaStateName": "NFAState",
    "sharedBuffer-events": "Map<EventId, Lockable<Long>>",
    "sharedBuffer-entries-with-lockable-edges": "Map<NodeId, Lockable<SharedBufferNode>>",
    "sharedBuffer-events-count": "Map<Long, Integer>",
    "eventQueuesStateName": "Map<Long, List<Long>>",
}
pytestmark = pytest.mark.row("W-9")


def place(image: Path) -> str:
    (metadata,) = image.glob("image/*/_metadata")
    return str(metadata.parent)


def event(number: int) -> dict[str, int]:
    return {"id": 0, "timestamp": number * 1000}


def node(number: int, pattern: str) -> dict[str, Any]:
    return {"event": event(number), "pattern": pattern}


def lockable(element: Any) -> dict[str, Any]:
    return {"references": 1, "element": element}


def match(state: str, previous: Any, version: list[int], times: tuple[int, int]) -> dict[str, Any]:
    start, last = times
    return {
        "state": state,
        "previous_node": previous,
        "version": version,
        "start_timestamp": start,
        "previous_timestamp": last,
        "start_event": None if previous is None else {"id": 0, "timestamp": start},
    }


def expected(image: Path) -> dict[str, dict[str, Any]]:
    """What Patterns holds: every other number of a key begins a match, the one behind it is its
    second; the last one of all waits for the time to come.
    """
    told = json.loads((image / "told.json").read_text())
    held: dict[str, dict[str, Any]] = defaultdict(dict)
    *numbers, last = told["numbers"]
    held["eventQueuesStateName"][f"key-{last % told['keys']} {last * 1000}"] = [last]
    for own in range(told["keys"]):
        key = f"key-{own}"
        seen = [number for number in numbers if number % told["keys"] == own]
        matches = []
        for run, start in enumerate(seen[::2], 1):
            pair = seen[2 * run - 2 : 2 * run]
            edges = [{"target": None, "version": [run]}]
            edges.append({"target": node(start, "first"), "version": [run, 0]})
            for number, pattern, edge in zip(pair, ("first", "second"), edges, strict=False):
                held[PATTERNS[1]][f"{key} {event(number)}"] = lockable(number)
                shown = lockable([lockable(edge)])
                held[PATTERNS[2]][f"{key} {node(number, pattern)}"] = shown
            times = start * 1000, pair[-1] * 1000
            state, previous = [("second", "first"), ("third", "second")][len(pair) - 1]
            version = [run, *[0] * len(pair)]
            matches.append(match(state, node(pair[-1], previous), version, times))
        matches.append(match("first", None, [len(seen[::2]) + 1], (-1, -1)))
        held[PATTERNS[0]][key] = {"partial_matches": matches, "completed_matches": []}
    return held


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_matches_buffered_events_and_queues_are_as_the_numbers_have_them(image: Path) -> None:
    held: dict[str, dict[str, Any]] = defaultdict(dict)
    for entry in look.entries(place(image), limit=1000):
        key: Any = entry.key
        if entry.store in TYPES and "key" in key:
            within = f" {key['map_key']}" if "map_key" in key else ""
            held[entry.store][key["key"] + within] = entry.value
    for shown in held["nfaStateName"].values():
        shown["partial_matches"].sort(key=lambda each: each["version"])
    assert held == expected(image)


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_inspect_names_the_type_of_each_state(image: Path) -> None:
    operators = said("inspect", place(image), "--json").document["operators"]
    states = {state["name"]: state for operator in operators for state in operator["states"]}
    assert {name: states[name]["value"] for name in TYPES} == TYPES


@pytest.mark.parametrize("image", CANONICAL, ids=lambda image: image.name)
def test_an_export_of_it_is_imported_byte_for_byte(image: Path, tmp_path: Path) -> None:
    rows, new, runs = (str(tmp_path / name) for name in ("rows.jsonl", "new", "runs"))
    for name in PATTERNS:
        exported = said("export", place(image), "--to", rows, "--store", name, "--overwrite")
        assert exported.code in (0, None) and "bytes" not in exported.err
        words = ("--template", place(image), "--to", f"{new}-{name}", "--workdirs", runs, "-y")
        made = said("import", rows, *words)
        count = sum(len(each) for state, each in expected(image).items() if state == name)
        assert f"{count} entries, {count} of them byte for byte" in made.out + made.err
        compared = said("diff", place(image), f"{new}-{name}")
        assert compared.code in (0, None), compared.out


SHOWN = {
    "partial_matches": [
        match("third", node(3, "second"), [1, 0, 0], (1000, 3000)),
        match("first", None, [4], (-1, -1)),
    ],
    "completed_matches": [],
}


def nfa_serializer(setting: int) -> Serializer:
    event_id, version = (Serializer(f"{name}Serializer", 3) for name in ("EventId", "DeweyNumber"))
    inner = version, Serializer("NodeIdSerializer", 1, (event_id,)), event_id
    return Serializer("NFAStateSerializer", 3, inner, setting=setting)


def test_matches_of_before_1_16_have_no_time_of_their_last_event() -> None:
    matches = [{**each, "previous_timestamp": None} for each in SHOWN["partial_matches"]]
    for each in matches:
        del each["previous_timestamp"]
    older = {**SHOWN, "partial_matches": matches}
    raw = encode(nfa_serializer(0), older)
    assert value(nfa_serializer(0), DataInput(raw, "a value")) == older
    assert len(encode(nfa_serializer(1), SHOWN)) == len(raw) + 2 * 8


def test_a_match_that_is_cut_or_damaged_is_refused_or_read() -> None:
    serializer, chance = nfa_serializer(1), random.Random(7)
    raw = encode(serializer, SHOWN)
    for end in range(len(raw)):
        with pytest.raises(FormatError):
            value(serializer, DataInput(raw[:end], "a value"))
        damaged = bytearray(raw)
        damaged[end] = chance.randrange(256)
        try:
            value(serializer, DataInput(bytes(damaged), "a value"))
        except (FormatError, Unknown):
            continue
    assert type_name(serializer) == "NFAState"
