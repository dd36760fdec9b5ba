"""Statements of a file of Flink's SQL, and whether one job comes of them.

    CREATE TABLE orders (...);  SET 'k' = 'v';  INSERT ...;  each ends with `;`, or with the file
    BEGIN STATEMENT SET;  INSERT ...;  INSERT ...;  END;     one statement, and one job

A `;` in a comment, in quotes or in a statement set ends nothing. The last statement is the one that
starts the job: one after it would be lost if we are killed between the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_TOKEN = re.compile(
    r"""(?P<comment>(?:--|//)[^\n]*|/\*.*?\*/)
    |(?P<quoted>(?<!\w)[eE]'(?:\\.|''|[^'\\])*'|'[^']*'|`[^`]*`|"[^"]*")
    |(?P<unclosed>/\*|['`"])
    |(?P<word>[^\W\d][\w$]*)
    |(?P<end>;)|(?P<opening>\()|(?P<closing>\))|\s+|.""",
    re.DOTALL | re.VERBOSE,
)
_SETTING = re.compile(
    r"SET\s+(?:'(?P<quoted>[^']+)'|(?P<plain>[^\s=']+))\s*=\s*(?P<value>.*)", re.I | re.DOTALL
)
_RESET = re.compile(r"RESET\s+'?(?P<key>[^\s']+)'?", re.IGNORECASE)
_LINE = re.compile(r"\bline (\d+)\b")

_STARTS: Final = (
    ("INSERT",),
    ("EXECUTE", "STATEMENT", "SET"),
    ("EXECUTE", "PLAN"),
    ("EXECUTE", "INSERT"),
    ("COMPILE", "AND", "EXECUTE", "PLAN"),
)
_STARTS_NONE: Final = frozenset(
    [
        "CREATE",
        "DROP",
        "ALTER",
        "USE",
        "SET",
        "RESET",
        "LOAD",
        "UNLOAD",
        "ADD",
        "REMOVE",
        "SHOW",
        "DESCRIBE",
        "DESC",
        "EXPLAIN",
        "COMPILE",
    ]
)
_BEGIN: Final = ("BEGIN", "STATEMENT", "SET")
_MODIFIERS: Final = frozenset({"CREATE", "OR", "REPLACE", "TEMPORARY", "SYSTEM"})

# These settings say which job this is, and what it begins with. They are ours, and go with the
# statement that starts it.
_OURS: Final = frozenset(
    {
        "execution.savepoint.path",
        "execution.savepoint-restore-mode",
        "execution.savepoint.ignore-unclaimed-state",
        "execution.state-recovery.path",
        "execution.state-recovery.claim-mode",
        "execution.state-recovery.ignore-unclaimed-state",
        "table.dml-sync",
    }
)
_PLACES: Final = (
    "execution.target",
    "rest.",
    "jobmanager.",
    "high-availability",
    "kubernetes.",
    "yarn.",
)
_MODE: Final = "execution.runtime-mode"
_UIDS: Final = "table.exec.uid.generation"
SET_IN_ONE: Final = "put its INSERTs into one: EXECUTE STATEMENT SET BEGIN ...; ...; END;"


@dataclass(frozen=True, slots=True)
class Statement:
    """`text` begins at `line`; `words`, in capitals, are outside quotes and brackets."""

    text: str
    line: int
    words: tuple[str, ...]
    bare: str  # without comments

    @property
    def starts_job(self) -> bool:
        return any(self.words[: len(start)] == start for start in _STARTS)

    @property
    def called(self) -> str:
        return " ".join(self.words[:2]) or "that"

    def in_file(self, message: str) -> str:
        """Return a message of Flink with lines of the file: Flink counts from the statement's."""
        return _LINE.sub(lambda line: f"line {int(line[1]) + self.line - 1}", message)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a file of SQL: its line, and the thing that is expected there."""

    line: int
    fact: str
    expected: str

    @property
    def message(self) -> str:
        return f"line {self.line}: {self.fact}"


class BrokenSql(Exception):
    """It cannot be divided into statements."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def statements_of(text: str) -> tuple[Statement, ...]:
    """Return the statements in their order, a statement set as one.

    Raises:
        BrokenSql: something is never closed.
    """
    statements: list[Statement] = []
    pieces = iter(_pieces(text))
    for first, start, end in pieces:
        words = first.words
        opens = [words[at : at + 3] == ("STATEMENT", "SET", "BEGIN") for at in range(len(words))]
        if words != _BEGIN and not any(opens):
            statements.append(first)
            continue
        last = next((at for piece, at, _ in pieces if piece.words == ("END",)), None)
        if last is None:
            raise BrokenSql(
                Fault(first.line, "the statement set that begins here has no end", "END;")
            )
        # A statement set is one statement, whose lines are the file's still.
        if words == _BEGIN:
            whole = f"EXECUTE STATEMENT SET BEGIN{text[end + 1 : last]}END"
            words = ("EXECUTE", "STATEMENT", "SET", "BEGIN")
        else:
            whole = f"{text[start:last]}END"
        statements.append(Statement(whole, first.line, words, whole))
    return tuple(statements)


def faults_of(statements: Sequence[Statement], settings: Mapping[str, str]) -> Iterator[Fault]:
    """Yield faults for which not one job of ours, and that alone, comes of these statements."""
    for statement in statements:
        yield from _about_kind(statement)
        yield from _about_setting(statement, settings)
    starting = [statement for statement in statements if statement.starts_job]
    if not starting:
        last_line = statements[-1].line if statements else 1
        yield Fault(last_line, "no statement starts a job", "an INSERT at the end")
    for another in starting[1:]:
        fact = f"{another.called} starts a job beside that of line {starting[0].line}"
        yield Fault(another.line, fact, f"one job: {SET_IN_ONE}")
    if len(starting) == 1 and statements[-1] is not starting[0]:
        fact = f"{statements[-1].called} stands behind the statement that starts the job"
        yield Fault(statements[-1].line, fact, "that statement as the last one")


def refused_setting(key: str, value: str) -> str | None:
    """Return the reason for which nobody but us may make a setting; None if everybody may."""
    if key in _OURS or key.startswith("$internal."):
        return "which job this is and what it is restored from is said by stateshift"
    if key == _MODE and value.strip("'").lower() != "streaming":
        return "a job that goes on from an image is a streaming one"
    # The ids of the plan's nodes, which the uids are made of, count on in a gateway for as long as
    # it runs.
    if key == _UIDS and value.strip("'").upper() == "ALWAYS":
        return (
            "operators get other uids each time the SQL gateway is asked, and state is found "
            "by them"
        )
    return None


def _pieces(text: str) -> Iterator[tuple[Statement, int, int]]:
    piece = _OpenStatement(text)
    for token in _TOKEN.finditer(text):
        if token.lastgroup != "end":
            piece.add(token)
            continue
        if piece.start is not None:
            yield piece.statement(token.start()), piece.start, token.start()
        piece = _OpenStatement(text)
    if piece.start is not None:
        yield piece.statement(len(text)), piece.start, len(text)


@dataclass(slots=True)
class _OpenStatement:
    """A statement being read, from its first token; `depth` counts open brackets."""

    text: str
    start: int | None = None
    depth: int = 0
    words: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)

    def add(self, token: re.Match[str]) -> None:
        plain = token[0]
        match token.lastgroup:
            case "unclosed":
                fact = f"the {plain} here is never closed"
                raise BrokenSql(Fault(_line(self.text, token.start()), fact, "its other end"))
            case "comment":
                plain = " "
            case "opening":
                self.depth += 1
            case "closing":
                self.depth = max(0, self.depth - 1)
            case "word" if self.depth == 0:
                self.words.append(plain.upper())
        if self.start is None:
            if plain.isspace():
                return
            self.start = token.start()
        self.bare.append(plain)

    def statement(self, end: int) -> Statement:
        assert self.start is not None, "nothing was read"
        whole = self.text[self.start : end].rstrip()
        bare = "".join(self.bare).strip()
        return Statement(whole, _line(self.text, self.start), tuple(self.words), bare)


def _about_kind(statement: Statement) -> Iterator[Fault]:
    if statement.starts_job:
        return
    words = statement.words
    if not words or words[0] not in _STARTS_NONE:
        expected = (
            f"{', '.join(sorted(_STARTS_NONE))}, and at the end INSERT, a STATEMENT SET or "
            "EXECUTE PLAN"
        )
        fact = f"{statement.called} does not belong to the start of a job"
        yield Fault(statement.line, fact, expected)
        return
    creates = _with_query(words)
    if creates is not None:
        fact = f"{creates} starts a job of its own"
        yield Fault(statement.line, fact, "CREATE TABLE without a query, and an INSERT INTO it")


def _with_query(words: tuple[str, ...]) -> str | None:
    if words[0] != "CREATE":
        return None
    what = next((word for word in words if word not in _MODIFIERS), "")
    if what == "MATERIALIZED":
        return "CREATE MATERIALIZED TABLE"
    return "CREATE TABLE ... AS" if what == "TABLE" and "AS" in words else None


def _about_setting(statement: Statement, settings: Mapping[str, str]) -> Iterator[Fault]:
    if statement.words[:1] == ("RESET",):
        reset = _RESET.match(statement.bare)
        if reset is None:
            fact = "RESET takes back what the spec says of the job, too"
            yield Fault(statement.line, fact, "RESET with one key")
        elif reset["key"] in settings:
            fact = f'RESET takes back "{reset["key"]}", which the spec sets'
            yield Fault(statement.line, fact, "the spec without it")
    elif statement.words[:1] == ("SET",):
        yield from _about_set(statement, settings)


def _about_set(statement: Statement, settings: Mapping[str, str]) -> Iterator[Fault]:
    setting = _SETTING.match(statement.bare)
    if setting is None:
        return
    key, value = setting["quoted"] or setting["plain"], setting["value"].strip()
    if len(value) > 1 and value[0] == value[-1] == "'":
        value = value[1:-1].replace("''", "'")
    why = refused_setting(key, value)
    if why is None and key.startswith(_PLACES):
        why = 'where it runs is said by the cluster\'s "url" and "flink_configuration"'
    if why is None and settings.get(key, value) != value:
        why = f"the spec sets it to {settings[key]!r}"
    if why is not None:
        yield Fault(statement.line, f'SET "{key}": {why}', "the file without it")


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
