"""The next model: it scores an order by another formula."""

import pyarrow
import pyarrow.compute


def score(orders: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Return the orders with a score: three times their amount."""
    scores = pyarrow.compute.multiply(orders["amount"], 3)
    return pyarrow.RecordBatch.from_arrays(
        [orders["id"], orders["amount"], scores], names=["id", "amount", "score"]
    )
