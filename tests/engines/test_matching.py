"""Two sides matched by key: what a dictionary of each would say, in memory and on piles."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines.match import Sided, match_sides
from stateshift.formats.blocks import block_of

KEYS = st.sampled_from([b"", b"a", b"b", b"key", b"k" * 9, b"\0" * 8, b"\0" * 9])
RECORDS = st.lists(st.tuples(KEYS, st.sampled_from([b"", b"1", b"22"])), max_size=30)


@settings(deadline=None)
@given(RECORDS, RECORDS, st.integers(1, 7), st.sampled_from((100, 1 << 20)))
def test_sides_are_matched_one_for_one(
    left: list[tuple[bytes, bytes]], right: list[tuple[bytes, bytes]], every: int, bytes_max: int
) -> None:
    both = [
        Sided(side, block_of(records[at : at + every]))
        for side, records in enumerate((left, right))
        for at in range(0, len(records), every)
    ]
    found = list(match_sides(both, bytes_max))
    ours, theirs = Counter(left), Counter(right)
    assert Counter(key for one in found for key in one.same.to_pylist()) == Counter(
        key for key, _ in (ours & theirs).elements()
    )
    removed, added = ours - theirs, theirs - ours
    changed = [one.changed for one in found]
    assert all(a.keys.equals(b.keys) for a, b in changed)
    assert (
        Counter(r for one in found for b in (one.removed, one.changed[0]) for r in b.records())
        == removed
    )
    assert (
        Counter(r for one in found for b in (one.added, one.changed[1]) for r in b.records())
        == added
    )
    only_one = {key for key, _ in removed} ^ {key for key, _ in added}
    assert not only_one & {key for before, _ in changed for key in before.keys.to_pylist()}
