"""The commands that write one image in another form: each is one job, and its `transform`."""

from __future__ import annotations

import json as plain_json
from contextlib import suppress
from typing import Annotated

import typer

from stateshift.cli.shell.options import ForkOptions, ImageOptions, Source, To, flag, option
from stateshift.cli.shell.shortcut import (
    Keys,
    drop_empty,
    one_job,
    pairs,
    run_jobs,
    shortcut,
)
from stateshift.cli.shell.terminal import Terminal

ToOrInPlace = Annotated[
    str | None, option("--to", "LOCATION", "Where the new image goes. Must be empty.")
]
InPlace = Annotated[
    bool, flag("--in-place", "Change the checkpoint where it lies. The job must be stopped.")
]
KeepTables = Annotated[
    bool, flag("--keep-tables", "Keep RocksDB's tables byte for byte; changelogs become one more.")
]


@shortcut(
    "stateshift compact /data/orders --to /data/orders-small\nstateshift compact "
    "/data/orders --in-place"
)
def compact(
    terminal: Terminal,
    options: ImageOptions,
    source: Source,
    to: ToOrInPlace = None,
    in_place: InPlace = False,
    keep_tables: KeepTables = False,
) -> int:
    """Copy a checkpoint with as few files as possible.

    Each shard becomes one snapshot (HDFS-backed) or one consolidated state (RocksDB). Empty
    changes and history are left out. --in-place changes the checkpoint itself; its job must be
    stopped. Replaced files go to _stateshift/superseded/; rollback restores them until the
    job has committed again.

    --keep-tables costs little more than the copy: tables of a RocksDB state stay as they are, and
    one table more holds what the changelogs write. The job's own RocksDB compacts them later. It
    is refused for column families, row checksums and checkpoint format 2.
    """
    if bool(to) == in_place:
        raise typer.BadParameter("compact takes --to LOCATION or --in-place")
    if options.fork and in_place:
        raise typer.BadParameter("--fork needs --to LOCATION")
    asked = drop_empty(in_place=in_place or None, keep_tables=keep_tables or None)
    changes = [{"kind": "compact", **asked}]
    return run_jobs(terminal, options, [one_job(source, to, changes, options)])


@shortcut(
    "stateshift repartition /data/orders --to /data/orders-64 --partitions 64\n"
    "stateshift repartition /data/savepoint-1 --to /data/savepoint-256 --max-parallelism 256"
)
def repartition(
    terminal: Terminal,
    options: ImageOptions,
    source: Source,
    to: To,
    partitions: Annotated[
        int | None, option("--partitions", "N", "How many, of a Spark checkpoint.", min=1)
    ] = None,
    parallelism: Annotated[
        int | None, option("--parallelism", "N", "Of a savepoint: how many subtasks.", min=1)
    ] = None,
    max_parallelism: Annotated[
        int | None, option("--max-parallelism", "N", "Of a savepoint: how many key groups.", min=1)
    ] = None,
    classes: Annotated[
        list[str] | None,
        option("--classes", "JAR", "Of the job: its code hashes keys, in a JVM. Repeatable."),
    ] = None,
    flink: Annotated[
        str | None, option("--flink", "PATH", "The Flink in whose JVM it runs: $FLINK_HOME.")
    ] = None,
) -> int:
    """Distribute state over another number of partitions.

    Works for every kind of Spark operator and both providers. The checkpoint records the
    number, and the job uses it. A Flink savepoint gets another parallelism or another max
    parallelism. For the latter it must be canonical, with keys that are text, numbers,
    tuples or Rows of them, or rows of SQL. Keys that are the job's own objects (POJO, Kryo)
    need --classes: a JVM reads them by the serializer in the savepoint, and each has to be in
    the key group that its hashCode gives.
    """
    rescaled = drop_empty(parallelism=parallelism, max_parallelism=max_parallelism)
    if classes and max_parallelism is None:
        raise typer.BadParameter("--classes hash keys for another --max-parallelism")
    if (partitions is None) == (not rescaled):
        raise typer.BadParameter(
            "--partitions for a checkpoint of Spark; --parallelism, --max-parallelism for Flink's"
        )
    change: Keys = {"kind": "repartition", "partitions": partitions}
    if rescaled:
        change = {"kind": "rescale", **rescaled, **drop_empty(classes=classes, flink=flink)}
    job = one_job(source, to, [change], options)
    return run_jobs(terminal, options, [job], "flink" if rescaled else None)


Renumber = Annotated[
    bool,
    flag(
        "--renumber",
        "Give batch N the newest batch's number, so that a sink that skips known batch "
        "numbers accepts the next one.",
    ),
]


@shortcut("stateshift rewind /data/orders --to /data/orders-41 --batch 41")
def rewind(
    terminal: Terminal,
    options: ImageOptions,
    source: Source,
    to: To,
    batch: Annotated[int, option("--batch", "N", "The last batch that counts.", min=0)],
    renumber: Renumber = False,
) -> int:
    """Copy a checkpoint as of an earlier batch.

    `stateshift verify LOCATION` lists the batches that can be restored. The job reads the input
    after that batch again.
    """
    change = drop_empty(kind="rewind", batch=batch, renumber=renumber or None)
    return run_jobs(terminal, options, [one_job(source, to, [change], options)])


@shortcut("stateshift fork /data/orders --to /test/orders")
def fork(
    terminal: Terminal,
    options: ForkOptions,
    source: Source,
    to: To,
) -> int:
    """Copy a checkpoint for another job; its own job runs on.

    The copy gets a query id of its own, so that idempotent sinks do not take it for the
    original.
    """
    return run_jobs(terminal, options, [one_job(source, to, [], options)])


@shortcut(
    "stateshift convert /data/orders --to /data/orders-rocksdb --provider rocksdb\n"
    "stateshift convert /data/orders --to /data/orders-live --provider rocksdb "
    "--checkpoint-format v2\n"
    "stateshift convert /data/savepoint-1 --to /data/savepoint-for-1.20 --flink 1.20"
)
def convert(
    terminal: Terminal,
    options: ImageOptions,
    source: Source,
    to: To,
    provider: Annotated[str | None, option("--provider", "P", "hdfs-backed or rocksdb.")] = None,
    codec: Annotated[str | None, option("--codec", "C", "lz4, zstd, snappy or lzf.")] = None,
    checkpoint_format: Annotated[
        str | None,
        option(
            "--checkpoint-format",
            "V",
            "v1, for a Spark that knows no other; v2, for real-time mode.",
        ),
    ] = None,
    flink: Annotated[
        str | None,
        option("--flink", "V", "Of a savepoint: the Flink that will read it, such as 1.20."),
    ] = None,
) -> int:
    """Write state for another provider, codec or format.

    The checkpoint records how its state is kept, so the job's configuration stays as it is.
    --flink writes a savepoint's metadata for another version of Flink.
    """
    change = drop_empty(
        kind="convert",
        provider=provider,
        codec=codec,
        checkpoint_format=checkpoint_format,
        flink=flink,
    )
    return run_jobs(terminal, options, [one_job(source, to, [change], options)])


@shortcut(
    "stateshift prune /data/orders --to /data/orders-2 --where \"key.country = 'de'\"\n"
    'stateshift prune /data/orders --to /data/orders-2 --where "key.window.end < timestamp '
    "'2026-01-01'\" --operator 0"
)
def prune(
    terminal: Terminal,
    options: ImageOptions,
    source: Source,
    to: To,
    where: Annotated[
        str, option("--where", "CONDITION", "Which entries stay behind, in SQL; times in UTC.")
    ],
    operator: Annotated[
        str | None, option("--operator", "N", "Whose entries, if the job has several operators.")
    ] = None,
    store: Annotated[
        str | None, option("--store", "NAME", "Flink: of one state alone; it may ask `value`, too.")
    ] = None,
) -> int:
    """Copy an image without the entries that a condition names.

    The condition is one expression over `key`, and over `value` where the operator has one store;
    `stateshift query` shows the columns. All stores of the operator lose the same keys. Source and
    target are compared: what the condition names is gone, and all else is the same.
    """
    change: Keys = drop_empty(kind="prune", where=where, operator=operator, store=store)
    return run_jobs(terminal, options, [one_job(source, to, [change], options)])


@shortcut(
    "stateshift rename /data/orders --to /data/orders-2 --operator 0=1 --operator 1=0\n"
    "stateshift rename /data/orders --to /data/orders-2 --source 0=orders --source 1=returns"
)
def rename(
    terminal: Terminal,
    options: ImageOptions,
    source: Source,
    to: To,
    operator: Annotated[
        list[str] | None, option("--operator", "OLD=NEW", "An operator's id or uid. Repeatable.")
    ] = None,
    input: Annotated[
        list[str] | None, option("--source", "OLD=NEW", "A source's index or name. Repeatable.")
    ] = None,
    drop_operator: Annotated[
        list[str] | None, option("--drop-operator", "ID", "Leave its state behind.")
    ] = None,
    drop_source: Annotated[
        list[str] | None, option("--drop-source", "ID", "Leave its offsets behind.")
    ] = None,
) -> int:
    """Rename or drop operators and sources.

    Use it when a changed job would not find its state: Spark numbers operators and sources
    differently, or a Flink operator has another uid. Sources that have numbers get names
    (--source 0=orders), if all of them do: Spark 4.2 and later read that.
    """
    named = drop_empty(
        operators=pairs("--operator", "OLD=NEW", operator),
        sources=pairs("--source", "OLD=NEW", input),
    )
    dropped = drop_empty(operators=drop_operator, sources=drop_source)
    changes: list[Keys] = []
    if named or not dropped:
        changes.append({"kind": "rename", **named})
    if dropped:
        changes.append({"kind": "drop", **dropped})
    return run_jobs(terminal, options, [one_job(source, to, changes, options)])


@shortcut(
    "stateshift reposition /data/orders --to /data/orders-2 --topic orders=shop-orders "
    "--by records --from-brokers old:9092 --to-brokers new:9092\n"
    "stateshift reposition /data/orders --to /data/orders-2 --table /lake/orders-2 --version 1 "
    "--from-table /lake/orders\n"
    "stateshift reposition /data/clicks --to /data/clicks-2 --source clicks "
    "--table catalog://lake/shop.clicks\n"
    "stateshift reposition s3://old/savepoint-1 --to s3://new/savepoint-1 --root s3://new/in "
    "--from-root s3://old/in",
    e7="the fleet failed",
)
def reposition(
    terminal: Terminal,
    options: ImageOptions,
    source: Source,
    to: To,
    input: Annotated[
        str | None,
        option("--source", "N", "The source's index, name or uid, where several are of its kind."),
    ] = None,
    topic: Annotated[
        list[str] | None, option("--topic", "OLD=NEW", "A topic's new name. Repeatable.")
    ] = None,
    by: Annotated[
        str | None,
        option(
            "--by",
            "WAY",
            "How new offsets are found: records, mirrormaker, timestamp, offsets, earliest, latest "
            "or timestamp:MS.",
        ),
    ] = None,
    offsets: Annotated[
        str | None,
        option("--offsets", "FILE", "With --by offsets: CSV (topic,partition,offset) or JSON."),
    ] = None,
    from_brokers: Annotated[
        str | None, option("--from-brokers", "HOST:PORT", "The brokers that it has read so far.")
    ] = None,
    to_brokers: Annotated[
        str | None, option("--to-brokers", "HOST:PORT", "The brokers that it reads afterwards.")
    ] = None,
    from_properties: Annotated[
        str | None, option("--from-properties", "FILE", "Client properties for the former.")
    ] = None,
    to_properties: Annotated[
        str | None, option("--to-properties", "FILE", "Client properties for the latter.")
    ] = None,
    window: Annotated[
        int | None,
        option("--window", "N", "How many records of a partition are searched. [20000]", min=1),
    ] = None,
    syncs: Annotated[
        str | None,
        option("--syncs", "TOPIC", "With --by mirrormaker: its offset syncs. [mm2-offset-syncs.*]"),
    ] = None,
    timeout: Annotated[
        str | None, option("--timeout", "TIME", "How long a mirror may lag. [60s]")
    ] = None,
    commit: Annotated[
        str | None,
        option("--commit", "GROUP", "A consumer group that gets the new offsets, too."),
    ] = None,
    table: Annotated[
        str | None,
        option("--table", "LOCATION", "The table of Delta or Iceberg that it reads afterwards."),
    ] = None,
    version: Annotated[
        int | None, option("--version", "V", "Delta: the first version that is read.", min=0)
    ] = None,
    snapshot: Annotated[
        int | None, option("--snapshot", "ID", "Iceberg: the one up to which it has read.", min=0)
    ] = None,
    as_of: Annotated[
        str | None, option("--as-of", "TIME", "Iceberg: the newest snapshot at that time.")
    ] = None,
    from_table: Annotated[
        str | None, option("--from-table", "LOCATION", "The table that it has read, to compare.")
    ] = None,
    compare_rows: Annotated[
        bool, flag("--compare-rows", "Compare all rows if the tables' files differ.")
    ] = False,
    root: Annotated[
        str | None,
        option("--root", "LOCATION", "Flink: the folder of files that it reads afterwards."),
    ] = None,
    from_root: Annotated[
        str | None, option("--from-root", "LOCATION", "The folder that it has read them in.")
    ] = None,
    accept_again: Annotated[
        int | None,
        option("--accept-again", "N", "So many records may be read again. [0]", min=0),
    ] = None,
    accept_skipped: Annotated[
        int | None, option("--accept-skipped", "N", "So many may be skipped. [0]", min=0)
    ] = None,
    planned_batch: Annotated[
        str | None,
        option("--planned-batch", "keep|drop", "What becomes of a batch that was not committed."),
    ] = None,
) -> int:
    """Copy an image for a job that reads on from elsewhere.

    From other topics or other brokers of Kafka; from another table of Iceberg or, of Spark, of
    Delta; of Flink, from files in another folder, which are compared by their sizes.

    The records around each old offset are looked for at the new place, and every partition gets its
    offset there. The plan shows what would be read again or skipped: anything but nothing is
    refused until you accept that number.

    --by records finds the record that was read last. --by mirrormaker looks for it between two
    offset syncs of MirrorMaker 2, and counts what may be read again where it is gone. --by
    timestamp asks for the time of the next record, --by offsets takes a file; both are compared
    with the records. --by earliest, latest and timestamp:MS are for topics without these records.
    """
    if [by, table, root].count(None) != 2:
        raise typer.BadParameter(
            "--by for topics of Kafka, or --table for a table, or --root for files"
        )
    if by is not None and to_brokers is None:
        raise typer.BadParameter("--by needs --to-brokers: the brokers that the job will read")
    if by in ("records", "timestamp", "mirrormaker") and from_brokers is None:
        raise typer.BadParameter(f"--by {by} needs --from-brokers: their records are compared")
    change = drop_empty(
        kind="reposition",
        source=input,
        topics=pairs("--topic", "OLD=NEW", topic),
        by=by,
        offsets=offsets,
        window=window,
        syncs=syncs,
        timeout=timeout,
        commit=commit,
        table=table,
        version=version,
        snapshot=snapshot,
        as_of=as_of,
        from_table=from_table,
        compare_rows=compare_rows or None,
        root=root,
        from_root=from_root,
        accept_again=accept_again,
        accept_skipped=accept_skipped,
    )
    kafka = drop_empty(
        bootstrap_servers=to_brokers,
        properties=to_properties,
        source_bootstrap_servers=from_brokers,
        source_properties=from_properties,
    )
    job = one_job(source, to, [change], options)
    job |= drop_empty(kafka=kafka, planned_batch=planned_batch)
    return run_jobs(terminal, options, [job])


@shortcut(
    "stateshift evolve /data/orders --to /data/orders-2 --add max:integer --widen total=long\n"
    "stateshift evolve /data/orders --to /data/orders-2 --operator 1 --add "
    "last:string=none@count --drop spare\nstateshift evolve /savepoints/savepoint-1 --to "
    "/savepoints/evolved --operator totals --store order --widen count=long --add note:String"
)
def evolve(
    terminal: Terminal,
    options: ImageOptions,
    source: Source,
    to: To,
    operator: Annotated[str, option("--operator", "ID", "The stateful operator.")] = "0",
    store: Annotated[
        list[str] | None,
        option(
            "--store", "NAME", "Its store, as `inspect --entries` calls it; repeatable. [default]"
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        option(
            "--add", "NAME:TYPE[=DEFAULT][@AFTER]", "A new column; null if no default is given."
        ),
    ] = None,
    widen: Annotated[
        list[str] | None, option("--widen", "NAME=TYPE", "A wider type, such as long for integer.")
    ] = None,
    rename: Annotated[
        list[str] | None, option("--rename", "OLD=NEW", "Another name for a column.")
    ] = None,
    drop: Annotated[list[str] | None, option("--drop", "NAME", "Remove a column.")] = None,
    nullable: Annotated[
        list[str] | None,
        option("--nullable", "NAME", "The column may be null from now on; * for all."),
    ] = None,
    widen_key: Annotated[
        list[str] | None, option("--widen-key", "NAME=TYPE", "The same for a column of the key.")
    ] = None,
    rename_key: Annotated[
        list[str] | None, option("--rename-key", "OLD=NEW", "The same for a column of the key.")
    ] = None,
    nullable_key: Annotated[
        list[str] | None, option("--nullable-key", "NAME", "The same for a column of the key.")
    ] = None,
    order: Annotated[
        str | None, option("--order", "NAMES", "Flink: all fields in their new order, with commas.")
    ] = None,
) -> int:
    """Change columns and fields that the engine refuses.

    Use it when the query has one aggregate more or less, or a wider column, or when a newer
    Spark treats a column as nullable and the old one did not. A new column holds its default
    for every key that exists. Write columns inside a struct with dots.

    In a canonical savepoint of Flink, fields of POJOs, Row, rows of SQL and Avro change. Columns
    of Row and SQL are f0, f1, ...; the value of a state that is no object is `value`. --drop '*'
    leaves a state behind.
    """
    change = drop_empty(
        kind="evolve",
        operator=operator,
        add=[column_of(text) for text in add or ()],
        widen=pairs("--widen", "NAME=…", widen),
        rename=pairs("--rename", "NAME=…", rename),
        drop=drop,
        widen_key=pairs("--widen-key", "NAME=…", widen_key),
        rename_key=pairs("--rename-key", "NAME=…", rename_key),
        nullable=nullable,
        nullable_key=nullable_key,
        order=order,
    )
    changes = [{**change, "store": name} for name in store or ["default"]]
    return run_jobs(terminal, options, [one_job(source, to, changes, options)])


def column_of(text: str) -> Keys:
    """Return a column of NAME:TYPE[=DEFAULT][@AFTER]. A default is JSON, or else the text itself:
    of a string, a number is one, too. In quotes it may hold an @.
    """
    name, _, rest = text.partition(":")
    rest, after = _split_after(rest)
    kind, equals, default = rest.partition("=")
    if not (name and kind):
        raise typer.BadParameter(f"--add takes NAME:TYPE[=DEFAULT][@AFTER], not {text!r}")
    column: Keys = {"name": name, "type": kind}
    if equals:
        column["default"] = default
        with suppress(ValueError):
            value = plain_json.loads(default)
            if kind.strip().lower() != "string" or isinstance(value, str | None):
                column["default"] = value
    if after is not None:
        column["after"] = after
    return column


def _split_after(text: str) -> tuple[str, str | None]:
    """Return the text before the @, and the column after it; None if there is no @."""
    split = text.rpartition if "=" in text else text.partition
    before, at, after = split("@")
    is_inside_quotes = before.count('"') % 2 == 1
    if is_inside_quotes or not at:
        return text, None
    return before, after
