"""What a transform of any golden checkpoint makes passes `verify --deep`, or the transform is
refused with a reason. Also of checkpoints that an older Spark left: without schemas, without
metadata of operators, without commits.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from stateshift import look
from stateshift.survey import Finding
from tests.formats.golden import CASES, IDS
from tests.look.golden_images import contents, write
from tests.support.ground import TARGET, Ground, spec_of

SEED, SAMPLE = 27, 40
WAIVED = ["paths-stay", "repeated-batches", "sink-ahead", "old-state"]

CHANGES: dict[str, list[dict[str, Any]]] = {
    "copy": [],
    "compact": [{"kind": "compact"}],
    "1 partition": [{"kind": "repartition", "partitions": 1}],
    "7 partitions": [{"kind": "repartition", "partitions": 7}],
    "zstd": [{"kind": "convert", "codec": "zstd"}],
    "lz4": [{"kind": "convert", "codec": "lz4"}],
    "rocksdb": [{"kind": "convert", "provider": "rocksdb"}],
    "hdfs": [{"kind": "convert", "provider": "hdfs-backed"}],
    "v1": [{"kind": "convert", "checkpoint_format": "v1"}],
    "v2": [{"kind": "convert", "provider": "rocksdb", "checkpoint_format": "v2"}],
    "rewind": [{"kind": "rewind", "batch": 1}],
    "rewind and compact": [{"kind": "rewind", "batch": 1}, {"kind": "compact"}],
    "split": [{"kind": "split", "by": 2, "part": 1}],
    "drop": [{"kind": "drop", "operators": ["0"]}],
    "rename": [{"kind": "rename", "operators": {"0": "1"}}],
}
# Parts of a checkpoint that are left out, by what their paths hold.
WITHOUT: dict[str, tuple[str, ...]] = {
    "whole": (),
    "no schemas": ("/_metadata/schema", "/_stateSchema/"),
    "no operator metadata": ("/_metadata/metadata", "/_metadata/v2"),
    "no commits": ("commits/",),
    "as 2.1 left it": ("/_metadata/", "/_stateSchema/", "commits/"),
}
STATES = [case for case in CASES if (case / "checkpoint/state").is_dir()]
NAMES = [IDS[CASES.index(case)] for case in STATES]
_EVERY = [(case, without, change) for case in STATES for without in WITHOUT for change in CHANGES]
SOME = [
    pytest.param(*parts, id=f"{IDS[CASES.index(parts[0])]}-{parts[1]}-{parts[2]}")
    for parts in random.Random(SEED).sample(_EVERY, SAMPLE)
]


@pytest.mark.parametrize(("case", "without", "change"), SOME)
def test_what_a_transform_makes_passes_a_deep_verification_or_it_is_refused(
    tmp_path: Path, case: Path, without: str, change: str
) -> None:
    check(tmp_path, case, without, change)


@pytest.mark.slow
@pytest.mark.parametrize("case", STATES, ids=NAMES)
def test_what_any_transform_makes_of_any_checkpoint_passes_or_is_refused(
    tmp_path: Path, case: Path
) -> None:
    for without in WITHOUT:
        for change in CHANGES:
            check(tmp_path / f"{without}-{change}", case, without, change)


def refused_names(findings: Iterable[Finding]) -> set[str | None]:
    """Return by which names refusals can be waived; None of one that cannot."""
    return {finding.waive for finding in findings if finding.level == "refuse"}


def check(folder: Path, case: Path, without: str, change: str) -> None:
    ground = Ground(folder)
    location = f"file:///tmp/stateshift-golden/{case.name}/checkpoint"
    kept = {
        path: content
        for path, content in contents(case).items()
        if not any(part in path for part in WITHOUT[without])
    }
    write(ground.disk.open(location), kept)
    source = look.restartable(location, ground.open, thorough=True)
    mode = "fork" if change == "split" else "move"
    spec = spec_of(location, transform=CHANGES[change], waive=WAIVED, mode=mode)
    proposal = ground.propose(spec)
    if proposal.refusals:
        assert change != "copy" or not source.restartable, proposal.refusals
        return
    ground.apply(proposal)
    judged = look.restartable(TARGET, ground.open, thorough=True)
    if change == "rename" and not judged.restartable:
        assert refused_names(judged.findings) == {"operator-numbers"}, judged.findings
        return
    assert judged.restartable, judged.findings
    if source.restartable and change == "copy":
        assert judged.epochs[-1:] == source.epochs[-1:]
