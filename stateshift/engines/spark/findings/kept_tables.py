"""What keeps a compaction from keeping tables (`keep_tables`): refused by name, with the way out.
Pure.

Real Sparks (3.3.4, 3.5.9, 4.0.5, 4.3.0) took what is written of checkpoint format 1 without column
families and row checksums. Nothing else was tried, so nothing else is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from stateshift.engines.spark.image import name_of, spark_image
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite.pieces import TABLE_BYTES, keeps_tables
from stateshift.engines.spark.rewrite.request import Request
from stateshift.engines.spark.rewrite.stores import provider_of
from stateshift.engines.spark.rewrite.wishes import Wishes, wishes_of
from stateshift.formats.spark.offset_conf import has_row_checksums
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Image, ShardFiles

_PLAINLY = "leave keep_tables out: a plain `compact` writes the state anew"


def of_kept_tables(wishes: Wishes, facts: Facts) -> Iterator[Finding]:
    """Refuse images whose tables cannot be kept, and say where there is nothing to write."""
    if not wishes.keep_tables:
        return
    alone = Wishes(rewind=wishes.rewind, compact=True, in_place=wishes.in_place, keep_tables=True)
    if wishes != alone:
        yield Finding(
            "refuse",
            "tables cannot be kept beside another change than `rewind` without `renumber`",
            hint="leave keep_tables out: the other change writes the state anew",
        )
        return
    for number, image in enumerate(facts.source.images):
        if image.epoch is None or not image.shards:
            continue
        name = name_of(image, facts.source.location)
        request = Request(wishes, image, facts, number)
        why = _untried(request, image)
        if why is not None:
            yield Finding("refuse", f"{name} {why}", hint=_PLAINLY)
            continue
        anew = [shard for shard in image.shards if _is_written_anew(request, shard)]
        if anew:
            yield Finding(
                "note",
                f"{name}: {len(anew)} of {len(image.shards)} shards are written anew, tables and "
                f"all: they have no snapshot, or more than {TABLE_BYTES >> 20} MiB of changelogs",
            )
        elif not any(keeps_tables(request, shard) for shard in image.shards):
            yield Finding(
                "note",
                f"{name} has no changelog behind a table: every table stays, and none is added",
            )


def staying_files(job: JobSpec, facts: Facts) -> frozenset[str]:
    """Return what stays as it is in place: tables that are kept, shards without changelogs."""
    wishes = wishes_of(job.transform)
    if not (wishes.in_place and wishes.keep_tables):
        return frozenset()
    staying: list[str] = []
    for number, image in enumerate(facts.source.images):
        request = Request(wishes, image, facts, number)
        for shard in image.shards:
            if keeps_tables(request, shard):
                staying += (path for path in shard.files if path.endswith(".sst"))
            elif not _is_written_anew(request, shard):
                staying += shard.files
    return frozenset(staying)


def _is_written_anew(request: Request, shard: ShardFiles) -> bool:
    """Whether a shard has changelogs, and its tables are not kept all the same."""
    is_changed = any(path.endswith(".changelog") for path in shard.files)
    return is_changed and not keeps_tables(request, shard)


def _untried(request: Request, image: Image) -> str | None:
    """Return why the tables of an image are not kept."""
    if provider_of(image) != ROCKSDB:
        return "does not keep its state in RocksDB: it has no tables to keep"
    if request.format_2:
        return "is of checkpoint format 2, of which no tables are kept"
    if has_row_checksums(image.settings):
        return "has row checksums, beside which no tables are kept"
    if any(store.count("/") > 1 for store in spark_image(image).schemas):
        return "has state in column families, of which no tables are kept"
    return None
