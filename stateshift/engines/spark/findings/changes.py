"""What a person should know before the state of a job is changed on its way: what cannot be done is
refused by name, with the reason and the way out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import PARTITIONS_MAX
from stateshift.engines.spark.entries.keys import KeyRule, is_session, nameable
from stateshift.engines.spark.entries.settings import ENCODING, ENCODINGS
from stateshift.engines.spark.findings.batch_numbers import of_renumbering
from stateshift.engines.spark.findings.batches import of_rewind
from stateshift.engines.spark.findings.evolve import of_evolution
from stateshift.engines.spark.findings.versions import of_versions
from stateshift.engines.spark.image import spark_image
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
from stateshift.formats.spark.types import decode_struct
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Image

ZIP_FORMAT = "zip-format"


def of_changes(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Everything worth saying of the job's `transform`."""
    wishes = wishes_of(job.transform)
    yield from of_joining(job, facts)
    yield from of_in_place(wishes, facts)
    yield from of_versions(job, wishes, facts)
    yield from _of_merge(wishes, facts)
    yield from of_renumbering(job, wishes, facts)
    for image in facts.source.images:
        name = image.name or image.path or facts.source.location
        yield from of_rewind(job, facts, image, name)
        yield from _of_zip_format(wishes, facts, image, name)
        if not wishes.any or image.epoch is None:
            continue
        yield from _of_names(wishes, image, name)
        if not image.shards and wishes.of_state:
            if not wishes.renumber:
                yield Finding("note", f"{name} has no state: there is nothing to change")
            continue
        yield from _of_provider(wishes, image, name)
        yield from _of_stores(wishes, image, name, _look(facts, image))


def _of_zip_format(wishes: Wishes, facts: Facts, image: Image, name: str) -> Iterator[Finding]:
    """A snapshot that is copied keeps a number that Spark 4.0 and all the others do not agree
    on.
    """
    if wishes.of_state or not other_format(image, facts):
        return
    yield Finding(
        "refuse",
        f"{name} is of checkpoint format 2, and its snapshots are marked as Spark "
        f"{'4.0' if seems_4_0(image, facts) else '4.1 and later'} has them: Spark "
        f"{target_version(facts)} refuses them",
        waive=ZIP_FORMAT,
        hint='let them be written anew: "transform": [{"kind": "compact"}]',
    )


def _of_names(wishes: Wishes, image: Image, name: str) -> Iterator[Finding]:
    """Operators and sources that get another name, or are left behind."""
    operators = tuple(operator.id for operator in image.operators)
    yield from _of_renaming("operator", operators, wishes.operators, wishes.dropped_operators, name)
    sources = tuple(end.index for end in image.endpoints if end.role == "source")
    yield from _of_renaming("source", sources, wishes.sources, wishes.dropped_sources, name)
    for operator in wishes.dropped_operators:
        if operator in operators:
            yield Finding(
                "warn", f"{name}: the state of operator {operator} is left behind; it starts empty"
            )
    for source in wishes.dropped_sources:
        if source in sources:
            yield Finding("warn", f"{name}: how far source {source} was read is left behind")
    if wishes.dropped_sources and set(wishes.dropped_sources) >= set(sources):
        yield Finding(
            "refuse", f"{name} would have no source left", hint="start the job anew instead"
        )


def _of_renaming(
    what: str, there: tuple[str, ...], names: Mapping[str, str], dropped: tuple[str, ...], name: str
) -> Iterator[Finding]:
    for one in (*names, *dropped):
        if one not in there:
            known = ", ".join(there) or "none"
            yield Finding("refuse", f"{name} has no {what} {one}", hint=f"it has: {known}")
        elif one in names and one in dropped:
            yield Finding(
                "refuse", f"{what} {one} is both renamed and dropped", hint="one of the two"
            )
    numbered = all(one.isdecimal() for one in there)
    for new in names.values():
        if numbered and not (new.isdecimal() and new.isascii() and len(new) < 10):
            yield Finding(
                "refuse", f"{new!r} is no {what} number, and {name} numbers them", hint="a number"
            )
    after = [names.get(one, one) for one in there if one not in dropped]
    for new in sorted({one for one in after if after.count(one) > 1}):
        yield Finding(
            "refuse",
            f"two of the {what}s of {name} would be {new}",
            hint=f"rename or drop the other {what} {new}, too",
        )


def _of_provider(wishes: Wishes, image: Image, name: str) -> Iterator[Finding]:
    provider = provider_of(image)
    if wishes.of_state and provider not in (HDFS, ROCKSDB):
        yield Finding(
            "refuse",
            f"{name} keeps its state in "
            f"{provider or image.settings.get(PROVIDER) or 'an unknown provider'}, whose "
            "files stateshift cannot write",
            hint="move it as it is: leave `transform` out",
        )
    if wishes.format_1 and provider == HDFS:
        yield Finding(
            "note", f"{name} is of checkpoint format v1 already: HDFS-backed state knows no other"
        )


def _look(facts: Facts, image: Image) -> str:
    """The command that shows the columns."""
    return (
        "stateshift inspect --entries "
        f"{quote(layout.under(facts.source.location, image.path).rstrip('/'))}"
    )


def _of_stores(wishes: Wishes, image: Image, name: str, look: str) -> Iterator[Finding]:
    provider = wishes.provider or provider_of(image)
    found = stores_of(image, provider == ROCKSDB)
    stores = tuple(store for store in found if store.operator not in wishes.dropped_operators)
    if wishes.partitions:
        yield from _of_partitions(wishes, image, name, stores)
    if wishes.split:
        yield from _of_split(wishes, wishes.split, image, name, stores, look)
    yield from of_evolution(wishes, image, name, stores, look)
    if wishes.provider and wishes.provider != provider_of(image):
        yield from _of_conversion(wishes, image, name, stores)


def _of_partitions(
    wishes: Wishes, image: Image, name: str, stores: tuple[StoreState, ...]
) -> Iterator[Finding]:
    if (wishes.partitions or 0) > PARTITIONS_MAX:
        yield Finding(
            "refuse",
            f"{wishes.partitions} partitions are more than a job has: each is a file, or several",
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
    if before == wishes.partitions:
        yield Finding("note", f"{name} has {before} partitions already")
        return
    if image.settings.get(ENCODING, "unsaferow") not in ENCODINGS:
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
                (
                    f"{name}: the keys of operator {store.operator}, store {store.store} "
                    f"cannot be read: {store.unknown}"
                ),
                hint=(
                    "where the schema is missing, let the job start once where it is (Spark "
                    "writes it again)"
                ),
            )


def _of_split(
    wishes: Wishes,
    split: Mapping[str, Any],
    image: Image,
    name: str,
    stores: tuple[StoreState, ...],
    look: str,
) -> Iterator[Finding]:
    partitions = partitions_of(image)
    if wishes.partitions or wishes.provider:
        told = "a repartition" if wishes.partitions else "another provider"
        yield Finding(
            "refuse", f"{name}: a split and {told} at once", hint="one after the other: two jobs"
        )
    if "by" in split and (partitions is None or split["by"] > partitions):
        yield Finding(
            "refuse",
            f"{name} has {partitions} shards: they cannot make {split['by']} parts",
            hint="fewer parts, or a `repartition` before",
        )
    for store in stores:
        where = f"{name}: operator {store.operator}, store {store.store}"
        if store.single:
            yield Finding(
                "refuse",
                f"{where} has no key, so its state belongs to no part alone",
                hint=(
                    f'let it start empty in each: {{"kind": "drop", "operators": '
                    f'["{store.operator}"]}} beside it'
                ),
            )
        elif "column" in split and store.rules is None:
            yield Finding(
                "refuse", f"{where} cannot be read: {store.unknown}", hint="split by shards"
            )
        elif "column" in split:
            lost = [
                key
                for key, rule in (store.rules or {}).items()
                if nameable(rule, split["column"]) is None
            ]
            if lost:
                yield Finding(
                    "refuse",
                    (
                        f"{where}: {lost[0]} has no key column {split['column']} of text, "
                        "whole numbers or booleans"
                    ),
                    hint=f"{look}   # shows the columns; or split by shards",
                )
    yield Finding(
        "warn",
        (
            f"{name}: each part goes on from the same offsets; its job must be given only the "
            "input of its own keys"
        ),
        hint="filter the source by the same rule, before the first stateful operator",
    )
    if "column" in split:
        named = ", ".join("null" if value is None else repr(value) for value in split["values"])
        yield Finding(
            "warn",
            f"{name}: keys whose {split['column']} is none of {named} are not in this "
            "part; those that no part names "
            "are left behind",
            hint=(
                "name each value of the column, in one part; stateshift export --to - shows "
                "which there are"
            ),
        )


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
    schemas: list[Mapping[str, Any]] = []
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


def _of_conversion(
    wishes: Wishes, image: Image, name: str, stores: tuple[StoreState, ...]
) -> Iterator[Finding]:
    for store in stores:
        if store.rules is not None and all(
            "/" not in key and _is_one_row(rule) for key, rule in store.rules.items()
        ):
            continue
        names = (o.name for o in image.operators if o.id == store.operator and o.name)
        title = next(names, f"operator {store.operator}")
        why = store.unknown or "RocksDB encodes its keys in a way of its own"
        yield Finding(
            "refuse",
            (
                f"{name}: the state of {title} ({store.store}) cannot be converted to "
                f"{wishes.provider}: {why}"
            ),
            hint=(
                f"keep its provider; or `drop` that operator ({quote(store.operator)}) and let "
                "it start empty"
            ),
        )


def _is_one_row(rule: KeyRule) -> bool:
    """Whether the key is one row without RocksDB; with it, a session window's is in two."""
    return rule.encoder.kind in ("plain", "row") or is_session(decode_struct(rule.schema))
