"""What a plan asks of storages, clusters and brokers before anything moves: asked for real, of
twins in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.errors import PlanError, TransientStorageError
from stateshift.migration import Adapters
from stateshift.specification import KafkaSpec, Spec
from stateshift.survey import Finding, TopicRecord
from tests.support.ground import SOURCE, TARGET, Ground, running_spec, spec_of

Spans = Mapping[str, Mapping[int, tuple[int, int]]]
Records = Mapping[str, Mapping[int, tuple[TopicRecord, ...]]]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    made = Ground(tmp_path)
    made.write()
    return made


def refused(ground: Ground, spec: Spec, adapters: Adapters | None = None) -> list[Finding]:
    """The refusals of a plan, which left everything as it was."""
    before = ground.disk.snapshot()
    proposal = migration.propose(spec, adapters or ground.adapters, ground.workdir("planning"))
    assert ground.disk.snapshot() == before
    if proposal.refusals:
        with pytest.raises(PlanError):
            ground.apply(proposal)
        assert ground.disk.snapshot() == before
    return list(proposal.refusals)


def test_a_move_that_may_write_everywhere_is_not_refused(ground: Ground) -> None:
    assert refused(ground, spec_of()) == []


@pytest.mark.parametrize(
    ("denied", "told"),
    [
        (TARGET, f"no permission to write to {TARGET}"),
        (
            "file:///there",
            f"no permission to write to file:///there (the lock lies beside its target), {TARGET}",
        ),
        (
            f"{SOURCE}/commits",
            f"no permission to write to {SOURCE}/commits (the old job is fenced off there)",
        ),
    ],
)
def test_a_place_that_may_not_be_written_to_stops_the_plan(
    ground: Ground, denied: str, told: str
) -> None:
    ground.disk.denied.add(denied)
    (finding,) = refused(ground, spec_of())
    assert (finding.message, finding.waive) == (told, "permission")


def test_a_fork_writes_nothing_to_its_source(ground: Ground) -> None:
    ground.disk.denied.add(SOURCE)
    assert refused(ground, spec_of(mode="fork")) == []


def test_a_job_that_stays_where_it_is_needs_nothing_but_its_lock(ground: Ground) -> None:
    ground.disk.denied.add(SOURCE)
    assert refused(ground, running_spec(target=None)) == []
    ground.disk.denied.add("file:///here")
    (finding,) = refused(ground, running_spec(target=None))
    assert (
        finding.message
        == "no permission to write to file:///here (the lock lies beside its target)"
    )


def test_a_disk_that_is_too_small_stops_the_plan(ground: Ground) -> None:
    ground.disk.bytes_max = ground.disk.bytes + 100
    (finding,) = refused(ground, spec_of())
    assert (finding.waive, f"{TARGET} needs" in finding.message) == ("space", True)
    assert "its disk leaves 100 B" in finding.message


def test_merged_directories_have_to_let_their_files_go(ground: Ground) -> None:
    ground = Ground(ground.folder)
    ground.write(prefix="a")
    ground.write(location="file:///here/north", prefix="b")
    ground.disk.denied.add("file:///here/north")
    (finding,) = refused(ground, spec_of(merge_jobs=["file:///here/north"]))
    assert "no permission to write to file:///here/north" in finding.message


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"topic": {0: (0, 99)}}, ""),
        ({"topic": {0: (50, 99)}}, "topic/0 begins at offset 50"),
        (
            TransientStorageError("nobody answers", location="b:1"),
            "b:1 could not be asked for topic: nobody answers",
        ),
    ],
)
def test_the_brokers_of_the_spec_are_asked_for_the_topics_of_the_checkpoint(
    ground: Ground, answer: Spans | TransientStorageError, told: str
) -> None:
    asked: list[tuple[KafkaSpec, list[str]]] = []

    def ask(spec: KafkaSpec, topics: Sequence[str]) -> Spans:
        asked.append((spec, list(topics)))
        if isinstance(answer, TransientStorageError):
            raise answer
        return answer

    spec = spec_of(kafka={"bootstrap_servers": "b:1"})
    found = refused(ground, spec, replace(ground.adapters, ask_topics=ask))
    assert [told in finding.message for finding in found] == ([True] if told else [])
    assert asked == [(KafkaSpec("b:1"), ["topic"])]


def test_the_records_around_the_offsets_are_asked_of_the_brokers_of_both_sides(
    ground: Ground,
) -> None:
    """The offset is in range at both, and other records are around it at the new ones."""
    asked: list[tuple[str, str | None, Any]] = []

    def read(
        brokers: str, properties: str | None, offsets: Mapping[str, Mapping[int, int]]
    ) -> Records:
        asked.append((brokers, properties, offsets))
        value = "shifted" if brokers == "new:1" else "as it was"
        return {"topic": {0: (TopicRecord(19, 5, False, None, value),)}}

    adapters = replace(
        ground.adapters, ask_topics=lambda spec, topics: {"topic": {0: (0, 99)}}, ask_records=read
    )
    kafka = {
        "bootstrap_servers": "new:1",
        "source_bootstrap_servers": "old:1",
        "source_properties": "/old.properties",
    }
    (finding,) = refused(ground, spec_of(kafka=kafka), adapters)
    assert "topic/0: new:1 has other records than old:1" in finding.message
    wanted = {"topic": {0: 20}}
    assert asked == [("new:1", None, wanted), ("old:1", "file:///old.properties", wanted)]


@pytest.mark.parametrize("mute", ["new:1", "old:1"])
def test_records_that_were_asked_for_and_not_to_be_had_stop_the_plan(
    ground: Ground, mute: str
) -> None:
    def read(
        brokers: str, properties: str | None, offsets: Mapping[str, Mapping[int, int]]
    ) -> Records:
        if brokers == mute:
            raise TransientStorageError("it may not read there", location=brokers)
        return {"topic": {0: (TopicRecord(19, 5, False, None, "x"),)}}

    adapters = replace(
        ground.adapters, ask_topics=lambda spec, topics: {"topic": {0: (0, 99)}}, ask_records=read
    )
    both = spec_of(kafka={"bootstrap_servers": "new:1", "source_bootstrap_servers": "old:1"})
    (finding,) = refused(ground, both, adapters)
    assert (mute in finding.message, "it may not read there" in finding.message) == (True, True)
    assert finding.waive == "other-records"
    assert refused(ground, spec_of(kafka={"bootstrap_servers": "new:1"}), adapters) == []


def test_nobody_is_asked_of_topics_where_the_spec_names_no_brokers(ground: Ground) -> None:
    def ask(spec: KafkaSpec, topics: Sequence[str]) -> Spans:
        raise AssertionError("asked")

    assert refused(ground, spec_of(), replace(ground.adapters, ask_topics=ask)) == []


def test_nothing_is_asked_again_while_a_job_is_down(ground: Ground) -> None:
    """Space and permission are asked for the plan that is shown; the plan after the halt is not
    to wait for them.
    """
    ground.write()
    proposal = ground.propose(running_spec())
    assert not proposal.refusals
    inquiry = migration.Inquiry(running_spec(), ground.adapters, ground.workdir())
    facts = migration.gather(inquiry, running_spec().jobs[0])
    assert (facts.target.room, facts.target.denied, facts.topics) == (None, None, None)
