"""What the `transform` of a job asks for, as one value: the kinds of change are one rewriting of
the state. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stateshift.engines.spark.layout import HDFS, ROCKSDB
from stateshift.engines.spark.survey.restart.operators import PROVIDER
from stateshift.formats.spark.offset_conf import CODEC
from stateshift.plain import JsonObject
from stateshift.specification import JobSpec
from stateshift.survey import Image

# What a spec asks for, or the options of a step say, in plain JSON: modules draw it at their top.
Plain = JsonObject

PARTITIONS = ("spark.sql.shuffle.partitions", "spark.sql.streaming.internal.stateStore.partitions")
CLASSES = {
    HDFS: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    ROCKSDB: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """None, or empty, where nothing is asked for."""

    rewind: int | None = None
    renumber: bool = False
    compact: bool = False
    in_place: bool = False
    keep_tables: bool = False
    partitions: int | None = None
    provider: str | None = None
    codec: str | None = None
    format_1: bool = False
    operators: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    dropped_operators: tuple[str, ...] = ()
    dropped_sources: tuple[str, ...] = ()
    split: Plain | None = None
    merge: Plain | None = None
    evolve: tuple[Plain, ...] = ()

    @property
    def of_state(self) -> bool:
        """Whether any state file is rewritten, rather than copied."""
        return any(
            (
                self.renumber,
                self.compact,
                self.partitions,
                self.provider,
                self.codec,
                self.format_1,
                self.split,
                self.merge,
                self.evolve,
            )
        )

    @property
    def any(self) -> bool:
        return self != Wishes(rewind=self.rewind)


def wishes_of(changes: Sequence[Plain]) -> Wishes:
    """Return the changes of a job's `transform`, by what they change."""
    by_kind = {change["kind"]: change for change in changes}
    none: Plain = {}
    convert, rename, drop = (by_kind.get(kind, none) for kind in ("convert", "rename", "drop"))
    rewind = by_kind.get("rewind", none)
    return Wishes(
        rewind=rewind.get("batch"),
        renumber=rewind.get("renumber", False),
        compact="compact" in by_kind,
        in_place=by_kind.get("compact", none).get("in_place", False),
        keep_tables=by_kind.get("compact", none).get("keep_tables", False),
        partitions=by_kind.get("repartition", none).get("partitions"),
        provider=convert.get("provider"),
        codec=convert.get("codec"),
        format_1="checkpoint_format" in convert,
        operators=rename.get("operators", none),
        sources=rename.get("sources", none),
        dropped_operators=tuple(drop.get("operators", ())),
        dropped_sources=tuple(drop.get("sources", ())),
        split=by_kind.get("split"),
        merge=by_kind.get("merge"),
        evolve=tuple(change for change in changes if change["kind"] == "evolve"),
    )


def path_after(wishes: Wishes, path: str) -> str | None:
    """Return where a file of the image is afterwards, as far as operators and sources have other
    names; None where what it belongs to is left behind.
    """
    area, _, rest = path.partition("/")
    name, slash, rest = rest.partition("/")
    names: Mapping[str, str] = {}
    dropped: tuple[str, ...] = ()
    if area == "state":
        names, dropped = wishes.operators, wishes.dropped_operators
    if area == "sources":
        names, dropped = wishes.sources, wishes.dropped_sources
    if name in dropped:
        return None
    return f"{area}/{names.get(name, name)}/{rest}" if slash else path


def taken_along(job: JobSpec, image: Image) -> Image:
    """Return an image without the operators that the job's changes leave behind: their files are
    not copied.
    """
    dropped = wishes_of(job.transform).dropped_operators
    if not dropped:
        return image
    start = len(image.path) + 1 if image.path else 0

    def goes(path: str) -> bool:
        area, _, rest = path[start:].partition("/")
        return area != "state" or rest.partition("/")[0] not in dropped

    planned_state = image.planned_state
    if planned_state is not None:
        planned_state = replace(planned_state, files=tuple(filter(goes, planned_state.files)))
    return replace(
        image,
        operators=tuple(operator for operator in image.operators if operator.id not in dropped),
        shards=tuple(shard for shard in image.shards if shard.operator not in dropped),
        needed=tuple(filter(goes, image.needed)),
        planned_state=planned_state,
    )


def settings_after(wishes: Wishes, settings: Mapping[str, str]) -> dict[str, str]:
    """Return what changes in the configuration that the offset log records, and that overrides the
    session's on a restart.
    """
    changes: dict[str, str] = {}
    if wishes.partitions:
        # Both, where there are both (SPARK-53942); the first pins the number of state partitions.
        first, second = PARTITIONS
        changes[first] = str(wishes.partitions)
        if second in settings:
            changes[second] = str(wishes.partitions)
    if wishes.provider:
        changes[PROVIDER] = CLASSES[wishes.provider]
    if wishes.codec:
        changes[CODEC] = wishes.codec
    return {key: value for key, value in changes.items() if settings.get(key) != value}
