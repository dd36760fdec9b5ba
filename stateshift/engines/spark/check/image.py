"""Everything a restart needs, read to its end: what a listing cannot tell. Reads only.

    every needed file        decodes, in the codec that the offset log names; of a zip all members,
                             RocksDB's own too
    every schema             is of types that Spark can parse (`formats.spark.type_json`)
    every row                lies inside its bounds, by its store's schema (`entries.row_check`)
    every key                lies in the shard that its hash gives it, deleted ones too (the same)
    a planned batch's state  the same, where that batch has written it (`planned_batch`)
    a join's indexes         are as many as its counts say, without a gap (`joins`)
    every table              is the one that its version's MANIFEST names (`entries.fold`)
    every snapshot           is older than those of later versions (`snapshots`)
    every checksum           of either kind fits the file beside it (`sidecars`)
    a damaged snapshot       can be done without from Spark 4.2 on, or not: a note (`snapshots`)
    every SST                is named by some snapshot; those that are not are counted: a note
                             (`sidecars`)

A finding names the file and where in it; offsets in state files are those of the decompressed
bytes. If the newest batch does not work, `works` tells which earlier ones do. Whether a snapshot is
what the changes before it come to is asked apart (`snapshots`), with the tallies made here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Literal

from stateshift.engines.spark import layout
from stateshift.engines.spark.chains import place_of
from stateshift.engines.spark.check import sidecars, snapshots
from stateshift.engines.spark.check.joins import Join
from stateshift.engines.spark.check.portions import Place, part_of, shard_place
from stateshift.engines.spark.check.snapshots import Tally
from stateshift.engines.spark.entries import single_file as decoding
from stateshift.engines.spark.entries.fold import changes_since, fold_shard
from stateshift.engines.spark.entries.row_check import RowCheck
from stateshift.engines.spark.entries.store_views import Views, views_of
from stateshift.engines.spark.survey.checkpoint import survey as surveyed
from stateshift.engines.spark.survey.own_places import JOIN
from stateshift.engines.spark.survey.planned_image import (
    NAME_THE_SINK,
    after_planned,
    planned_fate,
    planned_files,
)
from stateshift.engines.views import NumberedPart, Tallies
from stateshift.errors import FormatError, MissingFile, TooLarge
from stateshift.formats import bounds
from stateshift.formats.blocks import Binary
from stateshift.formats.spark import rocksdb
from stateshift.formats.spark.compression import codec_of
from stateshift.formats.spark.names import DEFAULT_STORE, classify
from stateshift.formats.spark.offset_conf import codec_in, is_strict
from stateshift.formats.spark.schema import decode_schema
from stateshift.formats.spark.type_json import check_schema
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, ShardFiles, Survey

# The number of epochs that work which are enough to choose from.
EPOCHS_MAX = 10

# The part of an image that is read: entries, and everything but those.
Reads = Literal["all", "state", "rest"]

_COMPRESSED = (".delta", ".snapshot", ".changelog")


def findings_of(
    storage: Storage,
    survey: Survey,
    image: Image,
    tallies: Tallies | None = None,
    reads: Reads = "all",
) -> Iterator[Finding]:
    """Yield the faults of an image at its epoch, or of a portion of one, beyond those in its
    survey; but for tables that nobody needs, of which one can only tell where all are seen.
    `tallies`, where they are asked for, get those of each store that could be read. `reads` says
    whether all is read, or entries alone, or all but those.
    """
    refused = _refused_paths(image.findings)  # the survey has reported them
    damaged = set(refused)
    read: Iterable[Finding] = () if reads == "rest" else _state(storage, image, (), tallies)
    if reads != "state":
        read = _read(storage, survey, image, read)
    for finding in read:
        damaged |= _refused_paths([finding])
        if finding.path not in refused:
            yield finding
    if reads == "state":
        return
    yield from snapshots.repairs(storage, survey, image, damaged)
    for finding in _of_planned_state(storage, survey, image):
        is_new = finding.path is not None and finding.path not in damaged
        if is_new or not damaged:  # else it is said of the epoch already
            yield finding


def _refused_paths(findings: Iterable[Finding]) -> set[str]:
    paths = set()
    for finding in findings:
        if finding.level == "refuse" and finding.path is not None:
            paths.add(finding.path)
    return paths


def _of_planned_state(storage: Storage, survey: Survey, image: Image) -> Iterator[Finding]:
    """Yield a warning for each fault of a planned batch's state: a job may read it."""
    after = after_planned(image)
    if after is None:
        return
    alone = replace(after, needed=tuple(planned_files(image)))
    read = chain(
        _archives(storage, alone),
        _state(storage, after, (), None),
        snapshots.order_findings(storage, survey, after),
        sidecars.findings(storage, survey, alone),
    )
    for finding in read:
        if finding.level == "refuse":
            fact = f"{finding.message}; {planned_fate(after)}"
            path = finding.path or alone.needed[0]  # of a join's stores none is to blame alone
            yield replace(finding, level="warn", message=fact, hint=NAME_THE_SINK, path=path)


def works(
    storage: Storage, image: Image, damages: Iterable[Finding], part: NumberedPart | None = None
) -> tuple[int, ...]:
    """Return the epochs of the image that a restart works from, the newest EPOCHS_MAX of them; as
    far as one `part` tells. `damages` are of the newest epoch. Their places are read first: an
    epoch that shares a damage is left out without reading everything.
    """
    suspects: set[Place] = set()
    for finding in damages:
        place = classify((finding.path or "")[len(image.path) :].lstrip("/"))
        if place.operator is not None and place.partition is not None:
            suspects.add((place.operator, place.partition))
    working: list[int] = []
    for epoch in reversed(image.epochs):
        if len(working) == EPOCHS_MAX:
            break
        earlier = _at_epoch(storage, image.path, epoch)
        if earlier is not None and part is not None:
            earlier = part_of(*earlier, part)
        if earlier is None:
            continue
        read = faults_at(storage, *earlier, suspects)
        if not any(finding.level == "refuse" for finding in read):
            working.append(epoch)
    return tuple(sorted(working))


def faults_at(
    storage: Storage,
    survey: Survey,
    image: Image,
    suspects: Collection[Place],
    tallies: Tallies | None = None,
) -> Iterator[Finding]:
    """Yield the faults of an image beyond those in its survey, of suspected shards first."""
    return _read(storage, survey, image, _state(storage, image, suspects, tallies))


def _at_epoch(storage: Storage, path: str, epoch: int) -> tuple[Survey, Image] | None:
    """Return the image as it was at an epoch; None where no restart works from that."""
    survey = surveyed(storage, until=epoch)
    image = next((image for image in survey.images if image.path == path), None)
    if image is None or image.epoch != epoch or epoch not in image.epochs:
        return None
    return survey, image


def _read(
    storage: Storage, survey: Survey, image: Image, state: Iterable[Finding]
) -> Iterator[Finding]:
    """Read everything the image needs at its epoch; its entries where `state` reads them."""
    yield from _logs(storage, image)
    yield from _archives(storage, image)
    yield from state
    yield from snapshots.order_findings(storage, survey, image)
    yield from sidecars.findings(storage, survey, image)


def _logs(storage: Storage, image: Image) -> Iterator[Finding]:
    """Read what is not state: logs, metadata, schemas."""
    for path in image.needed:
        inside = layout.inside(image, path)
        area = classify(inside).area
        if area in ("state", "sidecar"):
            continue
        try:
            decoding.check_file(path, storage.chunks(path))
            if area == "state-schema":
                check_schema(decode_schema(bounds.gather(storage.chunks(path), path)))
        except FormatError as error:
            if not layout.is_spare(inside):  # else the survey has warned of it
                yield _damaged(path, error)
        except MissingFile as error:
            yield Finding("refuse", f"{error.fact}: a restart reads it", path=path)


def _archives(storage: Storage, image: Image) -> Iterator[Finding]:
    """Read zips to their ends, as Spark does; warn of a wrong directory, which it reads last."""
    known = set(image.read_before)
    for path in image.needed:
        if not path.endswith(".zip") or path in known:
            continue
        doubts: Sequence[str] = ()
        try:
            doubts = rocksdb.check_zip(bounds.gather(storage.chunks(path), "a zip"))
        except FormatError as error:
            yield _damaged(path, error)
        except MissingFile:
            pass  # the survey has refused it
        if doubts:
            more = f", and {len(doubts) - 1} more" if len(doubts) > 1 else ""
            fact = f"{path} is damaged where Spark does not look: {doubts[0]}{more}"
            hint = f"other programs may not open {path}"
            yield Finding("warn", f"{fact}; its files are whole", hint=hint, path=path)


def _state(
    storage: Storage, image: Image, first: Collection[Place], tallies: Tallies | None
) -> Iterator[Finding]:
    """Read shard by shard, `first` ones first, and compare a join's stores with each other."""
    reader = _StateReader(storage, image, views_of(storage, image), set(image.read_before))
    shards = sorted(image.shards, key=lambda shard: shard_place(shard) not in first)
    for (operator, number), stores in groupby(shards, shard_place):
        join = Join(operator, number)
        for shard in stores:
            tally = None if tallies is None else Tally()
            yield from reader.check(shard, join, tally)
            if tallies is not None and tally is not None and not join.incomplete:
                tallies[place_of(shard)] = (tally.records, tally.total)
        yield from join.findings()
    if shards:
        # Note what nobody could look into, so that silence means something.
        for view in reader.views.all():
            if not view.known:
                yield Finding(
                    "note",
                    f"operator {view.operator}: the columns of store {view.store} are not known, "
                    "so its rows were decoded as bytes only",
                )
            elif view.placed is None:
                yield Finding(
                    "note",
                    f"operator {view.operator}: which shard a key of store {view.store} belongs "
                    "to is not known (an operator of its own kind, or collated strings)",
                )


@dataclass(frozen=True, slots=True)
class _StateReader:
    """One image whose shards are read; `views` say how the rows of each store are read, and `known`
    files were read before.
    """

    storage: Storage
    image: Image
    views: Views
    known: set[str]

    def check(self, shard: ShardFiles, join: Join, tally: Tally | None) -> Iterator[Finding]:
        """Read one store of one shard to its end, and add its entries to the join and the tally."""
        operator = next(each for each in self.image.operators if each.id == shard.operator)
        settings = self.image.settings
        # The stores of a join are compared with each other, and so are read whole.
        is_of_join = operator.name == JOIN or shard.store != DEFAULT_STORE
        if not is_of_join:
            shard, settings = changes_since(shard, settings, self.known)
        yield from self._codecs(shard)
        strict, shards = is_strict(settings), operator.shards
        rows = RowCheck(self.storage.chunks, shard, strict, shards)

        def deleted(store: str, keys: Binary) -> None:
            rows.check_deleted(self.views.of(shard.operator, store), keys)

        try:
            for store, block in fold_shard(self.storage.chunks, shard, settings, deleted=deleted):
                if tally is not None:
                    tally.add(store, block)
                view = self.views.of(shard.operator, store)
                sound = rows.sound(view, block)
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
        join.incomplete |= bool(rows.broken.count)
        yield from rows.findings()

    def _codecs(self, shard: ShardFiles) -> Iterator[Finding]:
        """Refuse files in another codec than the offset log's, which alone Spark goes by."""
        logged = codec_in(self.image.settings)
        compressed = [path for path in shard.files if path.endswith(_COMPRESSED)]
        for path in compressed:
            try:
                codec = codec_of(next(iter(self.storage.chunks(path)), b""))
            except MissingFile:
                continue  # reading its rows refuses it
            if codec not in (None, logged):
                yield Finding(
                    "refuse",
                    f"{path} is compressed with {codec}, and the offset log says {logged}: Spark "
                    "cannot read it",
                    path=path,
                    offset=0,
                )


def _damaged(path: str, error: FormatError) -> Finding:
    if isinstance(error, TooLarge):
        raise error.at(path)  # whether it is damaged nobody has seen
    return Finding("refuse", f"{path} is damaged: {error.fact}", path=path, offset=error.offset)
