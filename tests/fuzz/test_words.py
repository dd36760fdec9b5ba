"""Each engine's messages use its own words: who moves a Flink job is not told of Spark's batches,
nor the other way round. Messages are what `verify`, `inspect`, `export`, `diff` and `plan` find and
refuse, of sound images and of damaged ones. `epoch` is a word of ours.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.cli.support import Outside, Said
from tests.engines.flink import golden
from tests.fuzz.flink_images import golden_image, mutated, run_commands
from tests.fuzz.seeds import of_cases
from tests.fuzz.whole import NAMES as SPARK_CASES
from tests.support.checkpoints import put

SEED = 1127
SPARK_WORDS = re.compile(
    r"(?i)\b(spark|micro-?batch(es)?|batch(es)?|deltas?|commits?|committed|providers?|checkpointLocation|offset "
    r"logs?"
    r"|state stores?|foreachBatch|streaming quer(y|ies))\b"
)
FLINK_WORDS = re.compile(
    r"(?i)\b(flink|savepoints?|subtasks?|key ?groups?|max parallelism|task ?managers?|job "
    r"?managers?|uids?"
    r"|serializers?)\b"
)
# Locations and names of files are whoever wrote them.
_PLACES = re.compile(r"(file|hdfs)://\S+")


def messages(answers: dict[str, Said]) -> Iterator[str]:
    """Yield each message of what commands answered: findings with their hints, errors, notes."""
    for words, said in answers.items():
        yield from (line for line in said.err.splitlines() if line.strip())
        if "verify" in words:
            yield from said.out.partition("Findings")[2].splitlines()
        if words.startswith(("plan", "diff")) or words == "inspect":
            yield from said.out.partition("\nEntries")[0].splitlines()


def foreign_words(answers: dict[str, Said], words: re.Pattern[str]) -> set[str]:
    """Return the messages that have a word of the other engine's."""
    plain = (_PLACES.sub("", line) for line in messages(answers))
    return {line for line in plain if words.search(line)}


def test_the_words_would_be_found() -> None:
    assert foreign_words({"plan": Said(4, "", "error: batch 3 has no commit")}, SPARK_WORDS)
    assert foreign_words(
        {"verify": Said(5, "Findings\n  refuse  the savepoint is not whole", "")}, FLINK_WORDS
    )


def sampled(names: Sequence[str], step: int) -> list[ParameterSet]:
    """Return every name, all but each `step`-th of them for the long run only."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if n % step else [])
        for n, name in enumerate(names)
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", sampled(golden.NAMES, 24))
def test_no_message_on_a_flink_image_has_a_word_of_spark_s(name: str, tmp_path: Path) -> None:
    image = golden_image(name)
    chance = random.Random(f"{SEED} {name}")
    found = foreign_words(run_commands(image, {}, tmp_path), SPARK_WORDS)
    found |= foreign_words(run_commands(image, {image.metadata_path: b""}, tmp_path), SPARK_WORDS)
    for path in (image.metadata_path, chance.choice(sorted(image.files))):
        _, content = mutated(image.files[path], chance)
        found |= foreign_words(run_commands(image, {path: content}, tmp_path), SPARK_WORDS)
    assert not found


@pytest.mark.long
@pytest.mark.parametrize("name", sampled(SPARK_CASES, 3))
def test_no_message_on_a_checkpoint_of_spark_s_has_a_word_of_flink_s(name: str) -> None:
    ((_, files),) = of_cases(name)
    chance = random.Random(f"{SEED} {name}")
    found = foreign_words(_spark_answers(files), FLINK_WORDS)
    for path in chance.sample(sorted(files), 3):
        _, content = mutated(files[path], chance)
        found |= foreign_words(_spark_answers({**files, path: content}), FLINK_WORDS)
    assert not found


def _spark_answers(files: dict[str, bytes]) -> dict[str, Said]:
    outside = Outside()
    location = "file:///here/orders"
    for path, content in files.items():
        put(outside.disk.open(location), path, content)
    return {
        "inspect": outside.run("inspect", location, "--entries"),
        "verify --deep": outside.run("verify", location, "--deep"),
        "export": outside.run("export", location, "--to", "-"),
        "diff": outside.run("diff", location, location),
    }
