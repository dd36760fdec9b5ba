"""`stateshift check` as a user runs it: with a real Spark, and with files that are no job."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from stateshift import api
from stateshift.errors import PlanError, SpecError
from stateshift.migration import real_adapters
from stateshift.world import Unwatched
from tests.acceptance.support import stateshift
from tests.check.corpus import BASES, CHANGES
from tests.check.playing import GOLDEN, GROUND, write_input

WINDOW = GOLDEN / "window" / "checkpoint"
KAFKA = GOLDEN.parent / "spark-3.5.9" / "kafka" / "checkpoint"
TWO_QUERIES = """
import os, sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("two").master("spark://nowhere:7077").getOrCreate()
kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "broker:9092")
records = kafka.option("subscribe", "orders,late.orders_2").load()
words = records.select("topic", F.col("value").cast("string").alias("word"), "offset")
counted = words.groupBy("topic", "word").agg(F.count("*"), F.max("offset"))
written = os.path.join(sys.argv[1], "written")
counted.writeStream.outputMode("update").queryName("counts").option(
    "checkpointLocation", f"{sys.argv[1]}/counts").format("console").start()
words.writeStream.queryName("words").option(
    "checkpointLocation", f"{sys.argv[1]}/words").toTable("words")
try:
    spark.range(3).write.parquet(written)
except Exception as error:
    print("caught", error)
spark.streams.awaitAnyTermination()
raise SystemExit("nobody comes here")
"""


class Told(Unwatched):
    """The phases that somebody who watches is told."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, str]] = []

    def phase(self, job: str, name: str, files: int, bytes: int) -> None:
        self.phases.append((job, name))


def digest(folder: Path) -> str:
    """Return a digest of all names and bytes below a folder."""
    parts = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        parts.update(str(file.relative_to(folder)).encode())
        if file.is_file():
            parts.update(file.read_bytes())
    return parts.hexdigest()


def notebook(script: str) -> str:
    """Return a notebook of a script, with magics, and with a cell of another language."""
    cells = [{"cell_type": "markdown", "source": ["# Orders"]}]
    for source in ("%pip install nothing\n!ls", "%%bash\nexit 1", *script.split("\n\n\n")):
        cells.append({"cell_type": "code", "source": source.splitlines(keepends=True)})
    return json.dumps({"cells": cells, "nbformat": 4})


@pytest.mark.spark
@pytest.mark.row("W-24", on="Spark")
@pytest.mark.parametrize("suffix", [".py", pytest.param(".ipynb", marks=pytest.mark.slow)])
def test_unchanged_code_starts_and_nothing_is_written(suffix: str, tmp_path: Path) -> None:
    file, before = tmp_path / f"job{suffix}", digest(WINDOW)
    script = BASES["window"].script
    file.write_text(notebook(script) if suffix == ".ipynb" else script)
    checked = api.check(WINDOW, str(file), arguments=[str(GROUND)], stub=True)
    (document,) = checked.to_dict()
    assert checked.verdict == "starts"
    assert document["sources"] == [{"id": "0", "kind": "file", "detail": f"{GROUND}/in"}]
    assert [stub["kind"] for stub in document["stubbed"]] == ["json"]  # type: ignore[attr-defined]
    assert digest(WINDOW) == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.spark
@pytest.mark.row("W-24", on="Spark")
def test_a_query_of_two_on_kafka_is_found_by_its_name_and_needs_no_broker(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(TWO_QUERIES)
    words = ["check", str(KAFKA), "--with", str(file), "--query", "counts", "--json", "--", "/data"]
    done = stateshift(*words, cwd=tmp_path)
    (document,) = done.json
    assert (document["query"], document["verdict"]) == ("counts", "starts")
    assert document["sources"][0]["detail"] == "late.orders_2, orders"
    assert "Failed to find data source" in document["stubbed"][0]["reason"]
    assert not (tmp_path / "written").exists()


BAD = {
    "raises": ("raise ValueError('no such profile')", "ValueError: no such profile"),
    "starts nothing": ("print('done')", "starts no streaming query"),
    "exits": ("raise SystemExit(3)", "ended with exit code 3"),
    "hangs": ("import time; time.sleep(600)", "has not ended after 3 s"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_job_says_why(name: str, tmp_path: Path) -> None:
    text, expected = BAD[name]
    file = tmp_path / "job.py"
    file.write_text(text)
    timeout = 3 if name == "hangs" else 120
    with pytest.raises(PlanError, match=expected) as error:
        api.check(WINDOW, str(file), timeout_seconds=timeout)
    assert error.value.hint


def test_a_check_says_what_it_is_at_while_it_lasts(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import time; time.sleep(6)")
    done = stateshift("check", str(WINDOW), "--with", "job.py", cwd=tmp_path, code=4)
    assert "job.py: plan\n" in done.err
    assert re.search(r"job\.py: plan took [\d.]+ s", done.err)


def test_a_file_that_is_not_there_and_an_interpreter_that_is_not_are_wrong_requests(
    tmp_path: Path,
) -> None:
    with pytest.raises(SpecError, match="there is no file"):
        api.check(WINDOW, str(tmp_path / "job.py"))
    with pytest.raises(SpecError, match="its SQL starts no query"):
        api.check(WINDOW, str(tmp_path / "job.sql"))
    with pytest.raises(SpecError, match="no source of a jar is replaced"):
        api.check(WINDOW, str(tmp_path / "job.jar"), stub=True)
    (tmp_path / "job.py").write_text("")
    with pytest.raises(SpecError, match="--python"):
        api.check(WINDOW, str(tmp_path / "job.py"), python=str(tmp_path / "python"))


def test_of_flink_a_file_is_a_jar_or_sql_and_flink_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLINK_HOME", raising=False)
    (savepoint,) = (GOLDEN.parent / "flink-2.3.0" / "count-two" / "image").iterdir()
    with pytest.raises(SpecError, match="a jar, or a file of SQL"):
        api.check(savepoint, "job.py")
    with pytest.raises(SpecError, match="--flink: where is Flink"):
        api.check(savepoint, "job.jar")
    with pytest.raises(SpecError, match="no flink-dist jar"):
        api.check(savepoint, "job.jar", flink=str(tmp_path))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ground of a query that has run, and has more to read. What is temporary goes beside."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    place, file = tmp_path / "ground", tmp_path / "job.py"
    write_input(place, 0)
    (place / "out").mkdir()
    file.write_text(BASES["window"].script)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, file, place], env=environment, check=True, capture_output=True)
    write_input(place, 1)
    return place


@pytest.mark.spark
@pytest.mark.row("W-24", on="Spark")
def test_a_rehearsal_starts_the_query_from_a_changed_fork_and_leaves_nothing(place: Path) -> None:
    before, file = digest(place), place.with_name("job.py")
    file.write_text(CHANGES["window: an aggregate more"].job.script)
    meter = Told()
    checked = api.check(
        place / "checkpoint",
        str(file),
        arguments=[str(place)],
        rehearse=True,
        adapters=real_adapters(meter),
    )
    (query,) = checked.checked.queries
    assert [meter.phases[0], meter.phases[-1]] == [(str(file), "plan"), (str(file), "rehearse")]
    assert "copy" in [name for _, name in meter.phases]  # of the fork, between them
    shown = query.differences[-1]
    assert (checked.verdict, shown.rule, shown.level) == ("starts-after", "rehearsal", "note")
    assert re.fullmatch(r"Spark started it, and batch \d+ of 62 records .*", shown.message)
    assert digest(place) == before
    assert not list(place.with_name("scratch").iterdir())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.row("W-24", on="Spark")
def test_a_rehearsal_that_fails_tells_the_error_and_leaves_nothing(place: Path) -> None:
    before, file = digest(place), place.with_name("job.py")
    failing = BASES["window"].script.replace(
        'orders = read("in")', 'orders = read("in").where("raise_error(word) is null")'
    )
    file.write_text(failing)
    checked = api.check(place / "checkpoint", str(file), arguments=[str(place)], rehearse=True)
    (query,) = checked.checked.queries
    assert checked.verdict == "never"
    assert "USER_RAISED_EXCEPTION" in query.differences[-1].message
    assert digest(place) == before
    assert not list(place.with_name("scratch").iterdir())


def test_a_rehearsal_without_its_sources_is_refused() -> None:
    with pytest.raises(PlanError, match="reads the query's own sources"):
        api.check(WINDOW, "job.py", stub=True, rehearse=True)


@pytest.fixture(scope="module")
def orders_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar of Orders.java."""
    javac, folder = shutil.which("javac"), tmp_path_factory.mktemp("jar")
    if javac is None:
        pytest.skip("there is no javac, which compiles the job: install a JDK")
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    source = Path(__file__).with_name("Orders.java")
    words = [javac, "-proc:none", "-nowarn", "-cp", str(jars), "-d", str(folder), str(source)]
    subprocess.run(words, check=True, capture_output=True)
    with zipfile.ZipFile(folder / "orders.jar", "w") as jar:
        for file in folder.glob("*.class"):
            jar.write(file, file.name)
    return folder / "orders.jar"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.row("W-24", on="Spark")
def test_a_jar_is_planned_and_rehearsed_and_writes_nothing(
    orders_jar: Path, tmp_path: Path
) -> None:
    place = tmp_path / "ground"
    write_input(place, 0)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    words = [str(submit), "--master", "local[1]", "--class", "Orders", str(orders_jar), str(place)]
    subprocess.run(words, check=True, capture_output=True)
    write_input(place, 1)
    before = digest(place)

    def verdict(change: str, **given: Any) -> tuple[str, list[str]]:
        given |= {"arguments": [str(place), change], "main_class": "Orders"}
        checked = api.check(place / "checkpoint", str(orders_jar), **given)
        (query,) = checked.checked.queries
        assert (query.query, query.location) == ("orders", f"{place}/checkpoint")
        return query.verdict, [each.message for each in query.differences]

    assert verdict("nothing")[0] == verdict("other session")[0] == "starts"
    assert verdict("max")[0] == "starts-but"
    said, messages = verdict("files")
    assert said == "starts", messages
    said, messages = verdict("nothing", rehearse=True)
    assert said == "starts"
    assert re.match(r"Spark started it, and batch \d+ of 62 records", messages[-1])
    assert digest(place) == before
    (place / "checkpoint").rename(place / "payments")
    with pytest.raises(PlanError, match=r"starts no queries at .*; it starts orders at"):
        api.check(place / "payments", str(orders_jar), arguments=[str(place)], main_class="Orders")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("fails", "IllegalArgumentException: no such profile"),
        ("exits", "its JVM has ended"),
        ("table", "runs InsertIntoHadoopFsRelationCommand, and may write"),
    ],
)
def test_a_jar_that_is_no_job_says_why(
    change: str, expected: str, orders_jar: Path, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=expected):
        api.check(WINDOW, str(orders_jar), arguments=[str(tmp_path), change], main_class="Orders")
    assert not list(tmp_path.iterdir())
