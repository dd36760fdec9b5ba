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

from collections.abc import Mapping

from stateshift.engines.spark.small_files import Reading

# How many files each batch of the source has, by one log.
Batches = Mapping[int, int]


def refuse_cut(reading: Reading, logs: Mapping[str, Batches]) -> None:
    """Refuse logs of one source that lack entries, or hold those of others. `logs` are by their
    paths in the image.
    """
    compactions = {_number(path): path for path in logs if path.endswith(".compact")}
    newest = max(compactions, default=-1)
    for path, batches in logs.items():
        if path.endswith(".compact") or _number(path) <= newest:
            continue  # a restart does not read it
        fault = _fault_of_one(_number(path), batches)
        if fault is not None:
            reading.refuse(
                f"{reading.path(path)} {fault}: Spark starts, and reads files twice", path
            )
    if newest >= 0:
        path = compactions[newest]
        fault = _fault_of_all(newest, logs[path], [logs[other] for other in logs if other != path])
        if fault is not None:
            reading.refuse(
                f"{reading.path(path)} {fault}: Spark starts, and reads files twice", path
            )


def _fault_of_one(number: int, batches: Batches) -> str | None:
    if not batches:
        return "names no file, and each log of a batch names one"
    other = next((batch for batch in batches if batch != number), None)
    return (
        None if other is None else f"names files of batch {other}, and is the log of batch {number}"
    )


def _fault_of_all(newest: int, batches: Batches, others: list[Batches]) -> str | None:
    """What a compaction lacks, by what its batches have to be and by what other logs say of
    them.
    """
    lacking = next((batch for batch in range(newest + 1) if batch not in batches), None)
    if lacking is not None:
        return f"names no file of batch {lacking}, and is of all batches up to {newest}"
    foreign = next((batch for batch in batches if not 0 <= batch <= newest), None)
    if foreign is not None:
        return f"names files of batch {foreign}, and is of the batches up to {newest}"
    for other in others:
        for batch, count in other.items():
            if 0 <= batch <= newest and count > batches[batch]:
                return f"names {batches[batch]} of the {count} files of batch {batch}"
    return None


def _number(path: str) -> int:
    stem = path.rpartition("/")[2].removesuffix(".compact")
    return int(stem) if stem.isascii() and stem.isdecimal() and len(stem) <= 19 else -1
