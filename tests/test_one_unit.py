"""How much is the same is said in one unit: entries where entries were told apart, files where
files were compared whole. A run's report, its status and its verdict, and `diff` of the same two
images, agree.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift import look, migration
from stateshift.cli.views import diff_text as render_diff
from stateshift.cli.views import run_html as render_html
from stateshift.cli.views import run_text as render_run
from stateshift.cli.views.text import plain_text
from stateshift.documents.diff import DiffDocument, diff_facts
from stateshift.documents.run import RunDocument, RunFacts
from stateshift.documents.shape import document_of
from stateshift.engines.flink.entries.keyed import keyed_entries, why_operator_is_opaque
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.engines.views import Differences
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.stream_handles import files_of
from stateshift.report import Report
from tests.engines.flink import golden
from tests.engines.flink.test_moving import TARGET
from tests.engines.flink.test_moving import spec_of as flink_spec
from tests.look.golden_images import CASES, contents, write
from tests.support.ground import SOURCE, Ground, spec_of
from tests.support.ground import TARGET as SPARK_TARGET

NAMES = [name for name in golden.NAMES if name.startswith(("flink-1.15.4", "flink-2.3.0"))]
CANONICAL = [name for name in NAMES if "canonical" in name and "changelog" not in name]
RESCALE = [{"kind": "rescale", "parallelism": 5}]


def text_of(report: Report) -> str:
    return plain_text(render_run.report(RunFacts(report, "run")))


def diff_of(ground: Ground, source: str, target: str) -> Differences:
    return look.diff(source, target, ground.disk.open, 0)


def keyed_entries_of(ground: Ground, location: str) -> int:
    """How many entries of managed keyed state there are, in operators where all of them can be
    told apart.
    """
    storage, survey = golden.looked_at(ground.disk, location)
    (image,) = survey.images
    streams, count = Streams(storage.chunks, places_of(image)), 0
    for operator in metadata_of(image).operators:
        if why_operator_is_opaque(operator, streams) is None:
            most = operator.max_parallelism
            for subtask in operator.subtasks or ():
                count += sum(1 for _ in keyed_entries(subtask.managed_keyed, most, streams))
    return count


def files_of_key_groups(ground: Ground, location: str) -> int:
    (image,) = golden.looked_at(ground.disk, location)[1].images
    subtasks = [
        subtask for operator in metadata_of(image).operators for subtask in operator.subtasks or ()
    ]
    handles = [subtask.managed_keyed for subtask in subtasks]
    return sum(1 for h in handles if isinstance(h, KeyGroups) for _ in files_of(h.stream))


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_counts_the_entries_of_flink_that_diff_counts_and_its_keyed_state_as_files(
    ground: Ground, name: str
) -> None:
    source = golden.write(ground.disk, name)
    (job,) = ground.apply(flink_spec(source)).jobs
    found = diff_of(ground, source, TARGET)
    assert found.equal
    keyed = keyed_entries_of(ground, source)
    lies_in_metadata = "inline" in name and "native" not in name
    if lies_in_metadata and "count" in name:
        keyed = 0 if job.key_groups_compared == 0 else keyed  # canonical: told apart
    assert (job.entries or 0) == found.same["entries"] - keyed
    assert job.files_compared >= files_of_key_groups(ground, source)
    assert job.files_compared or lies_in_metadata or "memory" in name


@pytest.mark.parametrize("name", CANONICAL)
def test_what_is_dealt_anew_counts_as_many_entries_as_diff_does(ground: Ground, name: str) -> None:
    source = golden.write(ground.disk, name)
    (job,) = ground.apply(flink_spec(source, transform=RESCALE, waive=["operators-stay"])).jobs
    found = diff_of(ground, source, TARGET)
    assert found.equal and found.same == {"entries": job.entries}
    assert not job.files_compared and not job.key_groups_compared


def test_every_output_of_a_flink_run_says_entries_and_files_in_the_same_words(
    ground: Ground,
) -> None:
    source = golden.write(ground.disk, "flink-2.3.0/count-two")
    report = ground.apply(flink_spec(source))
    said = "the same on both sides: 4 files compared whole, 4 entries in the others"
    assert said in text_of(report)
    assert said in plain_text(render_run.status(RunFacts(report, "run")))
    assert said in render_html.page(RunFacts(report, "run"))
    (job,) = document_of(RunDocument, RunFacts(report, "run"))["report"]["jobs"]
    assert job["compared"] == {"entries": 4, "files": 4, "key_groups": 0} and job["entries"] == 4
    found = diff_of(ground, source, TARGET)
    assert "equal, 24 entries:" in plain_text(render_diff.differences(diff_facts(found), "a", "b"))
    assert document_of(DiffDocument, diff_facts(found))["same"] == {
        "entries": 24,
        "files": 0,
        "key_groups": 0,
    }


def test_diff_says_which_things_it_compared_whole(ground: Ground) -> None:
    source = golden.write(ground.disk, "flink-2.3.0/count-changelog-hashmap")
    ground.apply(flink_spec(source))
    found = diff_of(ground, source, TARGET)
    said = "equal, 5 files and 8 key groups compared whole, 2 entries in the others:"
    assert said in plain_text(render_diff.differences(diff_facts(found), "a", "b"))
    stores = [
        store
        for one in document_of(DiffDocument, diff_facts(found))["operators"]
        for store in one["stores"]
    ]
    assert {store["name"]: store["unit"] for store in stores} == {
        "SourceReaderState": "entries",
        "coordinator": "entries",
        "changelog": "files",
        "key groups": "key_groups",
    }


def test_a_verdict_counts_as_the_report_does(ground: Ground) -> None:
    source = golden.write(ground.disk, "flink-2.3.0/count-canonical-rocksdb")
    ground.apply(flink_spec(source))
    (file,) = [path for path in ground.held(TARGET) if path not in ("_metadata", "_stateshift")][:1]
    held = ground.held(TARGET)[file]
    ground.put(f"{TARGET}/{file}", held[:-1] + bytes((held[-1] ^ 1,)))
    verdict = migration.verify(ground.workdir(), ground.adapters)
    said = [
        broken.discrepancy
        for broken in verdict.broken
        if broken.discrepancy.place.startswith("operator ")
    ]
    assert said and said[0].expected.startswith("0 entries, 2 files, digest ")


SPARK = [case for case in CASES if case.parent.name == "spark-4.3.0"]
BY_DIGESTS = ("files", "join-rocksdb-v4", "window-hdfs")
WAYS = [
    pytest.param(case, verify, id=f"{case.name}-{verify}")
    for case in SPARK
    for verify in (("entries", "digests") if case.name in BY_DIGESTS else ("entries",))
]


@pytest.mark.parametrize(("case", "verify"), WAYS)
def test_a_copy_counts_the_entries_of_spark_that_diff_counts_and_the_rest_as_files(
    ground: Ground, case: Path, verify: str
) -> None:
    written = f"file:///tmp/stateshift-golden/{case.name}/checkpoint"
    write(ground.disk.open(written), contents(case))
    ground.clock.time += 600
    waived = ["paths-stay", "job-stopped", "old-state", "list-state", "repeated-batches"]
    (job,) = ground.apply(spec_of(written, verify=verify, waive=waived)).jobs
    found = diff_of(ground, written, SPARK_TARGET)
    assert found.equal
    entries = found.same["entries"] if verify == "entries" else 0
    assert (job.entries or 0) == entries
    copied = sum(
        phase.files for phase in job.phases if phase.name == "copy"
    )  # logs come later, and are read back then
    assert job.files_compared <= copied
    if verify == "digests":
        assert job.files_compared == copied


def test_a_spark_report_says_what_was_told_apart_and_what_was_compared_whole(
    ground: Ground,
) -> None:
    ground.write()
    report = ground.apply(spec_of(mode="fork"))
    found = diff_of(ground, SOURCE, SPARK_TARGET)
    (job,) = report.jobs
    assert f"; the same on both sides: {job.entries} entries\n" in text_of(report)
    assert job.entries == found.same["entries"] == 6
    whole = text_of(
        ground.apply(spec_of(target="file:///there/other", mode="fork", verify="digests"), "other")
    )
    assert "; the same on both sides: 6 files compared whole\n" in whole and "entries" not in whole
