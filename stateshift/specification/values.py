"""Single values as a spec spells them, and the keys of one object.

    Reader.known(place, keys)  the object's places by canonical key; unknown and doubled keys are
                               complaints
    Reader.value(key, place)   the value the model holds; None where it is none, after a complaint

Leniency that loses nothing: "true" for true, "8081" for 8081, "a, b" for ["a", "b"], null for a key
left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from stateshift.specification import strategy, warm
from stateshift.specification.keys.homes import home_of, part_of
from stateshift.specification.keys.key import Key, Keys, fold
from stateshift.specification.location import NoLocation, normal
from stateshift.specification.place import Complaints, Place, quoted, readable

_NUMBER_MAX = 1e15
_INTEGER = re.compile(r"\s*-?[0-9]{1,16}\s*\Z")
_DECIMAL = re.compile(r"\s*[0-9]{1,16}(\.[0-9]{1,16})?\s*\Z")
_HOST_PORT = re.compile(r"(?:[^\s:/@,\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})\Z")
_CONNECTION = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)?(?P<hosts>[^/]*)(?P<path>/\S*)?\Z"
)
WEB = ("http://", "https://")
_CONTROL = re.compile(r"[\x00-\x1f\x7f/\\]")
_NAME_BYTES_MAX = 255


# What was read of an object, by the field it fills: each of the type that its key's kind says.
Values = dict[str, Any]
NamesAdded = Callable[[str], Collection[str]]


def nothing_added(group: str) -> Collection[str]:
    """Return what a machine without further packages adds to a group of choices."""
    return ()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads on after every complaint. `base` is where relative locations start; `names_added` gives
    the names that installed packages add to a group of choices.
    """

    complaints: Complaints
    base: str | None = None
    names_added: NamesAdded = nothing_added

    def known(self, place: Place, keys: Keys) -> dict[str, Place]:
        """Return the places of an object whose every key has to be in `keys`."""
        known, rest = self.split(place, keys)
        for unknown in rest:
            self._unknown(place, unknown, keys)
        return known

    def split(self, place: Place, keys: Keys) -> tuple[dict[str, Place], list[str]]:
        """Return the places of the keys in `keys`, and the spellings of all others. What is null or
        blank is left out.
        """
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
                if not _is_off(key, place.value[spelling]):
                    known[key.name] = place / spelling
        return known, rest

    def fields(self, keys: Keys, known: Mapping[str, Place]) -> Values:
        """Return what `known` says, by the model's field names; what could not be read is left
        out.
        """
        values = {}
        for name, place in known.items():
            key = keys[name]
            value = self.value(key, place)
            if value is not None:
                values[key.field or name] = value
        return values

    def value(self, key: Key, place: Place) -> Any:
        return _READ[key.kind](self, key, place)

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

    def refuse(self, place: Place, expected: str) -> None:
        """Complain that the place holds something else; what is read there is then None."""
        self.complaints.add(place, f"{quoted(place.value)} is not {expected}", expected)

    def _unknown(self, place: Place, spelling: str, keys: Keys) -> None:
        hint = _meant(spelling, keys)
        names = ", ".join(key.name for key in keys.all)
        # The value is not repeated: nobody knows what it is.
        below = Place(readable(spelling), (place / spelling).pointer)
        self.complaints.add(below, f"unknown key {spelling!r}{hint}", f"one of {names}")


def _meant(spelling: str, keys: Keys) -> str:
    """Return where a spelling belongs, or which of the keys here is close to it."""
    near = keys.did_you_mean(spelling)
    is_part_of_near = fold(spelling) in fold(near)  # `location` of remote_location
    home = home_of(spelling, keys)
    if home is None and not is_part_of_near:
        home = part_of(spelling, keys)
    return near if home is None else f", which belongs {home}"


def _is_off(key: Key, value: object) -> bool:
    """Whether a key counts as left out."""
    if value is None:
        return True
    is_blank = value == [] or (isinstance(value, str) and not value.strip())
    return key.blank_is_off and is_blank


def _boolean(reader: Reader, key: Key, place: Place) -> bool | None:
    if isinstance(place.value, bool):
        return place.value
    word = place.value.strip().lower() if isinstance(place.value, str) else ""
    if word in ("true", "false"):
        return word == "true"
    reader.refuse(place, "true or false")
    return None


def _text(reader: Reader, key: Key, place: Place) -> str | None:
    if is_text(place.value):
        return place.value
    reader.refuse(place, "text (and not blank)")
    return None


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text, and not a blank one."""
    return isinstance(value, str) and bool(value.strip())


def _choice(reader: Reader, key: Key, place: Place) -> str | None:
    choice = _choice_spelled(key, place.value)
    if choice is not None:
        return choice
    added = _choices_added(reader, key)
    if place.value in added:
        return str(place.value)
    reader.refuse(place, f"one of {', '.join((*key.choices, *added))}")
    return None


def _choice_spelled(key: Key, value: object) -> str | None:
    """Return the choice that a text spells, in whatever way."""
    if not isinstance(value, str):
        return None
    spelled = {fold(choice): choice for choice in key.choices}
    for alias, choice in key.aliases.items():
        spelled[fold(alias)] = choice
    return spelled.get(fold(value))


def _choices_added(reader: Reader, key: Key) -> Collection[str]:
    """Return what installed packages add to the choices of a key."""
    return reader.names_added(key.added_by) if key.added_by else ()


def _whole(reader: Reader, place: Place, low: float, high: float, expected: str) -> int | None:
    number = _integer_of(place.value)
    if number is not None and low <= number <= high:
        return number
    reader.refuse(place, expected)
    return None


def _integer_of(value: object) -> int | None:
    """Return the integer that a number or a text holds; None where it is none."""
    if isinstance(value, str) and _INTEGER.match(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _integer(reader: Reader, key: Key, place: Place) -> int | None:
    return _whole(reader, place, -_NUMBER_MAX, _NUMBER_MAX, "an integer")


def _count(reader: Reader, key: Key, place: Place) -> int | None:
    return _whole(reader, place, 1, _NUMBER_MAX, "an integer of at least 1")


def _until(reader: Reader, key: Key, place: Place) -> str | None:
    read = warm.normal_until(place.value) if isinstance(place.value, str) else None
    if read is None:
        reader.refuse(place, "a time that may remain: remaining < 5s")
    return read


def _cutover(reader: Reader, key: Key, place: Place) -> str | None:
    read = warm.normal_cutover(place.value) if isinstance(place.value, str) else None
    if read is None:
        reader.refuse(
            place, "ready, manual, never, or hours of the day: 22:00-04:30 or 22:00-04:30 UTC"
        )
    return read


def _strategy(reader: Reader, key: Key, place: Place) -> str | None:
    read = strategy.normal_strategy(place.value) if isinstance(place.value, str) else None
    if read is None:
        reader.refuse(place, strategy.EXPECTED)
    return read


def _batch(reader: Reader, key: Key, place: Place) -> int | None:
    return _whole(reader, place, 0, _NUMBER_MAX, "an integer from 0 on")


def _port(reader: Reader, key: Key, place: Place) -> int | None:
    return _whole(reader, place, 1, 65535, "a port, from 1 to 65535")


def _number(reader: Reader, key: Key, place: Place) -> float | None:
    number = _number_of(place.value)
    if number is not None and 0 < number <= _NUMBER_MAX:
        return float(number)
    reader.refuse(place, f"a number above 0, and {_NUMBER_MAX:g} at most")
    return None


def _amount(reader: Reader, key: Key, place: Place) -> float | None:
    return _bounded(reader, place, _NUMBER_MAX, f"a number from 0 to {_NUMBER_MAX:g}")


def _share(reader: Reader, key: Key, place: Place) -> float | None:
    share = _bounded(reader, place, 1.0, "a number above 0, and 1 at most")
    if share == 0:
        reader.refuse(place, "a number above 0, and 1 at most")
        return None
    return share


def _bounded(reader: Reader, place: Place, high: float, expected: str) -> float | None:
    number = _number_of(place.value)
    if number is not None and 0 <= number <= high:
        return float(number)
    reader.refuse(place, expected)
    return None


_DURATION = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([a-z]*)\s*\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _duration(reader: Reader, key: Key, place: Place) -> float | None:
    """Read seconds, or a text such as `90s`, `15 min`, `1h`, `1d`."""
    seconds = _seconds_of(place.value)
    if seconds is not None and 0 <= seconds <= _NUMBER_MAX:
        return seconds
    reader.refuse(place, "a duration, such as 300, 15min or 1h")
    return None


def _seconds_of(value: object) -> float | None:
    if not isinstance(value, str):
        number = _number_of(value)
        return None if number is None else float(number)
    parts = _DURATION.match(value.lower())
    unit = None if parts is None else _SECONDS.get(parts[2] or "s")
    if parts is None or unit is None:
        return None
    return float(parts[1]) * unit


_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(?:i?b)?\s*\Z")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def size_of(text: str) -> int | None:
    """Return the bytes of `64g`, as Spark and the JVM spell memory; None for anything else."""
    parts = _SIZE.match(text.lower())
    if parts is None:
        return None
    return int(float(parts[1]) * 1024 ** _POWERS[parts[2]])


def _size(reader: Reader, key: Key, place: Place) -> int | None:
    value = place.value
    size = size_of(value) if isinstance(value, str) else _integer_of(value)
    if size is not None and 0 < size <= _NUMBER_MAX:
        return size
    reader.refuse(place, "a size in bytes, or such as 64g")
    return None


def _number_of(value: object) -> float | None:
    """Return the number that a number or a text holds; None where it is none."""
    if isinstance(value, str) and _DECIMAL.match(value):
        return float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _connection(reader: Reader, key: Key, place: Place) -> str | None:
    """Read host:port, or a URL of one or (as Spark's masters have it) several of them."""
    text = place.value.strip() if isinstance(place.value, str) else ""
    if _is_connection(text):
        return text
    reader.refuse(place, "host:port or scheme://host:port, with a port from 1 to 65535")
    return None


def _is_connection(text: str) -> bool:
    parts = _CONNECTION.match(text)
    if parts is None:
        return False
    hosts = parts["hosts"].split(",")
    if parts["scheme"] is None and (parts["path"] or len(hosts) > 1):
        return False
    return all(map(is_host_port, hosts))


def is_host_port(text: str) -> bool:
    """Whether this is a host, or an address in brackets, and a port."""
    match = _HOST_PORT.match(text)
    return match is not None and 1 <= int(match["port"]) <= 65535


def _page(reader: Reader, key: Key, place: Place) -> str | None:
    """Read the URL of a page. What is none may be a password from its first letter on, and is not
    repeated.
    """
    if isinstance(place.value, str) and place.value.startswith(WEB):
        return place.value
    expected = f"a URL that begins with {' or '.join(WEB)}, such as http://driver:4040"
    reader.complaints.add(Place("***", place.pointer), f"it is not {expected}", expected)
    return None


def _location(reader: Reader, key: Key, place: Place) -> str | None:
    if not is_text(place.value):
        reader.refuse(place, "a location: a URL or a path")
        return None
    try:
        return normal(place.value, reader.base)
    except NoLocation as problem:
        reader.refuse(place, str(problem))
        return None


def _list(reader: Reader, place: Place) -> list[Place]:
    """Return the places of a list, or of the parts of one text with commas."""
    if isinstance(place.value, str):
        parts = filter(None, map(str.strip, place.value.split(",")))
        return [Place(part, place.pointer) for part in parts]
    if reader.is_a(place, list, "a list, or one text with commas"):
        return list(place.items)
    return []


def _locations(reader: Reader, key: Key, place: Place) -> tuple[str, ...]:
    read = [_location(reader, key, item) for item in _list(reader, place)]
    return tuple(location for location in read if location is not None)


def _texts(reader: Reader, key: Key, place: Place) -> tuple[str, ...]:
    texts: list[str] = []
    for item in _list(reader, place):
        text = _text(reader, key, item)
        _refuse_second(reader, item, text, texts)
        if text is not None:
            texts.append(text)
    return tuple(texts)


def _refuse_second(reader: Reader, place: Place, text: str | None, before: Collection[str]) -> bool:
    """Complain of a text that stands before this place already; return whether it does."""
    is_second = text in before
    if is_second:
        reader.complaints.add(place, f"{text!r} stands twice", "each once")
    return is_second


def _environment(reader: Reader, key: Key, place: Place) -> dict[str, str]:
    if not reader.is_a(place, dict, "an object of names and texts"):
        return {}
    for name in place.value:
        _check_variable(reader, place / name, name)
    return {
        name: text for name, text in place.value.items() if reader.is_a(place / name, str, "text")
    }


def _check_variable(reader: Reader, place: Place, name: str) -> None:
    """Complain of a name that no variable of an environment can have."""
    if not name or "=" in name:
        message = f"{name!r} is no variable's name"
        reader.complaints.add(place, message, "a name without =")


def _directory(reader: Reader, key: Key, place: Place) -> str | None:
    """Read one name that stays where it is put: no way up, nothing hidden, nothing of ours."""
    expected = _expected_of_directory(place.value)
    if expected is None:
        return str(place.value)
    reader.refuse(place, expected)
    return None


def _expected_of_directory(name: object) -> str | None:
    """Return what was expected instead of this name; None where it will do."""
    if not is_text(name) or name.startswith((".", "_stateshift")):
        return "the name of one directory, not hidden"
    if _CONTROL.search(name) or len(name.encode()) > _NAME_BYTES_MAX:
        return "the name of one directory, without slashes"
    return None


# What Spark and stateshift themselves keep directly below a checkpoint.
ENGINES_OWN = ("metadata", "offsets", "commits", "state", "sources", "_stateshift")


def _folders(reader: Reader, key: Key, place: Place) -> tuple[str, ...]:
    """Read paths that stay below the checkpoint, each once, without the slash at its end."""
    paths: list[str] = []
    for item in _list(reader, place):
        path = _below_checkpoint(reader, item)
        is_second = _refuse_second(reader, item, path, paths)
        if path is not None and not is_second:
            paths.append(path)
    return tuple(paths)


def _below_checkpoint(reader: Reader, place: Place) -> str | None:
    text = place.value
    if not is_text(text):
        reader.refuse(place, _BELOW)
        return None
    names = text.removesuffix("/").split("/")
    if not _stays_below(names):
        reader.refuse(place, _BELOW)
        return None
    if names[0] in ENGINES_OWN:
        message = f"{names[0]!r} is the engine's own: what a restart needs of it is taken anyway"
        reader.complaints.add(place, message, _BELOW)
        return None
    return "/".join(names)


def _stays_below(names: list[str]) -> bool:
    """Whether the names of a path lead down: none is empty or a dot, and it is no URL."""
    if {"", ".", ".."}.intersection(names) or ":" in names[0]:
        return False
    return not any("\0" in name for name in names)


_BELOW = "a path below the checkpoint, such as mine/"


def _version(reader: Reader, key: Key, place: Place) -> int | None:
    return _whole(reader, place, 1, 1, "1, the version that this stateshift reads")


_READ: dict[str, Callable[[Reader, Key, Place], object]] = {
    "boolean": _boolean,
    "text": _text,
    "texts": _texts,
    "choice": _choice,
    "integer": _integer,
    "count": _count,
    "batch": _batch,
    "until": _until,
    "cutover": _cutover,
    "strategy": _strategy,
    "number": _number,
    "amount": _amount,
    "share": _share,
    "duration": _duration,
    "size": _size,
    "port": _port,
    "connection": _connection,
    "page": _page,
    "location": _location,
    "locations": _locations,
    "environment": _environment,
    "directory": _directory,
    "folders": _folders,
    "version": _version,
}
