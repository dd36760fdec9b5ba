"""Tables that are kept, and one more of the changelogs: on every golden checkpoint of RocksDB's with
changelogs the entries are the same, or the plan is refused by name. That a real Spark goes on from
the result is shown in acceptance/test_kept_tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift import api, look, migration
from stateshift.engines.spark.entries.rocksdb_version import SHARD_PART, encode_part, parts_between
from stateshift.engines.spark.rewrite.comparison import CHANGES, comparable
from stateshift.engines.spark.rewrite.files import KEEP_TABLES, REWRITE_STATE
from stateshift.engines.spark.rewrite.kept_tables import keep_tables, version_of
from stateshift.engines.spark.rewrite.pieces import TABLE_BYTES
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import FormatError, Incompatible
from stateshift.formats.blocks import block_of
from stateshift.formats.rocksdb.manifest import encode_manifest, with_table
from stateshift.formats.spark.names import classify
from stateshift.formats.spark.rocksdb import ListedTable, RocksDBSnapshot, decode_zip, encode_zip
from stateshift.formats.spark.state_files import Changelog, StateRecord
from stateshift.migration import Proposal
from stateshift.step import TransformShard
from stateshift.storage.protocol import Storage
from stateshift.survey import Room, ShardFiles
from tests.contracts.faulty import Effects, Faulty, Killed, at
from tests.engines.spark.rewrite.test_in_place import entries_of
from tests.engines.spark.test_transforms_golden import source_of
from tests.formats.golden import CASES, IDS
from tests.formats.rocksdb.test_sst_encoding import table_of
from tests.support.encoders import encode_changelog
from tests.support.ground import TARGET, Ground, changes_of, facts_of, plan_of, plans_of, spec_of

KEPT = {"kind": "compact", "keep_tables": True}
IN_PLACE = {**KEPT, "in_place": True}
NEWEST = "spark-4.3.0"
WITH_CHANGELOGS = [
    case for case in CASES if any((case / "checkpoint" / "state").rglob("*.changelog"))
]
ALL = [
    pytest.param(
        case,
        id=IDS[CASES.index(case)],
        marks=() if case.parent.name == NEWEST else pytest.mark.slow,
    )
    for case in WITH_CHANGELOGS
]
# What in a golden's name tells that its tables are not kept, and in which words that is said.
REFUSED = {
    "format2": "is of checkpoint format 2",
    "checksum": "has row checksums",
    "tws-": "has state in column families",
    "join-rocksdb-v": "has state in column families",
}


def golden(name: str) -> Path:
    return next(case for case in CASES if case.parent.name == NEWEST and case.name == name)


def grounded(folder: Path, case: Path) -> tuple[Ground, str]:
    """A golden checkpoint; where several snapshots of a shard are there, as it was before the
    newest of them was uploaded: with changelogs behind the one before.
    """
    ground = Ground(folder)
    location = source_of(ground, case)
    versions: dict[str, list[int]] = {}
    for path in ground.held(location):
        place, _, name = path.rpartition("/")
        if place.startswith("state/") and name.endswith(".zip") and name[:-4].isdecimal():
            versions.setdefault(place, []).append(int(name[:-4]))
    for place, own in versions.items():
        if len(own) > 1:
            ground.remove(f"{location}/{place}/{max(own)}.zip")
    return ground, location


def proposed(ground: Ground, location: str, target: str | None = TARGET) -> Proposal:
    change = KEPT if target else IN_PLACE
    return ground.propose(spec_of(location, target, transform=[change], waive=["paths-stay"]))


def shards_of(storage: Storage) -> tuple[ShardFiles, ...]:
    return survey.survey(storage).images[0].shards


def tables_of(held: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in held.items() if classify(path).kind == "sst"}


@pytest.mark.row("IS-17")
@pytest.mark.parametrize("case", ALL)
def test_kept_tables_and_one_more_hold_the_same_entries_or_the_plan_is_refused_by_name(
    tmp_path: Path, case: Path
) -> None:
    ground, location = grounded(tmp_path, case)
    proposal = proposed(ground, location)
    expected = [said for part, said in REFUSED.items() if part in case.name]
    if proposal.refusals:
        assert expected and any(said in proposal.refusals[0].message for said in expected)
        return
    assert not expected
    before = {(s.operator, s.store, s.shard): s for s in shards_of(ground.open(location))}
    ground.apply(proposal)
    assert api.diff(location, TARGET, adapters=ground.adapters).equal
    assert migration.verify(ground.workdir(), ground.adapters).broken == ()
    judged = look.restartable(TARGET, ground.open, thorough=True)
    assert (judged.restartable, judged.findings) == (True, judged.findings)
    source, target = ground.held(location), ground.held(TARGET)
    assert not [path for path in target if path.endswith(".changelog")]
    counts = Counter(entry[:3] for entry in entries_of(ground, TARGET).elements())
    for shard in shards_of(ground.open(TARGET)):
        version = version_of(ground.open(TARGET).chunks, shard)
        assert version.snapshot.keys == counts[shard.operator, shard.shard, shard.store]
        was = before[shard.operator, shard.store, shard.shard].files
        if any(path.endswith(".zip") for path in was):
            kept = [path for path in was if path.endswith(".sst")]
            assert all(target[path] == source[path] for path in kept)
            assert len(version.snapshot.tables) in (len(kept), len(kept) + 1)
            place = shard.files[0].rpartition("/")[0]
            there = [path for path in tables_of(target) if path.startswith(f"{place}/")]
            assert len(version.snapshot.tables) == len(there), "every table is named"


@pytest.mark.row("IS-17")
@pytest.mark.parametrize("name", ["window-rocksdb-changelog", "groups-rocksdb", "join-rocksdb"])
def test_in_place_no_table_is_touched_and_a_rollback_puts_back_every_file(
    tmp_path: Path, name: str
) -> None:
    ground, location = grounded(tmp_path, golden(name))
    before, held = entries_of(ground, location), ground.held(location)
    kept = tables_of(
        {path: held[path] for s in shards_of(ground.open(location)) for path in s.files}
    )
    ground.apply(proposed(ground, location, None))
    assert entries_of(ground, location) == before
    left = ground.held(location)
    assert not [path for path in left if path.endswith(".changelog")]
    assert kept.items() <= tables_of(left).items()
    assert look.restartable(location, ground.open, thorough=True).restartable
    assert migration.verify(ground.workdir(), ground.adapters).broken == ()
    ground.rollback()
    assert ground.held(location) == held


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", [TARGET, None])
def test_killed_at_any_effect_it_ends_or_goes_back_as_an_unharmed_run(
    tmp_path: Path, target: str | None, moments: Callable[[int], range]
) -> None:
    case = golden("groups-rocksdb")
    unharmed, location = grounded(tmp_path / "unharmed", case)
    place, held, counted = target or location, unharmed.held(location), Effects()
    unharmed.wrap = lambda storage: Faulty(storage, counted)
    unharmed.apply(proposed(unharmed, location, target))
    unharmed.wrap = lambda storage: storage
    expected = unharmed.held(place)
    assert len(counted.seen) > 10
    for number in moments(len(counted.seen)):
        ground, _ = grounded(tmp_path / str(number), case)
        effects = Effects(at(number, Killed))
        ground.wrap = lambda storage, effects=effects: Faulty(storage, effects)  # type: ignore[misc]
        with pytest.raises(Killed):
            ground.apply(proposed(ground, location, target))
        ground.wrap = lambda storage: storage
        if number % 2:
            ground.resume()
            assert ground.held(place) == expected, f"killed at effect {number}"
        ground.rollback()
        assert ground.held(place) == ({} if target else held), f"killed at effect {number}"


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("window-hdfs", [KEPT], "it has no tables to keep"),
        ("window-rocksdb-format2", [KEPT], "checkpoint format 2"),
        ("dedup-rocksdb-checksum", [KEPT], "row checksums"),
        ("tws-rows", [KEPT], "column families"),
        (
            "window-rocksdb-changelog",
            [KEPT, {"kind": "repartition", "partitions": 2}],
            "beside another change",
        ),
    ],
)
def test_what_was_not_tried_is_refused_with_a_way_out(
    tmp_path: Path, name: str, changes: list[dict[str, object]], said: str
) -> None:
    ground, location = grounded(tmp_path, golden(name))
    refusals = ground.propose(spec_of(location, transform=changes, waive=["paths-stay"])).refusals
    assert [said in finding.message for finding in refusals] == [True]
    assert "leave keep_tables out" in (refusals[0].hint or "")


def test_without_a_changelog_every_table_is_copied_and_that_is_said(tmp_path: Path) -> None:
    ground, location = grounded(tmp_path, golden("window-rocksdb-changelog"))
    ground.apply(spec_of(location, "file:///once", transform=[KEPT], waive=["paths-stay"]))
    proposal = proposed(ground, "file:///once")
    notes = [finding.message for plan in proposal.plans for finding in plan.findings]
    assert any("has no changelog behind a table" in note for note in notes)
    ground.apply(proposal, "again")
    once, again = ground.held("file:///once"), ground.held(TARGET)
    states = [path for path in once if path.startswith("state/")]
    assert {path: once[path] for path in states} == {path: again[path] for path in states}


def test_a_shard_whose_changelogs_are_more_than_a_table_is_written_anew(tmp_path: Path) -> None:
    ground, location = grounded(tmp_path, golden("window-rocksdb-changelog"))
    found = survey.survey(ground.open(location), changes=changes_of(KEPT))
    large = [
        file._replace(size=TABLE_BYTES) if file.path.startswith("state/0/1/") else file
        for file in found.files
    ]
    source = replace(found, files=tuple(large))
    spec = spec_of(location, transform=[KEPT], waive=["paths-stay"])
    plan = plan_of(spec, facts_of(source))
    transforms = {
        step.transform: {file.path.split("/")[2] for file in step.inputs if "state/" in file.path}
        for step in plan
        if isinstance(step, TransformShard)
        and step.name.startswith(("transform/kept", "transform/state"))
    }
    assert transforms == {KEEP_TABLES: {"0", "2"}, REWRITE_STATE: {"1"}}
    assert any("1 of 3 shards are written anew" in finding.message for finding in plan.findings)


# ---- made of any writes

KEYS = st.binary(max_size=2)
WRITES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=20)


@dataclass
class Shard:
    """A shard's files by their paths: tables of these writes, then changelogs of these."""

    tables: list[dict[bytes, bytes | None]]
    changelogs: list[dict[bytes, bytes | None]]
    families: dict[str, int] = field(default_factory=dict)
    counted: bool = True
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        listed, manifest, model = [], encode_manifest({}), {}
        for number, writes in enumerate(self.tables, start=4):
            if writes:
                content, facts = table_of([block_of(sorted(writes.items()))], number)
                self.files[f"SSTs/{number}-a.sst"] = content
                listed.append(ListedTable(f"{number:06}.sst", f"{number}-a.sst", len(content)))
                manifest = with_table(manifest, number, facts)
            model |= writes
        keys = sum(value is not None for value in model.values()) if self.counted else -1
        snapshot = RocksDBSnapshot(tuple(listed), keys, self.families)
        members = {
            "CURRENT": b"MANIFEST-000003\n",
            "MANIFEST-000003": manifest,
            "OPTIONS-000099": b"",
        }
        self.files = {"1.zip": encode_zip(snapshot, members), **self.files}
        for version, writes in enumerate(self.changelogs, start=2):
            records = [StateRecord(key, value) for key, value in writes.items()]
            self.files[f"{version}.changelog"] = b"".join(encode_changelog(Changelog(1), records))

    def read(self, path: str, offset: int = 0) -> Iterator[bytes]:
        yield self.files[path][offset:]

    @property
    def entries(self) -> dict[bytes, bytes | None]:
        model: dict[bytes, bytes | None] = {}
        for writes in (*self.tables, *self.changelogs):
            model |= writes
        return {key: value for key, value in model.items() if value is not None}

    def kept(self) -> dict[str, bytes]:
        """The files that the shard becomes."""
        paths = list(self.files)
        plain = {
            "operator": "0",
            "store": "default",
            "shard": 0,
            "files": paths,
            "table": "new.sst",
        }
        inputs = [partial(self.read, path) for path in paths]
        contents = keep_tables({"shards": [plain], "settings": {}}, inputs)
        made = dict(zip(("SSTs/new.sst", "9.zip"), contents, strict=True))
        tables = {path: self.files[path] for path in paths if path.endswith(".sst")}
        new = {path: b"".join(content()) for path, content in made.items() if content is not None}
        return tables | new


def of_files(files: dict[str, bytes], paths: Sequence[str], **settings: str) -> Counter[object]:
    """What a comparison reads of these files."""
    shard = ShardFiles("0", "default", 0, tuple(paths))
    blocks = comparable(lambda path, offset=0: iter([files[path][offset:]]), shard, settings)
    return Counter((store, *record) for store, block in blocks for record in block.records())


CHANGED = {CHANGES: "true"}


@settings(max_examples=40, deadline=None)
@given(st.lists(WRITES, max_size=4), st.lists(WRITES, min_size=1, max_size=4))
def test_whatever_was_written_the_entries_their_number_and_what_is_compared_are_the_same(
    tables: list[dict[bytes, bytes | None]], changelogs: list[dict[bytes, bytes | None]]
) -> None:
    shard = Shard(tables, changelogs)
    kept = shard.kept()
    assert ("SSTs/new.sst" in kept) == any(changelogs)
    folded = of_files(kept, sorted(kept))
    assert folded == Counter(("default", *entry) for entry in shard.entries.items())
    assert decode_zip(kept["9.zip"]).keys == len(shard.entries)
    changes = [path for path in shard.files if not path.endswith(".sst")]
    assert of_files(shard.files, changes, **CHANGED) == of_files(
        kept, ["9.zip", "SSTs/new.sst"], **CHANGED
    )
    assert shard.kept() == kept
    whole = of_files(shard.files, changes, **CHANGED)
    parts = [{**CHANGED, SHARD_PART: encode_part(part)} for part in parts_between([b"a", b"b"])]
    for files, paths in ((shard.files, changes), (kept, ["9.zip", "SSTs/new.sst"])):
        folds = [of_files(files, paths, **settings) for settings in parts]
        assert sum(folds, Counter()) == whole


OLDER = [{b"a": b"1", b"b": b"2"}, {b"b": b"3", b"c": b"4"}]
NEWER = [{b"a": None, b"c": b"5", b"d": b"6"}]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (OLDER, [{b"c": b"5", b"d": b"6"}]),  # a delete is lost
        (OLDER, [{b"a": b"", b"c": b"5", b"d": b"6"}]),  # a delete has become a put
        (OLDER, [{b"a": None, b"c": b"5", b"d": b"7"}]),
        (OLDER[:1], NEWER),  # a table is named no more
        ([{b"a": b"1"}, OLDER[1]], NEWER),  # another table in its place
        ([*OLDER, {b"e": b"7"}], NEWER),
    ],
)
def test_a_comparison_sees_what_another_shard_would_have_become(
    older: list[dict[bytes, bytes | None]], newer: list[dict[bytes, bytes | None]]
) -> None:
    shard, made = Shard(OLDER, NEWER), Shard(older, newer).kept()
    changes = [path for path in shard.files if not path.endswith(".sst")]
    expected = of_files(shard.files, changes, **CHANGED)
    assert of_files(made, ["9.zip", "SSTs/new.sst"], **CHANGED) != expected


def test_a_new_table_that_is_not_the_newest_is_refused() -> None:
    kept = Shard(OLDER, NEWER).kept()
    kept["SSTs/new.sst"], _ = table_of([block_of([(b"a", b"9")])], sequence=1)
    with pytest.raises(FormatError, match="not what its version's MANIFEST says"):
        of_files(kept, ["9.zip", "SSTs/new.sst"], **CHANGED)


def test_keys_that_a_job_does_not_count_are_not_counted() -> None:
    assert decode_zip(Shard(OLDER, NEWER, counted=False).kept()["9.zip"]).keys == -1


def test_column_families_that_only_the_zip_shows_are_refused() -> None:
    with pytest.raises(Incompatible, match="column families") as caught:
        Shard(OLDER, NEWER, families={"default": 0}).kept()
    assert "stateshift rollback" in (caught.value.hint or "")


def test_changelogs_that_merge_are_refused() -> None:
    shard = Shard(OLDER, [])
    merging = [StateRecord(b"a", b"9", merge=True)]
    shard.files["2.changelog"] = b"".join(encode_changelog(Changelog(2), merging))
    with pytest.raises(Incompatible, match="merge"):
        shard.kept()


@pytest.mark.row("IS-17")
@pytest.mark.parametrize("case", ["window-rocksdb-changelog", "window-rocksdb"])
def test_in_place_kept_tables_need_no_space_a_second_time(tmp_path: Path, case: str) -> None:
    """Nor do shards without changelogs, which nobody touches."""
    ground, location = grounded(tmp_path, golden(case))
    found = survey.survey(ground.open(location), changes=changes_of(IN_PLACE))
    large = [
        file._replace(size=TABLE_BYTES) if classify(file.path).kind == "sst" else file
        for file in found.files
    ]
    little = Room(bytes_free=TABLE_BYTES, shared="here", limit="the disk")
    facts = facts_of(replace(found, files=tuple(large), room=little))
    refused = {}
    for change in (IN_PLACE, {**IN_PLACE, "keep_tables": False}):
        spec = spec_of(location, None, transform=[change], waive=["paths-stay"])
        findings = [finding for plan in plans_of(spec, facts) for finding in plan.findings]
        refused[change["keep_tables"]] = any(finding.waive == "space" for finding in findings)
    assert refused == {True: False, False: True}
