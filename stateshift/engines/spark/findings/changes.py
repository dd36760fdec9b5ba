"""What a person should know before the state of a job is changed on its way: what cannot be done is
refused by name, with the reason and the way out. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import PARTITIONS_MAX
from stateshift.engines.spark.entries.keys import KeyRule, is_session, nameable
from stateshift.engines.spark.findings.batch_numbers import of_renumbering
from stateshift.engines.spark.findings.batches import of_rewind
from stateshift.engines.spark.findings.evolve import of_evolution
from stateshift.engines.spark.findings.kept_tables import of_kept_tables
from stateshift.engines.spark.findings.versions import of_versions
from stateshift.engines.spark.image import StoreSchema, name_of, spark_image
from stateshift.engines.spark.layout import HDFS, ROCKSDB
from stateshift.engines.spark.rewrite.in_place import of_in_place
from stateshift.engines.spark.rewrite.merge import of_joining
from stateshift.engines.spark.rewrite.stores import (
    StoreState,
    partitions_of,
    provider_of,
    stores_of,
)
from stateshift.engines.spark.rewrite.sums import cannot_add
from stateshift.engines.spark.rewrite.wishes import Wishes, wishes_of
from stateshift.engines.spark.rewrite.zip_format import other_format, seems_4_0, target_version
from stateshift.engines.spark.survey.restart.operators import PROVIDER
from stateshift.formats.spark.offset_conf import ENCODING, ENCODINGS, encoding_of
from stateshift.formats.spark.types import decode_struct
from stateshift.plain import JsonObject
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Image

ZIP_FORMAT = "zip-format"

# The spec's {"kind": "split", …}, in plain JSON.
Split = JsonObject


def of_changes(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield everything worth saying of the job's `transform`."""
    wishes = wishes_of(job.transform)
    yield from of_joining(job, facts)
    yield from of_in_place(wishes, facts)
    yield from of_kept_tables(wishes, facts)
    yield from of_versions(job, wishes, facts)
    yield from _of_merge(wishes, facts)
    yield from of_renumbering(job, wishes, facts)
    for image in facts.source.images:
        name = name_of(image, facts.source.location)
        yield from of_rewind(job, facts, image, name)
        yield from _of_zip_format(wishes, facts, image, name)
        if wishes.any and image.epoch is not None:
            yield from _of_image(wishes, facts, image, name)


def _of_image(wishes: Wishes, facts: Facts, image: Image, name: str) -> Iterator[Finding]:
    yield from _of_names(wishes, image, name)
    has_nothing_to_change = wishes.of_state and not image.shards
    if not has_nothing_to_change:
        yield from _of_provider(wishes, image, name)
        yield from _of_stores(wishes, image, name, _look(facts, image))
    elif not wishes.renumber:
        yield Finding("note", f"{name} has no state: there is nothing to change")


def _of_zip_format(wishes: Wishes, facts: Facts, image: Image, name: str) -> Iterator[Finding]:
    """Refuse a snapshot that the target does not read: one that is copied keeps a number that Spark
    4.0 and all the others do not agree on.
    """
    if wishes.of_state or not other_format(image, facts):
        return
    writer = "4.0" if seems_4_0(image, facts) else "4.1 and later"
    yield Finding(
        "refuse",
        f"{name} is of checkpoint format 2, and its snapshots are marked as Spark {writer} has "
        f"them: Spark {target_version(facts)} refuses them",
        waive=ZIP_FORMAT,
        hint='rewrite them: "transform": [{"kind": "compact"}]',
    )


def _of_names(wishes: Wishes, image: Image, name: str) -> Iterator[Finding]:
    """Report operators and sources that get another name, or are left behind."""
    operators = tuple(operator.id for operator in image.operators)
    sources = tuple(end.index for end in image.endpoints if end.role == "source")
    dropped_operators, dropped_sources = wishes.dropped_operators, wishes.dropped_sources
    yield from _Renaming("operator", operators, wishes.operators, dropped_operators).findings(name)
    yield from _Renaming("source", sources, wishes.sources, dropped_sources).findings(name)
    for operator in _in_both(dropped_operators, operators):
        yield Finding(
            "warn", f"{name}: the state of operator {operator} is left behind; it starts empty"
        )
    for source in _in_both(dropped_sources, sources):
        yield Finding("warn", f"{name}: how far source {source} was read is left behind")
    if dropped_sources and set(dropped_sources) >= set(sources):
        yield Finding(
            "refuse",
            f"{name} would have no source left",
            hint="start the job without a checkpoint instead",
        )


def _in_both(asked: tuple[str, ...], known: tuple[str, ...]) -> list[str]:
    return [each for each in asked if each in known]


@dataclass(frozen=True, slots=True)
class _Renaming:
    """What becomes of an image's operators, or of its sources. `known` are those that it has."""

    what: str
    known: tuple[str, ...]
    names: Mapping[str, str]
    dropped: tuple[str, ...]

    def findings(self, name: str) -> Iterator[Finding]:
        """Refuse what cannot be done in the image of this name."""
        yield from self._of_old(name)
        if all(old.isdecimal() for old in self.known):
            yield from self._of_numbers(name)
        yield from self._of_doubles(name)

    def _of_old(self, name: str) -> Iterator[Finding]:
        for old in (*self.names, *self.dropped):
            if old not in self.known:
                known = ", ".join(self.known) or "none"
                yield Finding("refuse", f"{name} has no {self.what} {old}", hint=f"it has: {known}")
            elif old in self.names and old in self.dropped:
                yield Finding(
                    "refuse",
                    f"{self.what} {old} is both renamed and dropped",
                    hint="one of the two",
                )

    def _of_numbers(self, name: str) -> Iterator[Finding]:
        for new in self.names.values():
            is_number = new.isdecimal() and new.isascii() and len(new) < 10
            if not is_number:
                yield Finding(
                    "refuse",
                    f"{new!r} is no {self.what} number, and {name} numbers them",
                    hint="a number",
                )

    def _of_doubles(self, name: str) -> Iterator[Finding]:
        kept = [old for old in self.known if old not in self.dropped]
        counts = Counter(self.names.get(old, old) for old in kept)
        doubles = [new for new, count in counts.items() if count > 1]
        for new in sorted(doubles):
            yield Finding(
                "refuse",
                f"two of the {self.what}s of {name} would be {new}",
                hint=f"rename or drop the other {self.what} {new}, too",
            )


def _of_provider(wishes: Wishes, image: Image, name: str) -> Iterator[Finding]:
    provider = provider_of(image)
    if wishes.of_state and provider not in (HDFS, ROCKSDB):
        shown = provider or image.settings.get(PROVIDER) or "an unknown provider"
        yield Finding(
            "refuse",
            f"{name} keeps its state in {shown}, whose files stateshift cannot write",
            hint="move it as it is: leave `transform` out",
        )
    if wishes.format_1 and provider == HDFS:
        yield Finding(
            "note", f"{name} is of checkpoint format v1 already: HDFS-backed state knows no other"
        )


def _look(facts: Facts, image: Image) -> str:
    """Return the command that shows the columns."""
    place = layout.under(facts.source.location, image.path).rstrip("/")
    return f"stateshift inspect --entries {quote(place)}"


def _of_stores(wishes: Wishes, image: Image, name: str, look: str) -> Iterator[Finding]:
    provider = provider_of(image)
    all_stores = stores_of(image, (wishes.provider or provider) == ROCKSDB)
    dropped = wishes.dropped_operators
    stores = tuple(store for store in all_stores if store.operator not in dropped)
    if wishes.partitions:
        yield from _of_partitions(wishes.partitions, image, name, stores)
    if wishes.split:
        yield from _of_split(wishes, wishes.split, image, name)
        for store in stores:
            yield from _of_split_store(wishes.split, store, name, look)
        yield from _of_parts(wishes.split, name)
    yield from of_evolution(wishes, image, name, stores, look)
    if wishes.provider not in (None, provider):
        for store in stores:
            yield from _of_conversion(wishes, image, name, store)


def _of_partitions(
    partitions: int, image: Image, name: str, stores: tuple[StoreState, ...]
) -> Iterator[Finding]:
    if partitions > PARTITIONS_MAX:
        yield Finding(
            "refuse",
            f"{partitions} partitions are more than a job has: each is a file, or several",
            hint=f"{PARTITIONS_MAX} at most",
        )
        return
    before = partitions_of(image)
    if before is None:
        yield Finding(
            "refuse",
            f"{name}: its offset log does not say how many partitions its state has",
            hint="let a newer Spark run one batch of it, or leave `repartition` out",
        )
        return
    if before == partitions:
        yield Finding("note", f"{name} has {before} partitions already")
        return
    if encoding_of(image.settings) not in ENCODINGS:
        yield Finding(
            "refuse",
            f"{name} encodes its rows as {image.settings[ENCODING]}: their keys cannot be read",
            hint="leave `repartition` out",
        )
        return
    for store in stores:
        if store.rules is None and not store.single:
            yield Finding(
                "refuse",
                f"{name}: the keys of operator {store.operator}, store {store.store} "
                f"cannot be read: {store.unknown}",
                hint=(
                    "where the schema is missing, let the job start once where it is (Spark "
                    "writes it again)"
                ),
            )


def _of_split(wishes: Wishes, split: Split, image: Image, name: str) -> Iterator[Finding]:
    if wishes.partitions or wishes.provider:
        other = "a repartition" if wishes.partitions else "another provider"
        yield Finding(
            "refuse", f"{name}: a split and {other} at once", hint="one after the other: two jobs"
        )
    partitions = partitions_of(image)
    if split.get("by", 0) > (partitions or 0):
        yield Finding(
            "refuse",
            f"{name} has {partitions} shards: they cannot make {split['by']} parts",
            hint="fewer parts, or a `repartition` before",
        )


def _of_split_store(split: Split, store: StoreState, name: str, look: str) -> Iterator[Finding]:
    where = f"{name}: operator {store.operator}, store {store.store}"
    column = split.get("column")
    if store.single:
        yield Finding(
            "refuse",
            f"{where} has no key, so its state belongs to no part alone",
            hint=(
                f'let it start empty in each: {{"kind": "drop", "operators": '
                f'["{store.operator}"]}} beside it'
            ),
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


def _of_parts(split: Split, name: str) -> Iterator[Finding]:
    """Say what the jobs of the parts have to be given."""
    yield Finding(
        "warn",
        f"{name}: each part continues from the same offsets; its job must be given only the "
        "input of its own keys",
        hint="filter the source by the same rule, before the first stateful operator",
    )
    if "column" in split:
        values = ", ".join(_shown(value) for value in split["values"])
        yield Finding(
            "warn",
            f"{name}: keys whose {split['column']} is none of {values} are not in this "
            "part; those that no part names are left behind",
            hint=(
                "name each value of the column, in one part; stateshift export --to - shows "
                "which there are"
            ),
        )


def _shown(value: object) -> str:
    return "null" if value is None else repr(value)


def _of_merge(wishes: Wishes, facts: Facts) -> Iterator[Finding]:
    if wishes.merge is None:
        return
    alone = Wishes(
        rewind=wishes.rewind, compact=wishes.compact, codec=wishes.codec, merge=wishes.merge
    )
    if wishes != alone:
        yield Finding(
            "refuse",
            "a merge beside another change than `compact`, `rewind` or a codec",
            hint="one after the other: two jobs",
        )
    columns = list(wishes.merge.get("sum", ()))
    look = f"stateshift inspect --entries {quote(facts.source.location)}"
    schemas: list[StoreSchema] = []
    for image in facts.source.images:
        schemas.extend(spark_image(image).schemas.values())
    if columns and all(cannot_add(schema, columns) for schema in schemas):
        yield Finding(
            "refuse",
            f"no state has columns {', '.join(columns)} that can be added",
            hint=f"{look}   # shows them",
        )
    elif columns:
        yield Finding(
            "note",
            "values of common keys are added; the state is compared with the sum of the sources",
        )


def _of_conversion(wishes: Wishes, image: Image, name: str, store: StoreState) -> Iterator[Finding]:
    if _is_convertible(store):
        return
    titles = {operator.id: operator.name for operator in image.operators}
    title = titles.get(store.operator) or f"operator {store.operator}"
    why = store.unknown or "RocksDB encodes its keys in a way of its own"
    yield Finding(
        "refuse",
        f"{name}: the state of {title} ({store.store}) cannot be converted to "
        f"{wishes.provider}: {why}",
        hint=(
            f"keep its provider; or `drop` that operator ({quote(store.operator)}) and let "
            "it start empty"
        ),
    )


def _is_convertible(store: StoreState) -> bool:
    """Whether all keys of a store are rows, and it has no column families."""
    if store.rules is None or any("/" in key for key in store.rules):
        return False
    return all(map(_is_one_row, store.rules.values()))


def _is_one_row(rule: KeyRule) -> bool:
    """Whether the key is one row without RocksDB; with it, a session window's is in two."""
    return rule.encoder.kind in ("plain", "row") or is_session(decode_struct(rule.schema))
