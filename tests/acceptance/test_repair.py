"""Damaged checkpoints of a real Spark, repaired: the job goes on from the new image, and puts out
what it would have put out from the batch that was told on.

STATESHIFT_REPAIRS is the number of seeds of the slow test.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.acceptance.matrix.damage import BASES, LAST, copied
from tests.acceptance.matrix.damaging import files_of, write_files
from tests.acceptance.matrix.events import ALL, BEFORE, feed
from tests.acceptance.matrix.ground import Ground, Order, later, rows_of, run_spark
from tests.acceptance.matrix.kinds import NEWEST, Base
from tests.acceptance.support import stateshift
from tests.damage.images import spark_image
from tests.damage.repairs import damaged_often

pytestmark = pytest.mark.spark

UPDATED = ("pandas", "timed")
SEEDS = int(os.environ.get("STATESHIFT_REPAIRS", "20"))


@dataclass(frozen=True)
class Going:
    """A job that goes on from what was repaired, the batch that it goes on from, and the newest
    that has offsets.
    """

    name: str
    base: Base
    order: Order
    batch: int
    planned: int
    unseen: bool = False  # no checksum covers all of the damage


def run(folder: Path, orders: Sequence[Order]) -> None:
    wrong = run_spark(sys.executable, folder / "spark", orders)
    assert wrong == {order.name: None for order in orders}


def begun(ground: Ground, bases: Sequence[Base]) -> None:
    """Run the jobs to their third batch, and give them the rest of their input."""
    feed(ground.folder, 0, BEFORE)
    run(ground.folder, [ground.first_run(base, "whole") for base in bases])
    feed(ground.folder, BEFORE, ALL)
    for base in bases:
        ground.carry_on_untouched(base)


def whole(ground: Ground, base: Base, location: Path) -> dict[str, bytes]:
    """The files of a job's third batch, as if it had run there."""
    source = ground.place(base.name, "whole") / "checkpoint"
    return copied(files_of(source), str(source), str(location))


def repaired(
    ground: Ground, base: Base, name: str, files: Mapping[str, bytes], also: bool
) -> Going | str:
    """Repair what is in the folder of that name; return why not, where it is refused."""
    place = ground.folder / name
    write_files(place / "checkpoint", files)
    words = ["repair", place / "checkpoint", "--to", place / "new", "--yes"]
    if also:
        write_files(place / "backup", whole(ground, base, place / "checkpoint"))
        words += ["--also", place / "backup"]
    waived = ("--waive", "repeated-batches", "--workdir", place / "run")
    done = stateshift(*words, *waived, cwd=ground.folder, code=None)
    assert files_of(place / "checkpoint") == dict(files)
    if done.code != 0:
        assert done.code == 4 and "hint: " in done.err, done.err
        return done.err
    verdict = stateshift("verify", place / "new", "--deep", "--json", cwd=ground.folder).json
    untouched = ground.untouched(base)
    order = replace(untouched, name=name, checkpoint=place / "new", output=place / "output")
    planned = max(int(path.name) for path in (place / "new" / "offsets").glob("[0-9]*"))
    return Going(name, base, replace(order, conf=later(base.conf)), verdict["epoch"], planned)


def lost(ground: Ground, one: Going) -> tuple[Counter[str], Counter[str]]:
    """Rows that did not come out, and those that should not have. The file source still knows the
    files of batches without offsets, and reads them with the first new ones: where every batch
    updates rows, those batches' updates are in that one.
    """
    expected, found = ground.expected(one.base, one.batch), rows_of(one.order.output)
    assert expected
    if one.base.kind in UPDATED:
        output = ground.place(one.base.name, "untouched") / "output"
        expected -= rows_of(output, one.planned) - rows_of(output, max(one.planned, LAST))
    return expected - found, found - expected


@pytest.mark.row("W-20")
def test_a_job_goes_on_from_a_repaired_checkpoint_as_if_nothing_had_been_damaged(
    tmp_path: Path,
) -> None:
    ground = Ground(tmp_path)
    hdfs, rocksdb = Base(NEWEST, "window-2", "hdfs"), Base(NEWEST, "window-2", "rocksdb-changelog")
    begun(ground, (hdfs, rocksdb))
    empty = whole(ground, hdfs, tmp_path / "alone" / "checkpoint")
    empty["state/0/1/3.delta"] = b""
    torn = whole(ground, rocksdb, tmp_path / "beside" / "checkpoint")
    torn["state/0/0/3.changelog"] = torn["state/0/0/3.changelog"][:40]
    del torn["state/0/2/2.changelog"]
    going = []
    for name, base, files in (("alone", hdfs, empty), ("beside", rocksdb, torn)):
        one = repaired(ground, base, name, files, also=name == "beside")
        assert isinstance(one, Going), one
        going.append(one)
    assert [one.batch for one in going] == [1, 2]
    run(
        tmp_path, [ground.untouched(hdfs), ground.untouched(rocksdb), *(one.order for one in going)]
    )
    assert [lost(ground, one) for one in going] == [(Counter(), Counter())] * 2


@pytest.mark.slow
@pytest.mark.row("W-20")
def test_seeded_damage_is_repaired_or_refused_and_never_silently_wrong(
    tmp_path: Path, seed: int
) -> None:
    ground = Ground(tmp_path)
    every = [Base(NEWEST, *name.split(".")) for name in BASES]
    base_of = {number: every[number % len(every)] for number in range(seed, seed + SEEDS)}
    bases = list(dict.fromkeys(base_of.values()))
    begun(ground, bases)
    going: list[Going] = []
    refused: dict[str, str] = {}
    for number, base in base_of.items():
        name = f"damage-{number}"
        at = f"file://{tmp_path}/{name}/checkpoint"
        files = whole(ground, base, tmp_path / name / "checkpoint")
        placed = {f"{at}/{path}": content for path, content in files.items()}
        golden = spark_image(f"{NEWEST}/{base.name}", at, placed)
        done, is_unseen = damaged_often(golden, number, number % 3)
        left = {path.removeprefix(f"{at}/"): content for path, content in done.files.items()}
        one = repaired(ground, base, name, left, also=number % 4 == 0)
        if isinstance(one, str):
            refused[f"{name} {base.name} {done.what}"] = one
            continue
        going.append(replace(one, unseen=is_unseen))
        shutil.rmtree(tmp_path / name / "backup", ignore_errors=True)
    run(tmp_path, [*map(ground.untouched, bases), *(one.order for one in going)])
    wrong = {one.name: lost(ground, one) for one in going if not one.unseen}
    assert {name: rows for name, rows in wrong.items() if any(rows)} == {}
    assert len(going) >= SEEDS // 4
    print(f"{len(going)} repaired, {len(refused)} refused")
    for name, why in refused.items():
        print(name, why.strip().splitlines()[-2:])
