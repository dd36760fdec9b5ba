"""Will this code start from that state?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stateshift.api.images import opening_of, place_of
from stateshift.api.values import CodeCheck

if TYPE_CHECKING:
    from stateshift.api.images import Place
    from stateshift.migration import Adapters


def check(
    location: Place,
    file: str,
    *,
    arguments: Sequence[str] = (),
    query: str | None = None,
    before: str | None = None,
    python: str | None = None,
    packages: Sequence[str] = (),
    stub: bool = False,
    batch_writes: bool = False,
    timeout_seconds: float = 300.0,
    waive: Sequence[str] = (),
    adapters: Adapters | None = None,
) -> CodeCheck:
    """Run a file in a local PySpark, and hold its query against a checkpoint. No query starts.

    Args:
        location: the checkpoint of one query.
        file: the Python file that starts the query.
        arguments: those of the file.
        query: the query's name, if the file starts several.
        before: the code that wrote the state: its expressions are compared, too.
        python: the interpreter whose PySpark runs the file; None for this one.
        packages: further jars, as Maven's coordinates.
        stub: reach no source.
        batch_writes: let the file write tables that are no streams.
        timeout_seconds: how long the file may take.
        waive: rules whose hazards are accepted.
        adapters: how storages are opened, where a test has its own.

    Returns:
        The verdict; `to_dict()` is the document of `stateshift check --json`.

    Raises:
        PlanError: the file fails, starts no such query, or does not end in time.
        MissingFile: there is no checkpoint.
        FormatError: bytes are not what their format says.
        StorageError: the location cannot be read.
    """
    from stateshift.check import Code
    from stateshift.check import check as check_code

    code = Code(
        file=file,
        arguments=tuple(arguments),
        before=before,
        python=python,
        packages=tuple(packages),
        stub=stub,
        batch_writes=batch_writes,
        timeout_seconds=timeout_seconds,
    )
    opening = opening_of(adapters)
    return CodeCheck(check_code(place_of(location), code, query, tuple(waive), opening))
