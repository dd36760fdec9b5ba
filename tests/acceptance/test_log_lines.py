"""Edited text logs, asked of a real Spark 4.3: it starts from those that we call restartable, and
from none that we refuse, but for those that are named here.

The same edits are held against the codecs in tests/formats/spark/test_lines.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.acceptance.going_on import Start, go_on, write_inputs
from tests.acceptance.matrix.ground import quietly
from tests.formats.spark.test_lines import HARMLESS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCHES = 3
Edit = Callable[[bytes], bytes]

LOGS = {
    "offsets": f"offsets/{BATCHES - 1}",
    "offsets before": f"offsets/{BATCHES - 2}",
    "commit": f"commits/{BATCHES - 1}",
    "source": f"sources/0/{BATCHES - 1}",
    "metadata": "metadata",
}
OFFSETS: Mapping[str, Edit] = {
    "two newlines at the end": lambda log: log + b"\n\n",
    "a blank line at the end": lambda log: log + b"\n  ",
    "a blank line before the sources": lambda log: log.replace(
        b'\n{"logOffset', b'\n\n{"logOffset'
    ),
    "a blank line at the beginning": lambda log: b"\n" + log,
    "blanks behind the version": lambda log: log.replace(b"v1", b"v1 ", 1),
    "no source": lambda log: log[: log.rindex(b"\n") + 1],
}
SOURCE: Mapping[str, Edit] = {
    "two newlines at the end": lambda log: log + b"\n\n",
    "two of Windows' line ends at the end": lambda log: log + b"\r\n\r\n",
    "a blank line in it": lambda log: log.replace(b"\n", b"\n\n", 1),
    "a line of blanks in it": lambda log: log.replace(b"\n", b"\n \n", 1),
    "a carriage return inside an entry": lambda log: log.replace(
        b',"timestamp"', b',\r"timestamp"'
    ),
    "words behind an entry": lambda log: log + b" more",
}
COMMIT: Mapping[str, Edit] = {
    "a blank line before the watermark": lambda log: log.replace(b"\n", b"\n\n", 1),
    "two newlines at the end": lambda log: log + b"\n\n",
    "another line": lambda log: log + b"\nmore",
    "a version and no more": lambda log: b"v1",
    "words behind the watermark": lambda log: log + b" more",
}
EDITS: Mapping[str, Mapping[str, Edit]] = {
    "offsets": {**HARMLESS, **OFFSETS},
    "offsets before": OFFSETS,
    "commit": {**HARMLESS, **COMMIT},
    "source": {**HARMLESS, **SOURCE},
    "metadata": HARMLESS,
}
# Spark's parser stops behind the JSON. We hold such a log for damaged.
STRICTER = {("commit", "words behind the watermark"), ("source", "words behind an entry")}


def test_spark_starts_where_we_say_so_and_nowhere_else(tmp_path: Path) -> None:
    base, inputs = tmp_path / "base", tmp_path / "in"
    write_inputs(inputs, 0, BATCHES)
    (made,) = go_on(tmp_path, [Start("words", inputs, base)])
    assert made.error is None
    cases = [(log, edit) for log, edits in EDITS.items() for edit in edits]
    ours: dict[tuple[str, str], bool] = {}
    starts: list[Start] = []
    for number, (log, edit) in enumerate(cases):
        copy = tmp_path / f"copy-{number}"
        edited(base, copy, LOGS[log], EDITS[log][edit])
        code, out, err = quietly(["verify", str(copy), "--deep"])
        assert code in (0, 3, 5), out + err
        ours[log, edit] = code == 0
        starts.append(Start("words", inputs, copy))
    write_inputs(inputs, BATCHES, 1)
    ended = dict(zip(cases, go_on(tmp_path, starts), strict=True))
    differing = {
        case: ended[case].error for case in cases if ours[case] != (ended[case].error is None)
    }
    assert set(differing) == STRICTER, differing
    assert not any(ours[case] for case in STRICTER)
    for log, edit in cases:
        if ended[log, edit].error is None:
            assert [batch for batch, _ in ended[log, edit].output][:1] == [BATCHES]
    harmless = [(log, edit) for log, edit in cases if edit in HARMLESS]
    assert all(ours[case] for case in harmless)


def edited(base: Path, copy: Path, log: str, edit: Edit) -> None:
    """Copy a checkpoint, and edit one of its logs; Hadoop's checksum of it goes."""
    shutil.copytree(base, copy)
    path = copy / log
    content = path.read_bytes()
    path.write_bytes(edit(content))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
