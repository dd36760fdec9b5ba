"""The keys of `transform`: a kind of change to the state, each with keys of its own."""

from __future__ import annotations

from collections.abc import Mapping

from stateshift.specification.keys.key import Key, Keys

PROVIDERS = ("hdfs-backed", "rocksdb")

CODECS = ("lz4", "zstd", "snappy", "lzf")

_OF = (
    "Which of several Flink images is changed: its location, or the id of the job whose "
    "savepoint it is."
)

_KINDS = (
    *("rewind", "compact", "repartition", "convert", "rename", "drop", "split", "merge", "evolve"),
    *("rescale", "repair", "union"),
)


def _kind(name: str, about: str, *keys: Key) -> tuple[str, Keys]:
    return name, Keys(Key("kind", "choice", about, choices=_KINDS), *keys)


# The kinds of `transform`, each with its own keys; the first of them is always `kind`.
TRANSFORMS: Mapping[str, Keys] = dict(
    (
        _kind(
            "rewind",
            "Go back to an earlier batch.",
            Key(
                "batch",
                "batch",
                "The last batch that counts: a committed one that can still be restored.",
            ),
            Key(
                "renumber",
                "boolean",
                (
                    "Whether the batch gets the number of the newest batch, so that a sink that "
                    "skips known batch numbers accepts the next one."
                ),
            ),
        ),
        _kind(
            "compact",
            "One snapshot for each shard in place of a chain of changes.",
            Key(
                "in_place",
                "boolean",
                "Change the checkpoint itself. The job has no remote_location.",
            ),
            Key(
                "keep_tables",
                "boolean",
                "Keep RocksDB's tables byte for byte, and write one more of the changelogs.",
            ),
        ),
        _kind(
            "repartition",
            "Another number of state partitions.",
            Key("partitions", "count", "How many."),
        ),
        _kind(
            "convert",
            (
                "Another state store provider, codec or checkpoint format; or another version "
                "of Flink."
            ),
            Key(
                "provider",
                "choice",
                "What keeps the state.",
                choices=PROVIDERS,
                aliases={
                    "hdfs": "hdfs-backed",
                    "HDFSBackedStateStoreProvider": "hdfs-backed",
                    "RocksDBStateStoreProvider": "rocksdb",
                },
            ),
            Key("codec", "choice", "What compresses it.", choices=CODECS),
            Key(
                "checkpoint_format",
                "choice",
                "v1, for a Spark that knows no other.",
                choices=("v1",),
            ),
            Key(
                "flink",
                "text",
                "Write the metadata for this version of Flink, such as 1.20.",
            ),
        ),
        _kind(
            "rename",
            (
                "Other ids for stateful operators and sources, where a changed job numbers "
                "them differently."
            ),
            Key("operators", "names", "Old id -> new id."),
            Key("of", "text", _OF),
            Key("sources", "names", "Old index or name -> new one."),
        ),
        _kind(
            "drop",
            "Leave the state of operators, or sources, behind.",
            Key("operators", "texts", "Their ids."),
            Key("of", "text", _OF),
            Key("sources", "texts", "Their indexes or names."),
        ),
        _kind(
            "split",
            "Only a part of the keys.",
            Key("by", "count", "Into how many parts the shards are divided."),
            Key("part", "batch", "Which of them this is, from 0."),
            Key("column", "text", "The key column that decides."),
            Key("values", "values", "Its values that belong to this part."),
        ),
        _kind(
            "merge",
            "The state of other checkpoints of the same query, over input of their own, is added.",
            Key("locations", "locations", "Where these are."),
            Key(
                "sum",
                "texts",
                (
                    "Columns whose values are added if a key is in several checkpoints. Without "
                    "it, such a key is refused."
                ),
            ),
        ),
        _kind(
            "rescale",
            "Another parallelism, or max parallelism, of a Flink job's keyed state.",
            Key(
                "parallelism",
                "count",
                "Of the operators with keyed state; Flink redistributes the other state itself.",
            ),
            Key(
                "max_parallelism",
                "count",
                "The number of key groups, for all operators.",
            ),
        ),
        _kind(
            "union",
            (
                "Operators that several Flink images have become one: their keys must be "
                "different ones."
            ),
            Key("operators", "texts", "Their ids, or uids, in the new image."),
        ),
        _kind(
            "repair",
            "Collect files that a Flink image expects in its own folder and that are elsewhere.",
            Key(
                "files",
                "locations",
                "Folders in which they are looked for, such as the savepoint of a CLAIM restore.",
            ),
        ),
        _kind(
            "evolve",
            "Other columns in the rows of a store, for a job whose query has changed.",
            Key("operator", "text", "The stateful operator's id."),
            Key("store", "text", "Its store, as `inspect --entries` calls it; left out, default."),
            Key(
                "add",
                "columns",
                "New columns, each with a name, a type, a default and the column it comes after.",
            ),
            Key("widen", "types", "Column -> wider type."),
            Key("rename", "types", "Column -> new name."),
            Key("drop", "texts", "Columns to remove."),
            Key(
                "nullable",
                "texts",
                "Columns that may be null from now on; * for all. Another Spark may see them so.",
            ),
            Key(
                "widen_key",
                "types",
                "The same for columns of the key: entries move to where they then belong.",
            ),
            Key("rename_key", "types", "The same for columns of the key."),
            Key("nullable_key", "texts", "The same for columns of the key."),
        ),
    )
)

COLUMN = Keys(
    Key("name", "text", "What it is called; inside of a struct, with dots."),
    Key("type", "type", "Its type, as Spark's JSON or SQL names it."),
    Key(
        "default",
        "json",
        "What it holds for keys that are there already; null where nothing is said.",
    ),
    Key("after", "name", "The column it comes after; left out, the last; blank, none."),
)
