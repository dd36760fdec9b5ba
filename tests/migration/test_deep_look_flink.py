"""A damaged savepoint or checkpoint of Flink is found out before anything is stopped or written.
What only an operator has that the spec leaves behind is no reason to refuse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.errors import PlanError, StateshiftError
from stateshift.specification import parse_spec
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden
from tests.engines.flink.test_moving import TARGET, spec_of
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, Ground
from tests.support.ground import spec_of as of_spark
from tests.support.living_flink import LivingFlinkGround

Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "zeros": lambda content: bytes(len(content)),
    "zeros in the middle": lambda content: (
        content[: len(content) // 3] + bytes(len(content) // 3) + content[len(content) // 3 * 2 :]
    ),
    "half of it": lambda content: content[: len(content) // 2],
    "nothing": lambda content: b"",
}
IMAGES = [
    f"flink-{version}/{name}"
    for version in ("1.15.4", "2.3.0")
    for name in (
        "kinds-canonical-hashmap",
        "kinds-native-incremental",
        "kinds-native-hashmap",
        "kinds-compressed",
        "count-unaligned",
    )
]
IMAGES += ["flink-2.3.0/count-changelog-rocksdb", "flink-2.3.0/count-forst-native"]


def files_of(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: content for path, content in disk.snapshot().items() if content}


def located(place: str) -> str:
    return place if "://" in place else f"file://{place}"


def verdict(ground: Ground, source: str) -> bool:
    """Whether `verify --deep` takes the image, which is whole or not."""
    storage, survey = golden.looked_at(ground.disk, source)
    refused = any(
        finding.level == "refuse" for image in survey.images for finding in image.findings
    )
    return (
        bool(survey.images)
        and not refused
        and not any(f.level == "refuse" for f in golden.damages(storage, survey))
    )


@pytest.mark.long
@pytest.mark.sample(10)
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", IMAGES)
def test_a_damaged_savepoint_is_refused_before_anything_is_written(
    ground: Ground, name: str, how: str
) -> None:
    """Every file of it, one after the other; where no checksum tells, both say yes."""
    source = golden.write(ground.disk, name)
    found = 0
    for place, content in files_of(ground.disk).items():
        ground.put(located(place), DAMAGES[how](content))
        if not verdict(ground, source):
            found += 1
            before = ground.disk.snapshot(temporaries=True)
            with pytest.raises(StateshiftError) as caught:
                ground.apply(spec_of(source), f"run-{found}")
            assert caught.value.exit_code in (3, 4), caught.value
            assert ground.disk.snapshot(temporaries=True) == before, f"{place}: nothing is written"
            assert not ground.workdir(f"run-{found}").path.exists() or not ground.locks()
        ground.put(located(place), content)
    assert found, "no file of it matters"
    assert ground.apply(spec_of(source), "whole").state == "finished"


def keyed_file(ground: Ground, uid: str, source: str) -> str:
    """A file of the keyed state of an operator."""
    from stateshift.engines.flink.image import metadata_of
    from stateshift.formats.flink.references import references
    from stateshift.formats.flink.stream_handles import files_of as named
    from stateshift.formats.uid import flink_operator_id

    (image,) = golden.looked_at(ground.disk, source)[1].images
    own = (
        r
        for r in references(metadata_of(image))
        if r.operator == flink_operator_id(uid) and r.role == "keyed"
    )
    return next(f"{source}/{file.path}" for reference in own for file in named(reference.stream))


def zero(ground: Ground, location: str) -> None:
    folder, _, name = location.rpartition("/")
    content = b"".join(ground.disk.open(folder).chunks(name))
    ground.put(location, bytes(len(content)))


LEFT = ["payments-source", "payments-count", "payments-lines"]
KEPT = ["orders-source", "orders-count", "orders-lines"]


@pytest.mark.parametrize(
    "asked",
    [{"transform": [{"kind": "drop", "operators": LEFT}]}, {"operators": KEPT, "mode": "fork"}],
    ids=["drop", "operators"],
)
def test_damage_in_an_operator_that_stays_behind_stops_no_move(
    ground: Ground, asked: dict[str, Any]
) -> None:
    source = golden.write(ground.disk, "flink-2.3.0/count-two")
    zero(ground, keyed_file(ground, "payments-count", source))
    with pytest.raises(PlanError, match="cannot restart from its source"):
        ground.apply(spec_of(source), "whole")
    assert ground.apply(spec_of(source, **asked)).state == "finished"
    storage, survey = golden.looked_at(ground.disk, TARGET)
    assert golden.damages(storage, survey) == []


def test_what_jobs_divide_is_looked_at_for_each_as_far_as_it_takes_it_along(ground: Ground) -> None:
    source = golden.write(ground.disk, "flink-2.3.0/count-two")
    zero(ground, keyed_file(ground, "payments-count", source))
    parts = (("orders", KEPT), ("payments", LEFT))
    jobs = [
        {
            "name": name,
            "existing_savepoint_paths": [source],
            "new_savepoint_path": f"file:///there/{name}",
            "mode": "fork",
            "operators": operators,
        }
        for name, operators in parts
    ]
    spec = parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": jobs}))
    with pytest.raises(PlanError, match="payments cannot restart from its source"):
        ground.apply(spec)
    assert not ground.held("file:///there/payments")


def test_damage_in_an_operator_that_goes_along_does(ground: Ground) -> None:
    source = golden.write(ground.disk, "flink-2.3.0/count-two")
    zero(ground, keyed_file(ground, "orders-count", source))
    with pytest.raises(PlanError, match="cannot restart from its source"):
        ground.apply(spec_of(source, transform=[{"kind": "drop", "operators": LEFT}]))
    assert not ground.held(TARGET)


def test_a_drop_of_one_image_says_nothing_of_another(ground: Ground) -> None:
    cases = ("count-canonical-hashmap", "count-saved")
    one, other = (golden.write(ground.disk, f"flink-2.3.0/{case}") for case in cases)
    zero(ground, keyed_file(ground, "orders-count", one))
    drop = {
        "kind": "drop",
        "of": other,
        "operators": ["orders-source", "orders-count", "orders-lines"],
    }
    with pytest.raises(PlanError, match="cannot restart from its source"):
        ground.apply(spec_of(one, other, transform=[drop]), "run")
    turned = {**drop, "of": one}
    assert ground.apply(spec_of(one, other, transform=[turned]), "turned").state == "finished"


def test_an_operator_of_spark_that_is_dropped_may_be_damaged(ground: Ground) -> None:
    ground.write()
    path = "state/0/0/1.delta"
    content = Checkpoint().files()[path]
    ground.put(f"{SOURCE}/{path}", content[:30] + bytes((content[30] ^ 0x10,)) + content[31:])
    with pytest.raises(PlanError, match="cannot restart from its source"):
        ground.apply(of_spark(), "whole")
    assert (
        ground.apply(of_spark(transform=[{"kind": "drop", "operators": ["0"]}])).state == "finished"
    )


def test_a_running_job_goes_on_where_its_checkpoint_is_damaged(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    held = {path: content for path, content in files_of(ground.disk).items() if len(content) > 500}
    tables = [path for path in held if path.endswith(".sst") or "/shared/" in path]
    for place in tables:
        ground.put(located(place), bytes(len(held[place])))
    assert tables
    before = ground.disk.snapshot(temporaries=True)
    with pytest.raises(PlanError, match="cannot restart from its source"):
        ground.warm()
    assert [job.status.state.alive for job in ground.flink.jobs] == [True]
    assert ground.disk.snapshot(temporaries=True) == before
    assert not ground.flink.submissions


def test_a_plan_of_flink_looks_deep_where_it_is_asked_to(ground: Ground) -> None:
    source = golden.write(ground.disk, "flink-2.3.0/count-two")
    zero(ground, keyed_file(ground, "payments-count", source))
    assert not ground.propose(spec_of(source)).refusals
    assert migration.propose(
        spec_of(source), ground.adapters, ground.workdir("planning"), deep=True
    ).refusals
    left = spec_of(source, transform=[{"kind": "drop", "operators": LEFT}])
    assert not migration.propose(
        left, ground.adapters, ground.workdir("planning"), deep=True
    ).refusals


def test_the_spec_of_a_flink_job_may_ask_for_names_alone(tmp_path: Path) -> None:
    ground = LivingFlinkGround(tmp_path)
    assert ground.warm(verify={"source": "names"}).state == "finished"
    assert "orders: looking at the source" not in ground.said
