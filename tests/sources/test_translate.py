"""A place in a topic is known again by the records around it, or it is not."""

from __future__ import annotations

import pytest

from stateshift.sources.translate import Context, Place, context_at, find_place
from stateshift.survey import TopicRecord
from tests.support.kafka import record


def topic(text: str, start: int = 0) -> list[TopicRecord]:
    """A record for each letter, whose time is the letter's; a dot is an offset without one."""
    return [
        record(start + number, letter, ord(letter))
        for number, letter in enumerate(text)
        if letter != "."
    ]


@pytest.mark.parametrize(
    ("new", "place"),
    [
        ("abcdefgh", Place(14, True)),
        ("xyabcdefgh", Place(16, True)),  # behind foreign records
        ("..a.bcd..efgh", Place(17, True)),  # holes of transactions, or of a compaction
        ("defgh", Place(11, True)),  # retention has taken what is older
        ("efgh", Place(10, False)),  # and the last one that was read
        ("abcd", Place(14, False)),  # the mirror lags
        ("abcfgh", None),  # both were compacted: it could be anywhere between
        ("abceh", Place(13, False)),  # only the last one that was read
        ("abcdgh", Place(14, False)),  # only the next ones
        ("abcd?efgh", None),  # another record follows
        ("vwxyz", None),
        ("", None),
        ("abcdefghabcdefgh", None),  # twice
    ],
)
def test_a_place_is_found_by_the_records_on_both_sides(new: str, place: Place | None) -> None:
    context = context_at(topic("abcdefgh"), 4)
    assert find_place(context, topic(new, 10)) == place


def test_a_longer_stretch_decides_between_places_that_look_the_same() -> None:
    def beat(offset: int, value: str) -> TopicRecord:
        return record(offset, value, None)

    old = [beat(number, value) for number, value in enumerate("abxxab")]
    new = [beat(number, value) for number, value in enumerate("ababxxab")]
    assert find_place(context_at(old, 2), new) == Place(4, False)
    same = [beat(number, "x") for number in range(20)]
    assert find_place(context_at(same, 10), same) is None


def test_the_end_of_the_old_topic_is_known_by_what_is_before() -> None:
    context = context_at(topic("abcd"), 4)
    assert find_place(context, topic("abcdXYZ", 30)) == Place(34, True)
    nothing_read = Context((), tuple(topic("abcd")))
    assert find_place(nothing_read, topic("XYabcd", 30)) == Place(32, True)


def test_times_are_not_compared_where_a_broker_has_set_them() -> None:
    later = [each._replace(timestamp=9_999, appended=True) for each in topic("abcdef", 7)]
    assert find_place(context_at(topic("abcdef"), 3), later) == Place(10, False)
    other = [each._replace(timestamp=9_999) for each in topic("abcdef", 7)]
    assert find_place(context_at(topic("abcdef"), 3), other) is None
