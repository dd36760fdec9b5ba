"""`stateshift schema`: the JSON Schemas of what users write, and of what `--json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.documents.shape import Schema

EPILOG = epilog(
    "stateshift schema > spec.schema.json\nstateshift schema --of dataflow > dataflow.schema.json\n"
    "stateshift schema --of plan",
    2,
    e0="printed",
    e2="there is no such schema",
)

SPEC = "spec"


def command(
    terminal: Terminal,
    which: Annotated[
        str | None, typer.Argument(metavar="WHICH", help="The same as --of.", show_default=False)
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="NAME",
            help="spec, dataflow; or a document of --json: plan, report, status, inspect, … "
            "(or the command that prints it). [spec]",
        ),
    ] = None,
) -> int | None:
    """The JSON Schema of a spec, or of what --json prints.

    You write specs and dataflows. All other schemas describe what commands print with --json.
    A minor version may add keys there; only a major version removes them.
    """
    if which is not None and of not in (None, which):
        raise typer.BadParameter(f"WHICH is {which!r}, and --of is {of!r}: name one of them")
    terminal.document("schema", schema_named(of or which or SPEC), indent=2)
    return None


def schema_named(name: str) -> Schema:
    """Return the schema of an input, of a document, or of the document that a command prints."""
    from stateshift.cli.views import documents
    from stateshift.errors import Complaint, SpecError

    if name == SPEC:
        from stateshift.specification.schema import spec_schema

        return spec_schema()
    if name == "dataflow":
        from stateshift.specification.schema import dataflow_schema

        return dataflow_schema()
    document = documents.name_of(name)
    if document is None:
        expected = ", ".join((SPEC, "dataflow", *documents.DOCUMENTS))
        raise SpecError(
            (Complaint("--of", f"there is no schema of {name!r}", name, f"one of {expected}"),),
            hint="stateshift schema --of plan",
        )
    return documents.schema_of(document)
