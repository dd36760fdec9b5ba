"""The tables of images, the rows of an answer, and the profiles of images. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, TypedDict

from stateshift.engines.views import ImageProfile
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.table.tables import StateTable


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """The tables of images; and of a question its answer, or the file that it was written to."""

    tables: Sequence[StateTable]
    columns: Sequence[Column] = ()
    rows: Sequence[dict[str, object]] = ()
    more: bool = False
    file: str | None = None


class TableDocument(TypedDict):
    """A table that can be asked."""

    name: Annotated[str, "its name in SQL"]
    location: Annotated[str, "where its image is", redact]
    operator: Annotated[str, "the operator whose state it is"]
    store: Annotated[str, "the store of that operator"]


class ColumnDocument(TypedDict):
    """A column of an answer."""

    name: Annotated[str, "its name"]
    type: Annotated[str, "its type, in Arrow's words"]


class AnswerDocument(TypedDict):
    """The answer to a question, or the tables that can be asked."""

    tables: Annotated[list[TableDocument], "all tables of the images"]
    columns: Annotated[list[ColumnDocument], "the columns of the answer; none without a question"]
    rows: Annotated[list[object], "a row each: a value for each column"]
    more: Annotated[bool, "whether there are more rows than --limit shows"]
    file: Annotated[str | None, "the file that the rows were written to"]


@dataclass(frozen=True, slots=True)
class ProfileDocument:
    """The profile of an image, and that of another beside it."""

    image: Annotated[ImageProfile, "the image"]
    beside: Annotated[ImageProfile | None, "the image that it is compared with"] = None


def profile_rows(facts: ProfileDocument) -> list[dict[str, object]]:
    """Return a row for each store: what one number says of it."""
    rows = []
    for image in filter(None, (facts.image, facts.beside)):
        for store in image.stores:
            cells = {each.name: getattr(store, each.name) for each in fields(store)}
            plain = {key: cell for key, cell in cells.items() if not isinstance(cell, tuple)}
            rows.append({"image": redact(image.location), **plain})
    return rows
