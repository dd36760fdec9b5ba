"""Make tests/golden/runs: what a version leaves behind that later ones have to go on from.

    python -m tests.support.make_old_runs FOLDER

Run with the code of the version that is to be remembered (git worktree add …); the runs in this
repository were made by the last version before evidence had a class a kind.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stateshift import migration, plain
from stateshift.clusters.protocol import JobState, Submission
from stateshift.errors import StateshiftError
from stateshift.migration import encode_proposal
from stateshift.testing.memory_storage import ProcessGone
from stateshift.workdir import FileLines, Workdir
from tests.engines.flink.test_running import place
from tests.engines.flink.test_running import spec_of as flink_spec
from tests.migration.test_waves import asked, made
from tests.migration.test_waves import going_on as going_on_but
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, Ground, running_spec, spec_of
from tests.support.living import LivingGround, warm_spec
from tests.support.old_runs import _write, freeze, going_on, led_to, thaw, told_of


class _KilledLines(FileLines):
    pattern = b""
    at = 1

    def append(self, line: bytes) -> None:
        super().append(line)
        if self.pattern and self.pattern in line:
            _KilledLines.at -= 1
            if _KilledLines.at == 0:
                raise ProcessGone


class KilledWorkdir(Workdir):
    """Of a process that is killed once the journal holds the n-th line with this in it."""

    def __init__(self, path: Path, pattern: bytes, at: int = 1) -> None:
        super().__init__(path)
        _KilledLines.pattern, _KilledLines.at = pattern, at

    @property
    def lines(self) -> FileLines:
        return _KilledLines(self.path / "journal")


def _ground(folder: Path, batches: int = 3) -> Ground:
    ground = Ground(folder)
    ground.write(Checkpoint(batches=batches))
    ground.cluster.run("orders", SOURCE)
    ground.cluster._on_start = going_on(ground)
    return ground


def _killed(ground: Ground, spec: object, pattern: bytes, at: int = 1) -> None:
    proposal = ground.propose(spec)  # type: ignore[arg-type]
    workdir = KilledWorkdir(ground.workdir().path, pattern, at)
    with suppress(ProcessGone):
        migration.apply(proposal, "run-run", workdir, ground.adapters)
    ground.disk.kill()
    ground.disk.generation = 0
    _KilledLines.pattern = b""


def spark_finished(folder: Path) -> Ground:
    ground = _ground(folder)
    ground.apply(running_spec())
    return ground


def spark_killed_in_publish(folder: Path) -> Ground:
    ground = _ground(folder)
    _killed(ground, running_spec(), b'"phase":"publish"')
    return ground


def spark_compacted_killed_in_compare(folder: Path) -> Ground:
    ground = _ground(folder)
    spec = running_spec(transform=[{"kind": "compact"}])
    _killed(ground, spec, b'"phase":"compare"')
    return ground


def spark_compacted_in_place(folder: Path) -> Ground:
    ground = _ground(folder)
    ground.cluster.jobs.clear()
    compact = {"kind": "compact", "in_place": True}
    ground.apply(spec_of(target=None, transform=[compact]))
    return ground


def spark_failed_in_confirm(folder: Path) -> Ground:
    ground = _ground(folder)

    def dies(submission: Submission) -> None:
        ground.cluster.set_state(submission.tag, JobState.FAILED, "no such class")

    ground.cluster._on_start = dies
    with suppress(StateshiftError):
        ground.apply(running_spec())
    return ground


def spark_rolled_back(folder: Path) -> Ground:
    ground = spark_failed_in_confirm(folder)
    ground.cluster._on_start = going_on(ground)
    ground.rollback()
    return ground


def warm_finished(folder: Path) -> Ground:
    ground = LivingGround(folder)
    ground.job.moods = {"batch": 0.02, "tidy": 0.01, "back": 0.0}
    ground.warm(rounds=3)
    return ground


def _warm_killed(folder: Path, pattern: bytes) -> Ground:
    ground = LivingGround(folder)
    ground.job.moods = {"batch": 0.02, "tidy": 0.0, "back": 0.0}
    _killed(ground, warm_spec(rounds=1), pattern)
    return ground


def warm_killed_behind_a_round(folder: Path) -> Ground:
    return _warm_killed(folder, b'"kind":"plan-finished"')


def warm_killed_while_moving(folder: Path) -> Ground:
    return _warm_killed(folder, b'"phase":"publish"')


def flink_finished(folder: Path) -> Ground:
    ground, _ = place(folder)
    ground.apply(flink_spec())
    return ground


def flink_killed_behind_its_savepoint(folder: Path) -> Ground:
    ground, _ = place(folder)
    _killed(ground, flink_spec(), b'"phase":"publish"')
    return ground


def wave_with_one_failed(folder: Path) -> Ground:
    ground = made(folder)
    going_on_but(ground, without="second")
    with suppress(StateshiftError):
        ground.apply(asked(on_failure="finish"))
    return ground


CASES: dict[str, Callable[[Path], Ground]] = {
    made_by.__name__.replace("_", "-"): made_by
    for made_by in (
        spark_finished,
        spark_killed_in_publish,
        spark_compacted_killed_in_compare,
        spark_compacted_in_place,
        spark_failed_in_confirm,
        spark_rolled_back,
        warm_finished,
        warm_killed_behind_a_round,
        warm_killed_while_moving,
        flink_finished,
        flink_killed_behind_its_savepoint,
        wave_with_one_failed,
    )
}


def main(folder: Path) -> None:
    for name, make in CASES.items():
        with tempfile.TemporaryDirectory() as place:
            freeze(make(Path(place)), folder / name)
        said = {}
        for verb in ("resume", "rollback", "discard"):
            with tempfile.TemporaryDirectory() as place:
                said[verb] = led_to(thaw(folder / name, Path(place)), VERBS[verb])
        with tempfile.TemporaryDirectory() as place:
            ground = thaw(folder / name, Path(place))
            said["status"] = told_of(migration.status(ground.workdir()))
            verdict = migration.verify(ground.workdir(), ground.adapters)
            said["verify"] = plain.to_plain(verdict)
        _write(folder / name / "said.json", said)
    with tempfile.TemporaryDirectory() as place:
        ground = _ground(Path(place))
        spec = running_spec(transform=[{"kind": "compact"}])
        _write(folder / "plan.json", encode_proposal(ground.propose(spec)))


VERBS: dict[str, Callable[[Ground], object]] = {
    "resume": lambda ground: ground.resume(),
    "rollback": lambda ground: ground.rollback(),
    "discard": lambda ground: ground.rollback(discard_progress=True),
}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
