"""Blocks whose rows become others, one by one. Pure; loads Arrow."""

from __future__ import annotations

from stateshift.engines.spark.rewrite.evolution import Bytes
from stateshift.formats.blocks import Block, binary


def mapped(block: Block, keys: Bytes | None, values: Bytes | None) -> Block:
    """Return the same records with other keys, or other values; None for those that stay."""
    new_keys, new_values = block.keys, block.values
    if keys is not None:
        new_keys = binary([keys(key) for key in block.keys.to_pylist()])
    if values is not None:
        new_values = binary([values(value) for value in block.values.to_pylist()])
    return Block(new_keys, new_values, block.merges)
