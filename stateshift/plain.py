"""Frozen values to plain JSON and back, by their annotations.

Plans, journal records and reports are trees of frozen dataclasses over str, int, float, bool, None,
tuples and mappings. `to_plain` makes dictionaries and lists of them, `from_plain` reads them back
and says with a pointer what does not fit. A field that holds one of several dataclasses is told
apart by the `kind` each of them carries. Nothing here knows what the values mean.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, TypeVar

T = TypeVar("T")
NOTHING: Mapping[str, object] = types.MappingProxyType({})

# An object of JSON as it was read. Its values are checked where each is used.
JsonObject = Mapping[str, Any]

# An annotation: a class, union or literal. Python has no common type of these.
Wanted = Any
# A value of JSON, or one that is read as a wanted type.
Value = Any


class Misfit(ValueError):
    """A plain value does not fit the type it is read as."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer or '/'}: {message}")


def to_plain(value: Value) -> Value:
    """Make dictionaries of dataclasses, with their `kind` if they have one, and lists of tuples."""
    kind: type = type(value)
    return value if kind in _ATOMS else _making(kind)(value)


_ATOMS = frozenset((str, int, float, bool, type(None)))


@cache
def _making(kind: Wanted) -> Callable[[Value], Value]:
    """Return the function that makes a type plain: once, since a plan has very many values."""
    if hasattr(kind, "to_plain"):
        return operator.methodcaller("to_plain")
    if dataclasses.is_dataclass(kind):
        return _making_dataclass(kind)
    if _is_named_tuple(kind):
        is_of_atoms = None not in _atoms_of(kind) and not kind._field_defaults
        return list if is_of_atoms else lambda value: _list(_without_defaults(value))
    if issubclass(kind, tuple | list):
        return _list
    if issubclass(kind, Mapping):
        return lambda items: {str(key): to_plain(item) for key, item in items.items()}
    return lambda value: value


def _making_dataclass(kind: Wanted) -> Callable[[Value], Value]:
    fields = dataclasses.fields(kind)
    names = tuple(field.name for field in fields)
    defaults = {field.name: field.default for field in fields if field.metadata.get(_LATER)}
    word = getattr(kind, "kind", None)
    head = {"kind": word} if isinstance(word, str) else {}

    def whole(value: Value) -> Value:
        return head | {name: to_plain(getattr(value, name)) for name in names}

    def without_later(value: Value) -> Value:
        made = whole(value)
        for name, default in defaults.items():
            if getattr(value, name) == default:
                del made[name]
        return made

    return without_later if defaults else whole


_LATER = "later"


def later(default: T) -> T:
    """A field that earlier versions had not: it is written only where it is not the default."""
    made: Any = dataclasses.field(default=default, metadata={_LATER: True})
    return made  # type: ignore[no-any-return]


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _list(items: Iterable[Value]) -> list[Value]:
    return [item if type(item) in _ATOMS else to_plain(item) for item in items]


def from_plain(wanted: Wanted, plain: Value, pointer: str = "") -> Value:
    """Read `plain` as the annotated type `wanted`; the inverse of `to_plain`."""
    return _reading(wanted)(plain, pointer)


# A plain value, and the pointer to it, to what it is read as.
_Reader = Callable[[Value, str], Value]


def _reading(wanted: Wanted) -> _Reader:
    """Return the reader of a type. Only classes are cached: equal unions may differ in order."""
    origin: Wanted = typing.get_origin(wanted)
    arguments = typing.get_args(wanted)
    if origin is None:
        return _reading_class(wanted)
    if origin in (typing.Union, types.UnionType):
        readers = tuple(map(_reading, arguments))
        return partial(_one_of, arguments, readers)
    if origin is typing.Literal:
        return partial(_literal, arguments)
    if origin is tuple:
        return partial(_tuple, _reading(arguments[0]))
    if origin in (dict, Mapping):
        return partial(_mapping, _reading(arguments[1]))
    return _reading_class(origin)


@cache
def _reading_class(wanted: Wanted) -> _Reader:
    """Return the reader of a class: once for each, since a large plan has very many values."""
    if wanted is Any or wanted is object:
        return _as_it_is
    if wanted in (dict, Mapping):
        return partial(_mapping, _as_it_is)
    if isinstance(wanted, type) and _is_named_tuple(wanted):
        return partial(_named_tuple, wanted)
    if hasattr(wanted, "from_plain"):
        by_method: _Reader = wanted.from_plain
        return by_method
    if dataclasses.is_dataclass(wanted):
        return partial(_dataclass, wanted)
    return partial(_atom, wanted)


def _as_it_is(plain: Value, pointer: str) -> Value:
    return plain


def _literal(choices: tuple[object, ...], plain: Value, pointer: str) -> Value:
    expected = ", ".join(map(str, choices))
    return _expect(plain in choices, plain, pointer, f"one of {expected}")


def _tuple(reader: _Reader, plain: Value, pointer: str) -> tuple[Value, ...]:
    _expect(isinstance(plain, list), plain, pointer, "a list")
    return tuple([reader(item, f"{pointer}/{i}") for i, item in enumerate(plain)])


def _mapping(reader: _Reader, plain: Value, pointer: str) -> dict[str, Value]:
    _expect(isinstance(plain, dict), plain, pointer, "an object")
    return {key: reader(item, f"{pointer}/{key}") for key, item in plain.items()}


def _atom(wanted: Wanted, plain: Value, pointer: str) -> Value:
    if wanted is None or wanted is type(None):
        return _expect(plain is None, plain, pointer, "null")
    if wanted is float:
        return float(_expect(_is_a(int | float, plain), plain, pointer, "a number"))
    return _expect(_is_a(wanted, plain), plain, pointer, wanted.__name__)


def _is_a(wanted: Wanted, plain: object) -> bool:
    """Whether a value is of a type. To Python, a bool is an int: it fits nothing but bool."""
    if isinstance(plain, bool):
        return wanted is bool
    return isinstance(plain, wanted)


def canonical(value: Value) -> str:
    """Return one text for one value, from which fingerprints are made."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(value: Value) -> str:
    """Return a short name for exactly this value."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _without_defaults(value: Value) -> tuple[Value, ...]:
    """Return a named tuple's values, without those at its end that are the defaults."""
    names, defaults, count = value._fields, value._field_defaults, len(value)
    if not defaults:
        return tuple(value)
    while count:
        name = names[count - 1]
        if name not in defaults or value[count - 1] != defaults[name]:
            break
        count -= 1
    return tuple(value[:count])


def _expect(fits: bool, plain: Value, pointer: str, expected: str) -> Value:
    if not fits:
        raise Misfit(pointer, f"expected {expected}, found {json.dumps(plain, default=str)[:80]}")
    return plain


@cache
def _readers(wanted: type) -> dict[str, _Reader]:
    """Return the readers of the fields of a class."""
    hints = typing.get_type_hints(wanted)
    return {name: _reading(hint) for name, hint in hints.items()}


@cache
def _field_names(wanted: type) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of a dataclass's fields, and of those without a default."""
    missing, needed = dataclasses.MISSING, []
    fields = dataclasses.fields(wanted)
    for field in fields:
        if field.default is missing and field.default_factory is missing:
            needed.append(field.name)
    return frozenset(field.name for field in fields), tuple(needed)


def read_fields(
    wanted: type[T], plain: object, pointer: str = "", done: Mapping[str, object] = NOTHING
) -> T:
    """Read a dataclass by its fields, whatever its `from_plain`. The caller has read `done`."""
    read: T = _dataclass(wanted, plain, pointer, done)
    return read


def _dataclass(
    wanted: Wanted, plain: Value, pointer: str, done: Mapping[str, object] = NOTHING
) -> Value:
    _expect(isinstance(plain, dict), plain, pointer, f"a {wanted.__name__}")
    names, needed = _field_names(wanted)
    unknown = sorted(plain.keys() - names - {"kind"})
    if unknown:
        raise Misfit(pointer, f"{wanted.__name__} has no {unknown[0]!r}")
    readers = _readers(wanted)
    values = {}
    for name, item in plain.items():
        if name in done:
            values[name] = done[name]
        elif name in names:
            values[name] = readers[name](item, f"{pointer}/{name}")
    for name in needed:
        if name not in values:
            raise Misfit(pointer, f"{wanted.__name__} needs {name!r}")
    return wanted(**values)


def _named_tuple(wanted: Wanted, plain: Value, pointer: str) -> Value:
    names = wanted._fields
    most = len(names)
    least = most - len(wanted._field_defaults)
    fits = isinstance(plain, list) and least <= len(plain) <= most
    count = f"{most}" if least == most else f"{least} to {most}"
    _expect(fits, plain, pointer, f"a list of {count}")
    readers, values = _readers(wanted), []
    for name, kind, item in zip(names, _atoms_of(wanted), plain, strict=False):
        if type(item) is not kind:  # most are numbers and text as they are
            item = readers[name](item, f"{pointer}/{name}")
        values.append(item)
    return wanted(*values)


@cache
def _atoms_of(wanted: Wanted) -> tuple[object, ...]:
    """Return the type of each field of a named tuple, if it is str or int; else None."""
    hints = typing.get_type_hints(wanted)
    return tuple(hints[name] if hints[name] in (str, int) else None for name in wanted._fields)


def _one_of(
    choices: tuple[Wanted, ...], readers: tuple[_Reader, ...], plain: Value, pointer: str
) -> Value:
    """Read one of several types: dataclasses by `kind`, other types by the first that fits."""
    if isinstance(plain, dict) and "kind" in plain:
        kind = plain["kind"]
        for choice in choices:
            if dataclasses.is_dataclass(choice) and getattr(choice, "kind", None) == kind:
                return _dataclass(choice, plain, pointer)
        raise Misfit(pointer, f"unknown kind {kind!r}")
    if plain is None and type(None) in choices:
        return None
    problems = []
    for reader in readers:
        try:
            return reader(plain, pointer)
        except Misfit as problem:
            problems.append(problem)
    raise problems[-1]
