"""A process stays within its bound, whatever a length says: commands over bombs, each in a process
of its own.

The peak is what the kernel has seen of the process since it began (VmHWM): all libraries' memory is
in it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from stateshift.cli.shell import failing
from stateshift.errors import FormatError, TooLarge
from stateshift.formats import bounds
from stateshift.formats.stream import Stream, lines
from stateshift.specification.grammars import bytes_of
from tests.fuzz import bombs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")

GIB = 1 << 30
RUN = """
import sys
from stateshift.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(f"peak={peak} code={code}", file=sys.stderr)
"""


@dataclass(frozen=True)
class Ran:
    code: int
    peak: int
    out: str
    err: str


def ran(*arguments: str, **environment: str) -> Ran:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        env={**environment, "NO_COLOR": "1"},
    )
    told = re.search(r"peak=(\d+) code=(\d+)", done.stderr)
    assert told is not None, done.stderr[-2000:]
    return Ran(int(told[2]), int(told[1]) << 10, done.stdout, done.stderr)


@pytest.mark.long
@pytest.mark.parametrize("name", bombs.TOO_LARGE)
def test_what_is_too_large_is_refused_by_name_within_the_bound(name: str, tmp_path: Path) -> None:
    bombs.spark(tmp_path, bombs.TOO_LARGE, name)
    found = ran("verify", str(tmp_path), "--deep")
    assert found.code == 3, found
    assert found.peak < GIB
    assert "takes more memory than is allowed: 1,024 MiB for the process" in found.err
    assert re.search(r"hint: if it is no damage, allow more: STATESHIFT_MEMORY=\d+GiB", found.err)
    assert re.search(r"error: (state|offsets|sources)/", found.err), "the file is named"


@pytest.mark.long
@pytest.mark.parametrize("name", bombs.CUT_OFF)
def test_what_is_read_by_blocks_is_refused_by_what_is_wrong_with_it(
    name: str, tmp_path: Path
) -> None:
    bombs.spark(tmp_path, bombs.CUT_OFF, name)
    found = ran("verify", str(tmp_path), "--deep")
    assert (found.code, found.peak < GIB) == (5, True), found
    assert "an SST does not end with its magic" in found.out


@pytest.mark.long
@pytest.mark.parametrize("name", ["a record of 512 MiB in lz4", "a table of 300 MiB"])
@pytest.mark.parametrize("command", ["export", "inspect"])
def test_other_commands_keep_the_bound_too(name: str, command: str, tmp_path: Path) -> None:
    place = bombs.spark(tmp_path / "image", bombs.TOO_LARGE | bombs.CUT_OFF, name)
    more = ("--to", str(tmp_path / "out.jsonl")) if command == "export" else ("--entries",)
    found = ran(command, str(place), *more)
    assert (found.code, found.peak < GIB) == (3, True), found
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.long
def test_a_single_file_that_shows_too_much_is_refused_within_the_bound(tmp_path: Path) -> None:
    bombs.spark(tmp_path, bombs.LEGAL, "500 MiB in records of 1 MiB")
    found = ran("inspect", str(tmp_path / bombs.DELTA))
    assert (found.code, found.peak < GIB) == (3, True), found
    assert "too long to be shown at once" in found.err and "hint: stateshift export" in found.err


@pytest.mark.long
@pytest.mark.parametrize("name", bombs.LEGAL)
def test_what_is_large_and_right_is_read_within_the_bound(name: str, tmp_path: Path) -> None:
    bombs.spark(tmp_path, bombs.LEGAL, name)
    found = ran("verify", str(tmp_path), "--deep")
    assert found.code == 0, found
    assert found.peak < GIB


@pytest.mark.long
def test_a_larger_bound_lets_a_larger_record_through_and_a_smaller_one_does_not(
    tmp_path: Path,
) -> None:
    bombs.checkpoint(tmp_path)
    bombs.delta(tmp_path, "lz4", 20 * bombs.MIB)
    assert ran("verify", str(tmp_path), "--deep").code == 0
    small = ran("verify", str(tmp_path), "--deep", STATESHIFT_MEMORY="256MiB")
    assert small.code == 3 and "256 MiB for the process" in small.err
    assert ran("verify", str(tmp_path), "--deep", STATESHIFT_MEMORY="512 MiB").code == 0


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1kB", "5 parsecs"])
def test_a_bound_that_is_none_is_refused_as_a_setting(text: str, tmp_path: Path) -> None:
    found = ran("verify", str(tmp_path), STATESHIFT_MEMORY=text)
    if not text:  # as if it were not set
        assert found.code != 2
        return
    assert found.code == 2
    assert "STATESHIFT_MEMORY" in found.err and "hint: STATESHIFT_MEMORY=1GiB" in found.err


def test_sizes_are_written_as_rates_are() -> None:
    assert [bytes_of(text) for text in ("1GiB", "500 MB", "64mib", "1e9")] == [
        1 << 30,
        5 * 10**8,
        1 << 26,
        10**9,
    ]


def test_memory_that_runs_out_is_no_bug_of_ours() -> None:
    error = failing.ours(MemoryError())
    assert isinstance(error, TooLarge)
    assert error.exit_code == 3
    assert error.hint is not None and "STATESHIFT_MEMORY" in error.hint


def test_a_claim_that_the_bytes_do_not_hold_is_damage_and_not_a_matter_of_memory() -> None:
    stream = Stream([b"abc", b"def"], "a file")
    with pytest.raises(
        FormatError, match=r"ends early: 1073741824 bytes expected, 6 left"
    ) as caught:
        stream.take(1 << 30)
    assert not isinstance(caught.value, TooLarge)
    assert caught.value.offset == 6


def test_a_line_is_held_up_to_the_bound_only() -> None:
    whole = bounds.piece() // bombs.MIB
    pieces = (b"x" * bombs.MIB for _ in range(whole + 2))
    with pytest.raises(TooLarge, match="a line of"):
        list(lines(pieces))


def test_what_can_only_be_read_whole_is_gathered_up_to_the_bound() -> None:
    assert bounds.gather([b"a", b"b"], "a file") == b"ab"
    many = (bytes(bombs.MIB) for _ in range(bounds.whole() // bombs.MIB + 1))
    with pytest.raises(TooLarge):
        bounds.gather(many, "a file")
