"""Metrics in Prometheus' text exposition format (0.0.4), as node_exporter's textfile collector
reads it.

    # HELP name what it says       backslashes and line ends escaped
    # TYPE name gauge
    name{label="value"} 1.5        in a label also double quotes
    # EOF                          the end, by OpenMetrics; to the older format it is a comment
"""

from __future__ import annotations

from collections.abc import Iterable

from stateshift.documents.metrics import Family


def exposition(families: Iterable[Family]) -> str:
    """Return the metrics as Prometheus reads them."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} gauge"]
        for sample in family.samples:
            pairs = ",".join(f'{name}="{_quoted(value)}"' for name, value in sample.labels)
            labels = f"{{{pairs}}}" if pairs else ""
            value = float(sample.value)  # without more digits than it has
            digits = str(int(value)) if value.is_integer() else repr(value)
            lines.append(f"{family.name}{labels} {digits}")
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    # A path may hold bytes that are no text: Prometheus reads UTF-8 and nothing else.
    readable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return _escaped(readable).replace('"', r"\"")
