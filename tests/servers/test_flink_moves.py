"""Jobs move while they run from one real Flink to another, by the real command line: as a whole,
joined, divided, with another name. What comes out is what an unmoved job would have written, record
for record: number n is its key's (n / keys + 1)th, and each number has one such line.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.acceptance.support import ROOT
from tests.servers.flink_ground import KEYS, Ground
from tests.support.flink import faults, jar, until
from tests.support.moving import killed_at

pytestmark = pytest.mark.servers
EXAMPLES = ROOT / "configs" / "examples"


@pytest.mark.row("IF-2", "IF-6", "IF-8", "IF-9", "IF-10", "IF-12", "IF-14")
def test_a_running_job_goes_to_another_cluster(ground: Ground) -> None:
    spec = ground.spec(ground.job("orders", ground.started("orders")))
    plan = ground.said("plan", spec)
    assert plan["plans"][0]["phases"] == ["halt"]
    report = ground.applied(spec)
    assert report["state"] == "finished"
    assert report["report"]["downtime_seconds"] > 0
    ground.said("verify", ground.workdir)
    ground.goes_on("orders")


def test_a_savepoint_of_a_job_that_runs_on_is_not_moved_beside_it(ground: Ground) -> None:
    """Named by its files alone. Once the job has ended, its savepoint is moved without a word; and
    again, its successor is not.
    """
    id = ground.started("orders")
    taken = str(ground.here.saved(id, ground.folder / "taken"))
    job = ground.job("moved", counters="orders", existing_savepoint_paths=[taken])
    for key in ("job_ids", "target_directory"):
        del job[key]
    spec = ground.spec(job)
    (refused,) = ground.said("plan", spec, code=4)["findings"]
    assert f"orders ({id}) runs on old, and this image is named for it" in refused["message"]
    ground.applied(spec, code=4)
    last = str(ground.here.stopped(id, ground.folder / "taken"))
    spec = ground.spec({**job, "existing_savepoint_paths": [last]})
    assert [each["level"] for each in ground.said("plan", spec)["findings"]].count("warn") == 0
    assert ground.applied(spec)["state"] == "finished"
    ground.goes_on("orders")


@pytest.mark.slow
def test_a_job_that_fails_when_it_is_stopped_goes_on_elsewhere_and_the_report_says_so(
    ground: Ground,
) -> None:
    spec = ground.spec(ground.job("orders", ground.started("orders", "--ends", "false")))
    report = ground.applied(spec)
    assert report["state"] == "finished"
    (note,) = report["report"]["jobs"][0]["notes"]
    assert "failed while it was stopped, but its savepoint is whole" in note
    ground.goes_on("orders")


@pytest.mark.slow
@pytest.mark.row("IF-7", "IF-12")
def test_two_jobs_become_one(ground: Ground) -> None:
    ids = [ground.started(counter) for counter in ("orders", "payments")]
    job = ground.job("both", *ids, counters="orders,payments")
    assert ground.applied(ground.spec(job))["state"] == "finished"
    ground.goes_on("orders", "payments")


@pytest.mark.slow  # the worked case (test_flink_workflows.py) divides one in the default run
@pytest.mark.row("IF-3", "IF-4", "IF-5", "IF-7", "IF-10", "IF-13")
def test_one_job_becomes_two_out_of_one_savepoint(ground: Ground) -> None:
    id = ground.started("orders,payments")
    jobs = [
        ground.job(
            counter, id, operators=[f"{counter}-{part}" for part in ("source", "count", "lines")]
        )
        for counter in ("orders", "payments")
    ]
    report = ground.applied(ground.spec(*jobs))
    assert report["state"] == "finished"
    assert len(list((ground.folder / "taken").glob("savepoint-*"))) == 1
    ground.goes_on("orders", "payments")


@pytest.mark.row("IF-7", "IF-12", "IF-14")
@pytest.mark.parametrize("most", [None, pytest.param(64, marks=pytest.mark.slow)], ids=["16", "64"])
@pytest.mark.slow
def test_two_jobs_of_one_jar_that_count_other_keys_become_one(
    ground: Ground, most: int | None
) -> None:
    """configs/examples/flink-union.json: both have an operator orders-count, and no count is
    lost.
    """
    words = ("--keys", "8", "--regions", "north,south", "--max-parallelism")
    ids = [
        ground.here.run(
            "jobs.Count",
            *ground.arguments("orders"),
            *words,
            "16",
            "--region",
            region,
            parallelism=2,
        )
        for region in ("north", "south")
    ]
    until(
        lambda: (
            {line.number % 2 for line in ground.written("orders") if line.number > 200} == {0, 1}
        )
    )
    plain = json.loads((EXAMPLES / "flink-union.json").read_text("utf-8"))
    text = json.dumps(plain["jobs"][0])
    for known, own in zip(plain["jobs"][0]["job_ids"], ids, strict=True):
        text = text.replace(known, own)
    job = json.loads(text.replace("s3://state", str(ground.folder)))
    extra = job["submit"]["arguments"] + [*words, str(most or 16)]
    job["submit"] |= {
        "jar": str(jar(ground.there.lib)),
        "arguments": [*ground.arguments("orders"), *extra],
    }
    job["transform"] += [{"kind": "rescale", "max_parallelism": most}] if most else []
    assert ground.applied(ground.spec(job))["state"] == "finished"
    before = len(ground.written("orders"))
    until(lambda: len(ground.written("orders")) > before + 200)
    ground.ended()
    found = ground.written("orders")
    for region in (0, 1):
        own = [
            line._replace(number=line.number // 2) for line in found if line.number % 2 == region
        ]
        assert len(own) > 100 and faults(own, 4, 0, len(own)) == []


@pytest.mark.slow
@pytest.mark.row("IF-7")
def test_two_jobs_that_count_the_same_keys_do_not_become_one_by_a_union(ground: Ground) -> None:
    """Nothing is published; taken back, both run again from their savepoints."""
    savepoints = [
        ground.here.stopped(ground.started("orders"), ground.folder / "taken") for _ in range(2)
    ]
    job = {
        "name": "orders",
        "existing_savepoint_paths": [str(place) for place in savepoints],
        "new_savepoint_path": str(ground.folder / "new-orders"),
        "transform": [
            {"kind": "union", "operators": ["orders-count"]},
            {"kind": "drop", "operators": ["orders-source"], "of": str(savepoints[1])},
        ],
    }
    told = ground.applied(ground.spec(job), code=4)
    assert "is in two images: whose state counts is not known" in json.dumps(told)
    assert not (ground.folder / "new-orders" / "_metadata").exists()
    assert ground.said("rollback", ground.workdir, "--yes")["state"] == "rolled-back"
    assert list((ground.folder / "new-orders").glob("*")) == []


@pytest.mark.slow
@pytest.mark.row("IF-12")
@pytest.mark.parametrize(
    ("was", "becomes", "kind", "most"),
    [
        pytest.param(2, 3, "string", None, marks=pytest.mark.slow),
        pytest.param(4, 1, "long", None, marks=pytest.mark.slow),
        pytest.param(2, 2, "string", 200, marks=pytest.mark.slow),
        (2, 3, "long", 32),
    ],
)
def test_a_job_goes_on_with_another_parallelism_and_another_number_of_key_groups(
    ground: Ground, was: int, becomes: int, kind: str, most: int | None
) -> None:
    """Flink itself refuses another max parallelism (FLINK-5052)."""
    words = ("--kind", kind, "--max-parallelism")
    id = ground.started("orders", *words, "8", parallelism=was)
    change = {
        "kind": "rescale",
        "parallelism": becomes,
        **({"max_parallelism": most} if most else {}),
    }
    submit = ground.submit("orders", *words, str(most or 8), parallelism=becomes)
    job = ground.job("orders", id, transform=[change], submit=submit, source_submit=None)
    assert (
        ground.applied(ground.spec({k: v for k, v in job.items() if v is not None}))["state"]
        == "finished"
    )
    told = ground.said("inspect", ground.folder / "new-orders")["operators"]
    assert {operator["shards"] for operator in told if operator["provider"]} == {becomes}
    assert {operator["max_parallelism"] for operator in told} == {most or 8}
    ground.goes_on("orders")


@pytest.mark.row("IF-8", "IF-12", "IF-16", "IF-17")
@pytest.mark.parametrize(
    "settings",
    [
        {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"},
        pytest.param(
            {
                "state.changelog.enabled": "true",
                "state.changelog.storage": "filesystem",
                "state.changelog.dstl.dfs.base-path": "CHECKPOINTS/dstl",
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {
                "state.backend.type": "rocksdb",
                "execution.checkpointing.incremental": "true",
                "execution.checkpointing.file-merging.enabled": "true",
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"state.backend.type": "forst", "execution.checkpointing.incremental": "true"},
            marks=[pytest.mark.slow, pytest.mark.row("W-8", on="Flink")],
        ),
    ],
    ids=["incremental", "changelog", "file-merging", "forst"],
)
def test_a_job_goes_on_from_a_checkpoint_whose_own_folder_is_gone(
    ground: Ground, settings: dict[str, str]
) -> None:
    """It names its files by their full paths. What was done after it is done again, in the same
    way.
    """
    checkpoints = ground.folder / "checkpoints"
    kept = {
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        **settings,
    }
    words = [
        word
        for key, value in kept.items()
        for word in (f"--flink.{key}", value.replace("CHECKPOINTS", checkpoints.as_uri()))
    ]
    id = ground.started("orders", *words)
    ground.here.checkpointed(id, after=3)
    ground.here.cancelled(id)
    last = ground.here.retained(id)
    gathered = ground.folder / "gathered"
    ground.said("gather", last, "--to", gathered, "--yes", "--workdir", ground.folder / "gather")
    checkpoints.rename(ground.folder / "gone")
    assert ground.said("verify", gathered, "--deep")["restartable"]
    backend = ("--flink.state.backend.type", settings.get("state.backend.type", "hashmap"))
    job = {
        "name": "orders",
        "existing_savepoint_paths": [str(gathered)],
        "target_cluster": "new",
        "submit": ground.submit("orders", *backend),
    }
    assert ground.applied(ground.spec(job))["state"] == "finished"
    before = len(ground.written("orders"))
    until(lambda: len(ground.written("orders")) > before + 100)
    ground.ended("NATIVE")  # ForSt writes no other savepoint
    found = sorted(set(ground.written("orders")), key=lambda line: line.number)
    assert faults(found, KEYS, 0, len(found)) == []


@pytest.mark.slow
def test_a_checkpoint_that_a_restore_with_claim_left_in_two_places_is_repaired(
    ground: Ground,
) -> None:
    """FLINK-39964, as Flink 2.3.0 really does it: its metadata has beside itself what lies in
    the savepoint.
    """
    checkpoints = ground.folder / "checkpoints"
    settings = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.data-inline-threshold": "0 b",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.dir": checkpoints.as_uri(),
    }
    words = [word for key, value in settings.items() for word in (f"--flink.{key}", value)]
    seldom = (
        "--checkpoint-ms",
        "600000",
    )  # its savepoint is one file a subtask then, and is not compacted at once
    savepoint = ground.here.stopped(
        ground.started("orders", *words, *seldom), ground.folder / "taken", "NATIVE"
    )
    # It counts nothing there, so that nothing is compacted.
    arguments = [*ground.arguments("orders"), *words, "--hold", "0"]
    id = ground.here.run(
        "jobs.Count", *arguments, parallelism=2, savepoint=savepoint, claimMode="CLAIM"
    )
    ground.here.checkpointed(id)
    ground.here.cancelled(id)
    last = ground.here.retained(id)
    found = ground.said("verify", last, code=5)
    assert any("beside itself" in finding["message"] for finding in found["findings"])
    repaired = ground.folder / "repaired"
    ground.said(
        "repair",
        last,
        "--files",
        savepoint,
        "--to",
        repaired,
        "--yes",
        "--workdir",
        ground.folder / "repair",
    )
    assert ground.said("verify", repaired, "--deep")["restartable"]
    for folder in (savepoint, checkpoints):
        folder.rename(ground.folder / f"gone-{folder.name}")
    job = {
        "name": "orders",
        "existing_savepoint_paths": [str(repaired)],
        "target_cluster": "new",
        "submit": ground.submit("orders", "--flink.state.backend.type", "rocksdb"),
    }
    assert ground.applied(ground.spec(job))["state"] == "finished"
    before = len(ground.written("orders"))
    until(lambda: len(ground.written("orders")) > before + 100)
    ground.ended()
    written = sorted(set(ground.written("orders")), key=lambda line: line.number)
    assert faults(written, KEYS, 0, len(written)) == []


@pytest.mark.row("IF-1", "IF-2", "IF-14")
@pytest.mark.slow
def test_the_example_in_infore_s_dialect_makes_two_savepoints_of_two_jobs(ground: Ground) -> None:
    """Cancelled after their savepoints, as it says; it starts nothing."""
    ids = ground.started("north,south"), ground.started("east")
    text = (EXAMPLES / "infore-flink.json").read_text("utf-8")
    host, _, port = ground.here.url.removeprefix("http://").partition(":")
    for known, own in (
        ("a4a2b6a7b9d4a5e0c3f1d2e3b4c5d6e7", ids[0]),
        ("0f1e2d3c4b5a69788796a5b4c3d2e1f0", ids[1]),
        ("hdfs://athens:8020", str(ground.folder / "athens")),
        ("hdfs://chania:8020", str(ground.folder / "chania")),
        ("flink-athens", host),
        ('"8081"', port),
        ("8081", port),
        ("-counts", "-count"),
        ("-sink", "-lines"),
    ):
        text = text.replace(known, own)
    spec = ground.folder / "spec.json"
    spec.write_text(text, "utf-8")
    plan = ground.said("plan", spec)
    assert any(
        "between its savepoint and its cancellation" in found["message"]
        for found in plan["findings"]
    )
    assert ground.applied(spec)["state"] == "finished"
    uids = {
        part: {
            operator["uid"].partition("-")[0]
            for operator in ground.said("inspect", place)["operators"]
        }
        for part in ("north", "south")
        for place in [ground.folder / "chania" / "flink" / "savepoints" / part]
    }
    assert uids == {"north": {"north"}, "south": {"south", "east"}}
    assert [
        job["state"] for job in ground.here.ask("/jobs/overview")["jobs"] if job["jid"] in ids
    ] == ["CANCELED"] * 2


@pytest.mark.slow
def test_killed_while_it_moves_and_resumed_one_job_goes_on(ground: Ground) -> None:
    spec = ground.spec(ground.job("orders", ground.started("orders")))
    killed_at(
        "halt/", ("apply", str(spec), "--yes", "--workdir", str(ground.workdir)), ground.workdir, {}
    )
    for step in ("copy/", "publish/", "submit/", "confirm/"):
        killed_at(step, ("resume", str(ground.workdir)), ground.workdir, {})
    assert ground.said("resume", ground.workdir)["state"] == "finished"
    assert len(ground.there.running()) == 1
    ground.goes_on("orders")


@pytest.mark.slow
def test_taken_back_the_old_job_goes_on_from_its_savepoint(ground: Ground) -> None:
    spec = ground.spec(ground.job("orders", ground.started("orders")))
    killed_at(
        "submit/",
        ("apply", str(spec), "--yes", "--workdir", str(ground.workdir)),
        ground.workdir,
        {},
    )
    assert ground.said("rollback", ground.workdir, "--yes")["state"] == "rolled-back"
    assert not (ground.folder / "new-orders" / "_metadata").exists()
    running = [job["name"] for job in ground.here.running()]
    assert running == ["orders"]
    ground.goes_on("orders")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "forst"])
def test_a_job_that_asks_its_state_asynchronously_is_moved_by_a_native_savepoint(
    ground: Ground, backend: str
) -> None:
    """Asked for a canonical one, it fails (seen of 2.3.0): the plan says so, and nobody asks."""
    settings = ("--flink.state.backend.type", backend)
    job = ground.here.run("jobs.AsyncCount", *ground.arguments("orders"), *settings, parallelism=2)
    until(lambda: len(ground.written("orders")) > 100)
    words = {**ground.submit("orders", *settings), "entry_class": "jobs.AsyncCount"}
    asked = ground.job("orders", job, submit=words, source_submit=words)
    refused = ground.said("plan", ground.spec({**asked, "stop": {"format": "canonical"}}), code=4)
    assert "writes no canonical savepoint: asked for one, the job fails" in json.dumps(refused)
    planned = ground.said("plan", ground.spec(asked))
    assert "its savepoint is taken in the native format" in json.dumps(planned)
    report = ground.applied(ground.spec(asked))
    assert report["state"] == "finished"
    before = len(ground.written("orders"))
    until(lambda: len(ground.written("orders")) > before + 100)
    (running,) = ground.there.running()
    ground.there.stopped(running["jid"], ground.folder / "last", kind="NATIVE")
    found = ground.written("orders")
    assert faults(found, KEYS, 0, len(found)) == []


FIXED_DELAY = [
    "--flink.restart-strategy.type",
    "fixed-delay",
    "--flink.restart-strategy.fixed-delay.attempts",
    "100000",
    "--flink.restart-strategy.fixed-delay.delay",
    "200 ms",
]


@pytest.mark.slow
def test_a_job_that_restarts_for_ever_ends_the_confirmation_and_goes_on_with_a_corrected_submit(
    ground: Ground,
) -> None:
    """A record that cannot be counted meets every attempt: Flink itself would try it a hundred
    thousand times.
    """
    job = ground.job("orders", ground.started("orders"))
    mended = ground.spec(job, on_failure="stop").rename(ground.folder / "mended.json")
    failing = ground.submit("orders", *FIXED_DELAY, "--fails-at", "1")
    spec = ground.spec(job | {"submit": failing | {"seconds_max": 600}}, on_failure="stop")
    began = time.monotonic()
    error = ground.applied(spec, code=10)
    assert time.monotonic() - began < 180, "it was waited for until its deadline"
    assert (
        "orders fails again and again with the same: " in error["message"]
        and "/ by zero" in error["message"]
    )
    assert "stateshift rollback" in error["hint"] and "--spec FILE" in error["hint"]
    states = [job["state"] for job in ground.there.ask("/jobs/overview")["jobs"]]
    assert set(states) & {"RUNNING", "RESTARTING"}, "Flink has not given up"
    assert ground.said("resume", ground.workdir, "--spec", mended)["state"] == "finished"
    ground.goes_on("orders")


@pytest.mark.slow
def test_a_job_that_restarts_for_ever_can_be_taken_back(ground: Ground) -> None:
    job = ground.job("orders", ground.started("orders"))
    failing = ground.submit("orders", *FIXED_DELAY, "--fails-at", "1")
    spec = ground.spec(job | {"submit": failing | {"seconds_max": 600}}, on_failure="stop")
    error = ground.applied(spec, code=10)
    assert "fails again and again" in error["message"]
    assert ground.said("rollback", ground.workdir, "--yes")["state"] == "rolled-back"
    ground.goes_on("orders")


@pytest.mark.slow
def test_an_outage_is_waited_for_until_the_deadline(ground: Ground) -> None:
    """What comes again each time need not come for ever."""
    job = ground.job("orders", ground.started("orders"))
    failing = ground.submit("orders", *FIXED_DELAY, "--fails-at", "1", "--fails-with", "outage")
    spec = ground.spec(job | {"submit": failing | {"seconds_max": 30}}, on_failure="stop")
    error = ground.applied(spec, code=10)
    assert "has completed no checkpoint in 30 s" in error["message"]
    assert ground.said("rollback", ground.workdir, "--yes")["state"] == "rolled-back"
    ground.goes_on("orders")
