"""Whether the logs of a query's batches can be one run's: no hole where a restart looks, and
nothing goes backwards.

    offsets/L, offsets/L-1  read by every start, L being the newest; "batch L-1 doesn't exist" else.
                            A hole that lies deeper no start notices
                            (MicroBatchExecution.populateStartOffsets, SPARK-38033)
    commits/C, C < L - 1    Spark runs batch L alone, from state version L: what lies between is
                            taken as done
    no commits at all       the same: Spark 2.1 kept none, and later ones run batch L again (2.1.3
                            and 4.3 agree)
    offsets/b, offsets/b+1  name as many sources (v1: without names); a source's offset never falls,
                            nor does the watermark
    commits/b               hands on the watermark of batch b + 1, to the millisecond (Spark 2.4 and
                            later; MicroBatchExecution.constructNextBatch takes it from the tracker
                            that the commit has written down)
    clocks                  may be set back: batchTimestampMs is warned of, no more

One batch may break the rules: that of Spark's own offline repartitioning (4.2) repeats the offsets
and the watermark of the last one committed (OfflineStateRepartitionRunner). It has another number
of partitions than the one before.

Seen with Spark 4.3: holes at L-1 (refused), L-2 and L-3 (started); a commit log without its last
two entries, with and without state of version L; two offset logs exchanged ("assertion failed").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stateshift.engines.spark import layout
from stateshift.engines.spark.small_files import Reading
from stateshift.engines.spark.survey.restart.query_files import ListedFiles, store_keys
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark.commits import decode_commit
from stateshift.formats.spark.offsets import PARTITIONS, SourceOffset, decode_offsets
from stateshift.sources.kinds import step_back
from stateshift.survey import Operator

# The number of batches that are compared with each other; Spark keeps a hundred.
BATCHES_MAX = 1_000

_MOVE_AWAY = "a job continues after batch {epoch} once the offsets of later batches are moved away"


@dataclass(frozen=True, slots=True)
class BatchLogs:
    """A batch's logs. No watermark is 0; `handed_on_ms` is None without a commit that says it."""

    number: int
    version: int
    sources: tuple[SourceOffset, ...]
    partitions: str
    watermark_ms: int
    timestamp_ms: int
    handed_on_ms: int | None = None


def last_done(listed: ListedFiles) -> int | None:
    """Return the last batch that Spark takes as done: the newest commit. Without any commit it is
    the batch before the last one planned, for Spark runs that one again. None where the job has
    done nothing yet.
    """
    if listed.commits:
        return max(listed.commits)
    newest = max(listed.offsets, default=0)
    return newest - 1 if newest > 0 else None


def warn_of_no_commits(reading: Reading, listed: ListedFiles, epoch: int | None) -> None:
    """Warn of a checkpoint that has no commit log."""
    if epoch is None or listed.commits:
        return
    again = epoch + 1
    if any(store.uses_uuids for store in listed.stores.values()):
        reading.refuse(
            f"{reading.path('commits')}/ holds no commits, which name the files of the "
            "state under checkpoint format 2: Spark cannot load it",
            "commits",
        )
        return
    reading.warn(
        f"{reading.path('commits')}/ holds no commits, as Spark before 2.2 left it: Spark "
        f"takes the batches up to {epoch} as done, and runs batch {again} again",
        "commits",
    )


def refuse_misplaced(reading: Reading, listed: ListedFiles) -> None:
    """Refuse a directory where Spark reads or writes a file, and the reverse."""
    logs = {"offsets": listed.offsets, "commits": listed.commits}
    newest = {log: max(numbers, default=-1) for log, numbers in logs.items()}
    for path in sorted(listed.misplaced):
        log = path.partition("/")[0]
        if log == path:
            fact = "is a file, where Spark wants a directory"
        elif log not in newest:
            fact = "is a directory, and Spark reads a file of that name"
        elif layout.number_of_log(path) > newest[log]:
            fact = "is a directory: the job dies when it writes the log of that batch there"
        else:
            continue
        reading.refuse(f"{reading.path(path)} {fact}", path, hint="move it away")


def refuse_holes(reading: Reading, listed: ListedFiles, epoch: int | None) -> None:
    """Both of the newest offset logs must be there; older holes only close the way back."""
    newest = max(listed.offsets, default=None)
    if newest is None:
        return
    if epoch is not None and newest > epoch + 1:
        reading.decoded(layout.offset_path(newest), decode_offsets)
        before = newest - 1
        path = layout.offset_path(before)
        if before in listed.offsets:
            reading.decoded(path, decode_offsets)
        else:
            reading.refuse(
                f"{reading.path(path)} is missing: Spark starts from the newest, "
                f"{layout.offset_path(newest)}, and reads the one before it "
                f'("batch {before} doesn\'t exist")',
                path,
                hint=_MOVE_AWAY.format(epoch=epoch),
            )
    followers = {batch + 1 for batch in listed.offsets}
    hole = min(followers - listed.offsets)
    if hole < newest - 1:
        path = layout.offset_path(hole)
        reading.warn(
            f"{reading.path(path)} is missing from between others: a job starts without "
            f"it, but none can go back to batches {hole} and {hole + 1}",
            path,
        )


def check_uncommitted(
    reading: Reading, listed: ListedFiles, operators: Sequence[Operator], epoch: int | None
) -> None:
    """Report several uncommitted batches: Spark runs the last, from the state before it."""
    newest = max(listed.offsets, default=-1)
    if epoch is None or newest <= epoch + 1 or newest - 1 not in listed.offsets:
        return
    has_committed = reading.storage.stat(reading.path(layout.commit_path(newest - 1))) is not None
    if has_committed:
        return  # the job runs, and committed while its files were listed
    path = layout.offset_path(newest)
    first, last = epoch + 1, newest - 1
    skipped = f"commits {first} to {last}" if first < last else f"commit {first}"
    folder = next(_without_version(listed, operators, newest), None)
    if folder is not None:
        reading.refuse(
            f"{skipped} missing: Spark runs batch {newest} alone, from state version "
            f"{newest}, which {reading.path(folder)} does not have",
            path,
            hint=_MOVE_AWAY.format(epoch=epoch),
        )
        return
    reading.warn(
        f"{skipped} missing: where it is, Spark takes those batches as done and runs batch "
        f"{newest} again; only a copy continues from batch {epoch}",
        path,
    )


def _without_version(
    listed: ListedFiles, operators: Sequence[Operator], version: int
) -> Iterator[str]:
    """Yield the folders of stores that cannot be loaded at a version, as far as names tell."""
    for key in store_keys(operators):
        operator, shard, _ = key
        store = listed.stores.get(key)
        if store is None:
            yield f"state/{operator}/{shard}"
        elif store.uses_uuids or version not in store.loadable():
            yield store.folder


def refuse_disorder(
    reading: Reading, listed: ListedFiles, epoch: int | None, thorough: bool
) -> set[int]:
    """Refuse logs that go backwards where a restart reads them; return the batches to avoid."""
    newest = max(listed.offsets, default=None)
    if newest is None:
        return set()
    first_needed = newest if epoch is None else min(epoch, newest)
    first_read = 0 if thorough else first_needed - 1
    newest_numbers = sorted(listed.offsets)[-BATCHES_MAX:]
    numbers = [number for number in newest_numbers if number >= first_read]
    batches = _batches(reading, listed, numbers)
    suspects = _refuse_commits(reading, batches, first_needed)
    for before, after in pairwise(batches):
        if after.number != before.number + 1:
            continue
        if after.number == newest:
            # Sources without names are counted ("There are [2] sources in the checkpoint offsets
            # and now there are [1] sources requested by the query").
            counts = [len(batch.sources) for batch in (after, before)]
            if (before.version, after.version) == (1, 1) and counts[0] != counts[1]:
                path = layout.offset_path(after.number)
                reading.refuse(
                    f"{reading.path(path)} has a line for each of {counts[0]} sources, and "
                    f"{layout.offset_path(before.number)} for {counts[1]}: Spark refuses to start",
                    path,
                )
        fault = _fault(before, after)
        path, before_path = layout.offset_path(after.number), layout.offset_path(before.number)
        is_needed = after.number >= first_needed
        if fault is not None and is_needed and before.partitions == after.partitions:
            fact = f"{reading.path(path)} {fault}; the two are exchanged, or from different runs"
            reading.refuse(fact, path)
        elif fault is not None:
            reading.warn(f"{reading.path(path)} {fault}; no job can go back to these batches", path)
        elif is_needed and 0 < after.timestamp_ms < before.timestamp_ms:
            fact = f"{reading.path(path)} was planned before {before_path}, by its clock"
            reading.warn(f"{fact}: it was set back, or the two are exchanged", path)
        if fault is not None:
            suspects |= {before.number, after.number}
    return suspects


def _refuse_commits(reading: Reading, batches: Iterable[BatchLogs], first_needed: int) -> set[int]:
    """Refuse commits that hand on an older watermark than that of their own batch."""
    suspects = set()
    for batch in batches:
        if not 0 < (batch.handed_on_ms or 0) < batch.watermark_ms:
            continue
        suspects.add(batch.number)
        path, offsets = layout.commit_path(batch.number), layout.offset_path(batch.number)
        fact = f"{reading.path(path)} hands on an older watermark than {offsets} has"
        if batch.number >= first_needed:
            reading.refuse(f"{fact}; it is another batch's, or another run's", path)
        else:
            reading.warn(f"{fact}; no job can go back to that batch", path)
    return suspects


def _batches(reading: Reading, listed: ListedFiles, numbers: Sequence[int]) -> list[BatchLogs]:
    paths = [layout.offset_path(number) for number in numbers]
    committed = listed.commits

    def read(own: Reading, path: str) -> BatchLogs | None:
        number = int(path.rpartition("/")[2])
        handed_on = None
        try:
            entry = decode_offsets(own.content(path))
            if number in committed:
                handed_on = decode_commit(own.content(layout.commit_path(number))).handed_on_ms
        except (FormatError, MissingFile):
            return None  # where a restart needs it, that is said elsewhere
        partitions = entry.conf.get(PARTITIONS, "")
        return BatchLogs(
            number,
            entry.version,
            entry.offsets,
            partitions,
            entry.watermark_ms,
            entry.timestamp_ms,
            handed_on,
        )

    return [batch for batch in reading.each(paths, read) if batch is not None]


def _fault(before: BatchLogs, after: BatchLogs) -> str | None:
    """Return the reason for which two batches that follow each other cannot be of one run."""
    falls = _fault_of_sources(before.sources, after.sources)
    if falls is None and after.watermark_ms < before.watermark_ms:
        falls = f"the watermark falls from {before.watermark_ms} to {after.watermark_ms}"
    if falls is not None:
        return f"goes back behind {layout.offset_path(before.number)}: {falls}"
    is_repartitioned = before.partitions != after.partitions
    if is_repartitioned or before.handed_on_ms in (None, after.watermark_ms):
        return None
    if after.handed_on_ms is not None and after.watermark_ms > before.handed_on_ms:
        return None  # it is committed: no restart reads the commit before it
    return (
        f"has the watermark {after.watermark_ms}, and {layout.commit_path(before.number)} hands on "
        f"{before.handed_on_ms}: with another one Spark drops other rows as late"
    )


def _fault_of_sources(before: Iterable[SourceOffset], after: Iterable[SourceOffset]) -> str | None:
    """Return the first source that goes back; None also where the query's sources changed."""
    earlier = {source.source: source.offset for source in before}
    later = {source.source: source.offset for source in after}
    if earlier.keys() != later.keys():
        return None
    for source, offset in earlier.items():
        if offset is not None and later[source] is None:
            return f"source {source} has no offset any more"
        fell_from = step_back(offset or "", later[source] or "")
        if fell_from is not None:
            return f"source {source} falls from {fell_from}"
    return None
