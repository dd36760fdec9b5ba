"""A strict reader of Prometheus' text exposition format (0.0.4): what it does not know is an error.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Labels = frozenset[tuple[str, str]]

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\]|\\\\|\\n)*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram|summary|untyped)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (-?[0-9][0-9.e+-]*|NaN|[+-]Inf)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\\\|\\"|\\n)*)"(,|$)')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass
class Metric:
    """A metric as it was read."""

    help: str
    type: str = ""
    samples: dict[Labels, float] = field(default_factory=dict)


def read(content: bytes) -> dict[str, Metric]:
    """Return the metrics; raise AssertionError where the text is not as the format says. Its end is
    marked as OpenMetrics marks it, which is a comment here.
    """
    text = content.decode("utf-8")
    assert text.endswith("# EOF\n"), "OpenMetrics would take it for a half of a file"
    text = text.removesuffix("# EOF\n")
    assert text == "" or text.endswith("\n"), "the last line has no end"
    metrics: dict[str, Metric] = {}
    current = ""
    for line in text.split("\n")[:-1]:
        if match := _HELP.fullmatch(line):
            current = match[1]
            assert current not in metrics, f"{current} is described twice"
            metrics[current] = Metric(_plain(match[2]))
        elif match := _TYPE.fullmatch(line):
            assert match[1] == current, f"the type of {match[1]} is behind that of {current}"
            metric = metrics[current]
            assert not metric.type and not metric.samples, f"{current} has two types"
            metric.type = match[2]
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, f"no line of the format: {line!r}"
            assert match[1] == current and metrics[current].type, f"{match[1]} stands elsewhere"
            labels = _labels(match[2] or "")
            assert labels not in metrics[current].samples, f"twice: {line!r}"
            metrics[current].samples[labels] = float(match[3])
    return metrics


def _labels(text: str) -> Labels:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        assert match, f"no label: {text[position:]!r}"
        assert match[1] not in labels, f"{match[1]} stands twice"
        labels[match[1]] = _plain(match[2])
        position = match.end()
    return frozenset(labels.items())


def _plain(text: str) -> str:
    return re.sub(r"\\[\\\"n]", lambda escape: _ESCAPES[escape[0]], text)
