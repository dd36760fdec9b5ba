"""A query that goes on where a change has taken itself back in the middle of a batch.

    live.keep_running(lambda: orders.mapInArrow(score, SCHEMA).writeStream.….start())

Spark cannot run one batch again: it ends the query. The next start runs the batch as a whole,
without the change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from stateshift.live.task import TAKEN_BACK

logger = logging.getLogger(__name__)


class Query(Protocol):
    """A query of Spark's."""

    def awaitTermination(self) -> object: ...


def keep_running(start: Callable[[], Query]) -> None:
    """Start a query and wait until it is stopped. It is started again if a change took itself back
    in the middle of a batch; any other error is raised. No change does that twice.
    """
    while True:
        try:
            start().awaitTermination()
            return
        except Exception as error:
            if TAKEN_BACK not in str(error):
                raise
            logger.warning("the query is started again: a change was taken back within a batch")
