"""What dropDuplicates keeps beside a key, whatever its schema says. Pure.

    value   one null, always: 8 bytes of null bits of which the first is set, and an empty slot
    schema  Spark 3.3.1 and later: one void column.   Earlier: every column of the operator's input
                                                      (SPARK-39650)

The schema is written once, with the first batch, and no later Spark holds it against the rows. So a
job that began before 3.3.1 keeps the wrong one for good. Where it has two columns or more, no row
of it is as short as the one null. A schema of a single column is as good as the right one, since
its row is the same.

Source: Spark, StreamingDeduplicateExec (EMPTY_ROW), StateSchemaCompatibilityChecker.
"""

from __future__ import annotations

from stateshift.formats.spark.types import Atomic, StructType

ONE_NULL = (1).to_bytes(8, "little") + bytes(8)
VALUE = StructType(("__dummy__",), (Atomic("void"),))


def lists_the_input(key: StructType, value: StructType) -> bool:
    """Whether a value of these columns may stand for the input of dropDuplicates: the key's
    columns are among it.
    """
    if len(value.types) < 2:
        return False
    columns = set(zip(value.names, value.types, strict=True))
    return columns.issuperset(zip(key.names, key.types, strict=True))
