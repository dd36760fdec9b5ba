"""What a run has copied may be the last copy: a standby whose source is lost stays, and no way back
deletes what nobody else has.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stateshift import migration
from stateshift.errors import LastCopyError, StalePlan, StateshiftError, StorageError
from stateshift.migration.adapters import AskTopics, ask_kafka
from stateshift.migration.rollback_checks import CommittedSince
from stateshift.storage.protocol import Storage
from tests.migration.test_warm import Ended, Standby
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, running_spec
from tests.support.living import state_at

Lose = Callable[[Standby], None]


def gone(ground: Standby) -> None:
    source = ground.disk.open(SOURCE)
    for file in list(source.list()):
        source.remove(file.path)
    source.prune()


def another_query(ground: Standby) -> None:
    gone(ground)
    other = Checkpoint(batches=40, query="99999999-2222-3333-4444-555555555555")
    other.write(ground.disk.open(SOURCE))


def older(ground: Standby) -> None:
    ground.job.back_to(ground.job.epoch - 4)


def damaged(ground: Standby) -> None:
    source = ground.disk.open(SOURCE)
    newest = max(source.list("state/0/0"), key=lambda file: len(file.path) * 1000 + file.size)
    path = f"state/0/0/{ground.job.epoch + 1}.delta"
    assert newest is not None
    put(source, path, b"\\0" * 10)


def missing(ground: Standby) -> None:
    ground.disk.open(SOURCE).remove(f"state/0/0/{ground.job.epoch + 1}.delta")


def without_state(ground: Standby) -> None:
    """It looks like a job that never had any."""
    source = ground.disk.open(SOURCE)
    for file in list(source.list("state")):
        source.remove(file.path)


def unreachable(ground: Standby) -> None:
    opened = ground.wrap

    def refuse(storage: Storage) -> Storage:
        if storage.location.startswith(SOURCE):
            return Away(storage)  # type: ignore[return-value]
        return opened(storage)

    ground.wrap = refuse
    ground.away = True  # type: ignore[attr-defined]


class Away:
    """Whatever is asked of it, the storage does not answer."""

    def __init__(self, storage: Storage) -> None:
        self.location, self.traits = storage.location, storage.traits

    def __getattr__(self, name: str) -> object:
        def refuse(*arguments: object) -> None:
            raise StorageError(f"{self.location}: forbidden", location=self.location)

        return refuse


LOSSES = [gone, another_query, older, damaged, missing, without_state]


def standby(
    folder: Path, lose: Lose, looks: int = 60, ask_topics: AskTopics = ask_kafka, **keys: object
) -> Standby:
    """A standby that had an image before its source was lost."""
    ground = Standby(folder, 1, looks, at_30=lambda: acted(ground))

    def acted(ground: Standby) -> None:
        assert ground.kept, "there is an image by then"
        ground.job.running = False
        ground.before = ground.held(TARGET)  # type: ignore[attr-defined]
        lose(ground)

    ground.job.moods = {}
    ground.job.retained = 100
    ground.ask_topics = ask_topics
    with pytest.raises(Ended):
        ground.apply(running_spec(mode="warm", cutover="never", **keys))
    return ground


@pytest.mark.parametrize("lose", LOSSES)
def test_a_standby_whose_source_is_lost_stays_as_it_is_and_says_so(
    tmp_path: Path, lose: Lose
) -> None:
    ground = standby(tmp_path, lose)
    assert ground.held(TARGET) == ground.before  # type: ignore[attr-defined]
    epoch, state = state_at(ground.disk.open(TARGET))
    assert epoch == 11 and state in ground.job.ever[11]
    said = [line for line in ground.said if "cannot be followed" in line]
    assert said and "can be started from epoch 11" in said[0]
    with pytest.raises(LastCopyError) as caught:
        ground.rollback()
    assert caught.value.exit_code == 4
    assert ground.held(TARGET) == ground.before  # type: ignore[attr-defined]


def test_a_rollback_that_would_be_refused_is_refused_while_the_standby_is_at_work(
    tmp_path: Path,
) -> None:
    ground = standby(tmp_path, gone)
    place = ground.workdir()
    before = (place.path / "journal").read_bytes()
    with place.hold(), pytest.raises(LastCopyError):
        migration.check_rollback(place, ground.adapters)
    assert (place.path / "journal").read_bytes() == before
    migration.check_rollback(place, ground.adapters, discard_last_copy=True)


def test_a_source_that_goes_while_the_standby_is_cut_over_leaves_the_image_that_it_showed(
    tmp_path: Path,
) -> None:
    ground = standby(tmp_path, lambda ground: None)
    ground.job.running = True
    ground.job.batch()
    before, disk, opened = ground.held(TARGET), ground.disk, ground.wrap

    def without_state(storage: Storage) -> Storage:
        """Whoever copies behind the fence finds nothing to copy."""
        if any(
            path.startswith(f"offsets/{ground.job.epoch + 1}") for path in disk.snapshot(SOURCE)
        ):
            for file in list(disk.open(SOURCE).list("state")):
                disk.open(SOURCE).remove(file.path)
        return opened(storage)

    ground.wrap = without_state
    ground.looks = 60
    ground.workdir().steering.ask_cutover(True)
    with pytest.raises(StateshiftError):
        ground.resume()
    after = ground.held(TARGET)
    assert {path: after.get(path) for path in before} == before


def test_a_standby_goes_on_once_its_source_is_back(tmp_path: Path) -> None:
    def away(ground: Standby) -> None:
        ground.saved = ground.disk.snapshot(SOURCE)  # type: ignore[attr-defined]
        gone(ground)

    ground = standby(tmp_path, away)
    assert migration.status(ground.workdir()).jobs[0].source_lost is not None
    source = ground.disk.open(SOURCE)
    for path, content in ground.saved.items():  # type: ignore[attr-defined]
        put(source, path, content)
    ground.job.running = True
    ground.job.batch()
    ground.looks = 60
    with pytest.raises(Ended):
        ground.resume()
    assert ground.kept[-1] == 12
    report = migration.status(ground.workdir())
    assert report.jobs[0].source_lost is None
    ground.look = lambda: None  # type: ignore[method-assign]
    assert ground.rollback().state == "rolled-back"
    assert ground.held(TARGET) == {}


def test_a_standby_that_is_resumed_while_its_storage_is_away_waits(tmp_path: Path) -> None:
    ground = standby(tmp_path, unreachable)
    assert ground.held(TARGET) == ground.before  # type: ignore[attr-defined]
    ground.looks = 5
    ground.workdir().steering.ask_cutover(True)
    with pytest.raises(Ended):
        ground.resume()
    assert any("cutover is declined" in line for line in ground.said)
    assert ground.workdir().steering.wishes().cutover is None
    with pytest.raises(LastCopyError, match="cannot be read now"):
        ground.rollback()
    report = migration.rollback(ground.workdir(), ground.adapters, discard_last_copy=True)
    assert report.state == "rolled-back" and ground.held(TARGET) == {}


def test_a_standby_where_a_job_has_gone_on_is_neither_written_over_nor_taken_back(
    tmp_path: Path,
) -> None:
    ground = standby(tmp_path, lambda ground: None)
    ground.look = lambda: None  # type: ignore[method-assign]
    ground.job.moved_to(TARGET).batch()
    gone_on = ground.held(TARGET)
    with pytest.raises(CommittedSince, match="on the target since"):
        ground.rollback()
    ground.looks = 5
    with pytest.raises(StalePlan, match="others write to") as caught:
        ground.resume()
    assert "rollback" not in (caught.value.hint or "")
    assert ground.held(TARGET) == gone_on
    ground.rollback(discard_progress=True)
    assert ground.held(TARGET) == {}
