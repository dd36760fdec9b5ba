"""A yes of `verify --deep` to a damaged image is one to what the whole one held: a sample of
`scripts/bench/damage`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.damage import images
from tests.damage.commands import run
from tests.damage.meaning import differences
from tests.damage.mutations import ACTIONS, made
from tests.damage.verdicts import FAILURES, Verdict, meaning_of, verdict_of

ENGINES = ("spark", "flink")


def failures(found: Iterable[Verdict]) -> list[str]:
    """What is wrong with the verdicts, each with the mutation that shows it."""
    return [
        f"{one.result} {one.role} {one.id}: {one.what}: {one.about}"
        for one in found
        if one.result in FAILURES
    ]


@pytest.mark.long
@pytest.mark.row("W-2", "W-3")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_yes_to_a_damaged_image_is_true(engine: str, how: str, seed: int) -> None:
    names = [name for name in images.names() if name.startswith(engine)]
    if how != "full":
        names = names[seed % 4 :: 4]
    found = [verdict_of(f"{name}#0") for name in names]
    assert failures(found) == []
    assert sum(one.result == "detected" for one in found) > len(found) / 3


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_whole_images_are_accepted(engine: str) -> None:
    """Else nothing that is said of a damaged one would mean anything."""
    for name in [name for name in images.names() if name.startswith(engine)][::7]:
        golden = images.image(name)
        shown = run(images.on_a_disk(golden.files), "verify", golden.location, "--deep", "--json")
        assert shown.code == 0, (name, shown.out)
        assert meaning_of(name).keys() > {"entries"} or meaning_of(name).keys() >= {"_metadata"}


def test_the_same_number_makes_the_same_damage_and_every_action_comes_up() -> None:
    golden = images.image("spark-4.3.0/join-hdfs")
    assert made(golden, 5) == made(golden, 5)
    assert made(golden, 5) != made(golden, 6)
    assert {made(golden, number).action for number in range(200)} == set(ACTIONS)


def test_the_oracle_sees_one_changed_digit_and_no_changed_spelling() -> None:
    golden = images.image("spark-4.3.0/window-hdfs")
    path = f"{golden.location}/commits/5"
    whole = golden.files[path]
    assert b'"nextBatchWatermarkMs":1' in whole
    spelt = whole.replace(b'":1', b'" : 1')
    other = whole.replace(b'":1', b'":2')
    read = {content: meaning_after(golden, path, content) for content in (whole, spelt, other)}
    assert differences(meaning_of(golden.name), read[whole]) == []
    assert differences(meaning_of(golden.name), read[spelt]) == []
    assert differences(meaning_of(golden.name), read[other]) == ["commits commits/5"]


def meaning_after(golden: images.GoldenImage, path: str, content: bytes) -> dict[str, object]:
    from tests.damage.meaning import meaning

    return dict(meaning(golden.engine, golden.location, {**golden.files, path: content}))
