"""Which files a version is folded from."""

from __future__ import annotations

import pytest

from stateshift.engines.spark.chains import Chain, StoreFiles, chain, expected_shards

FOLDER = "state/0/1"


def store(*names: str) -> StoreFiles:
    """`3.snapshot`, `4.delta`, `5_abc.zip`, `SSTs/a.sst` in one store."""
    found = StoreFiles("0", 1, "default", FOLDER)
    for name in names:
        path, (stem, ending) = f"{FOLDER}/{name}", name.rsplit("/", 1)[-1].rsplit(".", 1)
        version, _, uuid = stem.partition("_")
        if ending == "sst":
            found.ssts[name.rsplit("/", 1)[-1]] = path
        elif ending in ("snapshot", "zip"):
            found.snapshots[int(version), uuid] = path
        else:
            found.changes[int(version), uuid] = path
    return found


def no_ssts(path: str) -> tuple[str, ...]:
    return ()


def no_lineage(path: str) -> tuple[tuple[int, str], ...]:
    raise AssertionError(f"nobody should ask for the lineage of {path}")


def plain(version: int, *names: str) -> Chain:
    return chain(store(*names), version, no_ssts, no_lineage)


def short(paths: tuple[str, ...]) -> list[str]:
    return [path.removeprefix(f"{FOLDER}/") for path in paths]


@pytest.mark.parametrize(
    ("version", "names", "files"),
    [
        (0, ["1.delta"], []),
        (2, ["1.delta", "2.delta", "3.delta"], ["1.delta", "2.delta"]),
        (
            4,
            ["1.delta", "2.delta", "2.snapshot", "3.delta", "4.delta"],
            ["2.snapshot", "3.delta", "4.delta"],
        ),
        (4, ["2.snapshot", "4.snapshot", "4.delta", "5.snapshot"], ["4.snapshot"]),
        (4, ["1.zip", "2.zip", "3.zip", "4.zip"], ["4.zip"]),
        (
            5,
            ["3.zip", "4.changelog", "5.changelog", "6.changelog"],
            ["3.zip", "4.changelog", "5.changelog"],
        ),
    ],
)
def test_a_version_is_the_newest_snapshot_and_every_change_after_it(
    version: int, names: list[str], files: list[str]
) -> None:
    found = plain(version, *names)
    assert short(found.files) == files
    assert not found.missing


@pytest.mark.parametrize(
    ("version", "names", "missing"),
    [
        (3, ["1.delta", "3.delta"], ["2.delta"]),
        (2, ["1.delta"], ["2.delta"]),
        (2, [], ["1.delta", "2.delta"]),
        (4, ["2.snapshot", "4.delta"], ["3.delta"]),
        (3, ["1.zip", "3.changelog"], ["2.changelog"]),
        (3, ["4.zip"], ["1.zip", "2.zip", "3.zip"]),
    ],
)
def test_what_is_missing_is_named_as_the_engine_would_call_it(
    version: int, names: list[str], missing: list[str]
) -> None:
    assert short(plain(version, *names).missing) == missing


def test_a_zip_leans_on_the_ssts_that_it_names_and_a_missing_one_is_told() -> None:
    files = store("7.zip", "SSTs/a.sst", "SSTs/unused.sst")
    found = chain(
        files, 7, lambda zip: (f"{FOLDER}/SSTs/a.sst", f"{FOLDER}/SSTs/b.sst"), no_lineage
    )
    assert short(found.files) == ["7.zip", "SSTs/a.sst"]
    assert short(found.missing) == ["SSTs/b.sst"]


def test_the_commits_uuid_says_which_of_two_files_of_one_version_counts() -> None:
    files = store("3_old.zip", "3_new.zip")
    assert short(chain(files, 3, no_ssts, no_lineage, "new").files) == ["3_new.zip"]


def test_a_changelogs_lineage_says_what_came_before_it() -> None:
    files = store("1_a.zip", "2_b.changelog", "2_x.changelog", "3_c.changelog")
    lineage = {f"{FOLDER}/3_c.changelog": ((1, "a"), (2, "b"))}
    found = chain(files, 3, no_ssts, lambda path: lineage[path], "c")
    assert short(found.files) == ["1_a.zip", "2_b.changelog", "3_c.changelog"]


def test_a_lineage_is_cut_at_its_newest_snapshot() -> None:
    files = store("1_a.zip", "2_b.changelog", "2_b.zip", "3_c.changelog")
    found = chain(files, 3, no_ssts, lambda path: ((1, "a"), (2, "b")), "c")
    assert short(found.files) == ["2_b.zip", "3_c.changelog"]


def test_a_file_that_the_commit_names_and_that_is_not_there_is_missing() -> None:
    assert short(chain(store("3_old.zip"), 3, no_ssts, no_lineage, "new").missing) == ["3_new.zip"]


def test_a_lineage_that_begins_with_a_changelog_lacks_its_snapshot() -> None:
    """Spark reads no further than the lineage: CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT."""
    files = store("1_z.changelog", "2_b.changelog", "3_c.changelog")
    found = chain(files, 3, no_ssts, lambda path: ((2, "b"),), "c")
    assert short(found.missing) == ["2_b.zip"]
    first = chain(files, 3, no_ssts, lambda path: ((1, "z"), (2, "b")), "c")
    assert not first.missing


def test_a_version_is_loadable_only_without_a_hole_since_a_snapshot() -> None:
    assert store("1.delta", "2.delta", "4.delta", "6.snapshot", "7.delta").loadable() == {
        0,
        1,
        2,
        6,
        7,
    }


def test_the_offset_log_says_how_many_shards_there_are_not_what_lies_there() -> None:
    settings = {"spark.sql.shuffle.partitions": "5"}
    assert expected_shards(settings, {0, 1}, single=False) == {0, 1, 2, 3, 4}
    assert expected_shards(settings, {0}, single=True) == {0}
    assert expected_shards({}, {0, 1, 2}, single=False) == {0, 1, 2}
