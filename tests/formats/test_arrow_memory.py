"""What Arrow takes its memory from: in a process of ours what keeps least, in one that imports us
what its own program has.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest

from stateshift.fleet.processes import _PROGRAM

OURS = "from stateshift.formats import bounds; bounds.own_process(); "
ASK = "import stateshift.formats.blocks, pyarrow; print(pyarrow.default_memory_pool().backend_name)"
POOL = "ARROW_DEFAULT_MEMORY_POOL"

has_both = pytest.mark.skipif(
    not {"jemalloc", "mimalloc"} <= set(pa.supported_memory_backends()),
    reason="this Arrow has nothing to choose from",
)


def pool_in(program: str, chosen: str | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != POOL}
    if chosen is not None:
        environment[POOL] = chosen
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@has_both
def test_a_process_of_ours_takes_what_keeps_least() -> None:
    assert pool_in(OURS + ASK) == "jemalloc"


def test_in_a_program_that_imports_us_its_own_stays() -> None:
    untouched = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    assert pool_in(ASK) == pool_in(untouched)


def test_what_somebody_chose_stays() -> None:
    assert pool_in(OURS + ASK, "system") == "system"


@has_both
def test_a_process_that_works_for_us_is_ours() -> None:
    program = _PROGRAM.format(path=sys.path, worker=__name__)
    assert pool_in(program) == "jemalloc"


@has_both
def test_the_command_line_is_ours() -> None:
    run = "from stateshift.cli import main; main(['schema']); "
    assert pool_in(run + ASK).splitlines()[-1] == "jemalloc"


def serve() -> None:
    """What the process does instead of carrying out orders."""
    from stateshift.formats import blocks

    print(blocks.pa.default_memory_pool().backend_name)
