"""Jobs that change between two starts: the pairs of old and new code that real Sparks judged.

A base job leaves a checkpoint. Each change is the same job with other lines; Spark starts it from a
copy of that checkpoint. The outcome is one of

    right      it starts, and its output is that of the new code run from the beginning
    wrong      it starts, and its output differs from that
    refused    it fails, by this error class of Spark

Every job is a whole script, as a user would write it. Its one argument is a folder: `in` and
`other` hold its input, `checkpoint` its checkpoint, `out` gets its output, a file a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PRELUDE = """\
import json, sys
from pyspark.sql import SparkSession, functions as F

place = sys.argv[1]
spark = SparkSession.builder.master("local[1]").getOrCreate()
{settings}
COLUMNS = "id long, at timestamp, word string, user string, amount double, price double, n int"


def read(folder):
    files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    return files.json(f"{{place}}/{{folder}}")


def show(rows, batch):
    with open(f"{{place}}/out/{{batch}}.json", "w") as file:
        json.dump(sorted(rows.toJSON().collect()), file)


orders = read("in")
"""
# The rows of a file sink are all that it has, of all starts.
FILES = """
writer = out.writeStream.format("json").option("path", f"{place}/sink")
query = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
import os
if os.path.exists(f"{place}/sink"):
    show(spark.read.schema("id long, word string").json(f"{place}/sink/*.json"), "all")
"""
ENDING = """
writer = out.writeStream.outputMode("{mode}").foreachBatch(show)
query = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
"""
PARTITIONS = "spark.sql.shuffle.partitions"
COMPACTED = "spark.sql.streaming.fileSink.log.compactInterval"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = f"{STATE}.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Job:
    """A job: the lines that make `out` of `orders`, its output mode, its settings, its end."""

    lines: str
    mode: str = "update"
    settings: Mapping[str, str] = field(default_factory=dict)
    ending: str = ENDING

    @property
    def all_settings(self) -> Mapping[str, str]:
        return {PARTITIONS: "2", **self.settings}

    @property
    def script(self) -> str:
        settings = self.all_settings.items()
        set_all = "\n".join(f'spark.conf.set("{key}", "{value}")' for key, value in settings)
        ending = self.ending.replace("{mode}", self.mode)
        return f"{PRELUDE.format(settings=set_all)}{self.lines.strip()}\n{ending}"


WINDOW = Job(
    """
late = orders.withWatermark("at", "5 seconds")
out = late.groupBy(F.window("at", "2 seconds"), "word").agg(
    F.count("*").alias("count"), F.sum("amount").alias("total"))
"""
)
KEYED = Job('out = orders.groupBy("user", "word").agg(F.max("n").alias("most"))')
SESSION = Job(
    """
late = orders.withWatermark("at", "1 minute")
out = late.groupBy(F.session_window("at", "3 seconds"), "word").count()
""",
    "append",
)
JOIN = Job(
    """
left = orders.withWatermark("at", "2 seconds").select("id", "at", "word", "amount")
right = read("other").withWatermark("at", "2 seconds").select(
    F.col("id").alias("id2"), F.col("at").alias("at2"), F.col("word").alias("word2"),
    F.col("amount").alias("amount2"))
out = left.join(right, F.expr("word = word2 and at2 between at - interval 5 seconds and at + interval 5 seconds"))
""",
    "append",
)
DEDUP = Job(
    'out = orders.withWatermark("at", "1 minute").dropDuplicates(["word", "user"])', "append"
)
WITHIN = Job(
    'out = orders.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["word"])',
    "append",
)
CHAIN = Job(
    """
late = orders.withWatermark("at", "1 minute").dropDuplicates(["id", "at"])
out = late.groupBy(F.window("at", "10 seconds")).count()
""",
    "append",
)
STATELESS = Job('out = orders.select("id", "word")', "append")
UNION = Job('out = orders.union(read("other")).groupBy("word").agg(F.sum("amount").alias("total"))')
LIMIT = Job('out = orders.limit(12).select("id")', "append")
GROUPS = Job(
    """
def total(key, frames, state):
    import pandas
    count = state.get[0] if state.exists else 0
    count += sum(len(frame) for frame in frames)
    state.update((count,))
    yield pandas.DataFrame({"word": [key[0]], "count": [count]})


out = orders.groupBy("word").applyInPandasWithState(
    total, "word string, count long", "count long", "update", "NoTimeout")
"""
)
FILED = Job(STATELESS.lines, "append", {COMPACTED: "2"}, FILES)
STORED = Job(WINDOW.lines, settings={PROVIDER: ROCKSDB})
HELD = Job(
    """
import pandas
from pyspark.sql.streaming import StatefulProcessor


class Seen(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "n long")
        self.ids = handle.getListState("ids", "id long")
        self.most = handle.getMapState("most", "user string", "amount double")

    def handleInputRows(self, key, rows, times):
        held = self.count.get() if self.count.exists() else (0,)
        n = held[0] or 0
        for row in (row for frame in rows for row in frame.itertuples()):
            n += 1
            self.ids.appendValue((int(row.id),))
            user = (row.user,)
            known = self.most.getValue(user)[0] if self.most.containsKey(user) else 0.0
            self.most.updateValue(user, (max(known, row.amount),))
        self.count.update((n,))
        ids, most = len(list(self.ids.get())), sum(each[0] for _, each in self.most.iterator())
        yield pandas.DataFrame({"word": [key[0]], "n": [int(n)], "ids": [ids], "most": [most]})

    def close(self):
        pass


out = orders.groupBy("word").transformWithStateInPandas(
    Seen(), "word string, n long, ids long, most double", "update", "None")
""",
    settings={PROVIDER: ROCKSDB},
)
FORMAT_OF_JOIN = "spark.sql.streaming.join.stateFormatVersion"
PAIRED = Job(JOIN.lines, JOIN.mode, {PROVIDER: ROCKSDB, FORMAT_OF_JOIN: "3"})
KEPT = Job(WITHIN.lines, WITHIN.mode, {PROVIDER: ROCKSDB})
DOUBLE = Job(
    """
late = orders.withWatermark("at", "1 minute")
out = late.dropDuplicates(["id", "at"]).dropDuplicates(["word", "at"])
""",
    "append",
)
BASES = {
    "window": WINDOW,
    "keyed": KEYED,
    "session": SESSION,
    "join": JOIN,
    "dedup": DEDUP,
    "within": WITHIN,
    "chain": CHAIN,
    "stateless": STATELESS,
    "union": UNION,
    "limit": LIMIT,
    "groups": GROUPS,
    "stored": STORED,
    "held": HELD,
    "paired": PAIRED,
    "kept": KEPT,
    "double": DOUBLE,
    "filed": FILED,
}


@dataclass(frozen=True)
class Change:
    """A base job with other words, another mode or other settings."""

    base: str
    words: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    ending: str | None = None

    @property
    def job(self) -> Job:
        old = BASES[self.base]
        lines = old.lines
        for word, other in self.words.items():
            assert word in lines, f"{word!r} is not in the job {self.base}"
            lines = lines.replace(word, other)
        settings = {**old.settings, **self.settings}
        return Job(lines, self.mode or old.mode, settings, self.ending or old.ending)


# With the old code: Spark's output is right here, and need not be with other input.
CAUTIOUS = (
    "join: left outer",
    "join: narrower range",
    "limit: less",
    "groups: a field renamed",
)
# Without the old code: the checkpoint does not tell these.
HIDDEN = (
    "window: sum of another column",
    "stored: sum of another column",
    "window: count of a condition",
    "window: complete",
    "join: wider range",
    "paired: wider range",
    "limit: more",
    "filed: another folder",
    "stateless: a file sink",
)
# The body of a Python function is in no plan: neither tells this.
UNSEEN = ("groups: another function", "held: another function")
# Spark's own planner says what it makes of the variables of transformWithState, and of Avro.
SPARKS_OWN = (
    "held: a list for a value",
    "held: append",
    "held: timers",
)

TOTAL = 'F.sum("amount").alias("total")'
INIT = "    def init(self, handle):\n"
FIELD = {'"n long"': '"n long, last long"', "update((n,))": "update((n, 1))"}
CHANGES: Mapping[str, Change] = {
    "window: nothing": Change("window"),
    "window: a filter before": Change("window", {"orders.with": 'orders.where("id >= 0").with'}),
    "window: another alias": Change("window", {'"total"': '"sum_of_all"'}),
    "window: an aggregate more": Change("window", {TOTAL: TOTAL + ', F.min("n").alias("least")'}),
    "window: an aggregate less": Change("window", {'F.count("*").alias("count"), ': ""}),
    "window: aggregates reordered": Change(
        "window",
        {f'F.count("*").alias("count"), {TOTAL}': f'{TOTAL}, F.count("*").alias("count")'},
    ),
    "window: max for sum": Change("window", {"F.sum": "F.max"}),
    "window: sum of another column": Change("window", {'F.sum("amount")': 'F.sum("price")'}),
    "window: avg for sum": Change("window", {"F.sum": "F.avg"}),
    "window: count of a condition": Change(
        "window", {'F.count("*")': 'F.count(F.when(F.col("n") > 2, 1))'}
    ),
    "window: longer": Change("window", {'"2 seconds"': '"4 seconds"'}),
    "window: sliding": Change("window", {'"2 seconds"': '"2 seconds", "1 second"'}),
    "window: watermark longer": Change("window", {'"5 seconds"': '"1 minute"'}),
    "window: watermark shorter": Change("window", {'"5 seconds"': '"1 second"'}),
    "window: no watermark": Change("window", {'.withWatermark("at", "5 seconds")': ""}),
    "window: a key more": Change("window", {'"word")': '"word", "user")'}),
    "window: a key less": Change("window", {', "word")': ")"}),
    "window: keys reordered": Change(
        "window", {'F.window("at", "2 seconds"), "word"': '"word", F.window("at", "2 seconds")'}
    ),
    "window: another key": Change("window", {'"word"': '"user"'}),
    "window: start time": Change("window", {'"2 seconds"': '"2 seconds", "2 seconds", "1 second"'}),
    "window: append": Change("window", mode="append"),
    "window: complete": Change("window", mode="complete"),
    "window: other partitions": Change("window", settings={PARTITIONS: "4"}),
    "window: other provider": Change("window", settings={PROVIDER: ROCKSDB}),
    "window: a deduplication before": Change(
        "window", {'"5 seconds")': '"5 seconds").dropDuplicates(["id", "at"])'}
    ),
    "window: stateless": Change(
        "window",
        {
            'groupBy(F.window("at", "2 seconds"), "word").agg(\n    F.count("*").alias("count"), '
            + TOTAL
            + ")": 'select("word")'
        },
    ),
    "keyed: keys swapped": Change("keyed", {'"user", "word"': '"word", "user"'}),
    "keyed: a key renamed": Change("keyed", {'"user",': 'F.col("user").alias("person"),'}),
    "keyed: value widened": Change("keyed", {'F.max("n")': 'F.max(F.col("n").cast("long"))'}),
    "keyed: value narrowed": Change("keyed", {'F.max("n")': 'F.max(F.col("n").cast("short"))'}),
    "keyed: min for max": Change("keyed", {"F.max": "F.min"}),
    "keyed: key of another type": Change("keyed", {'"user",': 'F.col("id").alias("user"),'}),
    "keyed: first for max": Change("keyed", {"F.max": "F.first"}),
    "session: shorter gap": Change("session", {'"3 seconds"': '"1 second"'}),
    "session: longer gap": Change("session", {'"3 seconds"': '"10 seconds"'}),
    "session: a key more": Change("session", {'"word"': '"word", "user"'}),
    "session: window instead": Change("session", {"F.session_window": "F.window"}),
    "session: update": Change("session", mode="update"),
    "join: sides exchanged": Change("join", {"left.join(right": "right.join(left"}),
    "join: left outer": Change("join", {'5 seconds"))': '5 seconds"), "left_outer")'}),
    "join: wider range": Change("join", {"5 seconds": "15 seconds"}),
    "join: narrower range": Change("join", {"5 seconds": "1 second"}),
    "join: another key": Change("join", {"word = word2": "id = id2"}),
    "join: a key more": Change("join", {"word = word2": "word = word2 and id = id2"}),
    "join: a column more": Change("join", {'"word", "amount")': '"word", "amount", "price")'}),
    "join: a column less": Change("join", {'"word", "amount")': '"word")'}),
    "join: columns reordered": Change("join", {'"id", "at"': '"at", "id"'}),
    "join: column of the same type": Change("join", {'"word", "amount")': '"word", "price")'}),
    "join: sources exchanged": Change(
        "join",
        {
            'read("other")': "OTHER",
            "left = orders": 'left = read("other")',
        }
        | {"OTHER": "orders"},
    ),
    "join: format 3": Change("join", settings={"spark.sql.streaming.join.stateFormatVersion": "3"}),
    "join: a semi join": Change("join", {'5 seconds"))': '5 seconds"), "left_semi")'}),
    "dedup: swapped": Change("dedup", {'"word", "user"': '"user", "word"'}),
    "dedup: a column less": Change("dedup", {'"word", "user"': '"word"'}),
    "dedup: a column of another type": Change(
        "dedup", {"orders.": 'orders.withColumn("user", F.col("id")).'}
    ),
    "dedup: with event time": Change("dedup", {'"word", "user"': '"word", "user", "at"'}),
    "dedup: within watermark": Change("dedup", {"dropDuplicates": "dropDuplicatesWithinWatermark"}),
    "dedup: other columns": Change(
        "dedup",
        {'"word", "user"': '"user", "word2"', "orders.": 'orders.withColumn("word2", F.lit("x")).'},
    ),
    "within: longer": Change("within", {"1 minute": "5 minutes"}),
    "within: another column": Change("within", {'"word"': '"user"'}),
    "chain: no deduplication": Change("chain", {'.dropDuplicates(["id", "at"])': ""}),
    "chain: aggregation less": Change(
        "chain", {'.groupBy(F.window("at", "10 seconds")).count()': '.select("id")'}
    ),
    "chain: a limit more": Change("chain", {".count()": '.count().dropDuplicates(["count"])'}),
    "stateless: a filter": Change("stateless", {".select": '.where("id > 3").select'}),
    "stateless: a column more": Change("stateless", {'"word"': '"word", "user"'}),
    "stateless: a rate limit": Change(
        "stateless",
        {
            "orders": "spark.readStream.schema(COLUMNS).option('maxFilesPerTrigger', 5).json(f'{place}/in')"
        },
    ),
    "stateless: an aggregation": Change(
        "stateless", {'.select("id", "word")': '.groupBy("word").count()'}, mode="update"
    ),
    "stateless: another folder": Change("stateless", {"orders.": 'read("other").'}),
    "stateless: a source more": Change("stateless", {"orders.": 'orders.union(read("other")).'}),
    "stateless: another kind": Change(
        "stateless",
        {
            "orders.select": 'spark.readStream.format("rate").load().select(F.col("value").alias("id"), F.lit("x").alias("word")).select'
        },
    ),
    "union: sources exchanged": Change(
        "union", {'orders.union(read("other"))': 'read("other").union(orders)'}
    ),
    "union: a source less": Change("union", {'.union(read("other"))': ""}),
    "limit: more": Change("limit", {"12": "20"}),
    "limit: less": Change("limit", {"12": "5"}),
    "groups: another state": Change("groups", {'"count long", "update"': '"count int", "update"'}),
    "groups: a field more": Change(
        "groups",
        {
            '"count long", "update"': '"count long, last long", "update"',
            "state.update((count,))": "state.update((count, 1))",
        },
    ),
    "groups: a field renamed": Change(
        "groups", {'"count long", "update"': '"total long", "update"'}
    ),
    "groups: a timeout": Change(
        "groups",
        {
            '"NoTimeout"': '"EventTimeTimeout"',
            "orders.groupBy": 'orders.withWatermark("at", "1 minute").groupBy',
        },
    ),
    "groups: another key": Change("groups", {'groupBy("word")': 'groupBy("user")'}),
    "groups: two keys": Change("groups", {'groupBy("word")': 'groupBy("word", "user")'}),
    "groups: another function": Change("groups", {"sum(len(frame) for": "2 * sum(len(frame) for"}),
    "stored: nothing": Change("stored"),
    "stored: HDFS's provider": Change(
        "stored", settings={PROVIDER: f"{STATE}.HDFSBackedStateStoreProvider"}
    ),
    "stored: an aggregate more": Change("stored", {TOTAL: TOTAL + ', F.min("n").alias("least")'}),
    "stored: sum of another column": Change("stored", {'F.sum("amount")': 'F.sum("price")'}),
    "stored: a key more": Change("stored", {'"word")': '"word", "user")'}),
    "stored: Avro": Change(
        "stored", settings={"spark.sql.streaming.stateStore.encodingFormat": "avro"}
    ),
    "within: two columns": Change("within", {'["word"]': '["word", "user"]'}),
    "within: no longer within": Change(
        "within", {"dropDuplicatesWithinWatermark": "dropDuplicates"}
    ),
    "session: sum for count": Change("session", {".count()": '.agg(F.sum("n").alias("count"))'}),
    "session: an aggregate more": Change(
        "session", {".count()": '.agg(F.count("*").alias("count"), F.max("n").alias("most"))'}
    ),
    "within: other provider": Change("within", settings={PROVIDER: ROCKSDB}),
    "kept: nothing": Change("kept"),
    "kept: longer": Change("kept", {"1 minute": "5 minutes"}),
    "kept: two columns": Change("kept", {'["word"]': '["word", "user"]'}),
    "double: swapped": Change(
        "double",
        {'["id", "at"]': "FIRST", '["word", "at"]': '["id", "at"]'} | {"FIRST": '["word", "at"]'},
    ),
    "double: one less": Change("double", {'.dropDuplicates(["word", "at"])': ""}),
    "paired: nothing": Change("paired"),
    "paired: sides exchanged": Change("paired", {"left.join(right": "right.join(left"}),
    "paired: wider range": Change("paired", {"5 seconds": "15 seconds"}),
    "paired: another key": Change("paired", {"word = word2": "id = id2"}),
    "paired: a column more": Change("paired", {'"word", "amount")': '"word", "amount", "price")'}),
    "paired: format 2": Change("paired", settings={FORMAT_OF_JOIN: "2"}),
    "held: nothing": Change("held"),
    "held: a value more": Change(
        "held",
        {
            INIT: INIT + '        self.twice = handle.getValueState("twice", "n long")\n',
            "        ids, most": "        twice = self.twice.get()[0] if self.twice.exists() else 0\n"
            "        self.twice.update((twice + 2,))\n        ids, most",
            "int(n)": "int(n) + twice",
        },
    ),
    "held: a list less": Change(
        "held",
        {
            '        self.ids = handle.getListState("ids", "id long")\n': "",
            "            self.ids.appendValue((int(row.id),))\n": "",
            "len(list(self.ids.get()))": "0",
        },
    ),
    "held: a map less": Change(
        "held",
        {
            '        self.most = handle.getMapState("most", "user string", "amount double")\n': "",
            "self.most.getValue(user)[0] if self.most.containsKey(user) else 0.0": "0.0",
            "            self.most.updateValue(user, (max(known, row.amount),))\n": "",
            "sum(each[0] for _, each in self.most.iterator())": "0.0",
        },
    ),
    "held: a value renamed": Change("held", {'"count", "n long"': '"counted", "n long"'}),
    "held: a value of another type": Change("held", {'"n long"': '"n int"'}),
    "held: a field more": Change("held", FIELD),
    "held: a map's key of another type": Change("held", {'"user string"': '"user binary"'}),
    "held: a list for a value": Change(
        "held",
        {
            'getValueState("count"': 'getListState("count"',
            "self.count.get() if self.count.exists() else (0,)": "(len(list(self.count.get())),)",
            "self.count.update((n,))": "self.count.appendValue((n,))",
        },
    ),
    "held: another key": Change("held", {'groupBy("word")': 'groupBy("user")'}),
    "held: two keys": Change("held", {'groupBy("word")': 'groupBy("word", "user")'}),
    "held: append": Change("held", {'"update", "None"': '"append", "None"'}, "append"),
    "held: timers": Change("held", {'"None"': '"ProcessingTime"'}),
    "held: another function": Change("held", {"n += 1": "n += 2"}),
    "filed: nothing": Change("filed"),
    "filed: another folder": Change("filed", ending=FILES.replace("/sink", "/sink-2")),
    "filed: a function": Change("filed", ending=ENDING),
    "stateless: another function of the sink": Change(
        "stateless", ending=ENDING.replace("(show)", "(lambda rows, batch: show(rows, batch))")
    ),
    "stateless: a file sink": Change("stateless", settings={COMPACTED: "2"}, ending=FILES),
}
