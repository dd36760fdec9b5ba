"""`stateshift inspect`: what is in an image, a workflow directory or a single file. Reads only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stateshift.cli.shell.options import Json, Location, Verbose, epilog, names_in
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.look import ShownEntry
    from stateshift.survey import Survey

EPILOG = epilog(
    "stateshift inspect s3://bucket/checkpoints/orders\n"
    "stateshift inspect /checkpoints/orders/offsets/79\n"
    "stateshift inspect /checkpoints/orders --entries --limit 5",
    2,
    3,
    6,
)


def command(
    context: typer.Context,
    location: Location,
    files: Annotated[
        bool, typer.Option("--files", help="List all files, and which of them a restart needs.")
    ] = False,
    entries: Annotated[
        bool, typer.Option("--entries", help="Show the first entries of every store.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Entries shown of each store.")
    ] = 20,
    uids: Annotated[
        str | None,
        typer.Option(
            "--uids", metavar="NAME,…", help="Look for operators with these names; and name them."
        ),
    ] = None,
    json: Json = False,
    verbose: Verbose = 0,
) -> int | None:
    """What is in an image, a workflow or a single file.

    Tells engine, epochs, operators, stores, what a restart needs and what it does not, absolute
    paths inside, sources and sinks, and what is wrong. A single file (an offset log, a commit, a
    delta, a snapshot) is decoded.
    """
    from stateshift import look
    from stateshift.cli.views import images_json as as_json
    from stateshift.cli.views import survey as render_survey

    terminal = Terminal.of(context, json, verbose)
    opening = terminal.opening()
    seen = look.inspect(location, opening)
    if seen.survey is not None and uids:
        seen = replace(seen, survey=_named(seen.survey, uids))
    document = as_json.look(seen, location)
    blocks = list(render_survey.look(seen, location, terminal.verbose))
    if seen.survey is not None and uids:
        document["uids"] = _names(seen.survey, uids)
        blocks += render_survey.uids(document["uids"])
    if seen.survey is not None and files:
        document["files"]["list"] = as_json.file_rows(seen.survey)
        blocks += render_survey.all_files(seen.survey)
    if seen.survey is not None and entries:
        shown = list(look.entries(location, opening, limit + 1))
        kept = list(_first(shown, limit))
        document |= {
            "entries": [as_json.entry(e) for e in kept],
            "entries_more": len(kept) < len(shown),
            "entries_notes": list(dict.fromkeys(e.note for e in kept if e.note is not None)),
        }
        blocks += render_survey.entries(kept, len(kept) < len(shown))
    if json:
        terminal.document(document)
    else:
        terminal.show(blocks)
    return None


def _first(shown: list[ShownEntry], limit: int) -> list[ShownEntry]:
    """At most `limit` entries of each store: one more was asked for, to know whether there are
    more.
    """
    counts: dict[tuple[str, str], int] = {}
    kept = []
    for entry in shown:
        place = (entry.operator, entry.store)
        counts[place] = counts.get(place, 0) + 1
        if counts[place] <= limit:
            kept.append(entry)
    return kept


def _named(found: Survey, text: str) -> Survey:
    """An operator that is known by the hash of its uid alone is called by it, where that is one
    of the names.
    """
    from stateshift.formats import uid

    names = {uid.flink_operator_id(name): name for name in names_in(text)}
    return replace(
        found,
        images=tuple(
            replace(
                image,
                operators=tuple(replace(o, uid=o.uid or names.get(o.id)) for o in image.operators),
            )
            for image in found.images
        ),
    )


def _names(found: Survey, text: str) -> list[dict[str, Any]]:
    """Each name, where it would be, and whether it is there: as a directory, or as an operator's
    id.
    """
    from stateshift.formats import uid

    directories = {image.path for image in found.images}
    ids = {operator.id for image in found.images for operator in image.operators}
    rows = []
    for name in names_in(text):
        directory = found.names.get(name) or uid.directory_name(name)
        flink = uid.flink_operator_id(name)
        rows.append(
            {
                "name": name,
                "directory": directory,
                "flink_operator_id": flink,
                "found": directory in directories or flink in ids,
            }
        )
    return rows
