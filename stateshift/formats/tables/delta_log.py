"""The log of a Delta table, as far as it tells which batches of a streaming job are in the table.

    _delta_log/<version, 20 digits>.json                                  a commit: one action a line
      {"txn":{"appId":"<query id>","version":<batch>,"lastUpdated":...}}    a query's last batch
      {"commitInfo":{"operation":"RESTORE",...}}                            the table has gone back to another version
    _delta_log/_staged_commits/<version>.<uuid>.json                      a commit that only the table's catalog knows
    _delta_log/<version>.checkpoint.parquet                               all actions up to that version
    _delta_log/<version>.checkpoint.<part, 10 digits>.<parts>.parquet     the same in parts
    _delta_log/<version>.checkpoint.<uuid>.json|parquet                   the same, without the files (V2)

Source: Delta, PROTOCOL.md; DeltaSink.addBatch writes the query's id and the batch as `txn`, and
skips a batch that is not newer than the last one. RESTORE keeps these actions. A function of
foreachBatch does the same with the options txnAppId and txnVersion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.spark.text import decode_object, decode_text
from stateshift.formats.stream import lines

FOLDER = "_delta_log"
RESTORE = "RESTORE"
LINE_BYTES_MAX = 64 * 1024 * 1024

_WHAT = "a commit of a Delta table"
_STAGED = re.compile(r"_delta_log/_(?:staged_)?commits/([0-9]{20})\.[0-9a-fA-F-]{36}\.json")
_COMMIT = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint(?:\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})|\.(?P<uuid>[0-9a-fA-F-]{36}))?"
    r"\.(?P<ending>parquet|json)"
)


class Transaction(NamedTuple):
    """One query's last batch, as a `txn` action says it."""

    app_id: str
    batch: int


class Commit(NamedTuple):
    """What one commit says of streaming jobs. `restores`: it takes the table back to what an
    older version held.
    """

    transactions: tuple[Transaction, ...]
    restores: bool


class CheckpointName(NamedTuple):
    """A checkpoint's file. Of several parts, `part` counts from 1; without parts both numbers
    are 1.
    """

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
    """Return the version of a commit that is not published yet (coordinated commits); None where
    it is none.
    """
    match = _STAGED.fullmatch(path)
    return int(match[1]) if match else None


def checkpoint_name(name: str) -> CheckpointName | None:
    """Return what the name of a checkpoint's file says; None where it is none."""
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
    by_form: dict[tuple[int, int, bool, str], list[CheckpointName]] = {}
    for name in names:
        found = checkpoint_name(name)
        if found is not None:
            alone = found.name if found.parts == 1 else ""
            by_form.setdefault((found.version, found.parts, found.is_json, alone), []).append(found)
    whole = [
        files
        for (_, parts, _, _), files in by_form.items()
        if len({file.part for file in files}) == parts
    ]
    newest = max(whole, key=lambda files: files[0].version, default=[])
    return tuple(sorted(newest))


def decode_transactions(chunks: Iterable[bytes]) -> Iterator[Transaction]:
    """Yield the `txn` actions of a commit, or of a checkpoint in JSON. Other lines are not
    decoded.
    """
    for offset, action in _actions(chunks, "txn"):
        if action.get("txn") is not None:
            yield transaction_of(action["txn"], offset)


def decode_commit(chunks: Iterable[bytes]) -> Commit:
    """Return what a commit says. Of its lines only those of the two actions are decoded."""
    transactions: list[Transaction] = []
    restores = False
    for offset, action in _actions(chunks, "txn", "commitInfo"):
        if action.get("txn") is not None:
            transactions.append(transaction_of(action["txn"], offset))
        info = action.get("commitInfo")
        if isinstance(info, dict) and info.get("operation") == RESTORE:
            restores = True
    return Commit(tuple(transactions), restores)


def _actions(chunks: Iterable[bytes], *names: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines that may hold an action of these names, each with its offset; no others
    are decoded.
    """
    wanted = [f'"{name}"'.encode() for name in names]
    for offset, line in lines(_bounded(chunks)):
        if any(name in line for name in wanted):
            yield offset, decode_object(decode_text(line, _WHAT, offset), _WHAT, offset)


def transaction_of(txn: Any, offset: int | None = None) -> Transaction:
    """Return what one `txn` action says."""
    app_id = txn.get("appId") if isinstance(txn, dict) else None
    batch = txn.get("version") if isinstance(txn, dict) else None
    if not isinstance(app_id, str) or not isinstance(batch, int) or isinstance(batch, bool):
        raise FormatError(f"{_WHAT}: a txn action without appId and version", None, offset)
    return Transaction(app_id, batch)


def _bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same chunks; refused where a line is longer than any action is."""
    length = total = 0
    for chunk in chunks:
        last_newline = chunk.rfind(b"\n")
        length = length + len(chunk) if last_newline < 0 else len(chunk) - last_newline - 1
        if length > LINE_BYTES_MAX:
            raise FormatError(
                f"{_WHAT}: a line is longer than {LINE_BYTES_MAX:,} bytes", None, total
            )
        total += len(chunk)
        yield chunk
