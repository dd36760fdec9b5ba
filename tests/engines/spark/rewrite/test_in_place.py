"""A checkpoint compacted where it lies: fewer files, the same entries, and a way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift import look, migration
from stateshift.engines.spark.rewrite.comparison import comparable
from stateshift.engines.spark.rewrite.in_place import SUPERSEDED
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import PlanError, SpecError, StalePlan
from stateshift.step import MoveFiles
from stateshift.survey import Facts
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.engines.spark.test_transforms_golden import source_of
from tests.formats.golden import CASES
from tests.support.checkpoints import put
from tests.support.ground import Ground, changes_of, plan_of, spec_of

NAMES = (
    "window-hdfs",
    "window-rocksdb-changelog",
    "window-rocksdb-format2",
    "join-hdfs",
    "join-rocksdb-v4",
    "tws-format2",
    "chained-rocksdb",
    "dedup-rocksdb-checksum",
)
NEWEST = {case.name: case for case in CASES if case.parent.name == "spark-4.3.0"}
IN_PLACE = [{"kind": "compact", "in_place": True}]


def grounded(folder: Path, name: str) -> tuple[Ground, str]:
    ground = Ground(folder)
    return ground, source_of(ground, NEWEST[name])


def entries_of(ground: Ground, location: str) -> Counter[tuple[object, ...]]:
    storage = ground.open(location)
    (image,) = survey.survey(storage).images
    blocks = (
        (shard, *pair)
        for shard in image.shards
        for pair in comparable(storage.chunks, shard, image.settings)
    )
    return Counter(
        (shard.operator, shard.shard, store, *record)
        for shard, store, block in blocks
        for record in block.records()
    )


@pytest.mark.row("IS-17")
@pytest.mark.parametrize("name", NAMES)
def test_the_same_entries_are_in_fewer_files_and_a_rollback_puts_back_every_one(
    tmp_path: Path, name: str
) -> None:
    ground, location = grounded(tmp_path, name)
    before, held = entries_of(ground, location), ground.held(location)
    ground.apply(spec_of(location, None, transform=IN_PLACE))
    assert entries_of(ground, location) == before
    judged = look.restartable(location, ground.open, thorough=True)
    assert (judged.restartable, [f for f in judged.findings if f.level == "refuse"]) == (True, [])
    left = [path for path in ground.held(location) if path.startswith("state/")]
    assert len(left) < len([path for path in held if path.startswith("state/")])
    assert not [path for path in left if path.endswith((".delta", ".changelog"))]
    assert migration.verify(ground.workdir(), ground.adapters).broken == ()
    ground.rollback()
    assert ground.held(location) == held
    assert not [path for path in ground.disk.snapshot(location) if path.startswith(SUPERSEDED)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["window-hdfs", "window-rocksdb-format2"])
def test_killed_at_any_effect_it_is_restartable_and_ends_or_goes_back_as_an_unharmed_run(
    tmp_path: Path, name: str, moments: Callable[[int], range]
) -> None:
    """Also while it is under way a restart finds its whole state; only the fence keeps it from
    committing.
    """
    unharmed, location = grounded(tmp_path / "unharmed", name)
    whole, held = entries_of(unharmed, location), unharmed.held(location)
    spec, counted = spec_of(location, None, transform=IN_PLACE), Effects()
    unharmed.wrap = lambda storage: Faulty(storage, counted)
    unharmed.apply(spec)
    unharmed.wrap = lambda storage: storage
    assert len(counted.seen) > 10
    for number in moments(len(counted.seen)):
        ground, _ = grounded(tmp_path / str(number), name)
        effects = Effects(at(number, Killed))
        ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            ground.apply(spec)
        ground.wrap = lambda storage: storage
        assert entries_of(ground, location) == whole, f"killed at effect {number}"
        if number % 2:
            ground.resume()
            assert ground.held(location) == unharmed.held(location), f"killed at effect {number}"
        ground.rollback()
        assert ground.held(location) == held, f"killed at effect {number}"


def test_a_job_that_goes_on_meanwhile_is_not_overtaken_and_one_that_went_on_is_not_taken_back(
    tmp_path: Path,
) -> None:
    ground, location = grounded(tmp_path, "window-rocksdb-changelog")
    spec = spec_of(location, None, transform=IN_PLACE)
    proposed = ground.propose(spec)
    epoch = survey.survey(ground.open(location)).epoch or 0
    for log in ("offsets", "commits"):
        put(
            ground.open(location),
            f"{log}/{epoch + 1}",
            ground.open(location).read(f"{log}/{epoch}", 1 << 20),
        )
    with pytest.raises(StalePlan):
        ground.apply(proposed)
    for log in ("offsets", "commits"):
        ground.open(location).remove(f"{log}/{epoch + 1}")
    ground.apply(ground.propose(spec), "again")
    for log in ("offsets", "commits"):
        put(
            ground.open(location),
            f"{log}/{epoch + 1}",
            ground.open(location).read(f"{log}/{epoch}", 1 << 20),
        )
    with pytest.raises(PlanError, match="cannot do without them"):
        ground.rollback("again", discard_progress=True)


def test_where_nothing_can_be_renamed_the_old_files_stay(tmp_path: Path) -> None:
    ground, location = grounded(tmp_path, "window-hdfs")
    found = survey.survey(ground.open(location), changes=changes_of(*IN_PLACE))
    for renames in (True, False):
        source = replace(found, traits={"renames": renames, "keeps_times": True})
        plan = plan_of(spec_of(location, None, transform=IN_PLACE), Facts(source, source, at=1e12))
        assert any(isinstance(step, MoveFiles) for step in plan) == renames
        told = " ".join(finding.message for finding in plan.findings)
        assert ("is set aside in" in told, "cannot rename" in told) == (renames, not renames)


def test_in_place_is_for_a_compaction_alone_and_needs_no_place() -> None:
    for changes, target in (
        (IN_PLACE, "file:///there"),
        ([*IN_PLACE, {"kind": "rewind", "batch": 1}], None),
    ):
        with pytest.raises(SpecError, match="a compaction in place"):
            spec_of("file:///here", target, transform=changes)
