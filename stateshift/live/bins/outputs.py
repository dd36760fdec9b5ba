"""Where the rows of a worker go: a table a commit, in the order of commits.

    files("s3://lake/visits")   Parquet, one file a commit; a name says the worker and the commit
    any function f(delivery)    which has to know a delivery that it has had already

After a crash the last deliveries come again, each with the rows and the number that it had: a sink
that keeps the number beside the rows takes each of them once. `delivery.worker` and
`delivery.number` are what Delta calls txnAppId and txnVersion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.errors import AlreadyThere, PlanError
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
        content = sink.getvalue().to_pybytes()
        name = f"{delivery.operator}-{delivery.worker}-{delivery.number:09d}.parquet"
        storage = open_patiently(location)
        try:
            storage.create(name, content)
        except AlreadyThere:
            if not _has_same_rows(storage.read(name), content):
                raise _other_rows(f"{storage.location}/{name}") from None

    return write


def _has_same_rows(one: bytes, other: bytes) -> bool:
    """Whether two files of Parquet have the same rows: a delivery that comes again."""
    import pyarrow
    import pyarrow.parquet

    if one == other:
        return True
    try:
        here, there = (
            pyarrow.parquet.read_table(pyarrow.BufferReader(content)) for content in (one, other)
        )
    except pyarrow.ArrowException:
        return False
    if here.equals(there):
        return True
    return repr(here.to_pylist()) == repr(there.to_pylist())  # for Arrow no NaN is like another


def _other_rows(path: str) -> PlanError:
    return PlanError(
        f"{path} is there already, with other rows",
        hint="give each group, and each of its operators, a location of its own: live.files(…)",
    )
