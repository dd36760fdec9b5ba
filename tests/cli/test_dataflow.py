"""`stateshift dataflow`: which operators change together, of files as people have them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import get_args

import pytest

from stateshift.dataflow.components import RULES
from stateshift.dataflow.schedulers import SCHEDULERS
from stateshift.specification.dataflow.keys import EDGE, OPERATOR
from stateshift.specification.dataflow.operators import Kind, Way
from stateshift.specification.schema import dataflow_schema
from tests.cli.support import said
from tests.specification.dataflow.plans import FLINK, SPARK

EXAMPLE = str(
    Path(__file__).resolve().parents[2] / "configs" / "examples" / "payment-fraud.dataflow.json"
)
MODEL_AND_RULES = ("--targets", "fraud model,apply rules")


def paragraphs(out: str) -> dict[str, list[str]]:
    """The lines below each headline."""
    blocks = (block.splitlines() for block in out.rstrip().split("\n\n"))
    return {
        lines[0].partition(":")[0]: [" ".join(line.split()) for line in lines[1:]]
        for lines in blocks
    }


def test_the_example_says_what_changes_at_one_cut_and_what_goes_on() -> None:
    ran = said("dataflow", EXAMPLE, *MODEL_AND_RULES, "--explain")
    assert ran.code == 0, ran.err
    told = paragraphs(ran.out)
    assert ran.out.startswith(
        "fries: 1 component; 3 of 10 operators wait for a moment, 7 go on undisturbed\n"
    )
    assert told["Components"][1:] == [
        "1 fraud model, explode rules, apply rules fraud model 2 scoring (core), alerting (core)"
    ]
    assert told["Restarts, in this order"][1:] == [
        "1 1. fraud model",
        "2. explode rules",
        "3. apply rules",
    ]
    many = (
        "explode rules one-to-many: what it makes of one tuple may meet apply rules before "
        "its change, and after"
    )
    assert many in told["Why"]
    assert told["Goes on"] == [
        "payments, clean, replicate, merchant features, user features, join features, alerts"
    ]
    assert [line.split()[0] for line in told["Expected delay"][1:5]] == [
        "fries",
        "epoch",
        "multi-version",
        "naive",
    ]


@pytest.mark.long
def test_the_old_name_does_the_same_and_help_says_the_new_one() -> None:
    argv = (EXAMPLE, *MODEL_AND_RULES, "--json")
    assert said("reconfigure", *argv).document == said("dataflow", *argv).document
    assert said("reconfigure", "--help").code == 0
    overview = said("--help").out
    assert "  dataflow " in overview
    assert "reconfigure" not in overview


@pytest.mark.long
@pytest.mark.row("F-2", "F-3")
def test_the_document_has_all_of_it_and_a_delay_for_every_scheduler() -> None:
    told = said("dataflow", EXAMPLE, *MODEL_AND_RULES, "--json").document
    (component,) = told["components"]
    assert component == {
        "operators": ["fraud model", "explode rules", "apply rules"],
        "edges": [["fraud model", "explode rules"], ["explode rules", "apply rules"]],
        "heads": ["fraud model"],
        "order": [["fraud model"], ["explode rules"], ["apply rules"]],
        "jobs": [{"name": "scoring", "cluster": "core"}, {"name": "alerting", "cluster": "core"}],
    }
    assert told["pruned"] == [
        {"operator": "replicate", "rule": "uniqueness", "by": "join features"}
    ]
    assert set(told["paused"]) | set(told["untouched"]) == {one["name"] for one in _operators()}
    delay = told["delay"]
    assert set(delay) == {"fries", "epoch", "multi_version", "naive"}
    assert delay["naive"] <= delay["fries"] < delay["epoch"] / 2
    again = said("dataflow", EXAMPLE, *MODEL_AND_RULES, "--json").document
    assert again == told, "the same chance each time"
    why = said("dataflow", EXAMPLE, *MODEL_AND_RULES, "--json", "--explain").document["why"]
    assert [one["operator"] for one in why] == [
        "fraud model",
        "explode rules",
        "apply rules",
        "replicate",
    ]


UNSOUND = {
    "operators": [
        {"name": "FL", "kind": "one-to-many"},
        {"name": "U1", "unique": True},
        {"name": "U2", "unique": True},
        {"name": "o1"},
        {"name": "o2"},
    ],
    "edges": ["FL -> U1 -> o1", "FL -> U2 -> o2"],
}


def written(folder: Path, content: object) -> str:
    file = folder / "flow.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return str(file)


def promises(out: str) -> dict[str, bool]:
    """Of each scheduler, whether the screen calls it consistent."""
    rows = (line.split(None, 3) for line in paragraphs(out)["Expected delay"][1:5])
    return {name: rest.startswith("consistent") for name, _, _, rest in rows}


@pytest.mark.long
@pytest.mark.sample(2)
@pytest.mark.row("F-13")
@pytest.mark.parametrize(
    ("argv", "rule", "kept"),
    [
        (("--targets", "o1,o2"), "sound", {"fries": True, "naive": False}),
        (("--targets", "o1,o2", "--rule", "none"), "none", {"fries": True, "naive": False}),
        (
            ("--targets", "o1,o2", "--rule", "published"),
            "published",
            {"fries": False, "naive": False},
        ),
        (("--targets", "o1", "--rule", "published"), "published", {"fries": True, "naive": True}),
        (("--targets", "FL"), "sound", {"fries": True, "naive": True}),
    ],
)
def test_each_scheduler_is_told_to_be_consistent_only_where_it_is(
    tmp_path: Path, argv: tuple[str, ...], rule: str, kept: dict[str, bool]
) -> None:
    whole = kept | {"epoch": True, "multi-version": True}
    ran = said("dataflow", written(tmp_path, UNSOUND), *argv)
    assert promises(ran.out) == whole
    assert ran.out.splitlines()[1].startswith("not consistent: ") is not kept["fries"]
    document = said("dataflow", written(tmp_path, UNSOUND), *argv, "--json").document
    assert document["rule"] == rule
    assert document["consistent"] == {name.replace("-", "_"): one for name, one in whole.items()}


@pytest.mark.long
def test_a_schedule_that_breaks_its_promise_says_so_above_all_and_what_to_ask_for(
    tmp_path: Path,
) -> None:
    flow = written(tmp_path, UNSOUND)
    lines = said("dataflow", flow, "--targets", "o1,o2", "--rule", "published").out.splitlines()
    assert lines[1:3] == [
        "not consistent: a tuple may meet old and new, of what FL makes of one (spared by the "
        "published rule alone)",
        "hint: --rule sound",
    ]
    lines = said("dataflow", flow, "--targets", "o1,o2", "--scheduler", "naive").out.splitlines()
    assert lines[1:3] == ["not consistent: a tuple may meet old and new", "hint: --scheduler fries"]


@pytest.mark.long
def test_what_is_inside_of_a_component_anyway_is_not_told_to_be_spared() -> None:
    argv = ("dataflow", EXAMPLE, "--targets", "clean,apply rules")
    assert "replicate" in said(*argv, "--json").document["components"][0]["operators"]
    assert said(*argv, "--json").document["pruned"] == []
    assert "need not wait, though" not in said(*argv).out
    told = said("dataflow", EXAMPLE, *MODEL_AND_RULES).out
    assert (
        "need not wait, though they make several tuples of one: replicate (--explain says why)"
        in told
    )


def why(flow: str, *argv: str) -> dict[str, str]:
    told = said("dataflow", flow, *argv, "--explain", "--json").document["why"]
    return {one["operator"]: one["reason"] for one in told}


@pytest.mark.long
def test_a_unique_operator_that_is_called_one_to_many_is_spared_and_why(tmp_path: Path) -> None:
    document = {
        "operators": [
            {"name": "s"},
            {"name": "u", "kind": "one-to-many", "unique": True},
            {"name": "t"},
        ],
        "edges": ["s -> u -> t"],
    }
    flow = written(tmp_path, document)
    assert why(flow, "--targets", "t")["u"] == (
        "one-to-many by its kind, but spared: as it is unique, at most one tuple comes out "
        "of it for each source tuple"
    )
    assert why(flow, "--targets", "t", "--rule", "none")["u"] == (
        "one-to-many: a rule could spare it, and was told not to (--rule none)"
    )


@pytest.mark.long
def test_what_is_on_a_way_is_told_with_targets_that_a_tuple_may_meet() -> None:
    told = why(EXAMPLE, "--targets", "payments,apply rules")
    assert told["clean"] == "on a way from payments to apply rules: one tuple may meet both"
    told = why(EXAMPLE, "--targets", "merchant features,apply rules", "--rule", "none")
    assert told["user features"] == (
        "on a way from replicate to apply rules: the change comes along it, in line with "
        "what replicate makes of a "
        "tuple"
    )


@pytest.mark.long
def test_of_several_targets_it_is_not_said_that_each_is_met_twice(tmp_path: Path) -> None:
    flow = written(tmp_path, UNSOUND)
    assert why(flow, "--targets", "o1,o2")["FL"] == (
        "one-to-many: what it makes of one tuple may meet targets before their change, and after"
    )
    assert why(flow, "--targets", "o1,o2", "--rule", "published")["FL"].endswith(
        "though not the same: what it makes of one tuple may meet old and new (the published rule)"
    )


BLOCKING = {
    "operators": [{"name": "s"}, {"name": "a", "kind": "blocking"}, {"name": "b"}],
    "edges": ["s -> a -> b"],
}


@pytest.mark.long
def test_a_blocking_operator_that_parts_components_is_told(tmp_path: Path) -> None:
    flow = written(tmp_path, BLOCKING)
    assert len(said("dataflow", flow, "--targets", "s,b", "--json").document["components"]) == 2
    told = (
        "blocking: reads all before it sends anything, so that no tuple goes from above it "
        "to below; the two sides "
        "need not change at one cut"
    )
    assert why(flow, "--targets", "s,b")["a"] == told
    assert "a" not in why(flow, "--targets", "b"), "nothing to be parted"
    assert why(flow, "--targets", "s,b", "--scheduler", "multi-version")["a"] == (
        "blocking: says with each tuple which function is meant"
    )


@pytest.mark.long
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("argv", "headline"),
    [
        (
            ("--targets", "clean"),
            "fries: 1 component; 1 of 10 operators waits for a moment, 9 go on undisturbed",
        ),
        (
            ("--targets", "clean,alerts", "--scheduler", "multi-version"),
            "multi-version: 2 components; 2 of 10 operators wait for a moment, 1 says "
            "which function is meant, 7 go on "
            "undisturbed",
        ),
        (
            ("--targets", "payments,alerts", "--scheduler", "multi-version"),
            "multi-version: 2 components; 2 of 10 operators wait for a moment, 8 go on undisturbed",
        ),
        (
            ("--targets", "payments,apply rules"),
            "fries: 1 component; 9 of 10 operators wait for a moment, 1 goes on undisturbed",
        ),
    ],
)
def test_the_headline_counts_every_operator_once(argv: tuple[str, ...], headline: str) -> None:
    assert said("dataflow", EXAMPLE, *argv).out.splitlines()[0] == headline
    document = said("dataflow", EXAMPLE, *argv, "--json").document
    assert {*document["paused"], *document["tagging"], *document["untouched"]} == {
        one["name"] for one in _operators()
    }


def _operators() -> list[dict[str, object]]:
    return list(json.loads(Path(EXAMPLE).read_text("utf-8"))["operators"])


@pytest.mark.long
@pytest.mark.sample(4)
@pytest.mark.parametrize("scheduler", ["fries", "epoch", "multi-version", "naive"])
@pytest.mark.parametrize("rule", ["sound", "published", "none"])
def test_every_scheduler_and_rule_is_told_in_sentences(scheduler: str, rule: str) -> None:
    argv = ("dataflow", EXAMPLE, "--targets", "join features", "--targets", "apply rules")
    ran = said(*argv, "--scheduler", scheduler, "--rule", rule, "--explain")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"{scheduler}: ")
    document = said(*argv, "--scheduler", scheduler, "--rule", rule, "--json").document
    assert document["targets"] == ["join features", "apply rules"]
    assert (len(document["paused"]) == 10) is (scheduler == "epoch")


@pytest.mark.long
def test_the_delay_says_that_it_is_simulated_and_under_what_load(tmp_path: Path) -> None:
    headline = "Expected delay: simulated, at 200 tuples a second from payments"
    assert headline in said("dataflow", EXAMPLE, *MODEL_AND_RULES).out.splitlines()
    two = {
        "operators": [{"name": "a", "rate_per_second": 900}, {"name": "b", "rate_per_second": 700}]
    }
    ran = said("dataflow", written(tmp_path, two), "--targets", "a")
    assert (
        "Expected delay: simulated, at 1,600 tuples a second from 2 sources" in ran.out.splitlines()
    )
    document = said("dataflow", EXAMPLE, *MODEL_AND_RULES, "--json").document
    assert (document["rates_per_second"], document["no_figure"]) == ({"payments": 200}, None)


def test_an_operator_that_falls_behind_is_told_instead_of_a_figure(tmp_path: Path) -> None:
    flow = written(
        tmp_path,
        {
            "operators": [
                {"name": "a", "rate_per_second": 12345, "cost_seconds": 1e-6},
                {"name": "b", "cost_seconds": 0.002, "workers": 4},
            ],
            "edges": ["a -> b"],
        },
    )
    out = said("dataflow", flow, "--targets", "b").out
    assert "Expected delay: not simulated, at 12,300 tuples a second from a" in out.splitlines()
    assert [line.split()[1] for line in paragraphs(out)["Expected delay"][1:5]] == ["-"] * 4
    why = "b falls behind: 12,300 tuples a second reach it, and it can work 2,000"
    assert f"there is no figure: {why}" in out
    assert "% of the time" not in out
    document = said("dataflow", flow, "--targets", "b", "--json").document
    assert document["no_figure"] == why
    assert set(document["delay"].values()) == {None}


def test_a_dataflow_of_too_many_workers_has_no_figure_either(tmp_path: Path) -> None:
    flow = written(tmp_path, {"operators": [{"name": "a", "workers": 2001}]})
    assert (
        "there is no figure: more than 2,000 workers are not simulated"
        in said("dataflow", flow, "--targets", "a").out
    )


def test_help_names_every_key_and_every_kind_way_scheduler_and_rule() -> None:
    help = said("dataflow", "--help").out
    words = [
        key.name for key in (*OPERATOR.all, *EDGE.all) if key.name not in ("name", "from", "to")
    ]
    assert not [
        word
        for word in (*words, *get_args(Kind), *get_args(Way), *SCHEDULERS, *RULES)
        if word not in help
    ]
    assert "configs/" not in help, "nobody who has installed it has that"


@pytest.mark.long
def test_the_schema_of_a_dataflow_is_printed() -> None:
    assert said("schema", "dataflow").document == dataflow_schema()
    assert said("schema", "spec").document == said("schema").document != dataflow_schema()
    assert said("schema", "--of", "dataflow").document == dataflow_schema()
    ran = said("schema", "flow")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: --of: there is no schema of 'flow' (expected one of spec, ")


def test_drawings_are_all_that_is_printed() -> None:
    dot = said("dataflow", EXAMPLE, *MODEL_AND_RULES, "--dot").out
    assert dot.startswith('digraph "payment-fraud" {\n')
    assert 'subgraph cluster_0 { label="component 1"; style=dashed; n6; n7; n8; }' in dot
    assert dot.count("fillcolor=gold") == 2
    mermaid = said("dataflow", EXAMPLE, *MODEL_AND_RULES, "--mermaid").out
    assert mermaid.startswith(
        'flowchart LR\n  subgraph c0["component 1"]\n    n6[["fraud model"]]\n'
    )
    assert mermaid.endswith("  class n6,n8 target\n")


def test_names_that_mean_something_in_a_drawing_are_only_names(tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text(
        json.dumps(
            {
                "operators": [{"name": 'a"]; b\\'}, {"name": "end"}],
                "edges": [{"from": 'a"]; b\\', "to": "end"}],
            }
        )
    )
    assert (
        'label="a\\"]; b\\\\", fillcolor'
        in said("dataflow", str(file), "--targets", 'a"]; b\\', "--dot").out
    )
    assert (
        'n0[["a#34;#93;#59; b#92;"]]'
        in said("dataflow", str(file), "--targets", 'a"]; b\\', "--mermaid").out
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("plan", "target", "paused"),
    [(FLINK, "Sink: archive", ["Sink: archive"]), (SPARK, "explode", None)],
    ids=["flink", "spark"],
)
def test_what_a_running_job_tells_of_itself_is_read(
    tmp_path: Path, plan: str, target: str, paused: list[str] | None
) -> None:
    file = tmp_path / "plan"
    file.write_text(plan)
    known = said("dataflow", str(file), "--targets", "nothing of this name")
    assert known.code == 2
    first = known.err.partition("expected one of '")[2].partition("'")[0]
    ran = said("dataflow", str(file), "--targets", target if paused else first, "--json")
    assert ran.code == 0, ran.err
    assert paused is None or ran.document["paused"] == paused
    assert len(ran.document["assumed"]) == 2, "neither cost nor rate is told by a plan"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            [EXAMPLE, "--targets", "nix"],
            "no operator 'nix' (expected one of 'payments', 'clean', 'repl",
        ),
        ([EXAMPLE, "--targets", " , "], "--targets: names no operator"),
        ([EXAMPLE, "--targets", "clean", "--scheduler", "best"], "'best' is not one of"),
        ([EXAMPLE, "--targets", "clean", "--rule", "any"], "'any' is not one of"),
        ([EXAMPLE, "--targets", "clean", "--dot", "--mermaid"], "more than one document at once"),
        (["/there/is/nothing", "--targets", "clean"], "cannot be read: No such file or directory"),
        (["/", "--targets", "clean"], "cannot be read: Is a directory"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_with_the_way_out(
    argv: list[str], told: str
) -> None:
    ran = said("dataflow", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert "hint: " in ran.err


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"",
        b"{",
        b"[" * 100_000,
        b'{"operators": 7}',
        b"hello",
        b'{"operators": []}',
    ],
)
def test_a_file_that_is_no_dataflow_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "odd"
    file.write_bytes(content)
    ran = said("dataflow", str(file), "--targets", "a")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty"),
        ("\ufeff \n", "is empty"),
        ("hello", "neither JSON nor a plan"),
        ("operators:\n- name: a\n", "neither JSON nor a plan"),
    ],
)
def test_a_file_that_nobody_meant_as_json_is_named_with_all_that_is_taken(
    tmp_path: Path, content: str, told: str
) -> None:
    flow = written(tmp_path, content)
    ran = said("dataflow", flow, "--targets", "a")
    assert ran.err.startswith(
        f"error: {flow}: {told}\nhint: a dataflow is JSON (stateshift dataflow --help), "
    )
    assert "GET /jobs/:jobid/plan" in ran.err and "explain(extended=True)" in ran.err
    document = said("dataflow", flow, "--targets", "a", "--json").document
    assert (document["path"], document["complaints"][0]["message"]) == (flow, told)


def test_what_is_wrong_in_a_file_is_told_with_its_name_and_what_is_wrong_with_a_flag_is_not(
    tmp_path: Path,
) -> None:
    flow = written(tmp_path, '{"operators": [}')
    assert said("dataflow", flow, "--targets", "a").err.startswith(f"error: {flow}: not JSON: ")
    flow = written(tmp_path, {"operators": [{"name": "a", "workers": 0}]})
    assert said("dataflow", flow, "--targets", "a").err.startswith(
        f"error: {flow}: /operators/0/workers: "
    )
    assert said("dataflow", EXAMPLE, "--targets", "nix").err.startswith(
        "error: --targets: no operator 'nix' "
    )


JOIN = "Join(joinType=[InnerJoin], where=[(a = b)])"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("argv", "targets"),
    [
        (("--targets", JOIN), [JOIN]),
        (("--targets", f"a, {JOIN},b"), ["a", JOIN, "b"]),
        (("--targets", "a", "--targets", JOIN), ["a", JOIN]),
        (("--targets", "a,b"), ["a,b"]),
        (("--targets", "a", "--targets", "b,"), ["a", "b"]),
        (("--targets", "a , b"), ["a", "b"]),
    ],
)
def test_a_target_may_have_commas_in_its_name(
    tmp_path: Path, argv: tuple[str, ...], targets: list[str]
) -> None:
    flow = written(tmp_path, {"operators": [{"name": name} for name in ("a", "b", "a,b", JOIN)]})
    ran = said("dataflow", flow, *argv, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["targets"] == targets


@pytest.mark.long
@pytest.mark.parametrize(
    "content", [Path(EXAMPLE).read_bytes(), b"\xef\xbb\xbf" + Path(EXAMPLE).read_bytes()]
)
def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    ran = said("dataflow", "-", *MODEL_AND_RULES, "--json")
    assert ran.document == said("dataflow", EXAMPLE, *MODEL_AND_RULES, "--json").document


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "error: standard input: is empty"),
        (b"\xff", "error: standard input: not UTF-8 text (at byte 0)"),
    ],
)
def test_standard_input_that_is_no_dataflow_is_refused(
    monkeypatch: pytest.MonkeyPatch, content: bytes, told: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    ran = said("dataflow", "-", "--targets", "a")
    assert ran.code == 2
    assert ran.err.startswith(told)
    monkeypatch.setattr("sys.stdin", None)
    assert said("dataflow", "-", "--targets", "a").err.startswith(
        "error: standard input: is empty"
    ), "was closed"


@pytest.mark.long
def test_a_long_list_is_shortened_until_all_of_it_is_asked_for(tmp_path: Path) -> None:
    names = [f"step {i:02}" for i in range(40)]
    file = tmp_path / "long.json"
    file.write_text(
        json.dumps({"operators": [{"name": name} for name in names], "edges": [" -> ".join(names)]})
    )
    argv = ("dataflow", str(file), "--targets", "step 00,step 39", "--explain")
    short, full = said(*argv).out, said(*argv, "--verbose").out
    assert "and 20 more: --verbose" in short
    assert "and 28 more" in " ".join(short.split())
    assert "more" not in full
    assert all(full.count(name) >= 3 for name in names)
