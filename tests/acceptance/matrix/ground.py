"""Jobs that are run, changed by the command line and carried on, each below one folder; and what
came out of them.

    input/even, input/odd    events: those of words with an even number, and with an odd one; both
                             end at the same time
    <base>/whole, even, odd  a job over both inputs, or over one; its checkpoint and its output
                             after three batches
    <base>/untouched         the whole one, carried on over the rest of the input
    <cell>/<part>            what the command line made of it, carried on likewise

The rest of the input touches every key that state holds, brings new ones, and then leaves them all
behind: what state is lost, doubled or misplaced shows in what comes out.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stateshift.cli import main
from tests.acceptance.matrix.events import PARITIES, words_of
from tests.acceptance.matrix.kinds import CHANGES, PARTITIONS, Base, Cell, command
from tests.acceptance.support import JOBS, environment


@dataclass(frozen=True)
class Order:
    """A query to be run."""

    name: str
    query: str
    inputs: tuple[str, ...]
    checkpoint: Path
    output: Path
    conf: Mapping[str, str]
    words: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        places = {"checkpoint": str(self.checkpoint), "output": str(self.output)}
        told = {
            "name": self.name,
            "query": self.query,
            "conf": dict(self.conf),
            "words": list(self.words),
        }
        return {**told, "inputs": list(self.inputs), **places}


class Refused(Exception):
    """The command line said no: nothing was changed."""


class Broke(Exception):
    """The command line failed where it should not."""


# -- what lies where


@dataclass(frozen=True)
class Ground:
    folder: Path

    def inputs(self, *parities: str) -> tuple[str, ...]:
        return tuple(str(self.folder / "input" / parity) for parity in parities or PARITIES)

    def place(self, name: str, part: str) -> Path:
        return self.folder / name.replace(" ", "-") / part

    def first_run(self, base: Base, part: str) -> Order:
        """The base before anything happens to it; over both inputs (`whole`), or over one."""
        return self._order(
            base.name, part, base, base.query, self.inputs(*([part] if part in PARITIES else []))
        )

    def untouched(self, base: Base) -> Order:
        order = self._order(base.name, "untouched", base, base.query, self.inputs())
        return replace(order, conf=later(base.conf))

    def carry_on_untouched(self, base: Base) -> None:
        """Prepare the untouched continuation."""
        _copy(self.place(base.name, "whole"), self.place(base.name, "untouched"))

    def change(self, cell: Cell) -> list[Order]:
        """Let the command line change the base. What has to be carried on afterwards; Refused,
        or Broke.
        """
        self.clear(cell)
        match cell.change:
            case "split":
                return self._split(cell)
            case "merge":
                return self._merge(cell)
            case "import":
                return self._import(cell)
        target = self._target(cell, "whole")
        self._asked(
            cell,
            *command(cell)[:1],
            self._source(cell, "whole"),
            "--to",
            target,
            *command(cell)[1:],
        )
        return [
            self._after(
                cell,
                "whole",
                self.inputs(*reversed(PARITIES)) if CHANGES[cell.change].swapped else (),
            )
        ]

    def clear(self, cell: Cell) -> None:
        shutil.rmtree(self.folder / "cells" / cell_folder(cell), ignore_errors=True)

    def expected(self, base: Base, batch: int) -> Counter[str]:
        """What the untouched one put out after that batch."""
        return rows_of(self.place(base.name, "untouched") / "output", batch)

    def found(self, cell: Cell, orders: Sequence[Order]) -> Counter[str]:
        change = CHANGES[cell.change]
        last = change.batch if change.numbered is None else change.numbered
        return sum((rows_of(order.output, last) for order in orders), Counter())

    def wrong(self, cell: Cell, orders: Sequence[Order]) -> str | None:
        """In which way what came out is not what had to."""
        expected, found = (
            self.expected(like(cell.base), CHANGES[cell.change].batch),
            self.found(cell, orders),
        )
        assert expected, "a query that puts nothing out shows nothing"
        if found != expected:
            lost, added = (
                sorted((expected - found).elements()),
                sorted((found - expected).elements()),
            )
            return f"{len(lost)} rows lost ({lost[:2]}), {len(added)} added ({added[:2]})"
        partitions = CHANGES[cell.change].partitions
        if partitions is not None:
            newest = max(
                (order.checkpoint / "offsets" for order in orders), key=lambda path: path.name
            )
            last = max(newest.glob("[0-9]*"), key=lambda path: int(path.name)).read_text()
            if f'"{PARTITIONS}":"{partitions}"' not in last:
                return f"it did not go on with {partitions} partitions"
        return None

    # -- how the command line is asked

    def _split(self, cell: Cell) -> list[Order]:
        targets = [word for parity in PARITIES for word in ("--to", self._target(cell, parity))]
        values = [word for parity in PARITIES for word in ("--values", ",".join(words_of(parity)))]
        self._asked(
            cell,
            "split",
            self._source(cell, "whole"),
            *targets,
            "--column",
            "word",
            *values,
            fork=False,
        )
        return [self._after(cell, parity, words=words_of(parity)) for parity in PARITIES]

    def _merge(self, cell: Cell) -> list[Order]:
        target, sources = (
            self._target(cell, "whole"),
            [self._source(cell, parity) for parity in PARITIES],
        )
        sums = ("--sum", "count", "--sum", "sum") if cell.base.kind == "totals" else ()
        if not cell.base.kind.startswith("join"):
            self._asked(cell, "merge", *sources, "--to", target, *sums)
            return [self._after(cell, "whole")]
        # The merged sources are those of the first checkpoint, left and right, then of the second.
        # The job reads both inputs left, then both right.
        between = self._target(cell, "merged")
        self._asked(cell, "merge", *sources, "--to", between)
        if not cell.base.version.startswith("3."):
            self._asked(
                cell, "rename", between, "--to", target, "--source", "1=2", "--source", "2=1"
            )
            return [self._after(cell, "whole")]
        # Spark 3.5 knows that a column which is filtered by is not null, but not of a union: it
        # refuses the merged job the state of the single ones, until the schema says that it may be
        # null. Spark 4.3 says so always.
        renamed, stores = (
            self._target(cell, "renamed"),
            [f"{side}-keyWithIndexToValue" for side in ("left", "right")],
        )
        self._asked(cell, "rename", between, "--to", renamed, "--source", "1=2", "--source", "2=1")
        named = [word for store in stores for word in ("--store", store)]
        self._asked(cell, "evolve", renamed, "--to", target, "--nullable", "*", *named)
        return [self._after(cell, "whole")]

    def _import(self, cell: Cell) -> list[Order]:
        """All rows of the base, exported, become the state of a copy."""
        source, target = self._source(cell, "whole"), self._target(cell, "whole")
        rows = Path(target).parent / "rows.jsonl"
        rows.parent.mkdir(parents=True)
        code, out, err = quietly(["export", source, "--to", str(rows), "--json"])
        if code != 0:
            raise Broke(_fact(out, err))
        words = (str(rows), "--template", source, "--to", target)
        self._asked(cell, "import", *words, fork=False)
        return [self._after(cell, "whole")]

    def _asked(self, cell: Cell, kind: str, *words: str, fork: bool = True) -> None:
        forks = (
            ["--fork"] if fork and kind != "fork" else []
        )  # the base goes on, and is changed again
        flags = [
            "--waive",
            "paths-stay",
            "--workdirs",
            str(self.folder / "runs"),
            "--yes",
            "--json",
        ]
        code, out, err = quietly([kind, *words, *forks, *flags])
        if code == 4:
            raise Refused(_fact(out, err))
        if code != 0:
            raise Broke(f"exit code {code}: {_fact(out, err)}")

    def _source(self, cell: Cell, part: str) -> str:
        return str(self.place(cell.base.name, part) / "checkpoint")

    def _target(self, cell: Cell, part: str) -> str:
        return str(self.folder / "cells" / cell_folder(cell) / part / "checkpoint")

    def _after(
        self, cell: Cell, part: str, inputs: tuple[str, ...] = (), words: tuple[str, ...] = ()
    ) -> Order:
        place, change = self.folder / "cells" / cell_folder(cell) / part, CHANGES[cell.change]
        conf, query = later(cell.base.conf), change.after or cell.base.query
        name = f"{cell.name}/{part}"
        return Order(
            name,
            query,
            inputs or self.inputs(),
            place / "checkpoint",
            place / "output",
            conf,
            words,
        )

    def _order(
        self, name: str, part: str, base: Base, query: str, inputs: tuple[str, ...]
    ) -> Order:
        place = self.place(name, part)
        return Order(
            f"{base.version}/{name}/{part}",
            query,
            inputs,
            place / "checkpoint",
            place / "output",
            base.conf,
        )


def later(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of a job that goes on: of which checkpoint format its checkpoint is, Spark
    finds out by itself.
    """
    return {
        key: value for key, value in conf.items() if not key.endswith("checkpointFormatVersion")
    }


def like(base: Base) -> Base:
    """The base whose output is the measure: a number of partitions changes nothing about it."""
    return Base(base.version, base.kind, base.provider)


def cell_folder(cell: Cell) -> str:
    return f"{cell.base.name}.{cell.change.replace(' ', '-')}"


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


# -- running


def quietly(argv: Sequence[str]) -> tuple[int, str, str]:
    """The command line in this process: it starts a thousand times."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in argv])
    if code == 130:  # it took the signal that was meant for all of us
        raise KeyboardInterrupt
    return code or 0, out.getvalue(), err.getvalue()


def _fact(out: str, err: str) -> str:
    """What was said against it, in one line."""
    try:
        said = json.loads(out or err)
    except ValueError:
        return (err or out).strip()[-2000:]
    refused = [
        f["message"]
        for f in said.get("findings", ())
        if f["level"] == "refuse" and not f.get("waived")
    ]
    error = said.get("error", said)
    told = error.get("message") or error.get("fact") if isinstance(error, dict) else error
    told = "; ".join(dict.fromkeys(refused)) or str(told or said)
    return re.sub(r"(?:file://)?/\S*?/checkpoint\b", "…", told)


def run_spark(
    python: str, folder: Path, orders: Sequence[Order], seconds_max: float = 3600
) -> dict[str, str | None]:
    """Run the queries in one Spark: what went wrong with each, None where nothing did. Where Spark
    itself dies, those that had not ended are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked, results = folder / "orders.json", folder / "results"
    asked.write_text(json.dumps([order.plain() for order in orders]))
    results.unlink(missing_ok=True)
    own = {"PYSPARK_PYTHON": python, "PYTHONDONTWRITEBYTECODE": "1"}
    with (folder / "spark.log").open("w") as log:
        done = subprocess.run(
            [python, str(JOBS / "shapes.py"), str(asked), str(results)],
            cwd=folder,
            env={**environment(), **own},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
            timeout=seconds_max,
        )
    lines = results.read_text().splitlines() if results.exists() else []
    told = {line["name"]: line["wrong"] for line in map(json.loads, lines)}
    assert told or done.returncode == 0, (folder / "spark.log").read_text()[-3000:]
    return told


def rows_of(output: Path, after: int = -1) -> Counter[str]:
    """The rows that came out after a batch, in no order."""
    paths = [path for path in output.glob("*.json") if int(path.stem) > after]
    return Counter(line for path in paths for line in path.read_text().splitlines())


def digest_of(orders: Iterable[Order]) -> str:
    """Of how Spark is asked and of the bytes that it restores from; who the query is is left
    out.
    """
    found = hashlib.sha256()
    for number, order in enumerate(orders):
        checkpoint = order.checkpoint
        found.update(json.dumps(order.plain(), sort_keys=True).encode())
        for path in sorted(
            p for p in checkpoint.rglob("*") if p.is_file() and p.name != "metadata.tmp"
        ):
            name = path.relative_to(checkpoint).as_posix()
            if name == "metadata" or name.startswith("_stateshift"):
                continue
            content = path.read_bytes()
            found.update(f"{number}\0{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()
