"""`stateshift schema`: the JSON Schema of the spec, or of a dataflow, for editors and other
programs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import Json, Verbose, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift schema > spec.schema.json\nstateshift schema dataflow > dataflow.schema.json",
    2,
    e0="printed",
    e2="there is no such schema",
)


def command(
    context: typer.Context,
    which: Annotated[
        str, typer.Argument(metavar="WHICH", help="spec, or dataflow (for reconfigure).")
    ] = "spec",
    json: Json = False,
    verbose: Verbose = 0,
) -> int | None:
    """The JSON Schema of the spec, or of a dataflow."""
    import sys
    from json import dumps

    Terminal.of(context, json, verbose)
    match which:
        case "spec":
            from stateshift.specification.schema import spec_schema

            made = spec_schema()
        case "dataflow":
            from stateshift.dataflow.schema import dataflow_schema

            made = dataflow_schema()
        case _:
            from stateshift.errors import Complaint, SpecError

            fact = f"{which!r} is neither spec nor dataflow"
            raise SpecError((Complaint("WHICH", fact, which),), hint="stateshift schema dataflow")
    sys.stdout.write(dumps(made, indent=2) + "\n")
    return None
