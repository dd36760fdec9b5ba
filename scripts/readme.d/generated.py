"""The parts of pages that are made from the code, between two comments:

<!-- generated: NAME -->
<!-- end of NAME -->
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stateshift.documents.metrics import LABELS, METRICS
from stateshift.specification import changes, options, rebalancing
from stateshift.specification.job_keys import (
    DATA,
    JOB,
    KAFKA,
    OPERATOR,
    SINK,
    SOURCE,
    STANDBY,
    STOP,
    SUBMIT,
    VERIFY,
)
from stateshift.specification.key import Key, Keys
from stateshift.specification.model import WAIVERS
from stateshift.specification.options import Expected, Option
from stateshift.specification.spec_keys import CLUSTER, HASH, ON, RECEIVER, SPEC, THROTTLE
from stateshift.specification.write import plain_value

_SECTION = re.compile(
    r"(<!-- generated: (?P<name>[a-z-]+) -->\n)(.*?)(<!-- end of (?P=name) -->)", re.DOTALL
)

# What a value of a kind is called on the page; a kind that is not here is called by its name.
_VALUES = {
    "texts": "list of texts",
    "locations": "list of locations",
    "folders": "list of paths",
    "count": "whole number ≥ 1",
    "batch": "whole number ≥ 0",
    "integer": "whole number",
    "boolean": "true or false",
    "environment": "map of texts",
    "names": "map of texts",
    "types": "map of texts",
    "name": "text",
    "directory": "text",
    "json": "any JSON",
    "port": "port",
    "connection": "host:port",
    "page": "URL",
    "until": "`remaining < 5s`",
    "cutover": "`ready`, `manual`, `never` or hours",
    "strategy": "`fluid`, `all-at-once`, `batched(k)`, `optimised`",
    "version": "`1`",
    "values": "list of values",
    "type": "Spark type",
    "operators": "list or map",
    "columns": "list of [columns](#columns-of-evolve)",
    "submit": "[submit](#submit)",
    "stop": "[stop](#stop)",
    "data": "list of [data](#data)",
    "kafka": "[kafka](#kafka)",
    "sources": "list of [sources](#sources)",
    "sink": "[sink](#sink)",
    "standby": "[standby](#standby)",
    "on": "[on](#on)",
    "receiver": "list of words, or [receiver](#receiver)",
    "words": "list of words",
    "transform": "list of [changes](#changes-transform)",
    "jobs": "list or map of [jobs](#jobs)",
    "clusters": "list or map of [clusters](#clusters)",
    "waves": "list of lists of names",
    "dataflow": "file, or dataflow",
    "throttle": "[throttle](#throttle)",
    "verify": "text, or [verify](#verify)",
    "rebalance": "[rebalance](#rebalance)",
    "rebalanced_clusters": "map of [clusters](#clusters-of-rebalance)",
    "capacity": "number, or [capacity](#capacity)",
    "together": "list of lists of names",
    "excluded": "list of periods",
    "amount": "number ≥ 0",
    "share": "number up to 1",
    "uid_hash": "text, or [constants](#constants-of-uid_hash)",
}


def renewed(page: str) -> str:
    """Return the page with its generated parts made anew."""

    def fresh(section: re.Match[str]) -> str:
        return f"{section[1]}\n{SECTIONS[section['name']]()}\n{section[4]}"

    return _SECTION.sub(fresh, page)


def spec_keys() -> str:
    """Return every key of a spec, a table for each object."""
    sections = [
        ("## The spec", _keys(SPEC)),
        ("## Jobs", _keys(JOB)),
        ("## Clusters", _keys(CLUSTER)),
        ("## Submit", _keys(SUBMIT)),
        ("## Stop", _keys(STOP)),
        ("## Data", _keys(DATA)),
        ("## Kafka", _keys(KAFKA)),
        ("## Sources", _keys(SOURCE)),
        ("## Sink", _keys(SINK)),
        ("## Standby", _keys(STANDBY)),
        ("## Verify", _keys(VERIFY)),
        ("## On", _keys(ON)),
        ("## Receiver", _keys(RECEIVER)),
        ("## Throttle", _keys(THROTTLE)),
        ("## Rebalance", _keys(rebalancing.REBALANCE)),
        ("### Clusters of rebalance", _keys(rebalancing.REBALANCED_CLUSTER)),
        ("### Capacity", _keys(rebalancing.CAPACITY)),
        ("## Operators", _keys(OPERATOR)),
        ("## Constants of uid_hash", _keys(HASH)),
        ("## Changes (`transform`)", _changes()),
        ("### Columns of evolve", _keys(changes.COLUMN)),
    ]
    return "\n".join(f"{heading}\n\n{table}" for heading, table in sections)


def _keys(table: Keys) -> str:
    return _key_table(table.all)


def _key_table(keys: Iterable[Key]) -> str:
    rows = [(f"`{key.name}`", _takes(key), _default(key), _about(key)) for key in keys]
    return _table(("key", "takes", "default", "says"), rows)


def _changes() -> str:
    return "\n".join(
        f"### {kind}\n\n{_kind(table).about}\n\n{_key_table(table.all[1:])}"
        for kind, table in changes.TRANSFORMS.items()
    )


def _kind(table: Keys) -> Key:
    """Return the key that says which change it is."""
    return table["kind"]


def _takes(key: Key) -> str:
    if key.kind.name == "choice":
        return ", ".join(f"`{choice}`" for choice in key.choices)
    return _VALUES.get(key.kind.name, key.kind.name)


def _default(key: Key) -> str:
    value: Any = key.default
    if key.implied or value is dataclasses.MISSING or value is None:
        return ""
    plain = plain_value(value)
    if plain in ("", [], {}) or isinstance(plain, dict):
        return ""
    return f"`{str(plain).lower() if isinstance(plain, bool) else plain}`"


def _about(key: Key) -> str:
    about = key.about
    if key.engine:
        about += f" ({key.engine.capitalize()})"
    if key.also:
        about += f" Also: {', '.join(f'`{name}`' for name in key.also)}."
    return about


def waivers() -> str:
    """Return every finding that can be waived."""
    rows = [(f"`{name}`", about) for name, about in WAIVERS.items()]
    return _table(("waiver", "you take responsibility for this"), rows)


def cluster_options() -> str:
    """Return the options of each kind of cluster."""
    parts: list[str] = []
    for kind in options.CLUSTER_KINDS:
        parts.append(f"### Options of {kind}\n")
        taken = options.options_of(kind)
        tables = (
            ("The cluster takes", taken.cluster, options.CLUSTER_OPTIONS),
            ("A job's `submit` takes", taken.submit, options.SUBMIT_OPTIONS),
            ("A job's `stop` takes", taken.stop, options.STOP_OPTIONS),
        )
        for heading, known, described in tables:
            if known:
                rows = list(_options(kind, known, described))
                parts.append(f"{heading}:\n\n{_table(('option', 'takes', 'says'), rows)}")
    return "\n".join(parts)


def _options(
    kind: str, known: Mapping[str, Expected], described: Iterable[Option]
) -> Iterator[tuple[str, str, str]]:
    for option in described:
        if kind not in option.kinds or not option.about:  # a key of the spec says it
            continue
        expected = known[option.name]
        needed = " (needed)" if expected.needed else ""
        yield f"`{option.name}`{needed}", expected.words, option.about


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [_row(head), f"|{'---|' * len(head)}"]
    lines += [_row(row) for row in rows]
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def metrics() -> str:
    """Return every metric that `stateshift metrics` prints."""
    rows = [(f"`{name}`", _labels_of(name), about) for name, about in METRICS.items()]
    return _table(("metric", "labels", "says"), rows)


def _labels_of(metric: str) -> str:
    return ", ".join(f"`{name}`" for name in LABELS[metric])


SECTIONS: Mapping[str, Callable[[], str]] = {
    "spec-keys": spec_keys,
    "waivers": waivers,
    "cluster-options": cluster_options,
    "metrics": metrics,
}
