"""verify --deep places what is deleted as it places what is kept: no entry tells of it."""

from __future__ import annotations

import pytest

from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.formats.spark.compression import codec_of
from stateshift.formats.spark.offset_conf import ROW_CHECKSUM
from stateshift.formats.spark.state_files import (
    StateRecord,
    decode_changelog,
    decode_delta,
    encode_delta,
    with_row_checksum,
)
from tests.formats.golden import CASES, IDS
from tests.look.golden_images import HERE, contents, disk_with, judged
from tests.support.encoders import encode_changelog


def image_of(files):
    disk = disk_with(files)
    (image,) = survey.survey(disk.open(HERE)).images
    return image


def deletes_of(content, path, checked):
    """A file of changes that deletes what the given one puts, and nothing else; None where it
    puts nothing.
    """
    codec = codec_of(content) or "lz4"
    if path.endswith(".delta"):
        records, encode = list(decode_delta([content])), encode_delta
    else:
        header, found = decode_changelog([content])
        records = list(found)

        def encode(changes, codec):
            return encode_changelog(header, changes, codec)

    gone = [
        StateRecord(key, None)
        for key in dict.fromkeys(r.key for r in records if r.value is not None)
    ]
    if not gone:
        return None
    return b"".join(encode([with_row_checksum(r) if checked else r for r in gone], codec))


def by_changes(files):
    """The checkpoint without its newest snapshots, where the changes before them do as well."""
    image = image_of(files)
    snapshots = {
        shard.files[-1]
        for shard in image.shards
        if shard.files and shard.files[-1].endswith(".snapshot")
    }
    fewer = {path: content for path, content in files.items() if path not in snapshots}
    whole = not [finding for finding in image_of(fewer).findings if finding.level == "refuse"]
    return fewer if whole else files


def pairs(case):
    """Checkpoint and the newest changes of two shards of one store, where both put something."""
    files = by_changes(contents(case))
    image = image_of(files)
    found: dict[str, list[str]] = {}
    for shard in image.shards:
        if shard.files and shard.files[-1].endswith((".delta", ".changelog")):
            found.setdefault(f"{shard.operator}/{shard.store}", []).append(shard.files[-1])
    for store, paths in found.items():
        checked = image.settings.get(ROW_CHECKSUM) == "true"
        made = {path: deletes_of(files[path], path, checked) for path in paths}
        full = [path for path in paths if made[path] is not None][:2]
        if len(full) == 2:
            yield store, files, [(path, made[path]) for path in full]


@pytest.mark.long
def test_there_is_such_a_pair_of_every_provider_and_of_joins_and_column_families():
    found = [(case.name, *pair) for case in CASES for pair in pairs(case)]
    assert {path.rpartition(".")[2] for *_, made in found for path, _ in made} == {
        "delta",
        "changelog",
    }
    assert any("keyWithIndexToValue" in store for _, store, _, _ in found)
    assert any("tws" in name for name, *_ in found)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_changes_that_only_delete_and_were_exchanged_between_shards_are_refused(case):
    for _, files, made in pairs(case):
        refused_where_exchanged(files, made)


def refused_where_exchanged(files, made):
    (one, content), (other, more) = made
    in_place = judged({**files, one: content, other: more})
    assert not [finding for finding in in_place.findings if "which it deletes" in finding.message]
    exchanged = judged({**files, one: more, other: content})
    told = [finding for finding in exchanged.findings if "which it deletes" in finding.message]
    if any("is not known" in finding.message for finding in exchanged.findings):
        return  # collated strings: no shard of theirs is known, and that is said
    assert not exchanged.restartable
    assert {finding.path for finding in told} == {one, other}
    assert all(finding.level == "refuse" and finding.offset is not None for finding in told)
