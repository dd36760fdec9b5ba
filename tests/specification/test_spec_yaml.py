"""Specs in YAML: the same tree as of JSON, or a refusal that says where."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stateshift.api.requests import read, spec_of
from stateshift.errors import Complaint, SpecError
from stateshift.specification import Spec, parse_spec
from stateshift.specification.written import read_yaml
from tests.cli.support import said

pytestmark = pytest.mark.row("W-30")

SPEC = """\
# A move of two jobs.
version: 1
on:                       # a key is a text, whatever YAML 1.1 says of this one
  failed: [page, "on-call"]
clusters:
  a: &standalone {kind: spark_standalone, url: "http://a:6066"}
  b:
    <<: *standalone
    url: http://b:6066
jobs:
  - name: orders
    checkpoint_location: /ck/orders
    remote_location: ${TO}/orders
    waive: [paths-stay]
    verify: twice
  - name: "010"
    checkpoint_location: /ck/010
    remote_location: s3a://bucket/010
"""


def refused(text: str) -> tuple[Complaint, ...]:
    with pytest.raises(SpecError) as error:
        parse_spec(read_yaml(text))
    json.dumps(error.value.as_json(), allow_nan=False)
    return error.value.complaints


def top(line: str) -> str:
    return f"version: 1\n{line}\njobs: [{{name: a, checkpoint_location: /a}}]\n"


def test_a_spec_in_yaml_is_the_same_as_in_json() -> None:
    cluster = {"kind": "spark_standalone", "url": "http://a:6066"}
    same: dict[str, Any] = {
        "version": 1,
        "on": {"failed": ["page", "on-call"]},
        "clusters": {"a": cluster, "b": {**cluster, "url": "http://b:6066"}},
        "jobs": [
            {
                "name": "orders",
                "checkpoint_location": "/ck/orders",
                "remote_location": "/to/orders",
                "waive": ["paths-stay"],
                "verify": "twice",
            },
            {
                "name": "010",
                "checkpoint_location": "/ck/010",
                "remote_location": "s3a://bucket/010",
            },
        ],
    }
    environment = {"TO": "/to"}
    from_yaml = parse_spec(read_yaml(SPEC), environment=environment)
    assert from_yaml == parse_spec(json.dumps(same), environment=environment)


@pytest.mark.parametrize(
    ("value", "readings"),
    [
        ("on", ("true", '"on"')),
        ("No", ("false", '"No"')),
        ("010", ("8", "10")),
        ("1e3", ('"1e3"', "1000.0")),
        ("1_000", ("1000", '"1_000"')),
        ("12:30", ("750", '"12:30"')),
        ("0o17", ('"0o17"', "15")),
    ],
)
def test_a_word_that_yaml_reads_as_two_values_is_refused_with_both(
    value: str, readings: tuple[str, str]
) -> None:
    (complaint, *_) = refused(top(f"parallel: {value}"))
    older, newer = readings
    assert complaint.pointer == "/parallel"
    assert complaint.message == f"{value} is read as {older} in YAML 1.1 and {newer} in YAML 1.2"
    assert complaint.expected is not None and f'"{value}" for the text' in complaint.expected


@pytest.mark.parametrize("value", ["1.20", "3.10", "+1", "00", "0x10", "-0", ".5", "1."])
def test_a_number_that_would_not_stay_as_it_is_written_is_refused_unless_quoted(
    value: str,
) -> None:
    cluster = "clusters: {{b: {{kind: spark_submit, master: m, version: {}}}}}"
    (complaint, *_) = refused(top(cluster.format(value)))
    assert complaint.pointer == "/clusters/b/version"
    assert f'"{value}" for the text' in str(complaint.expected)
    spec = parse_spec(read_yaml(top(cluster.format(f"'{value}'"))))
    assert spec.clusters[0].options["version"] == value


@pytest.mark.parametrize("value", ["0", "-3", "1.2", "10", "1.0e-05", "1.5e+300"])
def test_a_number_that_is_written_as_it_is_is_one(value: str) -> None:
    written = read_yaml(f"a: {value}")
    assert written.tree == {"a": json.loads(value)} and not written.complaints


def test_dates_and_quoted_words_stay_the_text_that_is_written() -> None:
    text = "[{name: 2026-12-01, checkpoint_location: /a}, {name: 'on', checkpoint_location: /b}]"
    spec = parse_spec(read_yaml(f"version: 1\njobs: {text}"))
    assert [job.name for job in spec.jobs] == ["2026-12-01", "on"]


def test_a_doubled_key_and_a_tag_are_refused_and_never_obeyed() -> None:
    text = top('parallel: 1\nparallel: 2\nproduction: !!python/object/apply:os.system ["exit"]')
    pointers = {complaint.pointer for complaint in refused(text)}
    assert pointers == {"/parallel", "/production"}


def test_a_tag_of_a_key_is_refused() -> None:
    complaints = refused(top("!!python/name:os.system parallel: 1"))
    assert [each.pointer for each in complaints] == ["/parallel"]
    assert "the tag" in complaints[0].message


def test_a_doubtful_word_under_a_telling_key_is_not_repeated() -> None:
    text = top("clusters: {a: {kind: manual, password: 0123456}}")
    assert "0123456" not in str([vars(complaint) for complaint in refused(text)])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            "too many values",
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(
                f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n"
                for n in range(20)
            ),
        ),
        (
            "nested too deeply",
            "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(500)),
        ),
        (
            "too many values",
            "m0: &m0 {a: 1}\n"
            + "".join(
                f"m{n + 1}: &m{n + 1} {{<<: [*m{n}, *m{n}], k{n}: *m{n}}}\n" for n in range(60)
            ),
        ),
        ("*a names nothing that ends before it", "&a [*a]"),
        ("nest", "[" * 100_000),
        ("nested too deeply", "{a: " * 50),
        ("a key is no text", "{" * 50),
        ("a key is no text", "? [a]\n: b"),
        ("not one document but several", "a: 1\n---\nb: 2"),
        ("not YAML: mapping values are not allowed", "a: b: c"),
        ("not YAML: ", "a:\n\t- b"),
        ("not YAML: ", "a\0b"),
        ("is not an object", ""),
        ("is not an object", "1" * 5000),
        ("is not an object", "- a"),
        ("<< is no map", "<<: 1"),
    ],
)
def test_a_bomb_or_no_yaml_is_refused_at_once(message: str, text: str) -> None:
    began = time.monotonic()
    assert message in refused(text)[0].message
    assert time.monotonic() - began < 5


def test_a_pipe_gives_its_spec_once(tmp_path: Path) -> None:
    pipe = tmp_path / "spec.yaml"
    told: list[Any] = []

    def plan() -> None:
        told.append(said("plan", str(pipe), "--json"))

    os.mkfifo(pipe)
    job = (
        "{name: a, checkpoint_location: /a, remote_location: /b, target_cluster: b, submit: {x: y}}"
    )
    text = f"version: 1\nclusters: {{b: {{kind: spark_submit, master: m}}}}\njobs: [{job}]\n"
    for wrong in (text, "version: 1\nparalel: 1\njobs: []\n"):
        writer = threading.Thread(target=pipe.write_text, args=(wrong,), daemon=True)
        writer.start()
        command = threading.Thread(target=plan, daemon=True)
        command.start()
        command.join(20)
        assert told and told[-1].code == 2
    assert told[-1].document["complaints"][0]["line"] == 2
    assert len(told) == 2


def placed(path: Path, text: str) -> list[tuple[str, int | None, int | None]]:
    path.write_text(text)
    with pytest.raises(SpecError) as error:
        read(str(path))
    places = {(each.pointer, each.line, each.column) for each in error.value.complaints}
    return sorted(places, key=lambda place: place[1:])


def test_each_mistake_is_told_with_line_and_column_in_yaml_and_in_json(tmp_path: Path) -> None:
    yaml = "version: 1\nparalel: 2\njobs:\n  - name: a\n    nmae: b\n    rounds: many\n"
    assert placed(tmp_path / "spec.yaml", yaml) == [
        ("/paralel", 2, 1),
        ("/jobs/0", 4, 5),
        ("/jobs/0/nmae", 5, 5),
        ("/jobs/0/rounds", 6, 5),
    ]
    tabbed = (
        '{"version": 1,\n\t"paralel": 2, "jobs": [\n\t\t{"name": "\\u00e4\\/\\ud83d\\ude00", "a/b": 1,\n'
        '  "checkpoint_location": "/a"}, 7]}'
    )
    assert placed(tmp_path / "spec.json", tabbed) == [
        ("/paralel", 2, 2),
        ("/jobs/0/a~1b", 3, 36),
        ("/jobs/1", 4, 33),
    ]


def test_a_word_of_both_readings_and_every_other_mistake_come_at_once(tmp_path: Path) -> None:
    yaml = "version: 1\nparallel: 010\nproduktion: true\njobs: []\n"
    pointers = [pointer for pointer, _, _ in placed(tmp_path / "spec.yml", yaml)]
    assert pointers == ["/parallel", "/produktion", "/jobs"]


def test_a_spec_without_mistakes_is_read_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "spec.YAML"
    path.write_text("version: 1\njobs: {a: {checkpoint_location: here}}\n")
    spec = spec_of(str(path))
    assert isinstance(spec, Spec) and spec.jobs[0].source == f"file://{tmp_path}/here"


def test_every_example_is_yaml_too_and_says_the_same() -> None:
    examples = sorted((Path(__file__).parents[2] / "configs" / "examples").glob("*.json"))
    assert len(examples) > 20
    for path in examples:
        text = path.read_text("utf-8")
        written = read_yaml(text)
        assert written.tree == json.loads(text) and not written.complaints, path


def test_a_mistake_that_shows_only_when_a_plan_is_made_has_its_place_too(tmp_path: Path) -> None:
    cluster = "\n  b: {kind: spark_submit, master: 'local[1]', queue: x}"
    job = "name: a\n  checkpoint_location: /a\n  remote_location: /b\n  target_cluster: b\n  submit: {applicaton: x}"
    (tmp_path / "spec.yaml").write_text(f"version: 1\nclusters:{cluster}\njobs:\n- {job}\n")
    told = said("plan", str(tmp_path / "spec.yaml"), "--json").document
    assert told["path"] == str(tmp_path / "spec.yaml")
    places = {each["pointer"]: (each["line"], each["column"]) for each in told["complaints"]}
    assert places and None not in {line for line, _ in places.values()}, places
