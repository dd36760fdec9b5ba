"""A rule that is introduced while the job runs."""

import pyarrow
import pyarrow.compute


def only_paid(orders: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Let four of five orders pass: those that are paid."""
    remainder = pyarrow.compute.subtract(
        orders["id"],
        pyarrow.compute.multiply(pyarrow.compute.divide(orders["id"], 5), 5),
    )
    return orders.filter(pyarrow.compute.not_equal(remainder, 0))
