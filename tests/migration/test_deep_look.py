"""A damaged source is found out while its job runs: nothing is stopped, locked or fenced for it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from stateshift import migration
from stateshift.errors import PlanError, StateshiftError
from stateshift.formats.marks import fence_owner
from stateshift.migration.gathering import Inquiry
from stateshift.migration.source_check import damages
from stateshift.specification import parse_spec, to_plain_spec
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, TARGET, Ground, running_spec, spec_of

Damage = Callable[[bytes], bytes]
NEEDED = ("state/0/0/1.delta", "state/0/1/2.delta", "state/0/0/3.delta")

DAMAGES: dict[str, Damage] = {
    "cut short": lambda content: content[:-3],
    "half of it": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "a flipped bit": lambda content: content[:30] + bytes((content[30] ^ 0x10,)) + content[31:],
    "more behind its end": lambda content: content + b"\0\0\0\0",
}


def damage(ground: Ground, path: str, how: Damage) -> None:
    ground.put(f"{SOURCE}/{path}", how(Checkpoint().files()[path]))


def _fences(ground: Ground) -> list[str]:
    return [
        path for path, content in ground.held(SOURCE).items() if fence_owner(content) is not None
    ]


@pytest.mark.parametrize("path", NEEDED)
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_source_is_refused_before_the_job_is_stopped(
    ground: Ground, path: str, how: str
) -> None:
    ground.write()
    damage(ground, path, DAMAGES[how])
    ground.cluster.run("orders", SOURCE)
    before = ground.disk.snapshot(temporaries=True)
    with pytest.raises(PlanError) as caught:
        ground.apply(running_spec())
    assert caught.value.exit_code == 4
    assert not ground.cluster.stops
    assert not _fences(ground)
    assert ground.disk.snapshot(temporaries=True) == before, (
        "nothing is written, at the target or beside it"
    )


@pytest.mark.parametrize("mode", ["warm", "fork"])
def test_it_is_looked_at_before_the_first_round_and_before_a_fork(
    ground: Ground, mode: str
) -> None:
    ground.write()
    damage(ground, NEEDED[0], DAMAGES["a flipped bit"])
    ground.cluster.run("orders", SOURCE)
    with pytest.raises(PlanError):
        ground.apply(running_spec(mode=mode) if mode == "warm" else spec_of(mode=mode))
    assert not ground.held(TARGET)


def test_what_is_whole_says_that_it_is_looked_at_and_moves(ground: Ground) -> None:
    ground.write()
    assert ground.apply(spec_of()).state == "finished"
    assert "orders: looking at the source" in ground.said


def test_a_plan_is_fast_and_looks_deep_where_it_is_asked_to(ground: Ground) -> None:
    ground.write()
    damage(ground, NEEDED[0], DAMAGES["a flipped bit"])
    assert not ground.propose(spec_of()).refusals
    deep = migration.propose(spec_of(), ground.adapters, ground.workdir("planning"), deep=True)
    assert deep.refusals
    assert migration.decode_proposal(migration.encode_proposal(deep)).refusals


def test_the_spec_may_ask_for_names_alone(ground: Ground) -> None:
    ground.write()
    damage(ground, NEEDED[0], DAMAGES["a flipped bit"])
    with pytest.raises(StateshiftError):
        ground.apply(spec_of(verify={"source": "names"}))
    assert "orders: looking at the source" not in ground.said


def test_files_that_a_running_job_tidies_up_meanwhile_are_no_damage(ground: Ground) -> None:
    """The first look reads an image whose oldest delta is torn; the job has removed all of it by
    the next one.
    """
    ground.write()
    damage(ground, NEEDED[0], DAMAGES["cut short"])
    ground.cluster.run("orders", SOURCE)
    proposal = ground.propose(running_spec())
    ground.clock.on_sleep = lambda: damage(ground, NEEDED[0], lambda content: content)
    inquiry = Inquiry(proposal.spec, ground.adapters, ground.workdir())
    found = damages(inquiry, proposal.spec.jobs[0])
    assert found == ()


@pytest.mark.parametrize("target", ["entries", "digests", "none"])
def test_both_ends_of_verify_are_read_and_written(target: str) -> None:
    spec = spec_of(verify={"source": "names", "target": target})
    job = spec.jobs[0]
    assert (job.verify, job.verify_source) == (target, "names")
    assert parse_spec(json.dumps(to_plain_spec(spec))) == spec
    assert spec_of(verify=target).jobs[0].verify_source == "deep"
