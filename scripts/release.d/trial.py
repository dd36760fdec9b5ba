"""A trial of an installed stateshift, far from the checkout: a move, the man pages, the schema, completion.

python trial.py ENVIRONMENT VERSION

The move is the front page's first, with a command that starts the job. It needs no Spark, and the
environment has none: what needs one has to say so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "tests" / "golden" / "spark-4.3.0" / "window-hdfs" / "checkpoint"
# The job, as a command starts it: it commits the batch that comes next.
START = """#!/bin/sh
printf 'v1\\n{"nextBatchWatermarkMs":0}' > "${STATESHIFT_CHECKPOINT#file://}/commits/6"
"""
SHELLS = ("bash", "zsh", "fish")
PAGES_MIN = 30


class Trial:
    """An environment, and a folder in which its program runs."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.environment, self.folder = environment, folder
        self.variables = {
            "PATH": f"{environment / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
        }

    def run(self, *words: str, code: int = 0) -> str:
        """Return what a command prints, on both streams; it has to end with `code`."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != code:
            sys.exit(f"{' '.join(words)}: exit {done.returncode}, not {code}\n{done.stdout}")
        return done.stdout

    def expect(self, text: str, *words: str, code: int = 0) -> None:
        output = self.run("stateshift", *words, code=code)
        if text not in output:
            sys.exit(f"stateshift {' '.join(words)} does not say {text!r}:\n{output}")


def try_install(trial: Trial, version: str) -> None:
    trial.expect(f"stateshift {version}\n", "--version")
    home = trial.run("python", "-c", "import stateshift; print(stateshift.__file__)").strip()
    if not Path(home).is_relative_to(trial.environment):
        sys.exit(f"stateshift is imported from {home}")
    trial.run("python", "-c", "import pyspark", code=1)
    trial.expect("pip install 'stateshift[mcp]'", "mcp", code=4)


def try_move(trial: Trial) -> None:
    shutil.copytree(IMAGE, trial.folder / "orders")
    start = trial.folder / "start"
    start.write_text(START)
    start.chmod(0o755)
    move = ("move", "orders", "--to", "moved/orders", "--waive", "paths-stay")
    needs = ("--fleet", "local[1]", "--yes", "--workdir", "refused")
    trial.expect("stateshift[spark]", *move, *needs, code=7)
    trial.expect("finished", *move, "--start", "./start", "--yes", "--workdir", "run")
    trial.expect("still holds", "verify", "run")
    if not (trial.folder / "moved" / "orders" / "commits" / "6").exists():
        sys.exit("the moved job has not committed")


def try_pages(trial: Trial) -> None:
    trial.run("stateshift", "man", "pages")
    pages = list((trial.folder / "pages").rglob("*.1"))
    if len(pages) < PAGES_MIN:
        sys.exit(f"{len(pages)} man pages")
    if trial.run("stateshift", "schema") != (ROOT / "configs" / "spec.schema.json").read_text():
        sys.exit("stateshift schema is not configs/spec.schema.json")


def try_completion(trial: Trial) -> list[str]:
    """Return the shells that took the script of completion; the others are not here."""
    took = []
    for shell in SHELLS:
        script = trial.folder / f"completion.{shell}"
        script.write_text(trial.run("stateshift", "completion", shell))
        if "stateshift" not in script.read_text():
            sys.exit(f"no completion for {shell}")
        if shutil.which(shell):
            trial.run(shell, "-n", str(script))
            took.append(shell)
    return took


def main(environment: Path, version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(environment.resolve(), Path(folder).resolve())
        try_install(trial, version)
        try_move(trial)
        try_pages(trial)
        shells = try_completion(trial)
    absent = [shell for shell in SHELLS if shell not in shells]
    print(f"trial: a move, its verification, man pages, schema; completion in {', '.join(shells)}")
    if absent:
        print(
            f"trial: {', '.join(absent)} not here: its completion was printed, and not read by it"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
