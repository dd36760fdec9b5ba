"""Metrics in Prometheus' text exposition format (0.0.4), as node_exporter's textfile collector
reads it.

    # HELP name what it says       backslashes and line ends escaped
    # TYPE name gauge
    name{label="value"} 1.5        in a label also double quotes
    # EOF                          the end, by OpenMetrics; to the older format it is a comment
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from stateshift.documents.metrics import Family, Labels


def exposition(families: Iterable[Family]) -> str:
    """Return the metrics as Prometheus reads them."""
    lines = chain.from_iterable(map(_lines, families))
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} gauge"
    for sample in family.samples:
        yield f"{family.name}{_labels(sample.labels)} {_number(sample.value)}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = [f'{name}="{_quoted(value)}"' for name, value in labels]
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    # A path may hold bytes that are no text: Prometheus reads UTF-8 and nothing else.
    readable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return _escaped(readable).replace('"', r"\"")


def _number(value: float) -> str:
    """Return a number without more digits than it has."""
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)
