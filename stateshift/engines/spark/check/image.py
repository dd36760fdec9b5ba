"""Everything a restart needs, read to its end: what a listing cannot tell. Reads only.

    every needed file       decodes, in the codec that the offset log names; of a zip all members,
                            RocksDB's own too
    every schema            is of types that Spark can parse                                     formats.type_json
    every row               lies inside its bounds, by its store's schema                        rowcheck
    every key               lies in the shard that its hash gives it, deleted ones too           rowcheck
    a planned batch's state the same, where that batch has written it                            planned
    a join's indexes        are as many as its counts say, without a gap                         joins
    every checksum          of either kind fits the file beside it                               sidecars
    a snapshot              is what the changes before it come to, where they are still there    snapshots
    a damaged snapshot      can be done without from Spark 4.2 on, or not (a note)               repairs
    every SST               is named by some snapshot; those that are not are counted (a note)   sidecars

A finding names the file and where in it; offsets in state files are those of the decompressed
bytes. Where the newest batch does not work, `works` tells which earlier ones do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby, islice

from stateshift.engines.spark import layout
from stateshift.engines.spark.check import repairs, sidecars, snapshots
from stateshift.engines.spark.check.joins import Join
from stateshift.engines.spark.check.planned_batch import after_planned, planned_files
from stateshift.engines.spark.check.rows import RowCheck
from stateshift.engines.spark.check.tally import Tally
from stateshift.engines.spark.entries import single_file as decoding
from stateshift.engines.spark.entries.fold import folded
from stateshift.engines.spark.entries.settings import CODEC
from stateshift.engines.spark.entries.store_views import Views, views_of
from stateshift.engines.spark.survey.checkpoint import survey as surveyed
from stateshift.errors import FormatError, MissingFile, TooLarge
from stateshift.formats import bounds
from stateshift.formats.blocks import Binary
from stateshift.formats.spark import rocksdb
from stateshift.formats.spark.compression import codec_of
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.schema import decode_schema
from stateshift.formats.spark.type_json import check_schema
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, ShardFiles, Survey

# So many epochs that work are enough to choose from.
EPOCHS_MAX = 10

# An operator's id and the number of a shard.
Place = tuple[str, int]


def findings(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """What is wrong with the image at its epoch, beyond what its survey has said."""
    yield from findings_of(storage, survey, image)
    yield from sidecars.orphans(storage, survey, image)


def findings_of(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """The same of a portion of an image, or of all of it; but for tables that nobody needs, of
    which one can only tell where all are seen.
    """
    told = {finding.path for finding in image.findings if finding.level == "refuse"}
    tallies: dict[snapshots.Place, Tally] = {}
    damaged = {path for path in told if path is not None}
    for finding in _read(storage, survey, image, tallies=tallies):
        if finding.level == "refuse" and finding.path is not None:
            damaged.add(finding.path)
        if finding.path is None or finding.path not in told:
            yield finding
    yield from snapshots.findings(storage, survey, image, tallies)
    yield from repairs.repairs(storage, survey, image, damaged)
    after = after_planned(image)
    if after is not None:
        for finding in _of_planned_state(storage, survey, image, after):
            if finding.path is not None and finding.path not in damaged:
                yield finding


def _of_planned_state(
    storage: Storage, survey: Survey, image: Image, after: Image
) -> Iterator[Finding]:
    """What is wrong with the state of a batch that was planned and not committed: a job reads it if
    its sink has that batch.
    """
    alone = replace(after, needed=tuple(planned_files(image)))
    yield from _archives(storage, alone)
    yield from _state(storage, after, (), None)
    yield from sidecars.findings(storage, survey, alone)


def works(storage: Storage, image: Image, found: Collection[Finding]) -> tuple[int, ...]:
    """Which of the image's epochs a restart works from, the newest EPOCHS_MAX of them. `found` is
    what is wrong with the newest one: an epoch that shares the damage is told from one that does
    not without reading everything.
    """
    suspects: set[Place] = set()
    for finding in found:
        suspects.update(_place_of(image, finding.path))
    good = (
        epoch for epoch in reversed(image.epochs) if _works(storage, image.path, epoch, suspects)
    )
    return tuple(sorted(islice(good, EPOCHS_MAX)))


def _works(storage: Storage, path: str, epoch: int, suspects: set[Place]) -> bool:
    survey = surveyed(storage, until=epoch)
    image = next(
        (image for image in survey.images if image.path == path and image.epoch == epoch), None
    )
    if image is None or image.epoch not in image.epochs:
        return False
    return not any(finding.level == "refuse" for finding in _read(storage, survey, image, suspects))


def _read(
    storage: Storage,
    survey: Survey,
    image: Image,
    first: Collection[Place] = (),
    tallies: dict[snapshots.Place, Tally] | None = None,
) -> Iterator[Finding]:
    """Everything the image needs at its epoch; shards of the `first` places before all others.
    `tallies`, where they are asked for, are told of the stores that could be read.
    """
    yield from _logs(storage, image)
    yield from _archives(storage, image)
    yield from _state(storage, image, first, tallies)
    yield from sidecars.findings(storage, survey, image)


def _place_of(image: Image, path: str | None) -> Iterator[Place]:
    place = classify(path[len(image.path) :].lstrip("/")) if path else None
    if place is not None and place.operator is not None and place.partition is not None:
        yield place.operator, place.partition


def _logs(storage: Storage, image: Image) -> Iterator[Finding]:
    """What is not state: logs, metadata, schemas."""
    start = len(image.path) + 1 if image.path else 0
    for path in image.needed:
        if classify(path[start:]).area in ("state", "sidecar"):
            continue
        try:
            decoding.check_file(path, storage.chunks(path))
            if classify(path[start:]).area == "state-schema":
                check_schema(decode_schema(bounds.gathered(storage.chunks(path), path)))
        except FormatError as error:
            if not layout.is_spare(path[start:]):  # else the survey has warned of it
                yield _damaged(path, error)
        except MissingFile as error:
            yield Finding("refuse", f"{error.fact}: a restart reads it", path=path)


def _doubts(path: str, doubts: tuple[str, ...]) -> Iterator[Finding]:
    """One warning for all that a zip's directory says wrongly: Spark reads the files before it,
    which are whole.
    """
    if doubts:
        more = f", and {len(doubts) - 1} more" if len(doubts) > 1 else ""
        fact = (
            f"{path} is damaged where Spark does not look: {doubts[0]}{more}; its files are whole"
        )
        yield Finding("warn", fact, hint=f"other programs may not open {path}", path=path)


def _archives(storage: Storage, image: Image) -> Iterator[Finding]:
    """Zips whole, as Spark reads them before it hands RocksDB what is in them."""
    for path in image.needed:
        if path.endswith(".zip"):
            try:
                doubts = rocksdb.check_zip(bounds.gathered(storage.chunks(path), "a zip"))
            except FormatError as error:
                yield _damaged(path, error)
            except MissingFile:
                continue  # said already
            else:
                yield from _doubts(path, doubts)


def _state(
    storage: Storage,
    image: Image,
    first: Collection[Place],
    tallies: dict[snapshots.Place, Tally] | None,
) -> Iterator[Finding]:
    """Shard by shard, `first` ones first: decoded, row by row, and a join's stores against each
    other.
    """
    views = views_of(storage, image)
    counts = {operator.id: operator.shards for operator in image.operators}
    shards = sorted(image.shards, key=lambda shard: _place(shard) not in first)
    for (operator, number), stores in groupby(shards, _place):
        join = Join(operator, number)
        for shard in stores:
            tally = Tally() if tallies is not None else None
            yield from _shard(storage, image, shard, views, join, counts[operator], tally)
            if tallies is not None and tally is not None and not join.incomplete:
                tallies[snapshots.place_of(shard)] = tally
        yield from join.findings()
    if shards:
        yield from _not_checked(views)


def _place(shard: ShardFiles) -> Place:
    return shard.operator, shard.shard


def _shard(
    storage: Storage,
    image: Image,
    shard: ShardFiles,
    views: Views,
    join: Join,
    shards: int,
    tally: Tally | None,
) -> Iterator[Finding]:
    check = RowCheck(storage, shard, image.settings, shards)
    yield from _codecs(storage, image, shard)

    def deleted(store: str, keys: Binary) -> None:
        check.deletes(views.of(shard.operator, store), keys)

    try:
        for store, block in folded(storage.chunks, shard, image.settings, deleted=deleted):
            if tally is not None:
                tally.add(store, block)
            view = views.of(shard.operator, store)
            sound = check.sound(view, block)
            if sound is not None:
                join.add(view, shard, sound)
    except FormatError as error:
        join.incomplete = True
        yield _damaged(error.path or shard.files[-1], error)
    except MissingFile as error:
        join.incomplete = True
        yield Finding(
            "refuse", f"{error.fact}: shard {shard.shard} of operator {shard.operator} needs it"
        )
    join.incomplete |= bool(check.broken.count)
    yield from check.findings()


def _codecs(storage: Storage, image: Image, shard: ShardFiles) -> Iterator[Finding]:
    """We tell codecs by their first bytes; Spark goes by the offset log, and reads no other."""
    wanted = image.settings.get(CODEC, "lz4")
    for path in shard.files:
        if path.endswith((".delta", ".snapshot", ".changelog")):
            try:
                found = codec_of(next(iter(storage.chunks(path)), b""))
            except MissingFile:
                continue  # said already
            if found is not None and found != wanted:
                yield Finding(
                    "refuse",
                    f"{path} is compressed with {found}, and the offset log says {wanted}: Spark "
                    "cannot read it",
                    path=path,
                    offset=0,
                )


def _not_checked(views: Views) -> Iterator[Finding]:
    """What nobody could look into, so that silence means something."""
    for view in views.all():
        if not view.known:
            yield Finding(
                "note",
                f"operator {view.operator}: the columns of store {view.store} are not "
                "known, so its "
                "rows were decoded as bytes only",
            )
        elif view.placed is None:
            yield Finding(
                "note",
                f"operator {view.operator}: which shard a key of store {view.store} belongs to is "
                "not known (an operator of its own kind, or collated strings)",
            )


def _damaged(path: str, error: FormatError) -> Finding:
    if isinstance(error, TooLarge):
        raise error.at(path)  # whether it is damaged nobody has seen
    return Finding("refuse", f"{path} is damaged: {error.fact}", path=path, offset=error.offset)
