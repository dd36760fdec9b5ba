"""Messages of protobuf in the state of a real Flink's job, as protobuf's own JSON has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, look
from stateshift.engines.views import Wanted
from stateshift.errors import FormatError, StorageError
from stateshift.formats.flink.protobuf import use_descriptors
from tests.cli.support import said
from tests.formats.flink.test_protobuf import DESCRIPTORS, as_json

GOLDEN = DESCRIPTORS.parent
IMAGES = sorted(path.parent for path in GOLDEN.glob("*/told.json"))
CANONICAL = [image for image in IMAGES if image.name.endswith("canonical")]
OPERATOR = "bf55a99330852d60e385c773a124fa79"
pytestmark = pytest.mark.row("W-9")


@pytest.fixture(autouse=True)
def _without_descriptors() -> Iterator[None]:
    yield
    use_descriptors([])


def place(image: Path) -> str:
    (metadata,) = image.glob("image/*/_metadata")
    return str(metadata.parent)


def held(image: Path) -> dict[tuple[str, str], Any]:
    """What the job said each state of each key holds."""
    found = {}
    for state, values in json.loads((image / "told.json").read_text())["held"].items():
        for key, value in values.items():
            found[state.partition(" ")[0], key] = value
    return found


def shown(location: str) -> dict[tuple[str, str], Any]:
    found = {}
    for entry in look.entries(location, limit=1000):
        key: Any = entry.key
        if entry.store in ("order", "parts", "orders", "parcel", "count"):
            found[entry.store, key["key"]] = entry.value
    return found


def without_defaults(told: Any) -> Any:
    """Java prints a default of the older syntax, too, where nothing is set."""
    if isinstance(told, list):
        return [without_defaults(each) for each in told]
    if not isinstance(told, dict):
        return told
    kept = {key: without_defaults(each) for key, each in told.items()}
    return {key: each for key, each in kept.items() if (key, each) != ("stock", 7)}


def no_nulls(told: Any) -> Any:
    return {key: each for key, each in told.items() if each is not None}


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_messages_are_shown_as_the_job_told_them(image: Path) -> None:
    use_descriptors([DESCRIPTORS.read_bytes()])
    seen, told = shown(place(image)), held(image)
    assert seen.keys() == told.keys() and len(seen) == 5 * 6
    for name, value in seen.items():
        expected = without_defaults(told[name])
        if name[0] == "parcel":
            expected = no_nulls(expected)
            value = {**value, "order": value["order"] and as_json(value["order"])}
            assert value.pop("weight") == expected.pop("weight")
            assert no_nulls(value) == expected, name
        else:
            assert (value if name[0] == "count" else as_json(value)) == expected, name


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_without_a_descriptor_fields_are_shown_by_number_and_nothing_is_hidden(image: Path) -> None:
    told = held(image)
    for (state, key), value in shown(place(image)).items():
        if state == "order":
            assert value["1"] == {"varint": int(told[state, key]["id"]) % 2**64}
        elif state == "parts":
            assert bytes.fromhex(value[0]["1"]["bytes"]).decode() == told[state, key][0]["name"]
        elif state == "count":
            assert value == told[state, key]


@pytest.mark.parametrize("image", CANONICAL, ids=lambda image: image.name)
def test_commands_take_a_descriptor(image: Path) -> None:
    here, told = place(image), held(image)
    described = said("inspect", here, "--json", "--descriptor", str(DESCRIPTORS)).document
    states = {
        state["name"]: state for operator in described["operators"] for state in operator["states"]
    }
    assert states["order"]["value"] == "Protobuf of jobs.wire.Orders$Order"
    fields = {field["name"]: field["type"] for field in states["order"]["fields"]}
    assert fields["marks"] == "repeated sint64"
    assert fields["by_name"] == "map<string, shop.Order.Line>"
    tables = said("query", here, "--json").document["tables"]
    (name,) = [table["name"] for table in tables if table["store"] == "order"]
    columns = "value->>'$.part.name' as part, (value->'$.lines[0].count')::int as n"
    sql = f"select {columns} from {name} order by key->>'$.key'"
    rows = said("query", here, sql, "--json", "--descriptor", str(DESCRIPTORS)).document["rows"]
    orders = [told["order", f"key-{number}"] for number in range(6)]
    assert [row["part"] for row in rows] == [order["part"]["name"] for order in orders]
    assert [row["n"] for row in rows] == [order["lines"][0]["count"] for order in orders]


@pytest.mark.parametrize("image", CANONICAL, ids=lambda image: image.name)
def test_an_export_notes_whose_names_are_missing(image: Path) -> None:
    descriptors: list[bytes]
    for descriptors in ([], [DESCRIPTORS.read_bytes()]):
        use_descriptors(descriptors)
        export = look.export(place(image), "-", Wanted())
        assert len(b"".join(export.chunks()).splitlines()) > 30
        notes = [note for note in export.notes if "--descriptor" in note]
        named = {state for note in notes for state in re.findall(r"state (\w+)", note)}
        assert named == (set() if descriptors else {"order", "parts", "orders", "parcel"})


@pytest.mark.parametrize("image", CANONICAL, ids=lambda image: image.name)
def test_messages_stay_beside_changed_fields_and_are_not_written(
    image: Path, tmp_path: Path
) -> None:
    new, rows, runs = (str(tmp_path / name) for name in ("new", "rows.jsonl", "runs"))
    words = ("--to", new, "--workdirs", runs, "-y")
    changes = ("--rename", "label=name", "--drop", "weight")
    operator = ("--operator", "messages" if image.name > "2" else OPERATOR)
    evolved = said("evolve", place(image), *words, *operator, "--store", "parcel", *changes)
    assert evolved.code == 0, evolved.err
    use_descriptors([DESCRIPTORS.read_bytes()])
    before, after = shown(place(image)), shown(new)
    for (store, key), value in before.items():
        if store == "parcel":
            value = {"name": value["label"], "order": value["order"]}
        assert after[store, key] == value
    for store, refused in (("order", True), ("count", False)):
        said("export", place(image), "--to", rows, "--store", store, "--overwrite")
        target = ("--template", place(image), "--to", f"{new}-{store}", "--workdirs", runs, "-y")
        imported = said("import", rows, *target)
        assert (imported.code != 0, "read, and not written" in imported.err) == (refused, refused)


def test_a_file_that_is_no_descriptor_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "orders.proto"
    other.write_text('syntax = "proto3";')
    refused = said("inspect", ".", "--descriptor", str(other))
    assert refused.code == FormatError.exit_code and str(other) in refused.err
    endless = said("inspect", ".", "--descriptor", "/dev/zero")
    assert endless.code == FormatError.exit_code and "/dev/zero" in endless.err
    missing = said("inspect", ".", "--descriptor", "/nowhere")
    assert missing.code == StorageError.exit_code and "/nowhere" in missing.err


@pytest.mark.parametrize("image", CANONICAL, ids=lambda image: image.name)
def test_a_program_sees_names_after_a_descriptor_was_given(image: Path) -> None:
    def values() -> list[Any]:
        lines = b"".join(api.export(place(image), store="order").lines()).splitlines()
        return [json.loads(line)["value"] for line in lines]

    assert all("1" in value for value in values())
    api.use_descriptors(DESCRIPTORS)
    assert all("id" in value for value in values())
    with pytest.raises(StorageError, match="/nowhere cannot be read"):
        api.use_descriptors("/nowhere")
    assert all("id" in value for value in values()), "those that were given stay"
