"""`repair` of a damaged checkpoint, held against the whole one at the batch that it chose.

repaired      the new image passes `verify --deep`, and is what `rewind` makes of the whole one
refused       no batch is whole: the reason is told
not damaged   `verify --deep` says yes as well
unchecked     something else came out, and no checksum covers what was damaged
wrong         anything else
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from stateshift.testing.memory_storage import MemoryDisk
from tests.cli.support import Said
from tests.damage.apply import scratch
from tests.damage.commands import document_of, run
from tests.damage.images import GoldenImage, add, image, moved, on_a_disk
from tests.damage.meaning import Meaning, differences, meaning
from tests.damage.mutations import Damaged, made
from tests.damage.unchecked import no_checksum

REPAIRED, BACKUP = "file:///repaired/orders", "file:///backup/orders"


@dataclass(frozen=True)
class Repaired:
    id: str
    result: str
    epoch: int | None = None
    told: str = ""


def held(disk: MemoryDisk, location: str) -> dict[str, bytes]:
    found = disk.snapshot()
    own = [path for path in found if path.startswith(f"{location}/")]
    return {path: found[path] for path in own if "/_stateshift/" not in path}


def asked(disk: MemoryDisk, *words: str) -> Said:
    with TemporaryDirectory(dir=scratch()) as folder:
        waived = ("--waive", "repeated-batches", "--waive", "paths-stay")
        return run(disk, *words, *waived, "--yes", "--workdir", str(Path(folder, "run")))


def damaged_often(golden: GoldenImage, number: int, files: int) -> tuple[Damaged, bool]:
    """Return the damage of that number, and as many files more that are empty, cut or gone; and
    whether no checksum covers some of it.
    """
    done = made(golden, number)
    is_unseen = no_checksum(golden, done) is not None
    chance = random.Random(f"repair {done.id}")
    for _ in range(files):
        path = chance.choice([path for path in golden.needed if path in done.files])
        content = dict(done.files)
        how = chance.choice(("empty", "cut", "delete"))
        if how == "delete":
            del content[path]
        else:
            content[path] = content[path][: len(content[path]) // 2] if how == "cut" else b""
        done = replace(
            done, files=content, path=path, other=None, what=f"{done.what}; {path} {how}"
        )
        is_unseen |= no_checksum(golden, done) is not None
    return done, is_unseen


def repaired(name: str, number: int, more: int, also: bool) -> Repaired:
    """Damage an image, repair it, and judge what came of it."""
    golden = image(name)
    done, is_unseen = damaged_often(golden, number, more)
    disk = on_a_disk(done.files)
    words = ["repair", golden.location, "--to", REPAIRED]
    if also:
        add(disk, moved(golden, BACKUP) or {})
        words += ["--also", BACKUP]
    before = held(disk, golden.location)
    shown = asked(disk, *words)
    id_ = f"{done.id} {done.what}"
    if held(disk, golden.location) != before:
        return Repaired(id_, "wrong", told="the source was changed")
    if shown.code != 0:
        return _refused(id_, golden, disk, shown)
    judged = run(disk, "verify", REPAIRED, "--deep", "--json")
    if judged.code != 0:
        return Repaired(id_, "wrong", told=f"verify: {judged.out[:500]}")
    epoch = document_of(judged)["epoch"]
    differing = differences(whole_at(name, epoch), meaning("spark", REPAIRED, held(disk, REPAIRED)))
    if differing:
        return Repaired(id_, "unchecked" if is_unseen else "wrong", epoch, str(differing[:5]))
    return Repaired(id_, "repaired", epoch)


def _refused(id_: str, golden: GoldenImage, disk: MemoryDisk, shown: Said) -> Repaired:
    told = shown.err.strip()
    if shown.code != 4 or "hint: " not in told:
        return Repaired(id_, "wrong", told=f"exit code {shown.code}: {told}")
    if "is whole: a job" not in told:
        return Repaired(id_, "refused", told=told)
    sound = run(disk, "verify", golden.location, "--deep").code == 0
    return Repaired(id_, "not damaged" if sound else "wrong", told=told)


@lru_cache(maxsize=256)
def whole_at(name: str, epoch: int) -> Meaning:
    """What the whole image means once it has gone back to a batch."""
    golden = image(name)
    disk = on_a_disk(golden.files)
    words = ("rewind", golden.location, "--to", REPAIRED, "--batch", str(epoch))
    assert asked(disk, *words).code == 0
    return meaning("spark", REPAIRED, held(disk, REPAIRED))
