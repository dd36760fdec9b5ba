"""--fleet on the command line: what it takes, what it refuses before anything is begun, and that it
changes no result. The executors are in memory.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import machine
from stateshift.cli import main
from stateshift.engines.registry import Entries, Transforms
from stateshift.errors import ClusterError
from stateshift.fleet.carrier import OF_THIS_MACHINE
from stateshift.fleet.crew import Crew
from stateshift.migration import Adapters
from stateshift.migration.adapters import OpenProcesses
from stateshift.migration.processes import Processes
from stateshift.world import Meter, World
from tests.cli.support import SOURCE, TARGET, Outside, said, spec_of, without_times
from tests.support.checkpoints import Checkpoint, held
from tests.support.fleet import MemoryCarrier
from tests.support.ground import Ground

pytestmark = pytest.mark.usefixtures("own_folder")
MASTER = "spark://master:7077"
HELD = "state/0/1/3.delta"


@dataclass
class Manned(Outside):
    """The outside, with a fleet that sees the same disk."""

    fleets: list[MemoryCarrier] = field(default_factory=list)
    lose: Any = None
    refuse: ClusterError | None = None
    processes: OpenProcesses | None = None

    @property
    def adapters(self) -> Adapters:
        made = super().adapters
        return replace(made, open_fleet=self._open, open_processes=self.processes)

    def _open(self, master: str, log: Path, meter: Meter, stop: threading.Event) -> MemoryCarrier:
        if self.refuse is not None:
            raise self.refuse
        carrier = MemoryCarrier(
            self._world, self.lose or (lambda label, attempt: None), master=master, stop=stop
        )
        self.fleets.append(carrier)
        return carrier

    def _world(self, order: Mapping[str, Any]) -> World:
        world = Ground(disk=self.disk).world
        return replace(world, transforms=Transforms(), entries=Entries(), run=order["run"])


def manned(**held: Any) -> Manned:
    outside = Manned(**held)
    Checkpoint(batches=4, shards=3).write(outside.disk.open(SOURCE))
    return outside


def spec(outside: Outside) -> str:
    Path("spec.json").write_text(json.dumps(spec_of()))
    return "spec.json"


def test_apply_with_a_fleet_ends_as_it_does_without() -> None:
    alone, together = manned(), manned()
    assert alone.run("apply", spec(alone), "--yes", "--json").document["state"] == "finished"
    ran = together.run("apply", spec(together), "--yes", "--json", "--fleet", MASTER)
    assert (ran.code, ran.document["state"]) == (0, "finished"), ran.err
    assert held(together.disk.open(TARGET)) == held(alone.disk.open(TARGET))
    (fleet,) = together.fleets
    assert fleet.closed
    assert any(label.startswith("copy/") for label in fleet.carried)
    assert any(label.startswith("compare/") for label in fleet.carried)
    assert f"fleet: {MASTER}, 2 at once" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("compact",),
        ("repartition", "--partitions", "3"),
        ("convert", "--codec", "zstd"),
        ("rewind", "--batch", "2", "--fork"),
        ("fork",),
        ("rename", "--operator", "0=4"),
    ],
    ids=" ".join,
)
def test_every_shortcut_takes_a_fleet_and_leaves_the_same(words: tuple[str, ...]) -> None:
    alone, together = manned(), manned()
    command, *flags = words
    for outside, more in ((alone, ()), (together, ("--fleet", MASTER))):
        ran = outside.run(command, SOURCE, "--to", TARGET, *flags, "--yes", "--json", *more)
        assert ran.code == 0, ran.err
    assert held(together.disk.open(TARGET)) == held(alone.disk.open(TARGET))
    assert together.fleets[0].carried[2:], "more than the check of the executors"


def test_a_run_that_lost_its_executors_is_resumed_with_another_fleet_or_none() -> None:
    for again in ((), ("--fleet", "local[2]")):
        outside = manned(
            lose=lambda label, attempt: "before" if label.startswith("compare") else None
        )
        where = ("--workdir", f"w{len(again)}", "--fleet", MASTER)
        failed = outside.run("apply", spec(outside), "--yes", "--json", *where)
        assert failed.code == 7
        assert "was lost with its executor 4 times" in failed.document["message"]
        workdir = os.path.abspath(f"w{len(again)}")
        assert f"stateshift resume {workdir}" in failed.document["hint"]
        outside.lose = None
        assert (
            outside.run("resume", f"w{len(again)}", "--json", *again).document["state"]
            == "finished"
        )
        assert len(outside.fleets) == (2 if again else 1)


def test_a_fleet_that_does_not_come_leaves_nothing_begun() -> None:
    refuse = ClusterError(
        "no master answers", cluster=MASTER, hint="look, then: stateshift resume WORKDIR"
    )
    outside = manned(refuse=refuse)
    ran = outside.run(
        "apply", spec(outside), "--yes", "--json", "--workdir", "w", "--fleet", MASTER
    )
    assert (ran.code, ran.document["message"]) == (7, "no master answers")
    assert ran.document["hint"] == "look, then: the same command again"
    assert held(outside.disk.open(TARGET)) == {}
    assert not Path("w/journal").exists()
    outside.refuse = None
    ran = outside.run("apply", "spec.json", "--yes", "--json", "--workdir", "w", "--fleet", MASTER)
    assert ran.document["state"] == "finished", "the same command again"


@pytest.mark.parametrize(
    "master", ["sc://host:15002", "spark://host", "http://host:8080", "", "local[x]"]
)
def test_what_is_no_master_is_refused_before_anything_is_read(master: str) -> None:
    for words in (("apply", "missing.json", "--yes"), ("compact", SOURCE, "--to", TARGET, "--yes")):
        ran = manned().run(*words, "--json", f"--fleet={master}")
        assert ran.code == 2
        if not words[1].endswith(".json"):
            assert "is no master of a Spark" in ran.document["message"]


def test_spark_connect_is_refused_with_the_reason() -> None:
    outside = manned()
    ran = outside.run("apply", spec(outside), "--yes", "--json", "--fleet", "sc://host:15002")
    assert "Spark Connect takes no tasks" in ran.document["hint"]


def test_what_lies_in_memory_is_refused() -> None:
    outside = manned()
    Checkpoint().write(outside.disk.open("memory://here/orders"))
    ran = outside.run(
        "fork",
        "memory://here/orders",
        "--to",
        "memory://there/o",
        "--yes",
        "--json",
        "--fleet",
        MASTER,
    )
    assert ran.code == 4
    assert "is in the memory of this process" in ran.document["message"]
    assert outside.fleets == []


def test_verify_deep_with_a_fleet_says_the_same(tmp_path: Path) -> None:
    outside = manned()
    assert outside.run("verify", SOURCE, "--deep", "--json", "--fleet", MASTER).document[
        "restartable"
    ]
    carried = outside.fleets[0].carried
    assert {label.partition("/")[0] for label in carried} >= {"deep", "histories"}
    broken = outside.disk.open(SOURCE).read(HELD)[:-3]
    outside.disk.open(SOURCE).write(HELD, lambda: iter((broken,)))
    alone = outside.run("verify", SOURCE, "--deep", "--json")
    together = outside.run("verify", SOURCE, "--deep", "--json", "--fleet", MASTER)
    assert without_times(together.document) == without_times(alone.document)
    assert (together.code, alone.code) == (5, 5)
    assert all(fleet.closed for fleet in outside.fleets)


def test_verify_deep_takes_a_relative_path(tmp_path: Path) -> None:
    for path, content in Checkpoint().files().items():
        file = tmp_path / "orders" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    assert main(["verify", "orders", "--deep"]) == 0


def test_verify_without_deep_starts_no_fleet() -> None:
    outside = manned()
    assert outside.run("verify", SOURCE, "--fleet", MASTER).code == 0
    assert outside.fleets == []


def test_verify_of_a_run_asks_the_fleet_whether_the_evidence_holds() -> None:
    outside = manned()
    outside.run("fork", SOURCE, "--to", TARGET, "--yes", "--workdir", "w")
    assert outside.run("verify", "w", "--fleet", MASTER).code == 0
    assert outside.fleets[0].carried[2:]
    outside.disk.open(TARGET).remove(HELD)
    alone, together = (
        outside.run("verify", "w", "--json"),
        outside.run("verify", "w", "--json", "--fleet", MASTER),
    )
    assert together.document == alone.document
    assert together.code == 5


def test_the_environment_and_the_settings_name_a_fleet_too(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = manned()
    Path("stateshift.toml").write_text(f'fleet = "{MASTER}"\n')
    assert outside.run("fork", SOURCE, "--to", TARGET, "--yes").code == 0
    assert [fleet.master for fleet in outside.fleets] == [MASTER]
    monkeypatch.setenv("STATESHIFT_FLEET", "local[3]")
    assert outside.run("fork", SOURCE, "--to", TARGET + "2", "--yes").code == 0
    assert outside.fleets[1].master == "local[3]"


def test_help_says_what_a_fleet_is() -> None:
    for command in (
        "apply",
        "resume",
        "compact",
        "repartition",
        "split",
        "merge",
        "verify",
        "diff",
    ):
        assert "--fleet MASTER" in said(command, "--help").out


def test_diff_with_a_fleet_says_the_same() -> None:
    outside = manned()
    Checkpoint(batches=4, shards=3, keys=4).write(outside.disk.open(TARGET))
    for other, code in ((SOURCE, 0), (TARGET, 5)):
        alone = outside.run("diff", SOURCE, other, "--show", "3", "--json")
        together = outside.run("diff", SOURCE, other, "--show", "3", "--json", "--fleet", MASTER)
        assert (together.code, together.document) == (alone.code, alone.document)
        assert alone.code == code
    assert any(label.startswith("pick/") for label in outside.fleets[1].carried)
    assert not any(label.startswith("pick/") for label in outside.fleets[0].carried)


@pytest.mark.skipif(machine.processes_here(None) == 1, reason="one core shares with nobody")
@pytest.mark.parametrize(
    "command",
    [("verify", SOURCE, "--deep"), ("diff", SOURCE, TARGET, "--show", "3"), ("verify", "w")],
    ids=["an image", "two images", "a run"],
)
def test_without_a_fleet_this_machines_processes_read_much_and_say_the_same(
    command: tuple[str, ...],
) -> None:
    outside = manned()
    assert outside.run("fork", SOURCE, "--to", TARGET, "--workdir", "w", "--yes").code == 0
    carriers: list[MemoryCarrier] = []

    def crew() -> Crew:
        carriers.append(MemoryCarrier(outside._world))
        return Crew(carriers[-1], ways=OF_THIS_MACHINE)

    def open_processes(count: int, meter: Meter, stop: threading.Event) -> Processes:
        return Processes(crew, bytes_min=0, step_bytes_min=0)

    alone = outside.run(*command, "--json")
    outside.processes = open_processes
    together = outside.run(*command, "--json")
    assert together.code == alone.code
    assert without_times(together.document) == without_times(alone.document)
    (carrier,) = carriers
    assert carrier.carried
    assert carrier.closed
