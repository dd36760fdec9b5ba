"""A check for a person: the verdict first, then what differs, and the commands. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Gap, Line, Tone, pairs, section
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.documents.check import QueryFacts

TONES: dict[str, Tone] = {
    "never": "bad",
    "starts-after": "warn",
    "starts-but": "warn",
    "not-known": "warn",
    "starts": "good",
    "note": "dim",
}
ORDER = ("never", "starts-after", "starts-but", "not-known", "note")
NOT_AS_EXPECTED = "but not from the state that it expects"
CUT = 400  # letters of a plan's line


def check(queries: list[QueryFacts], file: str) -> Iterator[Block]:
    """Show the verdict on each query."""
    for facts in queries:
        yield from _query(facts, file)


def _query(facts: QueryFacts, file: str) -> Iterator[Block]:
    own, checked = facts.own, facts.checked
    who = f"query {own.query} of {file}" if own.query else f"the query of {file}"
    yield Line(f"{verdict_words(facts)}: {who} from {redact(checked.image)}", TONES[own.verdict])
    yield from _differences(facts)
    if facts.commands:
        yield from section("Commands", *(Line(command, indent=2) for command in facts.commands))
    rows = [(f"operator {part.id}", f"{part.kind} {part.detail}") for part in own.operators]
    rows += [(f"source {part.id}", redact(f"{part.kind} {part.detail}")) for part in own.sources]
    rows.append(("planned by", f"{checked.engine.capitalize()} {checked.engine_version}"))
    yield from section("The code", pairs(*rows))
    stubs = []
    for stub in checked.stubbed:
        options = " ".join(f"{key}={value}" for key, value in stub.options.items())
        stubs.append(Line(redact(f"{stub.kind} {options}: {stub.reason or '--stub'}"), indent=2))
    yield from section("Not reached, and replaced by an empty source", *stubs)


def verdict_words(facts: QueryFacts) -> str:
    """Return the verdict in words."""
    own, number = facts.own, len(facts.commands)
    words = {
        "starts": "starts",
        "not-known": "may start: see what is not known",
        "starts-but": f"starts, {NOT_AS_EXPECTED}",
        "never": "never starts",
    }
    if own.verdict != "starts-after":
        return words[own.verdict]
    if not own.has_commands:
        return "does not start as it is: see the hints"
    after = f"after {number} {'command' if number == 1 else 'commands'}"
    levels = {each.level for each in own.differences}
    if "starts-but" in levels:
        return f"starts {after}, {NOT_AS_EXPECTED}"
    return (
        f"may start {after}: see what is not known" if "not-known" in levels else f"starts {after}"
    )


def _differences(facts: QueryFacts) -> Iterator[Block]:
    shown = sorted(facts.differences, key=lambda each: ORDER.index(each.own.level))
    if not shown:
        return
    yield Gap()
    yield Line("Differences", "strong")
    for difference in shown:
        own = difference.own
        yield Line(
            redact(f"{own.level}: {own.place}: {own.message} [{own.rule}]"),
            TONES[own.level],
            indent=2,
        )
        for word, text in (("was", own.old), ("is", own.new)):
            if text is not None and text not in own.message:
                cut = text if len(text) <= CUT else f"{text[:CUT]}…"
                yield Line(redact(f"{word}: {cut}"), "dim", indent=4)
        if own.hint is not None:
            yield Line(f"hint: {redact(own.hint)}", indent=4)
        if own.level == "note":
            for command in difference.commands:
                yield Line(f"to change it: {command}", indent=4)
