"""The schemas of what `--json` prints: checked in, complete, and held against every document that
the tests print (tests/conftest.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from stateshift.cli.views.documents import DOCUMENTS, name_of, schema_of, schema_text
from tests.cli.support import SOURCE, said, whole_names, with_checkpoint
from tests.look.golden_images import NEWEST
from tests.support.documents import Documents, misfits

pytestmark = pytest.mark.every_case

WINDOWS = str(NEWEST["window-hdfs"] / "checkpoint")
OUTPUTS = Path(__file__).resolve().parents[2] / "configs" / "outputs"
RENEW = "for name in {}; do stateshift schema --of $name > configs/outputs/$name.schema.json; done"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_checked_in_schema_is_the_one_that_is_printed(name: str) -> None:
    checked_in = (OUTPUTS / f"{name}.schema.json").read_text("utf-8")
    assert checked_in == schema_text(schema_of(name)), RENEW.format(" ".join(DOCUMENTS))
    assert said("schema", "--of", name).out == checked_in


def test_no_schema_is_checked_in_that_nothing_prints() -> None:
    names = {path.name.removesuffix(".schema.json") for path in OUTPUTS.glob("*.schema.json")}
    assert names == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_key_of_a_schema_is_described(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(name))
    for shape, schema in schema_of(name)["$defs"].items():
        assert schema["description"], shape


# `mcp` prints no document: it speaks the protocol, and answers with the others' documents. Nor does
# `browse`, which needs a terminal.
WITHOUT = ("mcp", "browse")


@pytest.mark.parametrize("command", [name for name in whole_names() if name not in WITHOUT])
def test_every_command_has_a_schema(command: str) -> None:
    assert name_of(command) in DOCUMENTS
    assert said("schema", "--of", command).code == 0


def test_a_published_schema_lets_later_keys_pass_and_a_strict_one_does_not() -> None:
    document = said("uid", "Join", "--json").document
    later = [{**row, "later": 1} for row in document]
    jsonschema.Draft202012Validator(schema_of("uid")).validate(later)
    assert misfits("uid", document) == []
    assert "'later' was unexpected" in misfits("uid", later)[0]


def test_a_schema_refuses_a_missing_key_and_a_value_of_another_type() -> None:
    (row,) = said("uid", "Join", "--json").document
    without = {key: value for key, value in row.items() if key != "hash"}
    assert "'hash' is a required property" in misfits("uid", [without])[0]
    assert "is not of type 'integer'" in misfits("uid", [{**row, "hash": "1"}])[0]


@pytest.mark.row("W-16")
def test_documents_of_this_process_and_of_its_children_are_held_against_their_schemas(
    documents: Documents,
) -> None:
    documents.printed()
    said("uid", "Join", "--json")
    child = [sys.executable, "-m", "stateshift", "inspect", "/nowhere/at/all", "--json"]
    subprocess.run(child, capture_output=True, check=False)
    (first, rows), (second, error) = documents.printed()
    assert (first, second) == ("uid", "error")
    assert rows[0]["name"] == "Join" and error["exit_code"] == 4


def test_a_document_of_an_unknown_shape_is_found(documents: Documents) -> None:
    documents.printed()
    with open(documents.path, "ab") as file:
        file.write(b'{"name": "uid", "document": [{"name": "Join"}]}\n')
    assert "uid $[0]: 'hash' is a required property" in documents.misfits()


@pytest.mark.parametrize("flags", [[], ["--files"], ["--entries"], ["--uids", "Join,Sum"]])
def test_what_inspect_adds_on_request_is_in_its_schema(flags: list[str]) -> None:
    document = with_checkpoint().run("inspect", SOURCE, *flags, "--json").document
    assert misfits("inspect", document) == []


@pytest.mark.parametrize("flags", [[], ["--changes", "1..2"]])
def test_exported_lines_fit_their_schema(flags: list[str]) -> None:
    ran = said("export", WINDOWS, "--to", "-", *flags)
    lines = ran.out.splitlines()
    assert lines, ran.err
    for line in lines:
        assert misfits("line", json.loads(line)) == []


def test_a_name_that_nothing_prints_is_refused_with_those_that_are() -> None:
    ran = said("schema", "--of", "plans", "--json")
    assert ran.code == 2
    (complaint,) = ran.document["complaints"]
    assert "plan, report, status" in complaint["expected"]
    assert said("schema", "dataflow", "--of", "plan").code == 2


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_page_says_which_command_prints_a_document(name: str) -> None:
    page = (OUTPUTS / "README.md").read_text("utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| [`{name}`]")]
    for command in DOCUMENTS[name].commands:
        assert command in row
