"""Jobs whose operators send to each other: by the spec's dataflow they are stopped at one cut."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift import migration
from stateshift.cli.views import plan_text as render_plan
from stateshift.clusters.protocol import JobState, Submission
from stateshift.dataflow.cuts import cuts
from stateshift.dataflow.schedulers import fries
from stateshift.documents import plan as plan_facts
from stateshift.errors import (
    ClusterError,
    MissingFile,
    PlanError,
    SpecError,
    StateshiftError,
    TransientStorageError,
)
from stateshift.formats.marks import WAITING, encode_tag
from stateshift.formats.uid import directory_name
from stateshift.journal import StepStarted
from stateshift.migration import check_dataflow, cuts_of, decode_proposal, encode_proposal, waves
from stateshift.specification import Spec, parse_spec, to_plain_spec
from stateshift.specification.dataflow.document import to_plain
from stateshift.specification.dataflow.operators import Dataflow
from stateshift.specification.dataflow.parse import dataflow_of, parse_dataflow
from stateshift.testing.memory_storage import ProcessGone
from stateshift.world import Unwatched
from tests.cli.support import Outside, said
from tests.dataflow.random_dataflows import dataflows
from tests.migration.test_waves import FLOW as SHARED
from tests.migration.test_waves import asked, divided, going_on, made, running, told
from tests.support.checkpoints import Checkpoint
from tests.support.ground import Around, Ground

pytestmark = pytest.mark.row("IS-8", "F-8", "F-9")

ROOT = Path(__file__).resolve().parents[2]
FRAUD = parse_dataflow((ROOT / "configs/examples/payment-fraud.dataflow.json").read_text("utf-8"))


def flow(*edges: str, **jobs: str) -> dict[str, Any]:
    """`first="a, b"`: the job's operators."""
    operators = [
        {"name": name.strip(), "job": job}
        for job, names in jobs.items()
        for name in names.split(",")
    ]
    return {"operators": operators, "edges": list(edges)}


THROUGH = flow("a -> x -> c", first="a", second="b", third="c", elsewhere="x")


def opened(name: str) -> str:
    raise FileNotFoundError(2, "No such file or directory")


def read(dataflow: Any, **beside: Any) -> Spec:
    spec = asked(dataflow=dataflow, opened=opened, **beside)
    check_dataflow(spec)
    return spec


def complaints(dataflow: Any, **beside: Any) -> list[str]:
    with pytest.raises(SpecError) as refused:
        read(dataflow, **beside)
    return [f"{one.pointer}: {one.message}" for one in refused.value.complaints]


# ---- which jobs


@pytest.mark.parametrize(
    ("jobs", "expected", "between"),
    [
        (("features", "scoring"), [("features", "scoring")], [("replicate",)]),
        (("ingest", "scoring"), [("ingest", "scoring")], [("merchant features", "user features")]),
        (("scoring",), [], []),
        (
            ("ingest", "features", "scoring", "alerting"),
            [("ingest", "features", "scoring", "alerting")],
            [()],
        ),
    ],
)
def test_jobs_that_a_tuple_may_pass_are_stopped_at_one_cut(
    jobs: tuple[str, ...], expected: list[tuple[str, ...]], between: list[tuple[str, ...]]
) -> None:
    found = cuts(FRAUD, jobs)
    assert [cut.jobs for cut in found] == expected
    assert [cut.between for cut in found] == between


def test_jobs_that_nothing_leads_between_are_in_no_cut() -> None:
    assert cuts(dataflow_of(flow("a -> b", "c -> d", one="a, b", two="c, d")), ["one", "two"]) == ()


def test_a_blocking_operator_parts_what_comes_before_it_from_what_comes_after() -> None:
    said = flow("a -> sort -> b", one="a", two="b")
    said["operators"].append({"name": "sort", "kind": "blocking"})
    assert cuts(dataflow_of(said), ["one", "two"]) == ()


def test_a_job_whose_parts_hang_together_with_two_others_joins_them() -> None:
    found = cuts(
        dataflow_of(flow("a -> b1", "b2 -> c", one="a", two="b1, b2", three="c")),
        ["three", "one", "two"],
    )
    assert [cut.order for cut in found] == [(("one",), ("two",), ("three",))]
    assert set(found[0].joints) == {("a", "b1"), ("b2", "c")}


@settings(max_examples=200, deadline=None)
@given(dataflows(size_max=8, workers_max=2), st.data())
def test_a_cut_has_the_jobs_of_each_component_and_no_two_cuts_share_one(
    flow: Dataflow, data: st.DataObject
) -> None:
    jobs = [data.draw(st.sampled_from(["one", "two", "three", None])) for _ in flow.operators]
    operators = (replace(one, job=job) for one, job in zip(flow.operators, jobs, strict=True))
    known = replace(flow, operators=tuple(operators))
    names = ["one", "two", "three"]
    found = cuts(known, names)
    schedule = fries(known, [one.name for one in known.operators if one.job in names])
    for component in schedule.components:
        mine = {schedule.dataflow[name].job for name in component.operators} & set(names)
        assert len(mine) < 2 or [cut for cut in found if mine <= set(cut.jobs)], (
            "of one component, in one cut"
        )
    assert len({job for cut in found for job in cut.jobs}) == sum(len(cut.jobs) for cut in found)


@settings(max_examples=200, deadline=None)
@given(dataflows(size_max=8, workers_max=3))
def test_a_dataflow_is_what_its_document_says(flow: Dataflow) -> None:
    assert (
        dataflow_of(to_plain(flow)) == flow == dataflow_of(json.loads(json.dumps(to_plain(flow))))
    )


@pytest.mark.parametrize("readers", ["r", "rs"])
def test_topics_join_a_document_again(readers: str) -> None:
    operators = [
        {"name": "w", "writes": ["t"]},
        *({"name": name, "reads": ["t"]} for name in readers),
    ]
    joined = parse_dataflow(json.dumps({"operators": operators}))
    assert len(joined.edges) == 2 * len(readers) - 1
    assert to_plain(joined) == json.loads(json.dumps(to_plain(joined)))
    assert dataflow_of(to_plain(joined)) == joined


# ---- in a spec


def test_a_spec_carries_its_dataflow_with_it(tmp_path: Path) -> None:
    spec = read(THROUGH)
    assert parse_spec(json.dumps(to_plain_spec(spec))) == spec
    ground = made(tmp_path)
    proposal = ground.propose(spec)
    assert decode_proposal(json.loads(json.dumps(encode_proposal(proposal)))).spec == spec


@pytest.mark.parametrize("strategy", [None, "fluid", "optimised", "batched(1)"])
def test_jobs_of_one_cut_are_in_one_wave(strategy: str | None) -> None:
    spec = read(THROUGH, **({"strategy": strategy} if strategy else {}))
    assert [sorted(job.name for job in wave) for wave in waves(spec)] == [
        ["first", "third"],
        ["second"],
    ]


def test_one_of_them_alone_is_in_no_cut() -> None:
    assert cuts_of(read(THROUGH), ["first"]) == ()


def test_both_are_stopped_before_either_is_copied_and_the_third_runs_on_meanwhile(
    tmp_path: Path,
) -> None:
    ground = made(tmp_path)
    going_on(ground)
    assert ground.apply(read(THROUGH)).state == "finished"
    begun = [
        one.step.split("/")[0] if one.step != "halt/stop" else "stop"
        for one in told(ground, StepStarted)
    ]
    first, other, last = (place for place, step in enumerate(begun) if step == "stop")
    assert first < other < begun.index("copy"), "first and third"
    assert "confirm" in begun[other:last], "second, when they run again"


def test_a_run_goes_by_what_was_said_when_it_began(tmp_path: Path) -> None:
    ground = made(tmp_path)
    going_on(ground)
    ground.apply(read(THROUGH))
    assert cuts_of(migration.spec_of(ground.workdir())) == cuts_of(read(THROUGH))


@pytest.mark.parametrize(
    ("dataflow", "beside", "expected"),
    [
        (
            flow("a -> b", first="a", second="b", third_="c"),
            {},
            "/dataflow: no operator of the dataflow is of the job 'third', did you mean 'third_'?",
        ),
        (
            flow("a -> b -> a", first="a", second="b", third="c"),
            {},
            "/dataflow/edges/0: a cycle: a -> b -> a",
        ),
        (
            flow("a -> z", first="a", second="b", third="c"),
            {},
            "/dataflow/edges/0: no operator 'z'",
        ),
        (
            {**THROUGH, "operatrs": []},
            {},
            "/dataflow/operatrs: unknown key 'operatrs', did you mean 'operators'?",
        ),
        ("flow.json", {}, "/dataflow: 'flow.json' cannot be read: No such file or directory"),
        (
            THROUGH,
            {"waves": [["first"], ["second", "third"]]},
            "/waves: 'first' and 'third' change at one cut, and are in two waves",
        ),
    ],
)
def test_a_dataflow_that_does_not_fit_is_refused_where_it_stands(
    dataflow: Any, beside: dict[str, Any], expected: str
) -> None:
    assert complaints(dataflow, **beside) == [expected]


def test_what_is_no_dataflow_is_refused_by_the_spec() -> None:
    for wrong in (3, ["a -> b"], True):
        with pytest.raises(SpecError) as refused:
            asked(dataflow=wrong)
        assert refused.value.complaints[0].pointer == "/dataflow"


# ---- who reads what others write is stopped behind them


def reading(
    ground: Ground, end: int, *, after: int = 1, dies: bool = False, **more: Any
) -> tuple[Any, list[str]]:
    """Applies a run whose third job reads `topic` up to 20, and has `end` to go to: it gets there,
    or dies, after so many looks. What was said, and the order in which things happened.
    """
    happened: list[str] = []

    def ask(kafka: Any, topics: Any) -> Any:
        alive = "third" if "first" not in alive_at_source(ground) else "both"
        happened.append(f"asked while {alive} run")
        return {"topic": {0: (0, end)}}

    def sleep() -> None:
        happened.append("slept")
        if happened.count("slept") == after and "third" in alive_at_source(ground):
            die(ground, "file:///here/third") if dies else commit_next(ground, "file:///here/third")

    ground.clock.on_sleep = sleep
    ground.cluster._on_stop = lambda request: happened.append(f"stopped {request.job}")
    ground.cluster._on_start = lambda submission: commit_next(ground, submission.location)
    meter = Said()
    spec = read(THROUGH, kafka={"bootstrap_servers": "b:1"}, **more)
    adapters = replace(ground.adapters, ask_topics=ask, meter=meter)
    proposal = migration.propose(spec, adapters, ground.workdir("planning"))
    happened.clear()
    try:
        return migration.apply(proposal, "run-run", ground.workdir(), adapters), [
            *happened,
            *meter.lines,
        ]
    except StateshiftError as error:
        return error, [*happened, *meter.lines]


def commit_next(ground: Ground, location: str) -> None:
    batch = 1 + max(
        int(path.split("/")[1]) for path in ground.held(location) if path.startswith("commits/")
    )
    files = Checkpoint(batches=batch + 1).files()
    deltas = (f"state/0/{shard}/{batch + 1}.delta" for shard in range(2))
    for path in (f"offsets/{batch}", *deltas, f"commits/{batch}"):
        ground.put(f"{location}/{path}", files[path])


def die(ground: Ground, location: str) -> None:
    jobs = ground.cluster.jobs
    place = next(n for n, job in enumerate(jobs) if job.location == location)
    jobs[place] = replace(jobs[place], status=replace(jobs[place].status, state=JobState.FAILED))


def alive_at_source(ground: Ground) -> set[str]:
    return {place.removeprefix("here/") for place in running(ground) if place.startswith("here/")}


class Said(Unwatched):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_a_reader_is_stopped_when_it_has_read_what_was_written_before(tmp_path: Path) -> None:
    report, happened = reading(made(tmp_path), 30, after=3)
    assert report.state == "finished"
    mine = [one for one in happened if one != "stopped second"]
    looks = [
        "asked while both run",
        "stopped first",
        "asked while third run",
        "slept",
        "slept",
        "slept",
    ]
    assert mine[:7] == [*looks, "stopped third"]
    assert "third is stopped when it has read what there is (10 records)" in happened


def test_a_reader_that_has_read_all_is_stopped_at_once(tmp_path: Path) -> None:
    report, happened = reading(made(tmp_path), 20)
    assert report.state == "finished"
    assert happened[:4] == [
        "asked while both run",
        "stopped first",
        "asked while third run",
        "stopped third",
    ]


def test_a_reader_that_dies_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    ground = made(tmp_path)
    report, happened = reading(ground, 30, dies=True)
    assert report.state == "finished"
    assert "third has ended before it had read all: 10 records are left for later" in happened


def test_a_reader_that_does_not_get_there_stops_the_run_and_a_resume_waits_again(
    tmp_path: Path,
) -> None:
    ground = made(tmp_path)
    error, happened = reading(ground, 30, after=10**6, stop={"seconds_max": 5})
    assert isinstance(error, ClusterError)
    assert (
        "third still has 10 records to read, 5 s after what writes them was stopped" in error.fact
    )
    assert "stopped third" not in happened
    assert running(ground) >= {"here/third", "here/second"}
    commit_next(ground, "file:///here/third")
    adapters = replace(ground.adapters, ask_topics=lambda kafka, topics: {"topic": {0: (0, 30)}})
    assert migration.resume(ground.workdir(), adapters).state == "finished"
    assert running(ground) == {"there/first", "there/second", "there/third"}


def test_a_run_that_waited_in_vain_is_taken_back(tmp_path: Path) -> None:
    ground = made(tmp_path)
    reading(ground, 30, after=10**6, stop={"seconds_max": 5})
    assert ground.rollback().state == "rolled-back"
    assert running(ground) == {"here/first", "here/second", "here/third"}


def test_nobody_waits_where_nobody_can_be_asked(tmp_path: Path) -> None:
    ground, meter = made(tmp_path), Said()
    going_on(ground)
    adapters = replace(ground.adapters, meter=meter)
    proposal = migration.propose(read(THROUGH), adapters, ground.workdir("planning"))
    assert migration.apply(proposal, "run-run", ground.workdir(), adapters).state == "finished"
    assert (
        "third is stopped with the others: nobody here can ask whether it has read all by then"
        in meter.lines
    )


def test_jobs_that_feed_each_other_are_stopped_together() -> None:
    (cut,) = cuts(
        dataflow_of(flow("a1 -> b1 -> a2 -> c", one="a1, a2", two="b1", three="c")),
        ["three", "two", "one"],
    )
    assert cut.order == (("two", "one"), ("three",))
    assert cut.ring == ("two", "one")


def test_jobs_that_feed_each_other_in_a_ring_of_three_are_stopped_together() -> None:
    known = flow(
        "a1 -> b1",
        "b2 -> c1",
        "c2 -> a2 -> d",
        one="a1, a2",
        two="b1, b2",
        three="c1, c2",
        four="d",
    )
    (cut,) = cuts(dataflow_of(known), ["one", "two", "three", "four"])
    assert cut.order == (("one", "two", "three"), ("four",))
    assert cut.ring == ("one", "two", "three")


def test_jobs_of_one_application_have_one_place_in_the_order() -> None:
    known = dataflow_of(flow("a -> c -> b", left="a", right="b", third="c"))
    assert [cut.order for cut in cuts(known, ["left", "right", "third"])] == [
        (("left",), ("third",), ("right",))
    ]
    (cut,) = cuts(known, ["left", "right", "third"], [["left", "right"]])
    assert (cut.order, cut.ring) == ((("left", "right", "third"),), ("left", "right", "third"))
    (cut,) = cuts(
        dataflow_of(flow("a -> b", "b -> c", left="a", right="b", third="c")),
        ["third", "right", "left"],
        [["left", "right"]],
    )
    assert (cut.order, cut.ring) == ((("right", "left"), ("third",)), ())
    alone = dataflow_of(flow("a -> c", left="a", right="b", third="c"))
    (cut,) = cuts(alone, ["left", "right", "third"], [["left", "right"]])
    assert cut.order == (("left", "right"), ("third",)), "who stops the one stops the other"


BROKERS = {"bootstrap_servers": "b:1"}


def applied(ground: Ground, spec: Spec, ask: Any = None) -> tuple[Any, list[str], list[str]]:
    """What came of it, who was stopped when, and what was said."""
    meter, happened = Said(), []
    ground.cluster._on_stop = lambda request: happened.append(f"stopped {request.job}")
    ground.cluster._on_start = ground.cluster._on_start or (
        lambda one: commit_next(ground, one.location)
    )
    ask = ask or (lambda kafka, topics: {"topic": {0: (0, 20)}})
    asked = replace(ground.adapters, ask_topics=ask, meter=meter)
    proposal = migration.propose(spec, asked, ground.workdir("planning"))
    meter.lines.clear()
    try:
        return migration.apply(proposal, "run-run", ground.workdir(), asked), happened, meter.lines
    except StateshiftError as error:
        return error, happened, meter.lines


def test_brokers_that_do_not_answer_stop_nobody(tmp_path: Path) -> None:
    ground = made(tmp_path)

    def ask(kafka: Any, topics: Any) -> Any:
        raise TransientStorageError("b:1 does not answer as Kafka does", location="b:1")

    error, happened, _ = applied(ground, read(THROUGH, kafka=BROKERS, waive=["lost-offsets"]), ask)
    assert isinstance(error, TransientStorageError)
    assert "nothing was stopped" in str(error.hint)
    assert happened == [] and alive_at_source(ground) == {"first", "second", "third"}


def test_brokers_that_go_away_meanwhile_are_asked_again(tmp_path: Path) -> None:
    ground, times = made(tmp_path), []

    def ask(kafka: Any, topics: Any) -> Any:
        times.append(len(alive_at_source(ground)))
        if times.count(2) in (1, 2):
            raise TransientStorageError("b:1 does not answer as Kafka does", location="b:1")
        return {"topic": {0: (0, 20)}}

    report, happened, _ = applied(ground, read(THROUGH, kafka=BROKERS), ask)
    assert report.state == "finished"
    assert times.count(2) == 3
    assert happened[:2] == ["stopped first", "stopped third"]


@pytest.mark.parametrize("what", ["offsets/", "listing"])
def test_a_look_that_finds_nothing_is_no_proof_that_all_was_read(tmp_path: Path, what: str) -> None:
    ground, looks = made(tmp_path), []

    class Hiding(Around):
        """After the first look behind the stop, what it is asked for is gone, three times."""

        def _hide(self, path: str) -> None:
            if (
                "here/third" in self.inner.location
                and ground.clock.waits
                and len(looks) < 3
                and path.startswith(what)
            ):
                looks.append(path)
                raise MissingFile("gone", location=self.inner.location)

        def list(self, *words: Any) -> Any:
            self._hide("listing")
            return self.inner.list(*words)

        def read(self, path: str, *words: Any) -> Any:
            self._hide(path)
            return self.inner.read(path, *words)

        def chunks(self, path: str, *words: Any) -> Any:
            self._hide(path)
            return self.inner.chunks(path, *words)

    def sleep() -> None:
        if len(ground.clock.waits) == 6:
            commit_next(ground, "file:///here/third")

    ground.wrap = Hiding
    ground.clock.on_sleep = sleep
    spec = read(THROUGH, kafka=BROKERS)
    report, happened, lines = applied(ground, spec, lambda kafka, topics: {"topic": {0: (0, 30)}})
    assert report.state == "finished" and len(looks) == 3
    assert len(ground.clock.waits) >= 6, "until it had read all"
    assert happened[:2] == ["stopped first", "stopped third"]
    assert "third is stopped when it has read what there is (10 records)" in lines


def test_a_cluster_that_cannot_tell_whether_a_job_runs_does_not_say_that_it_has_ended(
    tmp_path: Path,
) -> None:
    ground = made(tmp_path)
    find = ground.cluster.find_source

    def cannot_tell(request: Any) -> Any:
        status = find(request)
        return replace(status, state=JobState.UNKNOWN) if status.state.alive else status

    ground.cluster.find_source = cannot_tell  # type: ignore[method-assign]
    ground.clock.sleep = lambda seconds: commit_next(ground, "file:///here/third")  # type: ignore[method-assign]
    _, _, lines = applied(
        ground, read(THROUGH, kafka=BROKERS), lambda kafka, topics: {"topic": {0: (0, 30)}}
    )
    assert "third is stopped when it has read what there is (10 records)" in lines
    assert not [line for line in lines if "has ended" in line]


def test_partitions_that_a_reader_does_not_know(tmp_path: Path) -> None:
    """One that was there before is perhaps another's; one that comes meanwhile is found in the
    next batch.
    """
    _, _, lines = applied(
        made(tmp_path / "a"),
        read(THROUGH, kafka=BROKERS),
        lambda kafka, topics: {"topic": {0: (0, 20), 1: (0, 500)}},
    )
    assert "not waited for: topic/1, of which third has read nothing so far" in lines
    ground = made(tmp_path / "b")

    def ask(kafka: Any, topics: Any) -> Any:
        both = len(alive_at_source(ground)) == 3
        return {"topic": {0: (0, 20)} if both else {0: (0, 20), 1: (0, 500)}}

    error, happened, _ = applied(ground, read(THROUGH, kafka=BROKERS, stop={"seconds_max": 5}), ask)
    assert "third still has 500 records to read" in str(error)
    assert happened == ["stopped first"]


def test_what_comes_up_early_does_so_before_anybody_is_stopped(tmp_path: Path) -> None:
    ground = made(tmp_path)

    def start(one: Submission) -> None:
        if one.location == "file:///there/third":
            raise ClusterError("no room for another application", cluster="ours", job="third")
        ground.put(f"{one.location}/{WAITING}", encode_tag(one.tag))

    ground.cluster._on_start = start
    error, happened, _ = applied(
        ground, read(THROUGH, kafka=BROKERS, submit={"command": "go", "prepare": True})
    )
    assert "no room for another application" in str(error)
    assert happened == []


def test_whoever_resumes_behind_the_first_stop_waits_for_no_window(tmp_path: Path) -> None:
    ground = made(tmp_path)
    now = datetime.fromtimestamp(ground.clock.time, UTC)
    window = f"{now - timedelta(minutes=5):%H:%M}-{now + timedelta(minutes=2):%H:%M} UTC"
    warm = {"mode": "warm", "cutover": window, "stop": {"seconds_max": 300}}
    spec = read(THROUGH, kafka=BROKERS, on_failure="stop", **warm)
    error, happened, _ = applied(ground, spec, lambda kafka, topics: {"topic": {0: (0, 30)}})
    assert "third still has 10 records to read" in str(error) and happened[:1] == ["stopped first"]
    commit_next(ground, "file:///here/third")
    began = ground.clock.time

    def seen(request: Any) -> None:
        raise ProcessGone(request.job)

    ground.cluster._on_stop = seen
    adapters = replace(ground.adapters, ask_topics=lambda kafka, topics: {"topic": {0: (0, 30)}})
    with pytest.raises(ProcessGone, match="third"):
        migration.resume(ground.workdir(), adapters)
    assert ground.clock.time - began < 60


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        (
            ("b -> a", "b -> c"),
            ["asked while C and left run", "stopped left", "asked while C run", "stopped C"],
        ),
        (
            ("a -> b", "b -> c"),
            ["asked while C and left run", "stopped left", "asked while C run", "stopped C"],
        ),
        (
            ("c -> a",),
            ["asked while C and left run", "stopped C", "asked while left run", "stopped left"],
        ),
    ],
)
def test_jobs_that_share_an_application_stop_once_and_read_out_together(
    tmp_path: Path, edges: tuple[str, ...], expected: list[str]
) -> None:
    ground, happened, folders = Ground(tmp_path), [], (directory_name("A"), "other")
    for prefix in folders:
        ground.write(location=SHARED, prefix=prefix)
    ground.write(location="file:///here/C")
    ground.cluster.run("left", SHARED)
    ground.cluster.run("C", "file:///here/C")
    plain = divided(kafka=BROKERS, dataflow=flow(*edges, left="a", right="b", C="c"))
    plain["jobs"].append(
        {"name": "C", "checkpoint_location": "/here/C", "remote_location": "/there/C"}
    )
    spec = parse_spec(json.dumps(plain))

    def ask(kafka: Any, topics: Any) -> Any:
        alive = sorted("left" if place == "flow" else place for place in alive_at_source(ground))
        happened.append(f"asked while {' and '.join(alive)} run")
        return {"topic": {0: (0, 20)}}

    def started(one: Submission) -> None:
        parts = [part for part in folders if ground.held(f"{one.location}/{part}")] or [""]
        for part in parts:
            commit_next(ground, f"{one.location}/{part}".rstrip("/"))

    ground.cluster._on_stop = lambda request: happened.append(f"stopped {request.job}")
    ground.cluster._on_start = started
    adapters = replace(ground.adapters, ask_topics=ask)
    proposal = migration.propose(spec, adapters, ground.workdir("planning"))
    happened.clear()
    assert migration.apply(proposal, "run-run", ground.workdir(), adapters).state == "finished"
    assert happened[:4] == expected


# ---- on the command line


def spec_beside(folder: Path, dataflow: Any) -> str:
    names = ("features", "scoring", "reports")
    jobs = [
        {
            "name": name,
            "checkpoint_location": f"hdfs://here:8020/{name}",
            "remote_location": f"hdfs://there:8020/{name}",
        }
        for name in names
    ]
    path = folder / "spec.json"
    path.write_text(
        json.dumps({"version": 1, "engine": "spark", "dataflow": dataflow, "jobs": jobs})
    )
    return str(path)


def outside() -> Outside:
    found = Outside()
    for name in ("features", "scoring", "reports"):
        Checkpoint().write(found.disk.open(f"hdfs://here:8020/{name}"))
    return found


def test_a_plan_says_which_jobs_are_stopped_at_one_cut(tmp_path: Path) -> None:
    plan = json.loads((ROOT / "configs/examples/payment-fraud.dataflow.json").read_text("utf-8"))
    plan["operators"].append({"name": "report", "job": "reports"})
    (tmp_path / "fraud.json").write_text(json.dumps(plan))
    spec = spec_beside(tmp_path, "fraud.json")
    found = outside().run("plan", spec)
    assert found.code == 0, found.err
    assert "together, phase by phase: features, scoring" in found.out
    assert (
        "to be stopped at one cut: features, then scoring (a tuple may pass merchant "
        "features -> join features, "
        "user features -> join features)"
    ) in " ".join(found.out.split())
    document = outside().run("plan", spec, "--json").document
    assert document["waves"] == [["features", "scoring"], ["reports"]]
    assert [cut["jobs"] for cut in document["cuts"]] == [["features", "scoring"]]


def test_an_operator_in_between_that_does_not_move_is_told(tmp_path: Path) -> None:
    dataflow = flow("a -> x -> b", features="a", scoring="b", reports="r", model="x")
    told = outside().run("plan", spec_beside(tmp_path, dataflow)).out
    assert told.split("to be stopped at one cut: ")[1].splitlines()[:2] == [
        "features, then scoring",
        (
            "  between them, in jobs that do not move: x; at the cut they hold what the old jobs "
            "wrote"
        ),
    ]


def test_a_plan_says_whom_it_stops_without_asking(tmp_path: Path) -> None:
    ground = made(tmp_path)
    ring = flow("a1 -> b -> a2", "a2 -> c", first="a1, a2", second="b", third="c")
    (cut,) = plan_facts.plan_facts(ground.propose(read(ring))).cuts
    assert cut.order == (("first", "second"), ("third",))
    assert (cut.stops, cut.ring, cut.blind) == (
        ("first", "second", "third"),
        ("first", "second"),
        ("third",),
    )
    adapters = replace(ground.adapters, ask_topics=lambda kafka, topics: {"topic": {0: (0, 20)}})
    proposal = migration.propose(read(ring, kafka=BROKERS), adapters, ground.workdir("planning"))
    (cut,) = plan_facts.plan_facts(proposal).cuts
    assert cut.blind == ()
    facts = plan_facts.plan_facts(ground.propose(read(ring)))
    for shown in (render_plan.proposal, render_plan.brief):
        (told,) = [str(block) for block in shown(facts) if " one cut" in str(block)]
        assert "'stopped at one cut: first and second, then third" in told


def test_one_job_of_a_cut_is_not_moved_alone(tmp_path: Path) -> None:
    ground = made(tmp_path)
    for only in ("first", "third"):
        with pytest.raises(PlanError, match="by the spec's dataflow they move together"):
            migration.propose(read(THROUGH), ground.adapters, ground.workdir("planning"), [only])
    assert {
        plan.job
        for plan in migration.propose(
            read(THROUGH), ground.adapters, ground.workdir("p"), ["second"]
        ).plans
    }
    plans = migration.propose(
        read(THROUGH), ground.adapters, ground.workdir("p"), ["third", "first"]
    ).plans
    assert {plan.job for plan in plans} == {"first", "third"}
    with pytest.raises(SpecError, match="has no job 'secnd', did you mean 'second'"):
        migration.propose(read(THROUGH), ground.adapters, ground.workdir("planning"), ["secnd"])


def test_what_a_dataflow_names_is_looked_for_beside_it(tmp_path: Path) -> None:
    files = {
        "flows/d.json": json.dumps(
            {"jobs": [{"name": name, "plan": "p.json"} for name in ("first",)]}
        ),
        "flows/p.json": json.dumps(
            {
                "jid": "0" * 32,
                "name": "p",
                "plan": {"nodes": [{"id": "1", "description": "Source: x", "parallelism": 1}]},
            }
        ),
    }
    asked_for = []

    def brought(name: str) -> str:
        asked_for.append(name)
        return files[name]

    spec = asked("first", dataflow="flows/d.json", opened=brought)
    assert asked_for == ["flows/d.json", "flows/p.json"]
    assert spec.dataflow


def test_a_dataflow_that_is_not_there_is_told_with_the_spec(tmp_path: Path) -> None:
    found = said("plan", spec_beside(tmp_path, "nowhere.json"), "--json")
    assert found.code == 2
    assert "nowhere.json" in json.dumps(found.document)
    (tmp_path / "nowhere.json").write_text('{"operators": [{"name": "a"}], "edges": ["a -> b"]}')
    found = said("plan", spec_beside(tmp_path, "nowhere.json"))
    assert found.code == 2
    assert "nowhere.json: /edges/0" in found.err
    (tmp_path / "nowhere.json").write_bytes(b"\xff\xfe")
    assert said("plan", spec_beside(tmp_path, "nowhere.json")).code == 2
