"""Every document that a test makes the program print is held against the strict schema of its name.

The program, here and in child processes, appends a copy of each document to the file that
STATESHIFT_DOCUMENTS names. After each test the new ones are read and checked: a key that no schema
has, one that is missing, or a value of another type fails the test.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from stateshift.cli.views.documents import schema_of

VARIABLE = "STATESHIFT_DOCUMENTS"


@cache
def validator(name: str) -> Any:
    """Return what holds a document against the strict schema of its name."""
    return jsonschema.Draft202012Validator(schema_of(name, strict=True))


def misfits(name: str, document: Any) -> list[str]:
    """Return where the document is not what its schema says, the most telling place first."""
    errors = sorted(validator(name).iter_errors(document), key=jsonschema.exceptions.relevance)
    return [_described(jsonschema.exceptions.best_match([error])) for error in errors]


def _described(error: jsonschema.ValidationError) -> str:
    return f"{error.json_path}: {error.message[:500]}"


class Documents:
    """The copies that one process of tests, and its children, leave in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def printed(self) -> list[tuple[str, Any]]:
        """Return the documents since the last call, each with the name of its schema.

        A test that acts as another user cannot read them: they are read after the next one.
        """
        if not os.access(self.path, os.R_OK, effective_ids=True):
            return []
        if os.path.getsize(self.path) == self._read:
            return []
        with open(self.path, "rb") as file:
            file.seek(self._read)
            lines = file.read().splitlines()
            self._read = file.tell()
        copies = [json.loads(line) for line in lines]
        return [(copy["name"], copy["document"]) for copy in copies]

    def misfits(self) -> list[str]:
        """Return what is wrong with the documents since the last call."""
        found = []
        for name, document in self.printed():
            found += [f"{name} {misfit}" for misfit in misfits(name, document)]
        return found
