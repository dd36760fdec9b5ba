"""What is left to copy once rounds have brought the rest."""

from __future__ import annotations

from stateshift.engines.bundles import BYTES_MAX, Copies, FileGroup, copy_steps, still_to_copy
from stateshift.survey import Brought, Facts, FileInfo, Survey

HERE, THERE = "hdfs://a/job", "hdfs://b/job"


def test_little_files_that_lay_between_large_ones_are_copied_together() -> None:
    large = tuple(FileInfo(f"state/0/{n}/1.snapshot", BYTES_MAX) for n in range(16))
    little = tuple(FileInfo(f"state/0/{n}/2.delta", 100) for n in range(16))
    group = FileGroup(HERE, THERE, tuple(sorted(large + little)))
    whole = Copies((group,), copy_steps((group,)), {})
    brought = {(HERE, file.path): Brought(HERE, THERE, file, "digest", file.path) for file in large}
    empty = Survey(THERE, None, "empty", ())
    left = still_to_copy(
        Facts(
            source=Survey(HERE, "spark", "checkpoint", group.files), target=empty, brought=brought
        ),
        whole,
    )
    assert len(whole.steps) >= 16
    assert [step.items for step in left.steps] == [tuple(sorted(little))]
