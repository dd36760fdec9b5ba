"""Words of one engine do not stand in messages to the other's users: a batch, an epoch, offsets and
commits are Spark's; savepoints, key groups and slots are Flink's. tests/support/words.py says what
is listened to; the tests of either engine (tests/engines/*/conftest.py) listen as well, with all
that they do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import stateshift
from stateshift import look, migration
from stateshift.cli.views import diff_text as render_diff
from stateshift.cli.views import run_html as render_html
from stateshift.cli.views import run_text as render_run
from stateshift.cli.views import survey_text as render_survey
from stateshift.cli.views.text import plain_text
from stateshift.clusters.protocol import JobState
from stateshift.documents.diff import DiffDocument, diff_facts
from stateshift.documents.judgement import JudgementDocument
from stateshift.documents.run import RunFacts
from stateshift.documents.shape import document_of
from stateshift.documents.survey import survey_facts
from stateshift.errors import ClusterError, PlanError, StateshiftError
from stateshift.report import Report
from tests.engines.flink import golden
from tests.engines.flink.test_moving import spec_of as copied
from tests.engines.flink.test_running import place
from tests.engines.flink.test_running import spec_of as running
from tests.support.ground import SOURCE, Ground, running_spec, spec_of
from tests.support.ground import TARGET as THERE
from tests.support.living_flink import LivingFlinkGround
from tests.support.words import Heard, foreign_words, strings_of

pytestmark = pytest.mark.every_case


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard.listening(monkeypatch)


def text_of(report: Report) -> str:
    return plain_text(render_run.status(RunFacts(report, "run"))) + render_html.page(
        RunFacts(report, "run")
    )


def test_a_flink_move_speaks_of_checkpoints_from_its_plan_to_its_page(
    tmp_path: Path, heard: Heard
) -> None:
    ground, _ = place(tmp_path)
    report = ground.apply(running())
    assert "wait until orders has completed a checkpoint" in heard.lines
    assert "to the first checkpoint completed on the target" in text_of(report)
    assert report.jobs[0].engine == "flink"
    assert migration.verify(ground.workdir(), ground.adapters).broken == ()
    with pytest.raises(
        PlanError, match="has completed checkpoints on the target since; a rollback"
    ):
        ground.rollback()
    ground.rollback(discard_progress=True)
    assert heard.foreign_to("flink") == []


@pytest.mark.parametrize(
    ("becomes", "said"),
    [
        (None, "has completed no checkpoint in"),
        (JobState.FAILED, "before it completed a checkpoint"),
        (JobState.FINISHED, "before it completed a checkpoint"),
    ],
)
def test_a_flink_job_that_does_not_go_on_has_completed_no_checkpoint(
    tmp_path: Path, heard: Heard, becomes: JobState | None, said: str
) -> None:
    ground, flink = place(tmp_path)
    flink.epoch = 0
    if becomes is not None:
        flink._on_start = lambda submission: _ends(flink, becomes)
    with pytest.raises(ClusterError, match=said):
        ground.apply(running())
    report = migration.status(ground.workdir())
    assert "no checkpoint on the target was seen since" in render_html.page(RunFacts(report, "run"))
    flink._on_start = lambda submission: None
    ground.rollback()
    assert heard.foreign_to("flink") == []


def _ends(flink: object, state: JobState) -> None:
    jobs = flink.jobs  # type: ignore[attr-defined]
    jobs[-1] = replace(jobs[-1], status=replace(jobs[-1].status, state=state))


def test_a_fork_and_a_warm_move_of_flink_say_at_which_checkpoint(
    tmp_path: Path, heard: Heard
) -> None:
    ground = Ground(tmp_path / "fork")
    source = golden.write(ground.disk, "flink-2.3.0/count-two")
    ground.apply(copied(source, mode="fork"))
    assert any("copy its image to a fork at checkpoint 1" in line for line in _planned(heard))
    warm = LivingFlinkGround(tmp_path / "warm")
    warm.warm()
    assert any(line.startswith("orders: round 1 has copied checkpoint ") for line in heard.lines)
    assert heard.foreign_to("flink") == []


def _planned(heard: Heard) -> list[str]:
    heard.foreign_to("flink")
    return sorted(heard.lines)


@pytest.mark.parametrize(
    "name", ["count-two", "kinds-native-incremental", "count-changelog-hashmap"]
)
def test_looking_at_images_of_flink_needs_no_word_of_spark(
    tmp_path: Path, heard: Heard, name: str
) -> None:
    ground = Ground(tmp_path)
    source = golden.write(ground.disk, f"flink-2.3.0/{name}")
    other = golden.write(ground.disk, "flink-2.3.0/count-saved", "file:///other")
    judged = look.restartable(source, ground.disk.open, thorough=True)
    heard.say(
        *plain_text(render_survey.judgement(judged, source)).splitlines(),
        *strings_of(document_of(JudgementDocument, judged)),
    )
    seen = look.inspect(source, ground.disk.open)
    heard.say(
        *plain_text(render_survey.survey(survey_facts(seen.survey), verbose=True)).splitlines()
    )
    found = look.diff(source, other, ground.disk.open, 3)
    heard.say(*plain_text(render_diff.differences(diff_facts(found), "a", "b")).splitlines())
    heard.say(*strings_of(document_of(DiffDocument, diff_facts(found))))
    assert any(line.startswith("a job can restart from checkpoint ") for line in heard.lines)
    assert heard.foreign_to("flink") == []


def test_a_spark_move_speaks_of_batches_and_of_nothing_of_flinks(
    tmp_path: Path, heard: Heard
) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.cluster.run("orders", SOURCE)
    with pytest.raises(ClusterError, match="has committed nothing in"):
        ground.apply(running_spec(spec_on_failure="stop"))
    ground.put(f"{THERE}/commits/3", b"v1\n{}")
    report = ground.resume()
    assert report.jobs[0].engine == "spark"
    assert "to the first batch committed on the target" in text_of(report)
    with pytest.raises(PlanError, match="has committed batches on the target since; a rollback"):
        ground.rollback()
    assert heard.foreign_to("spark") == []


def test_a_fork_of_spark_copies_its_newest_committed_batch(tmp_path: Path, heard: Heard) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.apply(spec_of(mode="fork"))
    assert any("its newest committed batch at that time" in line for line in _planned(heard))
    assert heard.foreign_to("spark") == []


def test_a_listener_hears_every_source_and_knows_a_foreign_word(heard: Heard) -> None:
    StateshiftError("the fact of a batch", hint="the hint of an epoch")
    assert heard.foreign_to("flink") == ["the fact of a batch", "the hint of an epoch"]
    assert foreign_words("flink", 'no --batch, "waive": ["repeated-batches"], /a/offsets/3') == []
    assert foreign_words("spark", "take a savepoint of key groups") == ["savepoint", "key groups"]


# ---- what the code could say

ROOT = Path(stateshift.__file__).parent
OF_FLINK = (
    "engines/flink",
    "formats/flink",
    "clusters/flink",
    "testing/memory_flink",
    "step/savepoints",
)
OF_SPARK = (
    "engines/spark",
    "formats/spark",
    "clusters/livy",
    "clusters/spark",
    "clusters/standalone",
)
OF_BOTH = (
    "report.py",
    "executor",
    "lock.py",
    "estimating.py",
    "step",
    "migration",
    "cli/views/run_html.py",
    "cli/views/run_text.py",
    "cli/views/plan_text.py",
    "cli/views/diff_text.py",
    "cli/shell/progress.py",
    "cli/shell/failing.py",
    "documents/run.py",
)

# What is said of one engine only, in modules that know both.
OWN = {
    "report.py": {
        "the job restored its state and had nothing to read: no batch yet",  # `idle` is Spark's
        "key groups that were compared whole",  # a key of the documents, 0 for Spark
        "batches or checkpoints that the source",
        "the batch or checkpoint that a job",
        "from the source's last commit",
        "from the plan to the job's first batch or checkpoint",
    },
    # only batches are planned before they run
    "migration/source_check.py": {") has the batch", "restore that file from a copy"},
    "step/starting.py": {", but a query of it has ended before it committed a batch"},
    "step/jobs.py": {"it has to call stateshift.job.wait() before its first query; "},
    # Of Kafka's groups, which have offsets whatever the engine.
    "step/group_offsets.py": {
        *(
            "stop the consumers",
            " keeps the offsets",
            ", and has committed ",
            " offsets of the gr",
        ),
    },
    "cli/views/plan_text.py": {' (nobody can ask: name the brokers of Spark jobs, "kafka")'},
    "step/images.py": {"key group", "key groups"},  # only the comparison of Flink counts them
}


def prose_of(path: Path) -> Iterator[str]:
    """The string constants of a module that could be read by somebody: of several words, and no
    docstring.
    """
    tree = ast.parse(path.read_text("utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.Constant)
            or not isinstance(node.value, str)
            or id(node) in docstrings
        ):
            continue
        if " " in node.value.strip():
            yield node.value


def modules_of(*places: str) -> Iterator[Path]:
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).as_posix().startswith(places):
            yield path


@pytest.mark.parametrize("place", [*OF_FLINK, *OF_SPARK, *OF_BOTH, *OWN])
def test_every_place_that_is_listed_here_holds_code(place: str) -> None:
    assert list(modules_of(place))


@pytest.mark.parametrize(
    "path", list(modules_of(*OF_FLINK, *OF_SPARK)), ids=lambda path: str(path.relative_to(ROOT))
)
def test_what_an_engine_s_own_code_says_has_no_word_of_the_other(path: Path) -> None:
    own = "flink" if path.relative_to(ROOT).as_posix().startswith(OF_FLINK) else "spark"
    foreign = [text for text in prose_of(path) if foreign_words(own, text)]
    if own == "flink":  # SQL has queries, too
        foreign = [
            text for text in foreign if {*map(str.lower, foreign_words(own, text))} != {"query"}
        ]
    assert foreign == []


@pytest.mark.parametrize(
    "path", list(modules_of(*OF_BOTH)), ids=lambda path: str(path.relative_to(ROOT))
)
def test_what_both_engines_users_read_takes_its_words_from_the_terms(path: Path) -> None:
    module = path.relative_to(ROOT).as_posix()
    if module.startswith(OF_FLINK):
        return
    foreign = {
        text
        for text in prose_of(path)
        if foreign_words("flink", text) or foreign_words("spark", text)
    }
    own = OWN.get(module, set())
    assert [text for text in sorted(foreign) if not any(text.startswith(one) for one in own)] == []
