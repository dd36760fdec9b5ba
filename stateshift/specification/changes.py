"""`transform` of a job: changes to the state on its way, each an object with a `kind` and that
kind's own keys.

    {"kind": "rewind", "batch": 41, "renumber": true}
    {"kind": "compact", "in_place": true}
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

from collections.abc import Callable, Mapping
from typing import Any

from stateshift.specification.keys import COLUMN, TRANSFORMS, Key
from stateshift.specification.place import Place
from stateshift.specification.secret import refuse_secrets
from stateshift.specification.values import Reader

Change = dict[str, Any]


def read_changes(reader: Reader, place: Place) -> tuple[Change, ...]:
    """Return the changes of one job; what could not be read is left out, after a complaint."""
    changes: dict[tuple[object, ...], Change] = {}
    items = list(place.items) if reader.is_a(place, list, "a list of objects") else []
    for item in items:
        change = _read(reader, item)
        if change is None:
            continue
        if _place(change) in changes:
            reader.complaints.add(item, f"a second {change['kind']!r}", "each kind once")
        else:
            changes[_place(change)] = change
    return tuple(changes.values())


def _place(change: Change) -> tuple[object, ...]:
    """Return what may stand once."""
    place = (change["kind"], change.get("of"))
    if change["kind"] != "evolve":
        return place
    return (*place, change.get("operator"), change.get("store", "default"))


def _read(reader: Reader, place: Place) -> Change | None:
    before = len(reader.complaints.made)
    refuse_secrets(reader.complaints, place)
    has_secrets = len(reader.complaints.made) > before
    if has_secrets or not reader.is_a(place, dict, "an object with a 'kind'"):
        return None
    kind = _kind(reader, place)
    if kind is None:
        return None
    keys = TRANSFORMS[kind]
    known = reader.known(place, keys)
    change: Change = {"kind": kind}
    for key in keys.all[1:]:
        value = _value(reader, key, known[key.name]) if key.name in known else None
        if value is not None:
            change[key.name] = list(value) if isinstance(value, tuple) else value
    _FITS[kind](reader, place, known)
    return change


def _kind(reader: Reader, place: Place) -> str | None:
    keys = TRANSFORMS["compact"]
    key = keys["kind"]
    spelled = next((name for name in place.value if keys.find(name) == key), None)
    if spelled is None:
        reader.complaints.add(place, "'kind' is missing", f"one of {', '.join(TRANSFORMS)}")
        return None
    kind: str | None = reader.value(key, place / spelled)
    return kind


def _value(reader: Reader, key: Key, place: Place) -> Any:
    match key.kind:
        case "values":
            return _values(reader, place)
        case "types":
            return _types(reader, place)
        case "columns":
            return _columns(reader, place)
        case "names":
            return _names(reader, place)
        case _:
            return reader.value(key, place)


def _names(reader: Reader, place: Place) -> dict[str, str] | None:
    if not reader.is_a(place, dict, "an object from old to new names"):
        return None
    named: dict[str, str] = {}
    for name in place.value:
        below = place / name
        if not isinstance(below.value, str) or not below.value.strip():
            reader.refuse(below, "the new name, as text")
        elif below.value in named.values():
            message = f"{below.value!r} would be the name of two"
            reader.complaints.add(below, message, "a name for each")
        else:
            named[name] = below.value
    return named


def _types(reader: Reader, place: Place) -> dict[str, str] | None:
    if not reader.is_a(place, dict, "an object from columns to text"):
        return None
    types = {}
    for name in place.value:
        below = place / name
        if isinstance(below.value, str) and below.value.strip():
            types[name] = below.value
        else:
            reader.refuse(below, "a type or a name, as text")
    return types


def _columns(reader: Reader, place: Place) -> list[dict[str, Any]]:
    if not reader.is_a(place, list, "a list of columns"):
        return []
    columns = [_column(reader, item) for item in place.items]
    return [column for column in columns if column is not None]


def _column(reader: Reader, place: Place) -> dict[str, Any] | None:
    if not reader.is_a(place, dict, "a column: an object with 'name' and 'type'"):
        return None
    known = reader.known(place, COLUMN)
    if not reader.need(place, known, "name", "type"):
        return None
    column = {key: below.value for key, below in known.items()}
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
    values: list[str | None] = []
    for item in place.items:
        value = item.value
        if isinstance(value, bool | int):
            value = str(value).lower()
        if value is None or isinstance(value, str):
            values.append(value)
        else:
            reader.refuse(item, "text, a whole number, true, false or null")
    return values


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
    elif reader.need(place, known, "by", "part"):
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
