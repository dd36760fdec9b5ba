"""The commands that look at images. They only read; `export` writes its file."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import (
    Descriptors,
    FleetOf,
    Format,
    Location,
    Overwrite,
    Parallel,
    argument,
    command,
    flag,
    names_in,
    option,
    refuse_replacing,
)
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import PlanError, SpecError, StorageError, VerifyError

if TYPE_CHECKING:
    from stateshift.documents.survey import OperatorIdDocument


@command(
    "stateshift inspect s3://bucket/checkpoints/orders\n"
    "stateshift inspect /checkpoints/orders/offsets/79\n"
    "stateshift inspect /checkpoints/orders --entries --limit 5",
    (2, 3, 4, 6),
    e4="nothing is there",
)
def inspect(
    terminal: Terminal,
    location: Location,
    files: Annotated[
        bool, flag("--files", "List all files, and which of them a restart needs.")
    ] = False,
    sources: Annotated[
        bool, flag("--sources", "List the position in each partition of every source.")
    ] = False,
    entries: Annotated[bool, flag("--entries", "Show the first entries of every store.")] = False,
    limit: Annotated[
        int, option("--limit", "N", "Show up to N entries for each store.", min=1)
    ] = 20,
    uids: Annotated[
        str | None,
        option("--uids", "NAME,…", "Look for operators with these names, and show their names."),
    ] = None,
    descriptor: Descriptors = None,
    format: Format = "text",
) -> int | None:
    """Show what is in an image, a workflow or a file.

    Shows engine, epochs, operators and stores, the files that a restart needs, absolute paths
    inside, sources and sinks, and problems. Of a single file (an offset log, a commit, a delta,
    a snapshot) it shows the decoded content.
    """
    from stateshift import api
    from stateshift.cli.views import survey_text as render_survey
    from stateshift.documents.survey import store_rows

    terminal.format_as(format)
    inspection = api.inspect(
        location,
        uids=names_in(uids or ""),
        files=files,
        sources=sources,
        entries=limit if entries else 0,
        adapters=terminal.adapters_given,
    )
    terminal.answer(
        "inspect",
        inspection.to_dict,
        render_survey.inspection(inspection, terminal.verbose),
        lambda: store_rows(inspection.to_dict()),
    )
    return None


_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})")
STDOUT = "-"


def _changes(text: str | None) -> str | None:
    """Refuse what names no batches, as soon as it is parsed."""
    if text is not None and _RANGE.fullmatch(text) is None:
        raise typer.BadParameter(
            f"{text} is not A..B, two batches of which the first is the earlier one"
        )
    return text


@command(
    "stateshift export s3://bucket/checkpoints/orders --to orders.parquet\n"
    "stateshift export /checkpoints/orders --operator 0 --store left-keyToNumValues --to "
    "counts.arrow\n"
    "stateshift export /checkpoints/orders --changes 70..79 --to - | jq .key",
    (2, 3, 4, 6),
)
def export(
    terminal: Terminal,
    location: Location,
    to: Annotated[
        str, option("--to", "FILE", ".parquet, .arrow or .jsonl; - for JSON lines on stdout.")
    ],
    operator: Annotated[str | None, option("--operator", "N", "Only this operator.")] = None,
    store: Annotated[str | None, option("--store", "S", "Only this store.")] = None,
    batch: Annotated[
        int | None, option("--batch", "N", "The state as batch N left it.", min=0)
    ] = None,
    changes: Annotated[
        str | None,
        option(
            "--changes",
            "A..B",
            "What batches A to B did to the state, instead of the state.",
            callback=_changes,
        ),
    ] = None,
    descriptor: Descriptors = None,
    overwrite: Overwrite = False,
    parallel: Parallel = None,
) -> int | None:
    """Write state as Parquet, Arrow or JSON lines.

    Keys and values have the columns and types of the checkpoint's own schema. A Parquet or
    Arrow file takes stores of one schema; JSON lines take all. The file is written whole or not
    at all.
    """
    from stateshift import look
    from stateshift.cli.shell.work import readers_for
    from stateshift.cli.views import survey_text
    from stateshift.documents.survey import export_document

    if to == STDOUT and terminal.json:
        message = "the state goes to stdout, and so would the document of --json"
        raise SpecError.of("--to -", message)
    if batch is not None and changes is not None:
        raise SpecError.of("--batch", "--changes names its batches itself")
    opening = terminal.opening()
    batches = None
    if changes is not None:
        first, _, last = changes.partition("..")
        batches = int(first), int(last)
    wanted = look.Wanted(operator, store, batch, batches)
    state = look.export(location, to, wanted, opening)
    if to != STDOUT:
        refuse_replacing(terminal, "--to", to, overwrite)
    with readers_for(terminal, None, [location], parallel) as readers:
        if to == STDOUT:
            for chunk in state.chunks(readers):
                terminal.write(chunk)
        else:
            size = look.save(state, to, opening, readers)
            terminal.answer(
                "export",
                lambda: export_document(state, to, size),
                [survey_text.export_line(state, to, size)],
            )
    if not terminal.json:
        for note in state.notes:
            terminal.say(f"note: {note}")
    return None


@command(
    "stateshift query /checkpoints/orders\n"
    'stateshift query /checkpoints/orders "select count(*) from state_0"\n'
    'stateshift query old/orders new/orders "select key from a_state_0 except select key from '
    'b_state_0"',
    (2, 3, 4, 6),
)
def query(
    terminal: Terminal,
    words: Annotated[
        list[str], argument("LOCATION… SQL", "Images, and one SELECT. Without one: the tables.")
    ],
    to: Annotated[
        str | None, option("--to", "FILE", "Write all rows as .parquet, .arrow or .jsonl.")
    ] = None,
    overwrite: Overwrite = False,
    limit: Annotated[int, option("--limit", "N", "Show up to N rows.", min=1)] = 100,
    descriptor: Descriptors = None,
    parallel: Parallel = None,
    format: Format = "text",
) -> int | None:
    """Ask the state of images by SQL.

    Each store of an operator is a table with the columns operator, store, shard, key and value;
    those of several images begin with a_, b_. Files beside are read by DuckDB's own functions:
    read_parquet('users.parquet'). State is read as it is asked for, and nothing is written.
    """
    from stateshift.cli.shell.work import readers_for
    from stateshift.cli.views import query_text
    from stateshift.documents.query import AnswerDocument, AnswerFacts, Column
    from stateshift.table.query import answer, is_question
    from stateshift.table.rows import rows_of, save
    from stateshift.table.tables import tables_of

    if to is not None:
        refuse_replacing(terminal, "--to", to, overwrite)
    sql = words.pop() if is_question(words[-1]) and len(words) > 1 else None
    terminal.format_as(format, "tables" if sql is None else "rows")
    opening = terminal.opening()
    tables = tables_of(words, opening)
    if sql is None:
        facts = AnswerFacts(tables)
        terminal.answer_value("answer", AnswerDocument, facts, query_text.tables(tables))
        return None
    with (
        readers_for(terminal, None, words, parallel) as readers,
        answer(sql, tables, opening, readers) as given,
    ):
        columns = [Column(field.name, str(field.type)) for field in given.schema]
        if to is not None:
            save(given, to, opening)
            facts = AnswerFacts(tables, columns, file=to)
        else:
            rows, more = rows_of(given, limit)
            facts = AnswerFacts(tables, columns, rows, more)
        terminal.answer_value("answer", AnswerDocument, facts, query_text.answer(facts))
    return None


@command(
    "stateshift profile /checkpoints/orders\n"
    "stateshift profile s3://lake/orders --every 16 --html orders.html\n"
    "stateshift profile old/orders --to new/orders",
    (2, 3, 4, 6),
)
def profile(
    terminal: Terminal,
    location: Location,
    to: Annotated[
        str | None, option("--to", "LOCATION", "Another image, whose profile stands beside.")
    ] = None,
    every: Annotated[
        int,
        option("--every", "N", "Read every Nth shard only, and estimate. Spark only.", min=1),
    ] = 1,
    html: Annotated[
        str | None, option("--html", "FILE", "Write it as a page, too; replaces the file.")
    ] = None,
    parallel: Parallel = None,
    format: Format = "text",
) -> int | None:
    """Show how many entries there are, how large and how old.

    Entries and bytes of each store by shard, the largest keys and values, the age of entries by
    the times in their columns (windows, timers, expiry), and its files, of which `compact` leaves
    one or two a shard. State is read as it comes, and never held.
    """
    from stateshift.api.local_files import write_whole
    from stateshift.cli.shell.work import readers_for
    from stateshift.cli.views import query_text
    from stateshift.documents.query import ProfileDocument, profile_rows
    from stateshift.documents.shape import document_of
    from stateshift.storage import locations
    from stateshift.table.profile import profile as profile_of

    terminal.format_as(format)
    opening, cwd = terminal.opening(), os.getcwd()
    places = [locations.normal(place, cwd) for place in (location, to) if place is not None]
    with readers_for(terminal, None, places, parallel) as readers:
        facts = ProfileDocument(*(profile_of(place, opening, readers, every) for place in places))
    if html is not None:
        try:
            write_whole(html, query_text.profile_page(facts))
        except OSError as error:
            raise StorageError(f"{html} cannot be written: {error.strerror}") from error
    terminal.answer(
        "profile",
        lambda: document_of(ProfileDocument, facts),
        query_text.profile(facts),
        lambda: profile_rows(facts),
    )
    return None


@command(
    "stateshift diff hdfs://old:8020/checkpoints/orders s3://new/checkpoints/orders\n"
    "stateshift diff orders moved/orders --show 5",
    (2, 3, 4, 5, 6, 7),
    e0="both hold the same entries",
    e4="not an image, or state that cannot be compared",
    e5="they differ",
    e7="the fleet failed",
)
def diff(
    terminal: Terminal,
    a: Annotated[str, argument("A", "An image: a URL or a local path.")],
    b: Annotated[str, argument("B", "Another image.")],
    show: Annotated[
        int, option("--show", "N", "Show up to N differences for each store.", min=0)
    ] = 0,
    descriptor: Descriptors = None,
    fleet: FleetOf = None,
    parallel: Parallel = None,
    format: Format = "text",
) -> int | None:
    """Compare two images, entry by entry.

    `added` is what only B has, `removed` what only A has. Two images are equal if their entries
    are. Shards, files, codecs and state store providers may differ.
    """
    from stateshift import look
    from stateshift.cli.shell.work import readers_for
    from stateshift.cli.views import diff_text as render_diff
    from stateshift.documents.diff import DiffDocument, Outcome, diff_facts
    from stateshift.documents.shape import document_of

    terminal.format_as(format)
    with readers_for(terminal, fleet, [a, b], parallel) as readers:
        facts = diff_facts(look.diff(a, b, terminal.opening(), show, readers))
    document = document_of(DiffDocument, facts)
    counts = []
    for operator in document["operators"]:
        counts.append({key: cell for key, cell in operator.items() if not isinstance(cell, list)})
    shown = render_diff.differences(facts, a, b, terminal.verbose)
    terminal.answer("diff", lambda: document, shown, lambda: counts)
    match facts.outcome:
        case Outcome.EQUAL:
            return 0
        case Outcome.DIFFERENT:
            return VerifyError.exit_code
    return PlanError.exit_code


@command(
    "stateshift browse s3://bucket/checkpoints/orders\n"
    "stateshift browse /checkpoints/orders /moved/orders\n"
    "stateshift browse .stateshift",
    (2, 3, 4, 6, 8, 130),
    e0="you have quit",
    e4="the extra `browse` is not installed",
)
def browse(
    terminal: Terminal,
    locations: Annotated[
        list[str],
        argument("LOCATION|WORKDIR…", "An image, two images, a run, or the folder of all runs."),
    ],
    descriptor: Descriptors = None,
) -> None:
    """Browse images and runs at the terminal. It only reads.

    Operators, stores, shards, entries with search by key, files, sources and sinks, findings; of
    two images, how they differ; of runs, their timeline. ? shows the keys, q quits.
    """
    is_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    is_dumb = terminal.environment.get("TERM") in (None, "", "dumb")
    if terminal.json or terminal.verbose or is_dumb or not is_terminal:
        fact = "it needs a terminal to itself: no pipe, no --json, no --verbose"
        document = " --json" if terminal.json else ""
        raise SpecError.of(
            "browse", fact, hint=f"stateshift inspect {quote(locations[0])}{document}"
        )
    try:
        from stateshift.cli.browse import app
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "textual":
            raise
        fact = "browsing needs the library textual"
        raise PlanError(fact, hint="pip install 'stateshift[browse]'") from None
    from stateshift.cli.browse.places import first_page

    terminal.hush()
    app.run(partial(first_page, locations), terminal.adapters())
    os._exit(0)  # what is still being read may hang, and only reads


@command(
    "stateshift uid 'Aggregate (5)' 'Join'\n"
    "stateshift uid --profile 53,1000000007,-96 'Aggregate (5)'",
    (2, 4),
    e4="two of the names have the same directory",
)
def uid(
    terminal: Terminal,
    names: Annotated[list[str], argument("NAME…", "Names of operators, which are their UIDs.")],
    profile: Annotated[
        str,
        option("--profile", "P", "default, java-signed, or p,m,offset with or without `,signed`."),
    ] = "default",
    format: Format = "text",
) -> int | None:
    """Show the directory and Flink id of operators' names."""
    from stateshift.cli.views.text import TextTable

    terminal.format_as(format)
    rows = describe_names(names, constants(profile))
    refuse_collisions(rows)
    heads = ("name", ">hash", "directory", "results (in production)", "Flink operator id")
    cells = []
    for row in rows:
        directories = row["directory"], row["results_directory"]
        cells.append((row["name"], str(row["hash"]), *directories, row["flink_operator_id"]))
    terminal.answer("uid", lambda: rows, [TextTable(heads, tuple(cells), indent=0)])
    return None


def constants(profile: str) -> tuple[int, int, int, bool]:
    """Return p, m, offset and signed of a named profile, or as they are given."""
    from stateshift.formats.uid import PROFILES

    if profile in PROFILES:
        named = PROFILES[profile]
        return named.p, named.m, named.offset, named.signed
    parts = [part.strip() for part in profile.split(",")]
    signed = parts[-1] == "signed"
    if signed:
        parts.pop()
    with suppress(ValueError):
        p, m, offset = (int(part) for part in parts)
        if p > 0 and m > 0:
            return p, m, offset, signed
    expected = f"{', '.join(PROFILES)}, or p,m,offset[,signed] such as 31,1000000009,-96"
    hint = "stateshift uid --profile 31,1000000009,-96 NAME"
    raise SpecError.of("--profile", "no such profile", profile, expected, hint=hint)


def describe_names(
    names: list[str], profile: tuple[int, int, int, bool]
) -> list[OperatorIdDocument]:
    """Return a row for each name."""
    from stateshift.formats import uid

    if not all(name.strip() for name in names):
        message = "a name is empty; every operator has one"
        raise SpecError.of("NAME", message, hint="stateshift uid 'Aggregate (5)'")
    rows: list[OperatorIdDocument] = []
    for name in names:
        directory = uid.directory_name(name, *profile)
        results = uid.results_directory(directory, production=True)
        assert results is not None, "in production, results lie beside the state"
        rows.append(
            {
                "name": name,
                "hash": uid.rolling_hash(name, *profile),
                "directory": directory,
                "results_directory": results,
                "flink_operator_id": uid.flink_operator_id(name),
            }
        )
    return rows


def refuse_collisions(rows: list[OperatorIdDocument]) -> None:
    """Refuse names with the same directory: their operators would read each other's state."""
    from stateshift.formats.uid import collisions

    directories = {row["name"]: row["directory"] for row in rows}
    for first, second, directory in collisions(
        [row["name"] for row in rows], directories.__getitem__
    ):
        raise PlanError(
            f"{first!r} and {second!r} have the same directory {directory}",
            hint="names are unique in a workflow: rename one, or choose another --profile",
        )
