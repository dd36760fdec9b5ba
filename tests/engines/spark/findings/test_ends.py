"""The Sparks of both ends and the one that wrote the checkpoint, as far as each is known."""

from __future__ import annotations

import pytest

from stateshift.plan import Plan
from stateshift.survey import ClusterFacts, Image
from tests.support.checkpoints import Checkpoint
from tests.support.ground import facts_of, plan_of, running_spec, spec_of, surveyed

WRITTEN = "3.5 or later"  # as the settings of these checkpoints tell


def planned(ours: str | None, theirs: str | None, kind: str = "command", **keys: object) -> Plan:
    """The move between clusters of these versions; `ours` None: the source's cluster does not
    tell.
    """
    source = surveyed(Checkpoint())
    image: Image = source.images[0]
    assert image.written_by == WRITTEN
    clusters = {
        "source_cluster": ClusterFacts("ours", "command", ours, "absent"),
        "target_cluster": ClusterFacts("theirs", kind, theirs, "unknown", reaches=True),
    }
    return plan_of(running_spec(**keys), facts_of(source, **clusters))


def said(plan: Plan, level: str) -> str:
    return "\n".join(
        f"{finding.message} {finding.hint}" for finding in plan.findings if finding.level == level
    )


@pytest.mark.row("IS-18")
@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ("4.3.0", "4.2.1", "older than 4.3.0 on ours"),
        (None, "3.4.4", "older than 3.5 or later, which wrote the checkpoint"),
        ("3.4.4", "3.4.4", "older than 3.5 or later, which wrote the checkpoint"),
        ("3.5.9", "3.4.4", "older than 3.5.9 on ours"),
    ],
)
def test_a_target_older_than_either_is_refused_and_can_be_waived(
    ours: str | None, theirs: str, told: str
) -> None:
    (finding,) = planned(ours, theirs).refusals
    assert told in finding.message
    assert finding.waive == "older-target"
    assert not planned(ours, theirs, waive=["older-target"]).refusals


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(None, "3.5.9"), ("3.5.1", "3.5.9"), (None, "4.3.0"), (None, "3.5.9-amzn-0")],
)
def test_a_target_that_is_as_new_is_not_spoken_of(ours: str | None, theirs: str) -> None:
    plan = planned(ours, theirs)
    assert not plan.refusals
    assert "Spark" not in said(plan, "warn")


def test_a_newer_target_is_a_warning() -> None:
    assert "Spark 3.5.9 on ours, 4.3.0 on theirs" in said(planned("3.5.9", "4.3.0"), "warn")


@pytest.mark.parametrize("kind", ["command", "manual", "livy"])
def test_a_cluster_that_does_not_tell_is_told_of_with_a_way_to_make_it(kind: str) -> None:
    found = said(planned("4.3.0", None, kind), "note")
    assert (
        "theirs does not say which Spark it runs: whether it is older than 4.3.0 on ours, "
        "is not known"
    ) in found
    assert ('"version"' in found) is (kind != "livy")


def test_who_starts_the_job_themselves_is_told_what_wrote_it() -> None:
    plan = plan_of(spec_of(), facts_of(surveyed(Checkpoint())))
    assert f"start the job on the target yourself (Spark {WRITTEN} wrote it)" in said(plan, "note")
