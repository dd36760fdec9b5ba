"""Operators whose state moves while their jobs run, in four forms.

    @live.operator(bins=256, key="user", time=("at", "offset"), out="user string, n long")
    def visits(key, state, values):
        n = (state or 0) + len(values)
        return live.Folded(n, outputs=((key, n),))

    form       the function                                   what it is given at a time
    fold       f(key, state, values)                          a key's state, and its rows
    unary      f(time, key, state, rows, notified)            besides: values it asked to see again
    binary     f(time, key, state, left, right, notified)     rows of two inputs
    columns    f(bin, rows)                                   a bin's table, and its rows as one

The first three return `live.Folded`: the state (None is none), rows of `out`, and values to be seen
again, as (time, value). The last one returns two tables: the rows of the bin's table that are
new or changed, by key, and the rows of `out`. They are called in the order of time; of one moment
with all of a key's rows at once. They must be deterministic.
"""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from stateshift.errors import Complaint, SpecError
from stateshift.live.bins.arrow_tables import plain_values
from stateshift.live.bins.hashing import HASH
from stateshift.live.bins.times import InOrder, Moment, Promise, check_promise, timer_moment
from stateshift.live.protocol.applying import Fold, Folded, Key, State, Value
from stateshift.live.protocol.configuration import is_count, not_a_count
from stateshift.live.rows import arrow_schema

if TYPE_CHECKING:
    import pyarrow

Form = Literal["fold", "unary", "binary", "columns"]
Function: TypeAlias = Callable[..., Any]  # the user's own, one of the four forms
Sides = tuple[str, object, object]  # a column, and what it says of the left input and of the right


@dataclass(frozen=True)
class BinOperator:
    """An operator as a user has declared it with `live.operator`."""

    name: str
    function: Function
    form: Form
    bins: int
    key: tuple[str, ...]
    time: tuple[str, ...]
    out: object
    promise: Promise
    values: tuple[str, ...] | None = None
    sides: Sides | None = None
    state: object = None

    def __call__(self, *arguments: object) -> object:
        """Call the function itself, as its tests do."""
        return self.function(*arguments)

    @property
    def output(self) -> pyarrow.Schema:
        schema = arrow_schema(self.out)
        assert schema is not None, "an operator has an output"
        return schema

    @property
    def table(self) -> pyarrow.Schema:
        """The schema of a bin's table, its keys left out."""
        schema = arrow_schema(self.state)
        assert schema is not None, "an operator of columns has a state"
        return schema

    def needs(self, column: str) -> bool:
        """Whether it looks at a column of its input: at all of them where it names no values."""
        if self.values is None:
            return True
        side = () if self.sides is None else (self.sides[0],)
        return column in (*self.key, *self.time, *self.values, *side, self.promise.partition)

    def fold(self) -> Fold:
        """Return the function as the protocol calls it."""
        call = _call_of(self.function, self.form)
        columns = len(self.time)

        def folded(time: Moment, key: Key, state: State, values: tuple[Value, ...]) -> Folded:
            result = call(time, key, state, values)
            if type(result) is not Folded:  # a plain tuple may stand for one
                if not isinstance(result, tuple) or not 1 <= len(result) <= 3:
                    fact = f"it returned {type(result).__name__}, not live.Folded"
                    raise self._wrong(fact)
                result = Folded(*result)
            if not result.later:
                return result
            later: list[tuple[Any, Value]] = []  # moments here, and numbers in the model
            for at, value in result.later:
                later.append((timer_moment(at, columns), Notified(value)))
            for at, _ in later:
                if at <= time:
                    raise self._wrong(f"what is asked for at {at[0]} is not ahead of {time[0]}")
            return result._replace(later=tuple(later))

        return folded

    def values_of(self, table: pyarrow.Table) -> Iterable[Value]:
        """Return each row of a table as the function gets it: marked with its side."""
        names = self.values
        if names is None:
            names = tuple(name for name in table.column_names if name != HASH)
        columns = [plain_values(table.column(name)) for name in names]
        if len(names) == 1 and self.values is not None:
            values: Iterable[Value] = columns[0]
        else:
            values = map(_row_class(names)._make, zip(*columns, strict=True))
        if self.form == "fold":
            return values
        return zip(self._marks(table), values, strict=True)

    def _marks(self, table: pyarrow.Table) -> Iterable[int]:
        if self.sides is None:
            return [_LEFT] * int(table.num_rows)
        column, left, right = self.sides
        numbers = {left: _LEFT, right: _RIGHT}
        try:
            marks: list[int] = [numbers[value] for value in table.column(column).to_pylist()]
        except KeyError as error:
            raise self._wrong(f"{column} is {error}, neither {left!r} nor {right!r}") from None
        return marks

    def _wrong(self, fact: str) -> SpecError:
        return SpecError((Complaint("operator", f"{self.name}: {fact}"),), hint=_HINT)


_HINT = "return live.Folded(STATE, outputs=(ROW, …), later=((TIME, VALUE), …))"
_LEFT, _RIGHT, _NOTIFIED = 0, 1, 2


class Notified(NamedTuple):
    """A value that is seen again."""

    value: Value


_Call = Callable[[Moment, Key, State, tuple[Value, ...]], Any]


def _call_of(function: Function, form: Form) -> _Call:
    """Return a user's function as all forms are called."""

    def fold(time: Moment, key: Key, state: State, values: tuple[Value, ...]) -> object:
        for value in values:
            if type(value) is Notified:  # here a value like others
                values = tuple(one.value if type(one) is Notified else one for one in values)
                break
        return function(key, state, values)

    def unary(time: Moment, key: Key, state: State, values: tuple[Value, ...]) -> object:
        left, _, notified = _by_input(values)
        return function(time[0], key, state, left, notified)

    def binary(time: Moment, key: Key, state: State, values: tuple[Value, ...]) -> object:
        return function(time[0], key, state, *_by_input(values))

    calls: Mapping[str, _Call] = {"fold": fold, "unary": unary, "binary": binary}
    return calls[form]


def _by_input(values: tuple[Value, ...]) -> tuple[tuple[Value, ...], ...]:
    """Return the rows of the left and of the right side, and the values that are seen again."""
    found: tuple[list[Value], ...] = ([], [], [])
    for value in values:
        if type(value) is Notified:
            found[_NOTIFIED].append(value.value)
        else:
            found[value[0]].append(value[1])
    return tuple(tuple(part) for part in found)


def operator(
    *,
    key: str | Sequence[str],
    time: str | Sequence[str],
    out: object,
    bins: int = 256,
    form: Form = "fold",
    name: str | None = None,
    promise: Promise | None = None,
    values: str | Sequence[str] | None = None,
    sides: Sides | None = None,
    state: object = None,
) -> Callable[[Function], BinOperator]:
    """Declare a function as an operator whose state moves in bins.

    Args:
        key: the columns that tell keys apart.
        time: logical time: a column, or several that are compared one after the other.
        out: the rows that it puts out, as DDL, Spark's schema or Arrow's.
        bins: how many classes of keys there are, a power of two.
        form: `fold`, `unary`, `binary` or `columns`.
        name: by which commands name it; the function's own where there is none.
        promise: what the source promises of time: `live.InOrder` or `live.Watermark`.
        values: the columns that the function is given; one alone as itself. All of them where none
            is named, as named tuples.
        sides: of `binary`: (COLUMN, LEFT, RIGHT).
        state: of `columns`: the columns of a bin's table besides the key.

    Raises:
        SpecError: with all that is wrong with the declaration.
    """
    keys, times = _names(key), _names(time)
    promise = promise or InOrder(ties=len(times) == 1)
    named = None if values is None else _names(values)

    def declared(function: Function) -> BinOperator:
        called = name or function.__name__
        made = BinOperator(
            called, function, form, bins, keys, times, out, promise, named, sides, state
        )
        _check(made)
        return made

    return declared


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check(made: BinOperator) -> None:
    wrong: list[Complaint] = []
    if not made.name or "/" in made.name:
        wrong.append(Complaint("name", f"{made.name!r} is no name of an operator", made.name))
    if not is_count(made.bins):
        wrong.append(Complaint("bins", not_a_count(made.bins), made.bins, "a power of two"))
    if not made.key:
        wrong.append(Complaint("key", "no column tells keys apart"))
    if made.form not in get_args(Form):
        expected = ", ".join(get_args(Form))
        wrong.append(Complaint("form", f"there is no form {made.form!r}", made.form, expected))
    if (made.form == "binary") != (made.sides is not None):
        wrong.append(Complaint("sides", "two inputs are told apart by sides, and one is not"))
    if (made.form == "columns") != (made.state is not None):
        wrong.append(Complaint("state", "a bin's table has columns, and a key's state has none"))
    if wrong:
        raise SpecError(tuple(wrong), hint="see the help of live.operator")
    check_promise(made.promise, made.time)


@cache
def _row_class(names: tuple[str, ...]) -> Any:  # a named tuple made at run time
    """Return the class of rows of several columns. They can be pickled, which a class that is made
    at run time cannot: they wait for their bin, or stand in a state.
    """
    usable = all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    make: Any = namedtuple  # at run time, where mypy sees no class
    made = make("Row", names, rename=not usable)
    made.__reduce__ = lambda row: (row_of, (names, *row))
    return made


def row_of(names: tuple[str, ...], *values: object) -> Any:  # likewise
    """Return a row of several columns by its values."""
    return _row_class(names)(*values)
