"""The demo's job, moved while it runs by the real command line: two operators with state, started and stopped through a
spark_submit cluster. What must come out is computed here from the data alone, without Spark.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import ROOT, Ran, content_of, end_jobs, stateshift, wait_until

sys.path.insert(0, str(ROOT / "scripts" / "demo.d"))

import data

pytestmark = pytest.mark.spark

OPERATORS = ("Windowed counts (demo)", "Orders joined with payments")


@dataclass(frozen=True)
class Shop:
    """Orders and payments go in; counts per minute and joined orders come out."""

    folder: Path

    def feed(self, first: int, last: int) -> None:
        for number in range(first, last):
            data.write(self.folder / "input", number)

    def finish(self, number: int) -> None:
        """Closes every window: everything that was counted comes out."""
        data.write_last(self.folder / "input", number)

    def committed(self, location: Path, epoch: int = 0) -> bool:
        """Whether both operators have committed that batch, or a later one."""
        commits = [
            max((int(path.name) for path in folder.glob("commits/[0-9]*")), default=-1)
            for folder in location.glob("[!_]*")
            if folder.is_dir()
        ]
        return len(commits) == len(OPERATORS) and min(commits) >= epoch

    def recognise(self) -> dict[str, Counter[str]]:
        """Everything that came out, without its order, with how often each record did."""
        output = self.folder / "output"
        return {
            name: Counter(
                json.dumps(json.loads(line), sort_keys=True)
                for path in sorted((output / name).glob("*.json"))
                for line in path.read_text().splitlines()
            )
            for name in ("counts", "joined")
        }

    def expected(self, files: int) -> dict[str, Counter[str]]:
        minutes: dict[tuple[str, str], list[int]] = {}
        paid = {p["order"]: p["paid"] for number in range(files) for p in data.payments(number)}
        joined = []
        for number in range(files):
            for order in data.orders(number):
                at = datetime.fromisoformat(order["at"]).strftime("%Y-%m-%d %H:%M:00")
                minutes.setdefault((at, order["shop"]), []).append(order["amount"])
                joined.append({"order": order["order"], "amount": order["amount"], "paid": paid.get(order["order"])})
        counts = [
            {"minute": minute, "shop": shop, "orders": len(amounts), "amount": sum(amounts)}
            for (minute, shop), amounts in minutes.items()
        ]
        return {"counts": _bag(counts), "joined": _bag(joined)}


def _bag(records: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(record, sort_keys=True) for record in records)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    yield Shop(tmp_path)
    end_jobs(tmp_path, ("here", "there"))


def spec(folder: Path, name: str, **more: Any) -> Path:
    """The demo's two specs in one: `restart` says which; beside the job there is another one that nobody asked for."""
    submit = {
        "application": str(ROOT / "scripts" / "demo.d" / "job.py"),
        "arguments": ["--input", str(folder / "input"), "--output", str(folder / "output")],
        "seconds_max": 120,
    }
    cluster = {
        "kind": "spark_submit",
        "master": "local[2]",
        "conf": {"spark.ui.enabled": "false"},
        "state_dir": str(folder / "jobs"),
    }
    path = folder / f"{name}.json"
    moved = {
        "checkpoint_location": str(folder / "here"),
        "operators": list(OPERATORS),
        "source_cluster": "local",
        "target_cluster": "local",
        "submit": submit,
        "waive": ["paths-stay"],
    }
    other = {"checkpoint_location": str(folder / "other"), "remote_location": str(folder / "other-target")}
    moved |= {"remote_location": str(folder / "there")} if more.get("restart", True) else {}
    jobs = {"shop": moved, "other": other}
    path.write_text(json.dumps({"version": 1, "clusters": {"local": cluster}, "jobs": jobs, **more}, indent=1))
    return path


def apply(folder: Path, name: str, **more: Any) -> Ran:
    given = ("--yes", "--json", "--job", "shop", "--workdir", folder / "runs" / name)
    return stateshift("apply", spec(folder, name, **more), *given, cwd=folder)


@pytest.mark.row("IS-3")
@pytest.mark.row("IS-6")
@pytest.mark.row("IS-13")
@pytest.mark.row("IS-16")
def test_a_running_job_moves_and_counts_on_as_if_it_had_not(shop: Shop, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata").write_text('{"id":"not asked for"}')
    shop.feed(0, 20)
    apply(tmp_path, "first", restart=False)
    _until(lambda: shop.committed(here), "the job has not started", tmp_path)
    shop.feed(20, 30)  # ends in the middle of a minute, with orders that are still to be paid

    report = apply(tmp_path, "move").json
    assert report["state"] == "finished"
    assert report["report"]["downtime_seconds"] > 0
    assert shop.committed(there), "apply came back before the target job had committed a batch"

    shop.feed(30, 40)
    shop.finish(40)
    expected = shop.expected(40)
    _until(lambda: _sizes(shop.recognise()) >= _sizes(expected), "the results are not complete", tmp_path)
    assert shop.recognise() == expected

    names = json.loads((there / "_stateshift" / "operators.json").read_text())["operators"]
    assert set(names) == set(OPERATORS)
    assert {path.name for path in there.iterdir() if path.is_dir()} == {*names.values(), "_stateshift"}
    assert content_of(tmp_path / "other") == {"metadata": b'{"id":"not asked for"}'}
    assert not (tmp_path / "other-target").exists()


def _sizes(results: dict[str, Counter[str]]) -> int:
    return sum(counter.total() for counter in results.values())


def _until(done: Callable[[], bool], otherwise: str, folder: Path) -> None:
    wait_until(done, otherwise, 90, logs=folder / "jobs")
