"""The dataflow of a spec: a document in it, or a file that it names.

    "dataflow": {"operators": [...], "edges": [...]}    complaints at /dataflow/edges/0
    "dataflow": "flows/payments.json"                   complaints at flows/payments.json: /edges/0

Files that the dataflow names lie beside it: plans of jobs. What a spec holds is `settled`: a run
that goes on reads the same value from its saved spec.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from stateshift.errors import Complaint, SpecError
from stateshift.specification.dataflow.document import Opened
from stateshift.specification.dataflow.operators import Dataflow
from stateshift.specification.dataflow.parse import dataflow_of, parse_dataflow
from stateshift.specification.dataflow.write import settled


def read_dataflow(written: Mapping[str, object] | str, opened: Opened | None) -> Dataflow:
    """Return the dataflow that a spec writes or names. `opened` returns the text of a file by the
    name that the spec has for it; None where the spec lies beside no file.
    """
    if isinstance(written, str):
        return settled(_read_file(written, opened))
    with _complaints_below("/dataflow"):
        return settled(dataflow_of(written, opened))


def _read_file(name: str, opened: Opened | None) -> Dataflow:
    if opened is None:
        raise _unreadable(name, "there is no place beside which it could be")
    folder = os.path.dirname(name)
    try:
        with _complaints_below(f"{name}: "):
            return parse_dataflow(opened(name), lambda beside: opened(os.path.join(folder, beside)))
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(name, getattr(error, "strerror", None) or str(error)) from error


def _unreadable(name: str, reason: str) -> SpecError:
    fact = f"{name!r} cannot be read: {reason}"
    return SpecError((Complaint("/dataflow", fact, name, "a file beside the spec"),))


@contextmanager
def _complaints_below(place: str) -> Iterator[None]:
    """Say where the document stands of which a SpecError complains."""
    try:
        yield
    except SpecError as error:
        below = tuple(replace(each, pointer=f"{place}{each.pointer}") for each in error.complaints)
        raise SpecError(below, hint=error.hint) from error
