"""One image and the change that is asked of it. Pure.

Spark versions do not agree on the number in the first line of a zip's metadata:

    Spark 4.0       that of its checkpoint format: 2 under format 2. It refuses any other. If
                    several queries share a JVM, it is the format of the first
    all the others  1. 4.1 refuses 2; 4.3 goes back to an older snapshot then, if the changelogs
                    reach that far

Under checkpoint format 1 they all write 1. Source: Spark, RocksDBCheckpointMetadata.VERSION.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from stateshift import plain
from stateshift.engines.spark import layout
from stateshift.engines.spark.entries.keys import KeyRule
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import HDFS, ROCKSDB
from stateshift.engines.spark.rewrite.evolution import Evolution, evolutions
from stateshift.engines.spark.rewrite.merge import Joining
from stateshift.engines.spark.rewrite.move import Move, StateChange
from stateshift.engines.spark.rewrite.stores import (
    RowRule,
    StoreState,
    partitions_of,
    provider_of,
    shards_of,
    stores_of,
)
from stateshift.engines.spark.survey.restart.operators import PROVIDER
from stateshift.engines.spark.versions import is_4_0
from stateshift.formats.spark.names import CheckpointPath, classify
from stateshift.formats.spark.offset_conf import MERGE_OPERATOR, ROW_CHECKSUM, delimiter, is_strict
from stateshift.formats.spark.operator_metadata import AGGREGATION, REAL_TIME_AGGREGATION
from stateshift.plain import JsonObject
from stateshift.specification.transform import Prune
from stateshift.survey import Facts, FileInfo, Image, ShardFiles

CHECKED_BYTES_MIN = 64 * 1024 * 1024  # of the files of a store whose rows are checked
_CHECKED = (AGGREGATION, REAL_TIME_AGGREGATION, "sessionWindowStateStoreSaveExec")


@dataclass(frozen=True)
class Request:
    """`number` counts the images of a workflow."""

    job_move: Move
    image: Image
    number: int

    @property
    def change(self) -> StateChange:
        return self.job_move.change

    @property
    def facts(self) -> Facts:
        return self.job_move.facts

    @property
    def target(self) -> str:
        return self.job_move.target

    @cached_property
    def joining(self) -> Joining | None:
        is_merged = self.change.merge and self.facts.others
        return Joining(self.facts.source, self.facts.others) if is_merged else None

    @property
    def above(self) -> str:
        return self.joining.root if self.joining else self.facts.source.location

    @cached_property
    def _infos(self) -> Mapping[str, FileInfo]:
        if self.joining:
            return self.joining.infos
        return {file.path: file for file in self.facts.source.files}

    def info(self, path: str) -> FileInfo:
        return self._infos.get(path) or FileInfo(path, 0)

    def size(self, shards: Iterable[ShardFiles]) -> int:
        paths = chain.from_iterable(shard.files for shard in shards)
        return sum(self.info(path).size for path in paths)

    # -- paths

    def inside(self, path: str) -> str:
        return layout.inside(self.image, path)

    def place(self, path: str) -> CheckpointPath:
        return classify(self.inside(path))

    def path(self, path: str) -> str | None:
        new = self.change.path_after(self.inside(path))
        return None if new is None else layout.under(self.image.path, new)

    # -- what is to be

    @property
    def version(self) -> int:
        return (self.image.epoch or 0) + 1

    @cached_property
    def version_after(self) -> int:
        return self.job_move.number_after(self.image) + 1

    @cached_property
    def provider(self) -> str:
        return self.change.provider or provider_of(self.image) or HDFS

    @cached_property
    def format_2(self) -> bool:
        for place in map(self.place, self.image.state_files):
            if place.uuid and place.kind in ("zip", "changelog"):
                return True
        return False

    @property
    def uuids(self) -> bool:
        """Whether what is made of it is."""
        asked = self.change.checkpoint_format
        is_of_format_2 = self.format_2 if asked is None else asked == "v2"
        return is_of_format_2 and (self.provider == ROCKSDB or not self.image.shards)

    @property
    def changes_ids(self) -> bool:
        """Whether commits name other state files, or none any more."""
        return self.format_2 or self.uuids

    def uuid_of(self, store: StoreState, number: int) -> str | None:
        """Return the id in the commit that a version has to keep in its place."""
        if not self.change.in_place:
            return None
        own = [shard.files for shard in store.shards if shard.shard == number]
        for place in map(self.place, chain.from_iterable(own)):
            if place.version == self.version and place.uuid:
                return place.uuid
        return None

    @cached_property
    def conf(self) -> dict[str, str]:
        return self.change.settings_after(self.image.settings)

    @property
    def other_provider(self) -> bool:
        return PROVIDER in self.conf

    @cached_property
    def stores(self) -> tuple[StoreState, ...]:
        stores = stores_of(self.image, self.provider == ROCKSDB)
        dropped = self.change.dropped_operators
        return tuple(store for store in stores if store.operator not in dropped)

    @cached_property
    def part(self) -> JsonObject | None:
        """Return the options of the part of the entries that is asked for."""
        split, prune = self.change.split, self.change.pruning
        if prune is not None:
            return part_of_condition(prune, self.image, self.stores)
        if split is None:
            return None
        if split.by is not None and split.part is not None:
            return {"shards": shards_of(split.by, split.part, partitions_of(self.image) or 0)}
        return {
            "column": split.column,
            "values": list(split.values),
            "rules": plain.to_plain(self.key_rules(self.stores)),
        }

    def key_rules(self, stores: Iterable[StoreState]) -> dict[str, KeyRule]:
        rules: dict[str, KeyRule] = {}
        for store in stores:
            rules |= store.named_rules
        return rules

    @cached_property
    def row_rules(self) -> dict[str, RowRule]:
        """Return the rules of stores whose rows are checked while they are read to be rewritten.

        A look beforehand then need not read them. They are those of operators that have one store,
        of plain rows: whether the stores of a join agree shows only where all of them are read
        together. And they are the large ones: a look at a small state takes no time, and says what
        is wrong before anything is written.
        """
        if self.joining is not None or self.other_provider:
            return {}
        operators = {operator.id: operator for operator in self.image.operators}
        stores_of_operator = Counter(store.operator for store in self.stores)
        rules: dict[str, RowRule] = {}
        for store in self.stores:
            operator = operators[store.operator]
            is_alone = stores_of_operator[store.operator] == 1
            is_large = self.size(store.shards) >= CHECKED_BYTES_MIN
            if operator.name in _CHECKED and is_alone and is_large:
                rules |= self._rules_of_rows(store, operator.shards)
        return rules

    def _rules_of_rows(self, store: StoreState, shards: int) -> dict[str, RowRule]:
        """Return the rules of a store, or of its column families; none if not all are known."""
        schemas = spark_image(self.image).schemas
        strict = is_strict(self.image.settings)
        rules: dict[str, RowRule] = {}
        for name, key in store.named_rules.items():
            schema = schemas[name]
            if schema["avro"] or schema["lists"]:
                return {}
            rules[name] = RowRule(key, schema["value"], shards, strict)
        return rules

    @property
    def columns_added(self) -> list[str]:
        """The columns whose values a merge adds."""
        merge = self.change.merge
        return [] if merge is None else list(merge.sum)

    @cached_property
    def evolved(self) -> Mapping[str, Evolution]:
        """Return the stores whose rows become others, by "<operator>/<store>"."""
        return evolutions(self.change.evolve, self.image, delimiter(self.image.settings).decode())

    def evolves(self, store: StoreState) -> list[Evolution]:
        """Return the evolutions of a store on disk, or of its column families."""
        return [evolution for name, evolution in self.evolved.items() if store.holds(name)]

    def reading(self) -> dict[str, str]:
        """Return the settings that say how rows are read."""
        settings = self.image.settings
        return {key: settings[key] for key in (ROW_CHECKSUM, MERGE_OPERATOR) if key in settings}


def part_of_condition(prune: Prune, image: Image, stores: tuple[StoreState, ...]) -> JsonObject:
    """Return the options of entries of which a condition is not true (see `pruning`)."""
    rules: dict[str, KeyRule] = {}
    values: dict[str, str] = {}
    schemas = spark_image(image).schemas
    stores_of_operator = Counter(store.operator for store in stores)
    operator = prune.operator
    if operator is None and len(stores_of_operator) == 1:
        (operator,) = stores_of_operator
    asks_values = re.search(r"\bvalue\b", prune.where, re.IGNORECASE) is not None
    for store in stores:
        if store.operator != operator:
            continue
        rules |= store.named_rules
        for name in store.named_rules if asks_values else ():
            schema = schemas[name]
            is_alone = stores_of_operator[store.operator] == 1 and not store.families
            if is_alone and not schema["avro"] and not schema["lists"]:
                values[name] = schema["value"]
    part = {"where": prune.where, "operator": operator, "values": values}
    return {**part, "rules": plain.to_plain(rules)}


NEWER = "4.0 or later"


def zip_format(request: Request) -> int | None:
    """Return the number that the target's Spark reads; None, for the sources', where unknown."""
    if not request.uuids:
        return 1
    version = target_version(request.facts)
    if version is None:
        return None
    return 2 if is_4_0(version) else 1


def other_format(image: Image, facts: Facts) -> bool:
    """Whether the target's Spark refuses the image's zips for their number, as far as known."""
    version = target_version(facts)
    if version is None or is_4_0(version) == seems_4_0(image, facts):
        return False
    names = (path.rpartition("/")[2] for path in image.state_files)
    return any(name.endswith(".zip") and "_" in name for name in names)


def target_version(facts: Facts) -> str | None:
    """Return the target's Spark version; None where no cluster says it."""
    return facts.target_cluster.version if facts.target_cluster else None


def seems_4_0(image: Image, facts: Facts) -> bool:
    """Whether Spark 4.0 seems to be the writer: 4.1 adds checksums, 4.2 settings of its own."""
    under = f"{image.path}/" if image.path else ""
    own = [file.path for file in facts.source.files if file.path.startswith(under)]
    checksums = [path for path in own if path.endswith((".changelog.crc", ".zip.crc"))]
    # The names of Hadoop's checksums begin with a dot.
    return image.written_by == NEWER and all("/." in path for path in checksums)
