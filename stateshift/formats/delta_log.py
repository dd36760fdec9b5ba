"""The log of a Delta table, as far as it tells the batches of a streaming job in the table.

    _delta_log/<version, 20 digits>.json                     a commit: one action a line
      {"txn":{"appId":"<query id>","version":<batch>,...}}     a query's last batch
      {"commitInfo":{"operation":"RESTORE",...}}               the table is back at another version
    _delta_log/_staged_commits/<version>.<uuid>.json         a commit that only the table's catalog
                                                             knows
    _delta_log/<version>.checkpoint.parquet                  all actions up to that version
    _delta_log/<version>.checkpoint.<part>.<parts>.parquet   the same in parts, 10 digits each
    _delta_log/<version>.checkpoint.<uuid>.json|parquet      the same, without the files (V2)
    _delta_log/_sidecars/<uuid>.parquet                      these files: a `sidecar` action names
                                                             it

Source: Delta, PROTOCOL.md; DeltaSink.addBatch writes the query's id and the batch as `txn`, and
skips a batch that is not newer than the last one. RESTORE keeps these actions. A function of
foreachBatch does the same with the options txnAppId and txnVersion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.spark.text import JsonObject, decode_object, decode_text, is_integer
from stateshift.formats.stream import lines

FOLDER = "_delta_log"
SIDECARS = f"{FOLDER}/_sidecars"
RESTORE = "RESTORE"
LINE_BYTES_MAX = 64 * 1024 * 1024

_WHAT = "a commit of a Delta table"
_STAGED = re.compile(r"_delta_log/_(?:staged_)?commits/([0-9]{20})\.[0-9a-fA-F-]{36}\.json")
_COMMIT = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint"
    r"(?:\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})|\.(?P<uuid>[0-9a-fA-F-]{36}))?"
    r"\.(?P<ending>parquet|json)"
)


class Transaction(NamedTuple):
    """One query's last batch, as a `txn` action says it."""

    app_id: str
    batch: int


class Commit(NamedTuple):
    """A commit, as far as jobs need it. `restores`: it takes back an older version's content."""

    transactions: tuple[Transaction, ...]
    restores: bool


class CheckpointName(NamedTuple):
    """A checkpoint's file. `part` counts from 1; without parts both numbers are 1."""

    version: int
    part: int
    parts: int
    is_json: bool
    name: str


def commit_version(name: str) -> int | None:
    """Return the version that the commit of this file name makes; None where it is no commit."""
    match = _COMMIT.fullmatch(name)
    return int(match[1]) if match else None


def staged_version(path: str) -> int | None:
    """Return the version of a commit that is not published yet (coordinated commits)."""
    match = _STAGED.fullmatch(path)
    return int(match[1]) if match else None


def checkpoint_name(name: str) -> CheckpointName | None:
    """Return the parts of a checkpoint's file name; None for another file."""
    match = _CHECKPOINT.fullmatch(name)
    if match is None:
        return None
    is_json = match["ending"] == "json"
    if is_json and match["uuid"] is None:
        return None
    part, parts = int(match["part"] or 1), int(match["parts"] or 1)
    return CheckpointName(int(match[1]), part, parts, is_json, name)


def newest_checkpoint(names: Iterable[str]) -> tuple[CheckpointName, ...]:
    """Return the files of the newest checkpoint that is whole; empty where there is none."""
    checkpoints: dict[tuple[object, ...], list[CheckpointName]] = {}
    for file in filter(None, map(checkpoint_name, names)):
        alone = file.name if file.parts == 1 else ""
        checkpoint = (file.version, file.parts, file.is_json, alone)
        checkpoints.setdefault(checkpoint, []).append(file)
    newest: list[CheckpointName] = []
    for files in checkpoints.values():
        is_whole = len({file.part for file in files}) == files[0].parts
        if is_whole and (not newest or files[0].version > newest[0].version):
            newest = files
    return tuple(sorted(newest))


def decode_transactions(chunks: Iterable[bytes]) -> Iterator[Transaction]:
    """Yield the `txn` actions of a commit, or of a checkpoint in JSON."""
    for offset, action in _actions(chunks, "txn"):
        txn = action.get("txn")
        if txn is not None:
            yield transaction_of(txn, offset)


def decode_actions(chunks: Iterable[bytes], name: str) -> Iterator[JsonObject]:
    """Yield the actions of this name in a commit, or in a checkpoint in JSON."""
    for _, action in _actions(chunks, name):
        said = action.get(name)
        if isinstance(said, dict):
            yield said


def decode_commit(chunks: Iterable[bytes]) -> Commit:
    """Return a commit. Only lines of the two actions are decoded."""
    transactions: list[Transaction] = []
    restores = False
    for offset, action in _actions(chunks, "txn", "commitInfo"):
        info = action.get("commitInfo")
        restores |= isinstance(info, dict) and info.get("operation") == RESTORE
        txn = action.get("txn")
        if txn is not None:
            transactions.append(transaction_of(txn, offset))
    return Commit(tuple(transactions), restores)


def _actions(chunks: Iterable[bytes], *names: str) -> Iterator[tuple[int, JsonObject]]:
    """Yield the lines that may hold an action of these names, with offsets. Others stay text."""
    wanted = [f'"{name}"'.encode() for name in names]
    for offset, line in lines(_bounded(chunks)):
        if any(name in line for name in wanted):
            yield offset, decode_object(decode_text(line, _WHAT, offset), _WHAT, offset)


def transaction_of(txn: object, offset: int | None = None) -> Transaction:
    """Return one `txn` action."""
    fields = txn if isinstance(txn, dict) else {}
    app_id, batch = fields.get("appId"), fields.get("version")
    if not isinstance(app_id, str) or not is_integer(batch):
        raise FormatError(f"{_WHAT}: a txn action without appId and version", None, offset)
    return Transaction(app_id, batch)


def _bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same chunks; refuse a line that is longer than any action is."""
    length = total = 0
    for chunk in chunks:
        last_newline = chunk.rfind(b"\n")
        after_newline = len(chunk) - last_newline - 1
        if last_newline >= 0:
            length = after_newline
        else:
            length += len(chunk)
        if length > LINE_BYTES_MAX:
            fact = f"{_WHAT}: a line is longer than {LINE_BYTES_MAX:,} bytes"
            raise FormatError(fact, None, total)
        total += len(chunk)
        yield chunk
