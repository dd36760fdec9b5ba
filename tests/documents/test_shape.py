"""A document is made of a value by its shape, and its schema says the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NotRequired, TypedDict

from stateshift.documents.shape import At, Definitions, OrNone, document_of, documents_of
from stateshift.storage.locations import Redacted


@dataclass(frozen=True)
class Part:
    """A part with words of its own."""

    schema_name: ClassVar = "Piece"
    name: Annotated[Redacted, "its name"]
    sizes: Annotated[tuple[int, ...], "its sizes"]
    hidden: str = "for other views"


@dataclass(frozen=True)
class Owner:
    name: str


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    owner: Owner | None = None
    note: str = ""
    counts: dict[int, int] | None = None


def count_parts(whole: Whole) -> int:
    return len(whole.parts)


class WholeDocument(TypedDict):
    """The whole."""

    parts: Annotated[list[Part], "its parts"]
    count: Annotated[int, "how many", At(count_parts)]
    owner: Annotated[str | None, "who owns it", At("owner.name")]
    owner_or_nobody: Annotated[str, "who owns it", At("owner.name", none="nobody")]
    note: Annotated[str | None, "what else", OrNone("note")]
    counts: NotRequired[Annotated[dict[str, int], "by number"]]
    missing: NotRequired[Annotated[str, "an attribute that the value has not"]]


WHOLE = Whole((Part("s3://me:secret@here/x", (1, 2)),))


def test_keys_come_in_the_order_of_the_shape_from_where_it_says() -> None:
    whole = Whole(WHOLE.parts, Owner("ops"), "new", {1: 2})
    assert list(document_of(WholeDocument, whole).items()) == [
        ("parts", [{"name": "s3://me:***@here/x", "sizes": [1, 2]}]),
        ("count", 1),
        ("owner", "ops"),
        ("owner_or_nobody", "ops"),
        ("note", "new"),
        ("counts", {"1": 2}),
    ]


def test_none_ends_the_way_and_a_key_that_is_not_required_is_left_out() -> None:
    document = document_of(WholeDocument, WHOLE)
    assert document["owner"] is None
    assert document["owner_or_nobody"] == "nobody"
    assert document["note"] is None
    assert "counts" not in document and "missing" not in document


def test_keys_that_are_given_are_taken_as_they_are() -> None:
    (document,) = documents_of(WholeDocument, [WHOLE])
    assert document_of(WholeDocument, WHOLE, parts=[], count=0) == {
        **document,
        "parts": [],
        "count": 0,
    }


def test_a_schema_defines_each_shape_once_and_has_fields_with_words_alone() -> None:
    definitions = Definitions(strict=True)
    assert definitions.schema(list[WholeDocument]) == {
        "type": "array",
        "items": {"$ref": "#/$defs/Whole"},
    }
    assert definitions.by_name["Piece"] == {
        "type": "object",
        "description": "A part with words of its own.",
        "properties": {
            "name": {"description": "its name", "type": "string"},
            "sizes": {
                "description": "its sizes",
                "type": "array",
                "items": {"type": "integer"},
            },
        },
        "required": ["name", "sizes"],
        "additionalProperties": False,
    }
    whole = definitions.by_name["Whole"]
    assert whole["required"] == ["parts", "count", "owner", "owner_or_nobody", "note"]
