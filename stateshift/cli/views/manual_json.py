"""What `man` and `completion` print with --json."""

from __future__ import annotations

from typing import Annotated, TypedDict


class ManPageDocument(TypedDict):
    """A man page that was written."""

    command: Annotated[str, "the command, with the program's name before it"]
    file: Annotated[str, "the file"]


class CompletionDocument(TypedDict):
    """A completion script."""

    shell: Annotated[str, "bash, zsh or fish"]
    script: Annotated[str, "what the shell has to source"]
