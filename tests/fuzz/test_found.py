"""What fuzzing has found, with every test run: each input that broke something once, and a
moment of looking on.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.oracles import affordable
from tests.fuzz.targets import all_targets

TARGETS = all_targets()
KEPT = sorted(path for path in (Path(__file__).parent / "found").glob("*/*") if path.is_file())
SLOW = ("checkpoint", "plan", "verify", "inspect", "export", "apply")  # tens of milliseconds each

pytestmark = pytest.mark.row("IS-13")


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_broke_something_once_does_not_any_more(path: Path) -> None:
    affordable(TARGETS[path.parent.name].run, path.read_bytes())


def test_every_kept_input_is_of_a_format_that_there_is() -> None:
    assert {path.parent.name for path in KEPT} <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_the_sources_that_minutes_count_for_are_there(name: str) -> None:
    package = Path(__file__).resolve().parents[2] / "stateshift"
    assert [one for one in TARGETS[name].modules if not (package / one).exists()] == []


@pytest.mark.long
@pytest.mark.sample(16)
@pytest.mark.parametrize("name", TARGETS)
def test_where_fuzzing_starts_breaks_nothing(name: str) -> None:
    seeds = seeds_of(name)
    assert seeds
    for seed in seeds[:: max(1, len(seeds) // (6 if name in SLOW else 20))]:
        affordable(TARGETS[name].run, seed)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TARGETS if name not in SLOW])
def test_a_seed_cut_anywhere_breaks_nothing(name: str) -> None:
    """The shortest and the longest of the seeds, at every byte of the first and at a hundred of
    the other.
    """
    seeds = sorted(seeds_of(name), key=len)
    for seed in (seeds[0], seeds[len(seeds) // 2], seeds[-1]):
        for end in range(0, len(seed), max(1, len(seed) // 100)):
            TARGETS[name].run(seed[:end])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in TARGETS if name not in SLOW])
def test_a_seed_with_any_bit_flipped_breaks_nothing(name: str) -> None:
    seed = min(seeds_of(name), key=lambda one: abs(len(one) - 200))
    for place in range(0, 8 * len(seed), max(1, len(seed) // 50)):
        flipped = bytearray(seed)
        flipped[place // 8] ^= 1 << place % 8
        TARGETS[name].run(bytes(flipped))


NUMBERS = (b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4), b"9" * 20)


@cache
def seeds_of(name: str) -> list[bytes]:
    return [seed for seed in TARGETS[name].seeds() if seed]


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed with a few places changed: bits, bytes, lengths, pieces left out and put in twice."""
    content = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        match draw(st.integers(0, 4)):
            case 0 if content:
                content[place] ^= 1 << draw(st.integers(0, 7))
            case 1 if content:
                content[place] = draw(st.integers(0, 255))
            case 2:
                content[place : place + 4] = draw(st.sampled_from(NUMBERS))
            case 3:
                del content[place : place + draw(st.integers(1, 8))]
            case _:
                content[place:place] = content[place : place + draw(st.integers(1, 40))]
    return bytes(content)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_seeds_break_nothing(name: str, data: st.DataObject) -> None:
    run = TARGETS[name].run
    if name not in SLOW or data.draw(st.integers(0, 2)) == 0:
        run(data.draw(mutated(seeds_of(name))))
