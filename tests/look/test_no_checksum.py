"""The bytes of a Flink image that `verify --deep --json` says no checksum covers, held against what
mutations do: where one changes what is exported and nothing is refused, it is in one of them.
"""

from __future__ import annotations

import random

import pytest

from tests.damage import images
from tests.damage.commands import document_of, run

NAMES = (
    "count-canonical-rocksdb",
    "count-native-hashmap",
    "count-native-rocksdb",
    "kinds-canonical-hashmap",
)
MUTATIONS = 10  # of each image


def deep(golden: images.GoldenImage, files: dict[str, bytes]) -> tuple[int | None, dict]:
    shown = run(images.on_a_disk(files), "verify", golden.location, "--deep", "--json")
    return shown.code, document_of(shown)


def exported(golden: images.GoldenImage, files: dict[str, bytes]) -> tuple[int | None, str]:
    shown = run(images.on_a_disk(files), "export", golden.location, "--to", "-")
    return shown.code, shown.out


@pytest.mark.row("W-4")
def test_what_changes_an_export_unseen_lies_in_a_range_without_a_checksum() -> None:
    assert sum(map(_changed_unseen, NAMES))


def _changed_unseen(name: str) -> int:
    """How many mutations of an image change its export, and are not refused."""
    golden = images.image(f"flink-2.3.0/{name}")
    files = dict(golden.files)
    code, document = deep(golden, files)
    assert code == 0
    listed = document["checked"]["no_checksum"]
    ranges = {each["path"]: each["ranges"] for each in listed}
    note = next(
        each["message"] for each in document["findings"] if "no checksum" in each["message"]
    )
    size = sum(end - start for own in ranges.values() for start, end in own)
    assert note.startswith(f"{size:,} bytes have no checksum")
    whole = exported(golden, files)
    chance = random.Random(name)
    changed_unseen = 0
    for _ in range(MUTATIONS):
        location = chance.choice(sorted(golden.needed))
        content = bytearray(files[location])
        at = chance.randrange(len(content))
        content[at] ^= 1 << chance.randrange(8)
        damaged = {**files, location: bytes(content)}
        if exported(golden, damaged) == whole or deep(golden, damaged)[0] != 0:
            continue
        changed_unseen += 1
        (own,) = (ranges[path] for path in ranges if location.endswith(f"/{path}"))
        assert any(start <= at < end for start, end in own), f"byte {at} of {location}"
    return changed_unseen


def test_all_serializers_that_are_not_decoded_are_named() -> None:
    most = 0
    for name in ("kinds-canonical-hashmap", "kinds-canonical-rocksdb"):
        golden = images.image(f"flink-2.3.0/{name}")
        _, document = deep(golden, dict(golden.files))
        undecoded = document["checked"]["undecoded"]
        said = " ".join(each["message"] for each in document["findings"])
        if "only the lengths were checked" in said:
            assert all(serializer in said for serializer in undecoded)
            most = max(most, len(undecoded))
    assert most
