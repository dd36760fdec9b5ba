"""HDFS-backed state distributed anew by processes of one machine: some read the old shards, others
write the new ones, and the entries between are on the machine's disk.

    deal    some of the old shards ──▶ a file of the machine: their entries by new shard, in order
    gather  all those files ──▶ some of the new shards, written

An HDFS-backed shard has no order by which it could be cut: each process would have to read all of
it. DealtFile out, each is read once, and each written by one. The bytes are those that one process
writes, and the sums of the old shards are made where they are read.

The files are removed once all is written, or has failed; those of a lost process go with the
directory of all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from stateshift.engines.spark.layout import HDFS
from stateshift.engines.spark.rewrite.files import REWRITE_STATE
from stateshift.fleet.cutting import spans
from stateshift.fleet.orders import AskAll, Json, Order
from stateshift.plain import from_plain, to_plain
from stateshift.step import TransformShard
from stateshift.step.evidence import FilesWritten, OperatorFold
from stateshift.step.protocol import Evidence, FileEvidence
from stateshift.world import World

if TYPE_CHECKING:
    from stateshift.formats.sorting import Run, SortedPile


@dataclass(frozen=True, slots=True)
class DealtFile:
    """Entries that one process has dealt out, in a file whose last bytes are their index; and the
    sums of their shards.
    """

    file: str
    index_bytes: int
    read: dict[str, OperatorFold]


def can_be_dealt_out(step: TransformShard) -> bool:
    """Whether a step deals out the entries of several HDFS-backed shards among others."""
    if step.transform != REWRITE_STATE or step.options["provider"] != HDFS:
        return False
    if len(step.options["pieces"]) != 1:
        return False
    (piece,) = step.options["pieces"]
    return bool(piece.get("partitions")) and len(piece["sources"]) > 1


def redistribute_shards(step: TransformShard, count: int, ask_all: AskAll) -> Evidence:
    """Distribute a step's entries anew by as many orders of each kind."""
    (piece,) = step.options["pieces"]
    plain = to_plain(step)
    orders: list[Order] = []
    for span in spans(len(piece["sources"]), count):
        orders.append({"step": plain, "span": span})
    answers = ask_all("deal", orders)
    dealt = [from_plain(DealtFile, done) for done, _ in answers]
    try:
        orders = []
        for span in spans(len(piece["targets"]), count):
            orders.append({"step": plain, "span": span, "dealt": to_plain(dealt)})
        written = ask_all("gather", orders)
    finally:
        for each in dealt:
            with contextlib.suppress(OSError):
                os.unlink(each.file)
    files: list[FileEvidence] = []
    for done, _ in written:
        files += from_plain(tuple[FileEvidence, ...], done)
    read = dict(chain.from_iterable(each.read.items() for each in dealt))
    return FilesWritten(tuple(files), read, repeated=any(again for _, again in written))


def deal_here(order: Order, world: World) -> Json:
    """Deal out some shards, in a process."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import deal_out
    from stateshift.formats.sorting import SortedPiles, index_of, put_aside

    step: TransformShard = from_plain(TransformShard, order["step"])
    (piece,) = step.options["pieces"]
    inputs, places = step.opened(world), slice(*order["span"])
    handle, path = tempfile.mkstemp()
    try:
        with open(handle, "w+b") as file:
            piles = SortedPiles(lambda: file)
            read = deal_out(step.options, inputs, places, piles, world.check_interrupted)
            piles.put_aside()
            index = index_of({target: piles.pile(target) for target in piece["targets"]})
            put_aside(file, file.seek(0, os.SEEK_END), index)
    except BaseException:
        os.unlink(path)
        raise
    return DealtFile(path, len(index), step.sums_of(read))


def gather_here(order: Order, world: World) -> Json:
    """Write some of the new shards, in a process."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import rewrite_dealt

    step: TransformShard = from_plain(TransformShard, order["step"])
    (piece,) = step.options["pieces"]
    places = slice(*order["span"])
    with ExitStack() as opened:
        dealt = from_plain(tuple[DealtFile, ...], order["dealt"])
        piles = _piles(dealt, piece["targets"][places], opened)
        contents = rewrite_dealt(step.options, step.opened(world), piles)
        return step.written(world, list(zip(step.outputs[places], contents, strict=True)))


def _piles(
    dealt: Sequence[DealtFile], targets: Sequence[int], files: ExitStack
) -> dict[int, SortedPile]:
    """Return the piles that all have dealt out for some targets."""
    # Loads Arrow.
    from stateshift.formats.sorting import SortedPile, open_piles

    runs: dict[int, list[Run]] = {target: [] for target in targets}
    for each in dealt:
        file = files.enter_context(open(each.file, "rb"))  # noqa: SIM115 - the stack closes it
        file.seek(-each.index_bytes, os.SEEK_END)
        piles = open_piles(file.read(), file)
        for target in targets:
            runs[target] += piles[target].runs
    return {target: SortedPile(tuple(own)) for target, own in runs.items()}
