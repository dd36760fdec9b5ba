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
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
NOTHING: Mapping[str, object] = types.MappingProxyType({})


class Misfit(ValueError):
    """A plain value does not fit the type it is read as."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer or '/'}: {message}")


def to_plain(value: Any) -> Any:
    """Dataclasses become dictionaries (with their `kind`, where they have one), tuples become
    lists.
    """
    kind: type = type(value)
    return value if kind in _ATOMS else _making(kind)(value)


_ATOMS = frozenset((str, int, float, bool, type(None)))


@cache
def _making(kind: Any) -> Callable[[Any], Any]:
    """How values of a type are made plain: found out once, since a large plan has a hundred
    thousand of one type.
    """
    if hasattr(kind, "to_plain"):
        return lambda value: value.to_plain()
    if dataclasses.is_dataclass(kind):
        names, told = tuple(f.name for f in dataclasses.fields(kind)), getattr(kind, "kind", None)
        head = {"kind": told} if isinstance(told, str) else {}
        return lambda value: head | {name: to_plain(getattr(value, name)) for name in names}
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return lambda value: [
            item if type(item) in _ATOMS else to_plain(item) for item in _told(value)
        ]
    if issubclass(kind, tuple | list):
        return lambda value: [item if type(item) in _ATOMS else to_plain(item) for item in value]
    if issubclass(kind, Mapping):
        return lambda value: {str(key): to_plain(item) for key, item in value.items()}
    return lambda value: value


def from_plain(wanted: Any, plain: Any, pointer: str = "") -> Any:
    """Read `plain` as the annotated type `wanted`; the inverse of `to_plain`."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any or wanted is object:
        return plain
    if origin in (typing.Union, types.UnionType):
        return _one_of(arguments, plain, pointer)
    if origin is typing.Literal:
        return _expect(
            plain in arguments, plain, pointer, f"one of {', '.join(map(str, arguments))}"
        )
    if origin is tuple:
        _expect(isinstance(plain, list), plain, pointer, "a list")
        return tuple(
            from_plain(arguments[0], item, f"{pointer}/{i}") for i, item in enumerate(plain)
        )
    if origin in (dict, Mapping) or wanted in (dict, Mapping):
        _expect(isinstance(plain, dict), plain, pointer, "an object")
        item_type = arguments[1] if arguments else Any
        return {key: from_plain(item_type, item, f"{pointer}/{key}") for key, item in plain.items()}
    if isinstance(wanted, type) and issubclass(wanted, tuple) and hasattr(wanted, "_fields"):
        return _named_tuple(wanted, plain, pointer)
    if hasattr(wanted, "from_plain"):
        return wanted.from_plain(plain, pointer)
    if dataclasses.is_dataclass(wanted):
        return _dataclass(wanted, plain, pointer)
    if wanted is None or wanted is type(None):
        return _expect(plain is None, plain, pointer, "null")
    if wanted is float:
        _expect(
            isinstance(plain, int | float) and not isinstance(plain, bool),
            plain,
            pointer,
            "a number",
        )
        return float(plain)
    right = isinstance(plain, wanted) and (wanted is bool or not isinstance(plain, bool))
    return _expect(right, plain, pointer, wanted.__name__)


def canonical(value: Any) -> str:
    """One text for one value: what fingerprints are taken of."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(value: Any) -> str:
    """A short name for exactly this value."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _told(value: Any) -> tuple[Any, ...]:
    """A named tuple's values, without those at its end that need not be said."""
    names, defaults, said = value._fields, value._field_defaults, len(value)
    while said and names[said - 1] in defaults and value[said - 1] == defaults[names[said - 1]]:
        said -= 1
    return tuple(value[:said])


def _expect(right: bool, plain: Any, pointer: str, expected: str) -> Any:
    if not right:
        raise Misfit(pointer, f"expected {expected}, found {json.dumps(plain, default=str)[:80]}")
    return plain


@cache
def _hints(wanted: type) -> dict[str, Any]:
    return typing.get_type_hints(wanted)


def read_fields(
    wanted: type[T], plain: object, pointer: str = "", done: Mapping[str, object] = NOTHING
) -> T:
    """Read a dataclass by its fields, also one that has a `from_plain` of its own. What the caller
    has read himself is `done`.
    """
    read: T = _dataclass(wanted, plain, pointer, done)
    return read


def _dataclass(wanted: Any, plain: Any, pointer: str, done: Mapping[str, object] = NOTHING) -> Any:
    _expect(isinstance(plain, dict), plain, pointer, f"a {wanted.__name__}")
    fields = {f.name: f for f in dataclasses.fields(wanted)}
    unknown = sorted(set(plain) - set(fields) - {"kind"})
    if unknown:
        raise Misfit(pointer, f"{wanted.__name__} has no {unknown[0]!r}")
    hints = _hints(wanted)
    values = {
        n: done[n] if n in done else from_plain(hints[n], item, f"{pointer}/{n}")
        for n, item in plain.items()
        if n in fields
    }
    missing = [
        name
        for name, f in fields.items()
        if name not in values
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise Misfit(pointer, f"{wanted.__name__} needs {missing[0]!r}")
    return wanted(**values)


def _named_tuple(wanted: Any, plain: Any, pointer: str) -> Any:
    names = wanted._fields
    least = len(names) - len(wanted._field_defaults)
    right = isinstance(plain, list) and least <= len(plain) <= len(names)
    _expect(
        right,
        plain,
        pointer,
        f"a list of {least if least == len(names) else f'{least} to {len(names)}'}",
    )
    hints = _hints(wanted)
    return wanted(
        *(
            from_plain(hints[n], item, f"{pointer}/{n}")
            for n, item in zip(names, plain, strict=False)
        )
    )


def _one_of(choices: tuple[Any, ...], plain: Any, pointer: str) -> Any:
    """Dataclasses are told apart by `kind`; everything else by what fits first."""
    if isinstance(plain, dict) and "kind" in plain:
        for choice in choices:
            if dataclasses.is_dataclass(choice) and getattr(choice, "kind", None) == plain["kind"]:
                return _dataclass(choice, plain, pointer)
        raise Misfit(pointer, f"unknown kind {plain['kind']!r}")
    problems = []
    for choice in choices:
        try:
            return from_plain(choice, plain, pointer)
        except Misfit as problem:
            problems.append(problem)
    raise problems[-1]
