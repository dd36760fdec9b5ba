"""What is moved in these tests, on a real disk: a directory that is put back as it was before each
run.

    ROOT/
      flow/aggregate, flow/…  the source: a workflow of two queries, one reading files
      north/join              joined to it by a merge (renamed into flow)
      input/                  what the query reads: moves along, its names in the source log are
                              rewritten
      cluster/                the cluster's own log (see cluster.sh): a job runs on the source
      there/, there-input/    the target
      workdir/                the run's

Or, of Flink: a job of a cluster that stands in for one (see flink.py), `taken/` its savepoints, and
the same target.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from stateshift import migration, plain
from stateshift.clusters.kind import open_cluster
from stateshift.engines.registry import engines
from stateshift.migration import Adapters, Proposal
from stateshift.specification import Spec, parse_spec
from stateshift.step import jobs as steps_of_jobs
from stateshift.storage.local.storage import LocalStorage
from stateshift.storage.opening import open_storage
from stateshift.storage.wrappers import Retrying
from stateshift.workdir import Workdir
from tests.clusters import faulty_server
from tests.kill.flink import Session, spec_of
from tests.kill.moments import Doomed, DoomedCluster, DoomedWorkdir, Moments
from tests.support.checkpoints import Checkpoint

RUN = "the-run"
SCRIPT = Path(__file__).with_name("cluster.sh")
OURS = ("workdir", "cluster", "taken")  # what is looked at by other means than as a tree

Tree = Mapping[str, bytes | None]


class HastyClock:
    """The real time, and short waits."""

    def now(self) -> float:
        import time

        return time.time()

    def sleep(self, seconds: float) -> None:
        import time

        time.sleep(min(seconds, 0.01))


@dataclass(frozen=True)
class Scenario:
    """`root` as it is now, `pristine` as it was before the run, and what is asked for."""

    root: Path
    pristine: Path
    spec: Spec
    proposal: Proposal = field(repr=False)
    flink: Session | None = None
    corrected: Spec | None = None

    @property
    def workdir(self) -> str:
        return str(self.root / "workdir")

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.pristine, self.root)
        if self.flink is not None:
            self.flink.reset()

    def adapters(self, moments: Moments) -> Adapters:
        clock = HastyClock()
        return Adapters(
            open_storage=lambda location: Doomed(Retrying(open_storage(location), clock), moments),
            open_cluster=lambda spec, workdir: DoomedCluster(
                open_cluster(spec, str(workdir.path)), moments
            ),
            clock=clock,
        )

    def open_workdir(self, moments: Moments) -> Workdir:
        return DoomedWorkdir(self.workdir, moments)

    def kill_in_submit(self, where: str, pid: int) -> None:
        (self.root / "cluster" / "kill").write_text(f"{where} {pid}\n")

    def events(self) -> list[tuple[str, str, str]]:
        """What the cluster itself has seen: (verb, tag, location)."""
        if self.flink is not None:
            return self.flink.events()
        log = self.root / "cluster" / "log"
        if not log.exists():
            return []
        return [tuple(line.split("|", 2)) for line in log.read_text().splitlines()]  # type: ignore[misc]

    def submitted(self, directory: str) -> int:
        return sum(
            verb == "submit" and where.endswith(f"/{directory}") for verb, _, where in self.events()
        )

    def alive(self, directory: str) -> int:
        """How many jobs run on a location now."""
        running: dict[str, bool] = {}
        for verb, tag, where in self.events():
            if where.endswith(f"/{directory}"):
                if verb == "submit":
                    running[tag] = True
                    continue
                running = {t: runs and tag not in ("", t) for t, runs in running.items()}
        return sum(running.values())


def tree(root: Path, without: tuple[str, ...] = OURS) -> dict[str, bytes | None]:
    """Everything below: content by path, None for a directory; temporary files and locks as
    well.
    """
    found: dict[str, bytes | None] = {}
    for folder, folders, files in os.walk(root):
        below = os.path.relpath(folder, root)
        if below == ".":
            folders[:] = [name for name in folders if name not in without]
        found.update({os.path.normpath(f"{below}/{name}"): None for name in folders})
        found.update(
            {os.path.normpath(f"{below}/{name}"): Path(folder, name).read_bytes() for name in files}
        )
    return found


@contextmanager
def scenario(
    kind: Literal["full", "plain", "warm", "early", "early-warm", "flink", "failing", "restarting"],
    parallel: int = 1,
) -> Iterator[Scenario]:
    """`full`: with everything; `plain`: one checkpoint and no cluster; `warm`: brought over while
    its job runs; `early`: moved to a job that was started before the old one is stopped;
    `early-warm`: both; `flink`: a job of Flink's that runs; `failing`: as `full`, with a job that
    fails unless its spec is corrected; `restarting`: the same, where the old job is started again.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with ExitStack() as stack:
        # A job that is started again runs, or has failed, at the first look.
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(steps_of_jobs, "SETTLED_SECONDS", 0.0)
        place = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="stateshift kill ", dir=memory)
        )
        root, pristine = Path(place) / "now", Path(place) / "pristine"
        root.mkdir()
        flink = None
        if kind == "flink":
            flink = Session(slow=0, lingers=0)
            stack.enter_context(faulty_server.serving(flink))
            flink.reset()
        made = {
            "full": _full,
            "plain": _plain,
            "warm": _warm,
            "early": _early,
            "early-warm": _early_warm,
            "failing": _failing,
            "restarting": _restarting,
        }
        wanted = spec_of(root, flink.url) if flink is not None else made[kind](root)
        spec = parse_spec(
            plain.canonical({"engine": "spark", **wanted, "version": 1, "parallel": parallel})
        )
        nobody = Scenario(root, pristine, spec, Proposal(spec, ()))
        proposal = migration.propose(spec, nobody.adapters(Moments()), Workdir(root / "workdir"))
        assert not proposal.refusals, proposal.refusals
        shutil.rmtree(root / "workdir", ignore_errors=True)
        _load()
        os.rename(root, pristine)
        shutil.copytree(pristine, root)
        yield Scenario(
            root, pristine, spec, proposal, flink, _corrected(spec) if kind == "failing" else None
        )


def _load() -> None:
    """What each child would otherwise load for itself: hundreds of times."""
    for engine in engines():
        engine.transforms()
        engine.entries_reader()
    for name in (
        "stateshift.formats.blocks",
        "stateshift.formats.spans",
        "pyarrow.compute",
        "requests",
    ):
        importlib.import_module(name)


def _full(root: Path) -> dict[str, object]:
    given = root / "input"
    given.mkdir()
    for number in range(2):
        (given / f"f{number}.json").write_text(f'{{"n": {number}}}\n' * (4000 if number else 1))
        os.utime(given / f"f{number}.json", (1_700_000_000 + number, 1_700_000_000 + number))
    reads = Checkpoint(batches=2, shards=2, keys=2, inputs=f"file://{given}")
    reads.write(LocalStorage(str(root / "flow" / "aggregate")))
    another = "22222222-2222-3333-4444-555555555555"
    joins = Checkpoint(batches=3, shards=1, keys=2, planned=True, snapshots=(2,), query=another)
    joins.write(LocalStorage(str(root / "north" / "join")))
    (root / "flow" / "aggregate").chmod(0o750)
    (root / "cluster").mkdir()
    (root / "cluster" / "log").write_text(f"submit|by-hand|file://{root}/flow\n")
    script = f"sh '{SCRIPT}'"
    cluster = {
        "kind": "command",
        **{verb: f"{script} {verb}" for verb in ("find", "submit", "stop")},
        "environment": {"CLUSTER": str(root / "cluster")},
        "seconds_max": 20,
    }
    job = {
        "name": "orders",
        "checkpoint_location": str(root / "flow"),
        "merge_jobs": [str(root / "north")],
        "remote_location": str(root / "there"),
        "operators": [
            {"name": "Aggregate (5)", "directory": "aggregate"},
            {"name": "Join", "directory": "join"},
        ],
        "data": [{"source": str(given), "target": str(root / "there-input")}],
        "source_cluster": "ours",
        "target_cluster": "ours",
        "source_submit": {},
        "submit": {
            "environment": {"WRITES": "aggregate/offsets/2 aggregate/commits/2 join/commits/3"},
            "seconds_max": 20,
        },
        "verify": "entries",
        "keep": ["permissions"],
    }
    return {"clusters": {"ours": cluster}, "jobs": [job]}


def _warm(root: Path) -> dict[str, object]:
    """The same, brought over in a round before the job is stopped: without the merge, which
    cannot be.
    """
    whole: dict[str, Any] = _full(root)
    (job,) = whole["jobs"]
    del job["merge_jobs"]
    shutil.rmtree(root / "north")
    job |= {
        "operators": [{"name": "Aggregate (5)", "directory": "aggregate"}],
        "mode": "warm",
        "rounds": 1,
    }
    job["submit"]["environment"] = {"WRITES": "aggregate/offsets/2 aggregate/commits/2"}
    return whole


def _early(root: Path) -> dict[str, object]:
    """The same as `full`, to a job that is there before the old one is stopped."""
    return _with_early_start(_full(root))


def _early_warm(root: Path) -> dict[str, object]:
    """The same as `warm`, to a job that is there before the old one is stopped."""
    return _with_early_start(_warm(root))


def _with_early_start(whole: dict[str, Any]) -> dict[str, object]:
    (job,) = whole["jobs"]
    job["submit"]["prepare"] = True
    return whole


def _failing(root: Path) -> dict[str, object]:
    """The same, with a job that fails when it is started: its environment says so."""
    whole: dict[str, Any] = _full(root)
    whole["jobs"][0]["submit"]["environment"]["FAILS"] = "yes"
    return {**whole, "on_failure": "stop"}


def _restarting(root: Path) -> dict[str, object]:
    """The same, as by default: the old job is started again where it was."""
    return {**_failing(root), "on_failure": "restart"}


def _corrected(spec: Spec) -> Spec:
    """The spec with a job that does not fail."""
    (job,) = spec.jobs
    assert job.submit is not None
    kept = {name: value for name, value in job.submit.environment.items() if name != "FAILS"}
    return replace(spec, jobs=(replace(job, submit=replace(job.submit, environment=kept)),))


def _plain(root: Path) -> dict[str, object]:
    Checkpoint(batches=3, shards=2, keys=2, planned=True, snapshots=(2,)).write(
        LocalStorage(str(root / "flow"))
    )
    job = {
        "name": "orders",
        "checkpoint_location": str(root / "flow"),
        "remote_location": str(root / "there"),
        "verify": "digests",
    }
    return {"jobs": [job]}
