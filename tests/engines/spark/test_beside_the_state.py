"""What lies in a checkpoint beside Spark's own files: Delta's schema log moves with it,
strangers' files are named.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.engines.spark.engine import ENGINE
from stateshift.engines.spark.entries.single_file import decode_file
from stateshift.engines.spark.plan.rounds import round_plan
from stateshift.engines.spark.plan.standby import standby_plan
from stateshift.engines.spark.survey import checkpoint as spark_survey
from stateshift.engines.spark.survey.checkpoint import own_part
from stateshift.engines.spark.survey.own_places import hand_copy_faults
from stateshift.errors import FormatError, SpecError
from stateshift.plan import Plan
from stateshift.specification import parse_spec
from stateshift.step import BringFiles, TransformShard
from stateshift.survey import Finding, Image
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import Checkpoint, put
from tests.support.encoders import encode_hadoop_crc, hadoop_checksums
from tests.support.ground import TARGET, Ground, facts_of, job_of, plan_of, spec_of, surveyed

CHECKPOINT = Path(__file__).resolve().parents[2] / "golden" / "tables" / "delta" / "checkpoint"
WHERE = "file:///tmp/stateshift-golden/tables/delta/checkpoint"
LOG = next(
    str(path.relative_to(CHECKPOINT)) for path in CHECKPOINT.glob("tracking/_schema_log_*/0")
)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A real job over a Delta table with column mapping, where it was made."""
    ground = Ground(tmp_path)
    for path in CHECKPOINT.rglob("*"):
        if path.is_file():
            put(ground.disk.open(WHERE), str(path.relative_to(CHECKPOINT)), path.read_bytes())
    sidecar = f"{LOG.rpartition('/')[0]}/.{LOG.rpartition('/')[2]}.crc"
    checksums = hadoop_checksums((CHECKPOINT / LOG).read_bytes())
    put(
        ground.disk.open(WHERE), sidecar, encode_hadoop_crc(checksums)
    )  # which the rewritten file does not fit
    ground.clock.time += 600
    return ground


def moved_log(ground: Ground, target: str = "s3a://b/orders", **keys: Any) -> dict[str, Any]:
    """The schema log at the target, after a move."""
    report = ground.apply(spec_of(source=WHERE, target=target, **keys))
    assert report.state == "finished"
    content = ground.held(target)[LOG]
    entry: dict[str, Any] = json.loads(content.partition(b"\n")[2])
    return entry


def test_inspect_needs_the_schema_log_and_sees_the_place_in_it(ground: Ground) -> None:
    (image,) = spark_survey.survey(ground.disk.open(WHERE)).images
    assert LOG in image.needed
    assert [(one.path, one.role) for one in image.embedded if one.file == LOG] == [
        (f"{WHERE}/sources/0", "self")
    ]
    assert not image.findings


@pytest.mark.row("W-4")
@pytest.mark.parametrize("mode", ["move", "fork"])
def test_deltas_schema_log_moves_with_its_path_rewritten(ground: Ground, mode: str) -> None:
    before = json.loads((CHECKPOINT / LOG).read_bytes().partition(b"\n")[2])
    entry = moved_log(ground, mode=mode)
    assert entry == {**before, "sourceMetadataPath": "s3a://b/orders/sources/0"}
    assert not [path for path in ground.held("s3a://b/orders") if path.endswith(".crc")]


def test_a_source_that_gets_another_number_is_another_folder_in_the_schema_log(
    ground: Ground,
) -> None:
    entry = moved_log(ground, transform=[{"kind": "rename", "sources": {"0": "2"}}])
    assert entry["sourceMetadataPath"] == "s3a://b/orders/sources/2"


def test_other_changes_of_the_state_take_the_schema_log_along(ground: Ground) -> None:
    entry = moved_log(
        ground, transform=[{"kind": "compact"}, {"kind": "repartition", "partitions": 3}]
    )
    assert entry["sourceMetadataPath"] == "s3a://b/orders/sources/0"


def test_the_schema_log_of_a_source_that_is_left_behind_is_left_behind() -> None:
    path = f"{WHERE}/sources/1"
    content = (
        (CHECKPOINT / LOG).read_bytes().replace(b"checkpoint/sources/0", b"checkpoint/sources/1")
    )
    offsets = (CHECKPOINT / "offsets" / "2").read_bytes()
    two = offsets + b"\n" + offsets.rpartition(b"\n")[2]
    found = surveyed(Checkpoint(), WHERE, **{LOG: content, "offsets/2": two, "offsets/1": two})
    assert path in [one.path for one in found.images[0].embedded]
    spec = spec_of(source=WHERE, transform=[{"kind": "drop", "sources": ["1"]}])
    plan = plan_of(spec, facts_of(found))
    assert not plan.refusals
    assert LOG not in written_by(plan)


def written_by(plan: Plan) -> set[str]:
    transforms = {
        path for step in plan if isinstance(step, TransformShard) for path in step.outputs
    }
    return transforms | {file.path for step in plan for file in getattr(step, "items", ())}


def test_a_warm_move_brings_the_state_in_rounds_and_the_schema_log_rewritten_at_its_end(
    ground: Ground,
) -> None:
    spec = spec_of(
        source=WHERE,
        spec_clusters={"ours": {"kind": "command", "find": "f", "stop": "t"}},
        source_cluster="ours",
        target_cluster="ours",
        mode="warm",
        cutover="never",
    )
    facts = facts_of(spark_survey.survey(ground.disk.open(WHERE)))
    brought = [
        step for step in round_plan(spec, job_of(spec), facts) if isinstance(step, BringFiles)
    ]
    assert brought
    assert LOG not in {file.path for step in brought for file in step.items}
    ending = standby_plan(spec, job_of(spec), facts)
    (rewritten,) = [
        step for step in ending if isinstance(step, TransformShard) and LOG in step.outputs
    ]
    assert rewritten.transform == "spark.rewrite-delta-schema-log"


def test_a_schema_log_that_names_another_place_is_refused_and_a_move_rewrites_it() -> None:
    copy, disk = "file:///copied/by/hand", MemoryDisk()
    Checkpoint().write(disk.open(copy))
    put(disk.open(copy), LOG, (CHECKPOINT / LOG).read_bytes())
    _, found = ENGINE.survey(copy, disk.open)
    (finding,) = hand_copy_faults(copy, found.images[0])
    assert finding.level == "refuse"
    assert "refuses to start the job here" in finding.message
    plan = plan_of(spec_of(source=copy), facts_of(found))
    assert not plan.refusals
    assert [one.level for one in plan.findings if WHERE in one.message] == ["warn"]
    transforms = [step for step in plan if isinstance(step, TransformShard)]
    (rewritten,) = (step for step in transforms if LOG in step.outputs)
    assert [WHERE, TARGET] in rewritten.options["mapping"]


def test_a_damaged_schema_log_is_damage() -> None:
    found = surveyed(Checkpoint(), **{LOG: b"v1\n{"})
    assert [one.path for one in found.damages] == [LOG]


def test_another_checkpoint_with_a_schema_log_is_not_merged(ground: Ground) -> None:
    ground.write(Checkpoint(), "file:///here/orders")
    other = "file:///here/other"
    Checkpoint().write(ground.disk.open(other))
    log = (
        (CHECKPOINT / LOG)
        .read_bytes()
        .replace(WHERE.replace("file://", "file:").encode(), b"file:/here/other")
    )
    put(ground.disk.open(other), LOG, log)
    spec = spec_of(transform=[{"kind": "merge", "locations": [other]}])
    messages = [one.message for one in ground.propose(spec).refusals]
    assert any("has a schema log of Delta's" in message for message in messages)


# ---- strangers -----------------------------------------------------------------------------------

MINE = {
    **{f"mine/{number}.txt": b"x" for number in range(11)},
    "mine/deep/er.txt": b"y",
    "mine/.0.txt.crc": b"crc",
    "NOTES": b"z",
    ".hidden/file": b"h",
}


def image_with(**more: bytes) -> Image:
    return surveyed(Checkpoint(), **more).images[0]


def about_strangers(plan: Plan) -> list[Finding]:
    return [
        one for one in plan.findings if "not Spark's" in one.message or "move along" in one.message
    ]


def test_what_is_not_sparks_is_counted_by_folder_and_hadoops_checksums_are_not_told() -> None:
    assert image_with(**MINE).described["strangers"] == (
        {"path": ".hidden/", "files": 1, "bytes": 1},
        {"path": "NOTES", "files": 1, "bytes": 1},
        {"path": "mine/", "files": 12, "bytes": 12},
    )


@pytest.mark.parametrize(
    "path",
    [
        "metadata.crc",
        ".metadata.crc",
        "offsets/.3.tmp",
        "offsets/odd",
        "state/0/0/odd",
        "sources/0/rocksdb/1.sst",
        "_stateshift/names.json",
        "tracking/_schema_log_t/.0.crc",
        ".x.12345.tmp",
    ],
)
def test_what_is_the_engines_or_ours_is_no_strangers(path: str) -> None:
    assert image_with(**{path: b"x"}).described["strangers"] == ()


@pytest.mark.row("W-4")
def test_a_plan_names_what_stays_and_how_to_take_it_along() -> None:
    plan = plan_of(
        spec_of(),
        facts_of(surveyed(Checkpoint(), **{k: v for k, v in MINE.items() if "mine" in k})),
    )
    (finding,) = about_strangers(plan)
    assert (finding.level, finding.message) == (
        "note",
        "12 files in `mine/` are not Spark's and stay",
    )
    assert '"also": ["mine/"]' in (finding.hint or "")
    alone = plan_of(spec_of(), facts_of(surveyed(Checkpoint(), NOTES=b"z")))
    assert about_strangers(alone)[0].message == "1 file in `NOTES` is not Spark's and stays"


@pytest.mark.row("W-4")
def test_what_the_spec_names_is_taken_along_and_compared(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write(Checkpoint())
    for path, content in MINE.items():
        put(ground.disk.open("file:///here/orders"), path, content)
    ground.clock.time += 600
    report = ground.apply(spec_of(also=["mine/", "NOTES"]))
    assert report.state == "finished"
    taken = {
        path: content
        for path, content in ground.held("file:///there/orders").items()
        if path in MINE
    }
    assert taken == {
        path: MINE[path] for path in MINE if path != ".hidden/file" and not path.endswith(".crc")
    }
    ground.rollback()
    assert ground.held("file:///there/orders") == {}
    assert ground.held("file:///here/orders")["NOTES"] == b"z"


def test_a_part_of_a_folder_is_taken_along_and_the_rest_is_told() -> None:
    found = surveyed(Checkpoint(), **{"mine/a/1": b"x", "mine/b/1": b"x"})
    spec = spec_of(also=["mine/a"])
    own = own_part(spec, job_of(spec), found)
    plan = plan_of(spec, facts_of(own))
    assert (
        about_strangers(plan)[0].message
        == "2 files in `mine/` are not Spark's and stay, but for what `also` names"
    )
    assert "mine/a/1" in written_by(plan)
    assert "mine/b/1" not in written_by(plan)


def test_a_name_that_nothing_has_is_refused() -> None:
    plan = plan_of(spec_of(also=["mien"]), facts_of(surveyed(Checkpoint(), **{"mine/a": b"x"})))
    assert any("nothing is at mien" in one.message for one in plan.refusals)


def test_flink_has_no_such_folder() -> None:
    plain = {
        "version": 1,
        "engine": "flink",
        "jobs": [
            {
                "name": "a",
                "existing_savepoint_paths": ["/s"],
                "remote_location": "/t",
                "also": ["mine"],
            }
        ],
    }
    with pytest.raises(SpecError, match="'also' is a key of Spark's jobs"):
        parse_spec(json.dumps(plain))


# ---- real checkpoints of jobs over tables, whole -------------------------------------------------


@pytest.mark.parametrize("job", ["delta/checkpoint", "iceberg/checkpoint", "file/checkpoint"])
def test_verify_deep_says_yes_to_real_jobs_over_tables(job: str) -> None:
    """Iceberg keeps what it has begun with in sources/0/offsets/0, which is no offset log."""
    disk, where = MemoryDisk(), f"file:///tmp/stateshift-golden/tables/{job}"
    folder = CHECKPOINT.parents[1] / job
    for path in folder.rglob("*"):
        if path.is_file():
            put(disk.open(where), str(path.relative_to(folder)), path.read_bytes())
    judged = look.restartable(where, disk.open, thorough=True)
    assert [one.message for one in judged.findings if one.level == "refuse"] == []
    assert judged.restartable


def test_what_an_unknown_source_keeps_need_not_be_json_and_what_iceberg_keeps_has_to() -> None:
    content = b"{" + bytes(range(256))
    assert decode_file("/c/sources/0/7", content).format == "source log of a kind we do not know"
    with pytest.raises(FormatError, match="an initial offset is not UTF-8"):
        decode_file("/c/sources/0/offsets/0", content)


def test_a_single_file_of_a_table_source_is_decoded() -> None:
    folder = CHECKPOINT.parents[1]
    iceberg = "sources/0/offsets/0"
    begun = decode_file(f"/c/{iceberg}", (folder / "iceberg" / "checkpoint" / iceberg).read_bytes())
    assert begun.format == "iceberg source, initial offset"
    tracked = decode_file(f"/c/{LOG}", (CHECKPOINT / LOG).read_bytes())
    assert tracked.format == "Delta schema log v1"
    assert tracked.value["source_path"] == f"{WHERE.replace('file://', 'file:')}/sources/0"
    offsets = (CHECKPOINT / "offsets" / "2").read_bytes()
    assert decode_file("/checkpoints/sources/orders/offsets/2", offsets).format == "offset log v1"
