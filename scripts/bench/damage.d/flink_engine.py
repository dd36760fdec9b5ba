"""A sample of damage given to a real Flink: what it makes of what we say yes to, and of what we
refuse.

images  golden savepoints of all versions that hold a count and can lie anywhere
sample  as many yes as no of `verify --deep`
Flink   works: the job goes on, with one subtask more, and counts on from where it was; fails: it
        does not
        start, or fails; or wrong: it counts on from something else
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from held import Held

from tests.damage import images
from tests.damage.mutations import Damaged, made
from tests.damage.verdicts import Verdict, judged, meaning_of
from tests.flink.golden import Image
from tests.flink.golden import images as flink_images
from tests.support.flink import ENDED, Cluster, Refused, cluster_of, faults, lines, until
from tests.support.servers import group

NAMES = ("count-canonical", "count-inline", "count-native", "count-saved", "count-two", "count-one")
KEYS, MORE = 10, 25
DRAWN_MAX = 12  # of each image
SECONDS_MAX = 90.0
NO_RESTART = {"--flink.restart-strategy.type": "none", "--flink.restart-strategy": "none"}


def held_against(sample: int) -> list[Held]:
    """So many mutations, half of which we say yes to."""
    chosen = list(drawn(sample))
    found: list[Held] = []
    folder = tempfile.mkdtemp(prefix="stateshift-damage-")
    with group(Path(folder, "servers"), "flink-a") as servers:
        cluster = cluster_of(servers, "flink-a")
        for number, (image, damaged, verdict) in enumerate(chosen, 1):
            said = _asked(cluster, image, damaged, Path(folder, str(number)))
            found.append(Held(verdict, said))
            told = f"{number} of {len(chosen)}: {verdict.result}: {said[:80]}"
            print(told, file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def drawn(sample: int) -> Iterator[tuple[Image, Damaged, Verdict]]:
    """Image by image the next mutation, as many yes as no."""
    whole = [one for one in flink_images(*NAMES) if "held" in one.told]
    wanted = {True: sample // 2, False: sample - sample // 2}
    for number in range(DRAWN_MAX):
        for image in whole:
            golden = images.image(str(image))
            damaged = made(golden, number)
            verdict = judged(golden, damaged, meaning_of(golden.name))
            if wanted[verdict.code == 0] > 0:
                wanted[verdict.code == 0] -= 1
                yield image, damaged, verdict


def _asked(cluster: Cluster, image: Image, damaged: Damaged, folder: Path) -> str:
    """Flink's word for it."""
    savepoint = _written(images.image(str(image)), damaged, folder / "savepoint")
    counters = [uid.removesuffix("-count") for uid in image.told["held"]]
    outputs = [folder / "out" / name for name in counters]
    try:
        return _restored(cluster, image, savepoint, outputs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(golden: images.GoldenImage, damaged: Damaged, folder: Path) -> Path:
    top = f"{golden.location}/"
    for path, content in damaged.files.items():
        place = folder / path.removeprefix(top)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


def _restored(cluster: Cluster, image: Image, savepoint: Path, outputs: list[Path]) -> str:
    first = image.told["numbers"]
    parallelism = image.told["case"]["parallelism"] + 1
    words = _words(image, outputs[0].parent)
    try:
        job = cluster.run(
            image.told["case"]["job"], *words, parallelism=parallelism, savepoint=savepoint
        )
    except (Refused, AssertionError) as error:
        return f"fails: {_cause(str(error))}"
    try:
        until(lambda: _through(cluster, job, outputs), SECONDS_MAX)
    except AssertionError:
        cluster.cancelled(job)
        return f"fails: nothing comes out in {SECONDS_MAX:.0f} s"
    if cluster.state(job) in ENDED:
        return f"fails: {_cause(cluster.why(job))}"
    cluster.cancelled(job)
    found = [
        fault for place in outputs for fault in faults(lines(place), KEYS, first, first + MORE)
    ]
    return f"wrong: {len(found)} lines, as {found[0]}" if found else "works"


def _words(image: Image, output: Path) -> tuple[str, ...]:
    told = image.told["arguments"]
    before = dict(zip(told[::2], told[1::2], strict=True))
    kept = {name: value for name, value in before.items() if "checkpoint" not in name}
    words = {
        **kept,
        **NO_RESTART,
        "--output": str(output),
        "--hold": str(image.told["numbers"] + MORE),
    }
    return tuple(word for pair in words.items() for word in pair)


def _through(cluster: Cluster, job: str, outputs: list[Path]) -> bool:
    if all(len(lines(place)) >= MORE for place in outputs):
        return True
    return cluster.state(job) in ENDED


def _cause(text: str) -> str:
    """The innermost of what Flink says."""
    told = text.replace("\\n", "\n").replace("\\t", "\t")
    causes = [line for line in told.splitlines() if line.startswith("Caused by: ")]
    return " ".join((causes[-1] if causes else text).removeprefix("Caused by: ").split())[:200]
