"""Spark's daemon of Python workers, which has imported what they need before it forks them: a
worker a task and batch would do so again and again.
"""

import contextlib

with contextlib.suppress(ImportError):  # of what a version does not have
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
    import pyspark.sql.pandas.serializers
    import pyspark.sql.streaming.stateful_processor_api_client
    import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
