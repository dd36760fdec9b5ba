"""Rows become the state of a savepoint that they were exported from; edited ones are where their
keys belong; what does not fit is refused by its row, and nothing is written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, look
from stateshift.engines.flink.entries.image import numbered_entries
from stateshift.engines.flink.image import id_of, metadata_of, places_of
from stateshift.engines.flink.rewrite import regroup, row_import
from stateshift.engines.flink.rewrite import rescale as rescaling
from stateshift.engines.flink.streams import Streams
from stateshift.engines.registry import engine
from stateshift.formats import sorting
from stateshift.formats.blocks import block_of
from stateshift.formats.flink import encoding, key_groups
from stateshift.formats.flink.binary_rows import encode_fields, key_slot_of
from stateshift.formats.flink.key_groups import prefix_bytes
from stateshift.formats.flink.keyed_columns import encode_sections
from stateshift.formats.flink.keyed_state import encode_section
from stateshift.formats.flink.keyed_state import entries as entries_in
from stateshift.formats.flink.metadata import decode_metadata, encode_metadata
from stateshift.formats.flink.serializers import Serializer
from stateshift.formats.sorting import SortedPiles
from stateshift.formats.uid import flink_operator_id
from stateshift.specification import parse_spec
from stateshift.table.tables import tables_of
from tests.cli.support import Said, said
from tests.engines.flink import golden
from tests.support.ground import Ground

Row = dict[str, Any]
TYPED, TABLES, KEYED, KINDS = (
    f"flink-2.3.0/{name}"
    for name in (
        "typed-canonical",
        "tables-canonical",
        "count-canonical-rocksdb",
        "kinds-compressed",
    )
)
CANONICAL = [
    name
    for name in golden.NAMES
    if any(word in name for word in ("canonical", "compressed", "no-uids", "drained", "-two"))
    and not any(word in name for word in ("changelog", "native"))
]


def place(case: str) -> Path:
    return golden.FOLDER / case / str(golden.told(case)["image"])


def imported(folder: Path, template: Path, *words: object) -> Said:
    to = ("--to", folder / "new", "--workdir", folder / "run", "--yes")
    return said("import", *map(str, (*words, "--template", template, *to)))


def rows_of(folder: Path, template: Path) -> list[Row]:
    """The rows of all keyed state."""
    file = folder / "exported.jsonl"
    assert said("export", str(template), "--to", str(file), "--overwrite").code == 0
    _, survey = engine("flink").survey(str(template), look.open_patiently)
    keyed = set()
    for operator in survey.images[0].operators:
        for state in operator.details["states"]:
            if state["kind"] != "operator":
                keyed |= {(operator.uid or operator.id, state["name"])}
    lines = map(json.loads, file.read_text().splitlines())
    return [row for row in lines if (row["operator"], row["store"]) in keyed]


def written(folder: Path, rows: list[Row]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.sample(16)
@pytest.mark.parametrize("case", CANONICAL)
def test_exported_rows_become_the_state_they_were(case: str, tmp_path: Path) -> None:
    template = place(case)
    rows = rows_of(tmp_path, template)
    done = imported(tmp_path, template, written(tmp_path, rows))
    assert done.code == 0, done.err
    assert api.diff(str(template), str(tmp_path / "new")).equal
    assert keyed_bytes(template) == keyed_bytes(tmp_path / "new")
    assert look.restartable(str(tmp_path / "new"), look.open_patiently, thorough=True).restartable
    assert rows


def keyed_bytes(location: Path) -> set[tuple[str, int, int, bytes, bytes]]:
    """All keyed state as it lies there."""
    _, survey = engine("flink").survey(str(location), look.open_patiently)
    image, found = survey.images[0], set()
    streams = Streams(look.open_patiently(str(location)).chunks, places_of(image))
    for operator in metadata_of(image).operators:
        prefix = prefix_bytes(operator.max_parallelism)
        for subtask in operator.all_subtasks:
            for entry in numbered_entries(subtask.managed_keyed, prefix, streams):
                found.add((operator.id.hex(), *entry))
    return found


@pytest.mark.parametrize("reserved", [False, True])
def test_unchanged_rows_keep_the_bytes_of_keys_and_values(
    reserved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joins find the rows in their maps by bytes: RowDataSerializer keeps none for a null
    TIMESTAMP(6), BinaryRowWriter does."""
    rows = [row for row in rows_of(tmp_path, place(TABLES)) if row["store"] == "left-records"]
    rows = [row for row in rows if row["operator"].startswith("0d97")]
    for row in rows:
        row["key"]["map_key"].update(f4=None, f5=None)
    with monkeypatch.context() as patch:
        if reserved:
            all_reserved = lambda types, names, given, slot=None: (  # noqa: E731
                encode_fields(types, names, given, key_slot_of)
            )
            patch.setattr(encoding, "encode_fields", all_reserved)
        made = imported(tmp_path, place(TABLES), written(tmp_path, rows))
    assert made.code == 0 and rows, made.err
    template, again = tmp_path / "new", tmp_path / "again"
    again.mkdir()
    rows = [row for row in rows_of(again, template) if row["store"] == "left-records"]
    done = imported(again, template, written(again, rows))
    assert done.code == 0, done.err
    assert "of them byte for byte the template's" in done.err
    assert keyed_bytes(template) == keyed_bytes(again / "new")


def test_what_was_written_is_read_again_and_compared_with_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row for row in rows_of(tmp_path, place(TYPED)) if row["store"] == "text"]
    file, real = written(tmp_path, rows), row_import.encode_sections
    faults: list[Callable[[list[Any]], list[Any]]] = [
        lambda listed: listed[1:],
        lambda listed: [(key, value + b"\0") for key, value in listed],
        lambda listed: [(key[:4] + b"x" + key[5:], value) for key, value in listed],
    ]
    for number, fault in enumerate(faults):
        monkeypatch.setattr(
            row_import,
            "encode_sections",
            lambda block, prefix, fault=fault: real(block_of(fault(list(block.records()))), prefix),
        )
        folder = tmp_path / str(number)
        done = imported(folder, place(TYPED), file)
        assert done.code == 3 and "which do not show" in done.err, done.err
        assert not folder.exists() or not list(folder.iterdir())


def test_sections_are_written_at_once_as_one_by_one() -> None:
    """Of several key groups, states, and sizes; `entries` reads them."""
    for prefix, groups in ((1, (0, 3, 127)), (2, (0, 128, 299))):
        listed = [
            (group.to_bytes(2, "big") + state.to_bytes(2, "big") + bytes((n,)) * (n % 5), b"v" * n)
            for group in groups
            for state in (0, 2, 7)[: 1 + group % 3]
            for n in range(9)
        ]
        made = dict(encode_sections(block_of(listed), prefix))
        assert list(made) == list(groups)
        for group, content in made.items():
            own = [(key[2:], value) for key, value in listed if key[:2] == group.to_bytes(2, "big")]
            found = list(entries_in(content, prefix, group))
            ahead = group.to_bytes(prefix, "big")
            told = [(int.from_bytes(key[:2], "big"), ahead + key[2:], value) for key, value in own]
            assert found == told and content == encode_section(told)
    assert list(encode_sections(block_of([]), 1)) == []


@pytest.mark.parametrize("bytes_max", [1, 40 * 1024 * 1024])
def test_rows_that_are_sorted_on_the_disk_become_the_same_state(
    bytes_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are merged by chunks, whose ends are within key groups, and between a row and the
    template's entry."""
    template = place(TYPED)
    rows = rows_of(tmp_path, template)
    monkeypatch.setattr(sorting, "BYTES_MAX", bytes_max)
    monkeypatch.setattr(sorting, "CHUNK_BYTES", 64)
    monkeypatch.setattr(row_import, "SortedPiles", partial(SortedPiles, bytes_max=bytes_max))
    done = imported(tmp_path, template, written(tmp_path, rows))
    assert done.code == 0, done.err
    assert keyed_bytes(template) == keyed_bytes(tmp_path / "new")


def test_windows_without_their_timers_and_timers_without_windows_are_warned_of(
    tmp_path: Path,
) -> None:
    rows = [row for row in rows_of(tmp_path, place(KINDS)) if row["operator"] == "windows"]
    for number, store in enumerate(("window-contents", "_timer_state/event_window-timers")):
        own = [row for row in rows if (row["store"] == store)]
        done = imported(tmp_path / str(number), place(KINDS), written(tmp_path, own))
        assert done.code == 0 and own, done.err
        assert done.err.count("  warn: ") == 1 and "has no rows, and keeps" in done.err
    whole = imported(tmp_path / "2", place(KINDS), written(tmp_path, rows))
    assert whole.code == 0 and "  warn: " not in whole.err


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_files_of_other_formats_become_state_too(suffix: str, tmp_path: Path) -> None:
    files = []
    for store in ("row", "tuple", "living"):
        files.append(tmp_path / f"{store}{suffix}")
        only = ("--operator", "plain", "--store", store)
        said("export", str(place(TYPED)), "--to", str(files[-1]), *only)
    done = imported(tmp_path, place(TYPED), *filter(Path.exists, files))
    assert done.code == 0, done.err
    assert api.diff(str(place(TYPED)), str(tmp_path / "new")).equal


@pytest.mark.parametrize(
    ("case", "operator", "store"),
    [
        (KEYED, "orders-count", "count"),
        (TYPED, "mixed", "text"),
        (KINDS, "windows", "window-contents"),
        (KINDS, "collections", "digits"),
        (TABLES, "", "accState"),
    ],
)
def test_edited_rows_are_where_their_keys_belong_and_all_else_is_the_templates(
    case: str, operator: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_import, "EVIDENCE", 15)  # five keys in eight key groups
    template = place(case)
    rows = rows_of(tmp_path, template)
    operator = operator or next(row["operator"] for row in rows if row["store"] == store)
    own = [row for row in rows if (row["operator"], row["store"]) == (operator, store)]
    gone, *kept = own
    key = gone["key"]["key"]
    fresh: list[Any] = [f"new {n}" if isinstance(key, str) else 10**6 + n for n in range(50)]
    if isinstance(key, list):
        fresh = [[f"new {n}", *key[1:]] for n in range(50)]
    if isinstance(key, dict):
        fresh = [{**key, "f0": type(key["f0"])(n + 999)} for n in range(50)]
    new = [{**gone, "key": {**gone["key"], "key": each}} for each in fresh]
    done = imported(tmp_path, template, written(tmp_path, [*reversed(kept), *new]))
    assert done.code == 0, done.err
    there = tmp_path / "new"
    assert look.restartable(str(there), look.open_patiently, thorough=True).restartable
    stores = look.diff(str(template), str(there)).stores
    assert {each.store for each in stores if not each.equal} == {store}

    def told(row: Row) -> str:
        return json.dumps([row["operator"], row["store"], row["key"], row["value"]], sort_keys=True)

    others = [row for row in rows if row not in own]
    expected = sorted(map(told, [*others, *kept, *new]))
    assert sorted(map(told, rows_of(tmp_path, there))) == expected


def test_an_answer_about_the_template_becomes_its_state(tmp_path: Path) -> None:
    table = next(
        each
        for each in tables_of([str(place(KEYED))], look.open_patiently)
        if each.store == "count"
    )
    sql = f"select key, value::bigint + 5 as value from {table.name}"
    words = ("--operator", table.operator, "--store", table.store)
    done = imported(tmp_path, place(KEYED), sql, *words)
    assert done.code == 0, done.err
    asked = (
        "select sum(b.value::bigint - a.value::bigint) n, count(*) c "
        f"from a_{table.name} a join b_{table.name} b using (key)"
    )
    (row,) = api.query(asked, str(place(KEYED)), str(tmp_path / "new")).to_pylist()
    assert row["n"] == 5 * row["c"] > 0


def value(store: str, change: Callable[[Any], Any]) -> Callable[[list[Row]], list[Row]]:
    def changed(rows: list[Row]) -> list[Row]:
        at = next(n for n, row in enumerate(rows) if row["store"] == store)
        return [*rows[:at], {**rows[at], "value": change(rows[at]["value"])}, *rows[at + 1 :]]

    return changed


def doubled(rows: list[Row]) -> list[Row]:
    return [*rows, rows[2]]


def other_key(key: Any, operator: str = "plain") -> Callable[[list[Row]], list[Row]]:
    def changed(rows: list[Row]) -> list[Row]:
        at = next(n for n, row in enumerate(rows) if row["operator"] == operator)
        row = {**rows[at], "key": {**rows[at]["key"], **key}}
        return [*rows[:at], row, *rows[at + 1 :]]

    return changed


FAULTS: dict[str, tuple[str, Callable[[list[Row]], list[Row]]]] = {
    "a key twice": ("have the same key", doubled),
    "a key whose hash only its class knows": (
        "that the template does not have",
        other_key({"key": {"name": "nobody", "number": 999}}, "pojos"),
    ),
    "a number for a text": ("of another type", value("text", lambda text: 5)),
    "a text for a number": ("of another type", value("integer", lambda number: "5")),
    "a number too large": ("too large", value("count", lambda number: 1 << 63)),
    "a truth value for a number": ("would be read as 1", value("integer", lambda number: True)),
    "another constant": ("it is none of", value("colour", lambda colour: "nope")),
    "another field": ("it has the fields", value("row", lambda row: {**row, "more": 1})),
    "a field too few": ("it has the fields", value("row", lambda row: {"f0": 1})),
    "another column of the key": ("it has the fields", other_key({"more": 1})),
    "a null key": ("leave the row out", other_key({"key": None})),
    "a null value": ("leave the row out", value("text", lambda text: None)),
    "a null item": ("leave the row out", value("instants", lambda items: [*items, None])),
    "a list of nothing": ("an empty list", value("ids", lambda ids: [])),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_row_that_does_not_fit_is_refused_by_its_number(fault: str, tmp_path: Path) -> None:
    told, change = FAULTS[fault]
    rows = rows_of(tmp_path, place(TYPED))
    (tmp_path / "exported.jsonl").unlink()
    done = imported(tmp_path, place(TYPED), written(tmp_path, change(rows)))
    assert (done.code, told in done.err) == (3, True), done.err
    assert "row" in done.err or "line" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


@pytest.mark.parametrize(("case", "store"), [(TYPED, "row"), (TABLES, "accState")])
def test_a_new_key_where_too_few_show_how_the_job_hashes_them_is_refused(
    case: str, store: str, tmp_path: Path
) -> None:
    rows = rows_of(tmp_path, place(case))
    row = next(row for row in rows if row["store"] == store)
    key = {**row["key"]["key"], "f0": type(row["key"]["key"]["f0"])(999)}
    new = {**row, "key": {**row["key"], "key": key}}
    done = imported(tmp_path, place(case), written(tmp_path, [*rows, new]))
    assert done.code == 3 and "is not known" in done.err, done.err


def test_keys_of_a_job_that_hashes_rows_in_a_way_of_its_own_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that takes their fields' names: the bytes of the keys are the same."""
    ground, template = Ground(tmp_path / "ground"), tmp_path / "template"
    source = golden.write(ground.disk, TYPED)
    rescale = {"kind": "rescale", "max_parallelism": 128}
    changes = [{"kind": "drop", "operators": ["pojos", "lines"]}, rescale]
    job = {"name": "own", "existing_savepoint_paths": [source], "transform": changes}
    job["new_savepoint_path"] = "file:///there/own"
    real = key_groups.code_of

    def by_names(serializer: Serializer, key: object) -> int:
        of_row = serializer.name == "RowSerializer"
        return real(serializer, key) * (31 if of_row else 1) & 0xFFFFFFFF

    with monkeypatch.context() as other:
        other.setattr(key_groups, "code_of", by_names)
        other.setattr(regroup, "refuse_other_hash", lambda *told: None)
        other.setattr(rescaling, "EVIDENCE", 1)
        ground.apply(parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [job]})))
    template.mkdir()
    for name, content in ground.held("file:///there/own").items():
        (template / name).write_bytes(content)
    rows = [row for row in rows_of(tmp_path, template) if row["operator"] == "plain"]
    done = imported(tmp_path, template, written(tmp_path, rows))
    assert done.code == 0 and rows, done.err
    assert keyed_bytes(template) == keyed_bytes(tmp_path / "new")
    new = other_key({"key": {"f0": "row-1", "f1": 999}})(rows)
    (tmp_path / "more").mkdir()
    done = imported(tmp_path / "more", template, written(tmp_path, new))
    assert done.code == 3 and "is not known" in done.err, done.err


def test_a_key_that_is_a_row_goes_to_the_key_group_of_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_import, "EVIDENCE", 9)  # three keys in eight key groups
    rows = rows_of(tmp_path, place(TYPED))
    (tmp_path / "exported.jsonl").unlink()
    rows = other_key({"key": {"f0": "row-1", "f1": 999}})(rows)
    done = imported(tmp_path, place(TYPED), written(tmp_path, rows))
    assert done.code == 0, done.err
    # Its hash code is 3369826890, as a loop in a JDK says; Murmur3 of it is 4 of 8.
    own = b"row-1" + (999).to_bytes(8, "big")
    assert {entry[1] for entry in keyed_bytes(tmp_path / "new") if own in entry[3]} == {4}


def test_an_operator_is_known_by_its_id_too(tmp_path: Path) -> None:
    rows = [row for row in rows_of(tmp_path, place(TYPED)) if row["operator"] == "mixed"]
    _, survey = engine("flink").survey(str(place(TYPED)), look.open_patiently)
    (by_id,) = [operator.id for operator in survey.images[0].operators if operator.uid == "mixed"]
    for row in rows[::2]:
        row["operator"] = by_id
    done = imported(tmp_path, place(TYPED), written(tmp_path, rows))
    assert done.code == 0, done.err
    assert api.diff(str(place(TYPED)), str(tmp_path / "new")).equal


REFUSED = {
    "no operator nope": (2, [{"operator": "nope", "store": "count", "key": {}, "value": 1}]),
    "no keyed state nope": (2, [{"operator": "mixed", "store": "nope", "key": {}, "value": 1}]),
    "which operator": (2, [{"key": {"key": "k"}, "value": 1}]),
    "there are no rows": (2, []),
    "rows have other columns": (2, [{"key": {"key": "k"}, "value": 1, "more": 1}]),
    "nothing is said of it": (3, [{"operator": "mixed", "store": "count", "key": 1, "value": 1}]),
}


@pytest.mark.parametrize("told", REFUSED)
def test_rows_of_no_state_are_refused(told: str, tmp_path: Path) -> None:
    code, rows = REFUSED[told]
    done = imported(tmp_path, place(TYPED), written(tmp_path, rows))
    assert done.code == code and (told in done.err or code == 3), done.err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize(
    "case", ["count-native-rocksdb", "count-native-hashmap", "count-unaligned"]
)
def test_a_template_that_is_not_canonical_is_refused_with_the_way_out(
    case: str, tmp_path: Path
) -> None:
    row = {"operator": "orders-count", "store": "count", "key": {"key": 1}, "value": 1}
    done = imported(tmp_path, place(f"flink-2.3.0/{case}"), written(tmp_path, [row]))
    assert done.code == 4 and "--type canonical" in done.err, done.err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_an_operator_is_known_by_its_uid_where_the_image_has_its_id_alone(tmp_path: Path) -> None:
    template = place("flink-1.20.5/count-canonical-rocksdb")
    file, words = tmp_path / "rows.jsonl", ("--operator", "orders-count", "--store", "count")
    assert said("export", str(template), "--to", str(file), *words).code == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows and "orders-count" not in {row["operator"] for row in rows}
    done = imported(tmp_path, template, written(tmp_path, rows), *words)
    assert done.code == 0, done.err
    assert api.diff(str(template), str(tmp_path / "new")).equal


def test_a_zero_takes_the_place_of_one_with_another_sign(tmp_path: Path) -> None:
    rows = [row for row in rows_of(tmp_path, place(TYPED)) if row["store"] == "doubles"]
    template = place(TYPED)
    for zero in (0.0, -0.0):
        folder = tmp_path / str(zero)
        folder.mkdir()
        rows = [{**row, "value": [zero]} for row in rows]
        done = imported(folder, template, written(folder, rows))
        assert done.code == 0, done.err
        template = folder / "new"
        shown = [row["value"] for row in rows_of(folder, template) if row["store"] == "doubles"]
        assert json.dumps(shown) == json.dumps([[zero]] * len(rows))


def test_a_value_of_more_bytes_than_java_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row for row in rows_of(tmp_path, place(TYPED)) if row["store"] == "text"]
    for module in (encoding, row_import):
        monkeypatch.setattr(module, "BYTES_MAX", 40)
    file = written(tmp_path, [*rows[1:], {**rows[0], "value": "x" * 41}])
    done = imported(tmp_path, place(TYPED), file)
    assert done.code == 3 and "Flink holds up to 40" in done.err, done.err
    assert imported(tmp_path, place(TYPED), written(tmp_path, rows)).code == 0


@pytest.mark.parametrize("uid", ["0123456789abcdef" * 2, "orders-with-a-hash-of-its-own"])
def test_an_operator_is_known_by_its_uid_whatever_its_id_is(uid: str, tmp_path: Path) -> None:
    template, file, words = tmp_path / "template", tmp_path / "rows.jsonl", ("--store", "count")
    shutil.copytree(place(KEYED), template)
    metadata = decode_metadata((template / "_metadata").read_bytes())
    operators = []
    for operator in metadata.operators:
        if operator.uid == "orders-count":
            operator = replace(operator, uid=uid)  # its id stays: setUidHash
            if id_of(uid) == uid:
                operator = replace(operator, id=bytes.fromhex(flink_operator_id(uid)))
        operators.append(operator)
    changed = encode_metadata(replace(metadata, operators=tuple(operators)))
    (template / "_metadata").write_bytes(changed)
    done = said("export", str(template), "--to", str(file), *words, "--operator", uid)
    assert done.code == 0, done.err
    assert {json.loads(line)["operator"] for line in file.read_text().splitlines()} == {uid}
    done = imported(tmp_path, template, file, *words)
    assert done.code == 0, done.err
    assert api.diff(str(template), str(tmp_path / "new")).equal


def test_a_name_with_half_a_character_is_one_as_any(tmp_path: Path) -> None:
    template = tmp_path / "template"
    shutil.copytree(place(KEYED), template)
    for file in template.iterdir():
        half = "\ud800nt".encode("utf-8", "surrogatepass")
        file.write_bytes(file.read_bytes().replace(b"\0\5count", b"\0\5" + half))
    rows = rows_of(tmp_path, template)
    assert {row["store"] for row in rows} == {"\ud800nt"}
    done = imported(tmp_path, template, written(tmp_path, rows))
    assert done.code == 0, done.err
    assert keyed_bytes(template) == keyed_bytes(tmp_path / "new")
