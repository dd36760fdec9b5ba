"""`inspect`, `verify` and `export` for a person: surveys, decoded files, entries and judgements as
blocks of text. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.cli.views import findings_text as render_endpoints
from stateshift.cli.views.findings_text import findings
from stateshift.cli.views.standby_text import standby
from stateshift.cli.views.text import (
    Block,
    Cell,
    Gap,
    Line,
    Row,
    TextTable,
    compact_json,
    pairs,
    section,
    table_or_nothing,
    without_empty,
)
from stateshift.cli.views.units import many, number, ranges, share, size, span
from stateshift.storage.locations import redact
from stateshift.terms import moment, terms_of

if TYPE_CHECKING:
    from stateshift.api import Inspection
    from stateshift.documents.survey import (
        FirstEntries,
        OperatorOf,
        SoughtName,
        SurveyFacts,
    )
    from stateshift.engines.views import Coverage, DecodedFile, NumberedPart
    from stateshift.look import Checked, Export, Judgement, PartsSoFar
    from stateshift.survey import EmbeddedPath, Image, Operator, Store

ENGINES = {"spark": "Spark", "flink": "Flink"}
KINDS = {"data": "files, and no image among them", "foreign": "files that no engine we know wrote"}
ROLES = {"source": "input", "sink": "output", "self": "the image itself"}
ELSEWHERE = {
    "equal": "elsewhere, the same files",
    "elsewhere": "files of the image, elsewhere",
    "maybe": "this image, by another name?",
    "missing": "where the image was: gone",
    "different": "where the image was: other files",
    "unreadable": "where the image was: cannot be read",
}

Pair = tuple[str, str | Cell]


def inspection(inspected: Inspection, verbose: bool = False) -> Iterator[Block]:
    """Show what is at a location: a single file, or what lies in a directory."""
    if inspected.file is not None:
        yield from decoded_file(inspected.file, inspected.location)
    if inspected.facts is not None:
        yield from survey(inspected.facts, verbose)


def decoded_file(decoded: DecodedFile, location: str) -> Iterator[Block]:
    """Show a single file: its format, then what it holds."""
    yield Line(f"{decoded.format}: {redact(location)}", "strong")
    yield Gap()
    for line in decoded.lines:
        yield Line(line, indent=2)


def survey(facts: SurveyFacts, verbose: bool = False) -> Iterator[Block]:
    """Show a location on one screen: what it is, what a restart needs, what to beware of."""
    surveyed = facts.survey
    only = facts.only_image if surveyed.kind != "workflow" else None
    several = only is None
    engine, kind = ENGINES.get(surveyed.engine or "", ""), KINDS.get(surveyed.kind, surveyed.kind)
    title = f"{engine} {kind}".strip()
    # A workflow's image is one of its folders, and the workflow is what is shown.
    place = surveyed.place if only is not None else surveyed.location
    yield Line(f"{title} at {redact(place)}", "strong")
    image_facts = _image_facts(only, surveyed.engine) if only else ()
    around = () if place == surveyed.location else (("files below", redact(surveyed.location)),)
    yield pairs(*image_facts, *around, *_file_facts(facts))
    if facts.standby is not None:
        yield from section("Standby", *standby(facts.standby))
    if several and surveyed.images:
        rows: list[Row] = []
        for image in surveyed.images:
            names = (image.path or ".", image.name or "", image.identity or "")
            rows.append((*names, epoch_of(image), epochs_of(image), image.fence or ""))
        heads = ("directory", "operator's name", "query id", "epoch", "restart from", "fenced by")
        yield from section("Images", without_empty(TextTable(heads, tuple(rows))))
    yield from _operator_sections(facts, several)
    endpoints: list[Row] = []
    for owned in facts.endpoints:
        path = owned.image.path if several else ""
        endpoints.append((path, *render_endpoints.row(owned.endpoint, verbose)))
    yield from section("Sources and sinks", *table_or_nothing(("",) * 5, endpoints))
    yield from section("Absolute paths inside", *_embedded(facts.embedded, verbose))
    if verbose:
        settings: list[Row] = []
        for image in surveyed.images:
            for key, value in sorted(image.settings.items()):
                settings.append((image.path, key, value))
        table = table_or_nothing(("", "", ""), settings)
        yield from section("Settings in the last offsets", *table)
    yield from section("Findings", *findings(facts.findings, verbose))
    yield from _parts_asked_for(facts)


def _parts_asked_for(facts: SurveyFacts) -> Iterator[Block]:
    """Show the parts that the user asked for."""
    if facts.positions is not None:
        positions: list[Row] = []
        for at in facts.positions:
            positions.append((at.image, at.source, at.kind, at.partition, str(at.position)))
        heads = ("directory", "source", "kind", "partition", "position")
        table = without_empty(TextTable(heads, tuple(positions)))
        yield from section("Positions", *([table] if positions else [Line("none", "dim", 2)]))
    if facts.names is not None:
        yield from section("Names", _names(facts.names))
    if facts.files.rows is not None:
        files = []
        for row in facts.files.rows:
            files.append(("needed" if row.needed else "", number(row.file.size), row.file.path))
        yield from section("Files", TextTable(("restart", ">bytes", "path"), tuple(files)))
    if facts.entries is not None:
        yield from section("Entries", *_entries(facts.entries))


def _operator_sections(facts: SurveyFacts, several: bool) -> Iterator[Block]:
    """Show the operators of all images, in the words of their engine."""
    if not facts.operators:
        return
    if facts.survey.engine != "flink":
        yield from section("Operators", _operators(facts.operators, several))
        return
    operators = [each.operator for each in facts.operators]
    yield from section("Operators", _flink_operators(operators))
    states: list[Row] = []
    key_groups: list[Row] = []
    for operator in operators:
        name = operator.uid or operator.name or operator.id
        for state in operator.details["states"]:
            value = state["value"] or state["unread"] or ""
            if len(value) > HELD_MAX:
                value = f"{value[:HELD_MAX]}…"
            states.append((name, state["name"], state["kind"], state["type"] or "", value))
        groups = operator.details["key_groups"]
        if groups:
            sizes = groups["bytes"]
            filled = f"{groups['count'] - groups['empty']} of {groups['count']}"
            least, median, most = size(sizes["min"]), size(sizes["median"]), size(sizes["max"])
            key_groups.append((name, filled, least, median, most))
    heads: tuple[str, ...] = ("operator", "state", "kind", "type", "holds")
    yield from section("States", *table_or_nothing(heads, states))
    heads = ("operator", ">filled", ">least", ">median", ">most")
    yield from section("Key groups", *table_or_nothing(heads, key_groups))


# ---- the image -----------------------------------------------------------------------------------


def _image_facts(image: Image, engine: str | None) -> Iterator[Pair]:
    if engine == "flink":
        yield from _flink_facts(image)
        return
    yield "query id", image.identity or "none"
    yield "epoch", epoch_of(image)
    yield "restart from", epochs_of(image)
    if image.written_by:
        yield "written by", f"Spark {image.written_by}"
    real_time = image.described.get("real_time_seconds")
    if real_time is not None:
        yield "mode", f"real-time, in batches of {real_time:.0f} s"
    if image.fence:
        yield "fenced", Cell(f"by run {image.fence}, which moved it away", "warn")


def _flink_facts(image: Image) -> Iterator[Pair]:
    """Yield number and format of a savepoint or checkpoint, and whether its folder may move."""
    if image.epoch is None:
        return
    yield "checkpoint", str(image.epoch)
    if not image.epochs:
        yield "restart", epochs_of(image)
    described = image.described
    layout = (described["layout"], "drained" if described["drained"] else "")
    version = f"metadata version {described['metadata_version']}"
    in_flight = "with what was in flight" if described["unaligned"] else ""
    yield "format", ", ".join(filter(None, (*layout, version, in_flight)))
    yield "written by", image.written_by or "an unknown Flink"
    masters = image.described["masters"]
    if masters:
        yield "hooks", ", ".join(masters)
    if image.embedded:
        yield "folder", Cell("names files by their full paths: see below", "warn")
    else:
        yield "folder", "may be moved as it is"


def _file_facts(facts: SurveyFacts) -> Iterator[Pair]:
    every, needed, spare = facts.files.all, facts.files.needed, facts.files.spare
    yield "files", f"{many(every.count, 'file')}, {size(every.bytes)}"
    if facts.survey.images:
        part = share(spare.count, every.count)
        yield "needed", f"{many(needed.count, 'file')}, {size(needed.bytes)}: what a restart reads"
        yield (
            "not needed",
            f"{many(spare.count, 'file')}, {size(spare.bytes)} ({part} of the files)",
        )
    for image in facts.survey.images:
        for held in image.described.get("strangers", ()):
            place = f"{image.path}/{held['path']}" if image.path else held["path"]
            where = f"in {place}" if place.endswith("/") else f"({place})"
            files = many(held["files"], "file")
            yield "not Spark's", f"{files} {where}, which a move leaves behind"
    if every.count:
        parts: list[str] = []
        for small in facts.files.small:  # up to the first bound that holds all files
            below = size(small.below).replace(".0", "")
            if small.count == every.count:
                parts.append(f"all below {below}")
                break
            parts.append(f"{number(small.count)} below {below}")
        yield "small", ", ".join(parts)


def epoch_of(image: Image) -> str:
    """Return the epoch that is committed, and the one that was begun."""
    if image.epoch is None:
        return "none committed yet"
    if image.planned is not None and image.planned > image.epoch:
        return f"{image.epoch} committed, {image.planned} planned and not committed"
    return f"{image.epoch} committed"


def epochs_of(image: Image) -> str | Cell:
    """Return the epochs that a restart works from."""
    if image.epochs:
        return ranges(image.epochs)
    if image.epoch is None:  # there may be no finding that says why
        return Cell("nothing is committed yet", "warn")
    return Cell("none: see the findings", "bad")


# ---- operators -----------------------------------------------------------------------------------


def _operators(operators: Iterable[OperatorOf], several: bool) -> TextTable:
    """Return a line per store; what is the operator's stands on its first line only."""
    rows: list[Row] = []
    for owned in operators:
        operator, image = owned.operator, owned.image
        head = (
            image.path if several else "",
            operator.id,
            operator.name or image.name or "",
            operator.uid or "",
            operator.provider or "",
            number(operator.shards),
        )
        stores = [_store(store) for store in operator.stores]
        rows.extend(_below(head, stores or [("", "", "")]))
    heads = ("directory", "id", "name", "uid", "provider", ">shards", "store", ">files", ">size")
    return without_empty(TextTable(heads, tuple(rows)))


def _flink_operators(operators: Iterable[Operator]) -> TextTable:
    """Return a line per store, in Flink's words."""
    rows: list[Row] = []
    for operator in operators:
        stores = [_store(store) for store in operator.stores]
        parallelism = f"{operator.shards} of {operator.details['max_parallelism']}"
        if operator.details["finished"]:
            parallelism += ", finished"
        names = (operator.id, operator.name or "", operator.uid or "", operator.provider or "")
        rows.extend(_below((*names, parallelism), stores or [("none", "", "")]))
    heads = ("id", "name", "uid", "backend", "parallelism", "state", ">files", ">size")
    return without_empty(TextTable(heads, tuple(rows)))


def _store(store: Store) -> Row:
    return store.name, number(store.files), size(store.bytes)


def _below(head: Row, lines: Sequence[Row]) -> Iterator[Row]:
    """Yield the lines behind a head, which stands on the first of them alone."""
    blank: Row = ("",) * len(head)
    for place, line in enumerate(lines):
        yield (*(blank if place else head), *line)


# ---- what the image names ------------------------------------------------------------------------


def _embedded(embedded: Iterable[EmbeddedPath], verbose: bool) -> Iterator[Block]:
    """Show a line for each place, with -v one for each file that names it."""
    places: dict[tuple[str, str], list[EmbeddedPath]] = {}
    for path in embedded:
        places.setdefault((path.path, path.role), []).append(path)
    rows: list[Row] = []
    for _, named in sorted(places.items()):
        if verbose:
            rows.extend(_place([path]) for path in named)
        else:
            rows.append(_place(named))
    return table_or_nothing(("place", "is", ">named", "in"), rows)


def _place(named: Sequence[EmbeddedPath]) -> Row:
    """Return a line for files that name one place."""
    first, others = named[0], len(named) - 1
    files = f"{first.file} and {many(others, 'other')}" if others else first.file
    count = sum(path.count for path in named)
    place = ELSEWHERE.get(first.found, ROLES[first.role])
    return redact(first.path), place, number(count), files


# ---- what was asked for besides ------------------------------------------------------------------


def _names(names: Iterable[SoughtName]) -> TextTable:
    """Return the names that are in the image, with their directory or id."""
    rows: list[Row] = []
    for name in names:
        answer = Cell("yes", "good") if name.found else Cell("no", "warn")
        rows.append((name.name, name.directory, name.flink_operator_id, answer))
    heads = ("name", "directory", "Flink operator id", "in this image")
    return TextTable(heads, tuple(rows))


def _entries(entries: FirstEntries) -> Iterator[Block]:
    """Show keys and values as JSON, one entry a line."""
    if not entries.shown:
        yield Line("none", "dim", indent=2)
        return
    rows = []
    for entry in entries.shown:
        key, value = compact_json(entry.key), compact_json(entry.value)
        rows.append((entry.operator, entry.store, str(entry.shard), key, value))
    yield TextTable(("operator", "store", ">shard", "key", "value"), tuple(rows))
    if entries.more:
        yield Line("… and more: --limit N shows more of each store", "dim", indent=2)
    for note in entries.notes:
        yield Line(f"note: {note}", "dim", indent=2)


# ---- verify --------------------------------------------------------------------------------------


def judgement(judged: Judgement, location: str, verbose: bool = False) -> Iterator[Block]:
    """Show whether a job can restart from an image: yes or no first, then why."""
    yield _answer(judged, redact(location))
    if len(judged.images) > 1:
        heads = ("directory", "operator's name", "epoch", "restart from")
        rows: list[Row] = []
        for image in judged.images:
            epoch = "none committed yet" if image.epoch is None else f"{image.epoch} committed"
            epochs = ranges(image.epochs) if image.epochs else Cell("none", "bad")
            rows.append((image.path or ".", image.name or "", epoch, epochs))
        yield without_empty(TextTable(heads, tuple(rows)))
    elif judged.epochs:
        yield pairs(("restart from", ranges(judged.epochs)))
    if judged.checked is None and judged.images:
        yield Line(SHALLOW, indent=2)
    yield from section("Findings", *findings(judged.findings, verbose))
    if judged.checked is not None:
        yield from section("Checked", *_checked(judged.checked))


SHALLOW = (
    "checked: logs, metadata, and whether the files that a restart needs are there; not what is "
    "in the files of the state (--deep)"
)
HELD_MAX = 60  # letters of a type: rows of SQL may have hundreds of columns; --json has all
STAGES = {"state": "what a restart reads", "history": "what came before its snapshots"}


def _checked(checked: Checked) -> Iterator[Block]:
    """Show how far a deep check went, and what it was told to leave out."""
    rows: list[Row] = []
    for stage in checked.stages:
        amount = f"{many(stage.files, 'file')}, {size(stage.bytes)}"
        rows.append((stage.name, STAGES[stage.name], amount, span(stage.seconds)))
    yield from table_or_nothing(("", "", ">read", ">time"), rows)
    if checked.part is not None and checked.coverage is not None:
        yield pairs(*_part(checked.part, checked.coverage, checked.so_far))
    rows = []
    for read in checked.read:
        counts = (read.decoded, read.framed, read.sized, read.hidden)
        rows.append((read.operator, read.state, *map(number, counts), read.hidden_by or ""))
    heads = ("operator", "state", ">decoded", ">framed", ">sized", ">hidden", "hidden by")
    yield from table_or_nothing(heads, rows)
    for fact in checked.left_out:
        yield Line(f"not checked: {fact}", "warn", indent=2)


def _part(part: NumberedPart, coverage: Coverage, so_far: PartsSoFar | None) -> Iterator[Pair]:
    """Yield the size of the part, and the record of all parts."""
    shards = f"{number(coverage.shards)} of {many(coverage.shards_all, 'shard')}"
    amount = f"{size(coverage.bytes)} of {size(coverage.bytes_all)}"
    yield f"part {part.number} of {part.of}", f"{shards}, {amount}"
    if so_far is None:
        return
    if so_far.oldest is None:
        yield "so far", f"{so_far.parts} of {part.of} parts are sound"
    else:
        yield "so far", f"all parts are sound, checked since {moment(so_far.oldest)}"
    yield "kept in", so_far.file


def _answer(judged: Judgement, location: str) -> Line:
    if not judged.restartable:
        return Line(f"a job cannot restart: {location}", "bad")
    part = judged.checked.part if judged.checked is not None else None
    limits = "" if part is None else f", as far as part {part.number} of {part.of} tells"
    if judged.epoch is None:
        return Line(f"a job can restart{limits}: {location}", "good")
    at = f"{terms_of(judged.engine).at} {judged.epoch}"
    return Line(f"a job can restart from {at}{limits}: {location}", "good")


# ---- export --------------------------------------------------------------------------------------


def export_line(state: Export, to: str, bytes_written: int) -> Line:
    """Return the amount that was written to a file."""
    what = ("entry", "entries") if state.wanted.changes is None else ("change", "changes")
    return Line(f"{many(state.entries, *what)}, {size(bytes_written)}: {redact(to)}")
