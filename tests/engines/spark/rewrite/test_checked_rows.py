"""A fork that rewrites all of its state reads it once: what a look at the source would find in its
rows is found on the way. Golden checkpoints of Spark 4.3, on a disk in memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.rewrite import request
from stateshift.engines.spark.rewrite.files import REWRITE_STATE
from stateshift.engines.spark.rewrite.stores import RowRule
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError, PlanError
from stateshift.formats.spark.state_files import StateRecord, decode_delta, encode_delta
from stateshift.plain import from_plain
from stateshift.specification import Spec
from stateshift.step import TransformShard
from stateshift.storage.protocol import Storage
from tests.engines.spark.golden import NAMES, golden
from tests.look.golden_images import NEWEST, contents, write
from tests.support.ground import SOURCE, TARGET, Around, Ground, spec_of

STORED = ("rate", "session-hdfs", "session-rocksdb", "window-rocksdb", "window-rocksdb-format2")
DELTAS = "rate"  # each file of which holds the rows of one batch
CHANGES: dict[str, list[dict[str, object]]] = {
    "compacted": [{"kind": "compact"}],
    "repartitioned": [{"kind": "repartition", "partitions": 5}],
}
NEEDED = re.compile(r"state/0/\d/\d+\.(delta|snapshot|changelog|zip)|state/0/\d/SSTs/.*")


class Counted(Around):
    """A storage that counts the bytes that are read of each file of the source."""

    def __init__(self, storage: Storage, reads: Counter[str]) -> None:
        super().__init__(storage)
        self._reads = reads

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        for piece in self.inner.chunks(path, offset, size):
            if self.inner.location == SOURCE:
                self._reads[path] += len(piece)
            yield piece


@pytest.fixture
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "CHECKED_BYTES_MIN", 0)


def fork(change: str, **keys: Any) -> Spec:
    return spec_of(mode="fork", transform=CHANGES[change], waive=["paths-stay"], **keys)


def put(ground: Ground, case: str, changed: dict[str, bytes] | None = None) -> None:
    ground.clock.time -= 600
    write(ground.disk.open(SOURCE), {**contents(NEWEST[case]), **(changed or {})})
    ground.clock.time += 600


def steps(ground: Ground, spec: Spec) -> list[TransformShard]:
    plans = ground.propose(spec).plans
    found: list[TransformShard] = []
    for plan in plans:
        for step in plan:
            if isinstance(step, TransformShard) and step.transform == REWRITE_STATE:
                found.append(step)
    return found


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("case", STORED)
def test_the_rows_of_a_fork_are_read_once(
    ground: Ground, case: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(ground, case)
    counts = {}
    held = []
    for least, run in ((1 << 40, "looked-at"), (0, "checked")):
        monkeypatch.setattr(request, "CHECKED_BYTES_MIN", least)
        reads: Counter[str] = Counter()
        ground.wrap = lambda storage, reads=reads: Counted(storage, reads)  # type: ignore[misc]
        assert ground.apply(fork(change), run).state == "finished"
        counts[run] = sum(count for path, count in reads.items() if NEEDED.fullmatch(path))
        ground.wrap = lambda storage: storage
        held.append(ground.held(TARGET))
        ground.rollback(run)
    if case.endswith("rocksdb"):  # snapshots of few rows are written in another order
        assert held[0] == held[1]
    assert counts["checked"] < counts["looked-at"]


def _shortened(record: StateRecord) -> StateRecord:
    return StateRecord(record.key, record.value and record.value[:-8])


def broken_row(files: dict[str, bytes]) -> dict[str, bytes]:
    path = newest(files)
    first, *others = decode_delta([files[path]])
    return {path: b"".join(encode_delta([_shortened(first), *others]))}


def rows_of_another_shard(files: dict[str, bytes]) -> dict[str, bytes]:
    path = newest(files)
    other = path.replace("state/0/0/", "state/0/1/")
    return {path: files[other], other: files[path]}


def deletes_of_another_shard(files: dict[str, bytes]) -> dict[str, bytes]:
    path = newest(files)
    other = decode_delta([files[path.replace("state/0/0/", "state/0/1/")]])
    deleted = [StateRecord(record.key, None) for record in other]
    return {path: b"".join(encode_delta([*decode_delta([files[path]]), *deleted]))}


def newest(files: dict[str, bytes]) -> str:
    deltas = [path for path in files if re.fullmatch(r"state/0/0/\d+\.delta", path)]
    return max(deltas, key=lambda path: int(path.rpartition("/")[2].removesuffix(".delta")))


@pytest.mark.parametrize("damage", [broken_row, rows_of_another_shard, deletes_of_another_shard])
@pytest.mark.parametrize("change", CHANGES)
def test_a_row_that_a_look_refuses_is_refused_on_the_way(
    ground: Ground,
    change: str,
    damage: Callable[[dict[str, bytes]], dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {p: c for p, c in contents(NEWEST[DELTAS]).items() if not p.endswith(".crc")}
    put(ground, DELTAS, damage(files))
    for path in contents(NEWEST[DELTAS]):
        if path.endswith(".crc"):
            ground.remove(f"{SOURCE}/{path}")
    with pytest.raises(PlanError) as looked_at:
        ground.apply(fork(change), "looked-at")
    monkeypatch.setattr(request, "CHECKED_BYTES_MIN", 0)
    with pytest.raises(FormatError) as checked:
        ground.apply(fork(change), "checked")
    assert checked.value.fact in looked_at.value.fact
    assert "verify --deep" in (checked.value.hint or "")
    ground.rollback("checked")
    assert not ground.held(TARGET)


def test_what_is_small_is_looked_at_before(ground: Ground) -> None:
    put(ground, DELTAS)
    assert not any(step.checked for step in steps(ground, fork("compacted")))


@pytest.mark.usefixtures("of_any_size")
def test_who_stops_a_job_looks_before(ground: Ground) -> None:
    put(ground, DELTAS)
    moved = steps(ground, spec_of(transform=CHANGES["compacted"]))
    assert moved and not any(step.checked for step in moved)
    assert all(step.checked for step in steps(ground, fork("compacted")))
    names = steps(ground, fork("compacted", verify={"source": "names"}))
    assert not any(step.checked for step in names)


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize("name", NAMES)
def test_its_rows_are_read_as_a_look_reads_them(tmp_path: Path, name: str) -> None:
    storage = golden(name)
    (image,) = survey(storage).images
    ground = Ground(tmp_path)
    write(ground.disk.open(SOURCE), {file.path: storage.read(file.path) for file in storage.list()})
    ground.clock.time += 600
    views = views_of(storage, image)
    for step in steps(ground, fork("compacted")):
        for store, rule in step.options.get("rows", {}).items():
            operator, _, inner = store.partition("/")
            looked_at = views.of(operator, inner)
            checked = from_plain(RowRule, rule).view(inner)
            for part in ("key", "value", "encoder", "many", "placed", "avro"):
                assert getattr(checked, part) == getattr(looked_at, part), part
            assert isinstance(checked, StoreView)
