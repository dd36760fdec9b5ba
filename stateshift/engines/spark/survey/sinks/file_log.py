"""Which batches a file sink has: the newest number in its _spark_metadata. The log names no
query.
"""

from __future__ import annotations

from stateshift.engines.spark.layout import SINK_LOG, number_of_log
from stateshift.errors import FormatError, MissingFile
from stateshift.formats.spark.source_log import decode_source_log
from stateshift.storage.protocol import Storage
from stateshift.survey import SinkLog


def read_file_sink_log(storage: Storage) -> dict[str, SinkLog]:
    """Return the newest batch of the sink, whichever query wrote it."""
    numbered = {}
    for file in storage.list(SINK_LOG):
        number = number_of_log(file.path)
        if number >= 0 and file.path.count("/") == 1:
            numbered[number] = file.path
    if not numbered:
        raise MissingFile(
            f"{storage.location} has no {SINK_LOG}: no file sink of Spark has written there"
        )
    last = max(numbered)
    path = numbered[last]
    # The first lines show whether the file is such a log.
    try:
        next(iter(decode_source_log(storage.chunks(path))), None)
    except FormatError as error:
        raise error.at(path) from error
    return {"": SinkLog(last)}
