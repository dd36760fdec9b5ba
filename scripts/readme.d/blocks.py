"""Every console block of the README is real: this runs them and says where the page has aged.

    python blocks.py            compare; exit 1 and a diff where a block differs
    python blocks.py --write    put in what the commands print now

The blocks run in their order, in one new folder that holds a checkpoint written by a real Spark
(`orders`). What differs from run to run (times, rates, names of runs, fingerprints) is compared by
its shape only. Where there is no Java, a block that starts a Spark is left as it is.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
SPEC = {
    "version": 1,
    "engine": "spark",
    "jobs": [
        {
            "name": "orders",
            "checkpoint_location": "orders",
            "remote_location": "moved/orders",
            "waive": ["paths-stay"],
        }
    ],
}
GOLDEN = ROOT / "tests" / "golden" / "spark-4.3.0"
HOME = "/srv/streams"  # what the folder is called on the page

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
    (re.compile(r" +"), " "),
)


def main(arguments: list[str]) -> int:
    page = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        fresh = rewritten(page, Path(folder).resolve())
    if "--write" in arguments:
        README.write_text(fresh, encoding="utf-8")
        return 0
    differences = list(compare(page, fresh))
    print(
        "\n".join(differences)
        if differences
        else "every block of the README is what its commands print"
    )
    return 1 if differences else 0


def rewritten(page: str, folder: Path) -> str:
    """The page with what the commands of its console blocks print now."""
    shutil.copytree(GOLDEN / "window-hdfs" / "checkpoint", folder / "orders")
    _age(folder / "orders")
    (savepoint,) = (GOLDEN.parent / "flink-2.3.0" / "count-two" / "image").iterdir()
    shutil.copytree(savepoint, folder / "savepoint")
    shutil.copy(ROOT / "configs" / "examples" / "payment-fraud.dataflow.json", folder)
    (folder / "move.json").write_text(json.dumps(SPEC, indent=2) + "\n")
    return _BLOCK.sub(
        lambda block: "".join(run(block[1], folder)) if can_run(block[1]) else block[1], page
    )


def can_run(block: str) -> bool:
    """A fleet is Spark's, and Spark is Java's."""
    return "--fleet" not in block or shutil.which("java") is not None or "JAVA_HOME" in os.environ


def _age(checkpoint: Path) -> None:
    """A checkpoint that was written just now makes a plan warn."""
    for path in checkpoint.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


def run(block: str, folder: Path) -> Iterator[str]:
    """Each `$ ` line of a block, and behind it what it prints."""
    environment = {
        **os.environ,
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "PYTHONPATH": str(ROOT),
        "CI": "1",
    }
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    environment.pop("FORCE_COLOR", None)
    binary = folder / ".bin"
    binary.mkdir(exist_ok=True)
    (binary / "stateshift").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stateshift "$@"\n')
    (binary / "stateshift").chmod(0o755)
    environment["PATH"] = f"{binary}:{environment['PATH']}"
    for command in (line[2:] for line in block.splitlines() if line.startswith("$ ")):
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=environment,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=300,
        )
        told = "".join(
            f"{line.rstrip()}\n" for line in done.stdout.replace(str(folder), HOME).splitlines()
        )
        yield f"$ {command}\n{told}"
        if command.startswith("rm "):  # the one block that does damage: mended behind it
            shutil.copytree(
                GOLDEN / "window-hdfs" / "checkpoint", folder / "orders", dirs_exist_ok=True
            )
            _age(folder / "orders")


def compare(page: str, fresh: str) -> Iterator[str]:
    """A diff of every block that differs in more than the numbers that always do."""
    for old, new in zip(_BLOCK.findall(page), _BLOCK.findall(fresh), strict=True):
        before, after = shape(old).splitlines(), shape(new).splitlines()
        yield from difflib.unified_diff(
            before, after, "README.md", "what is printed", lineterm="", n=1
        )


def shape(block: str) -> str:
    for pattern, name in _SHAPES:
        block = pattern.sub(name, block)
    return block


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
