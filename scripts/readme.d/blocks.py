"""Run the console blocks of a page and say where the page has aged.

The blocks of one page run in their order, in one new folder:

    orders                        a checkpoint that Spark 4.3 wrote
    savepoint                     a savepoint that Flink 2.3 wrote, of a job with two operators
    orders-savepoint              one of a job that reads Kafka
    typed-savepoint               one of a job with state of many types
    orders.py                     from configs/examples: a new version of the job
    move.json                     a spec that moves `orders`
    payment-fraud.dataflow.json   from configs/examples
    group/orders                  a group of two workers, on pages that name it

What differs from run to run (times, rates, names of runs, fingerprints) is compared by its shape.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from readme_pages import ROOT

SPEC = """\
{"version": 1, "engine": "spark",
 "jobs": [{"name": "orders", "checkpoint_location": "orders", "remote_location": "moved/orders",
           "waive": ["paths-stay"]}]}
"""
GOLDEN = ROOT / "tests" / "golden" / "spark-4.3.0"
GROUP = "group/orders"  # a group whose state stands in bins
HOME = "/srv/streams"  # what the folder is called on a page

_BLOCK = re.compile(r"(?<=```console\n)(.*?)(?=```)", re.DOTALL)
_SHAPES = (
    # A phase that takes a while says how far it is, and how long it took: a busy machine prints
    # these lines, too.
    (re.compile(r"^\S+: \w+: [\d,]+ of [\d,]+ .* left\n", re.MULTILINE), ""),
    (re.compile(r"^\S+: \w+ took .*\n", re.MULTILINE), ""),
    (re.compile(r"\(Spark [\d.]+, Python [\d.]+\)"), "(Spark N, Python N)"),
    (re.compile(r"\b\d{8}-\d{6}-[a-z0-9-]+-[0-9a-f]{4}\b"), "RUN"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "FINGERPRINT"),
    (re.compile(r"\b\d[\d.,]*( ?)(ms|s|min|MB/s|files/s)(?=\W)"), r"N\1\2"),
    (re.compile(r"[█▏▎▍▌▋▊▉ ]*█[█▏▎▍▌▋▊▉ ]*"), " BAR"),
    # A busy machine takes minutes where another takes seconds.
    (re.compile(r"(less than |about )?\bN min( N s)?|(less than |about )\bN s"), "N s"),
    (re.compile(r" +"), " "),
)


def renewed(page: str, *, java: bool) -> str:
    """Return the page with what the commands of its console blocks print now."""
    if not _BLOCK.search(page):
        return page
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        furnish(folder)
        if GROUP in page:
            _make_group(folder)

        def fresh(block: re.Match[str]) -> str:
            if needs_java(block[1]) and not java:
                return block[1]
            return "".join(run(block[1], folder))

        return _BLOCK.sub(fresh, page)


def furnish(folder: Path) -> None:
    """Put into the folder what the commands of a page are run on."""
    _copy_checkpoint(folder)
    (savepoint,) = (GOLDEN.parent / "flink-2.3.0" / "count-two" / "image").iterdir()
    shutil.copytree(savepoint, folder / "savepoint")
    (typed,) = (GOLDEN.parent / "flink-2.3.0" / "typed-canonical" / "image").iterdir()
    shutil.copytree(typed, folder / "typed-savepoint")
    (of_kafka,) = (GOLDEN.parent / "kafka" / "2.3.0-source" / "image").iterdir()
    shutil.copytree(of_kafka, folder / "orders-savepoint")
    shutil.copy(ROOT / "configs" / "examples" / "payment-fraud.dataflow.json", folder)
    shutil.copy(ROOT / "configs" / "examples" / "orders.py", folder)
    (folder / "move.json").write_text(SPEC)


def needs_java(block: str) -> bool:
    """Whether the block starts a Spark."""
    return "--fleet" in block or "stateshift check" in block


def has_java() -> bool:
    return shutil.which("java") is not None or "JAVA_HOME" in os.environ


def _make_group(folder: Path) -> None:
    """Make a group of two workers that have read some rows. Nobody works on it any more."""
    from tests.live.cli.bins_group import PlayedBins

    (folder / "group").mkdir()
    PlayedBins(folder / "group")


def _copy_checkpoint(folder: Path) -> None:
    """Copy the checkpoint, and make it old: a plan warns of one that was written just now."""
    checkpoint = folder / "orders"
    shutil.copytree(GOLDEN / "window-hdfs" / "checkpoint", checkpoint, dirs_exist_ok=True)
    for path in checkpoint.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


def run(block: str, folder: Path) -> Iterator[str]:
    """Yield each `$ ` line of a block, and behind it what it prints."""
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        command = line[2:]
        yield f"$ {command}\n{printed_by(command, folder)}"
        if command.startswith("rm "):  # the next block finds the checkpoint whole again
            _copy_checkpoint(folder)


def printed_by(command: str, folder: Path, **environment: str) -> str:
    """Run a command in the folder and return what it prints, on both outputs."""
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**_environment(folder), **environment},
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    lines = done.stdout.replace(str(folder), HOME).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _environment(folder: Path) -> dict[str, str]:
    binary = folder / ".bin"
    binary.mkdir(exist_ok=True)
    script = binary / "stateshift"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stateshift "$@"\n')
    script.chmod(0o755)
    environment = {
        **os.environ,
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "PYTHONPATH": str(ROOT),
        "CI": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{binary}:{os.environ['PATH']}",
    }
    environment.pop("FORCE_COLOR", None)
    return environment


def compare(page: str, fresh: str, name: str) -> Iterator[str]:
    """Yield a diff of every block that differs in more than the numbers that always do."""
    for old, new in zip(_BLOCK.findall(page), _BLOCK.findall(fresh), strict=True):
        before, after = shape(old).splitlines(), shape(new).splitlines()
        yield from difflib.unified_diff(before, after, name, "what is printed", lineterm="", n=1)


def shape(block: str) -> str:
    """Return the block without what differs from run to run."""
    for pattern, name in _SHAPES:
        block = pattern.sub(name, block)
    return block
