"""The schema, the examples and the invalid specs that are checked in, held against each other
and the parser.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stateshift.cli.views.documents import schema_text
from stateshift.errors import SpecError
from stateshift.specification import parse_spec, spec_schema
from stateshift.specification.job_keys import DATA, JOB, KAFKA, OPERATOR, SINK, STOP, SUBMIT
from stateshift.specification.key import fold
from stateshift.specification.spec_keys import CLUSTER, HASH, ON, RECEIVER, SPEC, THROTTLE

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
EXAMPLES = sorted(
    path for path in (CONFIGS / "examples").glob("*.json") if ".dataflow." not in path.name
)
EXPECTED = sorted((CONFIGS / "invalid").glob("*.expected.json"))
INVALID = sorted(set((CONFIGS / "invalid").glob("*.json")) - set(EXPECTED))
ENVIRONMENT = {
    "DEMO_DIR": "/demo",
    "DEMO_NAME": "demo-1",
    "FAR_APPLICATION": "/opt/jobs/far.py",
    "FAR_CONNECTION": "far.example:6066",
    **{
        f"STATESHIFT_SPARK_{x}_{kind}": f"http://h:{n}"
        for x, n in (("A", 1), ("B", 2))
        for kind in ("REST", "UI")
    },
}
VALIDATOR = jsonschema.Draft202012Validator(spec_schema())


def name(path: Path) -> str:
    return path.stem


def test_the_checked_in_schema_is_the_one_that_is_printed() -> None:
    """To renew it: stateshift schema > configs/spec.schema.json"""
    assert (CONFIGS / "spec.schema.json").read_text("utf-8") == schema_text(spec_schema())


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(spec_schema())


@pytest.mark.row("IS-1")
@pytest.mark.row("IS-2")
@pytest.mark.row("IF-1")
@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_every_example_is_read_and_fits_the_schema(path: Path) -> None:
    text = path.read_text("utf-8")
    spec = parse_spec(
        text,
        base=str(path.parent),
        environment=ENVIRONMENT,
        opened=lambda name: (path.parent / name).read_text("utf-8"),
    )
    assert spec.jobs
    VALIDATOR.validate(json.loads(text))


def test_every_example_is_told_in_the_readme_and_nothing_else_is() -> None:
    lines = (CONFIGS / "examples" / "README.md").read_text("utf-8").splitlines()
    told = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert sorted(told) == sorted(path.name for path in (CONFIGS / "examples").glob("*.json"))


@pytest.mark.parametrize("path", INVALID, ids=name)
def test_every_invalid_spec_gets_the_complaints_recorded_beside_it(path: Path) -> None:
    expected = json.loads(path.with_suffix(".expected.json").read_text("utf-8"))
    with pytest.raises(SpecError) as error:
        parse_spec(path.read_text("utf-8"), base="/specs", environment={"HOME": "/home"})
    assert [
        {"pointer": c.pointer, "message": c.message} for c in error.value.complaints
    ] == expected


def test_no_recorded_complaints_are_left_behind() -> None:
    assert {path.name.removesuffix(".expected.json") for path in EXPECTED} == {
        path.stem for path in INVALID
    }


@pytest.mark.parametrize("path", INVALID, ids=name)
def test_no_complaint_repeats_a_secret(path: Path) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(path.read_text("utf-8"))
    assert "hunter2" not in json.dumps(error.value.as_json())


@pytest.mark.parametrize(
    "keys",
    [SPEC, JOB, CLUSTER, DATA, HASH, KAFKA, ON, OPERATOR, RECEIVER, SINK, STOP, SUBMIT, THROTTLE],
)
def test_no_two_keys_of_an_object_fold_to_the_same_name(keys: Any) -> None:
    names = [fold(each) for key in keys.all for each in key.names]
    assert len(names) == len(set(names))


def test_every_key_is_described_to_editors() -> None:
    for properties in (spec_schema()["properties"], spec_schema()["$defs"]["job"]["properties"]):
        assert all(shape["description"] and shape["title"] for shape in properties.values())


@pytest.mark.parametrize(
    "spelling", ["merge_jobs", "mergeJobs", "Merge Jobs", "MERGE-JOBS", "merge  jobs"]
)
def test_the_schema_takes_every_spelling_and_still_looks_at_the_value(spelling: str) -> None:
    job = {"job name": "a", "checkpointLocation": "/a", "merge": "true"}
    assert VALIDATOR.is_valid({"jobs": [{**job, spelling: "/b, /c"}]})
    assert not VALIDATOR.is_valid({"jobs": [{**job, spelling: 7}]})


@pytest.mark.parametrize(
    "spec",
    [
        {"jobs": [], "version": 1},
        {"version": 1},
        {"jobs": [{"nme": "a"}]},
        {"jobs": {"a": {}}, "version": 2},
        {"jobs": {"a": {"verify": "all"}}},
        {"jobs": {"a": {"port": 65536}}},
        {"jobs": {"a": {}}, "clusters": {"c": {"kind": "kubernetes"}}},
        {"jobs": {"a": {}}, "parallel": 0},
        {"jobs": {"a": {"operators": [{"name": "A", "directory": "a/b"}]}}},
    ],
)
def test_the_schema_refuses_what_has_the_wrong_shape(spec: Any) -> None:
    assert not VALIDATOR.is_valid(spec)
    with pytest.raises(SpecError):
        parse_spec(json.dumps(spec))
