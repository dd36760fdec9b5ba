"""`transform` of a job: changes to the state on its way, each an object with a `kind` and that
kind's own keys.

    {"kind": "rewind", "batch": 41, "renumber": true}
    {"kind": "compact", "in_place": true, "keep_tables": true}
    {"kind": "repartition", "partitions": 17}
    {"kind": "convert", "provider": "rocksdb", "codec": "zstd", "checkpoint_format": "v1"}
                                                                            any of the three
    {"kind": "rename", "operators": {"0": "1"}, "sources": {"0": "1"}}      either, or both
    {"kind": "drop", "operators": ["1"], "sources": ["2"]}
    {"kind": "split", "by": 4, "part": 0}  or  {"kind": "split", "column": "country", "values":
                                               ["de", "fr"]}
    {"kind": "merge", "locations": ["/there"], "sum": ["count"]}
    {"kind": "evolve", "operator": "0", "store": "default",
     "add": [{"name": "last", "type": "long", "default": 0, "after": "count"}],
     "widen": {"count": "long"}, "rename": {"a": "b"}, "drop": ["c"], "widen_key": {"id": "long"},
     "rename_key": {"id": "number"}, "nullable": ["at"], "nullable_key": ["id"]}
    {"kind": "rescale", "parallelism": 3, "max_parallelism": 256}           either, or both (Flink)
    {"kind": "union", "operators": ["count"]}                               (Flink)
    {"kind": "repair", "files": ["/savepoints/savepoint-1"]}                (Flink)

The model keeps them as mappings with canonical keys. Each kind stands once (`evolve` once for each
store, `rename` and `drop` of Flink once for each image that they are `of`): what several of them
ask for is one rewriting of the state, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from stateshift.specification.keys.changes import COLUMN, TRANSFORMS
from stateshift.specification.keys.key import Key, Keys
from stateshift.specification.place import Place
from stateshift.specification.secret import refuse_secrets
from stateshift.specification.values import Reader, is_text

Change = dict[str, object]


def read_changes(reader: Reader, place: Place) -> tuple[Change, ...]:
    """Return the changes of one job; what could not be read is left out, after a complaint."""
    if not reader.is_a(place, list, "a list of objects"):
        return ()
    changes: dict[tuple[object, ...], Change] = {}
    for item in place.items:
        change = _read(reader, item)
        if change is not None:
            _add(reader, item, change, changes)
    return tuple(changes.values())


def _add(
    reader: Reader, item: Place, change: Change, changes: dict[tuple[object, ...], Change]
) -> None:
    """Add a change, unless one stands in its place already."""
    place = _place(change)
    if place in changes:
        reader.complaints.add(item, f"a second {change['kind']!r}", "each kind once")
    else:
        changes[place] = change


def _place(change: Change) -> tuple[object, ...]:
    """Return what may stand once."""
    place = (change["kind"], change.get("of"))
    if change["kind"] != "evolve":
        return place
    return (*place, change.get("operator"), change.get("store", "default"))


def _read(reader: Reader, place: Place) -> Change | None:
    if _has_secrets(reader, place) or not reader.is_a(place, dict, "an object with a 'kind'"):
        return None
    kind = _kind(reader, place)
    if kind is None:
        return None
    keys = TRANSFORMS[kind]
    known = reader.known(place, keys)
    change: Change = {"kind": kind, **_fields(reader, keys, known)}
    _FITS[kind](reader, place, known)
    return change


def _has_secrets(reader: Reader, place: Place) -> bool:
    """Complain of credentials at and below a place; return whether there are any."""
    before = len(reader.complaints.made)
    refuse_secrets(reader.complaints, place)
    return len(reader.complaints.made) > before


def _fields(reader: Reader, keys: Keys, known: Mapping[str, Place]) -> Change:
    """Return what the keys behind `kind` say; what could not be read is left out."""
    fields: Change = {}
    for key in keys.all[1:]:
        value = _value(reader, key, known[key.name]) if key.name in known else None
        if value is not None:
            fields[key.name] = list(value) if isinstance(value, tuple) else value
    return fields


def _kind(reader: Reader, place: Place) -> str | None:
    keys = TRANSFORMS["compact"]
    key = keys["kind"]
    spelled = _spelling_of(key, keys, place)
    if spelled is None:
        reader.complaints.add(place, "'kind' is missing", f"one of {', '.join(TRANSFORMS)}")
        return None
    kind: str | None = reader.value(key, place / spelled)
    return kind


def _spelling_of(key: Key, keys: Keys, place: Place) -> str | None:
    """Return how an object spells a key, which can be done in several ways."""
    return next((name for name in place.value if keys.find(name) == key), None)


def _value(reader: Reader, key: Key, place: Place) -> object:
    read = _READ.get(key.kind)
    return reader.value(key, place) if read is None else read(reader, place)


def _names(reader: Reader, place: Place) -> dict[str, str] | None:
    if not reader.is_a(place, dict, "an object from old to new names"):
        return None
    return _each_once(reader, _texts_by_name(reader, place, "the new name, as text"))


def _texts_by_name(reader: Reader, place: Place, expected: str) -> Iterator[tuple[str, Place]]:
    """Yield the texts of an object by their keys; complain of everything else in it."""
    for name in place.value:
        below = place / name
        if is_text(below.value):
            yield name, below
        else:
            reader.refuse(below, expected)


def _each_once(reader: Reader, texts: Iterable[tuple[str, Place]]) -> dict[str, str]:
    """Return new names by old ones; two of them never get the same."""
    named: dict[str, str] = {}
    for name, below in texts:
        if below.value in named.values():
            message = f"{below.value!r} would be the name of two"
            reader.complaints.add(below, message, "a name for each")
        else:
            named[name] = below.value
    return named


def _types(reader: Reader, place: Place) -> dict[str, str] | None:
    if not reader.is_a(place, dict, "an object from columns to text"):
        return None
    texts = _texts_by_name(reader, place, "a type or a name, as text")
    return {name: below.value for name, below in texts}


def _columns(reader: Reader, place: Place) -> list[dict[str, object]]:
    if not reader.is_a(place, list, "a list of columns"):
        return []
    columns = [_column(reader, item) for item in place.items]
    return [column for column in columns if column is not None]


def _column(reader: Reader, place: Place) -> dict[str, object] | None:
    if not reader.is_a(place, dict, "a column: an object with 'name' and 'type'"):
        return None
    known = reader.known(place, COLUMN)
    if not reader.need(place, known, "name", "type"):
        return None
    return _column_of(reader, known)


def _column_of(reader: Reader, known: Mapping[str, Place]) -> dict[str, object]:
    """Return a column as it stands; a name that is no text is a complaint, and so is an odd
    type.
    """
    column: dict[str, object] = {key: below.value for key, below in known.items()}
    for key in ("name", "after"):
        if not isinstance(column.get(key, ""), str):
            reader.refuse(known[key], "text")
    if not isinstance(column["type"], str | dict):
        reader.refuse(known["type"], "a type's name, or its JSON")
    return column


def _values(reader: Reader, place: Place) -> list[str | None]:
    """Texts, blank ones too, and null; a number or a boolean as its text."""
    if isinstance(place.value, str):
        return [part.strip() for part in place.value.split(",")]
    if not reader.is_a(place, list, "a list, or one text with commas"):
        return []
    return list(_values_in_list(reader, place))


def _values_in_list(reader: Reader, place: Place) -> Iterator[str | None]:
    for item in place.items:
        value = _as_text(item.value)
        if value is None or isinstance(value, str):
            yield value
        else:
            reader.refuse(item, "text, a whole number, true, false or null")


def _as_text(value: object) -> object:
    """Return a number or a boolean as its text, and everything else as it is."""
    return str(value).lower() if isinstance(value, bool | int) else value


_READ: Mapping[str, Callable[[Reader, Place], object]] = {
    "values": _values,
    "types": _types,
    "columns": _columns,
    "names": _names,
}


def _needs(*names: str) -> Callable[[Reader, Place, Mapping[str, Place]], None]:
    def fits(reader: Reader, place: Place, known: Mapping[str, Place]) -> None:
        reader.need(place, known, *names)

    return fits


def _needs_one(reader: Reader, place: Place, known: Mapping[str, Place]) -> None:
    if not known.keys() - {"kind", "of"}:
        reader.complaints.add(place, "nothing is asked for", "one of its keys beside 'kind'")


def _split(reader: Reader, place: Place, known: Mapping[str, Place]) -> None:
    by_shards = bool({"by", "part"} & known.keys())
    by_column = bool({"column", "values"} & known.keys())
    if by_shards == by_column:
        message = "a split by shards or by a column"
        reader.complaints.add(place, message, "'by' and 'part', or 'column' and 'values'")
    elif by_column:
        reader.need(place, known, "column", "values")
    else:
        _split_by_shards(reader, place, known)


def _split_by_shards(reader: Reader, place: Place, known: Mapping[str, Place]) -> None:
    if reader.need(place, known, "by", "part"):
        _check_part(reader, known["by"].value, known["part"])


def _check_part(reader: Reader, by: object, part: Place) -> None:
    if isinstance(by, int) and isinstance(part.value, int) and part.value >= by > 0:
        message = f"there is no part {part.value} of {by}"
        reader.complaints.add(part, message, "parts are counted from 0")


def _evolve(reader: Reader, place: Place, known: Mapping[str, Place]) -> None:
    if not reader.need(place, known, "operator"):
        return
    if not known.keys() - {"kind", "operator", "store"}:
        expected = "add, widen, rename, drop, nullable or one for keys"
        reader.complaints.add(place, "nothing is asked for", expected)


_FITS: Mapping[str, Callable[[Reader, Place, Mapping[str, Place]], None]] = {
    "rewind": _needs("batch"),
    "compact": _needs(),
    "repartition": _needs("partitions"),
    "convert": _needs_one,
    "rename": _needs_one,
    "drop": _needs_one,
    "split": _split,
    "merge": _needs("locations"),
    "evolve": _evolve,
    "rescale": _needs_one,
    "repair": _needs("files"),
    "union": _needs("operators"),
}
