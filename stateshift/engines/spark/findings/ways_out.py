"""What to do about a damaged or missing file that no earlier epoch gets around. Pure.

What Spark does without a file was seen with 3.5 to 4.3: schemas of stores and the operators'
metadata of version 1 it writes again; without the query's id 4.2 and later refuse to start, earlier
ones take it for another query.
"""

from __future__ import annotations

from stateshift.formats.spark.names import classify

_COPY = "restore {path} from a copy of the checkpoint"


def way_out(path: str, image: str) -> str:
    """Return a hint for the file at `path`, which belongs to the image at `image`."""
    place = classify(path[len(image) :].lstrip("/") if image else path)
    match place.area:
        case "metadata":
            hint = (
                f"{_COPY}, or write the query's id into it, as the job's own log and its "
                "progress name it"
            )
        case "state-schema" | "state-metadata" if place.version is None:
            hint = "move {path} out of the way: Spark writes it again when the job starts"
        case "sources":
            hint = f"{_COPY}: nothing else says which files the source has read"
        case _:
            hint = _COPY
    return hint.format(path=path)
