"""Two real Spark jobs that hand records on by a real Kafka get a new version each, at one cut: no
record is met by the old version of the first and by the new version of the second.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.journal import StepFinished, decode_records
from tests.acceptance.support import ROOT, end_jobs, stateshift, wait_until
from tests.servers.playing import FEEDING
from tests.servers.scene_specs import SECONDS_MAX, Specs
from tests.servers.scenes import Scene
from tests.support.servers import Servers, Unavailable, downloads, group, in_their_python

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.row("IS-8", "F-9")]
SHOWN_ON = "Spark, Kafka"

APPLICATION = Path(__file__).with_name("passing_job.py")
SCENE = Scene(
    "windows", "kafka", "file-hdfs", "submit", "plain"
)  # what runs them, and finds Kafka's classes
JOBS = ("pass", "count")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    try:
        downloads.spark("3.5.9")
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    with group(tmp_path_factory.mktemp("cut"), "kafka") as servers:
        yield servers


@dataclass(frozen=True)
class Pair:
    """Records go from topic `in` to topic `between`, and from there to files."""

    servers: Servers
    folder: Path

    @property
    def kafka(self) -> str:
        return self.servers.exports()["STATESHIFT_KAFKA"]

    def feed(self, topic: str, *records: str) -> None:
        file = self.folder / "to-feed.jsonl"
        file.write_text(json.dumps([[topic, record, record] for record in records]) + "\n")
        in_their_python(FEEDING, self.kafka, str(file))

    def seen(self) -> Counter[str]:
        files = sorted((self.folder / "out").glob("*.txt"))
        return Counter(line for file in files for line in file.read_text().splitlines())

    def spec(self, version: str, restart: bool) -> Path:
        ways = {"pass": ("in", "between"), "count": ("between", str(self.folder / "out"))}
        jobs = []
        for name, (reads, writes) in ways.items():
            words = [
                "--version",
                version,
                "--kafka",
                self.kafka,
                "--reads",
                reads,
                "--writes",
                writes,
            ]
            submit = {
                "application": str(APPLICATION),
                "arguments": [name, *words],
                "seconds_max": SECONDS_MAX,
            }
            job: dict[str, Any] = {
                "name": name,
                "checkpoint_location": f"file://{self.folder}/here/{name}",
                "target_cluster": "new" if restart else "old",
                "submit": submit,
            }
            if restart:
                job |= {
                    "remote_location": f"file://{self.folder}/there/{name}",
                    "source_cluster": "old",
                    "waive": ["paths-stay"],
                    "stop": {"seconds_max": 120},
                }
            jobs.append(job)
        made = Specs(SCENE, self.servers, self.servers.exports(), self.folder)
        cluster = {**made.cluster, "master": "local[1]"}
        cluster["environment"] = {**cluster.get("environment", {}), "PYTHONPATH": str(ROOT)}
        plain = {
            "version": 1,
            "engine": "spark",
            "restart": restart,
            "jobs": jobs,
            "clusters": {
                name: {**cluster, "state_dir": str(self.folder / name)} for name in ("old", "new")
            },
            "kafka": {"bootstrap_servers": self.kafka},
            "dataflow": {
                "operators": [
                    {"name": "hand on", "job": "pass", "writes": ["between"]},
                    {"name": "count them", "job": "count", "reads": ["between"]},
                ]
            },
        }
        path = self.folder / f"{version}.json"
        path.write_text(json.dumps(plain, indent=1))
        return path

    def apply(self, spec: Path) -> Any:
        words = (
            "apply",
            str(spec),
            "--yes",
            "--workdir",
            str(self.folder / f"run-{spec.stem}"),
            "--json",
        )
        return stateshift(*words, cwd=ROOT, env=self.servers.exports()).json

    def until(self, count: int) -> None:
        wait_until(
            lambda: self.seen().total() >= count,
            "not everything comes out",
            SECONDS_MAX,
            logs=self.folder,
        )


@pytest.mark.slow
def test_no_record_is_met_by_the_old_version_of_one_job_and_the_new_one_of_the_other(
    servers: Servers, tmp_path: Path
) -> None:
    pair = Pair(servers, tmp_path)
    pair.feed("in", *(f"a{number}" for number in range(20)))
    pair.feed("between", "first old")
    try:
        pair.apply(pair.spec("old", restart=False))
        pair.until(21)
        pair.feed(
            "in", *(f"b{number}" for number in range(300))
        )  # twelve batches of the second, a second each
        spec = pair.spec("new", restart=True)
        planned = stateshift("plan", spec, "--json", cwd=ROOT, env=servers.exports()).json
        assert [cut["order"] for cut in planned["cuts"]] == [[["pass"], ["count"]]]
        assert pair.apply(spec)["state"] == "finished"
        pair.feed("in", *(f"c{number}" for number in range(20)))
        pair.until(341)
    finally:
        end_jobs(tmp_path, tuple(f"{place}/{name}" for place in ("here", "there") for name in JOBS))
    met = Counter(" ".join(line.split()[1:]) for line in pair.seen())
    assert set(met) == {"old old", "new new"}, met
    assert met.total() == 341 == pair.seen().total(), "each of them once"
    assert met["old old"] > 21, "what the first had handed on was still read by the old second"
    records, _ = decode_records((tmp_path / "run-new" / "journal").read_bytes())
    stops = [one.at for one in records if isinstance(one, StepFinished) and one.step == "halt/stop"]
    assert len(stops) == 2
