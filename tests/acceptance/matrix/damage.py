"""Damaged checkpoints: what is done to which file, from a fixed seed. Pure: the files of a
checkpoint in, others out.

Files     path -> bytes, with the hidden sidecars of a local disk
Damage    a base, an action, the role of the file it is done to
role      which of the files: `paths_of` finds those a restart of the last batch reads
"""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stateshift.formats.spark.compression import compress, decompress
from tests.acceptance.matrix.kinds import NEWEST, Base
from tests.support import encoders

Files = Mapping[str, bytes]

BASES = (
    "window-2.hdfs",
    "join-2.hdfs",
    "unique.hdfs",
    "pandas.hdfs",
    "window-2.hdfs-checksums",
    "window-2.rocksdb",
    "window-2.rocksdb-changelog",
    "window-2.rocksdb-changelog-format2",
    "join-4.rocksdb-changelog",
    "session.rocksdb",
    "timed.rocksdb-changelog",
    "chained.rocksdb-changelog",
)
EACH = 10  # of every base
LAST = 2  # the last batch; its state is version 3


@dataclass(frozen=True)
class Damage:
    base: Base
    action: str
    role: str

    @property
    def name(self) -> str:
        return f"{self.base.version}/{self.base.name}/damage/{self.action}: {self.role}"


_STATE = r"state/\d+/\d+/(?:[^/_][^/]*/)?"
# The role of a file, by its path. "Newest" is the version of the last batch; "first" the one of the
# first.
ROLES: Mapping[str, str] = {
    "newest changes": _STATE + r"3(?:_[^/.]*)?\.(?:delta|changelog)",
    "first changes": _STATE + r"1(?:_[^/.]*)?\.(?:delta|changelog)",
    "snapshot": _STATE + r"3(?:_[^/.]*)?\.zip",
    "older snapshot": _STATE + r"2(?:_[^/.]*)?\.zip",
    "table": r"state/\d+/\d+/SSTs/[^/]+\.sst",
    "Spark's checksum": _STATE + r"3_[^/.]*\.changelog\.crc",
    "last offsets": "offsets/2",
    "offsets before": "offsets/1",
    "old offsets": "offsets/0",
    "last commit": "commits/2",
    "old commit": "commits/0",
    "query id": "metadata",
    "schema": r"state/\d+/(?:0/(?:[^/]+/)?_metadata/schema|_stateSchema/.+)",
    "operator's metadata": r"state/\d+/_metadata/(?:metadata|v2/.+)",
    "source log": r"sources/\d+/2",
}

Action = Callable[[dict[str, bytes], str, random.Random], None]


def _flip(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    """Where the rows are: in the first half of a file, in the first block of a table."""
    content = bytearray(files[path])
    content[chance.randrange(40 if path.endswith(".sst") else (len(content) + 1) // 2)] ^= (
        1 << chance.randrange(8)
    )
    files[path] = bytes(content)


def _flip_properties(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    place = files[path].index(b"rocksdb.") + chance.randrange(100)
    files[path] = files[path][:place] + bytes([files[path][place] ^ 1]) + files[path][place + 1 :]


def _flip_end(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    files[path] = files[path][:-1] + bytes([files[path][-1] ^ 1 << chance.randrange(8)])


def _truncate(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    files[path] = files[path][: chance.randrange(1, len(files[path]))]


def _empty(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    files[path] = b""


def _drop(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    del files[path]


def _garbage(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    files[path] += chance.randbytes(40)


def _double(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    files[path] *= 2


def _swap(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    """The files of the same role in two shards change places, sidecars and all."""
    other = _elsewhere(files, path)
    for ours, theirs in ((path, other), (sidecar(path), sidecar(other))):
        files[ours], files[theirs] = files[theirs], files[ours]


def _older(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    """The content of the version before, as if the write had been lost."""
    folder, _, name = path.rpartition("/")
    before = re.compile(
        re.escape(folder) + r"/2(?:_[^/.]*)?\." + re.escape(name.rpartition(".")[2])
    )
    found = next(other for other in sorted(files) if before.fullmatch(other))
    files[path] = files[found]


def _codec(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    files[path] = b"".join(compress(decompress([files[path]]), "zstd"))


def _stale(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    """Hadoop's checksum is of other bytes."""
    _flip_after(files, sidecar(path), chance, 8)


def _flip_after(files: dict[str, bytes], path: str, chance: random.Random, start: int) -> None:
    content = bytearray(files[path])
    content[chance.randrange(start, len(content))] ^= 1 << chance.randrange(8)
    files[path] = bytes(content)


def _watermark(files: dict[str, bytes], path: str, chance: random.Random) -> None:
    """A digit of a number that the log holds is another."""
    found = list(re.finditer(rb"(?<=WatermarkMs\":)\d{6,}", files[path]))
    at = found[0].start() + 2
    digit = files[path][at : at + 1]
    files[path] = files[path][:at] + bytes([digit[0] ^ 1]) + files[path][at + 1 :]


ACTIONS: Mapping[str, Action] = {
    "flip a bit": _flip,
    "flip a bit behind the last record": _flip_end,
    "flip a bit in the properties": _flip_properties,
    "cut short": _truncate,
    "emptied": _empty,
    "gone": _drop,
    "garbage at the end": _garbage,
    "twice in one file": _double,
    "swapped with another shard's": _swap,
    "that of the version before": _older,
    "in another codec": _codec,
    "stale .crc of Hadoop": _stale,
    "another digit": _watermark,
}

_CONTENT = ("flip a bit", "cut short", "emptied", "gone", "garbage at the end")
_STATEFUL = (*_CONTENT, "swapped with another shard's", "stale .crc of Hadoop", "twice in one file")
WHAT: Mapping[str, tuple[str, ...]] = {
    "newest changes": (*_STATEFUL, "that of the version before", "in another codec"),
    "first changes": ("flip a bit", "cut short", "gone", "swapped with another shard's"),
    "snapshot": (*_STATEFUL[:-1], "that of the version before"),
    "older snapshot": ("gone", "flip a bit"),
    "table": _STATEFUL[:-1],
    "Spark's checksum": ("flip a bit", "gone", "emptied"),
    "last offsets": (
        "cut short",
        "emptied",
        "gone",
        "garbage at the end",
        "stale .crc of Hadoop",
        "another digit",
    ),
    "offsets before": ("cut short", "gone"),
    "old offsets": ("gone", "cut short"),
    "last commit": ("cut short", "emptied", "gone", "garbage at the end", "another digit"),
    "old commit": ("gone", "cut short"),
    "query id": ("gone", "cut short", "emptied"),
    "schema": ("gone", "cut short", "flip a bit", "emptied"),
    "operator's metadata": ("gone", "cut short", "emptied"),
    "source log": ("gone", "cut short", "emptied"),
}
# Whether what lies beside a damaged file goes with it, as on a store that has no such sidecars, is
# drawn as well.
WITHOUT = " (no .crc)"


def sidecar(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def every() -> list[Damage]:
    """What is done to each base: EACH of all that could be, drawn from a fixed seed, so that
    each base has others.
    """
    found = []
    for name in BASES:
        kind, provider = name.split(".")
        base = Base(NEWEST, kind, provider)
        chance = random.Random(f"stateshift {name}")
        fitting = [
            Damage(base, action, role)
            for role, actions in WHAT.items()
            if _may_have(base, role)
            for action in actions
        ]
        if kind == "unique":  # whose later changes are all empty
            fitting.remove(Damage(base, "that of the version before", "newest changes"))
        state = [
            one
            for one in fitting
            if one.role in ("newest changes", "first changes", "snapshot", "table")
        ]
        rest = [one for one in fitting if one not in state and one.action != "another digit"]
        found += chance.sample(state, EACH * 6 // 10) + chance.sample(rest, EACH - EACH * 6 // 10)
    return list(dict.fromkeys([_with_or_without(damage) for damage in found] + _always()))


def _always() -> list[Damage]:
    """What must not be left to chance."""
    window, format_2 = (
        Base(NEWEST, "window-2", "hdfs"),
        Base(NEWEST, "window-2", "rocksdb-changelog-format2"),
    )
    return [
        Damage(window, "another digit", "last offsets"),
        Damage(window, "flip a bit behind the last record", "newest changes"),
        Damage(window, "another digit", "last commit"),
        Damage(window, "stale .crc of Hadoop", "last offsets"),
        Damage(window, "swapped with another shard's", "first changes"),
        Damage(
            Base(NEWEST, "session", "rocksdb"), "flip a bit in the properties" + WITHOUT, "table"
        ),
        Damage(format_2, "flip a bit", "Spark's checksum"),
        Damage(format_2, "gone", "Spark's checksum"),
    ]


def _with_or_without(damage: Damage) -> Damage:
    chance = random.Random(damage.name)
    if (
        damage.action in ("stale .crc of Hadoop", "swapped with another shard's")
        or chance.random() < 0.5
    ):
        return damage
    return Damage(damage.base, damage.action + WITHOUT, damage.role)


def _may_have(base: Base, role: str) -> bool:
    changes = base.provider != "rocksdb"
    return {
        "newest changes": changes,
        "first changes": changes,
        "snapshot": not changes,
        "older snapshot": not changes,
        "table": not changes,
        "Spark's checksum": "format2" in base.provider,
    }.get(role, True)


def damaged(files: Files, damage: Damage) -> tuple[dict[str, bytes], str]:
    """The files with the damage done to one of them, and which."""
    after, chance = dict(files), random.Random(f"stateshift {damage.name}")
    action = damage.action.removesuffix(WITHOUT)
    for path in chance.sample(paths := paths_of(files, damage.role), len(paths)):
        ACTIONS[action](after, path, chance)
        if after != files:
            break
    assert after != files, f"nothing is damaged by {damage.name}"
    if damage.action.endswith(WITHOUT) or action == "gone":
        after.pop(sidecar(path), None)
    return after, path


def paths_of(files: Files, role: str) -> list[str]:
    """The files of that role; of state those that hold something, so that there is something to
    damage.
    """
    pattern = re.compile(ROLES[role])
    found = sorted(path for path in files if pattern.fullmatch(path))
    if role == "table":
        found = [path for path in found if _named(files, path)]
    assert found, f"no file is the {role}: {sorted(files)}"
    largest = max(len(files[path]) for path in found)
    return [path for path in found if 3 * len(files[path]) > largest]


def _named(files: Files, path: str) -> bool:
    """Whether the snapshot of the last version names the table."""
    from stateshift.formats.spark.rocksdb import decode_zip

    folder, _, name = path.rpartition("/SSTs/")
    zips = [p for p in files if p.startswith(f"{folder}/3") and p.endswith(".zip")]
    return any(name == table.stored for p in zips for table in decode_zip(files[p]).tables)


def _elsewhere(files: Files, path: str) -> str:
    """The like of the file in another shard."""
    operator, shard = re.match(r"(state/\d+/)(\d+)/", path).groups()  # type: ignore[union-attr]
    shape = re.escape(path[len(operator) + len(shard) :])
    shape = (
        re.sub(r"_[0-9a-f\\-]{36,}", lambda m: r"_[^/.]*", shape)
        if "_" in path.rpartition("/")[2]
        else shape
    )
    if "/SSTs/" in path:
        shape = r"/SSTs/[^/]+\.sst"
    pattern = re.compile(re.escape(operator) + r"(\d+)" + shape)
    found = [
        (p, match) for p in sorted(files) if (match := pattern.fullmatch(p)) and match[1] != shard
    ]
    return next(p for p, _ in found if not p.endswith(".sst") or _named(files, p))


def copied(files: Files, old: str, new: str) -> dict[str, bytes]:
    """The files of a copy that lies elsewhere. Operator metadata names its schemas by absolute
    paths; and a Spark stops a query when another of the same id is started.
    """
    after = dict(files)
    for path, content in files.items():
        if "/_metadata/v2/" in path:
            _put(
                after,
                path,
                content.replace(json.dumps(old)[1:-1].encode(), json.dumps(new)[1:-1].encode()),
            )
    _put(after, "metadata", json.dumps({"id": str(uuid.uuid5(uuid.NAMESPACE_URL, new))}).encode())
    return after


def _put(files: dict[str, bytes], path: str, content: bytes) -> None:
    files[path] = content
    files[sidecar(path)] = encoders.encode_hadoop_crc(encoders.hadoop_checksums(content))
