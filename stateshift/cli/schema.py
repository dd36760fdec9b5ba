"""`stateshift schema`: the JSON Schema of the spec, for editors and other programs."""

from __future__ import annotations

import typer

from stateshift.cli.options import Json, Verbose, epilog
from stateshift.cli.terminal import Terminal

EPILOG = epilog("stateshift schema > spec.schema.json", e0="printed")


def command(context: typer.Context, json: Json = False, verbose: Verbose = False) -> int | None:
    """The JSON Schema of the spec."""
    import sys
    from json import dumps

    from stateshift.spec.schema import spec_schema

    Terminal.of(context, json, verbose)
    sys.stdout.write(dumps(spec_schema(), indent=2) + "\n")
    return None
