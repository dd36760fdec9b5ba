"""The commands, run in this process through the command line's own entry, over a disk in memory.

    shown = run(disk, "verify", location, "--deep", "--json")     Said: exit code, stdout, stderr
    document_of(shown)                                            its JSON
    about(shown, document)                                        why, in a line

So the mapping of errors to exit codes is part of what is looked at. No cluster runs anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stateshift.testing.memory_storage import MemoryDisk
from tests.cli.support import Outside, Said


def run(disk: MemoryDisk, *argv: str) -> Said:
    """The command as a shell would run it. What leaves it as an exception has exit code None."""
    try:
        return Outside(disk=disk).run(*argv)
    except Exception as error:  # the command line promises that nothing does
        return Said(None, "", f"{type(error).__name__}: {error}")


def document_of(shown: Said) -> Any:
    try:
        return shown.document
    except ValueError:
        return {}


def about(shown: Said, document: Any) -> str:
    """Why, in a line: the first refusal, or the end of the traceback."""
    if not isinstance(document, dict):
        return ""
    if document.get("traceback"):
        return _traceback(Path(document["traceback"]))
    refusals = [one["message"] for one in document.get("findings", ()) if one["level"] == "refuse"]
    return str(refusals[0] if refusals else document.get("message", shown.err.strip()[-300:]))[:300]


def _traceback(place: Path) -> str:
    """The innermost lines of ours, and the error."""
    lines = place.read_text().splitlines() if place.exists() else []
    place.unlink(missing_ok=True)
    frames = [
        line.strip()
        for line in lines
        if line.strip().startswith('File "') and "/stateshift/" in line
    ]
    where = frames[-1].rpartition("/stateshift/")[2] if frames else ""
    return f"{where}: {lines[-1] if lines else ''}"[:300]


def forget_traceback(shown: Said) -> None:
    """Remove the file that it was kept in."""
    document = document_of(shown)
    if isinstance(document, dict) and document.get("traceback"):
        Path(document["traceback"]).unlink(missing_ok=True)
