"""The kinds of sources, and which of them an offset or a state is of.

    SourceReading      a kind, and the details of one source
    of_spark(…)        the reading of an offset in Spark's log
    of_flink(…)        the reading of a source's state in Flink
    words_of(…)        the position of an endpoint that was surveyed, in a few words
    positions_of(…)    the same, part by part
    step_back(…)       words for how an offset of Spark's is behind an earlier one

Those of topics are in `topics`. The others, by their offsets in Spark's log:

    {"logOffset":3}                                        file: a number of its log
    {"sourceVersion":1,"reservoirId":"<table id>",         Delta
     "reservoirVersion":4,"index":-1,"isStartingVersion":false}
    {"version":1,"snapshot_id":599…,"position":1,          Iceberg
     "scan_all_files":false}
    {"snapshotId":3,"index":1,"scanSnapshot":false}        Paimon
    {"offsetCommitTime":"20260102030405678"}               Hudi
    {"seqNum":12,"sourceVersion":1,…}                      Auto Loader
    {"metadata":{"streamName":…},"shardId-…":…}            Kinesis
    {"offset":10,"timestamp":2000}                         rate-micro-batch
    5                                                      rate; memory and socket, which have no
                                                           log

Delta's index: below 0 nothing of that version is read yet, but for -20 and -19, which stand before
and behind a change of the table's schema (DeltaSourceOffset.METADATA_CHANGE_INDEX,
POST_METADATA_CHANGE_INDEX). Two offsets are compared by the count, Delta's version and then index
(of one table), or Iceberg's position (within one snapshot): a table may be another one.

Source: Spark, FileStreamSourceOffset, RatePerMicroBatchStreamOffset, LongOffset; Delta,
DeltaSourceOffset; Iceberg, StreamingOffset; Paimon, PaimonSourceOffset; Hudi, HoodieSourceOffset;
awslabs/spark-sql-kinesis-connector. Auto Loader is Databricks' own, and not published: it is known
by its two first fields. Flink's splits of files, and of numbers, which fromSequence and
DataGeneratorSource have, and the enumerator of IcebergSource: see `formats.flink.file_source`.

Our own kinds are asked first, in the order of KINDS; then those of other packages (the entry point
group `stateshift.sources`), which are imported only for a source that we do not know. A package
that is broken, or raises something, is left out with a warning: nobody asked for it by name.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar

from stateshift import extensions
from stateshift.errors import FormatError, PlanError
from stateshift.formats.flink import file_source
from stateshift.formats.spark.text import is_integer
from stateshift.sources.kind import (
    Details,
    FlinkSource,
    SourceKind,
    SourcePosition,
    SparkReader,
    StepBack,
)
from stateshift.sources.topics import EITHER, EVENT_HUBS, KAFKA, PULSAR, copied_whole

log = logging.getLogger(__name__)

T = TypeVar("T")

SHOWN_MAX = 8

# ---- offsets of Spark's that are objects, or a number


def object_with(*required: str, exact: bool = False, **fields: str) -> SparkReader:
    """Return a reader of objects that have these keys, or no others if it is to be `exact`; the
    details are their fields by names of ours.
    """
    keys = set(required)

    def read(offset: object, has_log: bool) -> Details | None:
        if not isinstance(offset, dict):
            return None
        fits = keys == offset.keys() if exact else keys <= offset.keys()
        details = {name: offset.get(key) for name, key in fields.items()}
        if "starting_snapshot" in details:
            details["starting_snapshot"] = details["starting_snapshot"] is True
        return details if fits else None

    return read


def number_of(log_is_there: bool) -> SparkReader:
    """Return a reader of numbers, for sources that have a log, or have none."""

    def read(offset: object, has_log: bool) -> Details | None:
        return {"offset": offset} if is_integer(offset) and has_log is log_is_there else None

    return read


def kinesis_offset(offset: object, has_log: bool) -> Details | None:
    """Return the stream of Kinesis, and the number of its shards."""
    if not isinstance(offset, dict):
        return None
    shards = [name for name in offset if name.startswith("shardId-")]
    metadata = offset.get("metadata")
    if not shards or not isinstance(metadata, dict):
        return None
    return {"stream": metadata.get("streamName"), "shards": len(shards)}


def fall_of_count(older: object, newer: object) -> str | None:
    """Return words for a count that fell, whatever source it is of."""
    pairs = [(older, newer)]
    if isinstance(older, dict) and isinstance(newer, dict):
        pairs = [(older.get(name), newer.get(name)) for name in ("logOffset", "offset")]
    for before, after in pairs:
        if is_integer(before) and is_integer(after):
            return _fall("", before, after)
    return None


def fall_within(same: str, *fields: str) -> StepBack:
    """Return a comparison of offsets whose field `same` is equal, by the first field that
    differs.
    """

    def compare(older: object, newer: object) -> str | None:
        if not isinstance(older, dict) or not isinstance(newer, dict):
            return None
        if same not in older or older[same] != newer.get(same):
            return None
        for name in fields:
            before, after = older.get(name), newer.get(name)
            if before == after:
                continue
            if not is_integer(before) or not is_integer(after):
                return None
            return _fall(f"{name} ", before, after)
        return None

    return compare


def _fall(name: str, before: int, after: int) -> str | None:
    return f"{name}{before} to {after}" if after < before else None


# ---- Flink's splits of files, and of numbers


def files_in_flink(source: FlinkSource) -> Details | None:
    """Return the files that readers are at, and those that wait in the enumerator."""
    decode = file_source.decode_file_split
    enumerator = file_source.FileEnumerator((), ())
    try:
        splits = [decode(each.version, each.content) for each in source.splits]
        if source.enumerator is not None:
            state = source.enumerator
            enumerator = file_source.decode_file_enumerator(state.version, state.content)
    except FormatError:
        return None
    if source.enumerator is None and not splits:
        return None
    files = {}
    for split in splits:
        progress = "not begun"
        if split.offset == file_source.NO_OFFSET:
            progress = f"{split.records} records read"
        elif split.offset is not None:
            progress = f"{split.records} records behind byte {split.offset}"
        files[_part(split)] = progress
    pending = [_part(split) for split in enumerator.splits]
    return {"files": files, "pending": pending, "found": len(enumerator.found)}


def _part(split: file_source.FileSplit) -> str:
    """Return the name of a split's file, and its part of that where it is not the whole."""
    if split.start == 0 and split.length == split.size:
        return str(split.path)
    return f"{split.path} from byte {split.start} to {split.start + split.length}"


def iceberg_in_flink(source: FlinkSource) -> Details | None:
    """Return the snapshot that was listed last, and the number of splits that are not read yet."""
    if source.enumerator is None:
        return None
    try:
        enumerator = source.enumerator
        state = file_source.decode_iceberg_enumerator(enumerator.version, enumerator.content)
    except FormatError:
        return None
    unread = len(state.pending) + len(source.splits)
    details: Details = {"snapshot_id": state.snapshot_id, "time_ms": state.time_ms}
    rest = {"split_version": state.split_version, "listings": list(state.listings)}
    return {**details, "splits": unread, **rest}


def numbers_in_flink(source: FlinkSource) -> Details | None:
    """Return the next number of each split, also of those that wait in the enumerator."""
    decode = file_source.decode_numbers
    waiting: tuple[file_source.Numbers, ...] = ()
    try:
        splits = [decode(each.version, each.content) for each in source.splits]
        if source.enumerator is not None:
            state = source.enumerator
            waiting = file_source.decode_numbers_enumerator(state.version, state.content)
    except FormatError:
        return None
    following = {split.id: split.next for split in (*splits, *waiting)}
    return {"splits": following} if following else None


# ---- positions, and words


def file_positions(details: Details) -> Iterator[SourcePosition]:
    """Yield the number of a log, or each file of Flink's."""
    if "log_offset" in details:
        yield SourcePosition("", f"number {details['log_offset']} of its log")
    files: Mapping[str, str] = details.get("files") or {}
    for path, progress in sorted(files.items()):
        yield SourcePosition(path, progress)
    for path in details.get("pending") or ():
        yield SourcePosition(path, "no reader has it yet")


def file_words(details: Details, every: bool) -> str:
    """Return nothing for Spark, whose log names the files; for Flink those that are read."""
    if "files" not in details:
        return ""
    waiting = len(details["pending"])
    more = f"; {waiting:,} wait" if waiting else ""
    return _listed(details["files"], "files are being read", every) + more


def number_positions(details: Details) -> Iterator[SourcePosition]:
    """Yield the next number of each split."""
    for split, following in details["splits"].items():
        yield SourcePosition(split, following)


def number_words(details: Details, every: bool) -> str:
    """Return the next number of each split."""
    return _listed(details["splits"], "splits", every)


def _listed(parts: Mapping[str, object], several: str, every: bool) -> str:
    if not parts or (len(parts) > SHOWN_MAX and not every):
        return f"{len(parts):,} {several}"
    return ", ".join(f"{name}: {position}" for name, position in sorted(parts.items()))


def delta_words(details: Details, every: bool) -> str:
    """Return the position that is read next; an index below 0 is before that version's files."""
    version, index = details["version"], details["index"]
    words = f"table {details['table_id']}, version {version}"
    if details["starting_snapshot"]:
        return f"{words}, the starting snapshot, file {index}"
    if isinstance(index, int) and index >= 0:
        return f"{words}, file {index}"
    if isinstance(version, int) and version > 0:
        return f"{words} is next, {version - 1} is read"
    return f"{words} is next"


def snapshot_words(unit: str) -> Callable[[Details, bool], str]:
    """Return the words for a snapshot that is read in these units."""

    def words(details: Details, every: bool) -> str:
        starting = " of the starting snapshot" if details["starting_snapshot"] else ""
        return f"snapshot {details['snapshot_id']}, {unit} {details['position']}{starting}"

    return words


def iceberg_words(details: Details, every: bool) -> str:
    """Return the file of a snapshot for Spark; for Flink the splits that it is not done with."""
    if "splits" in details:
        if details["snapshot_id"] is None:
            return "nothing is listed yet"
        return f"snapshot {details['snapshot_id']} is listed, {details['splits']:,} splits unread"
    return snapshot_words("file")(details, every)


def iceberg_positions(details: Details) -> Iterator[SourcePosition]:
    """Yield the position of Iceberg's source; for Flink all that its enumerator holds."""
    yield SourcePosition("", iceberg_words(details, False))
    for name in ("time_ms", "split_version", "listings"):
        if name in details:
            yield SourcePosition(name, str(details[name]))


def one_position(words: Callable[[Details, bool], str]) -> Callable[..., Iterator[SourcePosition]]:
    """Return the position of a source that has no parts, by its words."""

    def positions(details: Details) -> Iterator[SourcePosition]:
        yield SourcePosition("", words(details, False))

    return positions


def count_position(details: Details) -> Iterator[SourcePosition]:
    """Yield the count of a source that has no parts."""
    yield SourcePosition("", details["offset"])


def unknown_words(details: Details, every: bool) -> str:
    """Return the number of Flink's splits; nothing is known of an offset of Spark's."""
    if "splits" not in details:
        return ""
    versions = ", ".join(map(str, details["split_versions"]))
    of_version = f" of version {versions}" if versions else ""
    return f"{details['splits']:,} splits{of_version}: copied whole"


# ---- the kinds

FILE: Final = SourceKind(
    "file",
    True,
    object_with("logOffset", log_offset="logOffset"),
    files_in_flink,
    file_positions,
    file_words,
    fall_of_count,
)
DELTA: Final = SourceKind(
    "delta",
    True,
    object_with(
        "reservoirId",
        table_id="reservoirId",
        version="reservoirVersion",
        index="index",
        starting_snapshot="isStartingVersion",
    ),
    positions=one_position(delta_words),
    words=delta_words,
    step_back=fall_within("reservoirId", "reservoirVersion", "index"),
)
ICEBERG: Final = SourceKind(
    "iceberg",
    True,
    object_with(
        *("snapshot_id", "position", "scan_all_files"),
        snapshot_id="snapshot_id",
        position="position",
        starting_snapshot="scan_all_files",
    ),
    iceberg_in_flink,
    positions=iceberg_positions,
    words=iceberg_words,
    step_back=fall_within("snapshot_id", "position"),
    comparable=True,
)
PAIMON: Final = SourceKind(
    "paimon",
    True,
    object_with(
        *("snapshotId", "index", "scanSnapshot"),
        snapshot_id="snapshotId",
        position="index",
        starting_snapshot="scanSnapshot",
    ),
    positions=one_position(snapshot_words("split")),
    words=snapshot_words("split"),
)
HUDI: Final = SourceKind(
    "hudi",
    True,
    object_with("offsetCommitTime", exact=True, commit_time="offsetCommitTime"),
    words=copied_whole,
)
RATE: Final = SourceKind(
    "rate", True, number_of(True), positions=count_position, step_back=fall_of_count
)
MEMORY: Final = SourceKind(
    "memory or socket", False, number_of(False), positions=count_position, step_back=fall_of_count
)
RATE_MICRO_BATCH: Final = SourceKind(
    "rate-micro-batch",
    True,
    object_with("offset", "timestamp", exact=True, offset="offset", timestamp="timestamp"),
    positions=count_position,
    step_back=fall_of_count,
)
KINESIS: Final = SourceKind("kinesis", True, kinesis_offset, words=copied_whole)
AUTO_LOADER: Final = SourceKind(
    "auto loader",
    True,
    object_with("seqNum", "sourceVersion", sequence_number="seqNum"),
    words=copied_whole,
)
DATAGEN: Final = SourceKind(
    "datagen",
    True,
    flink=numbers_in_flink,
    positions=number_positions,
    words=number_words,
    comparable=True,
)
# One that nobody knows may still count up.
UNKNOWN: Final = SourceKind("unknown", words=unknown_words, step_back=fall_of_count)
KINDS: Final = (
    *(FILE, DELTA, ICEBERG, PAIMON, HUDI, EVENT_HUBS, RATE, MEMORY, RATE_MICRO_BATCH),
    *(KAFKA, EITHER, PULSAR, KINESIS, AUTO_LOADER, DATAGEN),
)


# The knowledge that is missing of sources that do not read on elsewhere with `reposition`.
_OF_OLD_SERVICE: Final = "it is copied whole, and fits the {} that the job has read"
UNTRANSLATED: Final[Mapping[str, str]] = {
    FILE.name: 'its files move with the job ("data" in the spec), and their paths are rewritten',
    EVENT_HUBS.name: _OF_OLD_SERVICE.format("hub")
    + "; another hub numbers the same events differently, and cannot be asked here",
    KINESIS.name: _OF_OLD_SERVICE.format("stream")
    + "; another stream has other shards and sequence numbers",
    PULSAR.name: _OF_OLD_SERVICE.format("topic") + "; message ids are those of its cluster",
    PAIMON.name: _OF_OLD_SERVICE.format("table") + "; the snapshots of another are not compared",
    HUDI.name: _OF_OLD_SERVICE.format("table") + "; the commits of another are not compared",
    AUTO_LOADER.name: "its files are listed in a RocksDB below sources, which is Databricks' own: "
    "it is copied whole, and fits the folder that the job has read",
    UNKNOWN.name: "its state is copied whole; Flink's IcebergSource is known as such once it has "
    "listed its table",
}


# ---- which of them it is


@dataclass(frozen=True, slots=True)
class SourceReading:
    """The kind of a source, and its details."""

    kind: SourceKind
    details: Details = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether the kind is one of ours."""
        return self.kind in KINDS

    @property
    def is_whole(self) -> bool:
        """Whether its positions are all that its state says."""
        is_unread = self.kind is ICEBERG and self.details["splits"] > 0
        return self.kind.comparable and "enumerator" not in self.details and not is_unread


def of_spark(offset: object, has_log: bool, added: bool = True) -> SourceReading:
    """Return the reading of an offset, decoded JSON; `has_log`: the source has files below
    `sources/`; `added`: kinds of other packages are asked, too.
    """
    reading = _first(lambda kind: kind.spark(offset, has_log), added)
    return reading or SourceReading(UNKNOWN)


def of_flink(source: FlinkSource) -> SourceReading:
    """Return the reading of a source's state."""
    reading = _first(lambda kind: kind.flink(source), added=True)
    if reading is not None:
        return reading
    versions = sorted({split.version for split in source.splits})
    return SourceReading(UNKNOWN, {"splits": len(source.splits), "split_versions": versions})


def words_of(name: str, details: Details, every: bool = False) -> str:
    """Return the position of a source of this kind; empty if nobody has the kind here."""
    return _ask(name, lambda kind: kind.words(details, every), "")


def positions_of(name: str, details: Details) -> tuple[SourcePosition, ...]:
    """Return the position in each part of a source of this kind."""
    return _ask(name, lambda kind: tuple(kind.positions(details)), ())


def step_back(before: str, after: str) -> str | None:
    """Return words for how `after` is behind `before`; None if it is not, or is unknown."""
    try:
        older, newer = json.loads(before), json.loads(after)
    except (ValueError, RecursionError):
        return None
    kind = of_spark(older, has_log=True).kind
    return _ask(kind.name, lambda kind: kind.step_back(older, newer), None)


def _first(recognise: Callable[[SourceKind], Details | None], added: bool) -> SourceReading | None:
    """Return the reading of the first kind that recognises a source."""
    for kind in KINDS:
        try:
            details = recognise(kind)
        except FormatError:
            continue
        if details is not None:
            return SourceReading(kind, details)
    for kind in added_kinds() if added else ():
        details = _guarded(kind, recognise, None)
        if details is not None:
            return SourceReading(kind, details)
    return None


def _ask(name: str, ask: Callable[[SourceKind], T], otherwise: T) -> T:
    """Return the answer of the kind of this name."""
    for kind in (*KINDS, UNKNOWN):
        if kind.name == name:
            return ask(kind)
    for kind in added_kinds():
        if kind.name == name:
            return _guarded(kind, ask, otherwise)
    return otherwise


def _guarded(kind: SourceKind, ask: Callable[[SourceKind], T], otherwise: T) -> T:
    """Return the answer of another package's kind; it must not keep us from looking at an image."""
    try:
        return ask(kind)
    except FormatError:
        return otherwise
    except Exception as error:
        log.warning("the kind of source %r is left out: %r", kind.name, error)
        return otherwise


def added_kinds() -> tuple[SourceKind, ...]:
    """Return the kinds that installed packages add. The first call imports them."""
    return load_added(tuple(sys.path))


@lru_cache(maxsize=1)
def load_added(path: tuple[str, ...]) -> tuple[SourceKind, ...]:
    """Import the kinds that packages on this path add; those that are broken are left out."""
    own = {kind.name for kind in (*KINDS, UNKNOWN)}
    kinds = []
    for name in extensions.names_added(extensions.SOURCES):
        if name in own:
            continue
        try:
            kind = extensions.load(extensions.SOURCES, name)
            if not isinstance(kind, SourceKind) or kind.name != name:
                lacks = f"is no SourceKind of the name {name!r}"
                raise extensions.refuse(extensions.SOURCES, name, lacks)
        except PlanError as error:
            log.warning("%s: left out", error.fact)
            continue
        kinds.append(kind)
    return tuple(kinds)
