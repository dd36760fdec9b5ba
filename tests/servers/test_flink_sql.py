"""Jobs of SQL on real Flinks, started through a real SQL gateway that belongs to neither, which go
on where they were stopped: each order is its shop's next, and none is there twice. What is refused
is said by the gateway itself.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.flink.cluster import FlinkRest
from stateshift.clusters.flink.jobs import job_id
from stateshift.clusters.flink.sql import statements_of
from stateshift.clusters.flink.sql_submit import Gateway
from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import JobState, SavepointRequest, Submission
from stateshift.errors import ClusterError
from stateshift.specification.model import ClusterSpec
from tests.acceptance.support import stateshift
from tests.support.examples import FOLDER, example
from tests.support.flink import Cluster, Line, cluster_of, until
from tests.support.moving import killed_at
from tests.support.processes import killed_while
from tests.support.servers import Servers, group

pytestmark = pytest.mark.servers
SHOPS = 7
EXAMPLE = (FOLDER / "flink-sql.sql").read_text("utf-8")
BEFORE, INSERT = EXAMPLE[: EXAMPLE.index("INSERT INTO")], EXAMPLE[EXAMPLE.index("INSERT INTO") :]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("sql"), "flink-a", "flink-b", "flink-sql") as servers:
        yield servers


@dataclass(frozen=True)
class Ground:
    servers: Servers
    folder: Path
    names: tuple[str, str, str] = ("flink-a", "flink-b", "flink-sql")

    @property
    def here(self) -> Cluster:
        return cluster_of(self.servers, self.names[0])

    @property
    def there(self) -> Cluster:
        return cluster_of(self.servers, self.names[1])

    @property
    def gateway(self) -> str:
        name = self.names[2]
        (url,) = self.servers.state(name).exports.values()
        return url

    @property
    def places(self) -> dict[str, str]:
        """In the file: quick, and on this disk."""
        return {
            "s3://shop": self.folder.as_uri(),
            "10 s": "300 ms",
            "'1 min'": "'1 s'",
            "'1 s'": "'300 ms'",
        }

    def sql(self, text: str = EXAMPLE, name: str = "flink-sql.sql") -> Path:
        for made_up, real in self.places.items():
            text = text.replace(made_up, real)
        (self.folder / name).write_text(text, "utf-8")
        return self.folder / name

    def opened(self, real: Cluster, **options: Any) -> FlinkRest:
        known = {"url": real.url, "sql_gateway": self.gateway, "settle_seconds": 5}
        cluster = open_cluster(
            ClusterSpec("flink", "flink_rest", {**known, **options}), str(self.folder / "state")
        )
        assert isinstance(cluster, FlinkRest)
        return cluster

    def submission(
        self, sql: Path, tag: str = "run-1.orders", at: str = "", **options: Any
    ) -> Submission:
        known = {"sql": str(sql), "parallelism": 2}
        return Submission(f"{tag} of {self.folder}", "orders", at, options={**known, **options})

    def begun(self, flink: FlinkRest, submission: Submission) -> str:
        """Its id, once all its tasks run and it has completed a checkpoint of its own."""
        id = flink.submit(submission)
        first = flink.progress(submission.tag).restored_epoch or 0
        until(
            lambda: (now := flink.progress(submission.tag)).running and (now.epoch or 0) > first,
            60.0,
        )
        return id

    def spec(self, id: str) -> Path:
        self.sql()
        athens, chania = (
            cluster.url.removeprefix("http://") for cluster in (self.here, self.there)
        )
        gateway = self.gateway.removeprefix("http://")
        return example(
            "flink-sql.json",
            self.folder,
            {
                "5f2c9d0e8a7b4c3d9e1f0a2b3c4d5e6f": id,
                "s3://state": str(self.folder),
                "flink-athens:8081": athens,
                "flink-chania:8081": chania,
                "gateway-athens:8083": gateway,
                "gateway-chania:8083": gateway,
            },
        )

    def said(self, *words: str | Path, code: int = 0) -> Any:
        return stateshift(*words, "--json", cwd=self.folder, code=code).json

    @property
    def workdir(self) -> Path:
        return self.folder / "runs" / "move"

    def written(self) -> list[Line]:
        """What is committed; the names of other files begin with a dot."""
        texts = [file.read_text() for file in (self.folder / "numbered").glob("part-*")]
        rows = [row.split(",") for text in texts for row in text.split("\n")[:-1]]
        return [Line(shop, int(count), int(id)) for shop, count, id in rows]

    def running(self, real: Cluster) -> list[str]:
        return [
            job["jid"]
            for job in real.ask("/jobs/overview")["jobs"]
            if job["state"] in ("RUNNING", "RESTARTING")
        ]

    def goes_on(self, real: Cluster) -> None:
        """A while later nothing is lost, counted wrongly or written twice."""
        before = len(self.written())
        until(lambda: len(self.written()) > before + 200)
        (id,) = self.running(real)
        real.stopped(id, self.folder / "last", drain=True)  # commits what is hidden
        found = self.written()
        assert sorted(line.number for line in found) == list(range(len(found)))
        for shop in range(SHOPS):
            counts = sorted(line.count for line in found if line.key == str(shop))
            assert counts == list(range(1, len(range(shop, len(found), SHOPS)) + 1))


def emptied(*clusters: Cluster) -> None:
    for cluster in clusters:
        for job in cluster.ask("/jobs/overview")["jobs"]:
            if job["state"] in ("RUNNING", "RESTARTING", "CREATED", "INITIALIZING"):
                cluster.cancelled(job["jid"])


@pytest.fixture
def ground(servers: Servers, tmp_path: Path) -> Iterator[Ground]:
    made = Ground(servers, tmp_path)
    yield made
    emptied(made.here, made.there)


def started(ground: Ground) -> str:
    """The example's job on the old cluster, which has written something; its id."""
    id = ground.begun(ground.opened(ground.here), ground.submission(ground.sql()))
    until(lambda: len(ground.written()) > 100)
    return id


@pytest.mark.slow
@pytest.mark.row("IF-2", "IF-6", "IF-12", "IF-14")
def test_a_job_of_sql_goes_to_another_cluster_and_counts_on(ground: Ground) -> None:
    """configs/examples/flink-sql.json."""
    report = ground.said(
        "apply", ground.spec(started(ground)), "--yes", "--workdir", ground.workdir
    )
    assert report["state"] == "finished"
    ground.said("verify", ground.workdir)
    assert [ground.there.ask(f"/jobs/{id}")["name"] for id in ground.running(ground.there)] == [
        "orders"
    ]
    assert ground.running(ground.here) == []
    restored = ground.there.ask(f"/jobs/{ground.running(ground.there)[0]}/checkpoints")["latest"][
        "restored"
    ]
    assert restored["external_path"] == f"file:{ground.folder}/orders"
    ground.goes_on(ground.there)


@pytest.mark.slow
def test_killed_while_it_moves_and_resumed_one_job_of_sql_goes_on(ground: Ground) -> None:
    spec = ground.spec(started(ground))
    words = ("apply", str(spec), "--yes", "--workdir", str(ground.workdir))
    spec.write_text(spec.read_text().replace('"flink-sql.sql"', f'"{ground.folder}/flink-sql.sql"'))
    killed_at("submit/", words, ground.workdir, {})
    for step in ("submit/", "confirm/"):
        killed_at(step, ("resume", str(ground.workdir)), ground.workdir, {})
    assert ground.said("resume", ground.workdir)["state"] == "finished"
    assert len(ground.running(ground.there)) == 1
    ground.goes_on(ground.there)


@pytest.mark.slow
def test_taken_back_the_old_job_of_sql_goes_on_from_its_savepoint(ground: Ground) -> None:
    spec = ground.spec(started(ground))
    spec.write_text(spec.read_text().replace('"flink-sql.sql"', f'"{ground.folder}/flink-sql.sql"'))
    killed_at(
        "submit/",
        ("apply", str(spec), "--yes", "--workdir", str(ground.workdir)),
        ground.workdir,
        {},
    )
    assert ground.said("rollback", ground.workdir, "--yes")["state"] == "rolled-back"
    assert ground.running(ground.there) == []
    ground.goes_on(ground.here)


@pytest.mark.slow
def test_what_cannot_be_submitted_is_refused_before_the_job_is_stopped(ground: Ground) -> None:
    spec = ground.spec(started(ground))
    ground.sql(EXAMPLE + INSERT)
    told = ground.said("apply", spec, "--yes", "--workdir", ground.workdir, code=2)
    assert "starts a job beside that of line" in told["message"]
    assert len(ground.running(ground.here)) == 1
    ground.sql()
    for cluster, pointer in (("new", "/jobs/0/submit/sql"), ("old", "/jobs/0/source_submit/sql")):
        plain = json.loads(spec.read_text())
        del plain["clusters"][cluster]["sql_gateway"]
        other = ground.folder / f"without-{cluster}.json"
        other.write_text(json.dumps(plain))
        told = ground.said("apply", other, "--yes", "--workdir", ground.workdir, code=2)
        assert told["message"].startswith(f"{pointer}: the cluster has no gateway that takes SQL")
    assert len(ground.running(ground.here)) == 1


@pytest.mark.slow
def test_killed_at_any_moment_one_job_of_sql_runs(ground: Ground, seed: int) -> None:
    chance = random.Random(seed)
    flink, sql = ground.opened(ground.here), ground.sql()
    for number in range(5):
        submission = ground.submission(sql, f"run-{number}.orders")
        killed_while(
            lambda submission=submission: flink.submit(submission), chance.uniform(0.0, 1.2)
        )
        id = ground.begun(flink, submission)
        assert ground.running(ground.here) == [id] == [job_id(submission.tag)]
        assert ground.opened(ground.here).submit(submission) == id
        ground.here.cancelled(id)


@pytest.mark.slow
def test_the_gateway_itself_starts_no_second_job_under_one_id(ground: Ground) -> None:
    """Two who know nothing of each other, and neither looks before it asks."""
    sql = ground.sql()
    for number in range(2):
        other = ground.opened(ground.here, state_dir=str(ground.folder / f"state-{number}"))
        assert other.submit(ground.submission(sql)) == job_id(ground.submission(sql).tag)
    known = ground.running(ground.here)
    gateway = Gateway("flink", ground.gateway, {}, "x.sql", 60.0, 30.0)
    *before, last = statements_of(sql.read_text())
    host, _, port = ground.here.url.removeprefix("http://").partition(":")
    with gateway.session({"rest.address": host, "rest.port": port}) as session:
        for statement in before:
            session.run(statement)
        with pytest.raises(ClusterError, match="already been submitted"):
            session.run(last, {"$internal.pipeline.job-id": known[0], "execution.target": "remote"})
    assert ground.running(ground.here) == known


@pytest.mark.slow
def test_several_inserts_in_a_statement_set_are_one_job(ground: Ground) -> None:
    again = INSERT.rstrip().rstrip(";")
    for number, text in enumerate(
        (
            f"BEGIN STATEMENT SET;\n{again};\n{again};\nEND;",
            f"EXECUTE STATEMENT SET BEGIN\n{again}; -- so\n{again};\nEND;",
        )
    ):
        id = ground.begun(
            ground.opened(ground.here),
            ground.submission(ground.sql(BEFORE + text), f"set-{number}"),
        )
        assert ground.running(ground.here) == [id]
        ground.here.cancelled(id)


@pytest.mark.slow
def test_a_compiled_plan_has_uids_by_which_its_state_is_found_again(ground: Ground) -> None:
    plan = f"COMPILE AND EXECUTE PLAN '{ground.folder}/plan.json' FOR {INSERT}"
    flink = ground.opened(ground.here)
    id = ground.begun(flink, ground.submission(ground.sql(BEFORE + plan)))
    until(lambda: len(ground.written()) > 100)
    location = flink.savepoint(
        SavepointRequest("stop", id, (ground.folder / "taken").as_uri(), seconds_max=60.0)
    )
    uids = {
        operator["uid"]
        for operator in ground.said("inspect", location.removeprefix("file:"))["operators"]
    }
    assert any(re.fullmatch(r"\d+_over-aggregate", uid or "") for uid in uids), uids
    again = ground.submission(ground.sql(BEFORE + plan), "two", location)
    ground.begun(flink, again)
    assert flink.progress(again.tag).restored == location
    ground.goes_on(ground.here)


@pytest.mark.parametrize(
    ("sql", "fact", "hint"),
    [
        (
            BEFORE + INSERT.replace("FROM", "FORM"),
            r"line 29 \(INSERT INTO\): .*Encountered .* line 34",
            "mend",
        ),
        (
            BEFORE + INSERT.replace("orders;", "nowhere;"),
            "From line 34, column 6 .*'nowhere' not found",
            "create",
        ),
        (INSERT, "line 1 .*(Object|table) '.*(orders|numbered).*", "create each"),
        (
            BEFORE + INSERT.replace("  id\n", "  idd\n"),
            "line 33, column 3 .* Column 'idd' not found",
            "mend",
        ),
        (
            BEFORE.replace("datagen", "kafak") + INSERT,
            "Could not find any factory for identifier 'kafak'",
            "ADD JAR",
        ),
        (
            BEFORE + INSERT.replace(",\n  id\n", "\n"),
            r"Column types of query result and sink .* do not match",
            "",
        ),
        (
            "CREATE TABLE numbered (id BIGINT) WITH;" + INSERT,
            r"line 1 \(CREATE TABLE\): .*Encountered",
            "mend",
        ),
    ],
)
@pytest.mark.slow
def test_a_statement_that_is_wrong_is_told_in_a_line_with_a_way_out(
    ground: Ground, sql: str, fact: str, hint: str
) -> None:
    flink, submission = ground.opened(ground.here), ground.submission(ground.sql(sql))
    with pytest.raises(ClusterError) as raised:
        flink.submit(submission)
    assert re.search(fact, raised.value.fact), raised.value.fact
    assert "\n" not in raised.value.fact and hint in str(raised.value.hint)
    assert flink.find(submission.tag).state is JobState.ABSENT
    assert ground.running(ground.here) == []
    ground.sql()
    assert flink.submit(submission) == job_id(submission.tag)


@pytest.mark.slow
def test_a_savepoint_that_does_not_fit_is_told_and_the_mended_job_starts_under_the_same_tag(
    ground: Ground,
) -> None:
    flink, first = ground.opened(ground.here), ground.submission(ground.sql())
    id = ground.begun(flink, first)
    location = flink.savepoint(
        SavepointRequest("stop", id, (ground.folder / "taken").as_uri(), seconds_max=60.0)
    )
    plain = ground.sql(BEFORE + "INSERT INTO numbered SELECT id, id, id FROM orders;", "plain.sql")
    for fact, submission in {
        "Cannot find checkpoint or savepoint": ground.submission(
            ground.sql(), "two", f"{location}-gone"
        ),
        "Cannot map checkpoint/savepoint state for operator": ground.submission(
            plain, "two", location
        ),
    }.items():
        with pytest.raises(ClusterError, match=fact) as raised:
            flink.submit(submission)
        assert "\n" not in raised.value.fact and raised.value.hint is not None
        assert flink.find(submission.tag).state is JobState.ABSENT
    mended = ground.submission(ground.sql(), "two", location)
    assert ground.begun(flink, mended) != job_id(mended.tag)
    assert flink.progress(mended.tag).restored == location
    ground.goes_on(ground.here)


@pytest.mark.slow
def test_a_gateway_that_is_not_there_and_comes_back(ground: Ground) -> None:
    flink, submission = ground.opened(ground.here), ground.submission(ground.sql())
    ground.servers.kill("flink-sql", "gateway")
    with pytest.raises(ClusterError, match=f"{ground.gateway} does not answer") as raised:
        flink.submit(submission)
    assert '"sql_gateway" right' in str(raised.value.hint)
    assert flink.find(submission.tag).state is JobState.ABSENT
    ground.servers.up("flink-sql")
    assert ground.begun(flink, submission) == job_id(submission.tag)


@pytest.mark.slow
def test_a_gateway_that_does_not_reach_the_cluster_says_so(ground: Ground) -> None:
    """It tries for a minute."""
    nowhere = {"rest.address": "127.0.0.1", "rest.port": 9}
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"Connection refused: /127.0.0.1:9") as raised:
        ground.opened(ground.here, flink_configuration=nowhere).submit(
            ground.submission(ground.sql())
        )
    assert "rest.address" in str(raised.value.hint)
    assert time.monotonic() - began < 150


@pytest.mark.slow
def test_a_job_that_the_gateway_starts_elsewhere_is_cancelled_there(ground: Ground) -> None:
    host, _, port = ground.there.url.removeprefix("http://").partition(":")
    astray = ground.opened(
        ground.here, flink_configuration={"rest.address": host, "rest.port": port}
    )
    submission = ground.submission(ground.sql())
    with pytest.raises(ClusterError, match="on another cluster than that at"):
        astray.submit(submission)
    until(lambda: ground.there.ask(f"/jobs/{job_id(submission.tag)}")["state"] == "CANCELED")
    assert astray.find(submission.tag).state is JobState.ABSENT


@pytest.mark.slow
def test_an_older_flink_is_told_in_its_own_words(tmp_path: Path) -> None:
    with group(tmp_path / "older", "flink-1.20", "flink-sql-1.20") as servers:
        ground = Ground(servers, tmp_path, ("flink-1.20", "flink-1.20", "flink-sql-1.20"))
        flink = ground.opened(ground.here)
        id = ground.begun(flink, ground.submission(ground.sql()))
        assert flink.submit(ground.submission(ground.sql())) == id
        until(lambda: len(ground.written()) > 100)
        location = flink.savepoint(
            SavepointRequest("stop", id, (tmp_path / "taken").as_uri(), seconds_max=60.0)
        )
        again = ground.submission(ground.sql(), "two", location, parallelism=3)
        ground.begun(flink, again)
        assert flink.progress(again.tag).restored == location
        ground.goes_on(ground.here)
