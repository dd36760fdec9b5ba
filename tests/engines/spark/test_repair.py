"""A damaged checkpoint is repaired: what is chosen, what is told, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest

from stateshift import look
from stateshift.engines.spark.image import fork_id
from stateshift.errors import PlanError
from stateshift.formats.spark.commits import decode_commit
from stateshift.migration.gathering import Inquiry
from stateshift.migration.source_check import damages
from stateshift.specification import Spec
from stateshift.specification.transform import Repair
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, Ground, spec_of

COPY = "file:///dr/orders"
OTHER = "99999999-2222-3333-4444-555555555555"
WHOLE = Checkpoint(batches=6, snapshots=(3, 5))


def damaged(folder: Path, damage: Mapping[str, bytes | None], whole: Checkpoint = WHOLE) -> Ground:
    ground = Ground(folder)
    ground.write(whole)
    for path, content in damage.items():
        if content is None:
            ground.source.remove(path)
        else:
            put(ground.source, path, content)
    return ground


def copied(ground: Ground, copy: Checkpoint = WHOLE, gone: tuple[str, ...] = ()) -> None:
    ground.write(copy, COPY)
    for path in gone:
        ground.disk.open(COPY).remove(path)


def found(ground: Ground, *also: str) -> Repair:
    return look.find_repair(SOURCE, also, ground.open)


def spec(repair: Repair, **keys: Any) -> Spec:
    change = {key: value for key, value in asdict(repair).items() if value not in ((), {}, None)}
    waive = ["repeated-batches"]
    return spec_of(transform=[{"kind": "repair", **change}], waive=waive, **keys)


def messages(ground: Ground, repair: Repair) -> list[str]:
    return [
        finding.message for plan in ground.propose(spec(repair)).plans for finding in plan.findings
    ]


def carried_out(ground: Ground, repair: Repair) -> dict[str, bytes]:
    """The new image; the damaged one is as it was."""
    before = ground.held(SOURCE)
    ground.apply(spec(repair))
    assert ground.held(SOURCE) == before
    judged = look.restartable(TARGET, ground.open, thorough=True)
    assert (judged.restartable, judged.epoch) == (True, repair.batch)
    return ground.held(TARGET)


def of_whole(*paths: str) -> dict[str, bytes]:
    files = WHOLE.files()
    return {path: files[path] for path in paths}


@pytest.mark.row("W-20")
def test_a_damaged_snapshot_is_done_without(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"state/0/1/5.snapshot": b""})
    repair = found(ground)
    assert repair == Repair(batch=5, leave=("state/0/1/5.snapshot",))
    image = carried_out(ground, repair)
    assert "state/0/1/5.snapshot" not in image
    chain = of_whole("state/0/1/3.snapshot", *(f"state/0/1/{n}.delta" for n in (4, 5, 6)))
    assert chain.items() <= image.items()


def test_without_the_changes_before_it_the_batch_before_the_damage_is_the_newest(
    tmp_path: Path,
) -> None:
    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    repair = found(ground)
    assert repair == Repair(batch=4)
    (told,) = [line for line in messages(ground, repair) if "goes back" in line]
    assert "goes back from batch 5 to batch 4" in told
    assert "the input of batch 5 is read again" in told
    assert "commits/5" not in carried_out(ground, repair)


def test_a_rewound_repair_is_refused_until_it_is_said_what_the_sink_does(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    plan = {"kind": "repair", "batch": 4}
    (refusal,) = ground.propose(spec_of(transform=[plan])).refusals
    assert refusal.waive == "repeated-batches"
    assert "`--fork`" in (refusal.hint or "")


@pytest.mark.row("W-20")
def test_a_file_of_a_copy_is_taken_where_both_have_the_same_history(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"state/0/1/6.delta": b"", "state/0/0/6.delta": None})
    copied(ground)
    repair = found(ground, COPY)
    assert repair.batch == 5
    assert repair.take == {"state/0/0/6.delta": COPY, "state/0/1/6.delta": COPY}
    assert f"taken from {COPY}: state/0/0/6.delta, state/0/1/6.delta" in messages(ground, repair)
    image = carried_out(ground, repair)
    assert of_whole(*repair.take, "commits/5").items() <= image.items()
    ground.rollback()
    assert ground.held(TARGET) == {}


def test_of_a_copy_that_has_gone_another_way_only_what_was_before_is_taken(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"state/0/1/6.delta": b"", "state/0/1/4.delta": b""})
    copied(ground)
    for batch in (4, 5):
        other = WHOLE.offsets(batch).replace(b'TimestampMs":100', b'TimestampMs":700')
        put(ground.disk.open(COPY), f"offsets/{batch}", other)
    repair = found(ground, COPY)
    assert repair.batch == 4
    assert not any(path.endswith("6.delta") for path in repair.take)


def test_of_a_fork_the_batch_that_both_have_planned_last_is_not_taken(tmp_path: Path) -> None:
    """It may have run that batch itself, with other code."""
    ground = damaged(
        tmp_path, {"state/0/1/6.delta": b"", "state/0/1/5.snapshot": b"", "state/0/1/5.delta": None}
    )
    (image,) = look.inspect(SOURCE, ground.open).survey.images  # type: ignore[union-attr]
    copied(ground, Checkpoint(batches=6, snapshots=(3, 5), query=fork_id(image, COPY)))
    repair = found(ground, COPY)
    assert (repair.batch, repair.take) == (4, {"state/0/1/5.snapshot": COPY})


def test_a_copy_that_is_compacted_gives_its_shard_whole(tmp_path: Path) -> None:
    ground = damaged(
        tmp_path, {"state/0/1/6.delta": b"", "state/0/1/5.snapshot": None, "state/0/1/4.delta": b""}
    )
    copy = Checkpoint(batches=6, snapshots=(6,))
    copied(ground, copy, tuple(f"state/0/1/{version}.delta" for version in range(1, 7)))
    repair = found(ground, COPY)
    assert repair.batch == 5
    assert repair.take == {"state/0/1/6.snapshot": COPY}
    carried_out(ground, repair)


@pytest.mark.parametrize(
    ("copy", "fact"),
    [
        (Checkpoint(batches=6, query=OTHER), "is another query's checkpoint"),
        (Checkpoint(batches=6, shards=3), "has no batch that"),
        (None, "is not one query's checkpoint"),
    ],
)
def test_a_copy_that_is_none_is_refused(tmp_path: Path, copy: Checkpoint | None, fact: str) -> None:
    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    if copy is not None:
        copied(ground, copy)
    with pytest.raises(PlanError, match=fact) as refused:
        found(ground, COPY)
    assert refused.value.hint


def test_a_commit_is_rebuilt_from_the_offsets_of_the_next_batch(tmp_path: Path) -> None:
    whole = Checkpoint(batches=6, planned=True)
    ground = damaged(tmp_path, {"commits/5": b""}, whole)
    repair = found(ground)
    assert repair.batch == 5
    assert repair.rebuild == {"commits/5": whole.files()["commits/5"].decode()}
    image = carried_out(ground, repair)
    assert decode_commit(image["commits/5"]).handed_on_ms == 0
    assert "offsets/6" in image


def test_a_commit_without_a_next_batch_is_none_and_its_batch_runs_again(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"commits/5": b""})
    repair = found(ground)
    assert repair == Repair(batch=4)
    assert "offsets/5" in carried_out(ground, repair)


def test_the_query_id_is_that_of_a_copy_unless_two_have_different_ones(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"metadata": b"", "offsets/0": b""})
    copied(ground)
    repair = found(ground, COPY)
    assert repair == Repair(batch=5, take={"metadata": COPY})
    carried_out(ground, repair)
    ground.write(Checkpoint(batches=6, query=OTHER), "file:///test/orders")
    with pytest.raises(PlanError, match="the copies have 2 ids"):
        found(ground, COPY, "file:///test/orders")


def test_damaged_offsets_of_the_planned_batch_are_told_as_lost(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"offsets/6": b"v1\n"}, Checkpoint(batches=6, planned=True))
    repair = found(ground)
    assert repair == Repair(batch=5, leave=("offsets/6",))
    change = {"kind": "repair", "batch": 5, "leave": ["offsets/6"]}
    (refusal,) = ground.propose(spec_of(transform=[change])).refusals
    assert "batch 6 was planned, and its offsets are damaged" in refusal.message
    assert "offsets/6" not in carried_out(ground, repair)


def test_an_operator_that_is_gone_leaves_nothing_to_compare_a_copy_with(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {path: None for path in WHOLE.files() if path.startswith("state/")})
    copied(ground)
    with pytest.raises(PlanError, match="nothing shows that the state of operator 0") as refused:
        found(ground, COPY)
    assert f"stateshift verify {COPY} --deep" in (refused.value.hint or "")


REWRITTEN = Checkpoint(batches=6, snapshots=(3, 5), keys=2)


def test_a_copy_of_the_same_batches_whose_state_was_rewritten_is_refused(tmp_path: Path) -> None:
    """As after `prune`, which keeps the query's id and its offsets."""
    assert REWRITTEN.offsets(5) == WHOLE.offsets(5)
    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    copied(ground, REWRITTEN)
    with pytest.raises(PlanError, match="has other state than") as refused:
        found(ground, COPY)
    assert "leave that copy out" in (refused.value.hint or "")


def test_one_shard_that_differs_is_enough_to_refuse_a_copy(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    copied(ground)
    for path, content in REWRITTEN.files().items():
        if path.startswith("state/0/0/"):
            put(ground.disk.open(COPY), path, content)
    with pytest.raises(PlanError, match=r"both have state/0/0/6\.delta whole, and it differs"):
        found(ground, COPY)


def test_a_damaged_file_of_either_side_shows_nothing_and_an_older_one_does(tmp_path: Path) -> None:
    damage = {"state/0/1/6.delta": b"", "state/0/1/5.delta": None, "state/0/1/5.snapshot": None}
    ground = damaged(tmp_path, damage)
    copied(ground)
    put(ground.disk.open(COPY), "state/0/0/6.delta", WHOLE.files()["state/0/0/6.delta"][:-9])
    assert found(ground, COPY).take.keys() == damage.keys() - {"state/0/1/5.snapshot"}


def test_the_log_of_a_source_is_taken_whatever_the_state(tmp_path: Path) -> None:
    whole = replace(WHOLE, inputs="file:///in")
    ground = damaged(tmp_path, {"sources/0/4": None}, whole)
    copied(ground, whole)
    assert found(ground, COPY) == Repair(batch=5, take={"sources/0/4": COPY})


@pytest.mark.parametrize(
    ("copy", "fact"),
    [
        (REWRITTEN, "has other state than"),
        (Checkpoint(batches=6, query=OTHER), "is another query's checkpoint"),
        (Checkpoint(batches=6, shards=3), "has no batch that"),
        (Checkpoint(batches=4, snapshots=(3,)), "has no state/0/1/6.delta of the same history"),
    ],
)
def test_a_plan_looks_at_the_copy_again(tmp_path: Path, copy: Checkpoint, fact: str) -> None:
    """The spec may name another place by now, or the copy be another one."""
    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    copied(ground)
    repair = found(ground, COPY)
    other = "file:///elsewhere/orders"
    ground.write(copy, other)
    edited = spec(replace(repair, take=dict.fromkeys(repair.take, other)))
    refused = [one for one in ground.propose(edited).refusals if fact in one.message]
    assert refused
    assert all(one.hint and one.waive is None for one in refused)
    with pytest.raises(PlanError):
        ground.apply(edited)
    assert ground.held(TARGET) == {}


def test_a_checkpoint_without_commits_is_refused_at_once(tmp_path: Path) -> None:
    gone = {f"commits/{batch}": None for batch in range(6)}
    ground = damaged(tmp_path, {**gone, "state/0/1/6.delta": b""})
    with pytest.raises(PlanError, match="has no commits/"):
        found(ground)


def test_other_processes_do_not_read_files_of_a_copy(tmp_path: Path) -> None:
    """They open the damaged checkpoint by its location."""

    class Elsewhere:
        def deep(self, *asked: object) -> None:
            raise AssertionError("the damaged checkpoint is read in another process")

    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    copied(ground)
    asked = spec(found(ground, COPY))
    adapters = replace(ground.adapters, fleet=cast("Any", Elsewhere()))
    assert damages(Inquiry(asked, adapters, ground.workdir()), asked.jobs[0]) == ()


def test_each_query_of_a_folder_is_told_its_own_way_out(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    for query in ("one", "other"):
        ground.write(WHOLE, prefix=query)
        put(ground.source, f"{query}/state/0/1/6.delta", b"")
    for batch in range(5):
        ground.source.remove(f"other/commits/{batch}")
        ground.source.remove(f"other/offsets/{batch}")
    judged = look.restartable(SOURCE, ground.open, thorough=True)
    assert [bool(image.epochs) for image in judged.images] == [True, False]
    hints = {one.path: one.hint or "" for one in judged.findings if one.is_damage}
    repair = f"stateshift repair {SOURCE}/one --to {SOURCE}-one-repaired"
    assert hints["one/state/0/1/6.delta"] == repair
    assert hints["other/state/0/1/6.delta"].startswith("restore other/state/0/1/6.delta from")
    assert f"--to {SOURCE}-other-repaired --also COPY" in hints["other/state/0/1/6.delta"]


def test_where_nothing_is_whole_each_batch_says_why(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"state/0/1/1.delta": None}, Checkpoint(batches=3))
    with pytest.raises(PlanError) as refused:
        found(ground)
    assert "batch 2: state/0/1/1.delta is missing" in refused.value.fact
    assert "batch 0: state/0/1/1.delta is missing" in refused.value.fact
    assert "--also" in (refused.value.hint or "")


def test_a_snapshot_and_changes_that_contradict_each_other_are_refused_unless_a_copy_decides(
    tmp_path: Path,
) -> None:
    whole = Checkpoint(batches=6, snapshots=(3, 6))
    other = whole.files()["state/0/1/3.snapshot"]
    ground = damaged(tmp_path, {"state/0/1/6.snapshot": other, "state/0/0/6.snapshot": b""}, whole)
    with pytest.raises(PlanError, match="is not what the changes before it come to") as refused:
        found(ground)
    assert "may be wrong: a snapshot of that shard and the changes before it" in refused.value.fact
    copied(ground, whole)
    repair = found(ground, COPY)
    assert repair == Repair(
        batch=5, take={"state/0/0/6.snapshot": COPY, "state/0/1/6.snapshot": COPY}
    )
    carried_out(ground, repair)


def test_what_is_whole_is_not_repaired(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is whole: a job can restart from batch 5"):
        found(damaged(tmp_path, {}))


def test_beside_another_change_it_is_refused(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    changes = [{"kind": "repair", "batch": 4}, {"kind": "compact"}]
    refusals = ground.propose(spec_of(transform=changes, waive=["repeated-batches"])).refusals
    assert any("a repair beside another change" in one.message for one in refusals)


def test_verify_names_the_command_where_it_helps(tmp_path: Path) -> None:
    ground = damaged(tmp_path, {"state/0/1/6.delta": b""})
    hints = [one.hint for one in look.restartable(SOURCE, ground.open, thorough=True).findings]
    assert f"stateshift repair {SOURCE} --to {SOURCE}-repaired" in hints


@pytest.mark.sample(1)
def test_killed_at_any_effect_it_is_resumed_to_the_same_image(
    tmp_path: Path, moments: Callable[[int], range]
) -> None:
    damage = {"state/0/1/6.delta": b"", "commits/5": b"", "state/0/0/5.snapshot": b""}
    whole = Checkpoint(batches=6, planned=True, snapshots=(3, 5))

    def grounded(name: str) -> tuple[Ground, Spec]:
        ground = damaged(tmp_path / name, damage, whole)
        copied(ground, whole, ("state/0/0/5.snapshot", "commits/5"))
        return ground, spec(found(ground, COPY))

    unharmed, asked = grounded("unharmed")
    counted = Effects()
    unharmed.wrap = lambda storage: Faulty(storage, counted)
    unharmed.apply(asked)
    unharmed.wrap = lambda storage: storage
    assert len(counted.seen) > 10
    for number in moments(len(counted.seen)):
        ground, asked = grounded(str(number))
        before = ground.held(SOURCE) | ground.held(COPY)
        effects = Effects(at(number, Killed))
        ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            ground.apply(asked)
        ground.wrap = lambda storage: storage
        ground.resume()
        assert ground.held(TARGET) == unharmed.held(TARGET), f"killed at effect {number}"
        assert ground.held(SOURCE) | ground.held(COPY) == before
