"""Where the rows of a worker go: a table a commit, in the order of commits.

    files("s3://lake/visits")   Parquet, one file a commit; a name says the worker and the commit
    any function f(delivery)    which has to know a delivery that it has had already

After a crash the last deliveries come again, each with the rows and the number that it had: a sink
that keeps the number beside the rows takes each of them once. `delivery.worker` and
`delivery.number` are what Delta calls txnAppId and txnVersion.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.errors import AlreadyThere
from stateshift.storage.opening import open_patiently

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, slots=True)
class Delivery:
    """The rows of one commit."""

    operator: str
    worker: str
    number: int
    table: pyarrow.Table


Output = Callable[[Delivery], None]


def files(location: str) -> Output:
    """Return an output that writes Parquet files, one for each commit that puts out rows."""

    def write(delivery: Delivery) -> None:
        import pyarrow
        import pyarrow.parquet

        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(delivery.table, sink)
        name = f"{delivery.operator}-{delivery.worker}-{delivery.number:09d}.parquet"
        with contextlib.suppress(AlreadyThere):
            open_patiently(location).create(name, sink.getvalue().to_pybytes())

    return write
