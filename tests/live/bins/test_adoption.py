"""State that is brought into a group, and taken out of it."""

from __future__ import annotations

import contextlib
import datetime

import pyarrow as pa
import pytest

from stateshift import live
from stateshift.errors import Incompatible, MissingFile, PlanError, SpecError
from stateshift.live.bins import adoption
from stateshift.live.bins.bin_run import PIECES_MAX
from stateshift.live.bins.files import Files
from stateshift.live.bins.hashing import encoders, hash_of
from stateshift.live.bins.state_acts import map_columns, with_timers
from stateshift.live.protocol.applying import Folded
from stateshift.live.protocol.chains import Decision
from stateshift.live.protocol.configuration import Update
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.contracts.faulty import Killed
from tests.kill.moments import Doomed, Moments
from tests.live.bins.test_killing import die
from tests.live.bins.workers import BINS, Ground, Reader, count_and_ask


def exported(keys: int) -> pa.Table:
    """Rows as `stateshift export` has them."""
    key = pa.array([{"key": number} for number in range(keys)], pa.struct([("key", pa.int64())]))
    value = pa.array([{"n": number} for number in range(keys)], pa.struct([("n", pa.int64())]))
    return pa.table({"key": key, "value": value})


def folder() -> Files:
    return Files(MemoryStorage(MemoryDisk(), "memory://group"))


def test_what_is_brought_in_is_taken_out_again():
    files = folder()
    came = adoption.bring_in(
        files, count_and_ask, exported(100), ("west", "east"), lambda key, value: value["n"]
    )
    assert came.keys == 100
    entries = list(adoption.take_out(files, count_and_ask))
    assert sorted((entry.key, entry.state) for entry in entries) == [(n, n) for n in range(100)]
    assert {entry.worker for entry in entries} == {"west", "east"}


def test_workers_go_on_from_what_is_brought_in():
    ground = Ground(count_and_ask, ["west"], keys=30)
    fresh = MemoryStorage(MemoryDisk(), "memory://fresh")
    adoption.bring_in(
        Files(fresh),
        count_and_ask,
        exported(30),
        ("west",),
        lambda key, value: Folded(1000, later=((2, -7),)),
    )
    west = ground.workers["west"]
    west.storage = fresh
    west.start()
    west.read(90)
    rows = ground.put_out()
    assert {n for number, key, n in rows if number >= 0} >= {1001, 1002, 1003}
    assert sum(number == -7 for number, _, _ in rows) == 30


def test_a_table_a_bin_takes_the_columns_of_the_rows():
    @live.operator(key="key", time="at", out="n long", form="columns", state="n long", bins=8)
    def total(bin, rows):
        return bin, rows

    files = folder()
    adoption.bring_in(files, total, exported(50), ("west",))
    entries = list(adoption.take_out(files, total))
    assert sorted((entry.key, entry.state["n"]) for entry in entries) == [(n, n) for n in range(50)]


def test_a_second_state_on_top_of_one_is_refused():
    files = folder()
    adoption.bring_in(files, count_and_ask, exported(5), ("west",), lambda key, value: 1)
    with pytest.raises(PlanError, match="has a state already"):
        adoption.bring_in(files, count_and_ask, exported(6), ("west",), lambda key, value: 1)
    with pytest.raises(PlanError, match="has a state already"):
        adoption.bring_in(files, count_and_ask, exported(5), ("west",), lambda key, value: 2)


def test_a_state_that_its_worker_has_gone_on_from_is_not_brought_in_again():
    ground = Ground(count_and_ask, ["west"])
    again = (count_and_ask, exported(5), ("west",), lambda key, value: 1)
    fresh = MemoryStorage(MemoryDisk(), "memory://fresh")
    adoption.bring_in(Files(fresh), *again)
    west = ground.workers["west"]
    west.storage = fresh
    west.start()
    west.read(9)
    with pytest.raises(PlanError, match="has a state already"):
        adoption.bring_in(Files(fresh), *again)


@pytest.mark.parametrize("effect", range(1, 40))
def test_an_import_that_has_died_goes_on_where_it_has_ended(effect: int):
    again = (count_and_ask, exported(30), ("west", "east", "north"), lambda key, value: value["n"])
    storage = MemoryStorage(MemoryDisk(), "memory://group")
    with contextlib.suppress(Killed):
        adoption.bring_in(Files(Doomed(storage, Moments(effect, die))), *again)
    came = adoption.bring_in(Files(storage), *again)
    assert came.keys == 30
    entries = list(adoption.take_out(Files(storage), count_and_ask))
    assert sorted((entry.key, entry.state) for entry in entries) == [(n, n) for n in range(30)]
    assert {entry.worker for entry in entries} == {"west", "east", "north"}
    for name in came.workers:
        assert Files(storage).commit_numbers("count_and_ask", name) == [0]


def test_rows_without_the_key_are_refused():
    table = exported(3).rename_columns(["other", "value"])
    with pytest.raises(SpecError, match="no column key"):
        adoption.bring_in(folder(), count_and_ask, table, ("west",), lambda key, value: 1)


# What a real Spark 4.3.0 says of these keys, by `SELECT xxhash64(…)`.
UTC = datetime.UTC
SPARK = [
    ([(pa.int64(), 1)], -7001672635703045582),
    ([(pa.int64(), -5)], -5259934538394028452),
    ([(pa.int32(), 7)], 2786828215451145335),
    ([(pa.int16(), -7)], 4987848727247274714),
    ([(pa.string(), "Grüße")], -2071892481765773306),
    ([(pa.string(), "")], -7444071767201028348),
    ([(pa.bool_(), True)], -6698625589789238999),
    ([(pa.float64(), 1.5)], 7738255526519901366),
    ([(pa.float64(), -0.0)], -5252525462095825812),
    ([(pa.float32(), 2.5)], -8224967761598873520),
    ([(pa.date32(), datetime.date(2026, 1, 2))], -3731820367656469160),
    (
        [(pa.timestamp("us", "UTC"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC))],
        -3277820007983118719,
    ),
    ([(pa.binary(), b"\x01\x02\xff")], -7261190845588930587),
    ([(pa.string(), None)], 42),
    ([(pa.string(), "a"), (pa.int64(), 2)], -8186034249051070164),
    ([(pa.string(), None), (pa.int64(), 3)], 3188756510806108107),
    ([(pa.string(), "a long text that has more than thirty-two bytes in it")], -105661211958540828),
]


@pytest.mark.parametrize(("columns", "wanted"), SPARK)
def test_the_hash_is_sparks(columns, wanted):
    names = [f"column{number}" for number in range(len(columns))]
    schema = pa.schema(list(zip(names, [kind for kind, _ in columns], strict=True)))
    hashed = hash_of([value for _, value in columns], encoders(schema, names))
    assert hashed - (1 << 64 if hashed >= 1 << 63 else 0) == wanted


def test_a_timestamp_is_hashed_by_its_microseconds():
    naive = pa.schema([("at", pa.timestamp("us"))])
    whole = pa.schema([("at", pa.int64())])
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    micros = 1767323045000006
    assert hash_of([moment], encoders(naive, ["at"])) == hash_of([micros], encoders(whole, ["at"]))


def keys_in(files: Files) -> list[object]:
    """The keys that an export has, each as often as it has it."""
    return sorted(entry.key for entry in adoption.take_out(files, count_and_ask))


def about_to_move() -> Ground:
    """A group in which all bins go to another worker with the next batch."""
    ground = Ground(count_and_ask, ["west", "east"])
    for worker in ground.workers.values():
        worker.read(90)
    ground.propose([Update(40, bin, 1) for bin in range(BINS)])
    for worker in ground.workers.values():
        worker.running.answer()
    ground.files.decide(0, Decision("applied", 0.0, "test"))
    return ground


def test_a_bin_that_is_on_its_way_is_exported_as_it_was_given():
    ground = about_to_move()
    ground.workers["west"].read(150)
    assert keys_in(ground.files) == list(range(ground.keys))
    entries = list(adoption.take_out(ground.files, count_and_ask))
    assert {(entry.worker, entry.frontier) for entry in entries} == {("west", (40,))}


class Moving(Files):
    """Files of a group whose bins move while somebody reads the ledgers."""

    workers: tuple[Reader, ...] = ()

    def ledger(self, operator, worker):
        if worker == "east":
            for reader in self.workers:
                reader.read(150)
            self.workers = ()
        return super().ledger(operator, worker)


def test_a_bin_that_moves_while_an_export_looks_is_exported_once():
    ground = about_to_move()
    files = Moving(ground.storage)
    files.workers = tuple(ground.workers.values())
    entries = list(adoption.take_out(files, count_and_ask))
    assert sorted(entry.key for entry in entries) == list(range(ground.keys))
    assert {entry.worker for entry in entries} == {"east"}


class Busy(Files):
    """Files of a group whose workers go on before each read, so many times, until nothing that was
    named before is there any more.
    """

    workers: tuple[Reader, ...] = ()
    times = 0
    batches = 0

    def read(self, piece):
        if self.times:
            self.times -= 1
            for _ in range(self.batches):
                for reader in self.workers:
                    reader.read(reader.read_to + 2 * reader.ground.keys)
        return super().read(piece)


@pytest.mark.parametrize("times", [1, 3])
def test_an_export_goes_on_where_workers_have_removed_what_it_was_to_read(times: int):
    ground = about_to_move()
    files = Busy(ground.storage)
    files.workers = tuple(ground.workers.values())
    files.times, files.batches = times, 3 * PIECES_MAX
    entries = list(adoption.take_out(files, count_and_ask))
    assert sorted(entry.key for entry in entries) == list(range(ground.keys))
    frontiers = {entry.frontier for entry in entries}
    assert min(frontiers) > (60,), "they are read as they are now"


class TooBusy(Busy):
    """Files of a group in which nothing is ever there any more that was named."""

    def read(self, piece):
        super().read(piece)
        raise MissingFile("it is not there", location=piece.file)


def test_an_export_that_is_slower_than_its_group_says_so():
    ground = about_to_move()
    files = TooBusy(ground.storage)
    files.workers = tuple(ground.workers.values())
    files.times, files.batches = 2 * adoption.LOOKS_MAX, 1
    with pytest.raises(PlanError, match="worker east rewrites bin 0 of count_and_ask faster"):
        list(adoption.take_out(files, count_and_ask))


def test_an_export_names_the_file_that_is_missing_for_good():
    ground = about_to_move()
    path = min(ground.files.data("count_and_ask", "west"))
    ground.storage.remove(path)
    with pytest.raises(MissingFile, match=path):
        list(adoption.take_out(ground.files, count_and_ask))


def test_an_export_beside_a_split_is_refused():
    ground = about_to_move()
    files = Busy(ground.storage)
    files.workers = tuple(ground.workers.values())
    for reader in files.workers:
        reader.read(150)
    entries = adoption.take_out(files, count_and_ask)
    next(entries)
    for reader in files.workers:
        reader.read(210)
    ground.propose_bins(2 * BINS)
    for reader in files.workers:
        reader.running.answer()
    assert ground.decide() == "applied"
    files.times, files.batches = 1, 3 * PIECES_MAX
    with pytest.raises(PlanError, match="split or merged while they were read"):
        list(entries)


# ------------------------------------------------------------------------------------ other rows


def struct(**columns: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def test_a_function_that_raises_is_named_with_its_row_and_nothing_is_there():
    disk = MemoryDisk()
    files = Files(MemoryStorage(disk, "memory://group"))

    def of_row(key: int, value: dict[str, int]) -> int:
        return 100 // (key - 3)

    with pytest.raises(
        Incompatible, match=r"of_row raises ZeroDivisionError for row 3, key 3: "
    ) as refused:
        adoption.bring_in(files, count_and_ask, exported(5), ("west",), of_row)
    assert "{'n': 3}" in str(refused.value.hint)
    assert list(files.storage.list("")) == []
    adoption.bring_in(files, count_and_ask, exported(3), ("east",), of_row)
    assert files.begun().workers == ("east",)


def test_other_workers_than_the_groups_are_refused_not_passed_over():
    files = folder()
    adoption.bring_in(files, count_and_ask, exported(5), ("west",), lambda key, value: 1)
    with pytest.raises(PlanError, match="begins at west, not at east") as refused:
        adoption.bring_in(files, count_and_ask, exported(5), ("east",), lambda key, value: 1)
    assert "--worker west" in str(refused.value.hint)


def test_columns_of_keys_and_values_are_mapped():
    @live.operator(key="user", time="at", out="n long", form="columns", state="n long", bins=8)
    def total(bin, rows):
        return bin, rows

    key = struct(key=struct(word=pa.array([7, 8])), userKey=pa.array([1, 2]))
    value = struct(count=pa.array([70, 80]))
    table = map_columns(pa.table({"key": key, "value": value}), {"key.word": "user", "count": "n"})
    files = folder()
    adoption.bring_in(files, total, table, ("west",))
    entries = [(entry.key, entry.state["n"]) for entry in adoption.take_out(files, total)]
    assert sorted(entries) == [(7, 70), (8, 80)]
    with pytest.raises(SpecError, match="no column none"):
        map_columns(table, {"none": "user"})


@pytest.mark.parametrize("engine", ["spark", "flink"])
def test_timers_come_along_also_of_keys_that_have_nothing_else(engine: str):
    of = pa.array([1, 1, 9], pa.int64())
    at = pa.array([50, 20, 70], pa.int64())
    timer = struct(key=struct(key=of), expiryTimestampMs=at)
    if engine == "flink":
        timer = struct(timestamp=at, key=of)
    timers = pa.table({"key": timer, "value": pa.nulls(3)})
    table = with_timers(exported(3), timers, ("key",), {})
    given = {}

    def make(key, value, timers):
        given[key] = (value, timers)
        return Folded(value, later=tuple((at, "woken") for at in timers))

    files = folder()
    adoption.bring_in(files, count_and_ask, table, ("west",), make)
    assert given == {0: ({"n": 0}, []), 1: ({"n": 1}, [20, 50]), 2: ({"n": 2}, []), 9: (None, [70])}
    with pytest.raises(SpecError, match="have no time"):
        with_timers(exported(3), exported(3), ("key",), {})
