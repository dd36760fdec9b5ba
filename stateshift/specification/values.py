"""Kinds of single values as a spec spells them, each with its schema.

    BOOLEAN, TEXT, CHOICE          true; text; one of a few words
    INTEGER … SIZE                 numbers, each with its bounds
    UNTIL, CUTOVER, STRATEGY, WAY  words with a grammar of their own
    LOCATION … FOLDERS, VERSION    places, names and lists of them

Leniency that loses nothing: "true" for true, "8081" for 8081, "a, b" for ["a", "b"], null for a key
left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeGuard

from stateshift.specification.grammars import (
    EXCLUDED_EXPECTED,
    MANUAL,
    NEVER,
    READY,
    STRATEGY_EXPECTED,
    WAYS_EXPECTED,
    fold,
    normal_cutover,
    normal_excluded,
    normal_strategy,
    normal_until,
    normal_way,
)
from stateshift.specification.key import (
    Key,
    Keys,
    Kind,
    Reader,
    Schema,
    array,
    either,
    loosely,
    map_to,
    present,
)
from stateshift.specification.location import NoLocation, normal
from stateshift.specification.place import Place

Read = Callable[[Reader, Key, Place], object]

_NUMBER_MAX = 1e15
_INTEGER = re.compile(r"\s*-?[0-9]{1,19}\s*\Z")
_DECIMAL = re.compile(r"\s*[0-9]{1,16}(\.[0-9]{1,16})?\s*\Z")
_DURATION = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([a-z]*)\s*\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(?:i?b)?\s*\Z")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_HOST_PORT = re.compile(r"(?:[^\s:/@,\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})\Z")
_CONNECTION = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)?(?P<hosts>[^/]*)(?P<path>/\S*)?\Z"
)
WEB = ("http://", "https://")
_CONTROL = re.compile(r"[\x00-\x1f\x7f/\\]")
_NAME_BYTES_MAX = 255
# Folders that Spark and stateshift themselves keep directly below a checkpoint.
ENGINES_OWN = ("metadata", "offsets", "commits", "state", "sources", "_stateshift")


# -------------------------------------------------------------------------- reading


def single(parse: Callable[[object], object], expected: str) -> Read:
    """Return a reader of values that `parse` understands; it returns None for all others."""

    def read(reader: Reader, key: Key, place: Place) -> object:
        value = parse(place.value)
        if value is None:
            reader.refuse(place, expected)
        return value

    return read


def spelling(normalize: Callable[[str], str | None], expected: str) -> Read:
    """Return a reader of texts that have one normal spelling."""
    return single(lambda value: normalize(value) if isinstance(value, str) else None, expected)


def as_it_stands(reader: Reader, key: Key, place: Place) -> object:
    """Return a value that somebody else reads."""
    return place.value


def each(read: Read) -> Read:
    """Return a reader of lists, or of one text with commas, whose items `read` reads."""

    def read_all(reader: Reader, key: Key, place: Place) -> tuple[object, ...]:
        return present(read(reader, key, item) for item in list_at(reader, place))

    return read_all


def each_once(read: Read) -> Read:
    """Return a reader of lists whose items have to differ."""

    def read_all(reader: Reader, key: Key, place: Place) -> tuple[object, ...]:
        values: list[object] = []
        for item in list_at(reader, place):
            value = read(reader, key, item)
            if value in values:
                reader.complaints.add(item, f"{value!r} stands twice", "each once")
            if value is not None:
                values.append(value)
        return tuple(values)

    return read_all


def object_of(keys: Keys, model: Callable[..., object]) -> Read:
    """Return a reader of objects: the model with the values of these keys."""

    def read(reader: Reader, key: Key, place: Place) -> object:
        fields = reader.object(keys, place)
        return None if fields is None else model(**fields)

    return read


def list_at(reader: Reader, place: Place) -> list[Place]:
    """Return the places of a list, or of the parts of one text with commas."""
    if isinstance(place.value, str):
        parts = filter(None, map(str.strip, place.value.split(",")))
        return [Place(part, place.pointer) for part in parts]
    return reader.items(place, "a list, or one text with commas")


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text, and not a blank one."""
    return isinstance(value, str) and bool(value.strip())


def _boolean(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    words = {"true": True, "false": False}
    return words.get(value.strip().lower()) if isinstance(value, str) else None


def _choice(reader: Reader, key: Key, place: Place) -> str | None:
    value = place.value
    names = {fold(choice): choice for choice in key.choices}
    names |= {fold(alias): choice for alias, choice in key.aliases.items()}
    if isinstance(value, str) and fold(value) in names:
        return names[fold(value)]
    added = reader.names_added(key.added_by) if key.added_by else ()
    if value in added:
        return str(value)
    reader.refuse(place, f"one of {', '.join((*key.choices, *added))}")
    return None


def integer_of(value: object) -> int | None:
    """Return the integer that a number or a text holds; None where it is none."""
    if isinstance(value, str) and _INTEGER.match(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number_of(value: object) -> float | None:
    """Return the number that a number or a text holds; None where it is none."""
    if isinstance(value, str) and _DECIMAL.match(value):
        return float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _duration(value: object) -> float | None:
    """Return the seconds of a number, or of a text such as `90s`, `15 min`, `1h`, `1d`."""
    parts = _DURATION.match(value.lower()) if isinstance(value, str) else None
    seconds = None if isinstance(value, str) else number_of(value)
    if parts is not None and (parts[2] or "s") in _SECONDS:
        seconds = float(parts[1]) * _SECONDS[parts[2] or "s"]
    return float(seconds) if seconds is not None and 0 <= seconds <= _NUMBER_MAX else None


def size_of(text: str) -> int | None:
    """Return the bytes of `64g`, as Spark and the JVM spell memory; None for anything else."""
    parts = _SIZE.match(text.lower())
    return None if parts is None else int(float(parts[1]) * 1024 ** _POWERS[parts[2]])


def _size(value: object) -> int | None:
    size = size_of(value) if isinstance(value, str) else integer_of(value)
    return size if size is not None and 0 < size <= _NUMBER_MAX else None


def _connection(value: object) -> str | None:
    """Return host:port, or a URL of one or (as Spark's masters have it) several of them."""
    text = value.strip() if isinstance(value, str) else ""
    parts = _CONNECTION.match(text)
    if parts is None:
        return None
    hosts = parts["hosts"].split(",")
    if parts["scheme"] is None and (parts["path"] or len(hosts) > 1):
        return None
    return text if all(map(is_host_port, hosts)) else None


def is_host_port(text: str) -> bool:
    """Whether this is a host, or an address in brackets, and a port."""
    match = _HOST_PORT.match(text)
    return match is not None and 1 <= int(match["port"]) <= 65535


def _page(reader: Reader, key: Key, place: Place) -> str | None:
    """Read the URL of a page. Anything else may be a password, and is not repeated."""
    if isinstance(place.value, str) and place.value.startswith(WEB):
        return place.value
    expected = f"a URL that begins with {' or '.join(WEB)}, such as http://driver:4040"
    reader.complaints.add(Place("***", place.pointer), f"it is not {expected}", expected)
    return None


def _location(reader: Reader, key: Key, place: Place) -> str | None:
    expected = "a location: a URL or a path"
    if is_text(place.value):
        try:
            return normal(place.value, reader.base, reader.storages)
        except NoLocation as problem:
            expected = str(problem)
    reader.refuse(place, expected)
    return None


def _environment(reader: Reader, key: Key, place: Place) -> dict[str, str]:
    if not reader.is_a(place, dict, "an object of names and texts"):
        return {}
    for name in place.value:
        if not name or "=" in name:
            message = f"{name!r} is no variable's name"
            reader.complaints.add(place / name, message, "a name without =")
    texts = [name for name in place.value if reader.is_a(place / name, str, "text")]
    return {name: place.value[name] for name in texts}


def _directory(reader: Reader, key: Key, place: Place) -> str | None:
    """Read one name that stays where it is put: no way up, nothing hidden, nothing of ours."""
    name = place.value
    if not is_text(name) or name.startswith((".", "_stateshift")):
        reader.refuse(place, "the name of one directory, not hidden")
        return None
    if _CONTROL.search(name) or len(name.encode()) > _NAME_BYTES_MAX:
        reader.refuse(place, "the name of one directory, without slashes")
        return None
    return name


def _below_checkpoint(reader: Reader, key: Key, place: Place) -> str | None:
    """Read a path that stays below the checkpoint, without the slash at its end."""
    expected = "a path below the checkpoint, such as mine/"
    names = place.value.removesuffix("/").split("/") if is_text(place.value) else [""]
    leads_elsewhere = not {"", ".", ".."}.isdisjoint(names) or ":" in names[0]
    if leads_elsewhere:
        reader.refuse(place, expected)
        return None
    if names[0] in ENGINES_OWN:
        message = f"{names[0]!r} is the engine's own: what a restart needs of it is taken anyway"
        reader.complaints.add(place, message, expected)
        return None
    return "/".join(names)


def _periods(reader: Reader, key: Key, place: Place) -> tuple[object, ...]:
    """Read periods: a list of them, or one. They are not divided at commas, which cron has."""
    items = [place] if isinstance(place.value, str) else reader.items(place, "a list of periods")
    read = spelling(normal_excluded, EXCLUDED_EXPECTED)
    return present(read(reader, key, item) for item in items)


# -------------------------------------------------------------------------- schemas

_PLACEHOLDER = r"\$\{"


def _pattern(pattern: str) -> Schema:
    """Return the schema of texts of a pattern, or with a placeholder."""
    return {"type": "string", "pattern": f"{pattern}|{_PLACEHOLDER}"}


def words_in_any_case(choices: Iterable[str]) -> Schema:
    """Return the schema of words, however they are spelled."""
    return _pattern(f"^({'|'.join(map(loosely, choices))})$")


ANY_TEXT = {"type": "string"}
SOME_TEXT = {"type": "string", "pattern": r"\S"}
LIST_OF_TEXTS = either(array(SOME_TEXT), ANY_TEXT)
LISTS_OF_NAMES = array(array(SOME_TEXT, minItems=1))
BLANK = {"type": "string", "pattern": r"^\s*$"}
_WHOLE = _pattern(r"^\s*-?[0-9]{1,16}\s*$")
DECIMAL = _pattern(r"^\s*[0-9]{1,16}(\.[0-9]{1,16})?\s*$")
FROM_ZERO = {"type": "number", "minimum": 0}
ABOVE_ZERO = {"type": "number", "exclusiveMinimum": 0}
_TRUE_OR_FALSE = _pattern(r"^\s*([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])\s*$")
_UNTIL = _pattern(r"^\s*[Rr][Ee][Mm][Aa][Ii][Nn][Ii][Nn][Gg]\s*<\s*[0-9.]+\s*[A-Za-z]+\s*$")
_CUTOVER_WORDS = "|".join(map(loosely, (READY, MANUAL, NEVER, "told")))
_HOURS = r"[0-9]+:[0-9]+\s*-\s*[0-9]+:[0-9]+(\s*[Uu][Tt][Cc])?"
_STRATEGY_WORDS = "|".join(map(loosely, ("all_at_once", "fluid", "optimised", "optimized")))
_BATCHED = rf"{loosely('batched')}\s*\(\s*[0-9]{{1,9}}\s*\)"
_URL_OR_HOST = r"([A-Za-z][A-Za-z0-9+.-]*://\S+|[^\s/@]+:[0-9]{1,5})"


# -------------------------------------------------------------------------- kinds


def _integers(name: str, low: float, high: float, expected: str, *, shared: bool = True) -> Kind:
    def parse(value: object) -> int | None:
        number = integer_of(value)
        return number if number is not None and low <= number <= high else None

    shape: Schema = {"type": "integer"}
    if low > -_NUMBER_MAX:
        shape["minimum"] = low
    if high < _NUMBER_MAX:
        shape["maximum"] = high
    return Kind(name, single(parse, expected), either(shape, _WHOLE), shared)


def _time_ms(value: object) -> int | None:
    number = integer_of(value)
    if number is None and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            number = round(zoned.timestamp() * 1000)
        except (ValueError, OverflowError):
            return None
    return number if number is not None and 0 <= number <= _NUMBER_MAX else None


def _numbers(name: str, shape: Schema, expected: str) -> Kind:
    high = shape.get("maximum", _NUMBER_MAX)

    def parse(value: object) -> float | None:
        number = number_of(value)
        if number is None or not 0 <= number <= high:
            return None
        return None if number == 0 and "exclusiveMinimum" in shape else float(number)

    return Kind(name, single(parse, expected), either(shape, DECIMAL), shared=True)


_text = single(lambda value: value if is_text(value) else None, "text (and not blank)")

BOOLEAN = Kind(
    "boolean",
    single(_boolean, "true or false"),
    either({"type": "boolean"}, _TRUE_OR_FALSE),
    shared=True,
)
TEXT = Kind("text", _text, SOME_TEXT)
_NAME_OF_CLUSTER = 'the name of a cluster, which "clusters" at the top of the spec describes'
CLUSTER = Kind(
    "text", single(lambda value: value if is_text(value) else None, _NAME_OF_CLUSTER), SOME_TEXT
)
TEXTS = Kind("texts", each_once(_text), LIST_OF_TEXTS)
CHOICE = Kind("choice", _choice, {})  # its schema is made from the choices of the key
INTEGER = _integers("integer", -_NUMBER_MAX, _NUMBER_MAX, "an integer")
COUNT = _integers("count", 1, _NUMBER_MAX, "an integer of at least 1")
BATCH = _integers("batch", 0, _NUMBER_MAX, "an integer from 0 on", shared=False)
SNAPSHOT = _integers("snapshot", 0, (1 << 63) - 1, "a snapshot's id", shared=False)
TIME = Kind(
    "time",
    single(_time_ms, "a time, such as 2026-11-29T18:00:00Z, or milliseconds since 1970"),
    either(FROM_ZERO, SOME_TEXT),
)
PORT = _integers("port", 1, 65535, "a port, from 1 to 65535")
VERSION = Kind(
    "version",
    single(
        lambda value: 1 if integer_of(value) == 1 else None,
        "1, the version that this stateshift reads",
    ),
    {"const": 1},
)
NUMBER = _numbers("number", ABOVE_ZERO, f"a number above 0, and {_NUMBER_MAX:g} at most")
AMOUNT = _numbers("amount", FROM_ZERO, f"a number from 0 to {_NUMBER_MAX:g}")
SHARE = _numbers("share", {**ABOVE_ZERO, "maximum": 1}, "a number above 0, and 1 at most")
DURATION = Kind(
    "duration",
    single(_duration, "a duration, such as 300, 15min or 1h"),
    either(FROM_ZERO, SOME_TEXT),
)
SIZE = Kind(
    "size",
    single(_size, "a size in bytes, or such as 64g"),
    either({"type": "integer", "minimum": 1}, SOME_TEXT),
)
UNTIL = Kind("until", spelling(normal_until, "a time that may remain: remaining < 5s"), _UNTIL)
CUTOVER = Kind(
    "cutover",
    spelling(
        normal_cutover, "ready, manual, never, or hours of the day: 22:00-04:30 or 22:00-04:30 UTC"
    ),
    _pattern(rf"^\s*({_CUTOVER_WORDS}|{_HOURS})\s*$"),
)
STRATEGY = Kind(
    "strategy",
    spelling(normal_strategy, STRATEGY_EXPECTED),
    _pattern(rf"^\s*({_STRATEGY_WORDS}|{_BATCHED})\s*$"),
)
WAY = Kind("way", spelling(normal_way, WAYS_EXPECTED), SOME_TEXT)
EXCLUDED = Kind("excluded", _periods, either(array(SOME_TEXT), SOME_TEXT))
CONNECTION = Kind(
    "connection",
    single(_connection, "host:port or scheme://host:port, with a port from 1 to 65535"),
    _pattern(rf"^\s*{_URL_OR_HOST}\s*$"),
    shared=True,
)
PAGE = Kind("page", _page, _pattern("^https?://"), shared=True)
LOCATION = Kind("location", _location, SOME_TEXT)
LOCATIONS = Kind("locations", each(_location), LIST_OF_TEXTS)
ENVIRONMENT = Kind("environment", _environment, map_to(ANY_TEXT))
DIRECTORY = Kind(
    "directory", _directory, {"type": ["string", "null"], "pattern": r"^[^./\\][^/\\]*$"}
)
FOLDERS = Kind("folders", each_once(_below_checkpoint), LIST_OF_TEXTS)
WORDS = Kind("words", as_it_stands, {**array(ANY_TEXT), "minItems": 1})
