"""Jobs of Flink that change between two starts: an image of the old job, and the new one.

The images are those of tests/golden, which real clusters wrote. The new jobs are those of
tests/flink/jobs, with other arguments. `verdict` is what a check with a rehearsal says; a real
Flink is asked the same in test_flink_pairs.py.

    python -m tests.check.flink_pairs     has Flink 1.20 plan every job, and records its answers:
                                          the fast tests judge them without a JVM
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stateshift.check import Code
from stateshift.check.flink import capture
from stateshift.check.flink.checking import SurveyedSavepoint, judge
from stateshift.check.flink.compare import VALUES
from stateshift.check.verdict import Checked
from stateshift.engines.registry import find_image
from stateshift.plain import JsonObject
from stateshift.storage.opening import open_patiently
from tests.support.flink import jar
from tests.support.servers import downloads

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
HOLD = 100  # the number before which the sources of the new jobs wait
KEPT = ("--flink.state.backend.type", "--flink.state.backend")
COUNT, SQL, TABLES, KINDS = "jobs.Count", "jobs.Sql", "jobs.Tables", "jobs.Kinds"


@dataclass(frozen=True)
class Pair:
    """An image, and a job that shall start from it: its own with other `words`."""

    case: str
    verdict: str
    words: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    parallelism: int = 2
    main: str = COUNT
    allow: bool = False
    since: tuple[int, ...] = (1, 15)

    @property
    def planned_verdict(self) -> str:
        """What a check without a rehearsal says: nobody knows the types of values."""
        if "missing-operator" in self.rules:
            return "starts-after"
        is_open = self.verdict == "starts" or "rehearsal" in self.rules
        return "not-known" if is_open else self.verdict

    def arguments(self, version: str, folder: Path) -> list[str]:
        """Return the arguments of the new job."""
        told = told_of(version, self.case)["arguments"]
        words = dict(zip(told[::2], told[1::2], strict=True))
        words = {key: value for key, value in words.items() if key in KEPT or "--flink" not in key}
        changed = {f"--{key}": value for key, value in self.words.items()}
        words |= {"--output": str(folder), "--hold": str(HOLD), **changed}
        return [word for key, value in words.items() if value for word in (key, value)]

    def image(self, version: str) -> Path:
        return place_of(version, self.case)

    def code(self, version: str, lib: Path, folder: Path) -> Code:
        """Return the jar, as a check takes it."""
        return Code(
            str(jar(lib)),
            tuple(self.arguments(version, folder)),
            flink=str(lib),
            main_class=self.main,
            parallelism=self.parallelism,
            allow_non_restored=self.allow,
        )

    def judged(
        self,
        version: str,
        answer: JsonObject,
        waive: tuple[str, ...] = (),
        before: JsonObject | None = None,
    ) -> Checked:
        """Return the verdict on an answer of Flink's planner; `before` is that on the old code."""
        location = f"file://{self.image(version)}"
        _, _, survey = find_image(location, open_patiently)
        savepoint = SurveyedSavepoint(location, survey, open_patiently)
        old = None if before is None else "old.jar"
        code = Code("jobs.jar", before=old, allow_non_restored=self.allow)
        return judge(savepoint, {**answer, "before": before}, code, None, waive)


RECORDED, QUICK = GOLDEN / "check" / "flink.json.gz", "1.20.5"


def record() -> None:
    """Have one Flink plan every job, and keep its answers."""
    lib, answers = downloads.flink(QUICK), {}
    jars = [str(jar) for jar in sorted(lib.glob("*.jar"))]
    with tempfile.TemporaryDirectory() as folder:
        request: dict[str, object] = {
            "jars": jars,
            "conf": None,
            "scratch": folder,
            "rehearse": None,
        }
        gateway = capture.launch(request)
        for name, pair in PAIRS.items():
            code = pair.code(QUICK, lib, Path(folder))
            own = {"file": code.file, "arguments": list(code.arguments)}
            asked = {"main_class": code.main_class, "parallelism": code.parallelism}
            flink = capture.Flink(gateway, {**request, **own, **asked})
            flink.plan_jar()
            answers[name] = {"flink": flink.version(), "jobs": flink.jobs}
            print(name, pair.judged(QUICK, answers[name]).verdict, flush=True)
    packed = json.dumps(answers, sort_keys=True, separators=(",", ":")).encode()
    RECORDED.write_bytes(gzip.compress(packed, mtime=0))


def recorded() -> dict[str, JsonObject]:
    return dict(json.loads(gzip.decompress(RECORDED.read_bytes())))


QUERY = "SELECT id, COUNT(*), SUM(amount) FROM orders GROUP BY id"
SCRIPT = f"""\
SET 'pipeline.name' = 'totals';
CREATE TABLE orders (id BIGINT, amount INT) WITH ('connector' = 'datagen',
  'rows-per-second' = '100', 'fields.id.kind' = 'random', 'fields.id.min' = '0', 'fields.id.max' = '9');
CREATE TABLE totals (id BIGINT, c BIGINT, s INT) WITH ('connector' = 'blackhole');
INSERT INTO totals {QUERY};
"""
PLANNED = SCRIPT.replace(
    f"INSERT INTO totals {QUERY};",
    f"COMPILE PLAN 'PLACE/plan.json' IF NOT EXISTS FOR INSERT INTO totals {QUERY};\n"
    "EXECUTE PLAN 'PLACE/plan.json';",
)
JOINED = (
    "SELECT o.id, COUNT(*), SUM(p.amount) FROM orders o JOIN orders p ON o.id = p.id GROUP BY o.id"
)
OF_JOIN = SCRIPT.replace(QUERY, JOINED)
REORDERED = "SELECT id, SUM(amount) AS s, COUNT(*) AS c FROM orders GROUP BY id"
# A file of SQL, the changed file, and the verdict; none where it depends on the version.
SCRIPTS = {
    "nothing": (SCRIPT, SCRIPT, "starts"),
    "another name": (SCRIPT, SCRIPT.replace("'totals'", "'sums'"), "starts"),
    "a filter": (SCRIPT, SCRIPT.replace("GROUP", "WHERE amount > 0 GROUP"), "starts-after"),
    "keys of another type": (
        SCRIPT,
        SCRIPT.replace("id BIGINT, amount INT) WITH", "id INT, amount INT) WITH"),
        "never",
    ),
    "values of another type": (
        SCRIPT,
        SCRIPT.replace("amount INT", "amount BIGINT").replace("s INT", "s BIGINT"),
        "never",
    ),
    "a join before": (SCRIPT, SCRIPT.replace(QUERY, JOINED), "starts-after"),
    "no state": (SCRIPT, SCRIPT.replace(QUERY, "SELECT id, 1, amount FROM orders"), "starts-after"),
    "an aggregate more": (
        SCRIPT,
        SCRIPT.replace("SUM(amount)", "SUM(amount) + MAX(amount)"),
        "never",
    ),
    "aggregates reordered": (
        SCRIPT,
        SCRIPT.replace(QUERY, f"SELECT id, c, s FROM ({REORDERED})"),
        "never",
    ),
    # The engine takes the one for the other: no savepoint tells an expression.
    "max for sum": (SCRIPT, SCRIPT.replace("SUM(amount)", "MAX(amount)"), "starts"),
    # Flink 2.3 takes the state; which versions do is theirs to say.
    "a time to live": (SCRIPT, f"SET 'table.exec.state.ttl' = '1 h';\n{SCRIPT}", ""),
    "a join": (OF_JOIN, OF_JOIN, "starts"),
    "a join, and outer now": (OF_JOIN, OF_JOIN.replace("o JOIN", "o LEFT JOIN"), "never"),
    "a plan that is kept": (PLANNED, PLANNED, "starts"),
    "a plan that is kept, another text": (
        PLANNED,
        PLANNED.replace("SUM(amount)", "MAX(amount)"),
        "starts",
    ),
}


def told_of(version: str, case: str) -> dict[str, list[str]]:
    told: dict[str, list[str]] = json.loads((folder_of(version, case) / "told.json").read_text())
    return told


def place_of(version: str, case: str) -> Path:
    return folder_of(version, case) / str(told_of(version, case)["image"])


def folder_of(version: str, case: str) -> Path:
    return GOLDEN / f"flink-{version}" / case


ONE, TWO, BARE = "count-canonical-hashmap", "count-two", "count-no-uids"
NATIVE = "count-native-incremental"
MISSING = ("missing-operator",)
HASHMAP = {"flink.state.backend.type": "hashmap", "flink.state.backend": "hashmap"}
ROCKSDB = {"flink.state.backend.type": "rocksdb", "flink.state.backend": "rocksdb"}
UNNAMED = dict.fromkeys(HASHMAP, "")
PAIRS = {
    "nothing": Pair(ONE, "starts"),
    "more subtasks": Pair(ONE, "starts", parallelism=4),
    "fewer subtasks": Pair(ONE, "starts", parallelism=1),
    "the state's key groups": Pair(ONE, "starts", {"max-parallelism": ""}, parallelism=3),
    "more key groups": Pair(ONE, "starts-after", {"max-parallelism": "16"}, ("max-parallelism",)),
    "fewer key groups": Pair(ONE, "starts-after", {"max-parallelism": "4"}, ("max-parallelism",)),
    "more subtasks than key groups": Pair(
        ONE, "starts-after", {"max-parallelism": ""}, ("parallelism",), parallelism=9
    ),
    "an operator more": Pair(ONE, "starts", {"counters": "orders,payments"}, ("new-operator",)),
    "an operator less": Pair(TWO, "starts-after", {"counters": "payments"}, MISSING),
    "an operator less, and allowed": Pair(
        TWO, "starts", {"counters": "payments"}, ("left-behind",), allow=True
    ),
    "all renamed": Pair(ONE, "starts-after", {"counters": "payments"}, MISSING),
    "all renamed, and allowed": Pair(
        ONE, "starts-but", {"counters": "payments"}, ("left-behind",), allow=True
    ),
    "keys of another type": Pair(ONE, "never", {"kind": "long"}, ("key-type",)),
    "keys of another type, from longs": Pair(TWO, "never", {"kind": "int"}, ("key-type",)),
    "keys that are tuples": Pair(ONE, "never", {"kind": "tuple"}, ("key-type",)),
    "no uids, as before": Pair(BARE, "starts", {}, ("generated-ids",)),
    "uids for generated ids": Pair(BARE, "starts-after", {"uids": "true"}, MISSING),
    "generated ids for uids": Pair(ONE, "starts-after", {"uids": "false"}, MISSING),
    "another graph without uids": Pair(
        BARE, "starts-after", {"sources": "north,south", "regions": "north,south"}, MISSING
    ),
    "another graph with uids": Pair(
        ONE, "starts-after", {"sources": "north,south", "regions": "north,south"}, MISSING
    ),
    "SQL, nothing": Pair("sql-canonical-hashmap", "starts", main=SQL),
    # Nobody kept the plan: whether the planner numbers its nodes as it did is chance.
    "SQL, nothing, of a plan": Pair("sql-plan", "not-known", {"hold": ""}, main=SQL),
    "SQL, another query": Pair("sql-canonical-hashmap", "starts-after", {"plan": "true"}, main=SQL),
    "SQL of many kinds": Pair(
        "tables-canonical", "starts", main=TABLES, parallelism=1, since=(1, 20)
    ),
    # The state of `shares` has no keys: a rehearsal does not open it.
    "all kinds of state": Pair("kinds-canonical-hashmap", "not-known", main=KINDS),
    "kinds of state less": Pair(
        "kinds-canonical-hashmap", "starts-after", {"only": "values,timers"}, MISSING, main=KINDS
    ),
    "RocksDB, nothing": Pair(NATIVE, "starts"),
    "RocksDB, counts of another type": Pair(NATIVE, "never", {"counted": "int"}, ("rehearsal",)),
    "RocksDB, and hashmap now": Pair(NATIVE, "starts-after", HASHMAP, ("backend",)),
    "RocksDB, and no backend named": Pair(NATIVE, "not-known", UNNAMED, ("backend",)),
    "hashmap, nothing": Pair("count-native-hashmap", "starts"),
    "hashmap, and RocksDB now": Pair("count-native-hashmap", "starts-after", ROCKSDB, ("backend",)),
    "canonical, and RocksDB now": Pair(ONE, "starts", ROCKSDB),
    "counts of another type": Pair(ONE, "never", {"counted": "int"}, ("rehearsal",)),
    "counts of another type, by another uid": Pair(
        ONE, "never", {"counted": "int", "uids": "false"}, (*MISSING, "rehearsal")
    ),
    # A rehearsal reads no record, and this function asks for its state with the first one.
    "counts asked for late": Pair(ONE, "not-known", {"late": "true"}, (VALUES,)),
    "counts of another type, asked for late": Pair(
        ONE, "not-known", {"late": "true", "counted": "int"}, (VALUES,)
    ),
    "another payload": Pair(ONE, "starts", {"payload": "16"}),
    "two of them, renamed": Pair(TWO, "starts-after", {"counters": "a,b"}, MISSING),
    "values of all types": Pair("typed-canonical", "starts", main="jobs.Typed"),
    "hashmap, values of all types": Pair("typed-native-hashmap", "starts", main="jobs.Typed"),
    "hashmap, all kinds of state": Pair("kinds-native-hashmap", "not-known", main=KINDS),
    # The folder was copied since, and Flink looks for its shared files where they were.
    "RocksDB, a copied checkpoint": Pair(
        "count-checkpoint-incremental", "starts-after", rules=("moved-files",)
    ),
    "RocksDB, SQL": Pair("sql-native-incremental", "starts", main=SQL),
    "a drained job": Pair("count-drained", "starts"),
    "RocksDB, all renamed": Pair(NATIVE, "starts-after", {"counters": "payments"}, MISSING),
    "RocksDB, keys of another type": Pair(NATIVE, "never", {"kind": "long"}, ("key-type",)),
    "RocksDB, fewer subtasks": Pair(NATIVE, "starts", parallelism=1),
    "RocksDB, more key groups": Pair(
        NATIVE, "starts-after", {"max-parallelism": "16"}, ("max-parallelism",)
    ),
}


if __name__ == "__main__":
    record()
