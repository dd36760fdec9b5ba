"""Which images, operators and stores are meant: looked up once, and refused by name where there is
nothing of the kind. One file, and the first entries of every store, are shown by the names of their
columns, as far as these are known: the place of a file in its checkpoint tells its schema.

In a workflow directory every operator has a checkpoint of its own, and its id inside of it says
little: there it is called `<directory>/<id>`, and everywhere else `<id>`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from shlex import quote

from stateshift.engines.registry import absence, single
from stateshift.engines.spark.entries import single_file as decoding
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.store_view import RowSchema, note_of
from stateshift.engines.spark.entries.store_views import Views, views_of
from stateshift.engines.spark.survey import checkpoint as spark_survey
from stateshift.engines.views import DecodedFile, Opening, ShownEntry, Wanted
from stateshift.errors import NothingThere, PlanError, StateshiftError, errors_at
from stateshift.storage import locations
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Operator, ShardFiles, Survey


@dataclass(frozen=True)
class Opened:
    """A location's images, and how their stores are read."""

    location: str
    storage: Storage
    survey: Survey
    views: dict[str, Views]

    @property
    def images(self) -> tuple[Image, ...]:
        return self.survey.images

    def shards(self, wanted: Wanted) -> Iterator[tuple[Image, ShardFiles]]:
        """Yield the shards of every store that may hold what is wanted."""
        for image in self.images:
            for shard in image.shards:
                names = self.views[image.path].names(shard.operator, shard.store)
                is_of_operator = operator_fits(wanted, image, shard.operator)
                is_left_out = shard.shard % wanted.every > 0 or (
                    wanted.shard not in (None, shard.shard)
                )
                if (
                    is_of_operator
                    and not is_left_out
                    and any(store_fits(wanted, name) for name in names)
                ):
                    yield image, shard


def operator_fits(wanted: Wanted, image: Image, operator: str) -> bool:
    """Whether the operator is wanted, by its id or with its image's path before it."""
    return wanted.operator in (None, operator, operator_id(image, operator))


def store_fits(wanted: Wanted, store: str) -> bool:
    """Whether the store is wanted, by its whole name or by either part of it."""
    return wanted.store in (None, store, store.partition("/")[0], store.rpartition("/")[2])


def operator_id(image: Image, operator: str) -> str:
    """Return the operator's id, below its image's path where there is one."""
    return f"{image.path}/{operator}" if image.path else operator


def image_location(location: str, image: Image) -> str:
    """Return the location of an image; in a workflow it lies below the workflow's."""
    return f"{location}/{image.path}" if image.path else location


def open_images(
    location: str, opening: Callable[[str], Storage], batch: int | None = None
) -> Opened:
    """Return the images at a location; with `batch`, as if that one had been the last."""
    storage = opening(location)
    whole = spark_survey.survey(storage)
    if not whole.images:
        raise _no_checkpoint(whole, location, opening)
    if batch is not None:
        for image in whole.images:
            if batch not in image.epochs:
                epochs = ", ".join(map(str, image.epochs[-10:])) or "none"
                raise PlanError(
                    f"the state of batch {batch} is not there any more, or not yet: "
                    f"{image_location(location, image)}",
                    hint=f"the last batches whose state can be loaded: {epochs}",
                )
        whole = spark_survey.survey(storage, until=batch)
    for finding in chain.from_iterable(image.findings for image in whole.images):
        # A file that only a restart needs is no reason to refuse.
        folders = (finding.path or "").split("/")[:-1]
        is_of_state = not {"state", "offsets", "commits"}.isdisjoint(folders)
        if finding.level == "refuse" and is_of_state:
            fact = f"the state is not whole: {finding.message}"
            raise PlanError(fact, hint=f"stateshift verify {quote(location)}")
    views = {image.path: views_of(storage, image) for image in whole.images}
    return Opened(location, storage, whole, views)


def _no_checkpoint(
    survey: Survey, location: str, opening: Callable[[str], Storage]
) -> StateshiftError:
    look_there = f"stateshift inspect {quote(location)}"
    if survey.files and survey.findings:
        return PlanError(survey.findings[0].message, hint=survey.findings[0].hint)
    if survey.files:
        return PlanError(f"{location} holds no checkpoint", hint=look_there)
    if single(location, opening) is not None:
        fact = f"{location} is a single file, not a checkpoint"
        hint = f"name the checkpoint it belongs to; what is in the file: {look_there}"
        return PlanError(fact, hint=hint)
    hint = locations.look_above(survey.location)
    return NothingThere(absence(survey.location, location), location=location, hint=hint)


def check_wanted(there: Opened, wanted: Wanted) -> None:
    """Refuse an operator or a store that is not there, and say which ones are."""
    if wanted.operator is not None:
        operators = list(_operators(there))
        if not any(operator_fits(wanted, image, each.id) for image, each in operators):
            names = ", ".join(operator_id(image, operator.id) for image, operator in operators)
            fact = f"{there.location} has no operator {wanted.operator}"
            raise PlanError(fact, hint=f"its operators: {names or 'none'}")
    if wanted.store is not None:
        stores: list[str] = []  # or column families, of the operators that are wanted
        for image, operator in _operators(there):
            if operator_fits(wanted, image, operator.id):
                for store in operator.stores:
                    stores += there.views[image.path].names(operator.id, store.name)
        if not any(store_fits(wanted, name) for name in stores):
            names = ", ".join(dict.fromkeys(stores)) or "none"
            fact = f"{there.location} has no store {wanted.store}"
            raise PlanError(fact, hint=f"its stores: {names}")


def _operators(there: Opened) -> Iterator[tuple[Image, Operator]]:
    for image in there.images:
        for operator in image.operators:
            yield image, operator


# A file longer than this is shown from its beginning only.
FILE_MAX = 256 * 1024 * 1024


def decode_at(storage: Storage, name: str, location: str, opening: Opening) -> DecodedFile:
    """Return one decoded file; state files find their schema in the checkpoint around them."""
    path = locations.normal(location, os.getcwd())
    inside = decoding.inside(path)
    schema, rows = decoding.schema_path(inside), RowSchema()
    with errors_at(location):
        if schema is not None:
            checkpoint = opening(path.removesuffix(inside).rstrip("/") or path)
            if checkpoint.stat(schema) is not None:
                is_rocksdb = path.endswith((".zip", ".changelog", ".sst"))
                provider = "rocksdb" if is_rocksdb else None
                rows = RowSchema.of(checkpoint.read(schema, FILE_MAX), provider)
        return decoding.decode_file(path, storage.read(name, FILE_MAX), rows)


def first_entries(storage: Storage, survey: Survey, limit: int) -> Iterator[ShownEntry]:
    """Yield the first entries of every store, `limit` of each at most."""
    for image in survey.images:
        shown: Counter[tuple[str, str]] = Counter()
        views = views_of(storage, image)
        for shard in image.shards:
            names = views.names(shard.operator, shard.store)
            if all(shown[shard.operator, name] >= limit for name in names):
                continue
            for store, block in fold_shard(storage.chunks, shard, image.settings):
                view = views.of(shard.operator, store)
                note = note_of(view, image)
                left = max(0, limit - shown[shard.operator, store])
                shown[shard.operator, store] += len(block)
                for key, value in islice(block.records(), left):
                    assert value is not None, "what is folded has no deletes"
                    yield ShownEntry(
                        operator=shard.operator,
                        store=store,
                        shard=shard.shard,
                        key=view.show_key(key),
                        value=view.show_value(value),
                        note=note,
                    )
