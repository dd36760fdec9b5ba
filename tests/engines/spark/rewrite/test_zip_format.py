"""The number in a zip's metadata: 4.0 and all the others do not agree on it, under checkpoint
format 2.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.spark.rewrite.transforms import TRANSFORMS
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.spark.rocksdb import decode_zip
from stateshift.plan import Plan
from stateshift.step import TransformShard
from stateshift.storage.local.storage import LocalStorage
from stateshift.survey import ClusterFacts
from tests.formats.golden import ROOT
from tests.support.ground import changes_of, facts_of, plan_of, spec_of

COMPACT = [{"kind": "compact"}]


def planned(
    written_by: str, target: str | None, changes: list[dict[str, Any]]
) -> tuple[Plan, Path]:
    place = ROOT / f"spark-{written_by}" / "window-rocksdb-format2" / "checkpoint"
    facts = facts_of(survey(LocalStorage(str(place)), changes=changes_of(*changes)))
    if target is not None:
        facts = replace(facts, target_cluster=ClusterFacts("theirs", "memory", target, "absent"))
    return plan_of(spec_of(transform=changes, waive=["paths-stay", "older-target"]), facts), place


@pytest.mark.parametrize(
    ("written_by", "target", "refused"),
    [
        ("4.0.5", "4.0.9", False),
        ("4.0.5", "4.1.4", True),
        ("4.0.5", None, False),
        ("4.3.0", "4.0.5", True),
        ("4.3.0", "4.1.4", False),
    ],
)
def test_snapshots_that_the_target_refuses_are_not_copied(
    written_by: str, target: str | None, refused: bool
) -> None:
    plan, _ = planned(written_by, target, [])
    found = [
        finding
        for finding in plan.refusals
        if "its snapshots are marked as Spark" in finding.message
    ]
    assert bool(found) == refused
    if refused:
        assert "compact" in (found[0].hint or "") and found[0].waive == "zip-format"
        assert not [
            f
            for f in planned(written_by, target, COMPACT)[0].refusals
            if "snapshots are marked" in f.message
        ]


@pytest.mark.parametrize(
    ("written_by", "target", "number"),
    [
        ("4.0.5", "4.0.5", 2),
        ("4.0.5", None, 2),
        ("4.0.5", "4.3.0", 1),
        ("4.3.0", None, 1),
        ("4.3.0", "4.0.5", 2),
    ],
)
@pytest.mark.parametrize("format_1", [False, True], ids=["format 2", "format 1"])
def test_snapshots_are_marked_as_the_target_reads_them(
    written_by: str, target: str | None, number: int, format_1: bool
) -> None:
    changes = [*COMPACT, *([{"kind": "convert", "checkpoint_format": "v1"}] if format_1 else [])]
    plan, place = planned(written_by, target, changes)
    found = set()
    for step in (
        step
        for step in plan
        if isinstance(step, TransformShard) and step.transform == "spark.rewrite-state"
    ):
        inputs = [
            lambda path=item.path: iter(((place / path).read_bytes(),)) for item in step.inputs
        ]
        contents = TRANSFORMS[step.transform](step.options, inputs)
        for path, content in zip(step.outputs, contents, strict=True):
            if path.endswith(".zip"):
                found.add(decode_zip(b"".join(content())).format)
    assert found == {1 if format_1 else number}
