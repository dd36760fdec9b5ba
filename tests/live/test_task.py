"""A chain at work: rows of Arrow and pandas, whole batches with a state, versions in a column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas
import pyarrow
import pyarrow.compute
import pytest

from stateshift import live
from stateshift.errors import FormatError, Incompatible, PlanError, SpecError
from stateshift.live import code, state
from stateshift.live.protocol.chains import Decision, Link, NewChain, ProposedChange
from stateshift.live.rows import (
    arrow_schema,
    check_types,
    rows_of,
    versions_in,
    with_column,
)
from stateshift.live.task import Chain, run_batch
from tests.live.ground import Ground, asked, giving, numbers, propose, raising, rows, run

APPLIED = Decision("applied", 1.0, "me")


@pytest.fixture
def ground() -> Ground:
    return Ground()


def apply(ground: Ground, chains: dict[str, NewChain], on_error: Any = "fail") -> ProposedChange:
    """Propose a change of whole chains, and decide on it."""
    folder = ground.folder
    number = len(list(folder.changes())) + 1
    change = ProposedChange(folder.check(), number, "replace", chains, 0.0, 1e12, "epoch", on_error)
    folder.propose(change, None)
    folder.decide(number, APPLIED)
    return change


def links(ground: Ground, *functions: code.Function) -> tuple[Link, ...]:
    """Ship functions."""
    packages = [code.package(function) for function in functions]
    for package in packages:
        ground.folder.write_code(package.digest, package.content)
    return tuple(Link(package.digest, package.name) for package in packages)


# ------------------------------------------------------------------------------------ Arrow


def test_a_chain_without_functions_returns_the_rows_as_they_are(ground: Ground) -> None:
    chain = ground.chain(schema=rows().schema, functions=())
    assert run(chain, ground.member(), 0, rows(1, 2)) == [rows(1, 2)]


def test_functions_of_a_chain_run_one_after_the_other(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    odd = lambda batch: batch.filter(pyarrow.compute.bit_wise_and(batch["v"], 1).cast("bool"))  # noqa: E731
    apply(ground, {"score": NewChain(links(ground, odd, giving(5)))})
    (out,) = run(chain, member, 0, rows(1, 2, 3))
    assert out.to_pydict() == {"v": [1, 3], "k": [5, 5]}


def test_a_worker_says_that_it_runs_a_function_once_it_has_run_it_on_rows(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, {"score": NewChain(links(ground, raising()))}, "revert")
    out = run(chain, member, 0, rows(), rows(1, 2))
    assert numbers(out) == [0, 0]
    assert ground.folder.reverted(1) is not None
    assert ground.folder.said(1) == ()


def test_a_worker_without_rows_says_so_at_its_end(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, {"score": NewChain(links(ground, giving(5)))})
    run(chain, member, 0, rows())
    assert [said.word for said in ground.folder.said(1)] == ["running"]


def test_outside_of_a_stream_the_newest_functions_run(ground: Ground) -> None:
    chain, member = ground.chain(), ground.member()
    apply(ground, {"score": NewChain(links(ground, giving(1)))})
    assert numbers(run(chain, member, -1)) == [1, 1]
    assert ground.folder.batches() == {}


# ------------------------------------------------------------------------------------ pandas


def _pandas_giving(k: int) -> code.Function:
    def give(frame: pandas.DataFrame) -> pandas.DataFrame:
        return frame.assign(k=k)

    return give


def test_a_chain_of_pandas_changes_like_one_of_arrow(ground: Ground) -> None:
    chain, member = ground.chain(functions=(_pandas_giving(0),)), ground.member()
    frame = pandas.DataFrame({"v": [1, 2]})
    assert list(run(chain, member, 0, frame)[0]["k"]) == [0, 0]
    propose(ground.folder, asked({"score": _pandas_giving(4)}))
    run(chain, member, 1, frame)
    assert [said.word for said in ground.folder.said(1)] == ["acknowledged"]
    ground.folder.decide(1, APPLIED)
    assert list(run(chain, member, 2, frame)[0]["k"]) == [4, 4]


@pytest.mark.parametrize("kind", ["str", "datetime64[ns]"])
def test_pandas_of_another_type_is_refused(ground: Ground, kind: str) -> None:
    chain, member = ground.chain(functions=(_pandas_giving(0),)), ground.member()
    frame = pandas.DataFrame({"v": [1, 2]})
    run(chain, member, 0, frame)
    propose(ground.folder, asked({"score": lambda frame: frame.assign(k=frame["v"].astype(kind))}))
    assert list(run(chain, member, 1, frame)[0]["k"]) == [0, 0]
    (said,) = ground.folder.said(1)
    assert (said.word, "do not fit" in said.reason) == ("refused", True)


def test_pandas_without_a_column_is_refused(ground: Ground) -> None:
    chain, member = ground.chain(functions=(_pandas_giving(0),)), ground.member()
    frame = pandas.DataFrame({"v": [1, 2]})
    run(chain, member, 0, frame)
    propose(ground.folder, asked({"score": lambda frame: frame}))
    run(chain, member, 1, frame)
    (said,) = ground.folder.said(1)
    assert (said.word, "the columns are v" in said.reason) == ("refused", True)


def test_columns_of_any_name_are_pandas(ground: Ground) -> None:
    frame = pandas.DataFrame({"schema": [1, 2], "version": [0, 1]})
    assert versions_in(frame, "version") == [0, 1]
    assert list(rows_of(frame, "version", 1)["schema"]) == [2]


# ------------------------------------------------------------------------------------ versions

STAMPED = pyarrow.schema([("v", pyarrow.int64()), ("at", pyarrow.int64()), ("k", pyarrow.int64())])
FOLLOWED = pyarrow.schema([*STAMPED, ("j", pyarrow.int64())])


def _stamping(ground: Ground, name: str = "a", **more: Any) -> Chain:
    return ground.chain(name, schema=STAMPED, stamp="at", **more)


def _following(ground: Ground, name: str = "b") -> Chain:
    return ground.chain(name, schema=FOLLOWED, functions=(giving(0, "j"),), follow="at")


def test_a_stamp_keeps_its_columns_place(ground: Ground) -> None:
    chain, member = _stamping(ground), ground.member()
    (out,) = run(chain, member, 0, rows(1))
    assert (out.schema.names, out.to_pydict()["at"]) == (["v", "at", "k"], [0])
    apply(ground, {"a": NewChain(links(ground, giving(5)))})
    (out,) = run(chain, member, 1, rows(1))
    assert out.to_pydict() == {"v": [1], "at": [1], "k": [5]}
    assert out.schema.equals(STAMPED)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_column_is_put_at_its_place_in_both_kinds_of_rows(at: int) -> None:
    arrow = pyarrow.RecordBatch.from_pydict({"a": [1], "b": [2]})
    names = ["a", "b"]
    names.insert(at, "n")
    for given in (arrow, with_column(arrow, "n", 3, 0), with_column(arrow, "n", 3, 2)):
        assert with_column(given, "n", 7, at).schema.names == names
        frame = with_column(given.to_pandas(), "n", 7, at)
        assert (list(frame.columns), list(frame["n"])) == (names, [7])


def test_rows_of_several_versions_each_meet_their_own(ground: Ground) -> None:
    chain, member = _following(ground), ground.member()
    for k in (1, 2):
        apply(ground, {"b": NewChain(links(ground, giving(10 * k, "j")), "column")})
    batch = pyarrow.RecordBatch.from_pydict(
        {"v": [1, 2, 3, 4, 5], "at": [2, 0, None, 1, 2], "k": [0] * 5}, schema=STAMPED
    )
    found = {}
    for out in run(chain, member, 0, batch):
        found.update(zip(out.column("v").to_pylist(), out.column("j").to_pylist(), strict=True))
    assert found == {1: 20, 2: 0, 3: 0, 4: 10, 5: 20}
    assert sum(ran.rows for ran in ground.folder.measures()[-1].ran) == 5


@pytest.mark.parametrize("kind", ["float64", "Int64", "object"])
def test_rows_of_pandas_without_a_version_have_0(ground: Ground, kind: str) -> None:
    frame = pandas.DataFrame({"v": [1, 2, 3], "at": pandas.Series([None, 1, 0], dtype=kind)})
    assert versions_in(frame, "at") == [0, 1]
    assert list(rows_of(frame, "at", 0)["v"]) == [1, 3]
    assert list(rows_of(frame, "at", 1)["v"]) == [2]


def test_no_rows_have_no_version(ground: Ground) -> None:
    chain, member = _following(ground), ground.member()
    empty = pyarrow.RecordBatch.from_pylist([], schema=STAMPED)
    assert run(chain, member, 0, empty) == []


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_functions_of_a_chain_in_the_middle_may_leave_its_column(ground: Ground, kind: str) -> None:
    is_pandas = kind == "pandas"
    chain = ground.chain("m", schema=STAMPED, functions=(), stamp="at", follow="at")
    member = ground.member()
    batch = pyarrow.RecordBatch.from_pydict({"v": [1], "at": [0], "k": [0]}, schema=STAMPED)
    batch = batch.to_pandas() if is_pandas else batch
    run(chain, member, 0, batch)
    propose(ground.folder, asked({"m": _pandas_giving(1) if is_pandas else giving(1)}))
    run(chain, member, 1, batch)
    assert [said.word for said in ground.folder.said(1)] == ["acknowledged"]


def test_rows_without_the_column_are_refused_with_what_to_keep(ground: Ground) -> None:
    chain = _following(ground)
    with pytest.raises(PlanError, match="no column at") as refused:
        run(chain, ground.member(), 0, rows(1))
    assert "keep the column" in str(refused.value.hint)


def test_a_version_that_nobody_has_decided_stops_the_batch(ground: Ground) -> None:
    chain = _following(ground)
    batch = pyarrow.RecordBatch.from_pydict({"v": [1], "at": [3], "k": [0]}, schema=STAMPED)
    with pytest.raises(FormatError, match="rows carry change 3") as refused:
        run(chain, ground.member(), 0, batch)
    assert refused.value.hint


def test_a_chain_in_the_middle_hands_on_what_rows_have_met_before(ground: Ground) -> None:
    """Rows that met the old function upstream meet the old one downstream, also through a chain
    whose batch begins with the change.
    """
    above, below = _stamping(ground, "a"), _following(ground, "c")
    middle = ground.chain("b", schema=STAMPED, functions=(), stamp="at", follow="at")
    member = ground.member()
    old = run(above, member, 0, rows(1), query="qa")
    apply(
        ground,
        {
            "a": NewChain(links(ground, giving(1))),
            "c": NewChain(links(ground, giving(1, "j")), "column"),
        },
    )
    new = run(above, member, 1, rows(2), query="qa")
    passed = run(middle, member, 0, *old, *new, query="qb")
    out = run(below, member, 0, *passed, query="qc")
    assert (numbers(out, "k"), numbers(out, "j")) == ([0, 1], [0, 1])


# ------------------------------------------------------------------------------------ whole batches


WRITTEN: dict[int, list[int]] = {}


@dataclass
class Frame:
    """A batch as foreachBatch hands it over, with what a chain asks Spark for."""

    number: int
    values: list[int]

    @property
    def sparkSession(self) -> Frame:
        return self

    @property
    def sparkContext(self) -> Frame:
        return self

    def getLocalProperty(self, name: str) -> str | None:
        return {"sql.streaming.queryId": "q", "spark.jobGroup.id": "run"}.get(name)


def write(batch: Frame) -> None:
    """Write a batch, over what was written of it before."""
    WRITTEN[batch.number] = batch.values


def keeping(count: int) -> code.Function:
    """Return a function that keeps the last values of all batches, in so many places."""

    def keep(batch: Frame, kept: list[int]) -> tuple[Frame, list[int]]:
        assert len(kept) in (0, count), f"{len(kept)} places, not {count}"
        kept += batch.values  # of a state that is the function's own
        after = ([0] * count + kept)[-count:]
        return replace(batch, values=after), after

    return live.stateful("last", initial=[])(keep)


def grow(slot: str, kept: list[int]) -> list[int]:
    """Make of five places ten."""
    assert slot == "last"
    return [0] * 5 + kept


class Query:
    """A query that hands its batches to a chain: each has one value, the batch's number."""

    def __init__(self, ground: Ground, *functions: code.Function) -> None:
        self.ground = ground
        functions = functions or (keeping(5),)
        self.chain = ground.chain("rules", schema=None, functions=(*functions, write))
        WRITTEN.clear()

    def run(self, *batches: int) -> list[int]:
        """Run batches in a new process; return what was written of the last."""
        member = self.ground.member()
        for batch in batches:
            run_batch(self.chain, member, Frame(batch, [batch]), batch)
        return WRITTEN[batches[-1]]

    def change(self, count: int, transform: code.Function | None = None, **more: Any) -> None:
        """Keep another number of values."""
        link = None if transform is None else links(self.ground, transform)[0]
        new = (*links(self.ground, keeping(count)), Link("first:1", "write"))
        apply(self.ground, {"rules": NewChain(new, "batch", link)}, **more)


def test_a_state_of_the_last_five_grows_to_one_of_the_last_ten(ground: Ground) -> None:
    query = Query(ground)
    assert query.run(*range(1, 8)) == [3, 4, 5, 6, 7]
    query.change(10, grow)
    assert query.run(8) == [0, 0, 0, 0, 3, 4, 5, 6, 7, 8]
    assert query.run(9, 10) == [0, 0, 3, 4, 5, 6, 7, 8, 9, 10]


def test_without_its_transform_the_new_function_meets_the_old_state(ground: Ground) -> None:
    query = Query(ground)
    query.run(1, 2)
    query.change(10)
    with pytest.raises(AssertionError, match="5 places, not 10"):
        query.run(3)


def test_a_batch_that_is_run_again_begins_with_the_same_state_and_yields_the_same(
    ground: Ground,
) -> None:
    query = Query(ground)
    before = [query.run(batch) for batch in range(1, 4)]
    assert query.run(3) == before[2]
    query.change(10, grow)
    first = query.run(4)
    for _ in range(3):
        assert query.run(4) == first
    assert query.run(3) == before[2]  # sealed before the change
    assert query.run(4, 5) == [0, 0, 0, 0, 0, 1, 2, 3, 4, 5]


def test_the_first_batch_begins_with_nothing_also_when_it_is_run_again(ground: Ground) -> None:
    query = Query(ground)
    assert query.run(0) == query.run(0, 0) == [0, 0, 0, 0, 0]
    assert query.run(7) == query.run(7) == [0, 0, 0, 0, 7]


def test_a_query_that_goes_back_goes_on_with_the_states_of_then(ground: Ground) -> None:
    query = Query(ground)
    query.run(*range(1, 31))
    assert query.run(25, 26) == [22, 23, 24, 25, 26]
    assert ground.folder.state_batches("q", "rules")[-1] == 26
    assert query.run(*range(27, 40)) == [35, 36, 37, 38, 39]


def test_a_query_that_goes_back_too_far_is_refused(ground: Ground) -> None:
    query = Query(ground)
    query.run(*range(1, 31))
    with pytest.raises(PlanError, match="before batch 12 is not kept any more") as refused:
        query.run(12)
    assert "after batch 21" in str(refused.value.hint)
    assert query.run(31) == [27, 28, 29, 30, 31]


def test_a_state_that_cannot_be_read_stops_the_batch(ground: Ground) -> None:
    query = Query(ground)
    query.run(1)
    whole = ground.text("states/q/rules/1")
    for end in range(len(whole)):
        ground.text("states/q/rules/1", whole[:end])
        with pytest.raises(FormatError) as refused:
            query.run(2)
        assert str(refused.value.path).endswith("states/q/rules/1")
    ground.text("states/q/rules/1", whole)
    assert query.run(2) == [0, 0, 0, 1, 2]


@pytest.mark.parametrize("kept", [{1, 2}, {1: 2}, [{"a": {3: 4}}], object()])
def test_a_state_that_json_cannot_say_is_refused(ground: Ground, kept: object) -> None:
    query = Query(ground, live.stateful("x")(lambda batch, state: (batch, kept)))
    with pytest.raises(PlanError, match="nothing that JSON can say"):
        query.run(1)


def test_what_returns_no_state_is_refused(ground: Ground) -> None:
    query = Query(ground, live.stateful("x")(lambda batch, state: batch))
    with pytest.raises(PlanError, match="returns the batch and the state"):
        query.run(1)


def test_a_function_around_a_stateful_one_leaves_it_its_state(ground: Ground) -> None:
    query = Query(ground)
    query.run(1)

    def twice(batch: Frame, inner: code.Function) -> Frame:
        return inner(replace(inner(batch), values=[100]))  # type: ignore[no-any-return]

    (outer,) = links(ground, twice)
    around = replace(outer, inner=Link("first:0", "keep"))
    apply(ground, {"rules": NewChain((around, Link("first:1", "write")))})
    assert query.run(2) == [0, 0, 1, 2, 100]
    assert query.run(2, 3) == [1, 2, 100, 3, 100]
    with pytest.raises(Incompatible, match="cannot be put around"):
        state.around(keeping(5), twice)


def test_an_error_takes_a_change_of_a_whole_batch_back(ground: Ground) -> None:
    query = Query(ground)
    query.run(1, 2)
    new = (*links(ground, raising()), Link("first:1", "write"))
    apply(ground, {"rules": NewChain(new)}, "revert")
    with pytest.raises(AttributeError):
        raising()(Frame(0, []))  # it fails on whatever is no Arrow batch
    assert query.run(3) == [0, 0, 1, 2, 3]
    reverted = ground.folder.reverted(1)
    assert reverted is not None and (reverted.chain, reverted.batch) == ("rules", 3)
    assert query.run(4) == [0, 1, 2, 3, 4]
    assert ground.folder.said(1) == ()  # it has never run


def test_a_chain_of_whole_batches_says_that_it_runs(ground: Ground) -> None:
    query = Query(ground)
    query.run(1)
    assert [said.chain for said in ground.folder.workers()] == ["rules"]
    assert [measured.batch for measured in ground.folder.measures()] == [1]


# ------------------------------------------------------------------------------------ schemas


def test_a_schema_that_cannot_be_read_is_refused_with_the_way_out() -> None:
    with pytest.raises(SpecError) as refused:
        arrow_schema("id longer")
    assert refused.value.complaints[0].pointer == "schema"
    assert "pyarrow.Schema" in str(refused.value.hint)


def test_a_column_whose_type_no_rows_tell_is_refused_with_how_to_say_it() -> None:
    found = pyarrow.schema([("k", pyarrow.null())])
    with pytest.raises(Incompatible, match="column k is null, expected is int64") as refused:
        check_types("score", pyarrow.schema([("k", pyarrow.int64())]), found)
    assert "pyarrow.int64()" in str(refused.value.hint)


# ------------------------------------------------------------------------------------ schemas


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("id long, score double", {"id": pyarrow.int64(), "score": pyarrow.float64()}),
        ("at TIMESTAMP,b:date", {"at": pyarrow.timestamp("us", "UTC"), "b": pyarrow.date32()}),
        ("d decimal(10, 2), e dec", {"d": pyarrow.decimal128(10, 2), "e": pyarrow.decimal128(10)}),
    ],
)
def test_a_schema_of_simple_types_needs_no_session(ddl: str, expected: dict[str, Any]) -> None:
    assert arrow_schema(ddl) == pyarrow.schema(list(expected.items()))
    assert not arrow_schema("id long NOT NULL").field("id").nullable  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "ddl", ["a array<int>", "a decimal(99)", "a longer", "a long b", "`a` int"]
)
def test_other_ddl_is_left_to_spark(ddl: str) -> None:
    with pytest.raises(SpecError, match="cannot be read as DDL"):
        arrow_schema(ddl)
