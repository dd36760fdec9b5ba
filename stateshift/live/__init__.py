"""Functions that change while jobs run, and the protocol of it, `protocol`.

    from stateshift import live

    score = live.chain("score", "s3://live/orders", "id long, score double", add_score)
    orders.mapInArrow(score, "id long, score double")

    stateshift live replace s3://live/orders score model_v2:score

A job wraps its functions in a chain, one line each; `stateshift live` then replaces, introduces,
removes and reverts functions of running jobs. Importing this costs next to nothing.
"""

from __future__ import annotations

import importlib

_WHERE = {
    "BufferSource": "stateshift.live.buffer.source",
    "Chain": "stateshift.live.task",
    "Controller": "stateshift.live.bins.controller",
    "Edit": "stateshift.live.acts",
    "Folded": "stateshift.live.protocol.applying",
    "Group": "stateshift.live.member",
    "InOrder": "stateshift.live.bins.times",
    "Manner": "stateshift.live.acts",
    "MoveManner": "stateshift.live.bins.move_request:Manner",
    "Watermark": "stateshift.live.bins.times",
    "Worker": "stateshift.live.bins.worker",
    "chain": "stateshift.live.task",
    "change": "stateshift.live.acts",
    "files": "stateshift.live.bins.worker",
    "group": "stateshift.live.task",
    "keep_running": "stateshift.live.task",
    "operator": "stateshift.live.bins.operators",
    "stateful": "stateshift.live.state",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, name_there = _WHERE[name].partition(":")
    value = getattr(importlib.import_module(module), name_there or name)
    globals()[name] = value  # functions of users say live.Folded for each row
    return value
