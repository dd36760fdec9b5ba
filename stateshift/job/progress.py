"""The last batches of a job's queries, in a file beside each checkpoint, for `stateshift advise`.

Nothing of it may disturb the job. A file is written at most every EVERY_SECONDS, whole or not at
all; where it cannot be, that is logged once and tried again later.

Only a query whose trigger goes on, batch after batch, tells by them how much it could do. One that
ends when all is read (available now, once) is busy until then, however many cores it has.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

from stateshift.formats import marks
from stateshift.formats.spark.progress import (
    BATCHES_MAX,
    QueryProgress,
    batch_of_document,
    encode_progress,
)
from stateshift.job import files
from stateshift.job.files import Java
from stateshift.job.places import read_setting

EVERY_SECONDS = 10.0
# The trigger of a query, also of one that was given none. Source: Spark 3.3 to 4.3, Triggers.scala.
GOES_ON = "ProcessingTimeTrigger"
OFF = ("false", "0", "no", "off")

_log = logging.getLogger(__name__)

# Spark's StreamingExecution of a query. py4j's objects have no types here.
Execution: TypeAlias = Java
Write: TypeAlias = Callable[[str, str, bytes], None]


def keeps_progress() -> bool:
    """Whether queries keep their progress: not if STATESHIFT_PROGRESS is false."""
    word = read_setting("PROGRESS") or ""
    return word.strip().lower() not in OFF


class ProgressFile:
    """The file of one query. `execution` is Spark's StreamExecution behind it."""

    def __init__(self, execution: Execution, write: Write = files.write) -> None:
        self._execution, self._write = execution, write
        self._progress: QueryProgress | None = None
        self._next_time = time.monotonic() + EVERY_SECONDS
        self._has_failed = False

    def keep(self) -> bool:
        """Write what is new, if the time has come; return whether it had. Raises nothing."""
        if time.monotonic() < self._next_time:
            return False
        self.keep_now()
        self._next_time = time.monotonic() + EVERY_SECONDS
        return True

    def keep_now(self) -> None:
        """Write what is new. Raises nothing."""
        try:
            self._keep_new()
        except Exception as error:  # the job comes first, whatever goes wrong here
            if not self._has_failed:
                _log.warning("the query's progress is not kept for `stateshift advise`: %s", error)
            self._has_failed = True

    def _keep_new(self) -> None:
        if not str(self._execution.trigger().toString()).startswith(GOES_ON):
            return
        before = progress = self._progress
        # Spark keeps a hundred, or as many as its conf says; each that is asked for takes two
        # calls into the JVM. The oldest comes first.
        for document in reversed(list(islice(self._newest_first(), BATCHES_MAX))):
            batch = batch_of_document(document)
            if batch is None:
                continue
            if progress is None:
                progress = QueryProgress(str(document["runId"]), batch.started)
            progress = progress.with_batch(batch)
        if progress is None or progress is before:
            return
        place = str(self._execution.resolvedCheckpointRoot())
        complete = replace(progress, cores=self._count_cores())
        self._write(place, marks.PROGRESS, encode_progress(complete))
        self._progress = progress

    def _newest_first(self) -> Iterator[dict[str, Any]]:
        """Yield the progress documents of batches after the last known."""
        known = self._progress.batches[-1].id if self._progress is not None else -1
        documents = self._execution.recentProgress()
        for number in reversed(range(len(documents))):
            document = json.loads(str(documents[number].json()))
            if int(document["batchId"]) <= known:
                return
            yield document

    def _count_cores(self) -> int | None:
        """Return the cores of the executors that are at work, as the driver counts them."""
        try:
            executors = self._execution.sparkSession().sparkContext().statusStore()
            listed = executors.executorList(True)
            cores = [int(listed.apply(number).totalCores()) for number in range(listed.size())]
        except Exception as error:  # an inner part of Spark, which may be another one tomorrow
            _log.debug("Spark does not tell its cores: %s", error)
            return None
        return sum(cores) or None
