"""The one-job shortcuts: each writes a spec, shows its plan, asks, and carries it out."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from stateshift.cli.commands.transforms import column_of
from stateshift.storage.opening import open_storage
from tests.cli.support import said
from tests.engines.flink import golden
from tests.support.checkpoints import Checkpoint


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    Checkpoint(batches=6).write(open_storage(str(tmp_path / "orders")))
    return tmp_path / "orders"


def changes(tmp_path: Path) -> list[dict[str, object]]:
    """What the spec that was written asks for, job by job."""
    (spec,) = tmp_path.glob("runs/*/spec.json")
    jobs = json.loads(spec.read_text())["jobs"]
    kept = ("transform", "mode", "sync")
    return [{key: job[key] for key in kept if key in job} for job in jobs]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["compact"], {"transform": [{"kind": "compact"}]}),
        (
            ["rewind", "--batch", "3", "--waive", "repeated-batches"],
            {"transform": [{"kind": "rewind", "batch": 3}]},
        ),
        (
            ["rewind", "--batch", "3", "--fork"],
            {"transform": [{"kind": "rewind", "batch": 3}], "mode": "fork"},
        ),
        (
            ["rewind", "--batch", "3", "--renumber"],
            {"transform": [{"kind": "rewind", "batch": 3, "renumber": True}]},
        ),
        (["fork"], {"mode": "fork"}),
        (["fork", "--no-sync"], {"mode": "fork", "sync": False}),
        (
            ["repartition", "--partitions", "2", "--fork", "--no-sync"],
            {
                "transform": [{"kind": "repartition", "partitions": 2}],
                "mode": "fork",
                "sync": False,
            },
        ),
        (["convert", "--codec", "zstd"], {"transform": [{"kind": "convert", "codec": "zstd"}]}),
        (
            ["rename", "--operator", "0=2"],
            {"transform": [{"kind": "rename", "operators": {"0": "2"}}]},
        ),
        (
            ["rename", "--source", "0=1", "--drop-operator", "0"],
            {
                "transform": [
                    {"kind": "rename", "sources": {"0": "1"}},
                    {"kind": "drop", "operators": ["0"]},
                ]
            },
        ),
        (
            ["repartition", "--partitions", "2"],
            {"transform": [{"kind": "repartition", "partitions": 2}]},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_shortcut_is_a_spec_that_is_carried_out(
    tmp_path: Path, orders: Path, argv: list[str], expected: dict[str, object]
) -> None:
    command, *flags = argv
    target, runs = tmp_path / "new", ("--workdirs", str(tmp_path / "runs"))
    ran = said(command, str(orders), "--to", str(target), *flags, *runs, "--yes", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["state"] == "finished"
    assert changes(tmp_path) == [expected]
    assert (target / "metadata").exists()


def test_a_split_is_a_fork_for_each_part(tmp_path: Path, orders: Path) -> None:
    parts = [str(tmp_path / "a"), str(tmp_path / "b")]
    where = [word for part in parts for word in ("--to", part)]
    ran = said("split", str(orders), *where, "--workdirs", str(tmp_path / "runs"), "--yes")
    assert ran.code == 0, ran.err
    assert changes(tmp_path) == [
        {"transform": [{"kind": "split", "by": 2, "part": part}], "mode": "fork"} for part in (0, 1)
    ]


@pytest.mark.parametrize(
    "argv",
    [
        ["compact"],
        ["convert", "--codec", "zstd"],
        ["evolve", "--drop", "a"],
        ["merge", "another"],
        ["rename", "--operator", "0=1"],
        ["repartition", "--partitions", "2"],
        ["rewind", "--batch", "1"],
        ["reposition", "--table", "/lake/a"],
    ],
    ids=lambda argv: argv[0],
)
def test_what_is_moved_is_synced(argv: list[str], tmp_path: Path, orders: Path) -> None:
    command, *flags = argv
    target = str(tmp_path / "new")
    ran = said(command, str(orders), "--to", target, *flags, "--no-sync", "--yes")
    assert ran.code == 2
    assert "--no-sync needs --fork" in ran.err
    assert not (tmp_path / "new").exists()


def test_the_parts_of_a_split_need_not_be_synced(tmp_path: Path, orders: Path) -> None:
    where = ["--to", str(tmp_path / "a"), "--to", str(tmp_path / "b")]
    runs = ["--workdirs", str(tmp_path / "runs")]
    assert said("split", str(orders), *where, *runs, "--no-sync", "--yes").code == 0
    assert [job["sync"] for job in changes(tmp_path)] == [False, False]


def test_a_merge_takes_the_first_as_the_job_and_the_others_along(
    tmp_path: Path, orders: Path
) -> None:
    other = tmp_path / "other"
    Checkpoint(batches=2, query="22222222-2222-3333-4444-555555555555").write(
        open_storage(str(other))
    )
    runs = ("--workdirs", str(tmp_path / "runs"))
    ran = said("merge", str(orders), str(other), "--to", str(tmp_path / "new"), *runs, "-y")
    assert ran.code == 4, "both hold the same keys"
    assert "is in another of the merged checkpoints" in ran.err
    assert changes(tmp_path) == [
        {"transform": [{"kind": "merge", "locations": [f"file://{other}"]}]}
    ]


def test_a_union_names_operators_of_savepoints_and_is_for_no_checkpoint_of_spark(
    tmp_path: Path, orders: Path
) -> None:
    places, to = [str(tmp_path / name) for name in ("one", "other")], str(tmp_path / "new")
    for place in places:
        shutil.copytree(
            next(golden.FOLDER.glob("flink-2.3.0/count-canonical-hashmap/image/savepoint-*")), place
        )
    runs = ("--workdirs", str(tmp_path / "runs"))
    ran = said("merge", *places, "--to", to, "--union", "orders-source, orders-count", *runs, "-y")
    assert ran.code == 4
    assert "each has a coordinator with a state of its own" in ran.err
    assert not list(tmp_path.glob("runs/*/journal*"))
    ran = said("merge", *places, "--to", to, "--union", "orders-cuont", *runs, "-y")
    assert "no operator has the uid or id 'orders-cuont'" in ran.err
    ran = said("merge", str(orders), str(orders), "--to", to, "--union", "0", *runs, "-y")
    assert ran.code == 4 and "Flink" in ran.err


def test_where_nobody_can_be_asked_the_command_with_yes_is_given(
    tmp_path: Path, orders: Path
) -> None:
    ran = said("rewind", str(orders), "--to", str(tmp_path / "new"), "--batch", "3", "--fork")
    assert ran.code == 2
    hint = ran.err.split("hint: ")[1].strip()
    assert shlex.split(hint) == [
        "stateshift",
        "rewind",
        str(orders),
        "--to",
        str(tmp_path / "new"),
        "--batch",
        "3",
        "--fork",
        "--yes",
    ]
    assert not (tmp_path / "new").exists()


def test_what_is_typed_is_meant_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "${HOME} orders"
    Checkpoint().write(open_storage(str(place)))
    ran = said(
        "compact",
        str(place),
        "--to",
        str(tmp_path / "new"),
        "--workdirs",
        str(tmp_path / "runs"),
        "--yes",
    )
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["convert"], "nothing is asked for"),
        (["convert", "--codec", "gzip"], '"gzip" is not one of'),
        (["rename", "--operator", "0"], "takes OLD=NEW"),
        (["rename"], "nothing is asked for"),
        (["split", "--column", "word"], "--column and --values go together"),
        (
            ["split", "--to", "b", "--column", "c", "--values", "de,fr", "--values", "us, fr"],
            "names 'fr' in two parts",
        ),
        (["rewind", "--batch", "-1"], "Invalid value for '--batch'"),
        (["merge"], "two checkpoints, or more"),
        (["reposition"], "--by for topics of Kafka, or --table"),
        (["reposition", "--by", "latest"], "--by needs --to-brokers"),
        (["reposition", "--by", "records", "--to-brokers", "b:1"], "--by records needs --from-br"),
        (["reposition", "--by", "guess", "--to-brokers", "b:1"], '--by: "guess" is not offsets'),
        (["reposition", "--by", "latest", "--to-brokers", "b"], '--to-brokers: "b" is not host'),
        (["reposition", "--table", "/lake/a", "--topic", "a=b"], "'topics' beside 'table'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_a_request_that_is_not_valid(
    tmp_path: Path, orders: Path, argv: list[str], told: str
) -> None:
    command, *flags = argv
    ran = said(command, str(orders), "--to", str(tmp_path / "new"), *flags, "--yes")
    assert ran.code == 2
    assert told in ran.err


def test_a_refusal_is_shown_with_its_finding_and_nothing_is_done(
    tmp_path: Path, orders: Path
) -> None:
    ran = said("rewind", str(orders), "--to", str(tmp_path / "new"), "--batch", "9", "--yes")
    assert ran.code == 4
    assert "batch 9 is not committed" in ran.err
    assert not (tmp_path / "new").exists()


PLACES_OF_A_LINK = [
    (["compact", "{link}", "--to", "{orders}/new"], "one lies inside the other"),
    (
        ["repartition", "{orders}", "--to", "{link}/new", "--partitions", "3"],
        "one lies inside the other",
    ),
    (["merge", "{orders}", "{link}", "--to", "{new}", "--sum", "count"], "are one place"),
]


@pytest.mark.parametrize(
    ("argv", "fact"), PLACES_OF_A_LINK, ids=[argv[0] for argv, _ in PLACES_OF_A_LINK]
)
def test_places_that_a_link_makes_one_are_not_apart(
    tmp_path: Path, orders: Path, argv: list[str], fact: str
) -> None:
    (tmp_path / "link").symlink_to(orders)
    named = {"orders": orders, "link": tmp_path / "link", "new": tmp_path / "new"}
    runs = ("--workdirs", str(tmp_path / "runs"))
    before = sorted(orders.rglob("*"))
    ran = said(*(word.format(**named) for word in argv), "--fork", *runs, "--yes")
    assert ran.code == 4
    assert fact in ran.out + ran.err
    assert sorted(orders.rglob("*")) == before


def test_a_link_to_a_checkpoint_is_a_checkpoint(tmp_path: Path, orders: Path) -> None:
    (tmp_path / "link").symlink_to(orders)
    places = (
        str(tmp_path / "link"),
        "--to",
        str(tmp_path / "new"),
        "--workdirs",
        str(tmp_path / "runs"),
    )
    ran = said("fork", *places, "--yes")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("s:string=5", {"default": "5"}),
        ("s:string=null", {"default": None}),
        ("s:string=none@count", {"default": "none", "after": "count"}),
        ('s:string="a@b"', {"default": "a@b"}),
        ('s:string="a@b"@count', {"default": "a@b", "after": "count"}),
    ],
)
def test_a_column_of_text_may_have_any_text_for_a_default(
    text: str, column: dict[str, object]
) -> None:
    assert column_of(text) == {"name": "s", "type": "string", **column}
