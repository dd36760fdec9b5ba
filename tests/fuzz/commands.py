"""Whole commands over damaged images of both engines: one file of a golden image mutated, and a
command run on it.

    image u16LE | file u16LE | action u8 | edits: op u8, place u16LE, value u8 ...
    action 6: the file is gone; 7: exchanged with a like file; otherwise the edits, as in `whole`

What must hold of each command: it ends with an exit code that its help names, without a traceback.
Of exit 0:

    verify --deep        a restart reads what it read before
    inspect --entries    nothing that a file says can move the cursor
    export               the same entries as before
    apply                the target holds what the whole image does, and `verify --deep` said yes

or no checksum covers the damage (tests/damage/unchecked.py), or it is of a class that is known to
be wrong (known.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache

from tests.damage import images
from tests.damage.apply import TARGET, spec_file, waivers
from tests.damage.commands import run
from tests.damage.mutations import Damaged, exchanges
from tests.damage.unchecked import bytes_are_covered
from tests.damage.verdicts import FAILURES, judged, meaning_of
from tests.fuzz.oracles import Broken
from tests.fuzz.targets import Target
from tests.fuzz.whole import EDIT, edited

HEAD = struct.Struct("<HHB")
DELETE, EXCHANGE = 6, 7
BEFORE = "file:///before"
ENDS = (0, 2, 3, 4, 5, 6)
"""Exit codes that a damaged image may lead to."""


def damage_of(data: bytes) -> tuple[images.GoldenImage, Damaged] | None:
    """What the bytes ask for; None where it changes nothing."""
    if len(data) < HEAD.size:
        return None
    image, file, action = HEAD.unpack_from(data)
    names = images.names()
    golden = images.image(names[image % len(names)])
    there = [path for path in golden.needed if path in golden.files]
    path = there[file % len(there)]
    files = dict(golden.files)
    other = None
    if action % 8 == DELETE:
        del files[path]
    elif action % 8 == EXCHANGE:
        likes = exchanges(golden, path)
        if not likes:
            return None
        other = likes[len(data) % len(likes)]
        files[path], files[other] = files[other], files[path]
    else:
        others = [golden.files[one] for one in there]
        files[path] = edited(golden.files[path], data[HEAD.size :], others)
        other = next((one for one in golden.files if golden.files[one] == files[path]), None)
    if files == golden.files:
        return None
    word = "delete" if action % 8 == DELETE else "edits" if other is None else "epochs"
    return golden, Damaged(f"{golden.name}#fuzz", word, path, files, word, other)


def verify(data: bytes) -> None:
    asked = damage_of(data)
    if asked is None:
        return
    golden, damaged = asked
    found = judged(golden, damaged, meaning_of(golden.name))
    if found.result in FAILURES and found.result != "unnamed":
        raise Broken(f"verify: {found.result}: {found.role} of {golden.name}: {found.about}")


def inspect(data: bytes) -> None:
    asked = damage_of(data)
    if asked is None:
        return
    golden, damaged = asked
    shown = run(images.on_a_disk(damaged.files), "inspect", golden.location, "--entries")
    _ended(golden, damaged, "inspect", shown.code, shown.err)
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in shown.out):
        raise Broken(f"inspect: a control character on stdout, of {damaged.path}")


def export(data: bytes) -> None:
    asked = damage_of(data)
    if asked is None:
        return
    golden, damaged = asked
    shown = run(images.on_a_disk(damaged.files), "export", golden.location, "--to", "-")
    _ended(golden, damaged, "export", shown.code, shown.err)
    if shown.code == 0 and sorted(shown.out.splitlines()) != exported(golden.name):
        _excused(golden, damaged, "export: other entries, and exit 0")


@lru_cache(maxsize=64)
def exported(name: str) -> list[str]:
    golden = images.image(name)
    shown = run(images.on_a_disk(golden.files), "export", golden.location, "--to", "-")
    return sorted(shown.out.splitlines())


def apply(data: bytes) -> None:
    asked = damage_of(data)
    if asked is None:
        return
    golden, damaged = asked
    waived = waivers(golden.name)
    if waived is None:
        return
    disk = images.on_a_disk(damaged.files)
    refused = run(disk, "verify", golden.location, "--deep").code != 0
    with spec_file(golden, waived) as (spec, workdir):
        shown = run(disk, "apply", spec, "--yes", "--json", "--workdir", workdir)
    _ended(golden, damaged, "apply", shown.code, shown.err)
    if shown.code != 0:
        return
    if refused:
        raise Broken(f"apply published what verify --deep refuses: {damaged.path}")
    before = images.moved(golden, BEFORE)
    if before is None:  # an image that names its files by their full paths
        return
    images.add(disk, before)
    if run(disk, "diff", BEFORE, TARGET).code != 0:
        _excused(golden, damaged, "apply: the target holds other entries than the whole image")


def _ended(
    golden: images.GoldenImage, damaged: Damaged, command: str, code: int | None, err: str
) -> None:
    if code not in ENDS:
        raise _broken(golden, damaged, f"{command}: exit {code}: {err[-300:]}")


def _broken(golden: images.GoldenImage, damaged: Damaged, what: str) -> Broken:
    return Broken(f"{what}: {golden.role_of(damaged.path)} of {golden.name}")


def _excused(golden: images.GoldenImage, damaged: Damaged, what: str) -> None:
    """Where a checksum covers it, nothing excuses a yes."""
    if bytes_are_covered(golden, damaged):
        raise _broken(golden, damaged, what)


def _seeds() -> list[bytes]:
    edits = ((0, 40, 1), (2, 9, 255), (3, 20, 0), (6, 30, 0), (5, 3, 7))
    seeds = []
    for image in range(0, len(images.names()), 7):
        file, action = image // 7, image // 7 % 9
        edit = edits[image % len(edits)]
        seeds.append(HEAD.pack(image, file, min(action, 7)) + EDIT.pack(*edit))
    return seeds


def _target(name: str, command: Callable[[bytes], None], *modules: str) -> Target:
    return Target(name, command, _seeds, MODULES + modules, bytes_max=32)


MODULES = (
    "engines/spark/survey/checkpoint.py",
    "engines/flink/survey/image.py",
    "engines/flink/entries/image.py",
    "engines/flink/streams.py",
    "engines/spark/small_files.py",
    "cli/shell/failing.py",
)
TARGETS = (
    _target(
        "verify",
        verify,
        "look/__init__.py",
        "engines/flink/check/judgement.py",
        "engines/spark/check/image.py",
    ),
    _target("inspect", inspect, "look/__init__.py", "engines/flink/views/elements.py"),
    _target("export", export, "look/__init__.py", "engines/flink/views/elements.py"),
    _target(
        "apply",
        apply,
        "executor/running.py",
        "engines/flink/plan/move.py",
        "engines/spark/plan/move.py",
    ),
)
