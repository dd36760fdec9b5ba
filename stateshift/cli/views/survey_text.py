"""`inspect` and `verify` for a person: surveys, decoded files, entries and judgements as blocks
of text. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views import endpoints_text as render_endpoints
from stateshift.cli.views.findings_text import findings
from stateshift.cli.views.text import (
    Block,
    Cell,
    Gap,
    Line,
    Table,
    compact_json,
    pairs,
    section,
    without_empty,
)
from stateshift.cli.views.units import many, number, ranges, share, size
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.cli.views.survey_facts import (
        FileAmounts,
        FileRow,
        FirstEntries,
        SoughtName,
        SurveyFacts,
    )
    from stateshift.engines.views import DecodedFile
    from stateshift.look import JudgedImage, Judgement
    from stateshift.survey import EmbeddedPath, Image, Operator, Survey

ENGINES = {"spark": "Spark", "flink": "Flink"}
KINDS = {"data": "files, and no image among them", "foreign": "files that no engine we know wrote"}


def decoded_file(decoded: DecodedFile, location: str) -> Iterator[Block]:
    """Show a single file: its format, then what it holds."""
    yield Line(f"{decoded.format}: {redact(location)}", "strong")
    yield Gap()
    for line in decoded.lines:
        yield Line(line, indent=2)


def survey(facts: SurveyFacts, verbose: bool = False) -> Iterator[Block]:
    """Show a location on one screen: what it is, what a restart needs, what to beware of."""
    found = facts.survey
    kind = f"{ENGINES.get(found.engine or '', '')} {KINDS.get(found.kind, found.kind)}".strip()
    yield Line(f"{kind} at {redact(found.location)}", "strong")
    only = found.images[0] if len(found.images) == 1 and found.kind != "workflow" else None
    yield pairs(*(_image_facts(only, found.engine) if only else ()), *_file_facts(facts))
    if only is None and found.images:
        yield from section("Images", _images(found.images))
    yield from _operator_sections(found, several=only is None)
    yield from section("Sources and sinks", *_endpoints(found.images, only is None, verbose))
    yield from section("Absolute paths inside", *_embedded(found.images, verbose))
    if verbose:
        yield from section("Settings in the last offsets", *_settings(found.images))
    yield from section("Findings", *findings(facts.findings, verbose))
    if facts.names is not None:
        yield from section("Names", _names(facts.names))
    if facts.rows is not None:
        yield from section("Files", _all_files(facts.rows))
    if facts.entries is not None:
        yield from section("Entries", *_entries(facts.entries))


def _operator_sections(found: Survey, several: bool) -> Iterator[Block]:
    """Show the operators of all images, in the words of their engine."""
    operators = [(operator, image) for image in found.images for operator in image.operators]
    if not operators:
        return
    if found.engine != "flink":
        yield from section("Operators", _operators(operators, several))
        return
    own = [operator for operator, _ in operators]
    yield from section("Operators", *_flink_operators(own))
    yield from section("States", *_states(own))
    yield from section("Key groups", *_key_groups(own))


def _image_facts(image: Image, engine: str | None) -> Iterator[tuple[str, str | Cell]]:
    if engine == "flink":
        yield from _flink_facts(image)
        return
    yield "query id", image.identity or "none"
    yield "epoch", epoch_of(image)
    yield "restart from", epochs_of(image)
    if image.written_by:
        yield "written by", f"Spark {image.written_by}"
    if image.fence:
        yield "fenced", Cell(f"by run {image.fence}, which moved it away", "warn")


def _flink_facts(image: Image) -> Iterator[tuple[str, str | Cell]]:
    """Of a savepoint or checkpoint: its number, its format, and whether its folder may be moved
    as it is.
    """
    told = image.described
    if image.epoch is None:
        return
    yield "checkpoint", str(image.epoch)
    if not image.epochs:
        yield "restart", epochs_of(image)
    layouts = [word for word in (told["layout"], "drained" if told["drained"] else "") if word]
    unaligned = ["with what was in flight"] if told["unaligned"] else []
    yield (
        "format",
        ", ".join([*layouts, f"metadata version {told['metadata_version']}", *unaligned]),
    )
    yield "written by", image.written_by or "an unknown Flink"
    if told["masters"]:
        yield "hooks", ", ".join(told["masters"])
    relocatable = (
        "may be moved as it is"
        if not image.embedded
        else "names files by their full paths: see below"
    )
    yield "folder", Cell(relocatable, "" if not image.embedded else "warn")


def _file_facts(facts: SurveyFacts) -> Iterator[tuple[str, str | Cell]]:
    every, needed, spare = facts.files.all, facts.files.needed, facts.files.spare
    yield "files", f"{many(every.count, 'file')}, {size(every.bytes)}"
    if facts.survey.images:
        part = share(spare.count, every.count)
        yield "needed", f"{many(needed.count, 'file')}, {size(needed.bytes)}: what a restart reads"
        yield (
            "not needed",
            f"{many(spare.count, 'file')}, {size(spare.bytes)} ({part} of the files)",
        )
    yield from _strangers(facts.survey)
    if every.count:
        yield "small", _small(facts.files)


def _strangers(found: Survey) -> Iterator[tuple[str, str | Cell]]:
    """What lies in a checkpoint and is not Spark's."""
    for image in found.images:
        for held in image.described.get("strangers", ()):
            place = f"{image.path}/{held['path']}" if image.path else held["path"]
            where = f"in {place}" if place.endswith("/") else f"({place})"
            yield (
                "not Spark's",
                f"{many(held['files'], 'file')} {where}, which a move leaves behind",
            )


def _small(files: FileAmounts) -> str:
    """How many are small; the bounds beyond the one that holds them all say nothing more."""
    parts: list[str] = []
    for bound, small in files.small:
        below = size(bound).replace(".0", "")
        if small.count == files.all.count:
            return ", ".join([*parts, f"all below {below}"])
        parts.append(f"{number(small.count)} below {below}")
    return ", ".join(parts)


def epoch_of(image: Image) -> str:
    if image.epoch is None:
        return "none committed yet"
    if image.planned is not None and image.planned > image.epoch:
        return f"{image.epoch} committed, {image.planned} planned and not committed"
    return f"{image.epoch} committed"


def epochs_of(image: Image) -> str | Cell:
    if image.epochs:
        return ranges(image.epochs)
    # Without a committed batch there may be no finding that says why.
    return (
        Cell("nothing is committed yet", "warn")
        if image.epoch is None
        else Cell("none: see the findings", "bad")
    )


def _images(images: tuple[Image, ...]) -> Table:
    rows = [
        (i.path or ".", i.name or "", i.identity or "", epoch_of(i), epochs_of(i), i.fence or "")
        for i in images
    ]
    heads = ("directory", "operator's name", "query id", "epoch", "restart from", "fenced by")
    return without_empty(Table(heads, tuple(rows)))


def _operators(operators: list[tuple[Operator, Image]], several: bool) -> Table:
    """A line per store; what is the operator's stands on its first line only."""
    rows: list[tuple[str | Cell, ...]] = []
    for operator, image in operators:
        own = (
            image.path if several else "",
            operator.id,
            operator.name or image.name or "",
            operator.uid or "",
            operator.provider or "",
            number(operator.shards),
        )
        if not operator.stores:
            rows.append((*own, "", "", ""))
        for line, store in enumerate(operator.stores):
            head = own if line == 0 else ("",) * len(own)
            rows.append((*head, store.name, number(store.files), size(store.bytes)))
    heads = ("directory", "id", "name", "uid", "provider", ">shards", "store", ">files", ">size")
    return without_empty(Table(heads, tuple(rows)))


def _flink_operators(operators: list[Operator]) -> Iterator[Block]:
    """A line per store, and one per state below: what Flink calls things."""
    rows: list[tuple[str | Cell, ...]] = []
    for operator in operators:
        told = operator.details
        parallelism = f"{operator.shards} of {told['max_parallelism']}" + (
            ", finished" if told["finished"] else ""
        )
        own = (
            operator.id,
            operator.name or "",
            operator.uid or "",
            operator.provider or "",
            parallelism,
        )
        for line, store in enumerate(operator.stores or (None,)):
            head = own if line == 0 else ("",) * len(own)
            held = (
                (store.name, number(store.files), size(store.bytes)) if store else ("none", "", "")
            )
            rows.append((*head, *held))
    heads = ("id", "name", "uid", "backend", "parallelism", "state", ">files", ">size")
    yield without_empty(Table(heads, tuple(rows)))


def _states(operators: list[Operator]) -> Iterator[Block]:
    rows = [
        (
            operator.uid or operator.name or operator.id,
            state["name"],
            state["kind"],
            state["type"] or "",
        )
        for operator in operators
        for state in operator.details["states"]
    ]
    if rows:
        yield without_empty(Table(("operator", "state", "kind", "type"), tuple(rows)))


def _key_groups(operators: list[Operator]) -> Iterator[Block]:
    rows: list[tuple[str | Cell, ...]] = []
    for operator in operators:
        groups = operator.details["key_groups"]
        if groups:
            sizes = groups["bytes"]
            filled = f"{groups['count'] - groups['empty']} of {groups['count']}"
            each = [size(sizes[word]) for word in ("min", "median", "max")]
            rows.append((operator.uid or operator.name or operator.id, filled, *each))
    if rows:
        yield Table(("operator", ">filled", ">least", ">median", ">most"), tuple(rows))


def _endpoints(images: Iterable[Image], several: bool, verbose: bool) -> Iterator[Block]:
    rows = tuple(
        (image.path if several else "", *render_endpoints.row(end, verbose))
        for image in images
        for end in image.endpoints
    )
    if rows:
        yield without_empty(Table(("", "", "", "", ""), rows))


def _embedded(images: Iterable[Image], verbose: bool) -> Iterator[Block]:
    """One line for each place, with -v one for each file that names it."""
    places: dict[tuple[str, str], list[EmbeddedPath]] = {}
    for image in images:
        for embedded in image.embedded:
            places.setdefault((embedded.path, embedded.role), []).append(embedded)
    words = {"source": "input", "sink": "output", "self": "the image itself"}
    rows: list[tuple[str | Cell, ...]] = []
    for (path, role), named in sorted(places.items()):
        for some in [[one] for one in named] if verbose else [named]:
            where = (
                some[0].file
                if len(some) == 1
                else f"{some[0].file} and {many(len(some) - 1, 'other')}"
            )
            rows.append((redact(path), words[role], number(sum(one.count for one in some)), where))
    if rows:
        yield Table(("place", "is", ">named", "in"), tuple(rows))


def _settings(images: Iterable[Image]) -> Iterator[Block]:
    rows = tuple(
        (image.path, key, value)
        for image in images
        for key, value in sorted(image.settings.items())
    )
    if rows:
        yield without_empty(Table(("", "", ""), rows))


def _all_files(files: Iterable[FileRow]) -> Table:
    rows = []
    for row in files:
        rows.append(("needed" if row.needed else "", number(row.file.size), row.file.path))
    return Table(("restart", ">bytes", "path"), tuple(rows))


def _names(names: Iterable[SoughtName]) -> Table:
    """Which of the names the user gave are in the image, under which directory or id."""
    rows: list[tuple[str | Cell, ...]] = []
    for name in names:
        there = Cell("yes", "good") if name.found else Cell("no", "warn")
        rows.append((name.name, name.directory, name.flink_operator_id, there))
    heads = ("name", "directory", "Flink operator id", "in this image")
    return Table(heads, tuple(rows))


def _entries(entries: FirstEntries) -> Iterator[Block]:
    """Keys and values as JSON, one entry a line."""
    if not entries.shown:
        yield Line("none", "dim", indent=2)
        return
    rows = []
    for entry in entries.shown:
        key, value = compact_json(entry.key), compact_json(entry.value)
        rows.append((entry.operator, entry.store, str(entry.shard), key, value))
    yield Table(("operator", "store", ">shard", "key", "value"), tuple(rows))
    if entries.more:
        yield Line("… and more: --limit N shows more of each store", "dim", indent=2)
    for note in entries.notes:
        yield Line(f"note: {note}", "dim", indent=2)


def judgement(found: Judgement, location: str, verbose: bool = False) -> Iterator[Block]:
    """Yes or no first, then why."""
    if found.restartable:
        at = f" from {terms_of(found.engine).at} {found.epoch}" if found.epoch is not None else ""
        yield Line(f"a job can restart{at}: {redact(location)}", "good")
    else:
        yield Line(f"a job cannot restart: {redact(location)}", "bad")
    if len(found.images) > 1:
        yield _judged(found.images)
    elif found.epochs:
        yield pairs(("restart from", ranges(found.epochs)))
    yield from section("Findings", *findings(found.findings, verbose))


def _judged(images: Iterable[JudgedImage]) -> Table:
    """A line for each query of a workflow: they have no epoch in common."""
    rows = tuple(
        (
            image.path or ".",
            image.name or "",
            "none committed yet" if image.epoch is None else f"{image.epoch} committed",
            ranges(image.epochs) if image.epochs else Cell("none", "bad"),
        )
        for image in images
    )
    return without_empty(Table(("directory", "operator's name", "epoch", "restart from"), rows))
