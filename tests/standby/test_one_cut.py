"""Several jobs are started from their standbys at one cut, on a disk and a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stateshift import api
from stateshift.api.failovers import follow_primaries, spec_of_failover, standbys_at
from stateshift.cli.views.run_html import page
from stateshift.cli.views.run_text import report as shown_report
from stateshift.documents.run import RunFacts
from stateshift.errors import ClusterError, OtherRunError, PlanError, SpecError, StorageError
from stateshift.formats.marks import fence_owner
from stateshift.formats.standby import OtherStandby, ReadUpTo
from stateshift.migration import Proposal
from stateshift.migration.one_cut import EpochCut, ReadsFrom, choose
from stateshift.report import Report
from stateshift.specification import Spec
from stateshift.step.claims import newest_claim
from tests.cli.support import said
from tests.migration.test_last_copy import Away
from tests.standby.test_failover import Dying, Gone
from tests.support.several import SeveralJobs, here, there

CHAIN = ("orders", "totals", "alerts")
JOINED = ReadsFrom("orders", "totals"), ReadsFrom("totals", "alerts")


def dataflow(names: Sequence[str]) -> dict[str, Any]:
    """Each job writes a topic that the next one reads."""
    operators: list[dict[str, str]] = []
    edges = []
    for name in names:
        operators.append({"name": f"count {name}", "job": name})
        operators.append({"name": f"topic of {name}"})
        edges.append({"from": f"count {name}", "to": f"topic of {name}"})
    for name, reader in pairwise(names):
        edges.append({"from": f"topic of {name}", "to": f"count {reader}"})
    return {"operators": operators, "edges": edges}


# ---- the choice


@pytest.mark.row("W-22")
@pytest.mark.parametrize(
    ("read", "chosen", "parted"),
    [
        ({}, (41, 17, 8), 0),  # nothing was read too far
        ({("orders", 41, 17)}, (41, 16, 8), 0),
        # An older totals has alerts go back, too.
        ({("orders", 41, 17), ("totals", 16, 8)}, (41, 16, 7), 0),
        ({("totals", 17, 8)}, (41, 17, 7), 0),
        ({("orders", 41, 17), ("orders", 41, 16)}, (41, 17, 8), 1),
    ],
)
def test_each_job_takes_its_newest_epoch_that_fits_those_it_reads_from(
    read: set[tuple[str, int, int]], chosen: tuple[int, int, int], parted: int
) -> None:
    candidates = {"orders": (41, 40), "totals": (17, 16), "alerts": (8, 7)}

    def fits(edge: ReadsFrom, at: int | None, own: int | None) -> bool:
        return (edge.writer, at, own) not in read

    for edges in (JOINED, JOINED[::-1]):
        cut = choose(candidates, edges, fits)
        assert tuple(cut.epochs[name] for name in CHAIN) == chosen
        assert len(cut.parted) == parted


def test_jobs_that_read_each_other_have_a_cut_where_both_went_back() -> None:
    ring = ReadsFrom("orders", "totals"), ReadsFrom("totals", "orders")
    candidates = {"orders": (41, 40), "totals": (17, 16)}
    read = {17: 42, 16: 40, 41: 18, 40: 16}

    def fits(edge: ReadsFrom, at: int | None, own: int | None) -> bool:
        return read[own or 0] <= (at or 0)

    assert choose(candidates, ring, fits) == EpochCut({"orders": 40, "totals": 16})


# ---- a failover


def standbys(
    folder: Path,
    names: Sequence[str] = CHAIN[:2],
    is_chain: bool = True,
    busy: Sequence[str] = ("orders",),
) -> SeveralJobs:
    """Standbys with two epochs each. Jobs that are `busy` began another batch before their readers
    committed.
    """
    ground = SeveralJobs(folder, names)
    keys = {"dataflow": dataflow(names)} if is_chain else {}
    ground.feed(**keys)
    for name in names:
        ground.batch(name)
        if name in busy:
            ground.plan(name)
    ground.feed(200)
    assert [ground.kept(name) for name in names] == [[3, 2]] * len(names)
    for job in ground.jobs.values():
        job.running = False
    return ground


def failover_of(
    ground: SeveralJobs, names: Sequence[str], primary_is_down: bool = True, **epochs: int
) -> Spec:
    found = standbys_at([there(name) for name in names], ground.adapters)
    of = {there(name): epoch for name, epoch in epochs.items()}
    return spec_of_failover(found, primary_is_down, of)


def fail_over(ground: SeveralJobs, spec: Spec | Proposal, workdir: str = "failover") -> Report:
    report = ground.apply(spec, workdir)
    assert report.state == "finished" and not ground.locks()
    return report


@pytest.mark.row("W-22")
def test_a_reader_goes_back_to_what_its_writer_had_written(tmp_path: Path) -> None:
    """Orders was in its next batch when totals was copied, which may have read some of that."""
    ground = standbys(tmp_path)
    state = ground.state("totals")
    assert state.reads_from == (OtherStandby("orders", there("orders")),)
    assert [each.read_up_to for each in state.kept] == [
        (ReadUpTo("orders", 4),),
        (ReadUpTo("orders", 2),),
    ]
    proposal = ground.propose(failover_of(ground, CHAIN[:2]))
    warned = [finding.message for finding in proposal.plans[1].findings]
    assert any("totals starts from epoch 2, not from 3" in message for message in warned), warned
    done = fail_over(ground, proposal)
    assert ground.started == {"orders": 3, "totals": 2}
    aside = ground.disk.snapshot(f"{there('totals')}/_stateshift/aside-2")
    assert "offsets/3" in {path.partition("aside-2/")[2] or path for path in aside}, "planned anew"
    told = {job.job: job.failover for job in done.jobs}
    assert [each.epoch for each in told.values() if each is not None] == [3, 2]
    facts = RunFacts(done, "w")
    words = " ".join(f"{block}" for block in shown_report(facts))
    assert "orders" in words and "totals" in words and page(facts).count("Failover") >= 2


@pytest.mark.row("W-22")
def test_jobs_without_an_edge_take_their_newest(tmp_path: Path) -> None:
    ground = standbys(tmp_path, is_chain=False)
    assert not ground.state("totals").reads_from
    fail_over(ground, failover_of(ground, CHAIN[:2]))
    assert ground.started == {"orders": 3, "totals": 3}


@pytest.mark.row("W-22")
@pytest.mark.parametrize(("busy", "epochs"), [((), (3, 3, 3)), (("orders",), (3, 2, 2))])
def test_a_chain_of_three_has_one_cut(
    tmp_path: Path, busy: Sequence[str], epochs: tuple[int, ...]
) -> None:
    """Alerts read totals: where totals goes back, alerts do, too."""
    ground = standbys(tmp_path, CHAIN, busy=busy)
    fail_over(ground, failover_of(ground, CHAIN))
    assert tuple(ground.started[name] for name in CHAIN) == epochs


@pytest.mark.row("W-22")
def test_without_a_common_cut_nothing_is_started(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    before = ground.disk.snapshot()
    spec = failover_of(ground, CHAIN[:2], orders=2, totals=3)
    proposal = ground.propose(spec)
    (refusal,) = proposal.refusals
    assert "orders and totals have no common cut" in refusal.message
    assert refusal.waive == "several-cuts" and f"--epoch {there('orders')}=N" in (
        refusal.hint or ""
    )
    with pytest.raises(PlanError) as caught:
        ground.apply(proposal, "failover")
    assert caught.value.exit_code == 4 and ground.disk.snapshot() == before
    waived = api.failover(
        *[there(name) for name in CHAIN[:2]],
        epoch={there("orders"): 2, there("totals"): 3},
        primary_is_down=True,
        waive=["several-cuts"],
        workdir=tmp_path / "w",
        adapters=ground.adapters,
    )
    assert waived.state == "finished" and ground.started == {"orders": 2, "totals": 3}


@pytest.mark.row("W-22")
def test_what_is_published_before_the_claims_is_in_the_cut(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    proposal = ground.propose(failover_of(ground, CHAIN[:2]))
    for job in ground.jobs.values():
        job.running = True
    ground.batch("orders", "totals")
    ground.feed(300)
    assert [ground.kept(name) for name in CHAIN[:2]] == [[4, 3]] * 2
    fail_over(ground, proposal)
    assert ground.started == {"orders": 4, "totals": 4}


@pytest.mark.row("W-22")
def test_all_are_claimed_or_none(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    proposal = ground.propose(failover_of(ground, CHAIN[:2]))
    ground.apply(failover_of(ground, CHAIN[1:2]), "alone")
    before = ground.disk.snapshot()
    with pytest.raises(OtherRunError):
        ground.apply(proposal, "failover")
    assert ground.disk.snapshot() == before and list(ground.started) == ["totals"]
    claim = newest_claim(ground.disk.open(there("orders")))
    assert claim is not None and (claim.generation, claim.verb) == (1, "standby")
    ground.batch("orders")
    ground.feed(300)
    assert ground.kept("orders") == [4, 3]


@pytest.mark.row("W-22")
def test_a_feeder_at_work_follows_again_what_is_given_back(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    for job in ground.jobs.values():
        job.running = True

    def fail_and_take_back() -> None:
        found = failover_of(ground, CHAIN[:1])
        ground.cluster.fail(1)
        ground.looks = 10**6
        with pytest.raises(ClusterError):
            ground.apply(found, "failover")
        ground.acts[200] = take_back
        ground.looks = 250

    def take_back() -> None:
        ground.looks = 10**6
        ground.rollback("failover")
        ground.batch(*CHAIN[:2])
        ground.looks = 300

    ground.acts[50] = fail_and_take_back
    ground.feed(100)
    assert [ground.kept(name) for name in CHAIN[:2]] == [[4, 3]] * 2
    said_of_it = [line for line in ground.said if line.startswith("orders is followed")]
    assert len(said_of_it) == 2 and said_of_it[1] == "orders is followed again"


@pytest.mark.row("W-22")
def test_one_that_starts_without_its_writer_is_told(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    proposal = ground.propose(failover_of(ground, CHAIN[1:2]))
    (warned,) = [f for f in proposal.plans[0].findings if "whose standby is not" in f.message]
    assert there("orders") in (warned.hint or "")
    assert not [f for f in ground.propose(failover_of(ground, CHAIN[:1])).plans[0].findings
                if "whose standby is not" in f.message]  # fmt: skip


def test_of_a_workdir_all_standbys_are_meant(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    found = standbys_at([str(ground.workdir().path), there("orders")], ground.adapters)
    assert [standby.state.job for standby in found] == ["orders", "totals"]
    with pytest.raises(SpecError, match="none of the standbys"):
        spec_of_failover(found, True, {"file:///elsewhere": 2})


@pytest.mark.row("W-22")
@pytest.mark.parametrize(("count", "moment"), [(n, m) for n in (2, 3) for m in range(1, 7 * n, n)])
def test_killed_at_any_change_all_are_resumed_at_one_cut(
    tmp_path: Path, count: int, moment: int
) -> None:
    ground = standbys(tmp_path, CHAIN[:count])
    whole, moments = ground.wrap, [moment]
    spec = failover_of(ground, CHAIN[:count], primary_is_down=False)
    proposal = ground.propose(spec)
    ground.wrap = lambda storage: Dying(whole(storage), moments)  # type: ignore[assignment, return-value]
    try:
        ground.apply(proposal, "failover")
    except Gone:
        ground.wrap = whole
        assert ground.resume("failover").state == "finished"
    ground.wrap = whole
    assert ground.started["orders"] == 3 and ground.started["totals"] == 2
    assert len(ground.cluster.submissions) == count, "each job is started once"
    for name in CHAIN[:count]:
        claim = newest_claim(ground.disk.open(there(name)))
        assert claim is not None and claim.run == "run-failover"
        owners = set(filter(None, map(fence_owner, ground.held(here(name)).values())))
        assert owners == {"run-failover"}
    assert not ground.locks()


@pytest.mark.row("W-22")
@pytest.mark.parametrize("moment", range(1, 12))
def test_killed_at_any_change_and_taken_back_all_are_fed_again(tmp_path: Path, moment: int) -> None:
    ground = standbys(tmp_path)
    whole, moments = ground.wrap, [moment]
    proposal = ground.propose(failover_of(ground, CHAIN[:2], primary_is_down=False))
    ground.wrap = lambda storage: Dying(whole(storage), moments)  # type: ignore[assignment, return-value]
    with pytest.raises(Gone):
        ground.apply(proposal, "failover")
    ground.wrap = whole
    assert not ground.started
    ground.rollback("failover")
    for name in CHAIN[:2]:
        claim = newest_claim(ground.disk.open(there(name)))
        assert claim is not None and (claim.generation, claim.verb) == (1, "standby")
        assert not any(map(fence_owner, ground.held(here(name)).values()))
    ground.batch(*CHAIN[:2])
    ground.feed(300)
    assert [ground.kept(name) for name in CHAIN[:2]] == [[4, 3]] * 2


def test_the_command_takes_several_places(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    places = [there(name) for name in CHAIN[:2]]
    for words in (("--epoch", "3"), ("--epoch", "x"), ("--epoch", "file:///elsewhere=3")):
        assert said("failover", *places, *words, adapters=ground.adapters).code == 2
    words = ("--epoch", f"{places[0]}=2", "--epoch", f"{places[1]}=3", "--primary-is-down", "--yes")
    refused = said("failover", *places, *words, adapters=ground.adapters)
    assert refused.code == 4 and "no common cut" in refused.err
    assert "--waive several-cuts" in refused.err
    kept = said("status", places[1], "--json", adapters=ground.adapters).document
    assert kept["reads_from"] == [{"job": "orders", "location": places[0]}]
    workdirs = ("--workdir", str(tmp_path / "w"))
    words = ("--primary-is-down", "--yes", "--json", *workdirs)
    done = said("failover", str(ground.workdir().path), *words, adapters=ground.adapters)
    told = {job["job"]: job["failover"]["epoch"] for job in done.document["report"]["jobs"]}
    assert done.code == 0 and told == {"orders": 3, "totals": 2}
    fenced = said("failover", *places, "--watch", "--json", adapters=ground.adapters)
    documents = [json.loads(line) for line in fenced.out.splitlines()]
    assert fenced.code == 0 and [each["job"] for each in documents] == ["orders", "totals"]
    assert all(each["fenced"] for each in documents)
    assert said("failback", str(ground.workdir().path), adapters=ground.adapters).code == 4


def test_some_that_run_already_are_not_mixed_with_others(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    ground.apply(failover_of(ground, CHAIN[:1]), "alone")
    places = [there(name) for name in CHAIN[:2]]
    refused = said("failover", *places, "--yes", adapters=ground.adapters)
    assert refused.code == 4 and "was taken over by a failover" in refused.err
    assert list(ground.started) == ["orders"]


@pytest.mark.row("W-22")
def test_one_primary_that_is_silent_keeps_no_other_from_being_fenced(tmp_path: Path) -> None:
    ground = standbys(tmp_path)
    fail_over(ground, failover_of(ground, CHAIN[:2]))
    ground.wrap = lambda storage: Away(storage) if storage.location == here("orders") else storage  # type: ignore[assignment, return-value]
    places = [there(name) for name in CHAIN[:2]]
    following = follow_primaries(places, ground.adapters, seconds_max=0)
    assert next(following).standby.state.job == "totals"
    with pytest.raises(StorageError, match="primary of orders still cannot"):
        next(following)
