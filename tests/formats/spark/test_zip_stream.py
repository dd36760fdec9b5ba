"""Zips as java.util.zip.ZipInputStream reads them, held against what real Java said of every bit
that is flipped.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Iterator

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.rocksdb import check_zip, decode_zip
from stateshift.formats.spark.zip_stream import read_zip
from tests.formats.golden import CASES, paths
from tests.formats.spark.zips import samples as zips

SAMPLES = zips.samples()
LONG = 8 * 1024
EVERY = 7


def verdict(content: bytes) -> str:
    """`=` whole, `?` whole, but its directory is damaged, `!` refused."""
    try:
        return "?" if check_zip(content) else "="
    except FormatError:
        return "!"


def flipped(content: bytes, every: int) -> Iterator[tuple[int, bytes]]:
    changed = bytearray(content)
    for bit in range(0, 8 * len(content), every):
        changed[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(changed)
        changed[bit // 8] ^= 1 << bit % 8


def held_against(content: bytes, javas: str, every: int) -> Counter[tuple[str, str]]:
    """How often Java's verdict and ours come together."""
    assert len(javas) == 8 * len(content)
    found: Counter[tuple[str, str]] = Counter()
    for bit, changed in flipped(content, every):
        ours = verdict(changed)
        found[javas[bit], ours] += 1
        if javas[bit] in "!~":
            assert ours == "!", f"bit {bit}: Java says {javas[bit]}, we say {ours}"
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_what_java_refuses_or_reads_otherwise_is_refused(name: str) -> None:
    content = SAMPLES[name]
    found = held_against(content, zips.recorded()[name], EVERY if 8 * len(content) > LONG else 1)
    assert found["!", "!"] and found["=", "="] and found["=", "?"]
    # Which of two names is the right one nobody can tell, nor whether more followed where the end
    # is damaged.
    members = read_zip(content, lambda _: 0, lambda _: 1032).members
    doubtful = sum(len(member.name) + 4 for member in members) + 5
    assert found["=", "!"] <= 8 * doubtful


@pytest.mark.slow
@pytest.mark.spark
def test_java_still_says_what_was_recorded_and_every_bit_agrees() -> None:
    javas = zips.asked_of_java()
    assert javas == zips.recorded()
    for name, content in SAMPLES.items():
        found = held_against(content, javas[name], 1)
        print(name, dict(found))


def test_what_is_refused_though_java_reads_it_has_a_directory_of_other_files() -> None:
    content = SAMPLES["stored"]
    javas = zips.recorded()["stored"]
    for bit, changed in flipped(content, 1):
        if javas[bit] == "=" and verdict(changed) == "!":
            with pytest.raises(
                FormatError, match=r"calls a file|damaged directory|its directory is missing"
            ):
                check_zip(changed)


def test_every_zip_of_every_spark_is_read_without_a_doubt() -> None:
    names = [
        case / "checkpoint" / name
        for case in CASES
        for name, _ in paths(case)
        if name.endswith(".zip")
    ]
    assert names
    assert not [name for name in names if check_zip(name.read_bytes())]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_zip_cut_anywhere_is_refused(name: str) -> None:
    """Java reads one whose directory alone is cut, but nobody can tell that no file is missing."""
    content = SAMPLES[name]
    for end in range(0, len(content), 3):
        with pytest.raises(
            FormatError, match=r"is truncated|ends inside|does not begin with a file"
        ):
            check_zip(content[:end])


def test_files_are_what_pythons_own_reader_finds() -> None:
    for name, content in SAMPLES.items():
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            wanted = {member: archive.read(member) for member in archive.namelist()}
        found = read_zip(content, lambda _: 1 << 20, lambda _: 1032)
        assert {member.name: member.content for member in found.members} == wanted, name


def test_a_checksum_is_read_where_java_reads_it() -> None:
    """The directory's own says nothing: Java does not see it."""
    content = bytearray(SAMPLES["stored"])
    entry = content.index(b"PK\x01\x02")
    content[entry + 16] ^= 1
    assert check_zip(bytes(content)) == ("its directory has another checksum of 'metadata'",)
    assert decode_zip(bytes(content)).tables == ()
    content[14] ^= 1
    with pytest.raises(FormatError, match="'metadata' in it does not have its checksum"):
        decode_zip(bytes(content))
