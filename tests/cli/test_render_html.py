"""The report's page, read as a browser would, from values and from runs."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift import migration
from stateshift.cli.views.run_html import page
from stateshift.cli.views.run_html_curves import Axis
from stateshift.cli.views.units import number, size, span
from stateshift.documents.run import RunFacts
from stateshift.errors import PlanError
from stateshift.plan import PHASES
from stateshift.report import (
    FailureReport,
    JobReport,
    PhaseReport,
    Report,
    RoundReport,
    SteeredReport,
)
from stateshift.workdir import Workdir
from tests.cli.support import Outside, with_checkpoint, write_spec
from tests.cli.test_commands import Failing
from tests.support.living import LivingGround

COLD = (
    PhaseReport("halt", 2.0, 2.0, 2, 2, 0, 0),
    PhaseReport("copy", 4.0, 6.0, 12, 12, 3000, 3 << 20),
    PhaseReport("publish", 10.0, 1.0, 1, 1, 4, 900),
    PhaseReport("confirm", 11.0, 4.0, 1, 1, 0, 0),
)
JOB = JobReport(
    "orders",
    "finished",
    COLD,
    3004,
    (3 << 20) + 900,
    13.0,
    "halt",
    1_200_000,
    False,
    (),
    (),
    downtime_start=2.0,
)
REPORT = Report("r1", "finished", 16.0, 13.0, COLD, (JOB,), (), None, began=1_772_000_000.0)


def warm(rounds: int, every: float = 50.0) -> Report:
    """Each round takes a half of `every`, and then the job is stopped."""
    told = tuple(
        RoundReport(n, (n - 1) * every, every / 2, 10 + n, 1000 * n, n, 70 * n, n / 4)
        for n in range(1, rounds + 1)
    )
    moved = tuple(replace(phase, start=rounds * every + phase.start) for phase in COLD)
    bundled = (
        PhaseReport("round 1", 0.0, 25.0, 1, 1, 11, 1000),
        PhaseReport("rounds", 50.0, 50.0, 1, 1, 12, 2000),
    )
    job = replace(
        JOB,
        phases=(*bundled, *moved),
        rounds=told,
        downtime_without_rounds=38.0,
        downtime_start=rounds * every + 2.0,
    )
    steered = (
        SteeredReport(10.0, "throttle", "as fast as it goes"),
        SteeredReport(60.0, "cutover", "now"),
    )
    return replace(REPORT, seconds=rounds * every + 16.0, jobs=(job,), steered=steered)


class Page(HTMLParser):
    """What a browser finds: elements that are closed, tables below their heads, everything that
    can be read.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.heads: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []
        body = text[text.index("<body") : text.index("</html>")]
        self.body = ElementTree.fromstring(body)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag in ("h1", "h2", "h3"):
            self.heads.append("")
        if tag == "table":
            self.rows: list[list[str]] = []
            self.tables[self.heads[-1]] = self.rows
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words.append(data)
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.heads[-1] += data
        if "svg" not in self.open and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data

    @property
    def told(self) -> str:
        return " ".join(self.words)

    @property
    def pictures(self) -> list[Element]:
        return [svg for svg in self.body.iter("svg") if svg.get("class") == "picture"]


def of(told: Report) -> Page:
    return Page(page(RunFacts(told, "w")))


def classed(picture: Element, name: str) -> list[Element]:
    return [one for one in picture.iter() if name in (one.get("class") or "").split()]


def share(element: Element, name: str) -> float:
    value = element.get(name) or ""
    assert value.endswith("%")
    return float(value[:-1]) / 100


# ---- numbers


def test_the_head_has_what_everybody_asks_for() -> None:
    told = of(warm(3)).told
    for said in (
        "r1",
        "orders",
        "finished",
        span(13.0),
        span(166.0),
        span(38.0),
        "1,200,000 entries",
        "3,004 files",
        "from 2026-02-25 06:13:20",
        "06:16:06 UTC",
        "5.9 KiB copied in 3 rounds",
    ):
        assert said in told


def test_every_phase_is_a_row_with_its_numbers() -> None:
    rows = of(REPORT).tables["Phases"]
    assert rows[0] == ["phase", "begun at", "took", "steps", "files", "size", "begun at (UTC)"]
    assert rows[2] == ["copy", "4.0 s", "6.0 s", "12", "3,000", "3.0 MiB", "06:13:24"]
    assert [row[0] for row in rows[1:]] == [phase.name for phase in COLD]


def test_every_round_is_a_row_with_what_it_copied_and_what_it_left() -> None:
    told = warm(11)
    rows = of(told).tables["Rounds, while the job ran"]
    assert rows[1:] == [
        [
            number(one.number),
            span(one.start),
            span(one.seconds),
            number(one.files),
            size(one.bytes),
            number(one.left_files or 0),
            size(one.left_bytes or 0),
            span(one.left_seconds or 0),
        ]
        for one in told.jobs[0].rounds
    ]


def test_what_nobody_looked_at_is_a_dash_and_not_a_nought() -> None:
    told = warm(2)
    rounds = tuple(
        replace(one, left_files=None, left_bytes=None, left_seconds=None)
        for one in told.jobs[0].rounds
    )
    found = of(replace(told, jobs=(replace(told.jobs[0], rounds=rounds),)))
    assert [row[5:] for row in found.tables["Rounds, while the job ran"][1:]] == [
        ["-", "-", "-"]
    ] * 2
    assert not classed(found.pictures[0], "left")


def test_whoever_steered_is_in_a_table_and_a_numbered_line_of_the_picture() -> None:
    found = of(warm(3))
    assert found.tables["Steered"][1:] == [
        ["1", "10 s", "06:13:30", "throttle", "as fast as it goes"],
        ["2", "1 min 00 s", "06:14:20", "cutover", "now"],
    ]
    marks = classed(found.pictures[0], "mark")
    assert [share(mark, "x1") for mark in marks] == pytest.approx([10 / 166, 60 / 166], abs=1e-4)
    assert [one.text for one in classed(found.pictures[0], "steer")] == ["1", "2"]


# ---- pictures


def test_bars_lie_where_their_phases_were_at_work() -> None:
    bars = classed(of(REPORT).pictures[0], "bar")
    assert [share(bar, "x") for bar in bars] == pytest.approx(
        [p.start / 16 for p in COLD], abs=1e-4
    )
    assert [share(bar, "width") for bar in bars] == pytest.approx(
        [p.seconds / 16 for p in COLD], abs=1e-4
    )


def test_the_downtime_is_a_band_through_the_whole_picture() -> None:
    (picture,) = of(REPORT).pictures
    (band,) = classed(picture, "band")
    assert (share(band, "x"), share(band, "width")) == pytest.approx((2 / 16, 13 / 16), abs=1e-4)
    areas = [one for one in picture.iter("svg") if one is not picture]
    lowest = max(float(one.get("y") or 0) + float(one.get("height") or 0) for one in areas)
    assert float(band.get("y") or 0) + float(band.get("height") or 0) == lowest


def test_a_downtime_that_is_a_small_part_of_the_run_is_shown_closer_and_counted_from_its_begin() -> (
    None
):
    whole, near = of(warm(100)).pictures
    assert len(classed(near, "bar")) == len(COLD)
    assert (
        share(classed(near, "band")[0], "width")
        > 0.8
        > 0.01
        > share(classed(whole, "band")[0], "width")
    )
    ticks = [one.text for one in classed(near, "tick")]
    assert ticks == ["0", "5", "10", "seconds since the job was down"]
    assert len(of(REPORT).pictures) == 1


def test_what_came_is_added_up_to_all_of_it_evenly_within_each_round() -> None:
    told = warm(2)  # 1,000 bytes until 25 s, 2,000 from 50 s to 75 s, the rest with the job down
    picture = of(told).pictures[0]
    (curve,) = classed(picture, "curve")[:1]
    assert curve.get("class") == "curve copied"
    points = [tuple(map(float, point.split(","))) for point in (curve.get("points") or "").split()]
    total = 3000 + (3 << 20) + 900
    at = lambda seconds: 100 * seconds / 116  # noqa: E731
    heights = {25: 1000, 50: 1000, 75: 3000, 104: 3000, 110: 3000 + (3 << 20), 116: total}
    for seconds, value in heights.items():
        assert any(
            (x, y) == pytest.approx((at(seconds), 64 * (1 - value / total)), abs=0.06)
            for x, y in points
        )
    assert size(total) in [one.text for one in classed(picture, "small")]


def test_what_was_left_is_steps_that_end_when_it_was_copied_with_the_job_down() -> None:
    curve = classed(of(warm(3)).pictures[0], "left")[1]  # the area below it is the first
    points = [tuple(map(float, point.split(","))) for point in (curve.get("points") or "").split()]
    left = [(25, 70), (75, 70), (75, 140), (125, 140), (125, 210), (160, 210), (160, 0)]
    expected = [
        pytest.approx((100 * at / 166, 64 * (1 - value / 210)), abs=0.06) for at, value in left
    ]
    assert points == expected


def test_a_run_without_rounds_has_no_curves_of_what_was_left() -> None:
    found = of(REPORT)
    assert classed(found.pictures[0], "copied") and not classed(found.pictures[0], "left")
    assert list(found.tables) == ["Phases"]


@pytest.mark.parametrize(
    ("end", "ticks", "unit"),
    [
        (0.3, ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"], "seconds"),
        (94.0, ["0", "20", "40", "60", "80"], "seconds"),
        (600.0, ["0", "2", "4", "6", "8", "10"], "minutes"),
        (5 * 3600.0, ["0", "1", "2", "3", "4", "5"], "hours"),
        (40 * 3600.0, ["0", "12", "24", "36"], "hours"),
        (20 * 86400.0, ["0", "5", "10", "15", "20"], "days"),
    ],
)
def test_ticks_are_round_numbers_of_the_unit_that_fits(
    end: float, ticks: list[str], unit: str
) -> None:
    axis = Axis(0.0, end)
    assert ([told for _, told in axis.ticks()], axis.unit[0]) == (ticks, unit)


def test_each_of_several_jobs_has_a_picture_of_its_own_time_and_a_line_in_the_overview() -> None:
    later = replace(
        JOB,
        job="clicks",
        phases=tuple(replace(p, start=p.start + 100) for p in COLD),
        downtime_start=102.0,
    )
    found = of(replace(REPORT, seconds=116.0, jobs=(JOB, later)))
    overview = found.tables["Jobs"]
    assert [row[:5] for row in overview[1:]] == [
        ["orders", "finished", "3,004", size(JOB.bytes), "13 s"],
        ["clicks", "finished", "3,004", size(JOB.bytes), "13 s"],
    ]
    assert [share(classed(one, "bar")[0], "x") for one in found.pictures] == [
        pytest.approx(2 / 15, abs=1e-4),
        0.0,
    ]


@pytest.mark.long
def test_hundreds_of_rounds_stay_readable_and_small() -> None:
    for rounds in (500, 5000):
        text = page(RunFacts(warm(rounds), "w"))
        assert len(text.encode()) < 200_000
        found = Page(text)
        rows = found.tables["Rounds, while the job ran"]
        assert [row[0] for row in rows] == [
            "round",
            "1",
            f"{number(rounds - 11)} more between, in report.json",
            *(number(n) for n in range(rounds - 9, rounds + 1)),
        ]
        bars = classed(found.pictures[0], "round")
        assert 100 < len(bars) < 500
        told = " ".join(bar.findtext("title") or "" for bar in bars)
        assert "rounds 1-" in told and f"-{rounds}:" in told


# ---- ends


def test_a_failure_says_why_where_and_how_to_go_on_and_that_the_job_is_down_still() -> None:
    torn = (COLD[0], replace(COLD[1], done=3))
    job = replace(JOB, state="unfinished", phases=torn, downtime_seconds=None, downtime_from=None)
    failure = FailureReport(
        "StorageError", "no space left at hdfs://me:secret@there/x", "make room", 6, "copy/3"
    )
    found = of(replace(REPORT, state="failed", jobs=(job,), failure=failure))
    assert (
        "stopped by StorageError in step copy/3" in found.told and "hint: make room" in found.told
    )
    assert (
        "not over" in found.told
        and "orders was stopped 2.0 s after the run began (06:13:22 UTC)" in found.told
    )
    assert "secret" not in found.told
    assert found.tables["Phases"][2][3] == "3 of 12"
    assert share(classed(found.pictures[0], "band")[0], "width") == pytest.approx(14 / 16, abs=1e-4)


def test_what_was_taken_back_is_shown_as_undone_with_what_was_left() -> None:
    phases = tuple(replace(phase, done=0, files=0, bytes=0) for phase in COLD)
    job = replace(
        JOB,
        state="rolled-back",
        phases=phases,
        downtime_seconds=None,
        downtime_start=None,
        left=("x was changed since: left",),
        notes=("no batch yet",),
    )
    found = of(
        replace(REPORT, state="rolled-back", seconds=90_000.0, jobs=(job,), left=("y: 2 files",))
    )
    assert {row[3] for row in found.tables["Phases"][1:]} == {"undone"}
    assert len(classed(found.pictures[0], "undone")) == len(COLD)
    assert not classed(found.pictures[0], "band") and not classed(found.pictures[0], "copied")
    assert share(classed(found.pictures[0], "bar")[-1], "width") == pytest.approx(4 / 15, abs=1e-4)
    assert all(
        said in found.told for said in ("x was changed since: left", "y: 2 files", "no batch yet")
    )


def test_a_run_that_only_began_has_a_page() -> None:
    found = of(Report("r1", "running", 0.0, None, (), (), (), None))
    assert (
        "run r1" in found.told
        and "interrupted" in found.told
        and "Nothing was begun." in found.told
    )
    assert not found.pictures


def test_a_thousand_lines_of_what_was_left_end_in_a_count() -> None:
    found = of(replace(REPORT, left=tuple(f"file {n}" for n in range(1000))))
    assert (
        "file 99" in found.told
        and "file 100 " not in found.told
        and "900 more, in report.json" in found.told
    )


# ---- what others said


NASTY = (
    "<script>alert('x')</script> \"&amp;\" \x1b[31m \u202e \udce4 \ufffe hdfs://me:secret@there/x"
)


def test_what_was_said_is_text_and_never_markup_nor_a_secret() -> None:
    failure = FailureReport(NASTY, NASTY, NASTY, 6, NASTY)
    job = replace(
        JOB, job=NASTY, notes=(NASTY,), left=(NASTY,), failure=failure, downtime_from=NASTY
    )
    told = replace(
        REPORT,
        run=NASTY,
        jobs=(job, replace(job, job=f"{NASTY}2")),
        left=(NASTY,),
        failure=failure,
        steered=(SteeredReport(1.0, NASTY, NASTY),),
    )
    text = page(RunFacts(told, "w"))
    found = Page(text)
    assert "script" not in {one.tag for one in found.body.iter()}
    assert (
        "<script>alert('x')</script> \"&amp;\" \\x1b[31m \\u202e \\udce4 \\ufffe "
        "hdfs://me:***@there/x"
    ) in found.told
    assert "secret" not in text
    text.encode("utf-8")


def test_nothing_is_loaded_and_nothing_runs() -> None:
    text = page(RunFacts(warm(30), "w"))
    assert not re.search(
        r"https?:|url\(|@import|javascript:|<(script|link|img|iframe|object|use)\b", text
    )
    names = {name for _, name, _ in Page(text).attributes}
    assert not names & {"src", "href", "xlink:href", "srcset", "data"}
    assert not any(name.startswith("on") for name in names)


# ---- whatever the report


seconds = st.floats(-5, 1e6, allow_nan=False).map(lambda value: round(value, 3))
lengths = st.floats(0, 1e6, allow_nan=False).map(lambda value: round(value, 3))
counts = st.integers(0, 10**15)
words = st.text(max_size=20)
failures = st.none() | st.builds(
    FailureReport, words, words, st.none() | words, st.just(6), st.none() | words
)
phases = st.builds(
    PhaseReport,
    st.sampled_from((*PHASES, "round 1")),
    seconds,
    lengths,
    counts,
    counts,
    counts,
    counts,
)
rounds = st.builds(
    RoundReport,
    st.integers(1, 999),
    seconds,
    lengths,
    counts,
    counts,
    st.none() | counts,
    st.none() | counts,
    st.none() | lengths,
)
jobs = st.builds(
    JobReport,
    words,
    st.sampled_from(("finished", "unfinished", "rolled-back", "not begun")),
    st.lists(phases, max_size=5).map(tuple),
    counts,
    counts,
    st.none() | lengths,
    st.none() | words,
    st.none() | counts,
    st.booleans(),
    st.lists(words, max_size=2).map(tuple),
    st.lists(words, max_size=2).map(tuple),
    failures,
    st.lists(rounds, max_size=8).map(tuple),
    st.none() | lengths,
    st.none() | seconds,
)
reports = st.builds(
    Report,
    words,
    st.sampled_from(("running", "finished", "failed", "rolled-back")),
    lengths,
    st.none() | lengths,
    st.just(()),
    st.lists(jobs, max_size=3).map(tuple),
    st.lists(words, max_size=2).map(tuple),
    failures,
    st.lists(st.builds(SteeredReport, seconds, words, words), max_size=5).map(tuple),
    st.none() | st.floats(allow_nan=False),
)


@settings(max_examples=60, deadline=None)
@given(reports)
def test_whatever_the_report_its_page_is_well_formed_and_draws_nothing_outside(
    told: Report,
) -> None:
    found = of(told)
    for picture in found.body.iter("svg"):
        assert float(picture.get("height") or 0) > 0
        for one in picture.iter():
            for name in ("x", "x1", "x2", "width"):
                if (one.get(name) or "").endswith("%"):
                    assert 0 <= share(one, name) <= 1
            points = [
                float(value)
                for pair in (one.get("points") or "").split()
                for value in pair.split(",")
            ]
            assert all(-0.01 <= value <= 100 for value in points)
    assert len(found.pictures) >= sum(bool(job.phases) for job in told.jobs)


# ---- runs


@pytest.fixture
def ground(tmp_path: Path) -> LivingGround:
    return LivingGround(tmp_path)


def test_the_page_of_a_real_run_in_rounds_has_its_numbers(ground: LivingGround) -> None:
    told = ground.warm(rounds=1)
    job, found = told.jobs[0], of(told)
    assert [row[0] for row in found.tables["Phases"][1:]] == [phase.name for phase in job.phases]
    assert len(found.tables["Rounds, while the job ran"]) == 1 + len(job.rounds) > 1
    assert job.downtime_start is not None and classed(found.pictures[0], "band")
    assert of(ground.rollback(discard_progress=True)).tables["Phases"][1][3] == "undone"


def test_the_page_of_a_real_run_that_stopped_before_the_halt_says_that_no_job_was_stopped(
    ground: LivingGround,
) -> None:
    ground.job.moods = {"batch": 0.05, "tidy": 0.0, "back": 0.0}
    with pytest.raises(PlanError):
        ground.warm(until="remaining < 1ms", rounds=2)
    found = of(migration.status(ground.workdir()))
    assert "this run stopped no job" in found.told and "stateshift cutover" in found.told


# ---- commands


def moved(tmp_path: Path, *flags: str) -> tuple[Outside, list[str]]:
    arguments = ["apply", write_spec(tmp_path), "--yes", "--workdir", str(tmp_path / "run"), *flags]
    return with_checkpoint(), arguments


def test_a_run_leaves_its_page_and_names_it(tmp_path: Path) -> None:
    outside, arguments = moved(tmp_path)
    found = outside.run(*arguments)
    place = tmp_path / "run" / "report.html"
    assert found.code == 0 and f"  report   {place}\n" in found.out
    assert "finished" in Page(place.read_text("utf-8")).told
    assert f"  report   {place}\n" in outside.run("status", str(tmp_path / "run")).out
    for words in (["status", str(tmp_path / "run")], ["runs", str(tmp_path)]):
        told = outside.run(*words, "--json").document
        assert (told[0] if isinstance(told, list) else told)["report_html"] == str(place)
    back = outside.run("rollback", str(tmp_path / "run"), "--yes", "--json")
    assert back.document["report_html"] == str(place)
    assert "rolled-back" in Page(place.read_text("utf-8")).told


def test_a_failed_run_leaves_its_page_too(tmp_path: Path) -> None:
    outside, arguments = moved(tmp_path, "--json")
    outside.wrap = lambda storage: Failing(storage, "commits/2")  # type: ignore[assignment, return-value]
    found = outside.run(*arguments)
    assert found.code == 6 and found.document["report_html"] == str(
        tmp_path / "run" / "report.html"
    )
    assert (
        "stopped by StorageError"
        in Page((tmp_path / "run" / "report.html").read_text("utf-8")).told
    )


def test_the_page_of_a_run_that_another_process_is_at_work_on_is_left_to_it(tmp_path: Path) -> None:
    outside, arguments = moved(tmp_path)
    outside.run(*arguments)
    (tmp_path / "run" / "report.html").unlink()
    with Workdir(tmp_path / "run").hold():
        found = outside.run("resume", str(tmp_path / "run"), "--json")
    assert found.code == 8 and found.document["report_html"] is None
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["told", "json"])
def test_a_page_that_cannot_be_written_is_said_and_changes_nothing_else(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    outside, arguments = moved(tmp_path, *flags)
    (tmp_path / "run" / "report.html" / "in the way").mkdir(parents=True)
    found = outside.run(*arguments)
    assert found.code == 0
    assert [line for line in found.err.splitlines() if line.startswith("there is no report.html: ")]
    if flags:
        assert found.document["state"] == "finished" and found.document["report_html"] is None
    else:
        assert "finished" in found.out and "report.html" not in found.out
