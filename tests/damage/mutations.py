"""What is done to an image: one file of those that a restart reads, damaged as a seed says. Pure.

    Mutation(image, number)      named "spark-4.3.0/window-hdfs#17": the same damage whenever it is
                                 made
    done = made(golden, number)  Damaged: its files, which one was damaged, what was done

    flip        one bit is another
    truncate    the end is missing
    zeros       a run of bytes is zero: some, a page's worth, or all
    delete      the file is gone
    grow        bytes follow that nobody wrote
    shards      it and the like file of another shard (subtask) change places
    epochs      it holds what the like file of another version holds, or both change places
    operators   it and a like file of another operator, or of another store, change places
    sources     it and the like log of another source change places

Of variants alone (see `images`):

    watermark   a watermark in it is higher, or lower
    elsewhere   it names another place

The name of an image and the number are all that a mutation depends on: goldens that are added later
change no other's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stateshift.formats.spark.names import classify
from tests.damage.images import GoldenImage

ACTIONS = (
    "flip",
    "flip",
    "flip",
    "truncate",
    "zeros",
    "grow",
    "delete",
    "shards",
    "epochs",
    "operators",
)
# What is done to images of a variant, and to which files.
ACTIONS_OF = {
    "planned": (*ACTIONS, "watermark", "watermark", "delete", "delete"),
    "exchanged": ("shards", "epochs", "operators", "sources"),
    "elsewhere": ("elsewhere",),
}


@dataclass(frozen=True)
class Damaged:
    """`what` is the action and its numbers, for a person; None of `other` where one file alone
    is damaged."""

    id: str
    action: str
    path: str
    files: Mapping[str, bytes]
    what: str
    other: str | None = None


def made(golden: GoldenImage, number: int) -> Damaged:
    """The image with one file damaged. Where an action fits none of its files, a bit is flipped."""
    id_ = f"{golden.name}#{number}"
    chance = random.Random(f"damage {id_}")
    for _ in range(200 if golden.variant else 20):
        damaged = _attempt(golden, id_, chance)
        if damaged is not None:
            return damaged
    raise AssertionError(f"nothing can be damaged in {golden.name}")


def _attempt(golden: GoldenImage, id_: str, chance: random.Random) -> Damaged | None:
    """None where the drawn action changes nothing of the drawn file."""
    path = _drawn(golden, chance)
    action = chance.choice(ACTIONS_OF.get(golden.variant, ACTIONS))
    change = _ALONE.get(action)
    if change is not None:
        content, what = change(golden.files[path], chance)
        if content == golden.files[path]:
            return None
        files = dict(golden.files)
        if content is None:
            del files[path]
        else:
            files[path] = content
        return Damaged(id_, action, path, files, what)
    return _exchanged(golden, id_, action, path, chance)


def _drawn(golden: GoldenImage, chance: random.Random) -> str:
    """A kind of file first, then one of it: a zip is as likely as all deltas together."""
    roles = sorted({golden.role_of(path) for path in golden.needed if path in golden.files})
    role = chance.choice(roles)
    return chance.choice(
        [path for path in golden.needed if golden.role_of(path) == role and path in golden.files]
    )


# ---- one file alone

Change = Callable[[bytes, random.Random], tuple[bytes | None, str]]


def _flip(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    if not content:
        return content, ""
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    return bytes(changed), f"bit {bit} of byte {place:,} of {len(content):,} flipped"


def _truncate(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    size = 0 if not content or chance.random() < 0.2 else chance.randrange(len(content))
    return content[:size], f"cut to {size:,} of {len(content):,} bytes"


def _zeros(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    if not content:
        return content, ""
    place = chance.randrange(len(content))
    length = chance.choice((chance.randint(1, 16), 64, 512, 4096, len(content)))
    if length == len(content):
        place = 0
    end = min(place + length, len(content))
    return content[:place] + bytes(end - place) + content[
        end:
    ], f"bytes {place:,} to {end:,} of {len(content):,} zero"


def _grow(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    more = chance.choice((b"\n", b"\0" * 8, chance.randbytes(chance.randint(1, 40)), content))
    return content + more, f"{len(more):,} bytes more behind {len(content):,}"


def _delete(content: bytes, chance: random.Random) -> tuple[None, str]:
    return None, "gone"


def _watermark(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Ten seconds up or down, or by hours: what a job that hangs behind would have."""
    by = chance.choice((10_000, -10_000, 1_000_000_000, 1))

    def moved(match: re.Match[bytes]) -> bytes:
        return b"%d" % max(0, int(match[0]) + by)

    return re.sub(rb"(?<=WatermarkMs\":)\d+", moved, content), f"the watermark is {by:+,} ms"


_PLACES = (b"file:/gone/elsewhere", b"hdfs://nowhere:8020/elsewhere")


def _elsewhere(content: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Absolute paths of state schemas, below another place."""
    place = chance.choice(_PLACES)
    changed = re.sub(rb'"[^"]*(?=/state/\d+/_stateSchema/)', b'"' + place, content)
    return changed, f"its paths are below {place.decode()}"


_ALONE: Mapping[str, Change] = {
    "watermark": _watermark,
    "elsewhere": _elsewhere,
    "flip": _flip,
    "truncate": _truncate,
    "zeros": _zeros,
    "grow": _grow,
    "delete": _delete,
}

# ---- two files


def _exchanged(
    golden: GoldenImage, id_: str, action: str, path: str, chance: random.Random
) -> Damaged | None:
    likes = [
        other for other in _likes(golden, path, action) if golden.files[other] != golden.files[path]
    ]
    if not likes:
        return None
    other = chance.choice(likes)
    files = {**golden.files, path: golden.files[other]}
    if action == "epochs" and chance.random() < 0.5:
        what = f"the content of {_short(golden, other)} in its place"
    else:
        files[other] = golden.files[path]
        what = f"exchanged with {_short(golden, other)}"
    return Damaged(id_, action, path, files, what, other)


def exchanges(golden: GoldenImage, path: str) -> list[str]:
    """Every file that some action exchanges it with."""
    actions = ("shards", "epochs", "operators", "sources")
    found = [_likes(golden, path, action) for action in actions]
    return sorted({other for likes in found for other in likes})


def _likes(golden: GoldenImage, path: str, action: str) -> list[str]:
    """Files of the same kind that `action` exchanges it with."""
    role = golden.role_of(path)
    alike = [other for other in golden.files if golden.role_of(other) == role and other != path]
    if golden.engine == "flink":
        # What a file belongs to stands in the metadata alone: those of its kind are other subtasks'
        # and operators'.
        return sorted(other for other in alike if other in golden.needed and action != "epochs")
    top = len(golden.location) + 1
    place = classify(path[top:])
    if action == "sources":
        return sorted(other for other in alike if _is_of_other_source(path, other))
    return sorted(other for other in alike if _relation(place, classify(other[top:])) == action)


def _is_of_other_source(path: str, other: str) -> bool:
    """Whether two logs of sources have the same number, and are of two sources."""
    if "/sources/" not in path:
        return False
    (folder, _, name), (folder_of_other, _, other_name) = (
        path.rpartition("/"),
        other.rpartition("/"),
    )
    return name == other_name and folder != folder_of_other


def _relation(one: object, other: object) -> str | None:
    """In what two places of a Spark checkpoint differ: the action that exchanges them."""
    operator = (one.operator, one.store) == (other.operator, other.store)  # type: ignore[attr-defined]
    shard = one.partition == other.partition  # type: ignore[attr-defined]
    version = one.version == other.version or one.kind == "sst"  # type: ignore[attr-defined]
    match operator, shard, version:
        case True, False, True:
            return "shards"
        case True, True, _:
            return "epochs"
        case False, True, True:
            return "operators"
    return None


def _short(golden: GoldenImage, path: str) -> str:
    top = golden.location
    return path[len(top) + 1 :] if path.startswith(f"{top}/") else path.rpartition("/")[2]
