"""The words in which keys are declared, each key once: reader, writer, JSON Schema and pages are
made from these tables.

    Kind    a kind of value: how it is read, and its JSON Schema
    Key     one key: its kind, its sentence, and the field of the model that it fills
    Keys    the keys of one kind of object, found by any spelling
    Reader  reads the places of a spec by these, and goes on after every complaint

A spelling is *folded* before it is looked up: lower case, without blanks, underscores and hyphens.
`merge_jobs`, `mergeJobs`, `Merge Jobs` and `MERGE-JOBS` are one key. The rows IS-1, IS-2 and IF-1
give INFORE's keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from stateshift.specification.grammars import fold
from stateshift.specification.location import Storages
from stateshift.specification.place import Complaints, Place, quote, readable
from stateshift.suggestion import closest, suggest

T = TypeVar("T")
Engine = Literal["spark", "flink"]
Schema = dict[str, Any]
# The values of an object, by the fields that they fill: each of the type that its key's kind has.
Values = dict[str, Any]
NamesAdded = Callable[[str], Collection[str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `read` returns the model's value, or complains and returns None."""

    name: str
    read: Callable[[Reader, Key, Place], object]
    schema: Schema
    shared: bool = False

    def __call__(self, about: str, **more: Any) -> Key:
        """Return a key of this kind. `Key` has the names of `more`."""
        return Key(self, about, **more)


@dataclass(frozen=True, slots=True)
class Key:
    """`also` are other names of it, `aliases` those of its choices; `engine` the one that alone
    knows it, `hints_at` one it suggests where the spec does not name its engine; `blank_is_off` is
    INFORE's way to leave a key out; `for_all` may stand beside `jobs`; `added_by` is the group of
    entry points by which installed packages add choices. `implied`: where the key is left out,
    other keys decide, so that it has no default.
    """

    kind: Kind
    about: str
    name: str = ""
    of: type | None = None
    field: str | None = None
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    engine: Engine | None = None
    hints_at: Engine | None = None
    blank_is_off: bool = False
    for_all: bool = False
    added_by: str | None = None
    implied: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def default(self) -> object:
        """The value for a key that is left out; MISSING where it must be given."""
        if self.of is None or self.field is None:
            return dataclasses.MISSING
        model = {f.name: f for f in dataclasses.fields(self.of)}[self.field]
        made = model.default_factory
        return model.default if made is dataclasses.MISSING else made()

    def fills(self, model: type) -> bool:
        """Whether the value goes into a field of this model."""
        return self.of is model and self.field is not None

    def is_off(self, value: object) -> bool:
        """Whether the key counts as left out where it has this value."""
        if value is None:
            return True
        is_blank = value == [] or (isinstance(value, str) and not value.strip())
        return self.blank_is_off and is_blank


class Keys:
    """The keys of one kind of object. A key fills the field of `model` that has its name, unless it
    names another. `others` are keys of other tables, which stand behind them.
    """

    def __init__(self, model: type | None, /, *others: Key, **keys: Key) -> None:
        fields = {field.name for field in dataclasses.fields(model)} if model else set()
        named = []
        for name, key in keys.items():
            field = key.field or (name if name in fields else None)
            named.append(replace(key, name=name, of=model, field=field))
        self.model = model
        self.all = (*named, *others)
        self._folded: dict[str, Key] = {}
        for key in self.all:
            self._folded |= dict.fromkeys(map(fold, key.names), key)

    def __getitem__(self, name: str) -> Key:
        return self._folded[fold(name)]

    def find(self, spelling: str) -> Key | None:
        return self._folded.get(fold(spelling))

    def filling(self, model: type) -> list[Key]:
        """Return the keys that fill a field of a model."""
        return [key for key in self.all if key.fills(model)]

    def fields_of(self, model: type, values: Values) -> Values:
        """Return the values of the keys that fill a model, by its field names."""
        fields = {}
        for key in self.filling(model):
            value = values.get(key.name)
            if key.field is not None and value is not None:
                fields[key.field] = value
        return fields

    def did_you_mean(self, spelling: str) -> str:
        """Return the suggestion of a key, whatever is between its words."""
        match = closest(fold(spelling), self._folded)
        return suggest(None if match is None else self._folded[match].name)


def loosely(name: str) -> str:
    """Return a pattern of all spellings that are folded alike."""
    pattern = ""
    for letter in name:
        pattern += "[ _-]*" if letter in "_-" else f"[{letter.upper()}{letter}]"
    return pattern


def reference(name: str) -> Schema:
    """Return the schema that stands under `$defs`."""
    return {"$ref": f"#/$defs/{name}"}


def either(*schemas: Schema) -> Schema:
    """Return the schema of values of any of these."""
    return {"anyOf": list(schemas)}


def array(items: Schema, **more: int) -> Schema:
    """Return the schema of lists."""
    return {"type": "array", "items": items, **more}


def map_to(values: Schema) -> Schema:
    """Return the schema of objects with any keys."""
    return {"type": "object", "additionalProperties": values}


def present(items: Iterable[T | None]) -> tuple[T, ...]:
    """Return the items that could be read: all but None."""
    return tuple(item for item in items if item is not None)


def nothing_added(group: str) -> Collection[str]:
    """Return the names that a machine without further packages adds to a group of choices."""
    return ()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads on after every complaint. `base`: where relative locations start; `names_added`: the
    choices of installed packages; `meant`: the hint for an unknown spelling; `storages`: those of a
    profile.
    """

    complaints: Complaints
    base: str | None = None
    names_added: NamesAdded = nothing_added
    meant: Callable[[Keys, str], str] = Keys.did_you_mean
    storages: Storages | None = None

    def known(self, place: Place, keys: Keys) -> dict[str, Place]:
        """Return the places of an object whose every key has to be in `keys`."""
        known, rest = self.split(place, keys)
        for unknown in rest:
            names = ", ".join(key.name for key in keys.all)
            # The value is not repeated: nobody knows what it is.
            below = Place(readable(unknown), (place / unknown).pointer)
            message = f"unknown key {unknown!r}{self.meant(keys, unknown)}"
            self.complaints.add(below, message, f"one of {names}")
        return known

    def known_with(self, place: Place, keys: Keys, *needed: str) -> dict[str, Place] | None:
        """Return the same; None, after a complaint, where it is no object or lacks a needed key."""
        known = self.known(place, keys)
        is_whole = isinstance(place.value, dict) and self.need(place, known, *needed)
        return known if is_whole else None

    def split(self, place: Place, keys: Keys) -> tuple[dict[str, Place], list[str]]:
        """Return the places of known keys, without null and blank ones; and the other spellings."""
        if not self.is_a(place, dict, "an object"):
            return {}, []
        known: dict[str, Place] = {}
        first: dict[str, str] = {}
        rest = []
        for spelling in place.value:
            key = keys.find(spelling)
            if key is None:
                rest.append(spelling)
            elif key.name in first:
                message = f"{first[key.name]!r} and {spelling!r} are the same key"
                self.complaints.add(place / spelling, message, "one of them")
            else:
                first[key.name] = spelling
                if not key.is_off(place.value[spelling]):
                    known[key.name] = place / spelling
        return known, rest

    def fields(self, keys: Keys, known: Mapping[str, Place]) -> Values:
        """Return the values of `known` that could be read, by the model's field names."""
        values = {}
        for name, place in known.items():
            key = keys[name]
            value = self.value(key, place)
            if value is not None:
                values[key.field or name] = value
        return values

    def object(self, keys: Keys, place: Place, *needed: str) -> Values | None:
        """Return an object's values by field names; None if it lacks a needed one."""
        known = self.known_with(place, keys, *needed)
        fields = {} if known is None else self.fields(keys, known)
        return fields if known is not None and set(needed) <= fields.keys() else None

    def value(self, key: Key, place: Place) -> Any:
        return key.kind.read(self, key, place)

    def need(self, place: Place, known: Iterable[str], *names: str) -> bool:
        """Whether all these keys are there; one complaint for each that is not."""
        missing = [name for name in names if name not in known]
        for name in missing:
            self.complaints.add(place, f"{name!r} is missing", f"an object with {name!r}")
        return not missing

    def is_a(self, place: Place, wanted: type, expected: str) -> bool:
        # To Python, a bool is an int.
        is_odd_bool = isinstance(place.value, bool) and wanted is not bool
        if isinstance(place.value, wanted) and not is_odd_bool:
            return True
        self.refuse(place, expected)
        return False

    def items(self, place: Place, expected: str) -> list[Place]:
        """Return the places of a list; none, after a complaint, of anything else."""
        return list(place.items) if self.is_a(place, list, expected) else []

    def named(self, place: Place, what: str) -> Iterator[tuple[str | None, Place]]:
        """Yield the objects of a list, or of a map by name, each with the map's name."""
        if isinstance(place.value, list):
            yield from ((None, item) for item in place.items)
        elif self.is_a(place, dict, f"a list of {what}, or a map of them by name"):
            for name in place.value:
                if not name.strip():
                    self.complaints.add(place / name, "a blank name", "a name")
                yield name, place / name

    def name_of(
        self, place: Place, given: str | None, known: Mapping[str, Place], key: Key
    ) -> str | None:
        """Return the name in the object, or the map's; both only where they agree."""
        inner: str | None = self.value(key, known["name"]) if "name" in known else None
        if given is None:
            self.need(place, known, "name")
            return inner
        if inner not in (None, given):
            message = f"the map calls it {given!r}"
            self.complaints.add(known["name"], message, f"{given!r}, or no name here")
        return given

    def refuse(self, place: Place, expected: str) -> None:
        """Complain that the place holds something else; its value is then None."""
        self.complaints.add(place, f"{quote(place.value)} is not {expected}", expected)
