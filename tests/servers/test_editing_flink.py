"""State whose types are others in the job that goes on, and state of which a part stays behind: a
real Flink restores what was written, and has nothing to migrate.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stateshift import look
from stateshift.engines.flink import jvm
from stateshift.errors import ClusterError, PlanError
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.keyed_state import decode_header
from stateshift.formats.flink.metadata import decode_metadata
from stateshift.formats.flink.stream_handles import Inline, RelativeFile
from stateshift.table.tables import tables_of
from tests.acceptance.support import ROOT, stateshift
from tests.support.flink import JOBS, Cluster, cluster_of, jar, lines, until
from tests.support.flink_evolving import jars_of
from tests.support.flink_kafka import started
from tests.support.servers import Servers, downloads, group, start

pytestmark = pytest.mark.servers
SHOWN_ON = "Flink"
OTHER_HASH = "keys are not in the key group that the hashCode of --classes gives"
KEYS, FIRST, ALL = 4, 24, 32
PERSON: dict[str, Any] = {
    "add": [
        {"name": "visits", "type": "long", "default": 7},
        {"name": "weight", "type": "Double"},
        {"name": "note", "type": "String", "default": "n/a"},
        {"name": "home.paid", "type": "boolean"},
    ],
    "drop": ["old"],
    "rename": {"name": "label"},
    "widen": {"count": "long", "home.zip": "long"},
}
SQL = [
    {"name": "n", "type": "BIGINT NOT NULL", "default": 5, "after": "f0"},
    {"name": "t", "type": "STRING", "default": "a text that is longer"},
]
NESTED = [
    {"name": "f0.extra", "type": "STRING", "default": "more than 7 bytes", "after": "n"},
    {"name": "f0.in.more", "type": "BIGINT"},
]
GRADE = {"name": "grade", "type": "string", "default": "new", "after": "number"}
EVOLVED: dict[str, dict[str, Any]] = {
    "person": PERSON,
    "people": PERSON,
    "mortal": PERSON,
    "row": {"add": [{"name": "x", "type": "Integer", "after": "f0"}], "widen": {"f0": "long"}},
    "sql": {"add": SQL, "drop": ["f2"], "widen": {"f0": "BIGINT", "f3": "DECIMAL(30, 2)"}},
    "nested": {"add": NESTED, "drop": ["f0.in.d"], "rename": {"f0.t": "text"}},
    "thing": {"add": [GRADE], "drop": ["spare"], "rename": {"id": "number"}},
    "number": {"widen": {"value": "long"}},
    "spare": {"drop": ["*"]},
}
EVOLVED["row"]["drop"] = ["f2"]
EVOLVED["thing"]["widen"] = {"id": "long"}
EVOLVED["nested"]["widen"] = {"f0.n": "BIGINT"}


class Held:
    """A cluster, both jars, and the savepoint of the first job."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.cluster: Cluster = cluster_of(servers, "flink-a")
        self.folder = folder
        self.before, self.after = jars_of(self.cluster.lib, folder)
        job = self.run(self.before, "first", FIRST)
        self.savepoint = self.cluster.stopped(job, folder / "savepoints")

    def run(
        self, jar: Path, name: str, hold: int, savepoint: Path | None = None, **more: Any
    ) -> str:
        words = {"keys": KEYS, "hold": hold, "output": self.folder / name, "per-second": 0, **more}
        job = started(self.cluster, jar, "jobs.Evolving", words, savepoint)
        wanted = hold - (FIRST if savepoint else 0)
        until(lambda: self.count(name) == wanted)
        return job

    def count(self, name: str) -> int:
        """How many numbers a job has seen."""
        found = self.lines(name)
        return len(found["thing"]) + sum(kind in ("+I", "+U") for kind, _ in found["query"])

    def lines(self, name: str) -> dict[str, list[tuple[str, str]]]:
        """What a job told of each state, in its order for each key."""
        found = defaultdict(list)
        for file in sorted((self.folder / name).glob("*.txt")):
            for line in file.read_text().split("\n")[:-1]:
                state, key, value = line.split("\t")
                found[state].append((key, value))
        return found


@pytest.fixture(scope="module")
def held(flinks: Servers, tmp_path_factory: pytest.TempPathFactory) -> Held:
    start(flinks, "flink-a")
    return Held(flinks, tmp_path_factory.mktemp("held"))


def snapshots(savepoint: Path) -> dict[str, bytes]:
    """The snapshot of the values of each state of `held`."""
    found = {}
    for operator in decode_metadata((savepoint / "_metadata").read_bytes()).operators:
        for subtask in operator.subtasks or ():
            handle = subtask.managed_keyed
            match handle:
                case KeyGroups(stream=RelativeFile(path=path)):
                    content = (savepoint / path).read_bytes()
                case KeyGroups(stream=Inline(content=content)):
                    pass
                case _:
                    continue
            head = content[: min(offset for offset in handle.offsets if offset)]
            for state in decode_header(head, len(head)).states:
                if state.value is not None:
                    found[state.name] = head[slice(*state.value.span)]
    return found


def person(n: int, count: int) -> dict[str, Any]:
    home = {"town": f"town {n}", "zip": n, "paid": False}
    told: dict[str, Any] = {
        "count": count,
        "label": f"name {n}",
        "home": home,
        "kind": "OTHER",
        "visits": 7,
    }
    return {**told, "weight": None, "note": "n/a"}


@pytest.mark.row("W-28")
def test_a_job_with_other_types_restores_what_was_evolved_and_goes_on(held: Held) -> None:
    target = held.folder / "evolved"
    transform = [
        {"kind": "evolve", "operator": "held", "store": state, **asked}
        for state, asked in EVOLVED.items()
    ]
    job = {
        "name": "evolving",
        "existing_savepoint_paths": [str(held.savepoint)],
        "new_savepoint_path": str(target),
        "transform": transform,
    }
    spec = held.folder / "evolve.json"
    spec.write_text(json.dumps({"version": 1, "engine": "flink", "jobs": [job]}))
    words = ("--yes", "--workdir", held.folder / "runs" / "evolve")
    stateshift("apply", spec, *words, cwd=ROOT)
    stateshift("verify", "--deep", target, cwd=ROOT)
    running = held.run(held.after, "second", ALL, target, evolved="true")
    told = held.lines("second")
    for at in range(KEYS):
        key, n = f"key-{at}", FIRST - KEYS + at
        of = {
            state: [
                json.loads(value)
                if value[:1] in "{1234567890" and state not in ("sql", "nested")
                else value
                for own, value in values
                if own == key
            ]
            for state, values in told.items()
        }
        assert of["number"] == [n, n + 1]
        assert of["person"] == [person(n, n), person(n, n + 1)]
        assert of["people"] == [person(n, n), person(-n, -n)] * 2
        assert of["mortal"] == [person(n, n)] * 2
        assert of["row"] == [{"f0": n, "f1": None, "f2": f"row {n}" if n % 3 else None}] * 2
        text = f"a longer text {n}" if n % 3 else "null"
        decimal = "null" if n % 2 == 0 else f"-0.{n}"
        assert of["sql"] == [f"{n}|5|{text}|{decimal}|a text that is longer"] * 2
        text, within = text if n % 3 else "null", f"{-n},null" if n % 5 else "null"
        assert of["nested"] == [f"{n}|more than 7 bytes|{text}|{within}|{n}"] * 2
        assert of["thing"] == [{"number": n, "grade": "new", "tags": [f"a{n}", "b"]}] * 2
    # What Flink itself writes for the new types is what was written for it.
    own = held.cluster.stopped(running, held.folder / "savepoints-2")
    assert "spare" in snapshots(held.savepoint)
    assert snapshots(target) == snapshots(own)


@pytest.mark.slow
def test_entries_that_stay_behind_begin_anew_and_all_others_go_on(held: Held) -> None:
    target = held.folder / "pruned"
    where = ("--where", "key.key in ('key-1', 'key-3')", "--operator", "held")
    words = ("--yes", "--workdir", held.folder / "runs" / "prune")
    stateshift("prune", held.savepoint, "--to", target, *where, *words, cwd=ROOT)
    stateshift("verify", "--deep", target, cwd=ROOT)
    running = held.run(held.before, "third", FIRST + KEYS, target)
    held.cluster.cancelled(running)
    told = held.lines("third")
    for at in range(KEYS):
        n = FIRST - KEYS + at
        number = next(value for key, value in told["number"] if key == f"key-{at}")
        row = next(value for key, value in told["row"] if key == f"key-{at}")
        assert (number, row == "null") == (("null", True) if at % 2 else (str(n), False))


@pytest.mark.slow
def test_a_query_with_one_aggregate_more_goes_on_from_the_others(held: Held) -> None:
    asked = "select mod(n, 4), count(*), {} sum(n) from numbers group by mod(n, 4)"
    job = held.run(held.before, "asked", FIRST, query=asked.format(""))
    savepoint = held.cluster.stopped(job, held.folder / "savepoints-of-sql")
    shown = stateshift("inspect", savepoint, "--json", cwd=ROOT).json
    (operator,) = [each["id"] for each in shown["operators"] if "accState" in json.dumps(each)]
    target = held.folder / "evolved-query"
    add = ("--add", "most:BIGINT=25@f0", "--store", "accState", "--operator", operator)
    words = ("--yes", "--workdir", held.folder / "runs" / "query")
    stateshift("evolve", savepoint, "--to", target, *add, *words, cwd=ROOT)
    job = held.run(held.before, "asked-more", ALL, target, query=asked.format("max(n),"))
    held.cluster.cancelled(job)
    rows = [json.loads(row) for kind, row in held.lines("asked-more")["query"] if kind == "+U"]
    for n in range(FIRST, ALL):
        key, count = n % KEYS, n // KEYS + 1
        total = sum(range(key, n + 1, KEYS))
        assert {"f0": key, "f1": count, "f2": max(n, 25), "f3": total} in rows


@pytest.mark.slow
@pytest.mark.row("W-9")
def test_a_query_goes_on_with_another_max_parallelism(held: Held) -> None:
    """One aggregate is of keys, and one of all rows, which Flink sets to one key group."""
    counts = "select mod(n, 16) k, count(*) c from numbers group by mod(n, 16)"
    query = f"select count(*), sum(c) from ({counts})"

    def run(name: str, hold: int, most: int, savepoint: Path | None = None) -> str:
        words = {"hold": hold, "output": held.folder / name, "per-second": 0}
        words |= {"query": query, "max-parallelism": most}
        job = started(held.cluster, held.before, "jobs.Evolving", words, savepoint)
        until(lambda: {"f0": 16, "f1": hold} in rows(name))
        return job

    def rows(name: str) -> list[dict[str, int]]:
        told = held.lines(name)["query"]
        return [json.loads(row) for kind, row in told if kind in ("+I", "+U")]

    savepoint = held.cluster.stopped(run("grouped", FIRST, 8), held.folder / "savepoints-of-groups")
    target = held.folder / "regrouped"
    words = ("--to", target, "--yes", "--workdir", held.folder / "runs" / "regroup")
    stateshift("repartition", savepoint, "--max-parallelism", "300", *words, cwd=ROOT)
    stateshift("verify", "--deep", target, cwd=ROOT)
    operators = stateshift("inspect", target, "--json", cwd=ROOT).json["operators"]
    assert {operator["max_parallelism"] for operator in operators} == {1, 300}
    held.cluster.cancelled(run("regrouped", ALL, 300, target))
    assert min(row["f1"] for row in rows("regrouped")) >= FIRST - 2


def edited(row: dict[str, Any], key: str, n: int) -> dict[str, Any]:
    """A row of `held` as that of another key, with the values of another number."""
    value, home = row["value"], {"town": "a new town", "zip": n}
    someone = {"count": n, "home": home, "name": "é☃", "old": None, "kind": "OTHER"}
    values: dict[str, Any] = {
        "number": n,
        "spare": n,
        "person": someone,
        "people": [someone],
        "mortal": row["store"] == "mortal" and {**value, "value": someone},
        "row": {"f0": n, "f1": None, "f2": 0.5},
        "sql": {"f0": n, "f1": "a text", "f2": 0.25, "f3": "-1.50"},
        "thing": {"id": n, "tags": ["x"], "spare": None},
    }
    own = {**row["key"], "key": key}
    return {**row, "key": own, "value": values.get(row["store"], value)}


@pytest.mark.row("W-18")
def test_edited_state_is_what_a_real_flink_goes_on_from(held: Held) -> None:
    rows, new = held.folder / "rows.jsonl", held.folder / "edited.jsonl"
    stateshift("export", held.savepoint, "--to", rows, "--operator", "held", cwd=ROOT)
    lines = []
    for row in map(json.loads, rows.read_text().splitlines()):
        match row["key"]["key"]:
            case "key-0":  # as it is, and once more under another key
                lines += [row, edited(row, "key-4", 4_004)]
            case "key-1":
                lines.append(edited(row, "key-1", 1_001))
            case "key-3":
                lines.append(row)
    new.write_text("".join(json.dumps(line) + "\n" for line in lines))
    target = held.folder / "imported"
    words = ("--yes", "--workdir", held.folder / "runs" / "import")
    stateshift("import", new, "--template", held.savepoint, "--to", target, *words, cwd=ROOT)
    stateshift("verify", "--deep", target, cwd=ROOT)
    running = held.run(held.before, "fourth", FIRST + 6, target, keys=6)
    own = held.cluster.stopped(running, held.folder / "savepoints-4")
    told = held.lines("fourth")
    first = {state: dict(reversed(of)) for state, of in told.items()}
    numbers = ["20", "1001", "null", "23", "4004", "null"]
    assert [first["number"][f"key-{at}"] for at in range(6)] == numbers
    someone = {"count": 4_004, "home": {"town": "a new town", "zip": 4_004}, "kind": "OTHER"}
    assert json.loads(first["person"]["key-4"]) == {**someone, "name": "é☃", "old": None}
    assert first["people"]["key-4"] == first["mortal"]["key-4"] == first["person"]["key-4"]
    assert json.loads(first["row"]["key-1"]) == {"f0": 1_001, "f1": None, "f2": 0.5}
    assert json.loads(first["thing"]["key-1"]) == {"id": 1_001, "tags": ["x"], "spare": None}
    assert first["person"]["key-2"] == first["thing"]["key-2"] == "null"
    assert snapshots(target) == snapshots(own)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["string", "tuple"])
def test_a_flink_1_20_goes_on_from_an_answer_about_its_own_counts(
    kind: str, tmp_path: Path
) -> None:
    with group(tmp_path / "servers", "flink-1.20") as servers:
        cluster = cluster_of(servers, "flink-1.20")

        def counted(name: str, hold: int, savepoint: Path | None = None) -> str:
            words = {"keys": KEYS, "kind": kind, "output": tmp_path / name, "hold": hold}
            words["per-second"] = 0
            job = started(cluster, jar(cluster.lib), "jobs.Count", words, savepoint)
            wanted = hold - (FIRST if savepoint else 0)
            until(lambda: len(lines(tmp_path / name / "orders")) == wanted)
            return job

        savepoint = cluster.stopped(counted("first", FIRST), tmp_path / "savepoints")
        tables = tables_of([str(savepoint)], look.open_patiently)
        (table,) = [table for table in tables if table.store == "count"]
        sql = f"select key, value::bigint + 1000 as value from {table.name}"
        words = ("--operator", table.operator, "--store", "count", "--template", savepoint, "--yes")
        target, run = tmp_path / "imported", tmp_path / "run"
        stateshift("import", sql, *words, "--to", target, "--workdir", run, cwd=ROOT)
        stateshift("verify", "--deep", target, cwd=ROOT)
        cluster.cancelled(counted("second", ALL, target))
        for line in lines(tmp_path / "second" / "orders"):
            assert line.count == line.number // KEYS + 1 + 1000


@pytest.mark.slow
@pytest.mark.row("W-9")
@pytest.mark.parametrize(
    ("kind", "others"),
    [
        (
            "pojo",
            {
                "return 17 * name.hashCode()": ("return 19 * name.hashCode()", OTHER_HASH),
                "@Override\n        public int hashCode()": (
                    "public int hashed()",
                    "have no hashCode of their own",
                ),
                "Point": ("Dot", "cannot restore their serializer"),
            },
        ),
        ("kryo", {"return name.hashCode() - 7": ("return name.hashCode() - 9", OTHER_HASH)}),
    ],
)
def test_keys_of_a_jobs_own_classes_get_another_max_parallelism_by_its_jar(
    kind: str, others: dict[str, tuple[str, str]], held: Held, tmp_path: Path
) -> None:
    """Without the jar, or with one of other classes, nothing is written and the reason is told."""
    lib, keys = held.cluster.lib, 2 * KEYS
    own = jar(lib)

    def counted(name: str, hold: int, most: int, savepoint: Path | None = None) -> str:
        words = {"keys": keys, "kind": kind, "output": tmp_path / name, "hold": hold}
        words |= {"per-second": 0, "max-parallelism": most}
        job = started(held.cluster, own, "jobs.Count", words, savepoint)
        wanted = hold - (FIRST if savepoint else 0)
        until(lambda: len(lines(tmp_path / name / "orders")) == wanted)
        return job

    savepoint = held.cluster.stopped(counted("first", FIRST, 8), tmp_path / "savepoints")
    target = tmp_path / "regrouped"
    words = ["repartition", savepoint, "--max-parallelism", "300", "--to", target, "--yes"]
    words += ["--workdir", tmp_path / "run", "--flink", lib.parent]
    with_classes = [*words, "--classes"]
    refused = [(words[:-2], "only the job's own code tells their hash")]
    for number, (was, (becomes, why)) in enumerate(others.items()):
        other = with_other_keys(lib, tmp_path / f"other-{number}", was, becomes)
        refused.append(([*with_classes, other], why))
    for asked, why in refused:
        ran = stateshift(*asked, cwd=ROOT, code=None)
        assert ran.code != 0
        assert why in ran.out + ran.err
        assert "--classes" in ran.out + ran.err
        assert not target.exists()
    stateshift(*with_classes, own, cwd=ROOT)
    stateshift("verify", "--deep", target, cwd=ROOT)
    held.cluster.cancelled(counted("second", ALL, 300, target))
    for line in lines(tmp_path / "second" / "orders"):
        assert line.count == line.number // keys + 1


@pytest.mark.slow
def test_keys_are_hashed_in_a_jvm_that_no_ctrl_c_reaches_and_that_can_be_replaced(
    held: Held, tmp_path: Path
) -> None:
    """Also those that Py4J would turn into numbers of Python."""
    home, own = str(held.cluster.lib.parent), tmp_path / "job.jar"
    with zipfile.ZipFile(own, "w") as packed:
        packed.writestr("nothing", "")
    digests = jvm.digests_of([str(own)])
    gateway = jvm.gateway_of((*jvm.distribution(home)[1], str(own)), tuple(digests.values()))
    java, flink = gateway.jvm.java, gateway.jvm.org.apache.flink
    base = flink.api.common.typeutils.base

    def snapshot_of(serializer: Any) -> bytes:
        written, snapshots = flink.core.memory.DataOutputSerializer(64), flink.api.common.typeutils
        snapshots.TypeSerializerSnapshot.writeVersionedSnapshot(
            written, serializer.snapshotConfiguration()
        )
        return bytes(written.getCopyOfBuffer())

    def bytes_of(serializer: Any, key: Any) -> bytes:
        written = flink.core.memory.DataOutputSerializer(64)
        serializer.serialize(key, written)
        return bytes(written.getCopyOfBuffer())

    def hashed(raw: bytes, snapshot: bytes) -> int:
        where = np.array([0]), np.array([len(raw)])
        (code,) = jvm.hashing(digests, home)(snapshot)(np.frombuffer(raw, np.uint8), *where)
        return int(code)

    days = java.util.concurrent.TimeUnit.DAYS
    decimals, texts = base.BigDecSerializer.INSTANCE, base.StringSerializer.INSTANCE
    enums, snapshot = base.EnumSerializer(days.getDeclaringClass()), snapshot_of(texts)
    price = bytes_of(decimals, java.math.BigDecimal("1.50"))
    assert hashed(price, snapshot_of(decimals)) == 31 * 150 + 2
    text = bytes_of(texts, "ab")
    assert hashed(text, snapshot) == 97 * 31 + 98
    with pytest.raises(PlanError, match="TimeUnit have no hashCode of their own"):
        hashed(bytes_of(enums, days), snapshot_of(enums))
    process = int(java.lang.ProcessHandle.current().pid())
    assert os.getpgid(process) == process  # Ctrl-C in a terminal goes to the group of this one
    hasher = jvm.hashing(digests, home)(snapshot)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(ClusterError, match="has ended"):
        hasher(np.frombuffer(text, np.uint8), np.array([0]), np.array([len(text)]))
    assert hashed(text, snapshot) == 97 * 31 + 98


def with_other_keys(lib: Path, folder: Path, was: str, becomes: str) -> Path:
    """A jar of the classes of keys that have become others."""
    folder.mkdir()
    source = folder / "Keys.java"
    text = (JOBS / "Keys.java").read_text()
    assert was in text
    source.write_text(text.replace(was, becomes))
    javac = Path(downloads.java()).resolve().with_name("javac")
    words = [str(javac), "--release", "11", "-proc:none", "-nowarn", "-cp", f"{lib}/*"]
    subprocess.run([*words, "-d", str(folder / "classes"), str(source)], check=True)
    made = folder / "other.jar"
    with zipfile.ZipFile(made, "w") as packed:
        for file in sorted((folder / "classes").rglob("*.class")):
            packed.write(file, str(file.relative_to(folder / "classes")))
    return made
