"""Whether a job could restart from an image, and from which epochs; and the way out of a damage
that no earlier epoch gets around. Reads only.

A deep look reads everything a restart needs to its end (`check.image`), and then holds each
snapshot against its history (`check.snapshots`), which no restart needs and may cost as much.

Spark's reactions to a missing file were seen with 3.5 to 4.3: schemas of stores and the operators'
metadata of version 1 it writes again; without the query's id 4.2 and later refuse to start, earlier
ones take it for another query.

Files that no Spark wrote, whose names are on no page of its layout, disturb no job: it neither
reads nor removes them. Whoever put them there may miss them after a move, or does not know that
they are there.

The parts of a checkpoint that no checksum covers are named once, with their size: a letter that is
another there goes unseen, by Spark as by us.

    logs, metadata and schemas  text, or nearly
    state in zstd, snappy, lzf  lz4 frames, zips and SSTs have checksums of their own
    a state file's version      no state file says which version or shard it is of: keys tell the
                                shard
    a state file's store        nor of which store it is: columns of other types tell, as far as
                                they are others

Spark's `x.crc` (4.1 and later, some checkpoints) and Hadoop's `.x.crc` (local disks) cover a file
whole. `sidecars` compares both with it.

Source: Spark, CompressionCodec (ZStdCompressionCodec writes frames without content checksums,
SnappyOutputStream and LZFOutputStream have none; LZ4BlockOutputStream has one a block),
ChecksumCheckpointFileManager; Hadoop, ChecksumFileSystem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from shlex import quote
from time import perf_counter

from stateshift.engines.spark.check.portions import part_of, places_in
from stateshift.engines.spark.check.sidecars import orphans
from stateshift.engines.spark.layout import hidden_checksum, inside, rollback_of
from stateshift.engines.spark.survey.own_places import hand_copy_faults
from stateshift.engines.spark.survey.planned_image import (
    NAME_THE_SINK,
    SKIPPING,
    is_begun,
    lacks_state,
    planned_fate,
)
from stateshift.engines.spark.survey.restart.operators import state_refused_since_3
from stateshift.engines.views import (
    CheckStage,
    Coverage,
    DeepCheck,
    ImageAt,
    Judged,
    Readers,
    Tallies,
)
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.offset_conf import codec_in
from stateshift.survey import FileInfo, Finding, Image, Survey, sizes_of

_COPY = "restore {path} from a copy of the checkpoint"


def judge(at: ImageAt, deep: DeepCheck | None, fleet: Readers | None) -> Judged:
    """Return the faults of the image, and the epochs that a job could restart from."""
    image = at.image
    where = at.where
    findings: list[Finding] = []
    if image.fence is not None and not at.survey.superseded:
        fact = f"{where} is fenced by run {image.fence}: a job that starts here fails"
        findings.append(Finding("refuse", fact, hint=rollback_of(image.fence)))
    if image.begins:
        fact = f"{where} has not committed a batch: a job begins with batch 0, as it was planned"
        findings.append(Finding("note", fact))
    elif image.epoch is None:
        findings.append(Finding("refuse", f"{where} has not committed a batch"))
    for fact in state_refused_since_3(image.operators, image.settings):
        findings.append(Finding("warn", fact))
    findings += strangers(at.survey.files, image)
    placed = tuple(hand_copy_faults(at.survey.location, image))
    findings += placed
    if any(finding.level == "refuse" for finding in placed):
        image = replace(image, epochs=())
        at = replace(at, image=image)
    findings += _of_planned(at)
    if deep is None:
        return Judged(tuple(findings), image.epochs)
    size = sum(sizes_of(at.survey, image.needed_files))
    is_shared = fleet is not None and fleet.is_worth(size)
    return _judge_deep(at, findings, deep, fleet if is_shared else None)


def _judge_deep(
    at: ImageAt, findings: list[Finding], deep: DeepCheck, fleet: Readers | None
) -> Judged:
    from stateshift.engines.spark.check.image import works

    whole = at
    if deep.part is not None:
        survey, image = part_of(at.survey, at.image, deep.part)
        at = replace(at, survey=survey, image=image)
    tallies: Tallies = {}
    damages, state = _check_state(at, fleet, tallies if deep.history else None)
    findings += damages
    stages = [state]
    left_out: tuple[str, ...] = ()
    spoiled: list[Finding] = []
    if deep.history:
        contradictions, history = _check_history(at, fleet, tallies)
        findings += contradictions
        # Earlier batches alone read these damaged files.
        spoiled = [each for each in contradictions if each.path not in at.image.needed_files]
        stages.append(history)
    else:
        # Name the snapshots that nobody has held against their history.
        from stateshift.engines.spark.check.snapshots import histories

        count = sum(1 for _ in histories(at.storage, at.survey, at.image))
        if not count:
            left_out = ()
        else:
            whose = "a snapshot" if count == 1 else f"{count:,} snapshots"
            left_out = (f"whether {whose} hold what the changes before them come to",)
    findings += unchecked_bytes(at.survey, at.image)
    refused = any(finding.level == "refuse" for finding in (*at.image.findings, *damages))
    epochs = at.image.epochs
    if epochs and (refused or spoiled):
        epochs = works(at.storage, at.image, (*damages, *spoiled), deep.part)
    coverage = None
    if deep.part is not None:
        sizes = [sum(sizes_of(each.survey, each.image.needed_files)) for each in (at, whole)]
        coverage = Coverage(len(places_in(at.image)), len(places_in(whole.image)), *sizes)
    return Judged(tuple(findings), epochs, tuple(stages), left_out, coverage)


def _check_state(
    at: ImageAt, fleet: Readers | None, tallies: Tallies | None
) -> tuple[tuple[Finding, ...], CheckStage]:
    from stateshift.engines.spark.check.image import findings_of

    began = perf_counter()
    if fleet is None:
        findings = tuple(findings_of(at.storage, at.survey, at.image, tallies))
    else:
        findings = fleet.deep(at.survey, at.image, tallies)
    findings += tuple(orphans(at.storage, at.survey, at.image))
    sizes = sizes_of(at.survey, at.image.needed_files)
    return findings, CheckStage("state", perf_counter() - began, len(sizes), sum(sizes))


def _check_history(
    at: ImageAt, fleet: Readers | None, tallies: Tallies
) -> tuple[tuple[Finding, ...], CheckStage]:
    from stateshift.engines.spark.check.snapshots import check_histories

    began = perf_counter()
    if fleet is None:
        check = check_histories(at.storage, at.survey, at.image, tallies)
    else:
        check = fleet.histories(at.survey, at.image, tallies)
    stage = CheckStage("history", perf_counter() - began, check.files, check.bytes)
    return check.findings, stage


def _of_planned(at: ImageAt) -> Iterator[Finding]:
    """Say that a planned batch has left its state in pieces, or none."""
    image = at.image
    if not lacks_state(image) or image.fence is not None:
        return
    batch, written = image.planned, image.planned_state
    if written is not None:
        yield Finding("warn", f"{written.wrong}; {planned_fate(image)}", hint=NAME_THE_SINK)
    elif is_begun(at.survey, image):
        yield Finding(
            "warn",
            f"{at.where}: batch {batch} was planned and not committed, and some shards lack the "
            "state that it writes: it runs again, unless a sink has it "
            f"({SKIPPING}), and the job then fails at batch {(batch or 0) + 1}",
            hint=NAME_THE_SINK,
        )
    else:
        yield Finding(
            "note",
            f"{at.where}: batch {batch} was planned and not committed, and has written no state: "
            "it runs again over the same input",
        )


def way_out(path: str, location: str, image: str, restorable: bool) -> str:
    """Return a hint for the damaged or missing file at `path`, of the image at `image`."""
    folder = location.rstrip("/")
    at = f"{folder}/{image}" if image else folder
    # Beside a folder of queries, not inside of it: there it would be one more of them.
    to = "-".join((folder, *image.split("/"), "repaired")) if image else f"{folder}-repaired"
    repair = f"stateshift repair {quote(at)} --to {quote(to)}"
    if restorable:
        return repair
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
    which = "that copy" if hint.startswith(_COPY) else "a copy"
    return f"{hint.format(path=path)}; or let repair take it from {which}: {repair} --also COPY"


# The number of folders with strangers that are named one by one.
FOLDERS_MAX = 10

_OWN = ("offsets", "commits", "sources", "state")


def strangers(files: Iterable[FileInfo], image: Image) -> Iterator[Finding]:
    """Yield a note for each folder with files that are not Spark's."""
    start = f"{image.path}/" if image.path else ""
    folders: dict[str, list[str]] = {}
    for info in files:
        if not info.path.startswith(start):
            continue
        path = info.path.removeprefix(start)
        is_hidden = "/." in f"/{path}"
        if is_hidden or classify(path).area != "other":
            continue
        # They are told by their folders inside Spark's own, and else by those at the top.
        folder, top = path.rpartition("/")[0], path.partition("/")[0]
        if folder and top not in _OWN:
            folder = top
        folders.setdefault(folder, []).append(info.path)
    for folder in sorted(folders)[:FOLDERS_MAX]:
        paths = sorted(folders[folder])
        where = f"{folder}/" if folder else "the checkpoint's own folder"
        if len(paths) == 1:
            fact = f"{paths[0]} is no file of Spark's: no job reads it"
        else:
            fact = (
                f"{len(paths)} files in {where} are no files of Spark's, {paths[0]} among them: no "
                "job reads them"
            )
        yield Finding("note", fact, path=paths[0])
    if len(folders) > FOLDERS_MAX:
        count = len(folders) - FOLDERS_MAX
        yield Finding("note", f"{count} more folders hold files that no Spark wrote")


FRAMED = ("delta", "snapshot", "changelog")
VERSIONED = (*FRAMED, "zip")


@dataclass(frozen=True)
class Uncovered:
    """The files that no checksum covers whole, by what could be wrong about them unseen."""

    text: tuple[FileInfo, ...]
    frames: tuple[FileInfo, ...]
    versions: tuple[FileInfo, ...]
    stores: int  # how many the files of `versions` belong to


def unchecked_bytes(survey: Survey, image: Image) -> Iterator[Finding]:
    """Yield one note, where there is something to say."""
    codec = codec_in(image.settings)
    gaps = uncovered_files(survey, image, codec)
    amounts, facts = [], []
    if gaps.text:
        amounts.append(f"{_amount(gaps.text)} of logs, metadata and schemas")
    if gaps.frames:
        amounts.append(f"{_amount(gaps.frames)} of state in {codec}")
    if amounts:
        unseen = "a letter that changed would go unseen"
        facts.append(f"{' and '.join(amounts)} have no checksum: {unseen}")
    if gaps.versions:
        verb = "is" if len(gaps.versions) == 1 else "are"
        facts.append(f"no checksum says which version {_files(gaps.versions)} of state {verb}")
    if gaps.stores > 1:
        facts.append("nor of which store, where several have columns of the same types")
    if facts:
        yield Finding("note", "; ".join(facts))


def uncovered_files(survey: Survey, image: Image, codec: str) -> Uncovered:
    """Return the files that a restart needs, without those that checksums cover."""
    text, frames, versions = [], [], []
    stores = set()
    listed = {file.path: file for file in survey.files}
    needed = [path for path in image.needed if path in listed]
    for path in needed:
        file, place = listed[path], classify(inside(image, path))
        is_covered = f"{path}.crc" in listed or hidden_checksum(path) in listed
        if place.area == "sidecar" or is_covered:
            continue
        if place.area != "state":
            text.append(file)
        elif place.kind in FRAMED and codec != "lz4":
            frames.append(file)
        if place.kind in VERSIONED:
            versions.append(file)
            stores.add((place.operator, place.store))
    return Uncovered(tuple(text), tuple(frames), tuple(versions), len(stores))


def _amount(files: tuple[FileInfo, ...]) -> str:
    size = sum(file.size for file in files)
    return f"{size:,} bytes in {_files(files)}"


def _files(files: tuple[FileInfo, ...]) -> str:
    noun = "file" if len(files) == 1 else "files"
    return f"{len(files):,} {noun}"
