"""The pages of what `browse` is given: an image with its operators, stores, shards, entries, files,
sources and sinks, and findings; two images and how they differ; runs. `stateshift.api` is asked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from stateshift import api
from stateshift.cli.browse.page import Listed, Opener, Page, PageRow, rows_of
from stateshift.cli.commands.runs import below, run_at
from stateshift.cli.views import diff_text, findings_text, run_text, survey_text
from stateshift.cli.views.text import Block, Gap, Line, Row, compact_json, pairs, plain_text
from stateshift.cli.views.units import many, number, size
from stateshift.documents.diff import diff_facts
from stateshift.documents.run import RunFacts
from stateshift.errors import SpecError, StateshiftError
from stateshift.storage.locations import redact
from stateshift.workdir import Workdir

if TYPE_CHECKING:
    from stateshift.documents.survey import EndpointOf, OperatorOf, SurveyFacts
    from stateshift.engines.views import Counts, Difference
    from stateshift.migration import Adapters

DIFFERENCES = 1000  # of each store that are shown
CHANGES = {
    "added": "an entry that only B has",
    "removed": "an entry that only A has",
    "changed": "an entry with another value in B",
}
TEXT_MAX = 100_000  # letters of a key or a value that are shown


def first_page(places: list[str], adapters: Adapters) -> Page:
    """Return the page of what the command was given."""
    if len(places) == 2:
        return two_images_page(places[0], places[1], adapters)
    if len(places) != 1:
        fact = f"{len(places)} locations: one is shown, or two are compared"
        raise SpecError.of("LOCATION", fact, hint="stateshift browse A B")
    (place,) = places
    if "://" in place:
        return image_page(place, adapters)
    if Workdir(place).exists:
        return run_page(place, adapters)
    if below(place):
        return runs_page(place, adapters)
    return image_page(place, adapters)


def image_page(location: str, adapters: Adapters) -> Page:
    """Return the page of what is at a location: an image, a workflow, files, or a single file."""
    inspection = api.inspect(location, files=True, sources=True, adapters=adapters)
    facts = inspection.facts
    if facts is None:
        return Page(redact(location), tuple(survey_text.inspection(inspection)))
    brief = replace(facts, files=replace(facts.files, rows=None), positions=None)
    head = tuple(takewhile(_is_head, survey_text.survey(brief)))
    whole = partial(survey_text.survey, brief, verbose=True)
    choices = [
        *_parts(location, facts),
        PageRow(("all of it", "", "as `inspect -v`"), lambda _: Page("all of it", tuple(whole()))),
    ]
    heads = ("part", "name", "holds")
    return Page(redact(location), head, heads, rows_of(choices), "part", "parts")


def _parts(location: str, facts: SurveyFacts) -> Iterator[PageRow]:
    for owned in facts.operators:
        operator = owned.operator
        words = [many(operator.shards, "shard")]
        words += [f"{each.name} {size(each.bytes)}" for each in operator.stores]
        opens = partial(operator_page, location, facts, owned)
        name = " ".join(filter(None, (owned.image.path, owned.uid or owned.name or operator.id)))
        yield PageRow(("operator", name, ", ".join(words)), opens)
    amounts = facts.files
    if amounts.all.count:
        words = [many(amounts.all.count, "file"), size(amounts.all.bytes)]
        if facts.survey.images:
            words.append(f"{number(amounts.needed.count)} needed by a restart")
        yield PageRow(("files", "", ", ".join(words)), lambda _: files_page(facts))
    if facts.endpoints:
        words = [f"{end.endpoint.role} {end.endpoint.kind}" for end in facts.endpoints]
        yield PageRow(("sources and sinks", "", ", ".join(words)), lambda _: ends_page(facts))
    levels = Counter[str](finding.level for finding in facts.findings)
    words = [f"{number(levels[each])} {each}" for each in findings_text.ORDER if levels[each]]
    found = tuple(findings_text.findings(facts.findings, verbose=True)) or (Line("none", "dim"),)
    yield PageRow(("findings", "", ", ".join(words) or "none"), lambda _: Page("findings", found))
    if facts.survey.images:
        opens = partial(verdict_page, location)
        yield PageRow(("verify", "", "could a job restart from here?"), opens)


def _is_head(block: Block) -> bool:
    return not isinstance(block, Gap)


def verdict_page(location: str, adapters: Adapters) -> Page:
    """Return the page that says whether a job could restart."""
    verdict = api.verify(location, adapters=adapters)
    assert isinstance(verdict, api.ImageVerdict), "a place that was inspected is no run"
    return Page("verify", tuple(survey_text.judgement(verdict.judgement, location, verbose=True)))


# ---- files, sources, sinks -----------------------------------------------------------------------


def files_page(facts: SurveyFacts) -> Page:
    """Return the page of all files, and of which a restart needs."""

    def rows(adapters: Adapters, needle: str) -> Iterator[Listed | int]:
        for row in facts.files.rows or ():
            needed = "needed" if row.needed else ""
            yield PageRow((needed, number(row.file.size), row.file.path))

    return Page("files", (), ("restart", ">bytes", "path"), rows, "file", "files")


def ends_page(facts: SurveyFacts) -> Page:
    """Return the page of sources and sinks; a source opens its positions, part by part."""
    choices = []
    for owned in facts.endpoints:
        cells: Row = (owned.image.path, *findings_text.row(owned.endpoint, verbose=True))
        opens = partial(_positions_page, facts, owned) if owned.endpoint.role == "source" else None
        choices.append(PageRow(cells, opens))
    heads = ("directory", "end", "kind", "again", "position")
    return Page("sources and sinks", (), heads, rows_of(choices), "end", "ends")


def _positions_page(facts: SurveyFacts, owned: EndpointOf, adapters: Adapters) -> Page:
    choices = []
    for each in facts.positions or ():
        if (each.image, each.source) == (owned.image.path, owned.endpoint.index):
            choices.append(PageRow((redact(each.partition), str(each.position))))
    title = f"source {owned.endpoint.index}: {owned.endpoint.kind}"
    heads = ("partition", "position")
    return Page(title, (), heads, rows_of(choices), "partition", "partitions")


# ---- state ---------------------------------------------------------------------------------------


def operator_page(location: str, facts: SurveyFacts, owned: OperatorOf, adapters: Adapters) -> Page:
    """Return the page of an operator: its stores."""
    operator, image = owned.operator, owned.image
    own = f"{image.path}/{operator.id}" if image.path else operator.id
    known = {"id": operator.id, "name": owned.name, "uid": owned.uid, "state in": operator.provider}
    known["shards"] = number(operator.shards)
    head = pairs(*((name, value) for name, value in known.items() if value))
    files = {each.name: (number(each.files), size(each.bytes)) for each in operator.stores}
    kinds = {each["name"]: each["kind"] for each in operator.details.get("states", ())}
    try:
        every = api.export(location, adapters=adapters).stores
        stores = [store for name, store in every if name in (own, operator.uid)]
    except StateshiftError:  # its rows cannot be read
        stores = [store.name for store in operator.stores]
    choices = []
    for store in stores:
        amounts = files.get(store.partition("/")[0], ("", ""))
        opens = partial(store_page, location, facts, owned, store)
        choices.append(PageRow((store, kinds.get(store, ""), *amounts), opens))
    title = f"operator {owned.uid or owned.name or own}"
    heads = ("store", "kind", ">files", ">size")
    return Page(title, (head,), heads, rows_of(choices), "store", "stores")


def store_page(
    location: str, facts: SurveyFacts, owned: OperatorOf, store: str, adapters: Adapters
) -> Page:
    """Return the page of a store: its shards, by the files that a restart reads of each."""
    operator, image = owned.operator, owned.image
    own = f"{image.path}/{operator.id}" if image.path else operator.id
    sizes = {file.path: file.size for file in facts.survey.files}
    title = f"store {store} of operator {owned.uid or owned.name or own}"
    whole = partial(entries_page, location, own, store, None)
    choices = [PageRow(("all", "", "", "entries of all shards"), whole)]
    for shard in image.shards:
        if shard.operator == operator.id and shard.store in ("", store.partition("/")[0]):
            held = sum(sizes.get(path, 0) for path in shard.files)
            newest = shard.files[-1] if shard.files else ""
            cells = (number(shard.shard), number(len(shard.files)), size(held), newest)
            choices.append(PageRow(cells, partial(entries_page, location, own, store, shard.shard)))
    heads = (">shard", ">files", ">size", "newest file")
    return Page(title, (), heads, rows_of(choices))


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry, as a line of JSON."""

    line: bytes

    @property
    def sought(self) -> str:
        """Its key."""
        return compact_json(json.loads(self.line)["key"])

    @property
    def cells(self) -> Row:
        """Its shard, key and value."""
        entry = json.loads(self.line)
        return str(entry["shard"]), compact_json(entry["key"]), compact_json(entry["value"])

    @property
    def opens(self) -> Opener:
        """The page that has all of it."""
        return self._page

    def _page(self, adapters: Adapters) -> Page:
        entry = json.loads(self.line)
        place = [(name, str(entry[name])) for name in ("operator", "store", "shard")]
        blocks = [pairs(*place), *_whole("key", entry["key"]), *_whole("value", entry["value"])]
        return Page("an entry", tuple(blocks))


def _whole(name: str, value: object) -> Iterator[Block]:
    """Yield a key or a value with a line for each of its parts."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    yield Gap()
    yield Line(name, "strong")
    for line in text[:TEXT_MAX].splitlines():
        yield Line(line, indent=2)
    if len(text) > TEXT_MAX:
        more = number(len(text) - TEXT_MAX)
        yield Line(f"… and {more} letters more: `stateshift export` has all", "dim", 2)


def entries_page(location: str, operator: str, store: str, shard: int | None, _: Adapters) -> Page:
    """Return the page of entries, which are read as they are asked for."""

    def rows(adapters: Adapters, needle: str) -> Iterator[Listed | int]:
        chosen = api.export(
            location, operator=operator, store=store, shard=shard, adapters=adapters
        )
        for lines in chosen.lines():
            yield from _entries_with(lines, needle)

    title = f"entries of {store}, operator {operator}"
    title += "" if shard is None else f", shard {shard}"
    return Page(title, (), (">shard", "key", "value"), rows, "entry", "entries")


def _entries_with(lines: bytes, needle: str) -> Iterator[Entry | int]:
    """Yield entries that may hold the text in their keys, and how many do not: a line that has it
    neither as it is nor as JSON writes it is not decoded. Non-ASCII may be written in other ways.
    """
    every = lines.split(b"\n")[:-1]
    if not needle or not needle.isascii():
        yield from map(Entry, every)
        return
    plain, escaped = needle.encode(), json.dumps(needle)[1:-1].encode()
    if plain not in lines and escaped not in lines:
        yield len(every)
        return
    for line in every:
        yield Entry(line) if plain in line or escaped in line else 1


# ---- two images ----------------------------------------------------------------------------------


def two_images_page(a: str, b: str, adapters: Adapters) -> Page:
    """Return the page of two images, which opens each of them, and their differences."""
    choices = []
    for name, location in (("A", a), ("B", b)):
        page = image_page(location, adapters)
        title = plain_text(page.facts[:1]).strip()
        choices.append(PageRow((name, title), partial(image_page, location)))
    compare = partial(differences_page, a, b)
    choices.append(PageRow(("diff", "compare A and B entry by entry: reads both"), compare))
    return Page("two images", (), ("part", "holds"), rows_of(choices), "part", "parts")


def differences_page(a: str, b: str, adapters: Adapters) -> Page:
    """Return the page of how two images differ; a store opens its differences."""
    facts = diff_facts(api.diff(a, b, show=DIFFERENCES, adapters=adapters).differences)
    before_the_entries = takewhile(_is_head, diff_text.differences(facts, a, b, verbose=True))
    head = tuple(block for block in before_the_entries if isinstance(block, Line))
    choices = []
    for store in facts.differences.stores:
        counts = (store.added, store.removed, store.changed, store.same)
        opens = None if store.equal else partial(_differences_of, store, facts.differences.shown)
        choices.append(PageRow((store.operator, store.store, *map(number, counts)), opens))
    heads = ("operator", "store", ">added", ">removed", ">changed", ">same")
    return Page("differences", head, heads, rows_of(choices), "store", "stores")


def _differences_of(store: Counts, shown: Sequence[Difference], adapters: Adapters) -> Page:
    choices = []
    for each in shown:
        if (each.operator, each.store) == (store.operator, store.store):
            choices.append(PageRow(diff_text.row(each), partial(_difference_page, each)))
    count = store.added + store.removed + store.changed
    facts: tuple[Block, ...] = ()
    if count > len(choices):
        words = f"the first {number(len(choices))} of {many(count, 'difference')}"
        facts = (Line(f"{words}: `stateshift diff --show N` shows more", "dim"),)
    title = f"differences of {store.store}, operator {store.operator}"
    return Page(
        title, facts, ("change", "key", "value"), rows_of(choices), "difference", "differences"
    )


def _difference_page(difference: Difference, adapters: Adapters) -> Page:
    parts = [*_whole("key", difference.key)]
    if difference.change != "added":
        parts += _whole("in A", difference.before)
    if difference.change != "removed":
        parts += _whole("in B", difference.after)
    return Page(CHANGES[difference.change], tuple(parts[1:]))


# ---- runs ----------------------------------------------------------------------------------------


def runs_page(root: str, _: Adapters) -> Page:
    """Return the page of the runs below a directory, the newest first."""

    def rows(_: Adapters, needle: str) -> Iterator[Listed]:
        for path in reversed(below(root)):
            yield PageRow(run_text.run_row(run_at(path), root), partial(run_page, path))

    return Page(f"runs below {root}", (), run_text.RUN_HEADS, rows, "run", "runs")


def run_page(workdir: str, _: Adapters) -> Page:
    """Return the page of a run: its timeline, where it stands, and what can be done now."""
    run = api.status(workdir)
    facts = RunFacts(run.report, workdir, run.at_work, run.live, run.page, run.now)
    return Page(f"run {run.run}", tuple(run_text.status(facts)))
