"""Everything that a person should know before the state of a job is changed on its way: a change
that cannot be made is refused by name, with the reason and the way out. Pure.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import PARTITIONS_MAX
from stateshift.engines.spark.entries.keys import is_session, nameable
from stateshift.engines.spark.findings.rewind import of_rewind
from stateshift.engines.spark.image import StoreSchema, spark_image
from stateshift.engines.spark.layout import HDFS, ROCKSDB
from stateshift.engines.spark.rewrite.evolution import Evolution, evolution_of
from stateshift.engines.spark.rewrite.move import Move, StateChange
from stateshift.engines.spark.rewrite.pieces import TABLE_BYTES, keeps_tables
from stateshift.engines.spark.rewrite.request import (
    Request,
    other_format,
    part_of_condition,
    seems_4_0,
    target_version,
)
from stateshift.engines.spark.rewrite.stores import (
    StoreState,
    partitions_of,
    provider_of,
    stores_of,
)
from stateshift.engines.spark.rewrite.sums import cannot_add
from stateshift.engines.spark.survey.restart.operators import PROVIDER
from stateshift.errors import PlanError
from stateshift.formats.spark.offset_conf import ENCODING, ENCODINGS, encoding_of, has_row_checksums
from stateshift.formats.spark.offsets import NAMED_SOURCES
from stateshift.formats.spark.row_change import Unfit
from stateshift.formats.spark.types import decode_struct
from stateshift.specification.transform import Evolve, Split
from stateshift.survey import Finding, Image, ShardFiles

ZIP_FORMAT = "zip-format"
# DataStreamReader.name: INVALID_SOURCE_NAME otherwise.
_SOURCE_NAME = re.compile("[A-Za-z0-9_]+")
_PLAINLY = "leave keep_tables out: a plain `compact` writes the state anew"


def of_changes(move: Move) -> Iterator[Finding]:
    """Report the changes of each image."""
    change, facts = move.change, move.facts
    for image, name in move.named_images:
        yield from of_rewind(move, image, name)
        if not change.rewrites_state and other_format(image, facts):
            # A snapshot that is copied keeps a number that Spark 4.0 and all the others do not
            # agree on.
            writer = "4.0" if seems_4_0(image, facts) else "4.1 and later"
            yield Finding(
                "refuse",
                f"{name} is of checkpoint format 2, and its snapshots are marked as Spark {writer} "
                f"has them: Spark {target_version(facts)} refuses them",
                waive=ZIP_FORMAT,
                hint='rewrite them: "transform": [{"kind": "compact"}]',
            )
        if not change.is_more_than_a_copy or image.epoch is None:
            continue
        yield from _of_names(change, image, name)
        if image.shards or not change.rewrites_state:
            provider = provider_of(image)
            if change.rewrites_state and provider not in (HDFS, ROCKSDB):
                shown = provider or image.settings.get(PROVIDER) or "an unknown provider"
                fact = f"{name} keeps its state in {shown}, whose files stateshift cannot write"
                yield Finding("refuse", fact, hint="move it as it is: leave `transform` out")
            after = change.provider or provider
            if change.checkpoint_format == "v2" and after == HDFS and image.shards:
                yield Finding(
                    "refuse",
                    f"{name} cannot be of checkpoint format v2: HDFS-backed state knows v1 alone",
                    hint="--provider rocksdb, too: the state of format v2 is RocksDB's",
                )
            elif change.checkpoint_format == "v1" and provider == HDFS:
                yield Finding(
                    "note",
                    f"{name} is of checkpoint format v1 already: HDFS-backed state knows no other",
                )
            place = layout.under(move.source, image.path).rstrip("/")
            look = f"stateshift inspect --entries {quote(place)}"
            yield from _of_stores(change, image, name, look)
        elif change.checkpoint_format == "v2":
            yield Finding("note", f"{name} has no state: only its commit log is changed")
        elif not change.renumber:
            yield Finding("note", f"{name} has no state: there is nothing to change")


def _of_names(change: StateChange, image: Image, name: str) -> Iterator[Finding]:
    """Report operators and sources that get another name, or are left behind."""
    operators = tuple(operator.id for operator in image.operators)
    sources = tuple(end.index for end in image.endpoints if end.role == "source")
    dropped_operators, dropped_sources = change.dropped_operators, change.dropped_sources
    yield from _Renaming("operator", operators, change.operators, dropped_operators).findings(name)
    yield from _Renaming("source", sources, change.sources, dropped_sources).findings(name)
    if change.names_sources:
        kept = [source for source in sources if source not in dropped_sources]
        yield from _of_source_names({old: change.sources.get(old, old) for old in kept}, name)
    for operator in dropped_operators:
        if operator not in operators:
            continue
        yield Finding(
            "warn", f"{name}: the state of operator {operator} is left behind; it starts empty"
        )
    for source in dropped_sources:
        if source in sources:
            yield Finding("warn", f"{name}: how far source {source} was read is left behind")
    if dropped_sources and set(dropped_sources) >= set(sources):
        fact = f"{name} would have no source left"
        yield Finding("refuse", fact, hint="start the job without a checkpoint instead")


@dataclass(frozen=True, slots=True)
class _Renaming:
    """The new names of an image's operators, or of its sources. `known` are those that it has."""

    what: str
    known: tuple[str, ...]
    names: Mapping[str, str]
    dropped: tuple[str, ...]

    def findings(self, name: str) -> Iterator[Finding]:
        for old in (*self.names, *self.dropped):
            if old not in self.known:
                known = ", ".join(self.known) or "none"
                yield Finding("refuse", f"{name} has no {self.what} {old}", hint=f"it has: {known}")
            elif old in self.names and old in self.dropped:
                fact = f"{self.what} {old} is both renamed and dropped"
                yield Finding("refuse", fact, hint="one of the two")
        gives_names = self.what == "source" and not all(map(str.isdecimal, self.names.values()))
        if not gives_names and all(old.isdecimal() for old in self.known):
            for new in self.names.values():
                is_number = new.isdecimal() and new.isascii() and len(new) < 10
                if not is_number:
                    fact = f"{new!r} is no {self.what} number, and {name} numbers them"
                    yield Finding("refuse", fact, hint="a number")
        kept = [old for old in self.known if old not in self.dropped]
        counts = Counter(self.names.get(old, old) for old in kept)
        doubles = [new for new, count in counts.items() if count > 1]
        for new in sorted(doubles):
            fact = f"two of the {self.what}s of {name} would be {new}"
            yield Finding("refuse", fact, hint=f"rename or drop the other {self.what} {new}, too")


def _of_source_names(names: Mapping[str, str], image_name: str) -> Iterator[Finding]:
    """Report names that Spark does not take, and sources that are left without one: it starts no
    job of which one source has a name and another has none.
    """
    for new in names.values():
        if not new.isdecimal() and not _SOURCE_NAME.fullmatch(new):
            fact = f"{new!r} is no name of a source in Spark"
            yield Finding("refuse", fact, hint="letters from a to z, digits and _")
    unnamed = [old for old, new in names.items() if new.isdecimal()]
    if unnamed:
        fact = f"source {', '.join(unnamed)} of {image_name} would have no name, and others would"
        yield Finding("refuse", fact, hint=f"name it, too: --source {unnamed[0]}=NAME")
    old = ", ".join(f"{old} ({new})" for old, new in names.items() if old.isdecimal())
    if old:
        yield Finding(
            "note",
            f"{image_name} gets names for its sources: {old}. Its offset log becomes one of "
            "version 2, which Spark 4.2 and later read",
            hint=f'in the job, .name("…") at each source, and {NAMED_SOURCES}=true',
        )


def _of_stores(change: StateChange, image: Image, name: str, look: str) -> Iterator[Finding]:
    provider = provider_of(image)
    all_stores = stores_of(image, (change.provider or provider) == ROCKSDB)
    dropped = change.dropped_operators
    stores = tuple(store for store in all_stores if store.operator not in dropped)
    if change.partitions:
        yield from _of_partitions(change.partitions, image, name, stores)
    if change.split:
        if change.partitions or change.provider:
            other = "a repartition" if change.partitions else "another provider"
            yield Finding(
                "refuse",
                f"{name}: a split and {other} at once",
                hint="one after the other: two jobs",
            )
        partitions, by = partitions_of(image), change.split.by if change.split else None
        if (by or 0) > (partitions or 0):
            fact = f"{name} has {partitions} shards: they cannot make {by} parts"
            yield Finding("refuse", fact, hint="fewer parts, or a `repartition` before")
        for store in stores:
            yield from _of_split_store(change.split, store, name, look)
        yield from _of_parts(change.split, name)
    if change.pruning:
        yield from _of_prune(change, image, name, stores, look)
    yield from of_evolution(change, image, name, stores, look)
    if change.provider not in (None, provider):
        titles = {operator.id: operator.name for operator in image.operators}
        for store in stores:
            if not _is_convertible(store):
                title = titles.get(store.operator) or f"operator {store.operator}"
                why = store.unknown or "RocksDB encodes its keys in a way of its own"
                yield Finding(
                    "refuse",
                    f"{name}: the state of {title} ({store.store}) cannot be converted to "
                    f"{change.provider}: {why}",
                    hint=f"keep its provider; or `drop` that operator ({quote(store.operator)}) "
                    "and let it start empty",
                )


def _of_partitions(
    partitions: int, image: Image, name: str, stores: tuple[StoreState, ...]
) -> Iterator[Finding]:
    if partitions > PARTITIONS_MAX:
        fact = f"{partitions} partitions are more than a job has: each is a file, or several"
        yield Finding("refuse", fact, hint=f"{PARTITIONS_MAX} at most")
        return
    before = partitions_of(image)
    if before is None:
        fact = f"{name}: its offset log does not say how many partitions its state has"
        hint = "let a newer Spark run one batch of it, or leave `repartition` out"
        yield Finding("refuse", fact, hint=hint)
        return
    if before == partitions:
        yield Finding("note", f"{name} has {before} partitions already")
        return
    if encoding_of(image.settings) not in ENCODINGS:
        fact = f"{name} encodes its rows as {image.settings[ENCODING]}: their keys cannot be read"
        yield Finding("refuse", fact, hint="leave `repartition` out")
        return
    for store in stores:
        if store.rules is None and not store.single:
            yield Finding(
                "refuse",
                f"{name}: the keys of operator {store.operator}, store {store.store} "
                f"cannot be read: {store.unknown}",
                hint="where the schema is missing, let the job start once where it is (Spark "
                "writes it again)",
            )


def _of_split_store(split: Split, store: StoreState, name: str, look: str) -> Iterator[Finding]:
    where = f"{name}: operator {store.operator}, store {store.store}"
    column = split.column
    if store.single:
        yield Finding(
            "refuse",
            f"{where} has no key, so its state belongs to no part alone",
            hint=f'let it start empty in each: {{"kind": "drop", "operators": '
            f'["{store.operator}"]}} beside it',
        )
    elif column is None:
        return
    elif store.rules is None:
        yield Finding("refuse", f"{where} cannot be read: {store.unknown}", hint="split by shards")
    else:
        without = [key for key, rule in store.rules.items() if nameable(rule, column) is None]
        if without:
            yield Finding(
                "refuse",
                f"{where}: {without[0]} has no key column {column} of text, whole numbers or "
                "booleans",
                hint=f"{look}   # shows the columns; or split by shards",
            )


def _of_prune(
    change: StateChange, image: Image, name: str, stores: tuple[StoreState, ...], look: str
) -> Iterator[Finding]:
    """Refuse a condition that does not fit every store: what belongs together goes together."""
    from stateshift.engines.spark.rewrite.pruning import conditions

    assert change.pruning is not None, "asked for"
    if change.pruning.store is not None:
        fact = f"{name}: all stores of a Spark operator lose the same keys"
        yield Finding("refuse", fact, hint="leave `store` out")
    if change.split or change.partitions or change.provider or change.evolve:
        fact = f"{name}: `prune` beside another change of the state"
        yield Finding("refuse", fact, hint="one after the other: two jobs")
        return
    part = part_of_condition(change.pruning, image, stores)
    own = [store for store in stores if store.operator == part["operator"]]
    if not own:
        operators = ", ".join(dict.fromkeys(store.operator for store in stores))
        fact = f"{name}: `prune` is of one operator with state, and of none of these: {operators}"
        yield Finding("refuse", fact, hint='name one: "operator" in the spec, --operator')
        return
    for store in own:
        if store.rules is None:
            fact = f"{name}: store {store.store} cannot be read: {store.unknown}"
            yield Finding("refuse", fact, hint="leave `prune` out")
            return
    for condition in conditions(part, own[0].operator).values():
        try:
            condition.check()
        except PlanError as error:
            fact = f"{name}: operator {own[0].operator}, {error.fact}"
            if len(own) > 1:
                fact += f"; the operator has {len(own)} stores, so only `key` can be asked"
            yield Finding("refuse", fact, hint=error.hint or f"{look}   # shows the columns")
            return
    fact = f"{name}: entries of operator {own[0].operator} stay behind; nothing else does"
    yield Finding("note", fact)
    fact = f"{name}: a key that comes again begins with nothing; a sink keeps what it has of it"
    yield Finding("note", fact)


def _of_parts(split: Split, name: str) -> Iterator[Finding]:
    """Warn of the input that the jobs of the parts have to be given."""
    yield Finding(
        "warn",
        f"{name}: each part continues from the same offsets; its job must be given only the "
        "input of its own keys",
        hint="filter the source by the same rule, before the first stateful operator",
    )
    if split.column is not None:
        shown = ["null" if value is None else repr(value) for value in split.values]
        values = ", ".join(shown)
        yield Finding(
            "warn",
            f"{name}: keys whose {split.column} is none of {values} are not in this "
            "part; those that no part names are left behind",
            hint="name each value of the column, in one part; stateshift export --to - shows "
            "which there are",
        )


def of_merge(move: Move) -> Iterator[Finding]:
    """Report a merge: it stands alone, and some state has the columns that are added."""
    change = move.change
    if change.merge is None:
        return
    alone = StateChange(
        rewind=change.rewind, compact=change.compact, codec=change.codec, merge=change.merge
    )
    if change != alone:
        fact = "a merge beside another change than `compact`, `rewind` or a codec"
        yield Finding("refuse", fact, hint="one after the other: two jobs")
    columns = list(change.merge.sum)
    look = f"stateshift inspect --entries {quote(move.source)}"
    schemas: list[StoreSchema] = []
    for image in move.facts.source.images:
        schemas.extend(spark_image(image).schemas.values())
    if columns and all(cannot_add(schema, columns) for schema in schemas):
        yield Finding(
            "refuse",
            f"no state has columns {', '.join(columns)} that can be added",
            hint=f"{look}   # shows them",
        )
    elif columns:
        fact = "values of common keys are added; the state is compared with the sum of the sources"
        yield Finding("note", fact)


def _is_convertible(store: StoreState) -> bool:
    """Whether all keys of a store are rows, and it has no column families."""
    if store.rules is None or store.families:
        return False
    # Without RocksDB a key is one row; with it, a session window's is in two.
    others = [rule for rule in store.rules.values() if rule.encoder.kind not in ("plain", "row")]
    return all(is_session(decode_struct(rule.schema)) for rule in others)


# ---- a compaction that keeps tables


def of_kept_tables(move: Move) -> Iterator[Finding]:
    """Refuse images whose tables a compaction cannot keep (`keep_tables`), and note where there is
    nothing to write.

    Real Sparks (3.3.4, 3.5.9, 4.0.5, 4.3.0) took what is written of checkpoint format 1 without
    column families and row checksums. Nothing else was tried, so nothing else is written.
    """
    change = move.change
    if not change.keep_tables:
        return
    alone = StateChange(change.rewind, compact=True, in_place=change.in_place, keep_tables=True)
    if change != alone:
        yield Finding(
            "refuse",
            "tables cannot be kept beside another change than `rewind` without `renumber`",
            hint="leave keep_tables out: the other change writes the state anew",
        )
        return
    for number, (image, name) in enumerate(move.named_images):
        if image.epoch is None or not image.shards:
            continue
        request = Request(move, image, number)
        why = _untried(request, image)
        if why is not None:
            yield Finding("refuse", f"{name} {why}", hint=_PLAINLY)
            continue
        anew = [shard for shard in image.shards if _is_written_anew(request, shard)]
        if anew:
            yield Finding(
                "note",
                f"{name}: {len(anew)} of {len(image.shards)} shards are written anew, tables and "
                f"all: they have no snapshot, or more than {TABLE_BYTES >> 20} MiB of changelogs",
            )
        elif not any(keeps_tables(request, shard) for shard in image.shards):
            yield Finding(
                "note",
                f"{name} has no changelog behind a table: every table stays, and none is added",
            )


def staying_files(move: Move) -> frozenset[str]:
    """Return the files that stay in place: kept tables, and shards without changelogs."""
    if not (move.change.in_place and move.change.keep_tables):
        return frozenset()
    staying: list[str] = []
    for number, image in enumerate(move.facts.source.images):
        request = Request(move, image, number)
        for shard in image.shards:
            if keeps_tables(request, shard):
                staying += (path for path in shard.files if path.endswith(".sst"))
            elif not _is_written_anew(request, shard):
                staying += shard.files
    return frozenset(staying)


def _is_written_anew(request: Request, shard: ShardFiles) -> bool:
    is_changed = any(path.endswith(".changelog") for path in shard.files)
    return is_changed and not keeps_tables(request, shard)


def _untried(request: Request, image: Image) -> str | None:
    if provider_of(image) != ROCKSDB:
        return "does not keep its state in RocksDB: it has no tables to keep"
    if request.changes_ids:
        return "is of checkpoint format 2, of which no tables are kept"
    if has_row_checksums(image.settings):
        return "has row checksums, beside which no tables are kept"
    if any(store.count("/") > 1 for store in spark_image(image).schemas):
        return "has state in column families, of which no tables are kept"
    return None


# ---- rows that become those of a changed query

# Spark's own column families are bound to each other: a row more in one of them is one too few in
# another. Their names begin, or end, like this.
OWN_BEGINNING, OWN_ENDINGS = "$", ("-keyToNumValues", "-tsWithKey")


def of_evolution(
    change: StateChange, image: Image, name: str, stores: tuple[StoreState, ...], look: str
) -> Iterator[Finding]:
    """Refuse what cannot evolve. `look` is the command that shows the columns."""
    if not change.evolve:
        return
    if change.split or change.merge:
        yield Finding(
            "refuse",
            f"{name}: `evolve` beside a split or a merge",
            hint="one after the other: two jobs",
        )
    encoding = encoding_of(image.settings)
    if encoding != "unsaferow":
        fact = f"{name} encodes its rows as {encoding}, whose schemas Spark itself can evolve"
        yield Finding("refuse", fact, hint="leave `evolve` out")
        return
    for asked in change.evolve:
        if asked.order:
            fact = f"{name}: columns of Spark keep their order"
            yield Finding("refuse", fact, hint="leave `order` out: `add` has `after`")
        if asked.operator in change.dropped_operators:
            fact = f"{name}: operator {asked.operator} is dropped, and its rows cannot evolve"
            yield Finding("refuse", fact, hint="leave `evolve` or `drop` out")
        else:
            yield from _of_store(asked, image, name, stores, look)


def _of_store(
    asked: Evolve, image: Image, name: str, stores: tuple[StoreState, ...], look: str
) -> Iterator[Finding]:
    schemas = spark_image(image).schemas
    schema = schemas.get(asked.place)
    if schema is None:
        known = ", ".join(sorted(schemas)) or "none"
        yield Finding(
            "refuse",
            f"{name}: no schema describes the columns of operator {asked.operator}, "
            f"store {asked.store}",
            hint=f"the stores with a schema are, as <operator>/<store>: {known}",
        )
        return
    where = f"{name}: operator {asked.operator}, store {asked.store}"
    nullable_only = Evolve(
        asked.operator, asked.store, nullable=asked.nullable, nullable_key=asked.nullable_key
    )
    family = asked.place.rpartition("/")[2]
    is_own = family.startswith(OWN_BEGINNING) or family.endswith(OWN_ENDINGS)
    if asked != nullable_only and is_own:
        fact = f"{where} is kept by Spark for itself: its columns are no query's"
        yield Finding("refuse", fact, hint="change the store that holds the rows")
        return
    try:
        evolution = evolution_of(asked, schema, "")
    except Unfit as error:
        yield Finding("refuse", f"{where}: {error}", hint=f"{look}   # shows the columns")
        return
    if evolution.rekeyed or evolution.key_change.get("rename"):
        store = next(store for store in stores if store.holds(asked.place))
        yield from _of_key(evolution, where, image, store)
    dropped = evolution.value_change.get("drop")
    if dropped:
        yield Finding("warn", f"{where}: what is in {', '.join(dropped)} is left behind")


def _of_key(evolution: Evolution, where: str, image: Image, store: StoreState) -> Iterator[Finding]:
    """Refuse keys that belong to several stores, or are not a single row: those stay."""
    own_shards = [shard for shard in image.shards if shard.operator == store.operator]
    is_alone = len(own_shards) == len(store.shards) and not store.families
    # A key is one row, and all of its columns decide its shard.
    rule = next(iter((store.rules or {}).values()), None)
    fields = json.loads(evolution.key)["fields"]
    placed = tuple((number,) for number in range(len(fields)))
    is_one_row = rule is not None and rule.encoder.kind in ("plain", "row")
    if not is_alone or rule is None or not is_one_row or rule.placed != placed:
        yield Finding(
            "refuse",
            f"{where}: its key is kept in several places, or not as one row, and cannot "
            "become another",
            hint="widen the column behind the stateful operator, or let this operator start "
            "empty (`drop`)",
        )
    elif partitions_of(image) is None:
        fact = f"{where}: the offset log does not say how many partitions there are"
        yield Finding("refuse", fact, hint="let a newer Spark run one batch of it")
