"""The keys of `transform`, by the kinds of changes of `specification/transform`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from stateshift.specification.grammars import BY_FILE, BY_MIRROR, WAYS_EXPECTED, fold
from stateshift.specification.key import Key, Keys, Kind, Reader, array, either, map_to, reference
from stateshift.specification.place import Place
from stateshift.specification.text import refuse_secrets
from stateshift.specification.transform import (
    Change,
    Compact,
    Convert,
    Drop,
    Evolve,
    Import,
    Merge,
    Prune,
    Rename,
    Repair,
    Repartition,
    Reposition,
    Rescale,
    Rewind,
    Split,
    Union,
)
from stateshift.specification.values import (
    ANY_TEXT,
    BATCH,
    BOOLEAN,
    CHOICE,
    COUNT,
    DURATION,
    LOCATION,
    LOCATIONS,
    SNAPSHOT,
    SOME_TEXT,
    TEXT,
    TEXTS,
    TIME,
    WAY,
    as_it_stands,
    is_text,
)

PROVIDERS = ("hdfs-backed", "rocksdb")
CODECS = ("lz4", "zstd", "snappy", "lzf")
_MODELS: tuple[type[Change], ...] = (
    *(Rewind, Compact, Repartition, Convert, Rename, Drop, Split, Prune, Merge, Evolve),
    *(Reposition, Rescale, Repair, Import, Union),
)
_MODEL_OF = {model.kind: model for model in _MODELS}
_KINDS = tuple(_MODEL_OF)


# -------------------------------------------------------------------------- columns

ANY_JSON = Kind(
    "json", as_it_stands, {"type": ["string", "number", "boolean", "null", "array", "object"]}
)
TYPE = Kind("type", as_it_stands, either(SOME_TEXT, {"type": "object"}))
NAME = Kind("name", as_it_stands, ANY_TEXT)
COLUMN = Keys(
    None,
    name=TEXT("What it is called; inside of a struct, with dots."),
    type=TYPE("Its type, as Spark's JSON or SQL, Java or Avro names it."),
    default=ANY_JSON("What it holds for keys that are there already; null where nothing is said."),
    after=NAME("The column it comes after; left out, the last; blank, none."),
)


def _columns(reader: Reader, key: Key, place: Place) -> tuple[dict[str, object], ...]:
    """Read columns as they stand; a name that is no text is a complaint, and so is an odd type."""
    columns = []
    for item in reader.items(place, "a list of columns"):
        if not reader.is_a(item, dict, "a column: an object with 'name' and 'type'"):
            continue
        known = reader.known(item, COLUMN)
        if not reader.need(item, known, "name", "type"):
            continue
        column: dict[str, object] = {name: below.value for name, below in known.items()}
        for name in ("name", "after"):
            if not isinstance(column.get(name, ""), str):
                reader.refuse(known[name], "text")
        if not isinstance(column["type"], str | dict):
            reader.refuse(known["type"], "a type's name, or its JSON")
        columns.append(column)
    return tuple(columns)


# -------------------------------------------------------------------------- names and values


def _names(reader: Reader, key: Key, place: Place) -> dict[str, str] | None:
    """Read new names by old ones; two of them never get the same."""
    if not reader.is_a(place, dict, "an object from old to new names"):
        return None
    named: dict[str, str] = {}
    for name, below in _texts_by_name(reader, place, "the new name, as text"):
        if below.value in named.values():
            message = f"{below.value!r} would be the name of two"
            reader.complaints.add(below, message, "a name for each")
        else:
            named[name] = below.value
    return named


def _types(reader: Reader, key: Key, place: Place) -> dict[str, str] | None:
    if not reader.is_a(place, dict, "an object from columns to text"):
        return None
    texts = _texts_by_name(reader, place, "a type or a name, as text")
    return {name: below.value for name, below in texts}


def _texts_by_name(reader: Reader, place: Place, expected: str) -> Iterator[tuple[str, Place]]:
    """Yield the texts of an object by their keys; complain of everything else in it."""
    for name in place.value:
        below = place / name
        if is_text(below.value):
            yield name, below
        else:
            reader.refuse(below, expected)


def _values(reader: Reader, key: Key, place: Place) -> tuple[str | None, ...]:
    """Read texts, blank ones too, and null; a number or a boolean as its text."""
    if isinstance(place.value, str):
        return tuple(part.strip() for part in place.value.split(","))
    values: list[str | None] = []
    for item in reader.items(place, "a list, or one text with commas"):
        if isinstance(item.value, bool | int):
            values.append(str(item.value).lower())
        elif item.value is None or isinstance(item.value, str):
            values.append(item.value)
        else:
            reader.refuse(item, "text, a whole number, true, false or null")
    return tuple(values)


NAMES = Kind("names", _names, map_to(SOME_TEXT))
TYPES = Kind("types", _types, map_to(SOME_TEXT))
COLUMNS = Kind("columns", _columns, array(reference("column")))
VALUES = Kind(
    "values", _values, either(array({"type": ["string", "integer", "boolean", "null"]}), ANY_TEXT)
)


# -------------------------------------------------------------------------- changes


def _change(model: type[Change], about: str, **keys: Key) -> Keys:
    """Return the keys of a kind of change; the first of them is always `kind`."""
    return Keys(model, kind=CHOICE(about, choices=_KINDS), **keys)


_OF = TEXT(
    "Which of several Flink images is changed: its location, or the id of the job whose "
    "savepoint it is."
)

# The kinds of `transform`, each with its own keys.
TRANSFORMS: Mapping[str, Keys] = {
    "rewind": _change(
        Rewind,
        "Go back to an earlier batch.",
        batch=BATCH("The last batch that counts: a committed one that can still be restored."),
        renumber=BOOLEAN(
            "Whether the batch gets the number of the newest batch, so that a sink that skips "
            "known batch numbers accepts the next one."
        ),
    ),
    "compact": _change(
        Compact,
        "One snapshot for each shard in place of a chain of changes.",
        in_place=BOOLEAN("Change the checkpoint itself. The job has no remote_location."),
        keep_tables=BOOLEAN(
            "Keep RocksDB's tables byte for byte, and write one more of the changelogs."
        ),
    ),
    "repartition": _change(
        Repartition, "Another number of state partitions.", partitions=COUNT("How many.")
    ),
    "convert": _change(
        Convert,
        "Another state store provider, codec or checkpoint format; or another version of Flink.",
        provider=CHOICE(
            "What keeps the state.",
            choices=PROVIDERS,
            aliases={
                "hdfs": "hdfs-backed",
                "HDFSBackedStateStoreProvider": "hdfs-backed",
                "RocksDBStateStoreProvider": "rocksdb",
            },
        ),
        codec=CHOICE("What compresses it.", choices=CODECS),
        checkpoint_format=CHOICE(
            "v1, for a Spark that knows no other; v2, for real-time mode.",
            choices=("v1", "v2"),
            aliases={"1": "v1", "2": "v2"},
        ),
        flink=TEXT("Write the metadata for this version of Flink, such as 1.20."),
    ),
    "rename": _change(
        Rename,
        "Other ids for stateful operators and sources, where a changed job numbers them "
        "differently.",
        operators=NAMES("Old id -> new id."),
        of=_OF,
        sources=NAMES("Old index or name -> new one."),
    ),
    "drop": _change(
        Drop,
        "Leave the state of operators, or sources, behind.",
        operators=TEXTS("Their ids."),
        of=_OF,
        sources=TEXTS("Their indexes or names."),
    ),
    "split": _change(
        Split,
        "Only a part of the keys.",
        by=COUNT("Into how many parts the shards are divided."),
        part=BATCH("Which of them this is, from 0."),
        column=TEXT("The key column that decides."),
        values=VALUES("Its values that belong to this part."),
    ),
    "prune": _change(
        Prune,
        "Without the entries of which a condition is true.",
        where=TEXT(
            "The condition, as DuckDB's SQL has it, with times in UTC: on `key`, and on `value` of "
            "an operator with one store. It has to fit all stores of the operator."
        ),
        operator=TEXT("Its id, or of Flink its uid. Left out where the job has one."),
        store=TEXT("Of Flink: one state alone, whose `value` may be asked, too."),
    ),
    "merge": _change(
        Merge,
        "The state of other checkpoints of the same query, over input of their own, is added.",
        locations=LOCATIONS("Where these are."),
        sum=TEXTS(
            "Columns whose values are added if a key is in several checkpoints. Without it, such a "
            "key is refused."
        ),
    ),
    "reposition": _change(
        Reposition,
        "A source reads on from elsewhere: from other topics or brokers, from another table, or, "
        "of Flink, from files in another folder.",
        source=TEXT("Its index, name or uid. Left out where the job has one such source."),
        topics=NAMES("Old topic -> new topic; one that is not named keeps its name."),
        by=WAY(f"Of a topic: how its new offsets are found: {WAYS_EXPECTED}."),
        offsets=LOCATION(
            'With "by": "offsets": a file of the new offsets, as CSV (topic,partition,offset) or '
            "as JSON like Spark's."
        ),
        window=COUNT("How many records of a partition are searched for those that were read."),
        syncs=TEXT(
            'With "by": "mirrormaker": its topic of offset syncs. Left out, it is looked for at '
            "the old brokers, then at the new ones."
        ),
        timeout=DURATION("How long a mirror that lags is waited for."),
        commit=TEXT(
            "A consumer group that gets the new offsets of these topics before the job is started: "
            "it must have no members then. A rollback puts its old offsets back. A failover leaves "
            "the group alone."
        ),
        table=LOCATION(
            "Of a table of Delta or Iceberg: where the job reads on. One of Iceberg may be that of "
            "a catalog: catalog://NAME/SCHEMA.TABLE."
        ),
        version=BATCH("The first version of a Delta table that the job reads."),
        snapshot=SNAPSHOT("The snapshot of an Iceberg table up to which the job has read."),
        as_of=TIME("The same snapshot by a time: the newest one then."),
        from_table=LOCATION("Where the table is that it has read so far: both are compared."),
        compare_rows=BOOLEAN("Compare all rows of both tables, if their files differ."),
        root=LOCATION("Of files that Flink reads: the folder in which the job reads on."),
        from_root=LOCATION("The folder in which it has read them so far."),
        accept_again=BATCH("How many records, versions or snapshots may be read again."),
        accept_skipped=BATCH("How many may be skipped."),
    ),
    "rescale": _change(
        Rescale,
        "Another parallelism, or max parallelism, of a Flink job's keyed state.",
        parallelism=COUNT(
            "Of the operators with keyed state; Flink redistributes the other state itself."
        ),
        max_parallelism=COUNT("The number of key groups, for all operators."),
        classes=LOCATIONS(
            "Jars of the job on this machine, which compute the hash codes of keys that are its "
            "own objects. A JVM runs their code, already to plan."
        ),
        flink=LOCATION("The folder of the Flink in whose JVM they run: $FLINK_HOME."),
    ),
    "union": _change(
        Union,
        "Operators that several Flink images have become one: their keys must be different ones.",
        operators=TEXTS("Their ids, or uids, in the new image."),
    ),
    "repair": _change(
        Repair,
        "Put an image together from what is whole. `stateshift repair` finds out how.",
        files=LOCATIONS(
            "Flink: folders with files that the image expects in its own folder, such as the "
            "savepoint of a CLAIM restore."
        ),
        batch=BATCH("Spark: the last batch that counts."),
        leave=TEXTS("Spark: damaged files that a restart from that batch does without."),
        take=TYPES("Spark: a missing or damaged file -> the copy of the checkpoint that has it."),
        rebuild=TYPES("Spark: a commit -> its text, which follows from the next batch's offsets."),
    ),
    "import": _change(
        Import,
        "State that was made of rows, in a copy of a template. `stateshift import` writes it.",
        batch=BATCH("The template's last batch."),
        take=TYPES("A file of state -> the folder that has it, made of rows."),
    ),
    "evolve": _change(
        Evolve,
        "Other columns in the rows of a store, or other fields in a state of Flink, for a job that "
        "has changed.",
        operator=TEXT("The stateful operator's id, or of Flink its uid."),
        store=TEXT("Its store, as `inspect --entries` calls it; left out, default."),
        add=COLUMNS(
            "New columns, each with a name, a type, a default and the column it comes after."
        ),
        widen=TYPES("Column -> wider type."),
        rename=TYPES("Column -> new name."),
        drop=TEXTS("Columns to remove; of Flink, * for the whole state."),
        nullable=TEXTS(
            "Columns that may be null from now on; * for all. Another Spark may see them so."
        ),
        widen_key=TYPES("The same for columns of the key: entries move to where they then belong."),
        rename_key=TYPES("The same for columns of the key."),
        nullable_key=TEXTS("The same for columns of the key."),
        order=TEXTS("Of Flink: all fields in their new order; those of an object keep theirs."),
    ),
}


def _changes(reader: Reader, key: Key, place: Place) -> tuple[Change, ...]:
    """Read the changes of one job; those that cannot be read are left out, after a complaint."""
    changes: dict[tuple[object, ...], Change] = {}
    for item in reader.items(place, "a list of objects"):
        change = _read(reader, item)
        if change is None:
            continue
        match change:
            case Rename() | Drop():
                identity: tuple[object, ...] = (change.kind, change.of)
            case Evolve():
                identity = (change.kind, change.operator, change.store)
            case Reposition():
                identity = (change.kind, change.source)
            case _:
                identity = (change.kind,)
        if identity in changes:
            reader.complaints.add(item, f"a second {change.kind!r}", "each kind once")
        else:
            changes[identity] = change
    return tuple(changes.values())


def _read(reader: Reader, place: Place) -> Change | None:
    before = len(reader.complaints.made)
    refuse_secrets(reader.complaints, place)
    has_secrets = len(reader.complaints.made) > before
    if has_secrets or not reader.is_a(place, dict, "an object with a 'kind'"):
        return None
    kind_key = TRANSFORMS["compact"]["kind"]
    spelling = next((name for name in place.value if fold(name) == "kind"), None)
    if spelling is None:
        reader.complaints.add(place, "'kind' is missing", f"one of {', '.join(TRANSFORMS)}")
        return None
    kind = reader.value(kind_key, place / spelling)
    if kind is None:
        return None
    model, keys = _MODEL_OF[kind], TRANSFORMS[kind]
    known = reader.known(place, keys)
    values = {key.name: reader.value(key, known[key.name]) for key in keys.all if key.name in known}
    needed = [key for key in keys.filling(model) if key.default is dataclasses.MISSING]
    if reader.need(place, known, *(key.name for key in needed)) and kind in _FITS:
        _FITS[kind](reader, place, known)
    fields = keys.fields_of(model, values)
    return model(**fields) if fields.keys() >= {key.field for key in needed} else None


# -------------------------------------------------------------------------- rules of a kind

Known = Mapping[str, Place]
Fits = Callable[[Reader, Place, Known], object]


def _needs_one(reader: Reader, place: Place, known: Known) -> None:
    if not known.keys() - {"kind", "of"}:
        reader.complaints.add(place, "nothing is asked for", "one of its keys beside 'kind'")


def _split(reader: Reader, place: Place, known: Known) -> None:
    by_shards = bool({"by", "part"} & known.keys())
    by_column = bool({"column", "values"} & known.keys())
    if by_shards == by_column:
        message = "a split by shards or by a column"
        reader.complaints.add(place, message, "'by' and 'part', or 'column' and 'values'")
    elif by_column:
        reader.need(place, known, "column", "values")
    elif reader.need(place, known, "by", "part"):
        by, part = known["by"].value, known["part"]
        if isinstance(by, int) and isinstance(part.value, int) and part.value >= by > 0:
            message = f"there is no part {part.value} of {by}"
            reader.complaints.add(part, message, "parts are counted from 0")


def _evolve(reader: Reader, place: Place, known: Known) -> None:
    if not known.keys() - {"kind", "operator", "store"}:
        expected = "add, widen, rename, drop, nullable, order or one for keys"
        reader.complaints.add(place, "nothing is asked for", expected)


def _repair(reader: Reader, place: Place, known: Known) -> None:
    """A repair is of a Flink image or of a Spark checkpoint; each has keys of its own."""
    is_of_flink = "files" in known
    is_of_spark = bool({"batch", "leave", "take", "rebuild"} & known.keys())
    is_complete = is_of_flink or "batch" in known
    if is_of_flink == is_of_spark or not is_complete:
        message = "a repair of a Flink image, or of a Spark checkpoint"
        reader.complaints.add(place, message, "'files'; or 'batch', 'leave', 'take', 'rebuild'")


_OF_TOPICS = frozenset(("by", "topics", "offsets", "window", "syncs", "timeout", "commit"))
_OF_TABLES = frozenset(("table", "version", "snapshot", "as_of", "from_table", "compare_rows"))
_OF_FILES = frozenset(("root", "from_root"))


def _reposition(reader: Reader, place: Place, known: Known) -> None:
    """A source is a topic's, a table's or one of files; each has keys of its own."""
    given = known.keys() - {"kind"}
    own = [sorted(keys & given) for keys in (_OF_TOPICS, _OF_TABLES, _OF_FILES)]
    present = [keys for keys in own if keys]
    if len(present) > 1:
        message = f"{present[0][0]!r} beside {present[1][0]!r}"
        reader.complaints.add(place, message, "keys of a topic, of a table, or of files")
    elif _OF_FILES & given:
        reader.need(place, known, "root")
        reader.need(place, known, "from_root")
    elif _OF_TABLES & given:
        reader.need(place, known, "table")
        if {"snapshot", "as_of"} <= known.keys():
            message = "'snapshot' beside 'as_of'"
            reader.complaints.add(place, message, "one of the two")
    elif reader.need(place, known, "by"):
        is_by_file = known["by"].value == BY_FILE
        if is_by_file:
            reader.need(place, known, "offsets")
        elif "offsets" in known:
            reader.complaints.add(
                known["offsets"], '\'offsets\' without "by": "offsets"', 'that "by", or no file'
            )
        if "syncs" in known and known["by"].value != BY_MIRROR:
            message = '\'syncs\' without "by": "mirrormaker"'
            reader.complaints.add(known["syncs"], message, 'that "by", or no syncs')


# Beside the keys without a default, which every change needs.
_FITS: Mapping[str, Fits] = {
    "convert": _needs_one,
    "rename": _needs_one,
    "drop": _needs_one,
    "split": _split,
    "evolve": _evolve,
    "reposition": _reposition,
    "repair": _repair,
    "import": lambda reader, place, known: reader.need(place, known, "batch", "take"),
    "rescale": lambda reader, place, known: _needs_one(
        reader, place, {name: known[name] for name in known.keys() - {"classes", "flink"}}
    ),
}

CHANGE_LIST = Kind("transform", _changes, array(reference("change")))
