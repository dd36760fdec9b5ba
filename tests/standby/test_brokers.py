"""A standby's brokers have what its job reads next, or the failover is refused; what is read again
is told. The standby is at epoch 11: its job reads `topic`, partition 0, from offset 110 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from stateshift import api
from stateshift.api.failovers import standby_at, standby_now
from stateshift.cli.views.run_text import report
from stateshift.documents.run import RunFacts
from stateshift.errors import PlanError, SpecError, TransientStorageError
from stateshift.specification import KafkaSpec
from stateshift.standby.location import failover_spec
from stateshift.step.claims import newest_claim
from tests.cli.support import said
from tests.migration.test_last_copy import gone, standby
from tests.migration.test_warm import Ended, Standby
from tests.standby.test_failover import fail_over, from_epoch, nothing
from tests.support.ground import TARGET

Spans = Mapping[int, tuple[int, int]]
KAFKA = {"bootstrap_servers": "b:1", "source_bootstrap_servers": "a:1"}


class Brokers:
    """Those of the standby's region; silent without spans."""

    def __init__(self, spans: Spans | None) -> None:
        self.spans, self.asked = spans, list[str]()

    def ask(self, kafka: KafkaSpec, topics: Sequence[str]) -> Mapping[str, Spans]:
        self.asked.append(kafka.bootstrap_servers)
        if self.spans is None:
            raise TransientStorageError("nobody answers", location=kafka.bootstrap_servers)
        return {topic: self.spans for topic in topics if self.spans}


def kept(
    folder: Path, spans: Spans | None, lose: Callable[[Standby], None] = gone
) -> tuple[Standby, Brokers]:
    """A lost primary's standby, whose brokers hold this by now."""
    brokers = Brokers({0: (0, 500)})
    ground = standby(folder, lose, ask_topics=brokers.ask, kafka=KAFKA)
    ground.looks = 10**6
    brokers.spans, brokers.asked = spans, []
    return ground, brokers


@pytest.mark.row("W-22")
@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ({0: (115, 500)}, "topic/0 begins at offset 115: 5 records from 110 on are gone"),
        ({0: (0, 108)}, "topic/0 ends at offset 108, and the job has read up to 110: 2 records"),
        ({1: (0, 500)}, "topic has no partition 0 at b:1"),
        ({}, "b:1 has no topic topic"),
        (None, "b:1 could not be asked for topic: nobody answers"),
    ],
)
def test_a_job_is_not_started_where_its_input_is_lost_unless_somebody_says_so(
    tmp_path: Path, spans: Spans | None, told: str
) -> None:
    ground, _ = kept(tmp_path, spans)
    before = ground.disk.snapshot()
    words = ("failover", TARGET, "--primary-is-down", "--yes", "--workdirs", str(tmp_path))
    refused = said(*words, adapters=ground.adapters)
    assert refused.code == 4 and told in " ".join(refused.err.split())
    assert "--waive lost-offsets" in refused.err
    assert ground.disk.snapshot() == before and not ground.cluster.submissions
    waived = said(*words, "--waive", "lost-offsets", adapters=ground.adapters)
    assert waived.code == 0 and ground.there is not None


@pytest.mark.row("W-22")
def test_the_records_that_are_read_again_are_told(tmp_path: Path) -> None:
    ground, brokers = kept(tmp_path, {0: (100, 150), 1: (3, 5)})
    assert standby_now(standby_at(TARGET, ground.adapters), ground.adapters).records == 42
    shown = said("status", TARGET, adapters=ground.adapters).out
    assert "42 records that the brokers have" in shown
    done = fail_over(ground)
    assert done.jobs[0].failover is not None and done.jobs[0].failover.rpo.records == 42
    assert set(brokers.asked) == {"b:1"}, "and never those of the primary's region"
    assert "42 records that" in " ".join(f"{block}" for block in report(RunFacts(done, "w")))


def test_brokers_that_give_no_answer_keep_nothing_else_from_being_told(tmp_path: Path) -> None:
    ground, _ = kept(tmp_path, None, nothing)
    ground.job.batch()
    facts = standby_now(standby_at(TARGET, ground.adapters), ground.adapters)
    assert (facts.batches, facts.records) == (1, None)


def test_a_newer_epoch_that_the_brokers_do_not_reach_is_not_started_from(tmp_path: Path) -> None:
    """It was published after the plan was shown; their mirror is late. Nothing is claimed."""
    ground, brokers = kept(tmp_path, {0: (0, 115)}, nothing)
    ground.job.running = True
    found = standby_at(TARGET, ground.adapters)
    proposal = ground.propose(failover_spec(found, primary_is_down=True))
    assert not proposal.refusals
    ground.job.batch()
    ground.looks = 400
    with pytest.raises(Ended):
        ground.resume()
    from_epoch(ground, 12)
    with pytest.raises(PlanError, match="ends at offset 115, and the job has read up to 120"):
        ground.apply(proposal, "failover")
    claim = newest_claim(ground.target)
    assert claim is not None and (claim.generation, claim.verb) == (1, "standby")
    brokers.spans = {0: (0, 120)}
    assert fail_over(ground, workdir="again").state == "finished"


def test_a_waiver_that_is_none_is_refused(tmp_path: Path) -> None:
    ground, _ = kept(tmp_path, {0: (0, 500)})
    with pytest.raises(SpecError, match="did you mean 'lost-offsets'"):
        api.failover(TARGET, waive=["lost-offset"], adapters=ground.adapters)
