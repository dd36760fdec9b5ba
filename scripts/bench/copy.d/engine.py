"""Copies every file of one location to another by our copy engine, and says as JSON what that took.

    python engine.py SOURCE TARGET [--profile FILE] [--parallel 4] [--verify] [--fleet MASTER]

What an `apply` does in its phase `copy`, of all files and not of those alone that a restart needs:
both places are listed, the files are bundled to steps, and the executor runs them with a journal on
this disk. Not counted is what came before: Python's start and its imports. With --verify each step
is asked afterwards whether its evidence holds, which reads the target once more. With --fleet the
steps go to the executors of a Spark, which have come before it counts.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stateshift import executor
from stateshift.engines.bundles import bundle_items
from stateshift.fleet import Crew
from stateshift.fleet.crew import Application, open_crew
from stateshift.journal import Journal, PlanAdopted, RunStarted
from stateshift.migration.adapters import real_adapters, world_of
from stateshift.plan import Phase, Plan, phases_of
from stateshift.specification import Spec, parse_spec
from stateshift.step import CopyFiles
from stateshift.storage.opening import open_patiently
from stateshift.workdir import FileLines, Workdir
from stateshift.world import Unwatched


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument(
        "--profile", type=Path, help="where cProfile writes what the main thread did"
    )
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--fleet", metavar="MASTER")
    options = parser.parse_args()
    for location in (options.source, options.target):  # imports, and the first connection
        open_patiently(location).stat("nothing")
    profile = cProfile.Profile() if options.profile else None
    if profile is not None:
        profile.enable()
    with crew_of(options.fleet, (options.source, options.target)) as crew:
        spec = spec_of(options.source, options.target, options.parallel, options.no_sync)
        told = copied(spec, options.verify, crew)
    if profile is not None:
        profile.disable()
        profile.dump_stats(options.profile)
    json.dump(told, sys.stdout)
    print()


@contextmanager
def crew_of(master: str | None, places: tuple[str, ...]) -> Iterator[Crew | None]:
    if master is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="stateshift-bench-") as folder:
        log = Path(folder) / "fleet.log"
        application = Application(master, log, Unwatched(), threading.Event())
        with open_crew(real_adapters().open_fleet, application, places) as crew:
            yield crew


def spec_of(source: str, target: str, parallel: int, no_sync: bool) -> Spec:
    job: dict[str, object] = {
        "name": "bench",
        "checkpoint_location": source,
        "remote_location": target,
    }
    if no_sync:
        job |= {"mode": "fork", "sync": False}
    plain = {"version": 1, "engine": "spark", "parallel": parallel, "jobs": [job]}
    return parse_spec(json.dumps(plain))


def copied(spec: Spec, verify: bool, crew: Crew | None = None) -> dict[str, float]:
    (job,) = spec.jobs
    source, target = job.source, job.destination
    with tempfile.TemporaryDirectory(prefix="stateshift-bench-") as folder:
        world = world_of(spec, "bench", Workdir(folder), real_adapters())
        began, cpu = time.perf_counter(), _cpu()
        files = sorted(world.storage(source).list())
        there = list(world.storage(target).list())
        listed = time.perf_counter()
        assert not there, f"{target} holds {len(there)} files"
        steps = tuple(
            CopyFiles(f"copy/{number}", source, target, tuple(bundle))
            for number, bundle in enumerate(bundle_items(files))
        )
        plan = Plan(
            "bench",
            "spark",
            "move",
            source,
            target,
            None,
            phases_of(Phase("copy", steps)),
            (),
            "facts",
        )
        journal = Journal(FileLines(Path(folder) / "journal"))
        journal.append(RunStarted(1.0, "bench", "0", "spec", ("bench",)))
        journal.append(PlanAdopted(2.0, 0, "bench", "move", "facts", len(steps)))
        executor.execute_together([(0, plan)], world, journal, crew)
        ended, used = time.perf_counter(), _cpu()
        told = {
            "seconds": ended - began,
            "list_seconds": listed - began,
            "cpu_seconds": used - cpu,
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "steps": len(steps),
        }
        if verify:
            broken = executor.ask(plan, journal.progress.plans[0], world)
            assert not broken, broken[:3]
            told["verify_seconds"] = time.perf_counter() - ended
    return {**told, "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
