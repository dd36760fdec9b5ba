"""New offsets for a topic that is elsewhere: found, counted, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from stateshift.sources.topic_positions import (
    TopicPositions,
    TopicRequest,
    new_positions,
)
from stateshift.sources.topic_search import first_since
from stateshift.survey import Finding, PositionChange
from tests.support.kafka import MemoryTopics, offset_sync, record

OLD, NEW = "orders", "shop-orders"


def brokers(name: str, topic: str, **partitions: tuple[int, range]) -> MemoryTopics:
    """Brokers with one topic: of each partition (p0, p1, …) its first offset, and the numbers that
    its records have, a second apart.
    """
    held = {}
    for key, (first, numbers) in partitions.items():
        held[int(key[1:])] = [
            record(first + place, f"{key}-{number}", 1000 * number)
            for place, number in enumerate(numbers)
        ]
    return MemoryTopics(name, {topic: held})


def old() -> MemoryTopics:
    return brokers("old:1", OLD, p0=(0, range(100)), p1=(0, range(60)))


def new(**more: tuple[int, range]) -> MemoryTopics:
    """The same records behind others: 17 of partition 0, and 40 of 1 are gone."""
    return brokers("new:1", NEW, **{"p0": (17, range(100)), "p1": (5, range(40, 60)), **more})


def asked(at: MemoryTopics | None = None, **keys: Any) -> TopicPositions:
    request = {"read": {0: 80, 1: 50}, "planned": None, "way": "records", **keys}
    there = keys.pop("from_brokers", old())
    request.pop("from_brokers", None)
    return new_positions(TopicRequest("0", OLD, NEW, **request), there, at or new())


def refused(positions: TopicPositions) -> list[Finding]:
    return [finding for finding in positions.findings if finding.level == "refuse"]


def counts(positions: TopicPositions) -> list[tuple[int, int | None, int | None]]:
    return [(each.after, each.again, each.skipped) for each in positions.changes]


@pytest.mark.row("W-5")
@pytest.mark.parametrize("way", ["records", "timestamp"])
def test_the_records_that_were_read_last_are_found_at_the_new_brokers(way: str) -> None:
    positions = asked(way=way)
    assert positions.findings == ()
    assert positions.read == {0: 97, 1: 15}
    assert positions.changes == (
        PositionChange("0", f"{NEW}/0", 80, 97, 0, 0),
        PositionChange("0", f"{NEW}/1", 50, 15, 0, 0),
    )


@pytest.mark.row("W-5")
@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("earliest", [(17, 80, 0), (5, 10, 0)]),
        ("latest", [(117, 0, 20), (25, 0, 10)]),
        ("timestamp:78000", [(95, 2, 0), (25, 0, 10)]),
        ("timestamp:1000000", [(117, 0, 20), (25, 0, 10)]),
    ],
)
def test_other_ways_count_what_is_read_again_and_what_is_skipped(way: str, expected: Any) -> None:
    positions = asked(way=way)
    assert (refused(positions), counts(positions)) == ([], expected)


def test_holes_between_two_offsets_are_no_records() -> None:
    at = new()
    at.topics[NEW][0] = [each for each in at.topics[NEW][0] if not 97 <= each.offset < 105]
    old_brokers = old()
    old_brokers.topics[OLD][0] = [
        each for each in old_brokers.topics[OLD][0] if not 80 <= each.offset < 88
    ]
    positions = asked(at, way="timestamp", from_brokers=old_brokers)
    assert refused(positions) == []
    assert counts(positions)[0] == (105, 0, 0)


def test_a_compacted_topic_is_known_by_the_records_that_are_left() -> None:
    """The next record that was not read is far away in it."""
    there = old()
    kept = [each for each in there.topics[OLD][0] if each.offset < 79]
    late = [each._replace(offset=each.offset + 1_500) for each in there.topics[OLD][0][90:]]
    there.topics[OLD][0] = [*kept, *late]
    at = brokers("new:1", NEW, p0=(17, range(100)), p1=(5, range(40, 60)))
    at.topics[NEW][0] = [each for each in at.topics[NEW][0] if not 96 <= each.offset < 107]
    positions = asked(at, from_brokers=there)
    assert (refused(positions), positions.read[0]) == ([], 96)


def test_a_file_of_offsets_is_compared_with_the_records() -> None:
    assert counts(asked(way="offsets", offsets={0: 97, 1: 15})) == [(97, 0, 0), (15, 0, 0)]
    assert counts(asked(way="offsets", offsets={0: 90, 1: 17})) == [(90, 7, 0), (17, 0, 2)]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"offsets": {0: 97}}, "does not name shop-orders/1: the job would read it from its begin"),
        ({"offsets": {0: 97, 1: 15, 2: 0}}, "names shop-orders/2, and shop-orders has no such"),
        ({"offsets": {0: 118, 1: 15}}, "shop-orders/0 would be read from 118 on, and new:1 has 17"),
        (
            {"offsets": {0: 97, 1: 4}},
            "shop-orders/1 would be read from 4 on, and new:1 has 5 to 25",
        ),
        ({"offsets": None}, "names no partition of shop-orders"),
    ],
)
def test_a_file_that_does_not_fit_the_topic_is_refused(keys: dict[str, Any], says: str) -> None:
    positions = asked(way="offsets", **keys)
    (finding,) = refused(positions)
    assert (says in finding.message, finding.waive, positions.read) == (True, None, {}), finding


def test_a_topic_that_is_not_there_or_has_fewer_partitions_is_refused() -> None:
    (none,) = refused(asked(MemoryTopics("new:1")))
    assert none.message == "new:1 has no topic shop-orders"
    (fewer,) = refused(asked(brokers("new:1", NEW, p0=(0, range(100)))))
    assert "has no partition 1" in fewer.message


def test_records_that_are_not_there_are_refused_and_nothing_is_guessed() -> None:
    lagging = brokers("new:1", NEW, p0=(0, range(60)), p1=(0, range(60)))
    others = brokers("new:1", NEW, p1=(0, range(60)))
    others.topics[NEW][0] = [record(each, "other", 1000 * each) for each in range(60)]
    positions = asked(others)
    assert [finding.waive for finding in refused(positions)] == [None, "other-records"]
    assert "shop-orders/0: the records that the job has read last" in positions.findings[0].message
    assert positions.read == {}
    latest = asked(lagging, way="latest")
    (unproved,) = refused(latest)
    assert unproved.waive == "other-records" and "orders/0: " in unproved.message
    assert counts(latest) == [(60, None, None), (60, 0, 10)]


def test_old_brokers_that_nobody_names_or_that_are_others() -> None:
    positions = asked(way="latest", from_brokers=None)
    assert [finding.waive for finding in refused(positions)] == ["other-records"]
    assert counts(positions) == [(117, None, None), (25, None, None)]
    shorter = brokers("old:1", OLD, p0=(0, range(70)), p1=(0, range(60)))
    (other,) = refused(asked(from_brokers=shorter))
    assert "orders/0 ends at offset 70 at old:1, and the job has read up to 80" in other.message


def test_a_partition_more_begins_with_its_first_record() -> None:
    positions = asked(new(p2=(3, range(200, 210))))
    assert (refused(positions), positions.read) == ([], {0: 97, 1: 15, 2: 3})
    assert positions.changes[2] == PositionChange("0", f"{NEW}/2", None, 3, 0, 0)
    (copied,) = refused(asked(new(p2=(3, range(10, 20)))))
    assert copied.waive == "other-records" and "older than what the job has read" in copied.message
    named = asked(new(p2=(3, range(10, 20))), way="offsets", offsets={0: 97, 1: 15, 2: 13})
    (unproved,) = refused(named)
    assert "not read from its first record on" in unproved.message
    assert counts(named)[2] == (13, None, None)


def test_a_partition_of_which_nothing_was_read_or_nothing_is_left() -> None:
    empty = brokers("old:1", OLD, p0=(0, range(0)), p1=(0, range(0)))
    empty.firsts[OLD, 0] = 80
    there = brokers("new:1", NEW, p0=(0, range(0)), p1=(0, range(0)))
    there.firsts[NEW, 0] = 7
    positions = asked(there, from_brokers=empty, read={0: 80, 1: 0})
    assert (refused(positions), positions.read) == ([], {0: 7, 1: 0})


def test_a_planned_batch_ends_where_its_records_are() -> None:
    positions = asked(planned={0: 90, 1: 50})
    assert (refused(positions), positions.planned) == ([], {0: 107, 1: 15})
    (before,) = refused(asked(way="latest", planned={0: 90, 1: 50}))
    assert "a batch is planned that reads orders/0 up to 90" in before.message
    assert "--planned-batch drop" in (before.hint or "")


def test_the_search_goes_on_as_far_as_it_may() -> None:
    """The mirror has put a thousand others of the same time before it."""
    at = brokers("new:1", NEW, p0=(0, range(0)), p1=(5, range(40, 60)))
    others = [record(number, f"other-{number}", 79_000) for number in range(1000)]
    behind = [each._replace(offset=each.offset + 920) for each in old().topics[OLD][0][80:]]
    last = old().topics[OLD][0][79]._replace(offset=999)
    at.topics[NEW][0] = [*others[:-1], last, *behind]
    assert asked(at).read == {0: 1000, 1: 15}
    assert "in 100 records" in refused(asked(at, window=100))[0].message


def test_records_without_times_of_their_own_are_looked_for_in_the_whole_window() -> None:
    """The same stretch comes twice, far apart: neither is taken."""
    at = new()
    stretch = [each._replace(timestamp=1, appended=True) for each in at.topics[NEW][0]]
    again = [each._replace(offset=each.offset + 5_000) for each in stretch]
    at.topics[NEW][0] = [*stretch, *again]
    assert "shop-orders/0" in refused(asked(at))[0].message
    at.topics[NEW][0] = stretch
    assert asked(at).read[0] == 97


@pytest.mark.parametrize("number", [0, 1, 77, 2_000, 4_998, 4_999, 5_000])
def test_the_end_of_a_transaction_is_no_record_of_its_time(number: int) -> None:
    """A mirror's transactions end now, between records that are older."""
    at = brokers("new:1", NEW, p0=(0, range(5_000)))
    moved = [each._replace(offset=each.offset + each.offset // 7) for each in at.topics[NEW][0]]
    at.topics[NEW][0] = moved
    at.markers[NEW, 0] = (7, 9_999_999_999)
    spans = at.spans(NEW)
    times = {0: 1000 * number}
    assert at.offsets_at(NEW, {0: 30_000}) == {0: 7}
    expected = moved[number].offset if number < 5_000 else spans[0][1]
    assert first_since(at, NEW, times, spans) == {0: expected}
    assert at.reads < 2_000


def test_a_stretch_without_records_does_not_stop_the_search() -> None:
    """Its offsets are all one place."""
    at = brokers("new:1", NEW, p0=(0, range(5_000)))
    at.topics[NEW][0] = [each for each in at.topics[NEW][0] if not 1_000 < each.offset < 4_000]
    at.markers[NEW, 0] = (0, 9_999_999_999)
    for number, offset in ((900, 900), (4_100, 4_100), (2_000, 1_001)):
        assert first_since(at, NEW, {0: 1000 * number}, at.spans(NEW)) == {0: offset}


# ---- MirrorMaker

SYNCS = "mm2-offset-syncs.b.internal"


def mirrored(*syncs: tuple[int, int, int], name: str = SYNCS) -> MemoryTopics:
    """The old brokers, at which MirrorMaker has written these syncs: partition, upstream offset,
    downstream offset.
    """
    at = old()
    at.syncs[name] = [offset_sync(OLD, *sync) for sync in syncs]
    at.syncs[name].insert(0, offset_sync("others", 0, 5, 5))
    return at


RIGHT = ((0, 40, 57), (1, 45, 10), (0, 75, 92), (1, 55, 20), (0, 90, 107))


@pytest.mark.row("W-5")
@pytest.mark.parametrize("block", [1, 2, 10_000])
def test_by_mirrormaker_the_place_is_found_between_two_of_its_syncs(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateshift.sources.topic_search.BLOCK", block)
    positions = asked(way="mirrormaker", from_brokers=mirrored(*RIGHT))
    assert positions.findings == ()
    assert counts(positions) == [(97, 0, 0), (15, 0, 0)]


def test_syncs_are_read_back_no_further_than_they_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stateshift.sources.topic_search.BLOCK", 4)
    many = [(0, number, number) for number in range(20)] * 50
    at, alone = mirrored(*many, *RIGHT), mirrored(*RIGHT)
    for brokers_asked in (at, alone):
        asked(way="mirrormaker", from_brokers=brokers_asked)
    assert at.reads - alone.reads < 20


@pytest.mark.row("W-5")
def test_records_that_are_gone_are_bounded_by_syncs_and_counted() -> None:
    at = mirrored(*RIGHT)
    for number in (0, 1):  # retention took all that the job has read, and what comes next
        at.firsts[OLD, number] = at.ends[OLD, number] = 100 - 40 * number
        at.topics[OLD][number] = []
    positions = asked(way="mirrormaker", from_brokers=at)
    assert refused(positions) == []
    told = "orders/0: the records around 80 are not found on both sides. By MirrorMaker 2 the job "
    assert positions.findings[0].message.startswith(told)
    assert counts(positions) == [(93, 4, 0), (11, 4, 0)]
    exact = mirrored((0, 80, 97), (1, 50, 15))
    exact.firsts, exact.ends, exact.topics = at.firsts, at.ends, at.topics
    assert counts(asked(way="mirrormaker", from_brokers=exact)) == [(97, 0, 0), (15, 0, 0)]


def test_a_planned_batch_ends_behind_the_bounds_of_its_start() -> None:
    at = mirrored(*RIGHT, (0, 95, 112))
    positions = asked(way="mirrormaker", from_brokers=at, planned={0: 97, 1: 50})
    assert (positions.findings, positions.planned) == ((), {0: 114, 1: 15})


def test_the_end_of_a_planned_batch_that_a_mirror_lacks_is_waived() -> None:
    late = brokers("new:1", NEW, p0=(17, range(90)), p1=(5, range(40, 60)))
    positions = asked(late, planned={0: 97, 1: 50})
    (refusal,) = refused(positions)
    assert "7 records of it are not in shop-orders yet" in refusal.message
    assert (refusal.waive, positions.planned) == ("other-records", {0: 107, 1: 15})


def test_syncs_of_an_earlier_topic_are_not_believed() -> None:
    before = ((0, 80, 2), (1, 50, 1), (0, 300, 300), (1, 300, 300))
    positions = asked(way="mirrormaker", from_brokers=mirrored(*before, *RIGHT))
    assert counts(positions) == [(97, 0, 0), (15, 0, 0)]
    repeated = new()
    repeated.topics[NEW][0] = [each._replace(value="x") for each in repeated.topics[NEW][0]]
    (refusal,) = refused(asked(repeated, way="mirrormaker", from_brokers=mirrored(*RIGHT)))
    assert "and these are two different ones" in refusal.message


@pytest.mark.parametrize(
    ("at", "keys", "says"),
    [
        (old(), {}, "neither old:1 nor new:1 has a topic mm2-offset-syncs.ALIAS.internal"),
        (old(), {"syncs": "mine"}, "neither old:1 nor new:1 has mine"),
        (mirrored(), {}, "mm2-offset-syncs.b.internal has no offset sync of orders"),
        (mirrored((1, 45, 10)), {}, "shop-orders/0: the records that the job has read last"),
    ],
)
def test_without_a_sync_and_without_the_records_nothing_is_guessed(
    at: MemoryTopics, keys: dict[str, Any], says: str
) -> None:
    other = new()
    other.topics[NEW][0] = [each._replace(value="x") for each in other.topics[NEW][0]]
    refusal, *_ = refused(asked(other, way="mirrormaker", from_brokers=at, **keys))
    assert refusal.message.startswith(says)


def test_the_syncs_of_several_mirrors_are_named() -> None:
    at = mirrored(*RIGHT)
    at.syncs["mm2-offset-syncs.c.internal"] = []
    (refusal,) = refused(asked(way="mirrormaker", from_brokers=at))
    assert "has the offset syncs of 2 mirrors" in refusal.message
    assert asked(way="mirrormaker", from_brokers=at, syncs=SYNCS).findings == ()


@pytest.mark.row("W-5")
@pytest.mark.parametrize("way", ["records", "timestamp", "mirrormaker"])
def test_a_mirror_that_lags_is_waited_for_or_told_by_its_records(way: str) -> None:
    at = brokers("new:1", NEW, p0=(17, range(70)), p1=(5, range(40, 60)))
    lines: list[str] = []

    def waits(line: str) -> bool:
        """Four times five records come."""
        lines.append(line)
        last = len(at.topics[NEW][0])
        more = range(last, last + 5)
        at.topics[NEW][0] += [record(17 + each, f"p0-{each}", 1000 * each) for each in more]
        return len(lines) < 5

    request = TopicRequest("0", OLD, NEW, read={0: 80, 1: 50}, planned=None, way=way)
    positions = new_positions(request, mirrored(*RIGHT), at, waits)
    assert counts(positions) == [(97, 0, 0), (15, 0, 0)]
    assert [line[-35:] for line in lines] == [
        " lags: 10 records are not there yet",
        "1 lags: 5 records are not there yet",
    ]
    late = brokers("new:1", NEW, p0=(17, range(70)), p1=(5, range(40, 60)))
    (refusal,) = refused(new_positions(request, mirrored(*RIGHT), late))
    assert "the mirror lags, and 10 records that the job has read in orders" in refusal.message
