"""How a document is declared, and how one is made of a value and described as JSON Schema.

    class RoundDocument(TypedDict):
        \"\"\"One round of a warm move.\"\"\"

        number: Annotated[int, "counted from 1"]
        bytes: Annotated[int, "their size together", At("size")]
        left: Annotated[list[Redacted], "files that were left"]

A shape is a typed dictionary, or a dataclass below this room of which every field with words is a
key. A key is the attribute of the same name, or what `At` names. `document_of` makes a document of
any value that has these attributes, key by key in the order of the shape: shapes within it, lists
and dictionaries are made in the same way, text that is `Redacted` loses its credentials, and a key
that is not required is left out where its value is None, or where the value has no such attribute.
`Definitions` makes the schema.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal, NotRequired, TypeVar, is_typeddict

from stateshift.storage.locations import redact

Shape = TypeVar("Shape")
Schema = dict[str, object]
Convert = Callable[[Any], object]

PLAIN: Mapping[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class At:
    """The origin of a key: an attribute with another name, or a function of the value.

    In a name with dots, an attribute that is None ends the way. `none` takes the place of None.
    """

    origin: str | Callable[[Any], object]
    none: object = None

    def read(self, value: object) -> object:
        """Return the part of the value that the key holds."""
        if not isinstance(self.origin, str):
            return self.origin(value)
        for name in self.origin.split("."):
            if value is None:
                break
            value = getattr(value, name)
        return self.none if value is None else value


class OrNone(At):
    """An origin whose empty text means None."""

    def read(self, value: object) -> object:
        """Return the part of the value that the key holds."""
        return At.read(self, value) or None


@dataclass(frozen=True, slots=True)
class ShapeKey:
    """One key of a shape, with its words, its type, and how its value is read and made plain."""

    name: str
    words: str
    type: object
    is_required: bool
    read: Convert
    convert: Convert


@cache
def keys_of(shape: type) -> tuple[ShapeKey, ...]:
    """Return the keys of a shape, in their order."""
    hints = typing.get_type_hints(shape, include_extras=True)
    keys = [_shape_key(name, hint) for name, hint in hints.items()]
    if not is_typeddict(shape):
        keys = [key for key in keys if key.words]
    return tuple(keys)


def _shape_key(name: str, hint: Any) -> ShapeKey:
    is_required = typing.get_origin(hint) is not NotRequired
    if not is_required:
        (hint,) = typing.get_args(hint)
    kind, notes = hint, list[Any]()
    if typing.get_origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
    words = next((note for note in notes if isinstance(note, str)), "")
    origins: list[Convert] = [note.read for note in notes if isinstance(note, At)]
    if not origins:
        origins = [attrgetter(name) if is_required else lambda value: getattr(value, name, None)]
    if redact in notes:
        kind = Annotated[kind, redact]
    return ShapeKey(name, words, kind, is_required, origins[0], _converter(kind))


def document_of(shape: type[Shape], value: object, **given: object) -> Shape:
    """Return the document of a value. Keys that are `given` are taken as they are."""
    document: dict[str, object] = {}
    kind: Any = shape  # to mypy, a class of any kind is not hashable
    for key in keys_of(kind):
        if key.name in given:
            document[key.name] = given[key.name]
            continue
        origin = key.read(value)
        if key.is_required or origin is not None:
            document[key.name] = key.convert(origin)
    return typing.cast(Shape, document)


def documents_of(shape: type[Shape], values: Iterable[object]) -> list[Shape]:
    """Return the document of each value."""
    return [document_of(shape, value) for value in values]


def _converter(kind: Any) -> Convert:
    """Return the function that makes a value of a type plain."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_shape(kind):
        return lambda value: value if isinstance(value, dict) else document_of(kind, value)
    if origin is Annotated:
        return redact if redact in arguments else _converter(arguments[0])
    if origin in (typing.Union, types.UnionType):
        convert = _converter(next(choice for choice in arguments if choice is not type(None)))
        return lambda value: None if value is None else convert(value)
    if origin in (list, tuple):
        of_item = _converter(arguments[0])
        return lambda values: [of_item(value) for value in values]
    if origin is dict:
        of_value = _converter(arguments[1])
        return lambda values: {str(key): of_value(value) for key, value in values.items()}
    return lambda value: value


def is_shape(kind: object) -> bool:
    """Whether documents are made of a type."""
    return isinstance(kind, type) and (is_typeddict(kind) or is_dataclass(kind))


@dataclass(eq=False)
class Definitions:
    """Shapes as JSON Schema; each is defined once, by its name. Strict ones refuse other keys."""

    strict: bool
    by_name: dict[str, Schema] = field(default_factory=dict, init=False)

    def schema(self, kind: object) -> Schema:
        """Return the schema of a type; the shapes that it refers to are defined by their names."""
        if is_shape(kind):
            shape = typing.cast(type, kind)
            name = getattr(shape, "schema_name", shape.__name__.removesuffix("Document"))
            if name not in self.by_name:
                self.by_name[name] = {}  # its place, should it hold itself
                self.by_name[name] = self._object(shape)
            return {"$ref": f"#/$defs/{name}"}
        if kind is object:
            return {}
        if kind in PLAIN:
            return {"type": PLAIN[kind]}
        origin = typing.get_origin(kind)
        arguments = typing.get_args(kind)
        if origin is Annotated:
            return self.schema(arguments[0])
        if origin in (typing.Union, types.UnionType):
            schemas = [self.schema(choice) for choice in arguments]
            if all(schema.keys() == {"type"} for schema in schemas):
                return {"type": [schema["type"] for schema in schemas]}
            return {"anyOf": schemas}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (list, tuple):
            return {"type": "array", "items": self.schema(arguments[0])}
        assert origin is dict, "a document is made of these alone"
        return {"type": "object", "additionalProperties": self.schema(arguments[1])}

    def _object(self, shape: type) -> Schema:
        properties: dict[str, Schema] = {}
        required = []
        for key in keys_of(shape):
            described: Schema = {"description": key.words} if key.words else {}
            properties[key.name] = {**described, **self.schema(key.type)}
            if key.is_required:
                required.append(key.name)
        schema: Schema = {
            "type": "object",
            "description": inspect.cleandoc(shape.__doc__ or ""),
            "properties": properties,
            "required": required,
        }
        if self.strict:
            schema["additionalProperties"] = False
        return schema
