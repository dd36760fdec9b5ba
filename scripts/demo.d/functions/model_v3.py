"""A model with a fault: it passes every check on no rows, and fails on the first real ones."""

import pyarrow
import pyarrow.compute


def score(orders: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Divide by what is 0 somewhere."""
    scores = pyarrow.compute.divide(
        orders["amount"], pyarrow.compute.subtract(orders["id"], orders["id"])
    )
    return pyarrow.RecordBatch.from_arrays(
        [orders["id"], orders["amount"], scores], names=["id", "amount", "score"]
    )
