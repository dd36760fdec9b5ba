"""Whether the log of a file source still names every file that was read. A cut log starts a job
that reads files twice.

    sources/<i>/<n>          the files of batch n of the source, one at least; every entry says
                             "batchId":n
    sources/<i>/<n>.compact  the files of all batches from 0 to n

Spark reads the newest compaction and what comes after it, and counts nothing
(FileStreamSource.metadataLog.restore, CompactibleFileStreamLog.allFiles; seen with 4.3: it starts,
and reads again what was cut off). Logs from before the newest compaction lie there for a while, and
say how many files each batch had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import filterfalse

from stateshift.engines.spark.layout import number_of_log
from stateshift.engines.spark.small_files import Reading

# How many files each batch of the source has, by one log.
Batches = Mapping[int, int]


def refuse_cut(reading: Reading, logs: Mapping[str, Batches]) -> None:
    """Refuse logs of one source that lack entries, or hold those of others. `logs` are by their
    paths in the image.
    """
    compactions = {number_of_log(path): path for path in filter(_is_compaction, logs)}
    newest = max(compactions, default=-1)
    _refuse_cut_batches(reading, logs, newest)
    if newest >= 0:
        _refuse_cut_compaction(reading, logs, compactions[newest])


def _is_compaction(path: str) -> bool:
    return path.endswith(".compact")


def _refuse_cut_batches(reading: Reading, logs: Mapping[str, Batches], compacted: int) -> None:
    """Refuse logs of one batch each, as far as the newest compaction does not stand for them: a
    restart does not read the others.
    """
    for path in filterfalse(_is_compaction, logs):
        number = number_of_log(path)
        if number > compacted:
            _refuse(reading, path, _fault_of_batch(number, logs[path]))


def _refuse_cut_compaction(reading: Reading, logs: Mapping[str, Batches], path: str) -> None:
    others = [logs[other] for other in logs if other != path]
    _refuse(reading, path, _fault_of_compaction(number_of_log(path), logs[path], others))


def _refuse(reading: Reading, path: str, fault: str | None) -> None:
    """Refuse a log that has a fault."""
    if fault is not None:
        reading.refuse(f"{reading.path(path)} {fault}: Spark starts, and reads files twice", path)


def _fault_of_batch(number: int, batches: Batches) -> str | None:
    """Return what is wrong with the log of one batch."""
    if not batches:
        return "names no file, and each log of a batch names one"
    foreign = next((batch for batch in batches if batch != number), None)
    if foreign is None:
        return None
    return f"names files of batch {foreign}, and is the log of batch {number}"


def _fault_of_compaction(newest: int, batches: Batches, others: list[Batches]) -> str | None:
    """Return what a compaction lacks, by what its batches have to be and by what other logs say of
    them.
    """
    expected = range(newest + 1)
    lacking = next(filterfalse(batches.__contains__, expected), None)
    if lacking is not None:
        return f"names no file of batch {lacking}, and is of all batches up to {newest}"
    foreign = next(filterfalse(expected.__contains__, batches), None)
    if foreign is not None:
        return f"names files of batch {foreign}, and is of the batches up to {newest}"
    return next(_cuts(batches, others), None)


def _cuts(batches: Batches, others: Iterable[Batches]) -> Iterator[str]:
    """Yield what the compaction lacks of a batch that another log names more files of."""
    for other in others:
        for cut in _cut_batches(batches, other):
            yield f"names {batches[cut]} of the {other[cut]} files of batch {cut}"


def _cut_batches(batches: Batches, other: Batches) -> Iterator[int]:
    """Yield the batches of which another log names more files than a compaction does."""
    for batch, count in other.items():
        if count > batches.get(batch, count):
            yield batch
