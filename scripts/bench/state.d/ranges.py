"""How even the key ranges are into which a RocksDB shard is cut for several processes.

    python ranges.py CHECKPOINT [--parts 4]

Reads the first shard of a checkpoint whole, then each of its parts alone, all in this process, and
prints entries and processor seconds of each: the slowest is what so many processes would wait for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.rocksdb_version import SHARD_PART, encode_part, parts_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.storage.opening import open_storage
from stateshift.storage.protocol import Storage
from stateshift.survey import ShardFiles


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--parts", type=int, default=4)
    options = parser.parse_args()
    storage = open_storage(str(options.checkpoint.resolve()))
    image = survey(storage).images[0]
    shard = image.shards[0]
    settings = dict(image.settings)
    read(storage, shard, settings)  # from the disk, and what is imported
    entries, whole = read(storage, shard, settings)
    print("| part | entries | cpu s | of the whole |")
    print("|---|---|---|---|")
    print(f"| whole | {entries:,} | {whole:.2f} | 1.00 |")
    parts = parts_of(storage.chunks, shard, options.parts)
    spent = []
    for number, part in enumerate(parts):
        entries, seconds = read(storage, shard, {**settings, SHARD_PART: encode_part(part)})
        spent.append(seconds)
        print(f"| {number} | {entries:,} | {seconds:.2f} | {seconds / whole:.2f} |")
    mean = sum(spent) / len(spent)
    print()
    print(f"* slowest ÷ mean: {max(spent) / mean:.2f} (goal: 1.1)")
    print(f"* all parts ÷ whole: {sum(spent) / whole:.2f}")
    print(f"* whole ÷ slowest: {whole / max(spent):.2f} by {len(parts)} processes")


def read(storage: Storage, shard: ShardFiles, settings: Mapping[str, str]) -> tuple[int, float]:
    """Return how many entries there are, and the processor seconds that it took to read them."""
    began, entries = time.process_time(), 0
    for _, block in fold_shard(storage.chunks, shard, settings):
        entries += len(block)
    return entries, time.process_time() - began


if __name__ == "__main__":
    main()
