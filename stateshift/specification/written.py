"""The text of a spec in YAML, and where in a text of YAML or JSON a value is written.

    read_yaml(text)              -> Written: the tree as of JSON, and what is wrong with the text
    add_places(complaints, text) -> the same complaints, each with its line and column

YAML has more than JSON, and its two versions differ. Whatever could mean two things is refused:

    on, no, 010, 1e3, 12:30      plain words that YAML 1.1 and 1.2 read as different values
    1.20, +1, 00, 0x10           numbers that are not written as they are: a version may be meant
    a date                       stays the text that is written: no version of JSON has dates
    !!python/object, !mine       tags, but for !!str
    two documents, a list as key nothing that an object of JSON could hold
    *alias                       a copy of its anchor; all copies together are bounded, so that a
                                 text of a kilobyte does not become a gigabyte
    <<: *alias                   the keys of another map, as far as this one has not its own

Keys are texts as they are written, so that `on:` is the key "on". PyYAML (the library that other
tools read YAML by) takes the text apart; its objects are never made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stateshift.errors import Complaint, SpecError
from stateshift.specification.location import Storages
from stateshift.specification.place import escape

if TYPE_CHECKING:
    from yaml import Event

DEPTH_MAX = 40
VALUES_MAX = 100_000

YAML_SUFFIXES = (".yaml", ".yml")
SPEC_SUFFIXES = (".json", *YAML_SUFFIXES)
_HINT = (
    "YAML indents with blanks, and takes text with special characters in quotes; "
    "a name that ends in .json is read as JSON"
)
_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")

# YAML 1.2 (chapter 10.3, "core schema"). The texts of 1.1 are PyYAML's own to tell.
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_TRUE_OR_FALSE = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INTEGER = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NO_VERSION = re.compile(r"-?[0-9.]+[eE]|[-+]?\.[iInN]")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")


class WrittenObject(dict[str, object]):
    """An object as it was written. `twice` names keys that came again: the first value counts."""

    def __init__(self, pairs: Iterable[tuple[str, object]]) -> None:
        super().__init__()
        self.twice: dict[str, None] = {}
        for key, value in pairs:
            if key in self:
                self.twice[key] = None
            else:
                self[key] = value


@dataclass(frozen=True, slots=True)
class Written:
    """A text that was taken apart: its tree of plain values, and the complaints of the text.
    `storages` are those that its locations may name.
    """

    tree: object
    complaints: tuple[Complaint, ...] = ()
    storages: Storages | None = None


@dataclass(slots=True)
class Node:
    """A value, and where it is written: a plain one, a list of nodes, or pairs of key and node. A
    node below a key is where the key is. `size` counts the values in it, `height` its levels.
    """

    value: object
    line: int
    column: int
    size: int = 1
    height: int = 0

    def plain(self) -> object:
        """Return the tree below, without its places."""
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        if isinstance(self.value, tuple):
            return WrittenObject((key, node.plain()) for key, node in self.value)
        return self.value

    def at(self, pointer: str) -> Node:
        """Return the node of a JSON pointer, or the deepest one on the way that is written."""
        node = self
        for name in pointer.split("/")[1:]:
            children: Iterable[tuple[str, Node]] = ()
            if isinstance(node.value, list):
                children = ((str(index), each) for index, each in enumerate(node.value))
            if isinstance(node.value, tuple):
                children = node.value
            # A key may be written twice: the last is the one to take away.
            below = [child for key, child in children if escape(key) == name]
            if not below:
                return node
            node = below[-1]
        return node


def is_yaml(path: str) -> bool:
    """Whether a file's name says that it holds YAML."""
    return path.lower().endswith(YAML_SUFFIXES)


def read_yaml(text: str) -> Written:
    """Return the tree of a text of YAML; raise SpecError if it is none, or has no end."""
    composer = _Composer(text)
    return Written(composer.document().plain(), tuple(composer.complaints))


def add_places(complaints: Iterable[Complaint], text: str, yaml: bool) -> tuple[Complaint, ...]:
    """Return complaints of a text, each with its line and column, as far as it has one."""
    try:
        as_yaml = text if yaml else _JSON_ALONE.sub(lambda match: " " * len(match[0]), text)
        root = _Composer(as_yaml).document()
    except SpecError:
        return tuple(complaints)
    whole = []
    for each in complaints:
        node = root.at(each.pointer) if each.line is None and each.pointer[:1] == "/" else root
        if node is not root:
            each = replace(each, line=node.line, column=node.column)
        whole.append(each)
    return tuple(whole)


# JSON is YAML, but for its escapes and for characters that YAML has no place for. They give way to
# blanks; a key with an escape is then found as the place around it.
_JSON_ALONE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)|[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")


@dataclass(slots=True)
class _Composer:
    """Makes nodes of the events of a text. Nothing is nested deeper than a spec may be."""

    text: str
    complaints: list[Complaint] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)
    events: Iterator[Event] = field(init=False)
    size: int = 0

    def __post_init__(self) -> None:
        self.events = _events(self.text)

    def document(self) -> Node:
        """Return the one document of the text; an empty text holds null."""
        next(self.events)  # the stream begins
        if _kind(next(self.events)) == "StreamEnd":
            return Node(None, 1, 1)
        root = self.node(next(self.events), "", 0)
        next(self.events)  # the document ends
        after = next(self.events)
        if _kind(after) != "StreamEnd":
            raise _refused("not one document but several", after, "one document")
        return root

    def node(self, event: Event, pointer: str, depth: int) -> Node:
        """Return the value that begins with an event."""
        kind = _kind(event)
        if kind == "Alias":
            return self._copied(event, depth)
        if depth > DEPTH_MAX:
            raise _refused("nested too deeply", event, f"at most {DEPTH_MAX} levels")
        self._count(1, event)
        made = Node(None, event.start_mark.line + 1, event.start_mark.column + 1)
        if kind == "Scalar":
            made.value = self._scalar(event, pointer)
        else:
            self._refuse_tag(event, pointer)
            before = self.size
            if kind == "SequenceStart":
                nodes: list[Node] = []
                while _kind(item := next(self.events)) != "SequenceEnd":
                    nodes.append(self.node(item, f"{pointer}/{len(nodes)}", depth + 1))
                made.value = nodes
            else:
                made.value = self._pairs(pointer, depth + 1)
                nodes = [node for _, node in made.value]
            made.size = 1 + self.size - before
            made.height = 1 + max((node.height for node in nodes), default=0)
        if event.anchor is not None:  # only from here on: nothing contains itself
            self.anchors[event.anchor] = made
        return made

    def _pairs(self, pointer: str, depth: int) -> tuple[tuple[str, Node], ...]:
        pairs: list[tuple[str, Node]] = []
        merged: list[tuple[str, Node]] = []
        while _kind(event := next(self.events)) != "MappingEnd":
            if _kind(event) != "Scalar":
                expected = "a text, in quotes if it has special characters"
                raise _refused("a key is no text", event, expected)
            key = event.value
            self._refuse_tag(event, f"{pointer}/{escape(key)}")
            node = self.node(next(self.events), f"{pointer}/{escape(key)}", depth)
            if key == "<<" and event.implicit[0]:
                for each in node.value if isinstance(node.value, list) else [node]:
                    if not isinstance(each.value, tuple):
                        raise _refused("<< is no map", event, "<<: *anchor, or a list of them")
                    merged += each.value
                continue
            mark = event.start_mark
            pairs.append((key, replace(node, line=mark.line + 1, column=mark.column + 1)))
        own = {key for key, _ in pairs}
        for key, node in merged:
            if key not in own:
                own.add(key)
                pairs.append((key, node))
        return tuple(pairs)

    def _copied(self, event: Event, depth: int) -> Node:
        node = self.anchors.get(event.anchor)
        if node is None:
            fact = f"*{event.anchor} names nothing that ends before it"
            raise _refused(fact, event, f"&{event.anchor} at a value before")
        if depth + node.height > DEPTH_MAX:
            raise _refused("nested too deeply", event, f"at most {DEPTH_MAX} levels")
        self._count(node.size, event)
        return node

    def _count(self, values: int, event: Event) -> None:
        self.size += values
        if self.size > VALUES_MAX:
            expected = f"at most {VALUES_MAX:,} values, copies by *alias included"
            raise _refused("too many values", event, expected)

    def _scalar(self, event: Event, pointer: str) -> object:
        self._refuse_tag(event, pointer)
        if event.tag is not None or not event.implicit[0]:  # a tagged, or a quoted one
            return event.value
        newer, older = _newer_reading(event.value), _older_reading(event.value)
        if repr(newer) == repr(older):
            is_number = isinstance(newer, int | float) and not isinstance(newer, bool)
            if is_number and repr(newer) != event.value and not _NO_VERSION.match(event.value):
                message = f"{event.value} is read as the number {newer}"
                expected = f'"{event.value}" for the text, or {newer}'
                self.complaints.append(Complaint(pointer, message, None, expected))
            return newer
        older_text, newer_text = json.dumps(older), json.dumps(newer)
        values = {text for text in (older_text, newer_text) if text[0] != '"'}
        expected = f'"{event.value}" for the text, or {" or ".join(sorted(values))}'
        message = f"{event.value} is read as {older_text} in YAML 1.1 and {newer_text} in YAML 1.2"
        self.complaints.append(Complaint(pointer, message, None, expected))
        return event.value

    def _refuse_tag(self, event: Event, pointer: str) -> None:
        if event.tag is None or event.tag in _TEXT_TAGS:
            return
        fact = f"the tag {event.tag} would make a value of another kind"
        self.complaints.append(Complaint(pointer, fact, None, "no tag"))


def _events(text: str) -> Iterator[Event]:
    """Yield the events of a text of YAML; raise SpecError where it is none."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    without_mark = text.removeprefix("\ufeff")
    try:
        yield from yaml.parse(without_mark, Loader=loader)
    except (yaml.YAMLError, UnicodeError) as error:
        # The line itself is not repeated: there may be a password in it.
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "a character that no text has"
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        fact = f"not YAML: {problem}{where}"
        raise SpecError.of("", fact, None, "one object", hint=_HINT) from error


def _kind(event: Event) -> str:
    return type(event).__name__.removesuffix("Event")


def _refused(fact: str, event: Event, expected: str) -> SpecError:
    line, column = event.start_mark.line + 1, event.start_mark.column + 1
    return SpecError((Complaint("", fact, None, expected, line, column),), hint=_HINT)


def _newer_reading(text: str) -> object:
    """Return the value of a plain word in YAML 1.2."""
    if _NULL.match(text):
        return None
    if _TRUE_OR_FALSE.match(text):
        return text.lower() == "true"
    try:
        if _INTEGER.match(text):
            return int(text, 0) if text[1:2] in ("o", "x") else int(text)
    except ValueError:  # of more digits than Python converts
        return text
    if _FLOAT.match(text):
        return float(text)
    return float(text.replace(".", "")) if _NOT_FINITE.match(text) else text


def _older_reading(text: str) -> object:
    """Return the value of a plain word in YAML 1.1; the text of a date."""
    import yaml

    tag = yaml.resolver.Resolver().resolve(yaml.ScalarNode, text, (True, False))
    if tag.rpartition(":")[2] not in ("bool", "int", "float", "null"):
        return text
    try:
        return yaml.constructor.SafeConstructor().construct_object(yaml.ScalarNode(tag, text))
    except ValueError:
        return text
